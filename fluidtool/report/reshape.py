"""The document of `reshape`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from fluidtool.report.common import Failure


class ChangedShape(TypedDict):
    """The shape of a variable before and after."""

    name: Annotated[str, "the name of the variable"]
    before: Annotated[Sequence[int], "its sizes before; -1 is a size known only at run time"]
    after: Annotated[Sequence[int], "its sizes after"]


class BakedOperator(TypedDict):
    """An operator that contains a size of the old inputs."""

    block: Annotated[int, "the block of the operator"]
    operator: Annotated[int, "its position in the block"]
    type: Annotated[str, "its type"]
    output: Annotated[str, "the variable that it computes"]
    attribute: Annotated[str | None, "the attribute at fault"]
    value: Annotated[str | None, "the value of the attribute"]
    reason: Annotated[str, "why it contradicts the new shapes"]
    repair: Annotated[str | None, "what repairs it; null if nothing does"]
    written_in: Annotated[str | None, "where a script made the operator"]


class UnknownOperator(TypedDict):
    """An operator whose outputs cannot be inferred."""

    block: Annotated[int, "the block of the operator"]
    operator: Annotated[int, "its position in the block"]
    type: Annotated[str, "its type"]


class ReshapeReport(TypedDict):
    """A model with other shapes of inputs, or what keeps it from them."""

    schema: Annotated[Literal["fluidtool.reshape/1"], "the kind of this document"]
    files: Annotated[Sequence[str], "the files that were written"]
    inputs: Annotated[Sequence[ChangedShape], "the inputs that were changed"]
    outputs: Annotated[Sequence[ChangedShape], "the outputs"]
    baked: Annotated[Sequence[BakedOperator], "the operators that contain a size of the old inputs"]
    unknown: Annotated[Sequence[UnknownOperator], "the operators whose outputs cannot be inferred"]
    error: Annotated[Failure | None, "why nothing was changed"]
