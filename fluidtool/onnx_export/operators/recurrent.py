"""Recurrent layers as LSTM, GRU and RNN nodes, and single steps of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fluidtool.onnx_export import ragged
from fluidtool.onnx_export.graph import BOOL, Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.activation import activated
from fluidtool.onnx_export.registry import need, renders
from fluidtool.records import dataclass

NAMES = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "identity": "Affine"}
NUMBERED = ("identity", "sigmoid", "tanh", "relu")


def _named(*activations: str) -> list[str]:
    for name in activations:
        need(name in ("sigmoid", "tanh", "relu"), f"the activation {name} in a recurrent layer")
    return [NAMES[name] for name in activations]


def parts(x: Value, count: int, axis: int) -> list[Value]:
    """Equal parts along an axis."""
    size = x.size(axis) // count
    return [x.part(axis, i * size, (i + 1) * size) for i in range(count)]


def reordered(g: Graph, x: Value, order: Sequence[int], axis: int) -> Value:
    """Blocks of an axis in another order."""
    blocks = parts(x, len(order), axis)
    return g.concat([blocks[i] for i in order], axis)


def initial(op: Operation, slot: str) -> Value | None:
    """[1, 1, D] of an initial state."""
    state = op.get(slot)
    return None if state is None else state.unsqueeze(0)


# ---------------------------------------------------------------- layers over sequences
@dataclass(frozen=True, slots=True)
class Steps:
    """The rows of sequences step by step, [T, N, D]: of one sequence, or of several padded ones with their lengths."""

    rows: Value
    lengths: Value | None = None
    inside: Value | None = None  # [N, T]

    @staticmethod
    def of(g: Graph, x: Value, lengths: Value | None) -> Steps:
        """Rows that lie one after another."""
        if lengths is None:
            return Steps(x.unsqueeze(1))
        rows, inside = ragged.padded(g, x, lengths)
        return Steps(rows.swap(0, 1), lengths.cast(np.int32), inside)

    def back(self, g: Graph, x: Value, width: int) -> Value:
        """[T, N, width], as a layer gives it, one after another again."""
        if self.inside is None:
            return x.reshape([self.rows.dim(0), width])
        return ragged.packed(g, x.shaped((-1, -1, width)).swap(0, 1), self.inside)

    def starts(self, state: Value | None, width: int) -> Value:
        """[N, width]: an initial state, zeros where there is none."""
        g = self.rows.graph
        return g.full(g.vector([self.rows.dim(1), width]), 0, self.rows.dtype) if state is None else state

    def scanned(self) -> list[Value]:
        """What a Scan goes through: the rows, and whether they belong to a sequence, [T, N, 1]."""
        return [self.rows] if self.inside is None else [self.rows, self.inside.swap(0, 1).unsqueeze(2)]

    def entered(self, body: Graph, name: str, width: int) -> tuple[Value, Value | None]:
        """A row within the Scan, [N, width], and whether it belongs to a sequence."""
        row = body.input(body.name(f"{name}.x"), self.rows.dtype, (-1, width))
        return row, None if self.inside is None else body.input(body.name(f"{name}.inside"), BOOL, (-1, 1))


def _held(body: Graph, inside: Value | None, after: Value, before: Value) -> Value:
    """A state after a step: behind the end of its sequence as it was."""
    return after if inside is None else body.where(inside, after, before)


@renders("lstm")
def lstm(g: Graph, op: Operation) -> dict[str, Value]:
    hidden, cell = _lstm(g, op, op["Input"], op["Weight"], op["Bias"], op.lengths("Input"))
    return {"Hidden": hidden, "Cell": cell}


def _lstm(g: Graph, op: Operation, x: Value, weight: Value, bias: Value, lengths: Value | None) -> tuple[Value, Value]:
    """An LSTM whose products with the inputs are made: they enter through a matrix of ones.

    Paddle's gates are candidate, input, forget, output; ONNX's are input, output, forget, candidate.
    """
    size = weight.size(0)
    order = (1, 3, 2, 0)
    gate, cell, candidate = (op.attr(f"{name}_activation") for name in ("gate", "cell", "candidate"))
    names = _named(gate, candidate, cell)
    steps = Steps.of(g, reordered(g, x, order, 1), lengths)
    inputs = g.constant(np.eye(4 * size, dtype=x.dtype)[None])
    recurrent = reordered(g, weight, order, 1).swap().unsqueeze(0)
    added = reordered(g, bias.reshape([1, -1]).part(1, 0, 4 * size), order, 1)
    added = g.concat([added, g.constant(np.zeros((1, 4 * size), x.dtype))], 1)
    peepholes = None
    if op.attr("use_peepholes"):
        rest = bias.reshape([1, -1]).part(1, 4 * size, 7 * size)  # input, forget, output
        peepholes = reordered(g, rest, (0, 2, 1), 1)
    given: list[Value | None] = [
        steps.rows, inputs, recurrent, added, steps.lengths, initial(op, "H0"), initial(op, "C0"), peepholes,
    ]  # fmt: skip
    return _with_cells(g, op, given, size, names, steps)


def _with_cells(
    g: Graph, op: Operation, given: list[Value | None], size: int, names: list[str], steps: Steps
) -> tuple[Value, Value]:
    """Hidden states, and cell states: ONNX gives the last of these alone, so that a Scan computes them again."""
    direction = "reverse" if op.attr("is_reverse") else "forward"
    dtypes = [steps.rows.dtype, None, None]
    if not op.exporter.reads(op.op.outputs.get("Cell", [])):
        hidden, _, _ = g.node("LSTM", given, dtypes, hidden_size=size, direction=direction, activations=names)
        hidden = steps.back(g, hidden.squeeze(1), size)
        return hidden, hidden
    return _scanned_lstm(g, op, given, size, steps)


def _scanned_lstm(g: Graph, op: Operation, given: list[Value | None], size: int, steps: Steps) -> tuple[Value, Value]:
    _, _, recurrent, added, _, h0, c0, peepholes = given
    assert recurrent is not None and added is not None
    steps = replace(steps, rows=steps.rows + added.part(1, 0, 4 * size))
    dtype = steps.rows.dtype
    gate, cell, candidate = (op.attr(f"{name}_activation") for name in ("gate", "cell", "candidate"))
    body = g.inner()
    before_h = body.input(body.name(f"{g.prefix}.h"), dtype, (-1, size))
    before_c = body.input(body.name(f"{g.prefix}.c"), dtype, (-1, size))
    row, inside = steps.entered(body, g.prefix, 4 * size)
    turned = recurrent.squeeze(0).swap().within(body)
    total = row + before_h @ turned
    i, o, f, c = parts(total, 4, 1)
    if peepholes is not None:
        pi, po, pf = (part.within(body) for part in parts(peepholes, 3, 1))
        i, f = i + before_c * pi, f + before_c * pf
    i, f, c = activated(body, i, gate), activated(body, f, gate), activated(body, c, candidate)
    state = f * before_c + i * c
    if peepholes is not None:
        o = o + state * po
    out = activated(body, o, gate) * activated(body, state, cell)
    starts = [steps.starts(None if given is None else given.squeeze(0), size) for given in (h0, c0)]
    before = [(out, before_h, size), (state, before_c, size)]
    hidden, cells = _scan(g, steps, body, inside, starts, before, op.attr("is_reverse"))
    return hidden, cells


def _scan(
    g: Graph,
    steps: Steps,
    body: Graph,
    inside: Value | None,
    starts: Sequence[Value],
    states: Sequence[tuple[Value, Value, int]],
    backward: bool,
) -> list[Value]:
    """A Scan whose states (after a step, before it, their width) are what it gives, too."""
    after = [_held(body, inside, now, before) for now, before, _ in states]
    body.outputs = [*after, *(body.same("Identity", value) for value in after)]
    scanned, count = steps.scanned(), len(states)
    found = g.node(
        "Scan", [*starts, *scanned], [value.dtype for value in body.outputs], body=body, num_scan_inputs=len(scanned),
        scan_input_directions=[int(backward)] * len(scanned), scan_output_directions=[int(backward)] * count,
    )  # fmt: skip
    return [steps.back(g, value, width) for value, (_, _, width) in zip(found[count:], states, strict=True)]


@renders("gru")
def gru(g: Graph, op: Operation) -> dict[str, Value]:
    return {"Hidden": _gru(g, op, op["Input"], op["Weight"], op.get("Bias"), op.lengths("Input"))}


def _gru(g: Graph, op: Operation, x: Value, weight: Value, bias: Value | None, lengths: Value | None) -> Value:
    """ONNX keeps the update gate's share of the old state, Paddle that of the new one unless in origin_mode: the gate's
    sums change their sign then.
    """
    size = weight.size(0)
    flat = weight.flat()
    gates = flat.part(0, 0, 2 * size * size).reshape([size, 2 * size])
    candidate = flat.part(0, 2 * size * size).reshape([size, size])
    need(op.attr("gate_activation") == "sigmoid" or op.attr("origin_mode"), "a gate activation other than sigmoid")
    if bias is not None:
        x = x + bias.reshape([1, -1])
    update, reset, rest = parts(x, 3, 1)
    update_weights, reset_weights = parts(gates, 2, 1)
    if not op.attr("origin_mode"):
        update, update_weights = -update, -update_weights
    steps = Steps.of(g, g.concat([update, reset, rest], 1), lengths)
    recurrent = g.concat([update_weights, reset_weights, candidate], 1).swap().unsqueeze(0)
    inputs = g.constant(np.eye(3 * size, dtype=x.dtype)[None])
    (hidden, _) = g.node(
        "GRU", [steps.rows, inputs, recurrent, None, steps.lengths, initial(op, "H0")], [x.dtype, None], hidden_size=size,
        direction="reverse" if op.attr("is_reverse") else "forward", linear_before_reset=0,
        activations=_named(op.attr("gate_activation"), op.attr("activation")),
    )  # fmt: skip
    return steps.back(g, hidden.squeeze(1), size)


@renders("fusion_gru")
def fusion_gru(g: Graph, op: Operation) -> dict[str, Value]:
    return {"Hidden": _gru(g, op, op["X"] @ op["WeightX"], op["WeightH"], op.get("Bias"), op.lengths("X"))}


@renders("fusion_lstm")
def fusion_lstm(g: Graph, op: Operation) -> dict[str, Value]:
    hidden, cell = _lstm(g, op, op["X"] @ op["WeightX"], op["WeightH"], op["Bias"], op.lengths("X"))
    return {"Hidden": hidden, "Cell": cell}


@renders("lstmp")
def lstmp(g: Graph, op: Operation) -> dict[str, Value]:
    """An LSTM whose output is projected before it returns: a Scan, since ONNX's LSTM has no projection."""
    lengths = op.lengths("Input")
    x, weight, projection, bias = op["Input"], op["Weight"], op["ProjWeight"], op["Bias"].reshape([1, -1])
    size, width = projection.size(0), projection.size(1)
    gate, cell, candidate, last = (op.attr(f"{name}_activation") for name in ("gate", "cell", "candidate", "proj"))
    steps = Steps.of(g, x + bias.part(1, 0, 4 * size), lengths)
    body = g.inner()
    before_p = body.input(body.name(f"{g.prefix}.p"), x.dtype, (-1, width))
    before_c = body.input(body.name(f"{g.prefix}.c"), x.dtype, (-1, size))
    row, inside = steps.entered(body, g.prefix, 4 * size)
    total = row + before_p @ weight.within(body)
    c, i, f, o = parts(total, 4, 1)
    if op.attr("use_peepholes"):
        pi, pf, po = (bias.part(1, (4 + k) * size, (5 + k) * size).within(body) for k in range(3))
        i, f = i + before_c * pi, f + before_c * pf
    state = activated(body, f, gate) * before_c + activated(body, i, gate) * activated(body, c, candidate)
    bound = op.attr("cell_clip")
    state = state.clip(-bound, bound) if bound > 0 else state
    if op.attr("use_peepholes"):
        o = o + state * po
    hidden = activated(body, o, gate) * activated(body, state, cell)
    projected = activated(body, hidden @ projection.within(body), last)
    bound = op.attr("proj_clip")
    projected = projected.clip(-bound, bound) if bound > 0 else projected
    first = op.get("H0")
    first = None if first is None else activated(g, first @ projection, last)
    starts = [steps.starts(first, width), steps.starts(op.get("C0"), size)]
    states = [(projected, before_p, width), (state, before_c, size)]
    out, cells = _scan(g, steps, body, inside, starts, states, op.attr("is_reverse"))
    return {"Projection": out, "Cell": cells}


# ---------------------------------------------------------------- single steps
@renders("gru_unit")
def gru_unit(g: Graph, op: Operation) -> dict[str, Value]:
    x, before, weight, bias = op["Input"], op["HiddenPrev"], op["Weight"], op.get("Bias")
    size = weight.size(0)
    gate, candidate = (NUMBERED[op.attr(name)] for name in ("gate_activation", "activation"))
    flat = weight.flat()
    gates = flat.part(0, 0, 2 * size * size).reshape([size, 2 * size])
    last = flat.part(0, 2 * size * size).reshape([size, size])
    x = x if bias is None else x + bias.reshape([1, -1])
    both = activated(g, x.part(1, 0, 2 * size) + before @ gates, gate)
    update, reset = parts(both.shaped((-1, 2 * size)), 2, 1)
    reset_hidden = reset * before
    new = activated(g, x.part(1, 2 * size) + reset_hidden @ last, candidate)
    kept = new + update * (before - new) if op.attr("origin_mode") else before + update * (new - before)
    return {"Hidden": kept, "ResetHiddenPrev": reset_hidden, "Gate": g.concat([both, new], 1)}


@renders("lstm_unit")
def lstm_unit(g: Graph, op: Operation) -> dict[str, Value]:
    x, before = op["X"], op["C_prev"]
    i, f, o, c = parts(x, 4, 1)
    state = (f + op.attr("forget_bias")).apply("Sigmoid") * before + i.apply("Sigmoid") * c.apply("Tanh")
    return {"C": state, "H": o.apply("Sigmoid") * state.apply("Tanh")}


# ---------------------------------------------------------------- stacks of layers
KINDS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "LSTM": (
        "LSTM",
        (0, 3, 1, 2),
        {},
    ),  # Paddle: input, forget, candidate, output; ONNX: input, output, forget, candidate
    "GRU": (
        "GRU",
        (1, 0, 2),
        {"linear_before_reset": 1},
    ),  # Paddle: reset, update, candidate; ONNX: update, reset, candidate
    "RNN_TANH": ("RNN", (0,), {"activations": ["Tanh"]}),
    "RNN_RELU": ("RNN", (0,), {"activations": ["Relu"]}),
}


@renders("rnn", "cudnn_lstm")
def rnn(g: Graph, op: Operation) -> dict[str, Any]:
    need(op.type == "rnn", "its weights are packed into one buffer, for cuDNN")
    x, states, weights = op["Input"], op.all("PreState"), op.all("WeightList")
    lengths = op.get("SequenceLength")
    mode, layers, size = op.attr("mode"), op.attr("num_layers"), op.attr("hidden_size")
    directions = 2 if op.attr("is_bidirec") else 1
    kind, order, extra = KINDS[mode]
    extra = {name: value * directions if name == "activations" else value for name, value in extra.items()}
    count = layers * directions
    limits = None if lengths is None else lengths.cast(np.int32)
    finals: list[list[Value]] = []
    for layer in range(layers):
        chosen = range(layer * directions, (layer + 1) * directions)
        inputs = [reordered(g, weights[2 * i], order, 0) for i in chosen]
        recurrent = [reordered(g, weights[2 * i + 1], order, 0) for i in chosen]
        added = [g.concat([reordered(g, weights[2 * (count + i) + k], order, 0) for k in range(2)], 0) for i in chosen]
        starts = [state.part(0, layer * directions, (layer + 1) * directions) for state in states]
        given: list[Value | None] = [x, *(g.stack(part, 0) for part in (inputs, recurrent, added)), limits, *starts]
        out, *last = g.node(
            kind, given, [x.dtype] * (1 + len(states)), hidden_size=size,
            direction="bidirectional" if directions == 2 else "forward", **extra,
        )  # fmt: skip
        finals.append(list(last))
        steps, many = op["Input"].dim(0), op["Input"].dim(1)
        x = out.shaped((-1, directions, -1, size)).transpose(0, 2, 1, 3).reshape([steps, many, directions * size])
    return {"Out": x, "State": [g.concat([last[k] for last in finals], 0) for k in range(len(states))]}
