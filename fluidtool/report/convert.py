"""The document of `convert`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

from fluidtool.report.common import Blocker, Failure, Number


class VerifiedOutput(TypedDict):
    """An output of the converted model beside that of the model."""

    name: Annotated[str, "the name of the output"]
    data_type: Annotated[str, "the type of its elements"]
    shape: Annotated[Sequence[int], "its sizes"]
    largest_difference: Annotated[Number, "the largest absolute difference of two elements"]
    relative_difference: Annotated[Number, "the same, relative to the largest element of the output"]
    fault: Annotated[str | None, "why the elements cannot be compared"]


class ConvertComparison(TypedDict):
    """The outputs of the converted model beside those of the model."""

    agrees: Annotated[bool, "whether no output differs by more than the tolerance"]
    tolerance: Annotated[float, "the tolerance, relative to the largest element of an output"]
    outputs: Annotated[Sequence[VerifiedOutput], "each output"]


class ConvertReport(TypedDict):
    """A converted model, or what keeps it from being converted."""

    schema: Annotated[Literal["fluidtool.convert/1"], "the kind of this document"]
    to: Annotated[str, "the format"]
    files: Annotated[Sequence[str], "the files that were written"]
    given: Annotated[str | None, "what the model was read from; null if it was not converted"]
    parameters: Annotated[int, "the number of parameters that were written"]
    operators: Annotated[int, "the number of operators that were converted"]
    opset: Annotated[int | None, "the version of ONNX's operators; null for other formats"]
    nodes: Annotated[int, "the number of ONNX nodes"]
    single_sequence: Annotated[bool, "whether inputs with sequences take one sequence at a time"]
    notes: Annotated[Sequence[str], "notes on the converted model"]
    blockers: Annotated[Sequence[Blocker], "what the format cannot express"]
    error: Annotated[Failure | None, "why nothing was written"]
    comparison: NotRequired[Annotated[ConvertComparison, "the comparison of --verify"]]
