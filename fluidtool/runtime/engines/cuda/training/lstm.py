"""LSTM in training steps, forward: in each step a product and a kernel or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Matrix, Place, Pointer, Product
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers, need_cublaslt
from fluidtool.runtime.engines.cuda.recurrences import OfSums, Recurrence, Step, of_step, recurrent_step, steps_of
from fluidtool.runtime.engines.cuda.sequences import function
from fluidtool.runtime.engines.cuda.sources import Source, number
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.packing import initial_of, packed_of, put_states
from fluidtool.runtime.engines.cuda.training.recurrent import columns_of, first_row, kinds_of, pack
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.importers.sequences import ACTIVATIONS
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]
NO_ACTIVATION = ACTIVATIONS["identity"]


@imports_step("lstm")
def _lstm(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, weights, bias, size = lstm_inputs(b, op, attrs)
    packed, known = packed_of(b, op, "Input", attrs)
    known |= {"activations": lstm_activations(attrs), "peepholes": bool(attrs["use_peepholes"]), "bound": 0.0}
    initial = initial_pair(b, op, "Input", size, size)
    found = b.node("lstm_steps", [x, weights, bias, *initial], (x.shape[0], 6 * size), projection=None, **known)
    put_states(b, op, found, packed, {"Cell": (4 * size, size), "Hidden": (5 * size, size)})
    put_gates(b, op, found, size, lstm_activations(attrs)[1])


def put_gates(b: StepBuilder, op: Operator, found: Value, size: int, activation: int) -> None:
    """The outputs that are in the order of the steps: gates, and activated cell states."""
    if b.wants(op, "BatchGate"):
        b.put(op, "BatchGate", columns_of(b, found, 0, 4 * size))
    if b.wants(op, "BatchCellPreAct"):
        cells = columns_of(b, found, 4 * size, size)
        b.put(op, "BatchCellPreAct", b.formula(function(activation, "a"), cells))


def lstm_inputs(b: StepBuilder, op: Operator, attrs: Attrs) -> tuple[Value, Value, Value, int]:
    """Gates before the layer, its weights and bias, and its size; raises UnsupportedError where their shapes do not fit."""
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
    out, first = low.new(node.output), first_row(low, node, node.inputs[count:], (4 * size, begin))
    low.calls.append(pack(low, node.inputs[0], out, columns, bias, node.attrs["rows"]))
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
