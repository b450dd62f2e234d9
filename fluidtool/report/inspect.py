"""The documents of `inspect`, one for each view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from fluidtool.report.common import NativeEngine, ParameterStatistics, SizedInput

Schema = Annotated[Literal["fluidtool.inspect/1"], "the kind of this document"]


class Variable(TypedDict):
    """What a program declares of a variable."""

    name: Annotated[str, "the name of the variable"]
    kind: Annotated[str | None, "LOD_TENSOR, SELECTED_ROWS, ...; null if the variable is not declared"]
    data_type: Annotated[str | None, "the type of the elements; null if none is declared"]
    shape: Annotated[Sequence[int] | None, "the sizes, -1: known only at run time; null if none are declared"]
    lod_level: Annotated[int, "the number of levels of sequences"]
    persistable: Annotated[bool, "whether it keeps its value after a run"]


class OperatorCount(TypedDict):
    """The operators of one type."""

    type: Annotated[str, "the type"]
    count: Annotated[int, "the number of operators"]
    multiply_adds: Annotated[int | None, "their multiply-adds in a run; null if they have none, or none are known"]
    supported: Annotated[bool, "whether fluidtool runs them"]


class ParameterTotals(TypedDict):
    """The parameters of one data type."""

    data_type: Annotated[str, "the type of their elements"]
    count: Annotated[int, "the number of parameters"]
    elements: Annotated[int, "the number of their elements"]
    bytes: Annotated[int, "their size"]


class ParameterFault(TypedDict):
    """A parameter that cannot be read."""

    parameter: Annotated[str, "its name"]
    reason: Annotated[str, "why"]


class Cost(TypedDict):
    """What a run computes."""

    inputs: Annotated[Sequence[SizedInput], "the shapes of inputs that this holds for"]
    multiply_adds: Annotated[int, "the multiply-adds of a run"]
    flops: Annotated[int, "twice that"]
    unknown: Annotated[Sequence[str], "the types of operators that are not counted, since their sizes are unknown"]
    loops: Annotated[bool, "whether there are loops, of which one iteration is counted"]


class SummaryReport(TypedDict):
    """A model at a glance."""

    schema: Schema
    view: Annotated[Literal["summary"], "which view this is"]
    program: Annotated[str, "where the program was read"]
    version: Annotated[int | None, "the version of Paddle that saved it, as in the file: 1008005 for 1.8.5"]
    version_text: Annotated[str | None, "the same as text: 1.8.5; null if none is recorded"]
    layout: Annotated[str, "how program and parameters are stored"]
    parameter_source: Annotated[str, "where the parameters are; empty if there are none"]
    fault: Annotated[str | None, "why the parameters could not be opened; what follows is then as declared"]
    readable: Annotated[int | None, "how many parameters can be read in spite of the fault; null if there is none"]
    faults: Annotated[
        Sequence[ParameterFault], "the parameters that cannot be read; empty if there are no files at all"
    ]
    inputs: Annotated[Sequence[Variable], "the inputs"]
    outputs: Annotated[Sequence[Variable], "the outputs"]
    blocks: Annotated[int, "the number of blocks"]
    variables: Annotated[int, "the number of declared variables"]
    operators: Annotated[int, "the number of operators, except feed and fetch"]
    types: Annotated[Sequence[OperatorCount], "the same by type, the most frequent first"]
    parameters: Annotated[Sequence[ParameterTotals], "the parameters by data type, the largest first"]
    cost: Annotated[Cost, "what a run computes"]
    reaches: Annotated[Mapping[str, Sequence[str]], "what operators ask for (files, network, ...), with their types"]


class Operator(TypedDict):
    """An operator."""

    operator: Annotated[int, "its position in the block"]
    type: Annotated[str, "its type"]
    inputs: Annotated[Mapping[str, Sequence[str]], "the variables of each input slot"]
    outputs: Annotated[Mapping[str, Sequence[str]], "the variables of each output slot"]
    shapes: NotRequired[
        Annotated[Mapping[str, Sequence[int] | None], "the declared shapes of its variables; null if none (--ops)"]
    ]
    attributes: NotRequired[Annotated[Mapping[str, Any], "its attributes; blocks by their index (--with-details)"]]


class OperatorsBlock(TypedDict):
    """The operators of a block."""

    block: Annotated[int, "the index of the block"]
    parent: Annotated[int, "the block that contains it; -1 for the first"]
    operators: Annotated[Sequence[Operator], "the operators in order"]


class OperatorsReport(TypedDict):
    """What reads and writes what (--ops)."""

    schema: Schema
    view: Annotated[Literal["ops"], "which view this is"]
    blocks: Annotated[Sequence[OperatorsBlock], "the blocks in order"]


class VariablesBlock(TypedDict):
    """The variables of a block."""

    block: Annotated[int, "the index of the block"]
    parent: Annotated[int, "the block that contains it; -1 for the first"]
    variables: Annotated[Sequence[Variable], "the variables by name"]


class VariablesReport(TypedDict):
    """What the blocks declare (--vars)."""

    schema: Schema
    view: Annotated[Literal["vars"], "which view this is"]
    blocks: Annotated[Sequence[VariablesBlock], "the blocks in order"]


class DetailsBlock(TypedDict):
    """A block with everything in it."""

    block: Annotated[int, "the index of the block"]
    parent: Annotated[int, "the block that contains it; -1 for the first"]
    variables: Annotated[Sequence[Variable], "the variables by name"]
    operators: Annotated[Sequence[Operator], "the operators in order"]


class DetailsReport(TypedDict):
    """Everything that the program says (--with-details)."""

    schema: Schema
    view: Annotated[Literal["with-details"], "which view this is"]
    version: Annotated[int | None, "the version of Paddle that saved it, as in the file: 1008005 for 1.8.5"]
    blocks: Annotated[Sequence[DetailsBlock], "the blocks in order"]


class ParametersReport(TypedDict):
    """Statistics of the weights (--with-params)."""

    schema: Schema
    view: Annotated[Literal["with-params"], "which view this is"]
    parameters: Annotated[Sequence[ParameterStatistics], "the parameters by name"]
    faults: Annotated[Sequence[ParameterFault], "those that cannot be read"]


class KernelCall(TypedDict):
    """A call of a kernel of the native engine."""

    kernel: Annotated[str, "the kernel"]
    computes: Annotated[str, "what it computes"]
    result: Annotated[str, "the variable that it computes"]
    shape: Annotated[Sequence[int], "the shape of the result"]
    layout: Annotated[str, "how the result is arranged in memory"]
    tasks: Annotated[int, "how many tasks it is split into"]


class Rewrite(TypedDict):
    """What a rewrite did to the graph of a region."""

    name: Annotated[str, "the name of the rewrite"]
    purpose: Annotated[str, "what it is for"]
    done: Annotated[int, "how many times it was applied"]
    no_matches: Annotated[Mapping[str, int], "why it was not applied elsewhere, and how many times"]


class Region(TypedDict):
    """A run of operators that an engine computes in one call."""

    operators: Annotated[int, "the number of operators"]
    kernel_calls: Annotated[Sequence[KernelCall], "what they are compiled to"]
    arena_bytes: Annotated[int, "the memory of its values"]
    lower_bound_bytes: Annotated[int, "what any arrangement of them needs"]
    constant_bytes: Annotated[int, "the memory of packed weights and tables"]
    reason: Annotated[str | None, "why numpy computes it; null if the engine does"]
    rewrites: NotRequired[Annotated[Sequence[Rewrite], "what the rewrites did, in order (--explain)"]]


class PlannedEngine(NativeEngine):
    """What the engine computes of a program."""

    regions: Annotated[Sequence[Region], "the regions in order"]
    left_to_numpy: Annotated[Mapping[str, str], "types of operators that numpy computes, and why"]


class PlannedStep(TypedDict):
    """A step of a run."""

    step: Annotated[int, "its number"]
    type: Annotated[str, "the type of the operator"]
    engine: Annotated[str, "what computes it"]
    region: Annotated[int | None, "the region that it belongs to, counted from 1"]
    kernel: Annotated[str, "its kernel"]
    outputs: Annotated[Sequence[str], "the variables that it computes"]
    release: Annotated[Sequence[str], "the variables that are freed after it"]
    alive_bytes: Annotated[int, "the activations that are alive during the step, in bytes"]


class PlanReport(TypedDict):
    """The steps of a run (--plan)."""

    schema: Schema
    view: Annotated[Literal["plan"], "which view this is"]
    inputs: Annotated[Sequence[SizedInput], "the shapes of inputs that this holds for"]
    peak_activation_bytes: Annotated[int, "the most bytes of activations that are alive at once"]
    unknown: Annotated[Sequence[str], "variables that are not counted, since their sizes are known only at run time"]
    delegated_to: Annotated[str | None, "the delegate that computes regions in place of the native engine"]
    native: Annotated[PlannedEngine, "the native engine, and the regions of the program"]
    steps: Annotated[Sequence[PlannedStep], "the steps in order"]


InspectReport = (
    SummaryReport | OperatorsReport | VariablesReport | DetailsReport | ParametersReport | PlanReport
)  # by `view`
