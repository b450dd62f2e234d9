"""What the passes of quantization share: lists of operators, names, and nodes with values (Paddle 1.8.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError
from fluidtool.fluid.ir_graph import IrGraph, IrOpNode, IrVarNode
from fluidtool.ir import unique_name
from fluidtool.ir.roles import NAMESCOPE_ATTR, ROLE_ATTR, OpRole
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import Place

QUANTIZERS = (
    "fake_quantize_abs_max",
    "fake_quantize_range_abs_max",
    "fake_quantize_moving_average_abs_max",
    "fake_channel_wise_quantize_abs_max",
)
DEQUANTIZERS = ("fake_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs")
CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
KIND, WITH_WEIGHT, WITHOUT_WEIGHT = "quantization_type", "qat_with_weight", "qat_without_weight"

# The slots that count: those of `AxisTensor` and the like do not.
SLOTS: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(CONVOLUTIONS, (("Input", "Filter"), "Output")),
    **dict.fromkeys(
        [
            "mul",
            "matmul",
            "elementwise_add",
            "elementwise_sub",
            "elementwise_mul",
            "equal",
            "not_equal",
            "greater_equal",
            "greater_than",
            "less_equal",
            "less_than",
        ],
        (("X", "Y"), "Out"),
    ),
    **dict.fromkeys(
        [
            "pool2d",
            "concat",
            "softmax",
            "argmax",
            "transpose",
            "transpose2",
            "gather",
            "mean",
            "reshape",
            "reshape2",
            "bilinear_interp",
            "nearest_interp",
            "trilinear_interp",
            "squeeze",
            "relu",
            "relu6",
            "leaky_relu",
            "prelu",
            "tanh",
            "swish",
            "dropout",
            "sigmoid",
            "scale",
        ],
        (("X",), "Out"),
    ),
    "slice": (("Input",), "Out"),
    "batch_norm": (("X",), "Y"),
}


@dataclass(frozen=True)
class Values:
    """Where the values of variables are."""

    scope: Scope
    place: Place

    def read(self, name: str) -> Any:
        """A copy of the value of a variable; raises AssertedError if there is none."""
        found = self.scope.find_var(name)
        if found is None:
            raise AssertedError(
                f"the scope has no variable {name}; run the startup program, or load the parameters, first"
            )
        return np.array(found.get_tensor())

    def write(self, name: str, value: Any) -> None:
        """Give a variable a value."""
        self.scope.var(name).get_tensor().set(value, self.place)


def values_of(scope: Scope | None, place: Place | None) -> Values:
    """Where values are; raises AssertedError if that is not said."""
    if scope is None:
        raise AssertedError("The scope cannot be set None.")
    if place is None:
        raise AssertedError("The place cannot be set None.")
    return Values(scope, place)


def check_graph(graph: Any) -> None:
    """Raises AssertedError for anything but an IrGraph."""
    if not isinstance(graph, IrGraph):
        raise AssertedError(f"graph must be the instance of IrGraph, found {type(graph).__name__}")


def inputs_of(op: IrOpNode) -> list[str]:
    """The variables that an operator computes from."""
    return [name for slot in SLOTS[op.name()][0] for name in op.input(slot)]


def outputs_of(op: IrOpNode) -> list[str]:
    """The variables that an operator computes."""
    return op.output(SLOTS[op.name()][1])


def has_no_weights(graph: IrGraph, op: IrOpNode) -> bool:
    """Whether an operator computes from nothing that persists."""
    return not any(graph._find_node_by_name(op.inputs, name).persistable() for name in inputs_of(op))


def is_named(op: IrOpNode, patterns: str | Sequence[str]) -> bool:
    """Whether the name scope of an operator contains a pattern."""
    if not op.op().has_attr(NAMESCOPE_ATTR):
        return False
    wanted = [patterns] if isinstance(patterns, str) else patterns
    return any(pattern in op.op().attr(NAMESCOPE_ATTR) for pattern in wanted)


def is_quantized(op: IrOpNode, kind: str) -> bool:
    """Whether a pass has quantized the inputs of an operator."""
    return bool(op.op().has_attr(KIND) and op.op().attr(KIND) == kind)


def insert(graph: IrGraph, type: str, attrs: dict[str, Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """A new operator of the forward part, linked to its nodes."""
    op = graph.create_op_node(type, {**attrs, ROLE_ATTR: OpRole.Forward}, inputs, outputs)
    for node in _flat(inputs.values()):
        graph.link_to(node, op)
    for node in _flat(outputs.values()):
        graph.link_to(op, node)


def _flat(given: Iterable[Any]) -> list[IrVarNode]:
    return [node for each in given for node in (each if isinstance(each, list) else [each])]


def like(graph: IrGraph, node: IrVarNode, name: str, shape: Sequence[int] | None = None) -> IrVarNode:
    """A value of a new variable, declared as another is."""
    return graph.create_var_node(name, node.type(), node.shape() if shape is None else shape, node.dtype())


@dataclass(frozen=True)
class State:
    """Makes variables that persist, with first values, beside a node of a graph."""

    graph: IrGraph
    values: Values
    of: IrVarNode

    def make(self, name: str, value: Any) -> IrVarNode:
        """One of the data type of the node."""
        dtype = self.of.dtype()
        self.values.write(name, np.asarray(value, np.float64 if dtype == VarType.FP64 else np.float32))
        return self.graph.create_persistable_node(name, VarType.LOD_TENSOR, list(np.shape(value)), dtype)

    def after(self, node: IrVarNode) -> IrVarNode:
        """The next value of a variable."""
        return self.graph.create_var_node_from_desc(node.var())

    def averages(self, names: tuple[str, str], name: Callable[[str], str] = unique_name.generate) -> tuple[Any, Any]:
        """State and sum of a moving average, each as it is before and after: by slot, inputs and outputs."""
        state, total = (self.make(name(each), [1.0]) for each in names)
        before = {"InState": state, "InAccum": total}
        return before, {"OutState": self.after(state), "OutAccum": self.after(total)}
