"""What `prune` shows: the model in numbers, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidtool.cli.views.figures import figures_data, figures_table
from fluidtool.workflows.prune import PruneResult

if TYPE_CHECKING:
    from fluidtool.report.prune import PruneReport


def document(result: PruneResult) -> PruneReport:
    """The data of `--json`."""
    return {
        "schema": "fluidtool.prune/1",
        "files": [str(path) for path in result.files],
        "before": figures_data(result.before),
        "after": figures_data(result.after),
    }


__all__ = ["document", "figures_table"]
