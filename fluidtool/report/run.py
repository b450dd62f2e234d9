"""The document of `run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from fluidtool.report.common import ComparedOutput, EngineUse, Failure, Number, Times


class RunOutput(TypedDict):
    """An output: a tensor, an item of a tensor array, or the rows of a SelectedRows."""

    name: Annotated[str, "the name of the variable, with [i] for an item of a tensor array"]
    data_type: Annotated[str | None, "the type of the elements; null if the variable has no value"]
    shape: Annotated[Sequence[int] | None, "the sizes; null if the variable has no value"]
    lod: Annotated[Sequence[Sequence[int]], "the sequence lengths, one list per level"]
    rows: Annotated[Sequence[int] | None, "the row numbers of a SelectedRows; null for other values"]
    height: Annotated[int | None, "the number of rows that a SelectedRows is a part of; null for other values"]
    min: Annotated[float | None, "the smallest finite element"]
    mean: Annotated[Number | None, "the mean of the finite elements"]
    max: Annotated[float | None, "the largest finite element"]
    nan: Annotated[int, "the number of elements that are NaN"]
    inf: Annotated[int, "the number of infinite elements"]
    values: Annotated[Any, "the elements as nested lists; null if there are more than 1000"]


class Operand(TypedDict):
    """An input of an operator."""

    slot: Annotated[str, "the slot of the operator"]
    name: Annotated[str, "the variable"]
    data_type: Annotated[str | None, "the type of the elements; null if the variable has no value"]
    shape: Annotated[Sequence[int] | None, "the sizes; null if the variable has no value"]
    min: Annotated[float | None, "the smallest finite element"]
    mean: Annotated[Number | None, "the mean of the finite elements"]
    max: Annotated[float | None, "the largest finite element"]
    nan: Annotated[int, "the number of elements that are NaN"]
    inf: Annotated[int, "the number of infinite elements"]


class NotFinite(TypedDict):
    """A variable with NaN or infinity, and the operator that wrote it."""

    block: Annotated[int, "the block of the operator"]
    operator: Annotated[int, "the position of the operator in its block"]
    type: Annotated[str, "the type of the operator"]
    slot: Annotated[str, "the slot of the variable"]
    variable: Annotated[str, "the variable"]
    given: Annotated[bool, "whether it was fed or is a parameter: the operator only reads it"]
    finite_inputs: Annotated[bool, "whether all inputs of the operator were finite"]
    nan: Annotated[int, "the number of elements that are NaN"]
    inf: Annotated[int, "the number of infinite elements"]
    elements: Annotated[int, "the number of elements"]
    first: Annotated[Sequence[int], "the index of the first that is not finite"]
    inputs: Annotated[Sequence[Operand], "what the operator read"]
    written_in: Annotated[str, "the line of the script that made the operator; empty if the program does not say"]


class RunComparison(TypedDict):
    """The outputs beside those that were expected."""

    agrees: Annotated[bool, "whether no output differs"]
    rtol: Annotated[float, "the relative tolerance"]
    atol: Annotated[float, "the absolute tolerance"]
    outputs: Annotated[Sequence[ComparedOutput], "each value that was expected"]


class RunReport(TypedDict):
    """A run."""

    schema: Annotated[Literal["fluidtool.run/1"], "the kind of this document"]
    outputs: Annotated[Sequence[RunOutput], "the outputs, or the variables that were fetched"]
    seconds: NotRequired[Annotated[Times, "the time of a run (--repeat)"]]
    engine: NotRequired[Annotated[EngineUse, "what computed (--repeat)"]]
    not_finite: NotRequired[Annotated[Sequence[NotFinite], "what was not finite (--check-nan, --check-nan-all)"]]
    error: NotRequired[Annotated[Failure, "what ended the run (--check-nan)"]]
    comparison: NotRequired[Annotated[RunComparison, "the comparison with --expect"]]
