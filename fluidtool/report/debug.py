"""The document of `debug reduce`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict


class DebugReport(TypedDict):
    """The smallest part of a model for which a command succeeds."""

    schema: Annotated[Literal["fluidtool.debug/1"], "the kind of this document"]
    operators: Annotated[int, "the number of operators that are left"]
    of: Annotated[int, "the number of operators of the model"]
    feeds: Annotated[Sequence[str], "the inputs of the part"]
    files: Annotated[Sequence[str], "the files that were written"]
    commands: Annotated[int, "how many times the command ran"]
    complete: Annotated[bool, "whether no operator can be taken out; false if --limit ended the search"]
