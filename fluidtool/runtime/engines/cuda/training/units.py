"""Single steps of recurrent layers in training steps: products and formulas, which join the clusters of what is around them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.sequences import FULL_SIGMOID, function
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.recurrent import columns_of, slope
from fluidtool.runtime.graph.importers.registry import IMPORTERS, SIGMOID, need
from fluidtool.runtime.graph.importers.sequences import BY_NUMBER, lstm_unit_gates
from fluidtool.runtime.graph.ir import Value

Attrs = Mapping[str, Any]


def side_by_side(b: StepBuilder, *parts: Value) -> Value:
    """Matrices with the same rows as one."""
    rows, columns = parts[0].shape[0], sum(each.shape[1] for each in parts)
    return b.node("concat", parts, (rows, columns), axis=1)


# ---------------------------------------------------------------- LSTM
@imports_step("lstm_unit")
def _lstm_unit(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    IMPORTERS["lstm_unit"](b, op, dict(attrs))


@imports_step("lstm_unit_grad")
def _lstm_unit_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    before, (i, f, o, g) = lstm_unit_gates(b, op, attrs)
    cell, of_cell, of_hidden = (b.get(op, slot) for slot in ("C", "C@GRAD", "H@GRAD"))
    need(cell.shape == of_cell.shape == of_hidden.shape == before.shape, "a gradient that does not fit")
    text = "a + b * c * (1.0f - tanhf(d) * tanhf(d))"
    steep = b.formula(text, of_cell, of_hidden, o, cell)
    if b.wants(op, "X@GRAD"):
        parts = (
            b.formula("a * b * c * (1.0f - c)", steep, g, i),
            b.formula("a * b * c * (1.0f - c)", steep, before, f),
            b.formula("a * tanhf(b) * c * (1.0f - c)", of_hidden, cell, o),
            b.formula("a * b * (1.0f - c * c)", steep, i, g),
        )
        b.put(op, "X@GRAD", side_by_side(b, *parts))
    if b.wants(op, "C_prev@GRAD"):
        b.put(op, "C_prev@GRAD", b.formula("a * b", steep, f))


# ---------------------------------------------------------------- GRU
@dataclass(frozen=True, slots=True)
class _Gru:
    """What a step and its gradient read: the state before, weights of gates and of the candidate, activations by number."""

    x: Value
    before: Value
    for_gates: Value
    for_candidate: Value
    gate: int
    candidate: int
    origin: bool
    size: int


def _gru_of(b: StepBuilder, op: Operator, attrs: Attrs) -> _Gru:
    x, before, weights = (b.get(op, slot) for slot in ("Input", "HiddenPrev", "Weight"))
    size, numbers = weights.shape[0], [int(attrs[name]) for name in ("gate_activation", "activation")]
    need(all(0 <= number < len(BY_NUMBER) for number in numbers), "another activation")
    need(weights.shape == (size, 3 * size) and before.shape == (x.shape[0], size), "gates of an unexpected shape")
    need(x.shape == (x.shape[0], 3 * size), "gates of an unexpected shape")
    gate, candidate = (SIGMOID if kind == FULL_SIGMOID else kind for kind in (BY_NUMBER[each] for each in numbers))
    flat, ends = b.view(weights, (3 * size * size,)), (0, 2 * size * size, 3 * size * size)
    first, second = (
        b.node("slice", [flat], (end - start,), starts=[start], sizes=(end - start,)) for start, end in pairwise(ends)
    )
    of_gates, of_candidate = b.view(first, (size, 2 * size)), b.view(second, (size, size))
    return _Gru(x, before, of_gates, of_candidate, gate, candidate, bool(attrs["origin_mode"]), size)


@imports_step("gru_unit")
def _gru_unit(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Gates stand as update, reset, candidate."""
    gru, size = _gru_of(b, op, attrs), b.get(op, "Weight").shape[0]
    sums = gru.x
    if b.has(op, "Bias"):
        bias = b.get(op, "Bias")
        need(bias.floats == 3 * size, "a bias of an unexpected shape")
        sums = b.formula("a + b", sums, b.view(bias, (1, 3 * size)))
    products = b.product(gru.before, gru.for_gates)
    gates = b.formula(function(gru.gate, "(a + b)"), columns_of(b, sums, 0, 2 * size), products)
    update, reset = (columns_of(b, gates, number * size, size) for number in range(2))
    kept = b.formula("a * b", reset, gru.before)
    last = columns_of(b, sums, 2 * size, size)
    candidate = b.formula(function(gru.candidate, "(a + b)"), last, b.product(kept, gru.for_candidate))
    text = "c + a * (b - c)" if gru.origin else "b + a * (c - b)"
    b.put(op, "Hidden", b.formula(text, update, gru.before, candidate))
    if b.wants(op, "ResetHiddenPrev"):
        b.put(op, "ResetHiddenPrev", kept)
    if b.wants(op, "Gate"):
        b.put(op, "Gate", side_by_side(b, update, reset, candidate))


@imports_step("gru_unit_grad")
def _gru_unit_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    gru = _gru_of(b, op, attrs)
    gates, kept, grad = (b.get(op, slot) for slot in ("Gate", "ResetHiddenPrev", "Hidden@GRAD"))
    size, before = gru.size, gru.before
    need(gates.shape == gru.x.shape and grad.shape == kept.shape == before.shape, "a gradient that does not fit")
    update, reset, candidate = (columns_of(b, gates, number * size, size) for number in range(3))
    towards, share = ("(b - c)", "(1.0f - d)") if gru.origin else ("(c - b)", "d")
    of_update = b.formula(slope(gru.gate, f"a * {towards}", "d"), grad, before, candidate, update)
    of_candidate = b.formula(slope(gru.candidate, f"a * {share}", "c"), grad, before, candidate, update)
    of_kept = b.product(of_candidate, gru.for_candidate, swap_y=True)
    of_reset = b.formula(slope(gru.gate, "a * b", "c"), of_kept, before, reset)
    of_gates = side_by_side(b, of_update, of_reset)
    sums = side_by_side(b, of_update, of_reset, of_candidate)
    if b.wants(op, "Input@GRAD"):
        b.put(op, "Input@GRAD", sums)
    if b.wants(op, "HiddenPrev@GRAD"):
        passed = f"a * (1.0f - {share.replace('d', 'b')}) + c * d + e"
        products = b.product(of_gates, gru.for_gates, swap_y=True)
        b.put(op, "HiddenPrev@GRAD", b.formula(passed, grad, update, of_kept, reset, products))
    if b.wants(op, "Weight@GRAD"):
        both = (b.product(b.transposed(before, (1, 0)), of_gates), b.product(b.transposed(kept, (1, 0)), of_candidate))
        flat = [b.view(each, (each.floats,)) for each in both]
        whole = b.node("concat", flat, (3 * size * size,), axis=0)
        b.put(op, "Weight@GRAD", b.view(whole, (size, 3 * size)))
    if b.wants(op, "Bias@GRAD"):
        b.put(op, "Bias@GRAD", b.view(b.sums(sums, (1,)), (1, 3 * size)))
