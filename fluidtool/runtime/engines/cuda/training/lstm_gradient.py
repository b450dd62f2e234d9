"""The gradient of an LSTM, from the last step to the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Buffer, Matrix, Place, Pointer, Product
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers, need_cublaslt
from fluidtool.runtime.engines.cuda.recurrences import Step, of_step, steps_of
from fluidtool.runtime.engines.cuda.sequences import function
from fluidtool.runtime.engines.cuda.sources import Source, number
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.lstm import Projection, initial_pair, lstm_activations, lstm_inputs
from fluidtool.runtime.engines.cuda.training.packing import in_steps, packed_of, put_initial_gradients, states_before
from fluidtool.runtime.engines.cuda.training.recurrent import (
    Before,
    Lines,
    begun,
    by_columns,
    columns_of,
    element_at,
    slope,
)
from fluidtool.runtime.engines.cuda.training.sequences import taken
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]


@imports_step("lstm_grad")
def _lstm_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights, bias, size = lstm_inputs(b, op, attrs)
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
                f"const float r = {element_at(src, self.results, start)};",
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
            own = element_at(src, self.cells, start)
            old = "0.0f" if before is None else element_at(src, *before)
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
