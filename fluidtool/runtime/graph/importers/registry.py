"""The graph builder, and the registry of importers."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.runtime.graph.bounds import COMPUTED, Bound
from fluidtool.runtime.graph.ir import NONE, Activation, Node, Shape, UnsupportedError, Value
from fluidtool.runtime.graph.quantization import Quantizer, RoundedWeights, WholeWeights

Lod = tuple[tuple[int, ...], ...]
IMPORTERS: dict[str, Callable[[GraphBuilder, Operator, dict[str, Any]], None]] = {}
RESULTS: dict[str, tuple[str, ...]] = {}  # the output slots that importers fill, if not only the first
FOR_GPUS = frozenset(
    {
        "accuracy", "argsort", "assign_value", "cast", "conv3d_transpose", "crf_decoding", "cross_entropy", "cross_entropy2",
        "cudnn_lstm", "depthwise_conv2d_transpose", "elementwise_floordiv", "elementwise_mod", "equal", "expand", "expand_as",
        "eye", "fill_any_like", "fill_constant", "fill_constant_batch_size_like", "fill_zeros_like", "gather", "gather_nd",
        "greater_equal", "greater_than", "label_smooth", "less_equal", "less_than", "linear_chain_crf", "linspace", "logical_and",
        "logical_not", "logical_or", "logical_xor", "lstm_unit", "mean", "not_equal", "one_hot", "one_hot_v2",
        "pad_constant_like", "range", "reduce_all", "reduce_any", "shape", "sigmoid_cross_entropy_with_logits", "size",
        "softmax_with_cross_entropy", "warpctc",
    }
)  # fmt: skip
"""Operators with kernels for GPUs only: elsewhere the operators' own kernels compute them."""


def imports(*types: str, results: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Register the importer of these operators, and the output slots that it fills, if not only the first."""

    def register(function: Any) -> Any:
        IMPORTERS.update(dict.fromkeys(types, function))
        RESULTS.update(dict.fromkeys(types, results) if results else {})
        return function

    return register


def need(condition: Any, message: str) -> None:
    """Raise UnsupportedError unless the condition holds."""
    if not condition:
        raise UnsupportedError(message)


def axis_within(axis: Any, rank: int) -> int:
    """The axis counted from the front; raises UnsupportedError if it is out of range, which numpy then reports."""
    need(-rank <= int(axis) < rank, f"axis {axis} of {rank} dimensions")
    return int(axis) % rank


class GraphBuilder:
    """The graph while it is built: values, and their LoDs, by their current name in the program. for_gpus: as in RegionSpec."""

    def __init__(self, rounded: MutableMapping[Operator, RoundedWeights], for_gpus: bool = False) -> None:
        self.for_gpus = for_gpus
        self.rounded = rounded  # by operators that round weights, also for other inputs
        self.values: dict[str, Value] = {}
        self.conditions: dict[str, Value] = {}  # 1 or 0, where the program has booleans
        self.viewed: dict[Value, Value] = {}  # integers that were moved -> as they were before
        self.nodes: list[Node] = []
        self.lods: dict[str, Lod] = {}
        self.quantizers: dict[Value, Quantizer] = {}  # of activations that were rounded to steps
        self.whole: dict[Value, WholeWeights] = {}  # of weights that were
        self.frames: dict[Value, Value] = {}  # volume -> the same elements as a sequence of images
        # Indexes of several axes, and the sizes of these -> the numbers of the rows that they name.
        self.places: dict[tuple[Value, Shape], Value] = {}
        self.turned: dict[Value, Value] = {}  # images with their channels last <-> the same with their channels first
        self._count = 0

    def get(self, op: Operator, slot: str, integer: bool | None = False) -> Value:
        """The value in an input slot: floats, or integers if requested; of None, either."""
        names = op.inputs.get(slot, [])
        need(len(names) == 1, f"{op.type} has {len(names)} variables in {slot}")
        need(names[0] in self.values, f"{names[0]} has no value")
        found = self.values[names[0]]
        need(integer in (None, found.integer), f"{names[0]} has a type that {op.type} is not computed on here")
        return found

    def from_outside(self, op: Operator, slot: str) -> Value:
        """The integers in an input slot, which must be an input of the region, perhaps in another shape."""
        value = self.get(op, slot, integer=True)
        need(self.is_from_outside(value), f"{slot} that is computed")
        return value

    def is_from_outside(self, value: Value) -> bool:
        """Whether integers are an input of the region, perhaps in another shape, or a part of it."""
        given = self.viewed.get(value, value)
        return given.array is None and all(node.output is not given for node in self.nodes)

    def given_name(self, value: Value) -> str:
        """The name of integers as they were given."""
        return self.viewed.get(value, value).name

    def either(self, op: Operator, slot: str) -> Value:
        """Floats in an input slot; for GPUs whole numbers, too."""
        return self.get(op, slot, integer=None if self.for_gpus else False)

    def all_of(self, op: Operator, slot: str) -> list[Value]:
        """The values in an input slot, all of one type: floats, for GPUs whole numbers, too."""
        found = [self.values[name] for name in op.inputs[slot] if name in self.values]
        need(len(found) == len(op.inputs[slot]), "missing parts")
        need(len({(each.integer, each.short) for each in found}) == 1, "parts of different types")
        need(self.for_gpus or not found[0].integer, "whole numbers")
        return found

    def has(self, op: Operator, slot: str) -> bool:
        """Whether an input slot names a variable."""
        return bool(op.inputs.get(slot)) and op.inputs[slot][0] not in ("", EMPTY)

    def maybe(self, op: Operator, slot: str) -> Value | None:
        """The value in an optional input slot."""
        return self.get(op, slot) if op.inputs.get(slot) else None

    def constant_of(self, name: str) -> Any:
        """The array of a constant, of the type that it has in the program; None for other values."""
        value = self.values.get(name) or self.conditions.get(name)
        if value is None or value.array is None:
            return None
        array = np.asarray(value.array)
        return array.astype(np.bool_) if name in self.conditions else array.astype(np.int32) if value.short else array

    def shape_of_name(self, name: str) -> Shape:
        """The shape of what a name stands for."""
        value = self.values.get(name) or self.conditions.get(name)
        need(value is not None, f"{name} has no value")
        assert value is not None
        return value.shape

    def settled(self, op: Operator, given: Sequence[Any], *slots: str) -> list[int]:
        """Whole numbers that an attribute gives, or the constants in the first of these slots that has some."""
        for slot in slots:
            if op.inputs.get(slot):
                found = [self.constant_of(name) for name in op.inputs[slot]]
                need(all(array is not None for array in found), f"{slot} that is computed")
                return [int(number) for array in found for number in array.reshape(-1)]
        return [int(number) for number in given]

    def constant(self, op: Operator, slot: str) -> Any:
        """The array of a constant in an input slot."""
        value = self.get(op, slot)
        need(value.array is not None, f"{slot} of {op.type} is computed")
        return value.array

    def node(self, kind: str, inputs: Sequence[Value], shape: Sequence[int], **attrs: Any) -> Value:
        """The result of a node without a name in the program."""
        need(prod(shape) > 0, "empty values")
        self._count += 1
        out = Value(f"{kind} {self._count}", tuple(int(size) for size in shape))
        self.nodes.append(Node(kind, list(inputs), out, attrs))
        return out

    def whole_node(
        self, kind: str, inputs: Sequence[Value], shape: Sequence[int], short: bool = False, **attrs: Any
    ) -> Value:
        """Whole numbers without a name in the program."""
        out = Value(f"{kind} {len(self.nodes)}", tuple(int(size) for size in shape), integer=True, short=short)
        self.nodes.append(Node(kind, list(inputs), out, attrs))
        return out

    def divisor(self, value: Value) -> tuple[Value, tuple[Bound, ...]]:
        """Whole numbers that divide others, and what the kernel that divides by them must mark: zeros, by which it does not."""
        return value, (Bound(COMPUTED, 0),)

    def add(
        self,
        kind: str,
        inputs: Sequence[Value],
        op: Operator,
        slot: str,
        shape: Sequence[int],
        activation: Activation = NONE,
        number: int = 0,
        integer: bool = False,
        short: bool = False,
        **node_attrs: Any,
    ) -> Value:
        """Add a node whose result is the operator's output (the variable `number` of) in a slot."""
        name = op.outputs[slot][number]
        out = Value(name, tuple(int(size) for size in shape), None, integer, short)
        need(prod(out.shape) > 0, f"{name} is empty")
        self.nodes.append(Node(kind, list(inputs), out, node_attrs, activation))
        self.values[name] = out
        self.conditions.pop(name, None)
        return out

    def formula(self, text: str, *inputs: Value, shapes: Sequence[Shape] = ()) -> Value:
        """A formula of values a, b, c …, which kernels for GPUs compute. shapes: theirs if they have not that of the first."""
        shape = inputs[0].shape
        wide = tuple(shapes) or (shape,) * len(inputs)
        return self.node("formula", inputs, shape, text=text, shapes=wide, counts_columns=False)

    def alias(self, value: Value, op: Operator, slot: str) -> None:
        """Make that value the operator's output."""
        name = op.outputs[slot][0]
        self.values[name] = value
        self.conditions.pop(name, None)

    def put_condition(self, op: Operator, slot: str, value: Value) -> None:
        """Make a value, 1 or 0, the operator's output of booleans."""
        name = op.outputs[slot][0]
        self.conditions[name] = value
        self.values.pop(name, None)


ADD, SUBTRACT, MULTIPLY, DIVIDE, LARGER, SMALLER, ALONE, PRELU = range(8)
(
    SIGMOID,
    TANH,
    GELU,
    LEAKY,
    HARD_SWISH,
    SWISH,
    EXP,
    SQRT,
    SQUARE,
    AFFINE,
    HARD_SIGMOID,
    ABS,
    GELU_TANH,
    CLIP,
    SOFTSIGN,
) = range(3, 18)
