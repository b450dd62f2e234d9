"""Values beside expected ones, for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidtool.tensor.compare import Comparison

if TYPE_CHECKING:
    from fluidtool.report.common import ComparedOutput


def compared(found: Comparison) -> ComparedOutput:
    """A value beside the expected one, with the elements that differ most."""
    return {
        "name": found.name,
        "fault": found.fault,
        "elements": found.elements,
        "differing": found.differing,
        "largest_difference": found.largest_error,
        "worst": [
            {"index": each.index, "found": each.found, "expected": each.expected, "difference": each.error}
            for each in found.worst
        ],
    }
