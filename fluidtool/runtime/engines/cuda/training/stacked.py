"""cudnn_lstm in training steps: layers of LSTM over steps of equal length, one or two directions each, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.forward import literal
from fluidtool.runtime.engines.cuda.training.lstm_gradient import lstm_gradient
from fluidtool.runtime.engines.cuda.training.packing import Packed, states_before
from fluidtool.runtime.engines.cuda.training.recurrent import columns_of
from fluidtool.runtime.engines.cuda.training.sequences import taken
from fluidtool.runtime.graph.importers.registry import SIGMOID, TANH, need
from fluidtool.runtime.graph.ir import Value

Attrs = Mapping[str, Any]
INNER = (2, 0, 1, 3)  # gates as our kernels have them: candidate, input, forget, output
OUTER = (1, 2, 0, 3)  # the way back


@dataclass(frozen=True, slots=True)
class _Weights:
    """A direction of a layer: [4 * size, inputs], [size, 4 * size] and the sum of the two biases, in the order of our gates."""

    inputs: Value
    recurrent: Value
    bias: Value


@dataclass(frozen=True, slots=True)
class _Run:
    """What a direction of a layer leaves, in the order of its steps, and what it has begun with (cells, hidden states)."""

    found: Value
    weights: _Weights
    first: tuple[Value, Value]


@dataclass(frozen=True, slots=True)
class StackRun:
    """What a stack leaves: its result [rows, width], and by layer its input and the runs of its directions."""

    out: Value
    inputs: tuple[Value, ...]
    runs: tuple[tuple[_Run, ...], ...]


@dataclass(frozen=True, slots=True)
class _Stack:
    """An operator's inputs and sizes. packed: by direction, how rows are packed."""

    x: Value
    states: tuple[Value, Value]  # InitC, InitH
    flat: Value
    steps: int
    sequences: int
    size: int
    layers: int
    packed: tuple[Packed, ...]
    rate: float

    @property
    def key(self) -> tuple[Value, ...]:
        """What a run depends on beside its masks."""
        return self.x, *self.states, self.flat

    def width(self, layer: int) -> int:
        """The columns of the input of a layer."""
        return self.size * len(self.packed) if layer else self.x.shape[2]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes in the flat weights: two matrices for each direction of each layer, then two biases for each."""
        size = self.size
        matrices = [
            shape
            for layer in range(self.layers)
            for _ in self.packed
            for shape in ((4 * size, self.width(layer)), (4 * size, size))
        ]
        return [*matrices, *[(4 * size,)] * len(matrices)]


def _stack(b: StepBuilder, op: Operator, attrs: Attrs) -> _Stack:
    need(not any(op.inputs.get(slot) for slot in ("WeightList", "SequenceLength")), "an LSTM of Paddle 2")
    x, cells, hidden, flat = (b.get(op, slot) for slot in ("Input", "InitC", "InitH", "W"))
    need(len(x.shape) == 3, "an input that is not [steps, sequences, features]")
    steps, sequences, _ = x.shape
    layers, size = int(attrs["num_layers"]), hidden.shape[-1]
    rows = np.arange(steps * sequences)
    backwards = rows.reshape(steps, sequences)[::-1].reshape(-1)
    starts = np.arange(steps + 1) * sequences
    packed = tuple(Packed(starts, order) for order in ((rows, backwards) if attrs["is_bidirec"] else (rows,)))
    need(hidden.shape == cells.shape == (layers * len(packed), sequences, size), "initial states that do not fit")
    rate = 0.0 if attrs["is_test"] or layers < 2 else float(attrs["dropout_prob"])
    found = _Stack(x, (cells, hidden), flat, steps, sequences, size, layers, packed, rate)
    need(sum(map(prod, found.shapes)) == prod(flat.shape), "weights that do not fit")
    return found


def _weights_of(b: StepBuilder, stack: _Stack) -> list[_Weights]:
    """Those of each direction of each layer."""
    flat, total = b.view(stack.flat, (prod(stack.flat.shape),)), 0
    parts = []
    for shape, end in zip(stack.shapes, accumulate(map(prod, stack.shapes)), strict=True):
        piece = b.node("slice", [flat], (end - total,), starts=[total], sizes=(end - total,))
        parts.append(b.view(piece, shape))
        total = end
    count = len(parts) // 4
    matrices = [(parts[2 * i], parts[2 * i + 1]) for i in range(count)]
    biases = [b.formula("a + b", *parts[2 * (count + i) : 2 * (count + i) + 2]) for i in range(count)]
    return [
        _Weights(_reordered(b, inputs, INNER), b.transposed(_reordered(b, own, INNER), (1, 0)), _reordered(b, bias, INNER))
        for (inputs, own), bias in zip(matrices, biases, strict=True)
    ]  # fmt: skip


def _reordered(b: StepBuilder, value: Value, order: Sequence[int]) -> Value:
    """Blocks of rows, one for each gate, in another order."""
    size = value.shape[0] // 4
    shape = (size, *value.shape[1:])
    parts = [
        b.node("slice", [value], shape, starts=[part * size, *(0 for _ in shape[1:])], sizes=shape) for part in order
    ]
    return b.node("concat", parts, value.shape, axis=0)


def _at(b: StepBuilder, states: Value, index: int) -> Value:
    """One matrix of [layers * directions, sequences, size]."""
    shape = (1, *states.shape[1:])
    return b.view(b.node("slice", [states], shape, starts=[index, 0, 0], sizes=shape), shape[1:])


def _run_stack(b: StepBuilder, stack: _Stack, masks: Value | None) -> StackRun:
    weights, directions = _weights_of(b, stack), len(stack.packed)
    rows = b.view(stack.x, (stack.steps * stack.sequences, stack.x.shape[2]))
    inputs, runs = [], []
    for layer in range(stack.layers):
        if layer and masks is not None:
            rows = b.formula("a * b", rows, _at(b, masks, layer - 1))
        inputs.append(rows)
        found = []
        for direction in range(directions):
            index = layer * directions + direction
            first = (_at(b, stack.states[0], index), _at(b, stack.states[1], index))
            found.append(_run(b, rows, weights[index], stack.packed[direction], first))
        runs.append(tuple(found))
        outs = [
            taken(b, _column(b, run, 5, stack.size), packed.places)
            for run, packed in zip(found, stack.packed, strict=True)
        ]
        rows = outs[0] if len(outs) == 1 else b.node("concat", outs, (len(rows_of(stack)), 2 * stack.size), axis=1)
    return StackRun(rows, tuple(inputs), tuple(runs))


def rows_of(stack: _Stack) -> range:
    """The rows of a stack: a sequence's part of a step each."""
    return range(stack.steps * stack.sequences)


def _run(b: StepBuilder, rows: Value, weights: _Weights, packed: Packed, first: tuple[Value, Value]) -> _Run:
    sums, size = b.product(rows, weights.inputs, swap_y=True), weights.recurrent.shape[0]
    shape = (rows.shape[0], 6 * size)
    given = [sums, weights.recurrent, weights.bias, *first]
    return _Run(b.node("lstm_steps", given, shape, projection=None, **_known(packed)), weights, first)


def _known(packed: Packed) -> dict[str, Any]:
    activations = [SIGMOID, TANH, TANH]
    of_rows = {"starts": packed.starts, "rows": packed.rows}
    return {**of_rows, "activations": activations, "peepholes": False, "bound": 0.0}


def _column(b: StepBuilder, run: _Run, part: int, size: int) -> Value:
    return columns_of(b, run.found, part * size, size)


def _last(b: StepBuilder, stack: _Stack, run: StackRun, part: int) -> Value:
    """The states after the last step, [layers * directions, sequences, size]."""
    shape = (stack.sequences, stack.size)
    parts = []
    for each in (one for runs in run.runs for one in runs):
        starts = [(stack.steps - 1) * stack.sequences, part * stack.size]
        found = b.node("slice", [each.found], shape, starts=starts, sizes=shape)
        parts.append(b.view(found, (1, *shape)))
    return parts[0] if len(parts) == 1 else b.node("concat", parts, (len(parts), *shape), axis=0)


# ---------------------------------------------------------------- importing
@imports_step("cudnn_lstm")
def _cudnn_lstm(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    stack, masks = _stack(b, op, attrs), None
    if stack.rate > 0:
        b.need_within(op, "Cache")
        name, shape = op.inputs["Cache"][0], (stack.layers - 1, len(rows_of(stack)), stack.width(1))
        drawn = b.draw_kept(shape, max(int(attrs["seed"]), 0), stack.rate)
        scale = literal(1 / (1 - stack.rate) if stack.rate < 1 else 0.0)
        masks = b.masks[name] = b.formula(f"a * {scale}", drawn)
    run = b.stacks[stack.key] = _run_stack(b, stack, masks)
    b.put(op, "Out", b.view(run.out, (stack.steps, stack.sequences, run.out.shape[1])))
    for slot, part in (("last_c", 4), ("last_h", 5)):
        if b.wants(op, slot):
            b.put(op, slot, _last(b, stack, run, part))


@imports_step("cudnn_lstm_grad")
def _cudnn_lstm_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    stack, masks = _stack(b, op, attrs), None
    if stack.rate > 0:
        masks = b.masks.get(op.inputs["Cache"][0])
        need(masks is not None, "the gradient of a dropout that is not in this step")
    run = b.stacks.get(stack.key)
    if run is None:
        run = _run_stack(b, stack, masks)
    grad = b.get(op, "Out@GRAD")
    need(prod(grad.shape) == prod(run.out.shape), "a gradient that does not fit")
    finals = {name: b.get(op, slot) for name, slot in FINALS.items() if b.has(op, slot)}
    need(all(each.shape == stack.states[0].shape for each in finals.values()), "a gradient that does not fit")
    rows = b.view(grad, run.out.shape)
    by_weights: list[tuple[Value, Value, Value]] = []
    by_states: dict[str, list[Value]] = {"C0": [], "H0": []}
    for layer in reversed(range(stack.layers)):
        found = [
            _direction_gradient(b, stack, run, layer, direction, rows, finals) for direction in range(len(stack.packed))
        ]
        by_weights = [each.weights for each in found] + by_weights
        for name, parts in by_states.items():
            parts[:0] = [each.states[name] for each in found]
        totals = [each.inputs for each in found]
        rows = totals[0] if len(totals) == 1 else b.formula("a + b", *totals)
        if layer and masks is not None:
            rows = b.formula("a * b", rows, _at(b, masks, layer - 1))
    if b.wants(op, "Input@GRAD"):
        b.put(op, "Input@GRAD", b.view(rows, stack.x.shape))
    for slot, name in (("InitC@GRAD", "C0"), ("InitH@GRAD", "H0")):
        if b.wants(op, slot):
            b.put(op, slot, _joined(b, by_states[name], stack.states[0].shape))
    if b.wants(op, "W@GRAD"):
        matrices = [part for each in by_weights for part in each[:2]]
        biases = [part for *_, bias in by_weights for part in (bias, bias)]
        b.put(op, "W@GRAD", _joined(b, [*matrices, *biases], stack.flat.shape))


FINALS = {"last C": "last_c@GRAD", "last H": "last_h@GRAD"}


def _joined(b: StepBuilder, parts: Sequence[Value], shape: tuple[int, ...]) -> Value:
    """All numbers of some values, one after another."""
    flat = [b.view(each, (prod(each.shape),)) for each in parts]
    return b.view(b.node("concat", flat, (prod(shape),), axis=0), shape)


@dataclass(frozen=True, slots=True)
class _Gradients:
    """Of the rows of a layer's input by one direction, of its weights (as the operator has them), and of its first states."""

    inputs: Value
    weights: tuple[Value, Value, Value]
    states: Mapping[str, Value]


def _direction_gradient(
    b: StepBuilder, stack: _Stack, run: StackRun, layer: int, direction: int, rows: Value, finals: Mapping[str, Value]
) -> _Gradients:
    """Backpropagation through time. rows: the gradient of the layer's result, of all directions."""
    one, packed, size = run.runs[layer][direction], stack.packed[direction], stack.size
    grad = columns_of(b, rows, direction * size, size)
    gates, cells, hidden = (
        columns_of(b, one.found, start * size, count * size) for start, count in ((0, 4), (4, 1), (5, 1))
    )
    index = layer * len(stack.packed) + direction
    more = {"C0": one.first[0], **{name: _at(b, value, index) for name, value in finals.items()}}
    given = (gates, cells, grad, one.weights.recurrent, one.weights.bias)
    found = lstm_gradient(b, given, more, {**_known(packed), "projection": None})
    by_rows = taken(b, found, packed.places)
    inputs = b.product(b.transposed(by_rows, (1, 0)), run.inputs[layer])
    before = states_before(b, hidden, [one.first[1]], packed)
    recurrent = b.product(b.transposed(found, (1, 0)), before)
    parts = (inputs, recurrent, b.sums(found, (1,)))
    shape = (stack.sequences, size)
    states = {name: b.node("beside", [found], shape, name=name) for name in ("C0", "H0")}
    of_weights = tuple(_reordered(b, part, OUTER) for part in parts)
    return _Gradients(b.product(by_rows, one.weights.inputs), of_weights, states)  # type: ignore[arg-type]
