"""cudnn_lstm in regions on a GPU: each direction of a layer is a product and an LSTM over steps of equally many sequences."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.graph.importers.registry import SIGMOID, TANH, GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Value

ORDER = (2, 0, 1, 3)  # gates as our kernels have them: candidate, input, forget, output


@dataclass(frozen=True, slots=True)
class Direction:
    """The weights of a direction of a layer: [inputs, 4 * size], [size, 4 * size] and the sum of the two biases."""

    inputs: Any
    recurrent: Any
    bias: Any


def directions_of(flat: Any, features: int, size: int, layers: int, count: int) -> Iterator[Direction]:
    """Those of each direction of each layer, from matrices one after the other, and then the biases."""
    widths = [size * count if layer else features for layer in range(layers) for _ in range(count)]
    need(flat.size == sum(4 * size * (width + size + 2) for width in widths), "weights that do not fit")
    biases = flat[flat.size - 8 * size * len(widths) :].reshape(-1, 2, 4, size).sum(axis=1)
    start = 0
    for width, bias in zip(widths, biases, strict=True):
        middle = start + 4 * size * width
        end = middle + 4 * size * size
        inputs, recurrent = (
            _by_column(flat[part].reshape(4, size, -1)) for part in (slice(start, middle), slice(middle, end))
        )
        yield Direction(inputs, recurrent, bias[list(ORDER)].reshape(-1))
        start = end


def _by_column(matrix: Any) -> Any:
    """Rows of four gates as columns, in our order."""
    return np.ascontiguousarray(matrix[list(ORDER)].reshape(-1, matrix.shape[2]).T)


@imports("cudnn_lstm", results=("Out", "last_h", "last_c"))
def _cudnn_lstm(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    need(not any(op.inputs.get(slot) for slot in ("WeightList", "SequenceLength")), "an LSTM of Paddle 2")
    x, hidden, cells = (r.get(op, slot) for slot in ("Input", "InitH", "InitC"))
    layers, count = int(attrs["num_layers"]), 1 + bool(attrs["is_bidirec"])
    need(attrs["is_test"] or not attrs["dropout_prob"] or layers < 2, "dropout in training mode")
    need(len(x.shape) == 3, "an input that is not [steps, sequences, features]")
    (steps, sequences, width), size = x.shape, hidden.shape[-1]
    need(hidden.shape == cells.shape == (layers * count, sequences, size), "initial states that do not fit")
    weights = list(directions_of(r.constant(op, "W").reshape(-1), width, size, layers, count))
    rows, last = r.node("view", [x], (steps * sequences, width)), dict[str, list[Value]](last_h=[], last_c=[])
    for start in range(0, len(weights), count):
        outs = []
        for number, each in enumerate(weights[start : start + count], start):
            initial = [_state(r, states, number) for states in (hidden, cells)]
            found = _layer(r, rows, initial, each, (steps, sequences), number > start)
            end = 0 if number > start else (steps - 1) * sequences
            outs.append(found)
            last["last_h"].append(r.node("slice", [found], (sequences, size), starts=[end, 0], sizes=(sequences, size)))
            last["last_c"].append(r.node("beside", [found], (sequences, size), name="cells"))
        rows = outs[0] if count == 1 else r.node("concat", outs, (steps * sequences, count * size), axis=1)
    r.add("view", [rows], op, "Out", (steps, sequences, count * size))
    for slot, parts in last.items():
        if op.outputs.get(slot):
            joined = r.node("concat", parts, (len(parts) * sequences, size), axis=0)
            r.add("view", [joined], op, slot, hidden.shape)


def _state(r: GraphBuilder, states: Value, number: int) -> Value:
    """One matrix of [layers * directions, sequences, size]."""
    shape = (1, *states.shape[1:])
    return r.node("view", [r.node("slice", [states], shape, starts=[number, 0, 0], sizes=shape)], shape[1:])


def _layer(
    r: GraphBuilder, rows: Value, initial: list[Value], each: Direction, by_time: tuple[int, int], reverse: bool
) -> Value:
    """The hidden states of a direction of a layer, [steps * sequences, size]."""
    size = each.recurrent.shape[0]
    sums = r.node(
        "product", [rows], (prod(by_time), 4 * size), matrix=rows.shape, weights=each.inputs, scale=None, shift=None
    )
    known = {"weights": each.recurrent, "bias": each.bias, "peepholes": False, "reverse": reverse, "by_time": by_time}
    return r.node("lstm", [sums, *initial], (prod(by_time), size), activations=[SIGMOID, TANH, TANH], **known)
