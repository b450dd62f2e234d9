"""The document of `prune`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from fluidtool.report.common import Figures


class PruneReport(TypedDict):
    """A pruned model."""

    schema: Annotated[Literal["fluidtool.prune/1"], "the kind of this document"]
    files: Annotated[Sequence[str], "the files that were written"]
    before: Annotated[Figures, "the model in numbers"]
    after: Annotated[Figures, "the pruned model in numbers"]
