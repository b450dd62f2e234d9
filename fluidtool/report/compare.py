"""The document of `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

Number = float | Literal["NaN", "Infinity", "-Infinity"]


class Counts(TypedDict):
    """What of a value is not finite."""

    nan: Annotated[int, "the number of elements that are NaN"]
    inf: Annotated[int, "the number of infinite elements"]


class Element(TypedDict):
    """An element that differs by more than allowed."""

    index: Annotated[Sequence[int], "the place of the element"]
    left: Annotated[Number | bool | Sequence[Number], "the element of A; real and imaginary part of a complex number"]
    right: Annotated[Number | bool | Sequence[Number], "the element of B"]
    difference: Annotated[Number, "the absolute difference"]


class ComparedValue(TypedDict):
    """A value of A beside that of B."""

    name: Annotated[str, "the name of the variable in A"]
    partner: Annotated[str, "its name in B"]
    block: Annotated[int | None, "the block of the operator of A that computes it; null for an input"]
    operator: Annotated[int | None, "the position of that operator in its block"]
    type: Annotated[str | None, "the type of that operator"]
    written_in: Annotated[str | None, "the line of the script that made it; null if that is not recorded"]
    agrees: Annotated[bool, "whether no element differs by more than allowed"]
    rewritten: Annotated[bool, "whether B computes something else by this name, and all that follows agrees"]
    fault: Annotated[str | None, "why the elements cannot be compared"]
    elements: Annotated[int, "the number of elements"]
    differing: Annotated[int, "how many of them differ by more than allowed"]
    largest_difference: Annotated[Number, "the largest absolute difference of finite elements"]
    relative_difference: Annotated[Number, "the same, relative to the largest element of A"]
    left: Annotated[Counts, "what of A is not finite"]
    right: Annotated[Counts, "what of B is not finite"]
    worst: Annotated[Sequence[Element], "the elements that differ most, the worst first"]


class Unpaired(TypedDict):
    """A value of A that B does not have."""

    name: Annotated[str, "the name of the variable"]
    block: Annotated[int, "the block of the operator that computes it"]
    operator: Annotated[int, "the position of that operator in its block"]
    type: Annotated[str, "the type of that operator"]
    reason: Annotated[str, "why B does not have it"]


class Place(TypedDict):
    """An operator."""

    block: Annotated[int, "its block"]
    operator: Annotated[int, "its position in the block"]
    type: Annotated[str, "its type"]


class DifferingParameter(TypedDict):
    """A parameter whose values differ."""

    name: Annotated[str, "the name of the parameter"]
    fault: Annotated[str | None, "why the elements cannot be compared"]
    elements: Annotated[int, "the number of elements"]
    differing: Annotated[int, "how many of them differ"]
    largest_difference: Annotated[Number, "the largest absolute difference of finite elements"]


class DifferingAttribute(TypedDict):
    """An attribute with two values."""

    field: Annotated[str, "the attribute and the position of its operator"]
    left: Annotated[Any, "its value in A; null if it has none"]
    right: Annotated[Any, "its value in B; null if it has none"]


class FirstDifference(TypedDict):
    """Where the two part."""

    name: Annotated[str, "the first value in program order that differs"]
    operators: Annotated[Sequence[Place], "the operators that compute it from values that were compared"]
    inputs: Annotated[Mapping[str, str], "what they read: agrees, differs, input, parameter, not compared"]
    parameters: Annotated[Sequence[DifferingParameter], "the parameters among them that differ"]
    attributes: Annotated[Sequence[DifferingAttribute], "the attributes of these operators that differ"]


class Part(TypedDict):
    """The smallest part of the program that was found to show the difference."""

    name: Annotated[str, "the value that it computes"]
    operators: Annotated[int, "the number of its operators"]
    of: Annotated[int, "the number of operators of the program"]
    feeds: Annotated[Sequence[str], "its inputs"]
    largest_difference: Annotated[Number, "the largest absolute difference of the part alone"]
    files: Annotated[Sequence[str], "the files that were written"]
    command: Annotated[str, "the command line that shows the difference"]


class CompareReport(TypedDict):
    """Two runs, value by value."""

    schema: Annotated[Literal["fluidtool.compare/1"], "the kind of this document"]
    equal: Annotated[bool, "whether nothing differs by more than allowed"]
    left: Annotated[str, "what computed A"]
    right: Annotated[str, "what computed B, or where it was recorded"]
    rtol: Annotated[float, "the allowed difference relative to an element"]
    atol: Annotated[float | None, "the allowed absolute difference; null for rtol times the largest element"]
    outputs: Annotated[Sequence[str], "the outputs that were compared"]
    values: Annotated[Sequence[ComparedValue], "all values that were compared, in program order"]
    not_in_right: Annotated[Sequence[Unpaired], "the values of A that B does not have"]
    not_in_left: Annotated[Sequence[str], "the values of B that A does not have"]
    first_difference: Annotated[FirstDifference | None, "where A and B start to differ; null if they do not"]
    first_not_finite: Annotated[str | None, "the first value with NaN or infinities in A or B"]
    notes: Annotated[Sequence[str], "notes on the comparison"]
    part: Annotated[Part | None, "the smallest part that shows the difference (--bisect)"]
