"""Passes that let programs compute with the rounding of integers, for training: fake quantizers before operators.

Paddle 1.8.5 contrib/slim/quantization/quantization_pass.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError, UnsupportedOperatorError, UsageError
from fluidtool.fluid.contrib.slim.quantization.nodes import (
    CONVOLUTIONS,
    KIND,
    WITH_WEIGHT,
    WITHOUT_WEIGHT,
    State,
    Values,
    check_graph,
    has_no_weights,
    inputs_of,
    insert,
    is_named,
    is_quantized,
    like,
    values_of,
)
from fluidtool.fluid.ir_graph import IrGraph, IrOpNode, IrVarNode
from fluidtool.ir import unique_name
from fluidtool.proto.enums import VarType
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import Place

TYPES = ("abs_max", "channel_wise_abs_max", "range_abs_max", "moving_average_abs_max")
FIRST_SCALE = 0.001
COUNTER = "@STEP_COUNTER@"


class QuantizationTransformPass:
    """Puts a quantizer and a dequantizer before every input of operators that have weights.

    weight_bits, activation_bits: of the integers. activation_quantize_type: 'abs_max', 'range_abs_max' (with window_size) or
    'moving_average_abs_max' (with moving_rate); weight_quantize_type: also 'channel_wise_abs_max'. Operators whose name scope
    contains skip_pattern stay as they are. The scope is given the scales that training updates. Functions that quantize in
    another way (weight_quantize_func, …) are not supported.
    """

    _supported_quantizable_op_type = ("conv2d", "depthwise_conv2d", "mul", "matmul")

    def __init__(
        self,
        scope: Scope | None = None,
        place: Place | None = None,
        weight_bits: int = 8,
        activation_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        window_size: int = 10000,
        moving_rate: float = 0.9,
        skip_pattern: str | Sequence[str] = ("skip_quant",),
        quantizable_op_type: Sequence[str] = ("conv2d", "depthwise_conv2d", "mul"),
        weight_quantize_func: Any = None,
        act_quantize_func: Any = None,
        weight_preprocess_func: Any = None,
        act_preprocess_func: Any = None,
        optimizer_func: Any = None,
        executor: Any = None,
    ) -> None:
        if any((weight_quantize_func, act_quantize_func, weight_preprocess_func, act_preprocess_func)):
            raise UnsupportedOperatorError(
                "QuantizationTransformPass: functions that quantize or preprocess are not supported; use "
                "weight_quantize_type and activation_quantize_type"
            )
        if activation_quantize_type == "channel_wise_abs_max":
            raise AssertedError("The activation quantization type does not support 'channel_wise_abs_max'.")
        for what, type_ in (("activation", activation_quantize_type), ("weight", weight_quantize_type)):
            if type_ not in TYPES:
                raise UsageError(f"Unknown {what}_quantize_type: '{type_}'. It can be {', '.join(TYPES)}.")
        _check_types(quantizable_op_type, self._supported_quantizable_op_type)
        self._scope, self._place = scope, place
        self._bits = {True: weight_bits, False: activation_bits}  # by whether it is a weight
        self._types = {True: weight_quantize_type, False: activation_quantize_type}
        self._window_size, self._moving_rate = window_size, moving_rate
        self._skip_pattern, self._quantizable = skip_pattern, tuple(quantizable_op_type)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change the graph, and return it."""
        check_graph(graph)
        ops = list(graph.all_op_nodes())
        work = _Quantizing(graph, self)
        gradients = tuple(f"{type_}_grad" for type_ in self._quantizable)
        for op in ops:
            if op.name() in (*self._quantizable, *gradients) and is_named(op, self._skip_pattern):
                op.set_attr("skip_quant", True)
        for op in ops:
            if op.name() in self._quantizable and not _is_skipped(graph, op):
                work.quantize_inputs(op)
        for op in ops:
            if op.name() in gradients:
                work.read_dequantized(op)
        return graph


def _check_types(given: Sequence[str], supported: Sequence[str]) -> None:
    for type_ in given:
        if type_ not in supported:
            raise AssertedError(f"{type_} is not supported for quantization.")


def _is_skipped(graph: IrGraph, op: IrOpNode) -> bool:
    if op.op().has_attr("skip_quant") and op.op().attr("skip_quant"):
        return True
    if op.name() in ("mul", "matmul") and has_no_weights(graph, op):
        return True  # AddQuantDequantPass is for these
    return is_quantized(op, WITHOUT_WEIGHT)


class _Quantizing:
    """A graph, and the values of it that have a dequantized counterpart."""

    def __init__(self, graph: IrGraph, settings: QuantizationTransformPass) -> None:
        self._graph, self._settings = graph, settings
        self._persistable = {node.name() for node in graph.all_persistable_nodes()}
        self._dequantized: dict[str, IrVarNode] = {}
        self._step = None if graph.is_test() or "range_abs_max" not in settings._types.values() else self._counter()

    def quantize_inputs(self, op: IrOpNode) -> None:
        """Let an operator read its inputs dequantized."""
        op.set_attr(KIND, WITH_WEIGHT)
        for node in list(op.inputs):
            if node.name() not in op.input_arg_names():
                continue
            if node.name() not in self._dequantized:
                self._dequantized[node.name()] = self._round_trip(node, op)
            self._graph.update_input_link(node, self._dequantized[node.name()], op)

    def read_dequantized(self, op: IrOpNode) -> None:
        """Let a gradient read what the operator that it is of reads."""
        for node in list(op.inputs):
            if node.name() in op.input_arg_names() and node.name() in self._dequantized:
                self._graph.update_input_link(node, self._dequantized[node.name()], op)

    def _round_trip(self, node: IrVarNode, op: IrOpNode) -> IrVarNode:
        """The dequantized counterpart of a value, made where it is not there yet."""
        is_weight = node.name() in self._persistable
        bits, type_ = self._settings._bits[is_weight], self._settings._types[is_weight]
        if type_ == "channel_wise_abs_max" and op.name() not in CONVOLUTIONS:
            type_ = "abs_max"
        quantized = like(self._graph, node, f"{node.name()}.quantized")
        scale = getattr(self, f"_{type_}")(node, quantized, bits)
        dequantized = like(self._graph, node, f"{quantized.name()}.dequantized")
        inputs, outputs = {"X": quantized, "Scale": scale}, {"Out": dequantized}
        if type_ == "channel_wise_abs_max":
            inputs = {"X": quantized, "Scales": scale}
            insert(self._graph, "fake_channel_wise_dequantize_max_abs", {"quant_bits": [bits]}, inputs, outputs)
        else:
            largest = {"max_range": float((1 << (bits - 1)) - 1)}
            insert(self._graph, "fake_dequantize_max_abs", largest, inputs, outputs)
        return dequantized

    def _abs_max(self, node: IrVarNode, quantized: IrVarNode, bits: int) -> IrVarNode:
        scale = like(self._graph, node, f"{node.name()}.scale", [1])
        outputs = {"Out": quantized, "OutScale": scale}
        insert(self._graph, "fake_quantize_abs_max", {"bit_length": bits}, {"X": node}, outputs)
        return scale

    def _channel_wise_abs_max(self, node: IrVarNode, quantized: IrVarNode, bits: int) -> IrVarNode:
        scale = like(self._graph, node, f"{node.name()}.scale", [node.shape()[0]])
        outputs = {"Out": quantized, "OutScale": scale}
        insert(self._graph, "fake_channel_wise_quantize_abs_max", {"bit_length": bits}, {"X": node}, outputs)
        return scale

    def _range_abs_max(self, node: IrVarNode, quantized: IrVarNode, bits: int) -> IrVarNode:
        state, window = self._state(node), self._settings._window_size
        scale = state.make(f"{node.name()}.scale", [FIRST_SCALE])
        inputs, outputs = {"X": node, "InScale": scale}, {"Out": quantized, "OutScale": state.after(scale)}
        if self._step is not None:
            inputs["Iter"] = self._step
            outputs["OutScales"] = state.make(unique_name.generate("scales"), np.zeros([window]))
        attrs = {"window_size": window, "bit_length": bits, "is_test": self._graph.is_test()}
        insert(self._graph, "fake_quantize_range_abs_max", attrs, inputs, outputs)
        return outputs["OutScale"]

    def _moving_average_abs_max(self, node: IrVarNode, quantized: IrVarNode, bits: int) -> IrVarNode:
        type_, names = "fake_quantize_moving_average_abs_max", ("state", "accum")
        scale = f"{node.name()}.scale"
        return _averaged(self._state(node), type_, quantized, scale, names, bits, self._settings._moving_rate)

    def _counter(self) -> IrVarNode:
        """The number of the step, counted in every run."""
        for node in self._graph.all_var_nodes():
            if node.name() == COUNTER:
                return node
        self._values.write(COUNTER, np.zeros([1], np.int64))
        before = self._graph.create_persistable_node(COUNTER, VarType.LOD_TENSOR, [1], VarType.INT64)
        after = self._graph.create_var_node_from_desc(before.var())
        insert(self._graph, "increment", {"step": 1.0}, {"X": before}, {"Out": after})
        return after

    def _state(self, node: IrVarNode) -> State:
        return State(self._graph, self._values, node)

    @property
    def _values(self) -> Values:
        return values_of(self._settings._scope, self._settings._place)


def _averaged(
    state: State, type_: str, quantized: IrVarNode, scale: str, names: tuple[str, str], bits: int, rate: float
) -> IrVarNode:
    """A quantizer whose scale is a moving average; the scale after it."""
    before = state.make(scale, [FIRST_SCALE])
    inputs, outputs = {"X": state.of, "InScale": before}, {"Out": quantized, "OutScale": state.after(before)}
    if not state.graph.is_test():
        more_inputs, more_outputs = state.averages(names)
        inputs, outputs = {**inputs, **more_inputs}, {**outputs, **more_outputs}
    attrs = {"bit_length": bits, "moving_rate": rate, "is_test": state.graph.is_test()}
    insert(state.graph, type_, attrs, inputs, outputs)
    return outputs["OutScale"]


class AddQuantDequantPass:
    """Rounds every input of operators that have no weights, with a moving average as the scale.

    quantizable_op_type: the operators; all that there are with is_full_quantized. The scope is given the scales.
    """

    _supported_quantizable_op_type = (
        *[
            "pool2d",
            "elementwise_add",
            "concat",
            "softmax",
            "argmax",
            "transpose",
            "equal",
            "gather",
            "greater_equal",
            "greater_than",
            "less_equal",
        ],
        *[
            "less_than",
            "mean",
            "not_equal",
            "reshape",
            "reshape2",
            "bilinear_interp",
            "nearest_interp",
            "trilinear_interp",
            "slice",
            "squeeze",
        ],
        *["elementwise_sub", "mul", "matmul", "relu", "relu6", "leaky_relu", "tanh", "swish"],
    )
    _activation_type = ("relu", "relu6", "leaky_relu", "tanh", "swish")

    def __init__(
        self,
        scope: Scope | None = None,
        place: Place | None = None,
        moving_rate: float = 0.9,
        quant_bits: int = 8,
        skip_pattern: str | Sequence[str] = ("skip_quant",),
        quantizable_op_type: Sequence[str] = ("elementwise_add", "pool2d"),
        is_full_quantized: bool = False,
    ) -> None:
        self._values = values_of(scope, place)
        self._moving_rate, self._bits, self._skip_pattern = moving_rate, quant_bits, skip_pattern
        self._quantizable = self._supported_quantizable_op_type if is_full_quantized else tuple(quantizable_op_type)
        _check_types(self._quantizable, self._supported_quantizable_op_type)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change the graph, and return it."""
        check_graph(graph)
        rounded: dict[str, IrVarNode] = {}
        ops = list(graph.all_op_nodes())
        for op in ops:
            if op.name() in self._quantizable and self._is_wanted(graph, op):
                self._round_inputs(graph, op, rounded)
        gradients = tuple(f"{type_}_grad" for type_ in self._quantizable)
        for op in ops:
            if op.name() in gradients:
                for name in [name for name in op.input_arg_names() if name in rounded]:
                    graph.update_input_link(graph._find_node_by_name(op.inputs, name), rounded[name], op)
        return graph

    def _is_wanted(self, graph: IrGraph, op: IrOpNode) -> bool:
        return not is_named(op, self._skip_pattern) and not is_quantized(op, WITH_WEIGHT) and has_no_weights(graph, op)

    def _round_inputs(self, graph: IrGraph, op: IrOpNode, rounded: dict[str, IrVarNode]) -> None:
        op.set_attr(KIND, WITHOUT_WEIGHT)
        op.set_attr("activation_bits", self._bits)
        for name in dict.fromkeys(inputs_of(op)):
            node = graph._find_node_by_name(op.inputs, name)
            if name not in rounded:
                rounded[name] = self._round(graph, node)
            graph.update_input_link(node, rounded[name], op)

    def _round(self, graph: IrGraph, node: IrVarNode) -> IrVarNode:
        quantized = like(graph, node, f"{node.name()}.quant_dequant")
        names, type_ = ("quant_dequant.state", "quant_dequant.accum"), "fake_quantize_dequantize_moving_average_abs_max"
        state = State(graph, self._values, node)
        _averaged(state, type_, quantized, f"{quantized.name()}.scale", names, self._bits, self._moving_rate)
        return quantized
