"""Recurrent layers in training steps, forward and backward: step by step, a product and one kernel or two for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Buffer, Matrix, Place, Pointer, Product
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers, need_cublaslt
from fluidtool.runtime.engines.cuda.recurrences import OfSums, Recurrence, Step, of_step, recurrent_step, steps_of
from fluidtool.runtime.engines.cuda.sequences import function, packed_rows
from fluidtool.runtime.engines.cuda.sources import THREADS, Source, number
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.sequences import taken
from fluidtool.runtime.graph.importers.registry import SIGMOID, TANH, need
from fluidtool.runtime.graph.importers.sequences import ACTIVATIONS, offsets_of
from fluidtool.runtime.graph.ir import RELU, Node, Value

Attrs = Mapping[str, Any]
SLOPES = {
    SIGMOID: "({0} * {1} * (1.0f - {1}))",
    TANH: "({0} * (1.0f - {1} * {1}))",
    RELU.kind: "({1} > 0.0f ? {0} : 0.0f)",
}
"""Gradients of activations, by number: {0} is that of the result, {1} the result."""


def slope(kind: int, grad: str, result: str) -> str:
    """The gradient of an activation."""
    return SLOPES[kind].format(grad, result) if kind in SLOPES else f"({grad})"


@dataclass(frozen=True, slots=True)
class Packed:
    """How the rows of a layer are packed, step by step, the longest sequence first.

    starts: the first packed row of each step, then their number. rows: the row that each packed row is. places: the packed row
    that each row is. before: for each packed row that of the same sequence one step before, or -1.
    """

    starts: Any
    rows: Any

    @property
    def places(self) -> Any:
        """Rows -> packed rows."""
        found = np.empty_like(self.rows)
        found[self.rows] = np.arange(len(self.rows))
        return found

    @property
    def before(self) -> Any:
        """Packed rows -> those of the step before."""
        step = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        place = np.arange(len(self.rows)) - self.starts[step]
        return np.where(step > 0, self.starts[np.maximum(step - 1, 0)] + place, -1)


def packed_of(b: StepBuilder, op: Operator, slot: str, attrs: Attrs) -> tuple[Packed, dict[str, Any]]:
    """The packing of the sequences of an input, and what its nodes know of it."""
    name, rows = op.inputs[slot][0], b.get(op, slot).shape[0]
    need(len(b.lods.get(name, ())) == 1, "a recurrent layer over anything but sequences of one level")
    starts, order = packed_rows(offsets_of(b, op, slot, rows), bool(attrs["is_reverse"]))
    return Packed(starts, order), {"starts": starts, "rows": order}


def initial_of(b: StepBuilder, op: Operator, slot: str, layer: str, size: int) -> list[Value]:
    """The states before the first step, in the order of its rows; nothing where there are none. layer: the slot with the LoD."""
    if not b.has(op, slot):
        return []
    value, order = b.get(op, slot), sequences_of(b, op, layer)
    need(
        value.shape == (len(b.lods[op.inputs[layer][0]][0]) - 1, size), f"{slot} that is not a state for each sequence"
    )
    return [taken(b, value, order)]


def sequences_of(b: StepBuilder, op: Operator, slot: str) -> Any:
    """The sequence of each row of the first step: the longest first, without those that have no rows."""
    lengths = np.diff(b.lods[op.inputs[slot][0]][0])
    order = np.argsort(-lengths, kind="stable")
    return order[lengths[order] > 0]


def states_before(b: StepBuilder, states: Value, initial: Sequence[Value], packed: Packed) -> Value:
    """For each packed row the state of its sequence one step before: the initial one, or zeros, for those of the first step."""
    before = packed.before
    if not initial:
        return taken(b, states, before)
    alive, (rows, size) = int(packed.starts[1]), states.shape
    both = b.node("concat", [states, *initial], (rows + alive, size), axis=0)
    return taken(b, both, np.where(before < 0, rows + np.arange(rows), before))


def put_initial_gradients(b: StepBuilder, op: Operator, found: Value, layer: str, sizes: Mapping[str, int]) -> None:
    """The gradients of initial states, which those of a layer leave beside their result; zeros for sequences without rows."""
    order = sequences_of(b, op, layer)
    count = len(b.lods[op.inputs[layer][0]][0]) - 1
    rows = np.full(count, -1)
    rows[order] = np.arange(len(order))
    for slot, size in sizes.items():
        if b.wants(op, f"{slot}@GRAD"):
            first = b.node("beside", [found], (len(order), size), name=slot)
            b.put(op, f"{slot}@GRAD", taken(b, first, rows))


@lowers("beside")
def _beside(low: Lowering, node: Node) -> None:
    low.places[node.output] = low.beside[node.inputs[0], node.attrs["name"]]


def columns_of(b: StepBuilder, value: Value, start: int, count: int) -> Value:
    """Some columns of a matrix."""
    rows = value.shape[0]
    return b.node("slice", [value], (rows, count), starts=[0, start], sizes=(rows, count))


def kinds_of(attrs: Attrs, *names: str) -> list[int]:
    """Activations by number."""
    need({attrs[name] for name in names} <= ACTIVATIONS.keys(), "another activation")
    return [ACTIVATIONS[attrs[name]] for name in names]


# ---------------------------------------------------------------- LSTM
@imports_step("lstm")
def _lstm(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights, bias, size = _lstm_inputs(b, op, attrs)
    packed, known = packed_of(b, op, "Input", attrs)
    known |= {"activations": lstm_activations(attrs), "peepholes": bool(attrs["use_peepholes"]), "bound": 0.0}
    initial = initial_pair(b, op, "Input", size, size)
    found = b.node("lstm_steps", [x, weights, bias, *initial], (x.shape[0], 6 * size), projection=None, **known)
    put_states(b, op, found, packed, {"Cell": (4 * size, size), "Hidden": (5 * size, size)})
    put_gates(b, op, found, size, lstm_activations(attrs)[1])


def put_states(
    b: StepBuilder, op: Operator, found: Value, packed: Packed, columns: Mapping[str, tuple[int, int]]
) -> None:
    """States as outputs, in the order of the rows; the gradient takes them in that of the steps. columns: first, how many."""
    for slot, (start, count) in columns.items():
        column = columns_of(b, found, start, count)
        b.packed[op.outputs[slot][0]] = column
        b.put(op, slot, taken(b, column, packed.places))


def put_gates(b: StepBuilder, op: Operator, found: Value, size: int, activation: int) -> None:
    """The outputs that are in the order of the steps: gates, and activated cell states."""
    if b.wants(op, "BatchGate"):
        b.put(op, "BatchGate", columns_of(b, found, 0, 4 * size))
    if b.wants(op, "BatchCellPreAct"):
        cells = columns_of(b, found, 4 * size, size)
        b.put(op, "BatchCellPreAct", b.formula(function(activation, "a"), cells))


def _lstm_inputs(b: StepBuilder, op: Operator, attrs: Attrs) -> tuple[Value, Value, Value, int]:
    x, weights, bias = b.get(op, "Input"), b.get(op, "Weight"), b.get(op, "Bias")
    size = weights.shape[0]
    need(weights.shape == (size, 4 * size) and x.shape[1:] == (4 * size,), "gates of an unexpected shape")
    need(prod(bias.shape) == (7 if attrs["use_peepholes"] else 4) * size, "a bias of an unexpected shape")
    return x, weights, bias, size


def initial_pair(b: StepBuilder, op: Operator, layer: str, size: int, fed_back: int) -> list[Value]:
    """The initial cell states and what is fed back first, or nothing. layer: the slot with the LoD."""
    need(b.has(op, "H0") == b.has(op, "C0"), "an LSTM with one of its two initial states")
    sizes = {"C0": size, "H0": fed_back}
    return [each for slot, width in sizes.items() for each in initial_of(b, op, slot, layer, width)]


def lstm_activations(attrs: Attrs) -> list[int]:
    """Those of gates, cells and candidates."""
    return kinds_of(attrs, "gate_activation", "cell_activation", "candidate_activation")


@dataclass(frozen=True, slots=True)
class Projection:
    """What a projected hidden state goes through: an activation, by number, and a bound (none if it is 0)."""

    activation: int
    bound: float

    @property
    def is_plain(self) -> bool:
        """Whether it is the product alone."""
        return self.activation == NO_ACTIVATION and self.bound <= 0


NO_ACTIVATION = ACTIVATIONS["identity"]


@lowers("lstm_steps")
def _lower_lstm(low: Lowering, node: Node) -> None:
    """In each packed row the activated gates (candidate, input, forget, output), the cell state, the hidden state, its projection.

    Without a projection the hidden state is fed back.
    """
    need_cublaslt(low)
    projection, (fed_back, columns) = node.attrs["projection"], node.inputs[1].shape
    count = 3 if projection is None else 4
    weights, bias, *projected = (low.contiguous(value) for value in node.inputs[1:count])
    width, size = node.output.shape[1], columns // 4
    begin = 5 * size if projection is None else 6 * size  # of what is fed back
    out, first = low.new(node.output), _first_row(low, node, node.inputs[count:], (4 * size, begin))
    low.calls.append(_packing(low, node.inputs[0], out, columns, bias, node.attrs["rows"]))
    steps, starts = steps_of(low, node.attrs["starts"]), node.attrs["starts"].tolist()
    peepholes = bias if node.attrs["peepholes"] else None
    for step in steps:
        here = Place(out.buffer, (width, 1), out.offset + starts[step.number] * width)
        before = Pointer(out.buffer, out.offset + starts[step.number - 1] * width) if step.number else first
        state = None if before is None else Matrix(Pointer(before.buffer, before.offset + begin), width)
        recurrence = Recurrence(Matrix(here.pointer, width), state, Matrix(weights.pointer, columns), fed_back, 4)
        text = _lstm_step(size, width, node.attrs["activations"], node.attrs["bound"], before, peepholes)
        recurrent_step(low, step, size, here, recurrence, text, "lstm")
        if projection is not None:
            _project(low, step, here, projected[0], (size, fed_back), projection)


def _project(
    low: Lowering, step: Step, here: Place, weights: Place, sizes: tuple[int, int], projection: Projection
) -> None:
    """The projection of the hidden states of a step, into the columns after them."""
    (size, fed_back), width = sizes, here.strides[0]
    hidden, found = (Matrix(Pointer(here.buffer, here.offset + part * size), width) for part in (5, 6))
    low.calls.append(Product(hidden, Matrix(weights.pointer, fed_back), found, step.alive, size, fed_back))
    if projection.is_plain:
        return

    def text(src: Source) -> list[str]:
        value = function(projection.activation, "out[o]")
        if projection.bound > 0:
            value = f"ft_clip({value}, -{number(projection.bound)}, {number(projection.bound)})"
        return [f"const int o = row * {width} + unit;", f"out[o] = {value};"]

    of_step(low, step, fed_back, Place(here.buffer, here.strides, found.pointer.offset), text, "project")


def _first_row(low: Lowering, node: Node, initial: Sequence[Value], columns: Sequence[int]) -> Pointer | None:
    """Initial states as rows of a step before the first one, each from its column on; None where there are none."""
    if not initial:
        return None
    alive, width = initial[0].shape[0], node.output.shape[1]
    rows = Buffer(alive * width)
    for column, value in zip(columns, initial, strict=True):
        low.copy(value, Place(rows, (width, 1), column))
    return Pointer(rows)


def _packing(low: Lowering, x: Value, out: Place, columns: int, bias: Place | None, rows: Any) -> Any:
    """The kernel that brings rows in the order of the steps, with the bias, into the first columns of a place."""
    source, src, count = low.contiguous(x), Source(low), x.shape[0] * columns
    at = src.thread(count)
    row, column = src.whole(f"{at} / {columns}"), src.whole(f"{at} % {columns}")
    value = f"{src.pointer(source.buffer, source.offset)}[(int){src.table(rows)}[{row}] * {columns} + {column}]"
    if bias is not None:
        value += f" + {src.pointer(bias.buffer, bias.offset)}[{column}]"
    src.lines.append(f"out[{row} * {out.strides[0]} + {column}] = {value};")
    return src.launch(out, -(-count // THREADS), THREADS, "pack")


Lines = Callable[[Source], list[str]]
Before = tuple[Place, int]  # a matrix of states, and its row where those of a step begin


def _lstm_step(
    size: int, width: int, activations: Sequence[int], bound: float, before: Pointer | None, bias: Place | None
) -> OfSums:
    gate, cell, candidate = activations

    def text(src: Source, given: Sequence[str]) -> list[str]:
        sums, old, state = list(given), "0.0f", "g * i + before * f"
        if before is not None:
            old = f"{src.pointer(before.buffer, before.offset)}[o + {4 * size}]"
        if bound > 0:
            state = f"ft_clip({state}, -{number(bound)}, {number(bound)})"
        if bias is not None:
            looks = [f"{src.pointer(bias.buffer, bias.offset + (4 + part) * size)}[unit]" for part in range(3)]
            sums[1:] = [
                f"{each} + {what} * {look}"
                for each, what, look in zip(sums[1:], ("before", "before", "c"), looks, strict=True)
            ]
        return [
            f"const int o = row * {width} + unit;",
            f"const float before = {old};",
            f"const float g = {function(candidate, sums[0])}, i = {function(gate, sums[1])};",
            f"const float f = {function(gate, sums[2])}, c = {state};",
            f"const float p = {function(gate, sums[3])};",
            f"out[o] = g; out[o + {size}] = i; out[o + {2 * size}] = f; out[o + {3 * size}] = p;",
            f"out[o + {4 * size}] = c; out[o + {5 * size}] = p * {function(cell, 'c')};",
        ]

    return text


@imports_step("lstm_grad")
def _lstm_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights, bias, size = _lstm_inputs(b, op, attrs)
    packed, known = packed_of(b, op, "Input", attrs)
    gates, grad = b.get(op, "BatchGate"), b.get(op, "Hidden@GRAD")
    need(grad.shape == (x.shape[0], size), "a gradient that does not fit")
    cells, hidden = (in_steps(b, op, slot, packed) for slot in ("Cell", "Hidden"))
    known |= {"activations": lstm_activations(attrs), "peepholes": bool(attrs["use_peepholes"]), "bound": 0.0}
    initial = initial_pair(b, op, "Input", size, size)
    more = dict(zip(("C0",), initial, strict=False))
    found = lstm_gradient(b, (gates, cells, grad, weights, bias), more, known | {"projection": None})
    put_initial_gradients(b, op, found, "Input", {"C0": size, "H0": size})
    if b.wants(op, "Input@GRAD"):
        b.put(op, "Input@GRAD", taken(b, found, packed.places))
    if b.wants(op, "Weight@GRAD"):
        before = states_before(b, hidden, initial[1:], packed)
        b.put(op, "Weight@GRAD", b.product(b.transposed(before, (1, 0)), found))
    if b.wants(op, "Bias@GRAD"):
        peepholes = (cells, states_before(b, cells, initial[:1], packed)) if known["peepholes"] else ()
        b.put(op, "Bias@GRAD", b.view(bias_gradient(b, found, size, peepholes), bias.shape))


def lstm_gradient(b: StepBuilder, given: Sequence[Value], more: Mapping[str, Value], known: Mapping[str, Any]) -> Value:
    """The gradients of the gates' sums, in the order of the steps.

    given: activated gates, cell states, the gradient of the result, weights, bias. more: by name, those of 'C0' (cell states
    before the first step), 'last C' and 'last H' (gradients of the states after the last), 'projection' and 'projected'
    (weights, results) that there are.
    """
    return b.node("lstm_gradient", [*given, *more.values()], given[0].shape, more=tuple(more), **known)


def bias_gradient(b: StepBuilder, found: Value, size: int, states: Sequence[Value]) -> Value:
    """The gradient of a bias. states: the cell states and those before them, where peepholes look at them."""
    total = b.view(b.sums(found, (1,)), (1, 4 * size))
    if not states:
        return total
    cells, before = states
    parts = [
        b.view(b.sums(b.formula("a * b", columns_of(b, found, part * size, size), state), (1,)), (1, size))
        for part, state in ((1, before), (2, before), (3, cells))
    ]
    return b.node("concat", [total, *parts], (1, 7 * size), axis=1)


def in_steps(b: StepBuilder, op: Operator, slot: str, packed: Packed) -> Value:
    """The rows of an input in the order of the steps, in which the layer has left them if it is in this step."""
    value = b.get(op, slot)
    found = b.packed.get(op.inputs[slot][0])
    return taken(b, value, packed.rows) if found is None else found


def by_columns(low: Lowering, value: Value) -> Place:
    """A place of a matrix whose rows are contiguous, at any distance."""
    place = low.place(value)
    fits = (place.strides[1] == 1 or value.shape[1] == 1) and not place.buffer.half
    return place if fits else low.contiguous(value)


def begun(low: Lowering, value: Value | None, rows: int, columns: int) -> Buffer:
    """Memory that begins with a matrix; with zeros without one."""
    found = Buffer(rows * columns)
    place = Place(found, (columns, 1))
    if value is None:
        low.elementwise(place, (rows, columns), lambda src, index: "0.0f")
    else:
        low.copy(value, place)
    return found


@lowers("lstm_gradient")
def _lower_lstm_gradient(low: Lowering, node: Node) -> None:
    """The gradients of the gates' sums, in the order of the steps, from the last to the first."""
    need_cublaslt(low)
    gates, cells = (by_columns(low, value) for value in node.inputs[:2])
    grad, weights, bias = (low.contiguous(value) for value in node.inputs[2:5])
    more = dict(zip(node.attrs["more"], node.inputs[5:], strict=True))
    initial = low.contiguous(more["C0"]) if "C0" in more else None
    (fed_back, columns), starts = node.inputs[3].shape, node.attrs["starts"].tolist()
    size, out, alive = columns // 4, low.new(node.output), int(starts[1])
    states = begun(low, more.get("last C"), alive, size)
    later = begun(low, more.get("last H"), alive, fed_back)
    through = _through_projection(low, node, more, grad, later)
    hidden, direct = (later, grad) if through is None else (through.hidden, None)
    order = low.constant(node.attrs["rows"])
    peepholes = bias if node.attrs["peepholes"] else None
    layer = _LstmGradient(
        size, node.attrs["activations"], node.attrs["bound"], gates, cells, direct, peepholes, states, hidden
    )
    for name, buffer, width in (("C0", states, size), ("H0", later, fed_back)):
        low.beside[node.output, name] = Place(buffer, (width, 1))
    for step in reversed(steps_of(low, node.attrs["starts"])):
        start = starts[step.number]
        here = Place(out.buffer, (columns, 1), out.offset + start * columns)
        before = (cells, starts[step.number - 1]) if step.number else (initial, 0) if initial is not None else None
        if through is not None:
            through.step(low, step, start, Pointer(order, start))
        of_step(low, step, size, here, layer.lines(start, before, Pointer(order, start)), "lstm_back")
        if before is not None:
            turned = Matrix(weights.pointer, columns, turned=True)
            product = Product(
                Matrix(here.pointer, columns), turned, Matrix(Pointer(later), fed_back), step.alive, columns, fed_back
            )
            low.calls.append(product)


def _through_projection(
    low: Lowering, node: Node, more: Mapping[str, Value], grad: Place, later: Buffer
) -> _ThroughProjection | None:
    """What brings gradients of projections to hidden states; the gradients of the projections' products are beside the result."""
    projection = node.attrs["projection"]
    if projection is None:
        return None
    size, fed_back = more["projection"].shape
    found = Place(Buffer(node.output.shape[0] * fed_back), (fed_back, 1))
    low.beside[node.output, "projected"] = found
    weights, results = low.contiguous(more["projection"]), by_columns(low, more["projected"])
    hidden = Buffer(int(node.attrs["starts"][1]) * size)
    return _ThroughProjection((size, fed_back), projection, weights, results, grad, later, found, hidden)


@dataclass(frozen=True, slots=True)
class _ThroughProjection:
    """Where the calls of a step find the numbers of projections: `later` is the gradient that comes from the step after."""

    sizes: tuple[int, int]
    projection: Projection
    weights: Place
    results: Place
    grad: Place
    later: Buffer
    found: Place
    hidden: Buffer

    def step(self, low: Lowering, step: Step, start: int, order: Pointer) -> None:
        """The gradients of the hidden states of a step whose rows begin at `start`."""
        size, fed_back = self.sizes

        def text(src: Source) -> list[str]:
            row = f"(int){src.pointer(order.buffer, order.offset)}[row]"
            steep = f"{src.pointer(self.grad.buffer, self.grad.offset)}[{row} * {fed_back} + unit]"
            steep = f"{steep} + {src.pointer(self.later)}[row * {fed_back} + unit]"
            bound = self.projection.bound
            inside = f"fabsf(r) < {number(bound)} ? {steep} : 0.0f" if bound > 0 else steep
            return [
                f"const float r = {_at(src, self.results, start)};",
                f"const float d = {inside};",
                f"out[row * {fed_back} + unit] = {slope(self.projection.activation, 'd', 'r')};",
            ]

        here = Place(self.found.buffer, self.found.strides, start * fed_back)
        of_step(low, step, fed_back, here, text, "project_back")
        turned = Matrix(self.weights.pointer, fed_back, turned=True)
        found = Matrix(Pointer(self.hidden), size)
        low.calls.append(Product(Matrix(here.pointer, fed_back), turned, found, step.alive, fed_back, size))


@dataclass(frozen=True, slots=True)
class _LstmGradient:
    """Where the kernel of a step finds its numbers: `states` and `hidden` are gradients that come from the step after.

    grad: that of the result; None where `hidden` has it already.
    """

    size: int
    activations: Sequence[int]
    bound: float
    gates: Place
    cells: Place
    grad: Place | None
    bias: Place | None
    states: Buffer
    hidden: Buffer

    def lines(self, start: int, before: Before | None, order: Pointer) -> Lines:
        """The statements of a step whose rows begin at `start`; before: where the states of the step before are."""
        size, (gate, cell, candidate) = self.size, self.activations

        def text(src: Source) -> list[str]:
            sources = src.pointer(self.gates.buffer, self.gates.offset + start * self.gates.strides[0])
            g, i, f, p = (f"{sources}[row * {self.gates.strides[0]} + {part * size} + unit]" for part in range(4))
            own = _at(src, self.cells, start)
            old = "0.0f" if before is None else _at(src, *before)
            steep = f"{src.pointer(self.hidden)}[row * {size} + unit]"
            if self.grad is not None:
                row = f"(int){src.pointer(order.buffer, order.offset)}[row]"
                steep = f"{src.pointer(self.grad.buffer, self.grad.offset)}[{row} * {size} + unit] + {steep}"
            later = f"{src.writable(self.states)}[row * {size} + unit]"
            looks = ["0.0f"] * 3
            inside = f"fabsf(c) < {number(self.bound)} ? all : 0.0f" if self.bound > 0 else "all"
            if self.bias is not None:
                bias = self.bias
                looks = [f"{src.pointer(bias.buffer, bias.offset + (4 + each) * size)}[unit]" for each in range(3)]
            return [
                f"const float g = {g}, i = {i}, f = {f}, p = {p}, c = {own}, before = {old};",
                f"const float a = {function(cell, 'c')};",
                f"const float dh = {steep};",
                f"const float dp = {slope(gate, 'dh * a', 'p')};",
                f"const float all = {slope(cell, 'dh * p', 'a')} + dp * {looks[2]} + {later};",
                f"const float dc = {inside};",
                f"const float di = {slope(gate, 'dc * g', 'i')}, df = {slope(gate, 'dc * before', 'f')};",
                f"const int o = row * {4 * size} + unit;",
                f"out[o] = {slope(candidate, 'dc * i', 'g')}; out[o + {size}] = di;",
                f"out[o + {2 * size}] = df; out[o + {3 * size}] = dp;",
                f"{later} = dc * f + di * {looks[0]} + df * {looks[1]};",
            ]

        return text


def _at(src: Source, place: Place, start: int) -> str:
    """The element of a thread in a matrix, from the row `start` on."""
    step = place.strides[0]
    return f"{src.pointer(place.buffer, place.offset + start * step)}[row * {step} + unit]"


# ---------------------------------------------------------------- GRU
@imports_step("gru")
def _gru(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights, size = _gru_inputs(b, op)
    packed, known = packed_of(b, op, "Input", attrs)
    known |= {"activations": kinds_of(attrs, "gate_activation", "activation"), "origin": bool(attrs["origin_mode"])}
    bias = [b.get(op, "Bias")] if b.has(op, "Bias") else []
    need(all(prod(each.shape) == 3 * size for each in bias), "a bias of an unexpected shape")
    known["biased"] = bool(bias)
    initial = initial_of(b, op, "H0", "Input", size)
    found = b.node("gru_steps", [x, weights, *bias, *initial], (x.shape[0], 5 * size), **known)
    hidden = columns_of(b, found, 4 * size, size)
    parts = {"BatchGate": (0, 3), "BatchResetHiddenPrev": (3, 1), "BatchHidden": (4, 1)}
    for slot, (start, count) in parts.items():
        if b.wants(op, slot):
            b.put(op, slot, columns_of(b, found, start * size, count * size))
    b.put(op, "Hidden", taken(b, hidden, packed.places))


def _gru_inputs(b: StepBuilder, op: Operator) -> tuple[Value, Value, int]:
    x, weights = b.get(op, "Input"), b.get(op, "Weight")
    size = weights.shape[0]
    need(weights.shape == (size, 3 * size) and x.shape[1:] == (3 * size,), "gates of an unexpected shape")
    return x, weights, size


@lowers("gru_steps")
def _lower_gru(low: Lowering, node: Node) -> None:
    """In each packed row the activated gates (update, reset, candidate), the reset state and the hidden state."""
    need_cublaslt(low)
    count = 2 + node.attrs["biased"]
    weights, *bias = (low.contiguous(value) for value in node.inputs[1:count])
    width, size = node.output.shape[1], node.output.shape[1] // 5
    first = _first_row(low, node, node.inputs[count:], (4 * size,))
    out, starts = low.new(node.output), node.attrs["starts"].tolist()
    low.calls.append(_packing(low, node.inputs[0], out, 3 * size, bias[0] if bias else None, node.attrs["rows"]))
    for_gates = Matrix(weights.pointer, 2 * size)
    for_candidate = Matrix(Pointer(weights.buffer, weights.offset + 2 * size * size), size)
    for step in steps_of(low, node.attrs["starts"]):
        here = Place(out.buffer, (width, 1), out.offset + starts[step.number] * width)
        row = Pointer(out.buffer, out.offset + starts[step.number - 1] * width) if step.number else first
        before = None if row is None else Pointer(row.buffer, row.offset + 4 * size)
        if before is not None:
            of_gates = Recurrence(Matrix(here.pointer, width), Matrix(before, width), for_gates, size, 2)
            text = _gru_reset(size, node.attrs["activations"][0], before, of_gates.is_one_call(step))
            recurrent_step(low, step, size, here, of_gates, text, "reset")
        reset, candidate = (Matrix(Pointer(here.buffer, here.offset + part * size), width) for part in (3, 2))
        of_candidate = Recurrence(candidate, None if before is None else reset, for_candidate, size, 1)
        text = _gru_step(size, node.attrs["activations"], before, node.attrs["origin"])
        recurrent_step(low, step, size, here, of_candidate, text, "gru")


def _gru_reset(size: int, gate: int, before: Pointer, keeps_update: bool) -> OfSums:
    """The reset gates and states; the sums of the update gates, too, where they are not in memory yet."""

    def text(src: Source, sums: Sequence[str]) -> list[str]:
        old = f"{src.pointer(before.buffer, before.offset)}[o]"
        return [
            f"const int o = row * {5 * size} + unit;",
            f"const float r = {function(gate, sums[1])};",
            *([f"out[o] = {sums[0]};"] if keeps_update else []),
            f"out[o + {size}] = r; out[o + {3 * size}] = r * {old};",
        ]

    return text


def _gru_step(size: int, activations: Sequence[int], before: Pointer | None, origin: bool) -> OfSums:
    gate, candidate = activations

    def text(src: Source, sums: Sequence[str]) -> list[str]:
        lines = [f"const int o = row * {5 * size} + unit;"]
        if before is None:
            reset = function(gate, f"out[o + {size}]")
            lines.append(f"out[o + {size}] = {reset}; out[o + {3 * size}] = 0.0f;")
        old = "0.0f" if before is None else f"{src.pointer(before.buffer, before.offset)}[o]"
        result = "c + u * (before - c)" if origin else "before + u * (c - before)"
        return [
            *lines,
            f"const float u = {function(gate, 'out[o]')}, c = {function(candidate, sums[0])};",
            f"const float before = {old};",
            f"out[o] = u; out[o + {2 * size}] = c; out[o + {4 * size}] = {result};",
        ]

    return text


@imports_step("gru_grad")
def _gru_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights, size = _gru_inputs(b, op)
    packed, known = packed_of(b, op, "Hidden", attrs)
    known |= {"activations": kinds_of(attrs, "gate_activation", "activation"), "origin": bool(attrs["origin_mode"])}
    gates, reset, hidden = (b.get(op, slot) for slot in ("BatchGate", "BatchResetHiddenPrev", "BatchHidden"))
    grad = b.get(op, "Hidden@GRAD")
    need(grad.shape == (x.shape[0], size), "a gradient that does not fit")
    initial = initial_of(b, op, "H0", "Hidden", size)
    found = b.node("gru_gradient", [gates, hidden, grad, weights, *initial], gates.shape, **known)
    put_initial_gradients(b, op, found, "Hidden", {"H0": size})
    if b.wants(op, "Input@GRAD"):
        b.put(op, "Input@GRAD", taken(b, found, packed.places))
    if b.wants(op, "Bias@GRAD"):
        b.put(op, "Bias@GRAD", b.view(b.sums(found, (1,)), (1, 3 * size)))
    if b.wants(op, "Weight@GRAD"):
        before = b.transposed(states_before(b, hidden, initial, packed), (1, 0))
        by_gates = b.product(before, columns_of(b, found, 0, 2 * size))
        by_candidate = b.product(b.transposed(reset, (1, 0)), columns_of(b, found, 2 * size, size))
        parts = [b.view(by_gates, (2 * size * size,)), b.view(by_candidate, (size * size,))]
        b.put(op, "Weight@GRAD", b.view(b.node("concat", parts, (3 * size * size,), axis=0), weights.shape))


@lowers("gru_gradient")
def _lower_gru_gradient(low: Lowering, node: Node) -> None:
    """The gradients of the gates' sums, in the order of the steps, from the last to the first."""
    need_cublaslt(low)
    gates, states = (by_columns(low, value) for value in node.inputs[:2])
    grad, weights, *initial = (low.contiguous(value) for value in node.inputs[2:])
    size, starts = node.output.shape[1] // 3, node.attrs["starts"].tolist()
    out, alive = low.new(node.output), int(starts[1])
    hidden, reset, order = begun(low, None, alive, size), Buffer(alive * size), low.constant(node.attrs["rows"])
    layer = _GruGradient(size, node.attrs["activations"], node.attrs["origin"], gates, states, grad, hidden, reset)
    low.beside[node.output, "H0"] = Place(hidden, (size, 1))
    for_gates = Matrix(weights.pointer, 2 * size, turned=True)
    for_candidate = Matrix(Pointer(weights.buffer, weights.offset + 2 * size * size), size, turned=True)
    for step in reversed(steps_of(low, node.attrs["starts"])):
        start = starts[step.number]
        here = Place(out.buffer, (3 * size, 1), out.offset + start * 3 * size)
        before = (states, starts[step.number - 1]) if step.number else (initial[0], 0) if initial else None
        of_step(low, step, size, here, layer.first(start, before, Pointer(order, start)), "gru_back")
        if before is not None:
            found, total = Matrix(Pointer(reset), size), Matrix(Pointer(hidden), size)
            candidate = Matrix(Pointer(here.buffer, here.offset + 2 * size), 3 * size)
            low.calls.append(Product(candidate, for_candidate, found, step.alive, size, size))
            of_step(low, step, size, here, layer.second(start, before), "reset_back")
            both = Matrix(here.pointer, 3 * size)
            low.calls.append(Product(both, for_gates, total, step.alive, 2 * size, size, added=total))


@dataclass(frozen=True, slots=True)
class _GruGradient:
    """Where the kernels of a step find their numbers: `hidden` is the gradient that comes from the step after."""

    size: int
    activations: Sequence[int]
    origin: bool
    gates: Place
    states: Place
    grad: Place
    hidden: Buffer
    reset: Buffer

    def first(self, start: int, before: Before | None, order: Pointer) -> Lines:
        """The gradients of the update gate and of the candidate."""
        size, (gate, candidate) = self.size, self.activations

        def text(src: Source) -> list[str]:
            sources, step = self._gates(src, start)
            old = "0.0f" if before is None else _at(src, *before)
            later = f"{src.writable(self.hidden)}[row * {size} + unit]"
            row = f"(int){src.pointer(order.buffer, order.offset)}[row]"
            towards, kept = ("before - c", "1.0f - u") if self.origin else ("c - before", "u")
            lines = [
                f"const float u = {sources}[row * {step} + unit];",
                f"const float c = {sources}[row * {step} + {2 * size} + unit], before = {old};",
                f"const float dh = {src.pointer(self.grad.buffer, self.grad.offset)}[{row} * {size} + unit] + {later};",
                f"const int o = row * {3 * size} + unit;",
                f"out[o] = {slope(gate, f'dh * ({towards})', 'u')};",
                f"out[o + {2 * size}] = {slope(candidate, f'dh * ({kept})', 'c')};",
                f"{later} = dh * (1.0f - ({kept}));",
            ]
            return lines if before is not None else [*lines, f"out[o + {size}] = 0.0f;"]

        return text

    def second(self, start: int, before: Before) -> Lines:
        """The gradient of the reset gate, from that of the reset state."""
        size, gate = self.size, self.activations[0]

        def text(src: Source) -> list[str]:
            sources, step = self._gates(src, start)
            return [
                f"const float r = {sources}[row * {step} + {size} + unit], before = {_at(src, *before)};",
                f"const float d = {src.pointer(self.reset)}[row * {size} + unit];",
                f"out[row * {3 * size} + {size} + unit] = {slope(gate, 'd * before', 'r')};",
                f"{src.writable(self.hidden)}[row * {size} + unit] += d * r;",
            ]

        return text

    def _gates(self, src: Source, start: int) -> tuple[str, int]:
        step = self.gates.strides[0]
        return src.pointer(self.gates.buffer, self.gates.offset + start * step), step
