"""The document of `view`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict


class DrawnGroup(TypedDict):
    """Operators that are drawn as one node, which opens in a page."""

    title: Annotated[str, "what the drawing calls it"]
    why: Annotated[
        Literal["block", "scope", "section"], "a block that an operator runs, a name scope, or a run of operators"
    ]
    block: Annotated[int, "the block of the operators that it contains"]
    operators: Annotated[int, "the number of operators in it, also in groups within"]


class UnknownOperator(TypedDict):
    """An operator that fluidtool does not have."""

    block: Annotated[int, "the block of the operator"]
    operator: Annotated[int, "its position in the block"]
    type: Annotated[str, "its type"]


class ColoredOperators(TypedDict):
    """What colors operators have in the drawing besides those of their kinds."""

    by: Annotated[Literal["time", "difference"], "what the colors say"]
    operators: Annotated[int, "the number of operators with a figure"]
    unmatched: Annotated[int, "the number of entries of the file that belong to no operator of this model"]


class ViewReport(TypedDict):
    """A drawing of a model."""

    schema: Annotated[Literal["fluidtool.view/1"], "the kind of this document"]
    files: Annotated[Sequence[str], "the files that were written"]
    format: Annotated[Literal["html", "svg", "dot"], "the format of the drawing"]
    operators: Annotated[int, "the number of operators in all blocks, drawn or folded"]
    shown: Annotated[int, "the number of nodes that are shown before a group is opened"]
    groups: Annotated[Sequence[DrawnGroup], "what is folded"]
    unknown: Annotated[Sequence[UnknownOperator], "the operators that are drawn, but not known"]
    colors: Annotated[Sequence[ColoredOperators], "figures from other documents"]
