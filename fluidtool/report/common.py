"""Records that several documents have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

NotFinite = Literal["NaN", "Infinity", "-Infinity"]
Number = float | NotFinite


class Location(TypedDict):
    """Where an error occurred; null where that is unknown, or means nothing."""

    file: Annotated[str | None, "the file that was read or written"]
    block: Annotated[int | None, "the block of the program"]
    operator: Annotated[int | None, "the position of the operator in its block"]
    type: Annotated[str | None, "the type of the operator"]
    variable: Annotated[str | None, "the variable, parameter or input"]


class Failure(TypedDict):
    """Why a command, or one of its inputs, failed."""

    code: Annotated[str | None, "the stable code of the error, such as FT210; null if the command was interrupted"]
    message: Annotated[str, "what was expected and what was found"]
    hint: Annotated[str | None, "what to do about it"]
    exit_code: Annotated[int, "the exit code of the command"]
    location: Annotated[Location | None, "where the error occurred"]


class SizedInput(TypedDict):
    """An input of a certain shape."""

    name: Annotated[str, "the name of the input"]
    shape: Annotated[Sequence[int], "its sizes; -1 is a size known only at run time"]


class ParameterStatistics(TypedDict):
    """A parameter and statistics of its finite elements."""

    name: Annotated[str, "the name of the parameter"]
    data_type: Annotated[str, "the type of its elements"]
    shape: Annotated[Sequence[int], "its sizes"]
    elements: Annotated[int, "the number of elements"]
    min: Annotated[float | None, "the smallest finite element; null if there is none"]
    max: Annotated[float | None, "the largest finite element; null if there is none"]
    mean: Annotated[float | None, "the mean of the finite elements; null if there are none"]
    std: Annotated[float | None, "their standard deviation; null if there are none"]
    zeros: Annotated[int, "the number of zeros"]
    nan: Annotated[int, "the number of elements that are NaN"]
    inf: Annotated[int, "the number of infinite elements"]


class ParameterDifference(TypedDict):
    """A parameter that only one of two models has, or whose values differ."""

    name: Annotated[str, "the name of the parameter"]
    left: Annotated[str | None, "its data type and shape in the first model; null if it has no such parameter"]
    right: Annotated[str | None, "its data type and shape in the second model; null if it has no such parameter"]
    elements: Annotated[int, "the number of elements that were compared"]
    differing: Annotated[int, "how many of them differ"]
    largest_difference: Annotated[Number | None, "the largest difference of two elements; null if none were compared"]


class Times(TypedDict):
    """Statistics of the seconds that runs took."""

    runs: Annotated[int, "the number of timed runs"]
    min: Annotated[float, "the shortest run, in seconds"]
    median: Annotated[float, "the median, in seconds"]
    p90: Annotated[float, "the 90th percentile, in seconds"]
    max: Annotated[float, "the longest run, in seconds"]
    mean: Annotated[float, "the mean, in seconds"]
    std: Annotated[float, "the standard deviation, in seconds"]


class EngineUse(TypedDict):
    """What computed."""

    name: Annotated[str, "the engine: numpy, cupy, native, onnxruntime or openvino"]
    operators: Annotated[int, "the number of operators that ran"]
    operators_in_regions: NotRequired[Annotated[int, "how many of them the engine computed in regions"]]
    regions: NotRequired[Annotated[int, "the number of regions"]]
    left_to_numpy: NotRequired[Annotated[Mapping[str, str], "types of operators that numpy computed, and why"]]
    reason: NotRequired[Annotated[str, "why numpy computed everything"]]
    instructions: NotRequired[Annotated[str, "the instruction set of the native engine"]]
    version: NotRequired[Annotated[str, "the version of a delegate"]]
    threads: NotRequired[Annotated[int, "the threads of the engine"]]
    precision: NotRequired[Annotated[str, "bf16, if that was requested"]]


class NativeEngine(TypedDict):
    """Whether the native engine is in use, or why not."""

    in_use: Annotated[bool, "whether it computes by default"]
    library: Annotated[str | None, "the path of its library; null if it was not built"]
    why_not: NotRequired[Annotated[str, "why it is not in use"]]
    instructions: NotRequired[Annotated[str, "the instruction set that it uses"]]
    vector_width: NotRequired[Annotated[int, "the number of floats in a vector"]]
    threads: NotRequired[Annotated[int, "the number of its threads"]]


class DifferingElement(TypedDict):
    """An element that differs by more than the tolerance."""

    index: Annotated[Sequence[int], "the place of the element"]
    found: Annotated[Number | bool | Sequence[Number], "its value; real and imaginary part of a complex number"]
    expected: Annotated[Number | bool | Sequence[Number], "the value it is compared with"]
    difference: Annotated[Number, "the absolute difference"]


class ComparedOutput(TypedDict):
    """A value beside the one that was expected."""

    name: Annotated[str, "the name of the variable"]
    fault: Annotated[str | None, "why the elements cannot be compared"]
    elements: Annotated[int, "the number of elements"]
    differing: Annotated[int, "how many of them differ by more than the tolerance"]
    largest_difference: Annotated[Number, "the largest absolute difference of finite elements"]
    worst: Annotated[Sequence[DifferingElement], "the elements that differ most, the worst first"]


class Figures(TypedDict):
    """A program in numbers; memory and time only if they were measured."""

    operators: Annotated[int, "the number of operators"]
    variables: Annotated[int, "the number of declared variables"]
    parameters: Annotated[int, "the number of parameters"]
    parameter_bytes: Annotated[int, "the size of the parameters, in bytes"]
    activation_bytes_kept: NotRequired[Annotated[int, "the size of all activations, if none is freed before the end"]]
    activation_bytes_live: NotRequired[Annotated[int, "the largest size of activations at once, if freed after use"]]
    seconds: NotRequired[Annotated[float, "the median time of a run, in seconds"]]


class Blocker(TypedDict):
    """An operator or a variable that the format to convert to cannot express."""

    block: Annotated[int, "the block of the operator or variable"]
    operator: Annotated[int | None, "the position of the operator in its block; null for a variable"]
    type: Annotated[str, "the type of the operator; empty for a variable"]
    output: Annotated[str, "the first output of the operator, or the variable"]
    reason: Annotated[str, "why it cannot be expressed"]
