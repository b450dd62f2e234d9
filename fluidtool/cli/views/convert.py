"""What `convert` shows: the files, what holds of them, the comparison; or what keeps a model from being converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fluidtool.cli.failures import failure, say
from fluidtool.cli.render import counted, differ, number, show, show_json, table
from fluidtool.errors import NotConvertibleError
from fluidtool.onnx_export.exporter import Blocker
from fluidtool.shapes import shape_text
from fluidtool.workflows.conversion import ConvertResult, VerifiedOutput

if TYPE_CHECKING:
    from fluidtool.report import common
    from fluidtool.report import convert as report


def show_refused(to: str, error: NotConvertibleError, json: bool) -> None:
    """The table of blockers, or the document."""
    if json:
        show_json(_refusal(to, error))
        return
    blockers: Sequence[Blocker] = error.blockers
    out = table("", ">block", ">operator", "!type", "output", "reason")
    for each in blockers:
        out.add(each.block, each.operator if each.operator >= 0 else "", each.type, each.output, each.reason)
    show(out)


def show_result(result: ConvertResult, json: bool) -> None:
    """Verified outputs on stdout, the rest on stderr; or the document."""
    if json:
        show_json(document(result))
    elif result.verified is not None:
        out = table("", "output", "type", "shape", ">difference", ">relative", "fault")
        for each in result.verified:
            out.add(
                each.name,
                each.dtype,
                shape_text(each.shape),
                number(each.difference, 3),
                number(each.relative, 3),
                each.fault,
            )
        show(out)
    say(f"read {result.given}")
    for note in result.notes:
        say(f"note: {note}")
    if result.verified is not None:
        say(_verdict(result, result.verified))
    say(f"{counted(len(result.files), 'file')} saved: {', '.join(str(path) for path in result.files)}")


def _verdict(result: ConvertResult, verified: Sequence[VerifiedOutput]) -> str:
    apart = len(result.differing)
    if apart:
        return f"{differ(apart, len(verified), 'output')} by more than {result.tolerance} of the largest number"
    worst = max((each.relative for each in verified), default=0.0)
    return f"ONNX Runtime gives the same {counted(len(verified), 'output')} (largest relative difference {worst:.3g})"


def document(result: ConvertResult) -> report.ConvertReport:
    """The data of `--json`."""
    data: report.ConvertReport = {
        "schema": "fluidtool.convert/1",
        "to": result.to,
        "files": [str(path) for path in result.files],
        "given": result.given,
        "parameters": result.parameters,
        "operators": result.operators,
        "opset": result.opset,
        "nodes": result.nodes,
        "single_sequence": result.single_sequence,
        "notes": result.notes,
        "blockers": [],
        "error": None,
    }
    if result.verified is not None:
        data["comparison"] = {
            "agrees": not result.differing,
            "tolerance": result.tolerance,
            "outputs": [_verified(each) for each in result.verified],
        }
    return data


def _verified(found: VerifiedOutput) -> report.VerifiedOutput:
    return {
        "name": found.name,
        "data_type": found.dtype,
        "shape": found.shape,
        "largest_difference": found.difference,
        "relative_difference": found.relative,
        "fault": found.fault or None,
    }


def _refusal(to: str, error: NotConvertibleError) -> report.ConvertReport:
    return {
        "schema": "fluidtool.convert/1",
        "to": to,
        "files": [],
        "given": None,
        "parameters": 0,
        "operators": 0,
        "opset": None,
        "nodes": 0,
        "single_sequence": False,
        "notes": [],
        "blockers": [_blocker(each) for each in error.blockers],
        "error": failure(error),
    }


def _blocker(found: Blocker) -> common.Blocker:
    return {
        "block": found.block,
        "operator": found.operator if found.operator >= 0 else None,
        "type": found.type,
        "output": found.output,
        "reason": found.reason,
    }
