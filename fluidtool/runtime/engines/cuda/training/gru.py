"""GRU in training steps, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Buffer, Matrix, Place, Pointer, Product
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers, need_cublaslt
from fluidtool.runtime.engines.cuda.recurrences import OfSums, Recurrence, of_step, recurrent_step, steps_of
from fluidtool.runtime.engines.cuda.sequences import function
from fluidtool.runtime.engines.cuda.sources import Source
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.packing import initial_of, packed_of, put_initial_gradients, states_before
from fluidtool.runtime.engines.cuda.training.recurrent import (
    Before,
    Lines,
    begun,
    by_columns,
    columns_of,
    element_at,
    first_row,
    kinds_of,
    pack,
    slope,
)
from fluidtool.runtime.engines.cuda.training.sequences import taken
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]


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
    first = first_row(low, node, node.inputs[count:], (4 * size,))
    out, starts = low.new(node.output), node.attrs["starts"].tolist()
    low.calls.append(pack(low, node.inputs[0], out, 3 * size, bias[0] if bias else None, node.attrs["rows"]))
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
            old = "0.0f" if before is None else element_at(src, *before)
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
                f"const float r = {sources}[row * {step} + {size} + unit], before = {element_at(src, *before)};",
                f"const float d = {src.pointer(self.reset)}[row * {size} + unit];",
                f"out[row * {3 * size} + {size} + unit] = {slope(gate, 'd * before', 'r')};",
                f"{src.writable(self.hidden)}[row * {size} + unit] += d * r;",
            ]

        return text

    def _gates(self, src: Source, start: int) -> tuple[str, int]:
        step = self.gates.strides[0]
        return src.pointer(self.gates.buffer, self.gates.offset + start * step), step
