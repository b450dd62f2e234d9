"""The documents of `ops`: the operators of a pattern, one operator, and what a model needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

Schema = Annotated[Literal["fluidtool.ops/1"], "the kind of this document"]


class Slot(TypedDict):
    """An input or output slot of an operator."""

    name: Annotated[str, "the name of the slot"]
    several: Annotated[bool, "whether it takes several variables"]
    may_be_absent: Annotated[bool, "whether it is optional"]
    intermediate: Annotated[bool, "whether only the gradient reads it"]


class Attribute(TypedDict):
    """An attribute of an operator."""

    type: Annotated[str, "its type"]
    default: Annotated[Any, "its default; null if it is required"]
    required: Annotated[bool, "whether it has no default"]


class LodRule(TypedDict):
    """An output that gets the LoD of an input."""

    input: Annotated[str, "the input slot"]
    output: Annotated[str, "the output slot"]


class Declaration(TypedDict):
    """How an operator is declared."""

    type: Annotated[str, "the type of the operator"]
    module: Annotated[str, "the module of its kernel"]
    inputs: Annotated[Sequence[Slot], "the input slots"]
    outputs: Annotated[Sequence[Slot], "the output slots"]
    attributes: Annotated[Mapping[str, Attribute], "the attributes by name"]
    gradient: Annotated[str | None, "the gradient operator, or built if a function builds several; null without one"]
    lod: Annotated[Sequence[LodRule], "which outputs get the LoD of which inputs"]
    random: Annotated[bool, "whether results are random"]
    side_effects: Annotated[bool, "whether it does more than compute its outputs"]


class Counts(TypedDict):
    """How many operators there are."""

    paddle_1_8_5_total: Annotated[int, "the forward operators of Paddle 1.8.5"]
    paddle_1_8_5_implemented: Annotated[int, "how many of them are implemented"]
    paddle_1_8_5_with_gradient: Annotated[int, "how many of those have a gradient"]
    paddle_1_8_5_excluded: Annotated[int, "how many are not supported, with a reason"]
    gradient_operators: Annotated[int, "the gradient operators"]
    later_operators: Annotated[int, "operators that came after Paddle 1.8.5"]


class OperatorsReport(TypedDict):
    """The operators of a pattern, or all of them."""

    schema: Schema
    view: Annotated[Literal["operators"], "which document this is"]
    counts: Annotated[Counts, "how many there are"]
    operators: Annotated[Sequence[Declaration], "the operators by name"]
    not_supported: Annotated[Mapping[str, str], "the operators that are not supported, each with its reason"]


class OperatorReport(TypedDict):
    """One operator."""

    schema: Schema
    view: Annotated[Literal["operator"], "which document this is"]
    operator: Annotated[Declaration, "how it is declared"]


class NeededType(TypedDict):
    """The operators of one type."""

    type: Annotated[str, "the type"]
    count: Annotated[int, "the number of operators"]
    reason: Annotated[str | None, "why they do not run; null if they do"]


class CoverageReport(TypedDict):
    """What a model needs (--coverage)."""

    schema: Schema
    view: Annotated[Literal["coverage"], "which document this is"]
    program: Annotated[str, "where the program was read"]
    supported: Annotated[bool, "whether all operators run"]
    types: Annotated[Sequence[NeededType], "the types of operators by name"]


OpsReport = OperatorsReport | OperatorReport | CoverageReport  # by `view`
