"""The document of a failure: what any command writes in place of its own."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from fluidtool.report.common import Failure


class ErrorReport(TypedDict):
    """A command failed before it had anything else to write."""

    schema: Annotated[Literal["fluidtool.error/1"], "the kind of this document"]
    error: Annotated[Failure, "why it failed"]
