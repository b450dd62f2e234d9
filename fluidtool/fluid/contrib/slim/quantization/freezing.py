"""Passes that make inference programs of those that were trained with fake quantizers: weights become integers.

Paddle 1.8.5 contrib/slim/quantization/quantization_pass.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError, UsageError
from fluidtool.fluid.contrib.slim.quantization.nodes import (
    CONVOLUTIONS,
    DEQUANTIZERS,
    QUANTIZERS,
    WITH_WEIGHT,
    State,
    check_graph,
    insert,
    is_quantized,
    like,
    values_of,
)
from fluidtool.fluid.ir_graph import IrGraph, IrOpNode, IrVarNode
from fluidtool.ir import unique_name
from fluidtool.proto.enums import VarType
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import Place

SUFFIXES = (".quantized.dequantized", ".quantized", ".dequantized", ".scale")


class QuantizationFreezePass:
    """Lets operators compute on integers, and dequantizes what they compute; weights are rounded in the scope.

    weight_bits, activation_bits, weight_quantize_type: as the program was trained. quantizable_op_type is not read: every
    operator that QuantizationTransformPass has quantized is frozen.
    """

    def __init__(
        self,
        scope: Scope | None,
        place: Place | None,
        weight_bits: int = 8,
        activation_bits: int = 8,
        weight_quantize_type: str = "abs_max",
        quantizable_op_type: Sequence[str] | None = None,
    ) -> None:
        self._values = values_of(scope, place)
        self._weight_bits, self._activation_bits = weight_bits, activation_bits
        self._weight_type = weight_quantize_type

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change the graph, and return it."""
        check_graph(graph)
        work = _Freezing(graph, self)
        for op in list(graph.all_op_nodes()):
            if op.name() in QUANTIZERS:
                work.take_scale(op)
        for op in list(graph.all_op_nodes()):
            if op.name() in DEQUANTIZERS:
                work.bypass(op)
        ops = list(graph.all_op_nodes())
        for op in ops:
            if is_quantized(op, WITH_WEIGHT):
                work.dequantize_result(op)
        work.read_dequantized(ops)
        remove_unused(graph)
        return graph


class _Freezing:
    """A graph, the scales of what its operators read, and which values take the place of which."""

    def __init__(self, graph: IrGraph, settings: QuantizationFreezePass) -> None:
        self._graph, self._settings = graph, settings
        self._persistable = {node.name() for node in graph.all_persistable_nodes()}
        self._scales: dict[str, Any] = {}  # of a weight: numbers; of another value: the node that holds it
        self._instead: dict[IrVarNode, IrVarNode] = {}
        self._dequantized: dict[IrVarNode, IrVarNode] = {}

    def take_scale(self, op: IrOpNode) -> None:
        """Note the scale of a quantizer; that of a weight has done its work: the weight itself is rounded."""
        name = op.input("X")[0]
        if name not in self._persistable:
            self._scales[name] = self._graph._find_node_by_name(op.outputs, op.output("OutScale")[0])
            return
        values, bits = self._settings._values, self._settings._weight_bits
        weight = values.read(name)
        scale = self._scale_of(weight, op)
        self._scales[name] = scale
        self.bypass(op)
        values.write(name, rounded(weight, scale, bits))

    def _scale_of(self, weight: Any, op: IrOpNode) -> Any:
        """The scale of a weight, a list if every channel has its own."""
        type_ = self._settings._weight_type
        if type_ == "channel_wise_abs_max" and weight.ndim == 4:
            return [np.max(np.abs(channel)) for channel in weight]
        if type_ in ("abs_max", "channel_wise_abs_max"):
            return np.max(np.abs(weight))
        return self._settings._values.read(op.output("OutScale")[0])[0]

    def bypass(self, op: IrOpNode) -> None:
        """Take a quantizer or dequantizer out; what it read takes the place of what it wrote."""
        out = self._graph._find_node_by_name(op.outputs, op.output("Out")[0])
        read = self._graph._find_node_by_name(op.inputs, op.input("X")[0])
        self._instead[out] = self._instead.get(read, read)
        self._graph.safe_remove_nodes(op)

    def dequantize_result(self, op: IrOpNode) -> None:
        """Let an operator read integers, and put a dequantizer after it."""
        by_channel = self._settings._weight_type == "channel_wise_abs_max" and op.name() in CONVOLUTIONS
        scales = self._read_integers(op)
        if len(op.output_arg_names()) != 1:
            raise UsageError(f"Only support one output, but op {op.name()} has more than one output.")
        result = self._graph._find_node_by_name(op.outputs, op.output_arg_names()[0])
        dequantized = like(self._graph, result, f"{result.name()}.dequantized")
        (self._by_channel if by_channel else self._by_tensor)(result, dequantized, scales)
        self._dequantized[result] = dequantized

    def _read_integers(self, op: IrOpNode) -> list[Any]:
        """Let an operator read what was quantized; the scales of its inputs."""
        scales: list[Any] = []
        for node in list(op.inputs):
            if node.name() not in op.input_arg_names():
                continue
            name = original_name(node.name())
            if node in self._instead:
                self._graph.update_input_link(node, self._instead[node], op)
            if name not in self._scales:
                raise AssertedError(f"{op.name()} reads {name}, which no quantizer gave a scale")
            scales.append(self._scales[name])
        return scales

    def _by_tensor(self, result: IrVarNode, dequantized: IrVarNode, scales: Sequence[Any]) -> None:
        weight_range, range_ = ((1 << (bits - 1)) - 1 for bits in self._bits)
        ranges = [range_ if isinstance(scale, IrVarNode) else weight_range / float(scale) for scale in scales]
        inputs = {"X": result, "Scale": _node_among(scales)}
        attrs = {"max_range": float(math.prod(ranges))}
        insert(self._graph, "fake_dequantize_max_abs", attrs, inputs, {"Out": dequantized})

    def _by_channel(self, result: IrVarNode, dequantized: IrVarNode, scales: Sequence[Any]) -> None:
        state = State(self._graph, self._settings._values, result)
        [of_weight] = [scale for scale in scales if not isinstance(scale, IrVarNode)]
        channels = state.make(unique_name.generate("channel_scale"), np.array(of_weight))
        inputs = {"X": result, "Scales": [channels, _node_among(scales)]}
        attrs = {"quant_bits": list(self._bits)}
        insert(self._graph, "fake_channel_wise_dequantize_max_abs", attrs, inputs, {"Out": dequantized})

    @property
    def _bits(self) -> tuple[int, int]:
        return self._settings._weight_bits, self._settings._activation_bits

    def read_dequantized(self, ops: Sequence[IrOpNode]) -> None:
        """Let the operators that followed read dequantized values."""
        for op in ops:
            for node in list(op.inputs):
                if node in self._dequantized:
                    self._graph.update_input_link(node, self._dequantized[node], op)


def _node_among(scales: Sequence[Any]) -> IrVarNode:
    """The scale that is not known before the program runs."""
    return [scale for scale in scales if isinstance(scale, IrVarNode)][-1]


def original_name(name: str) -> str:
    """The name of the variable that a quantized or dequantized one was made of."""
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def rounded(weight: Any, scale: Any, bits: int) -> Any:
    """A weight as whole numbers of so many bits, still in its data type."""
    largest = (1 << (bits - 1)) - 1
    if isinstance(scale, list):
        return np.stack([np.round(channel / each * largest) for channel, each in zip(weight, scale, strict=True)])
    return np.round(weight / scale * largest)


def remove_unused(graph: IrGraph) -> None:
    """Take out the values that no operator reads or writes."""
    used = {node for op in graph.all_op_nodes() for node in (*op.inputs, *op.outputs)}
    graph.safe_remove_nodes([node for node in graph.all_var_nodes() if node not in used])


class ConvertToInt8Pass:
    """Gives the weights of a frozen program the data type int8, under names that end in '.int8'."""

    def __init__(
        self, scope: Scope | None, place: Place | None, quantizable_op_type: Sequence[str] | None = None
    ) -> None:
        self._values = values_of(scope, place)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change the graph, and return it."""
        check_graph(graph)
        persistable = {node.name() for node in graph.all_persistable_nodes()}
        made: dict[str, IrVarNode] = {}
        for op in [op for op in graph.all_op_nodes() if is_quantized(op, WITH_WEIGHT)]:
            for node in [node for node in op.inputs if node.name() in persistable]:
                if node.name() not in made:
                    made[node.name()] = self._converted(graph, node)
                graph.update_input_link(node, made[node.name()], op)
        remove_unused(graph)
        return graph

    def _converted(self, graph: IrGraph, node: IrVarNode) -> IrVarNode:
        name = f"{node.name()}.int8"
        self._values.write(name, self._values.read(node.name()).astype(np.int8))
        return graph.create_persistable_node(name, node.type(), node.shape(), VarType.INT8)


class TransformForMobilePass:
    """Calls the quantizers and dequantizers of a frozen program `quantize` and `dequantize`, as Paddle-Mobile does."""

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change the graph, and return it."""
        check_graph(graph)
        for op in graph.all_op_nodes():
            if op.name() in QUANTIZERS:
                op.set_type("quantize")
            elif op.name() in DEQUANTIZERS:
                op.set_type("dequantize")
        return graph
