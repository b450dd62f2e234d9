"""The document of `diff`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from fluidtool.report.common import ParameterDifference


class Change(TypedDict):
    """A field with two values."""

    field: Annotated[str, "what differs: version, shape, attribute axis, input X, ..."]
    left: Annotated[Any, "its value in the first program; null if it has none"]
    right: Annotated[Any, "its value in the second program; null if it has none"]


class OperatorDifference(TypedDict):
    """An operator that only one program has, or that differs."""

    type: Annotated[str, "the type of the operator"]
    left: Annotated[int | None, "its position in the block of the first program; null if it has no such operator"]
    right: Annotated[int | None, "its position in the block of the second program; null if it has no such operator"]
    left_outputs: Annotated[Sequence[str], "what it writes in the first program"]
    right_outputs: Annotated[Sequence[str], "what it writes in the second program"]
    changes: Annotated[Sequence[Change], "the fields that differ"]


class VariableDifference(TypedDict):
    """A variable that only one program has, or that differs."""

    name: Annotated[str, "the name of the variable"]
    left: Annotated[str | None, "its declaration in the first program; null if it has no such variable"]
    right: Annotated[str | None, "its declaration in the second program; null if it has no such variable"]
    changes: Annotated[Sequence[Change], "the fields that differ"]


class BlockDifference(TypedDict):
    """A block that only one program has, or that differs."""

    left: Annotated[int | None, "its index in the first program; null if it has no such block"]
    right: Annotated[int | None, "its index in the second program; null if it has no such block"]
    changes: Annotated[Sequence[Change], "the fields that differ"]
    operators: Annotated[Sequence[OperatorDifference], "the operators that differ"]
    variables: Annotated[Sequence[VariableDifference], "the variables that differ"]


class DiffReport(TypedDict):
    """What two models do not have in common."""

    schema: Annotated[Literal["fluidtool.diff/1"], "the kind of this document"]
    equal: Annotated[bool, "whether nothing differs"]
    changes: Annotated[Sequence[Change], "fields of the programs that differ"]
    blocks: Annotated[Sequence[BlockDifference], "the blocks that differ"]
    parameters: NotRequired[Annotated[Sequence[ParameterDifference], "the parameters that differ (--with-params)"]]
