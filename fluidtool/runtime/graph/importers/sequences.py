"""Operators on sequences, and which LoD each operator passes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ops.registry import get_op
from fluidtool.runtime.graph.importers.registry import GraphBuilder, Lod, imports, need
from fluidtool.runtime.graph.ir import Shape, Value

OWN_LOD = frozenset(
    {
        "lod_reset",
        "sequence_pool",
        "split",
        "box_coder",
        "concat",
        "im2sequence",
        "sequence_expand",
        "sequence_expand_as",
        "sequence_concat",
    }
)  # their importers set the LoD of their results
READING_LOD = frozenset(
    {
        "box_coder", "crf_decoding", "gru", "im2sequence", "linear_chain_crf", "lod_reset", "lstm", "lstmp", "sequence_concat",
        "sequence_conv", "sequence_expand", "sequence_expand_as", "sequence_pool", "sequence_reverse", "sequence_softmax",
        "warpctc",
    }
)  # fmt: skip
"""Operators whose importers read offsets. For all others it only matters which inputs have a LoD, and how many levels it has."""
SAME_ROWS = frozenset(
    {
        "expand", "expand_as", "gather_nd", "reshape", "reshape2", "flatten", "flatten2", "flatten_contiguous_range",
        "squeeze", "squeeze2", "unsqueeze", "unsqueeze2", "pad",
    }
)  # fmt: skip
OTHER_LOD = frozenset(
    {
        "slice", "stack", "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum",
    }
)  # fmt: skip
POOLS = {"SUM": 0, "AVERAGE": 1, "SQRT": 2, "MAX": 3, "FIRST": 4, "LAST": 5}
ACTIVATIONS = {"identity": 0, "relu": 1, "sigmoid": 3, "tanh": 4}  # enum ft_activation of src/engine.h
BY_NUMBER = (0, 64, 4, 1)  # of gru_unit: identity, the sigmoid over the full range (src/recurrent.c), tanh, relu


@contextmanager
def passing_lod_on(r: GraphBuilder, op: Operator) -> Iterator[None]:
    """Wraps the import of an operator: its results get the LoD that its kernel would set."""
    lods = {slot: r.lods.get(names[0], ()) for slot, names in op.inputs.items() if names}
    rows = {slot: r.values[names[0]].shape[:1] for slot, names in op.inputs.items() if names and names[0] in r.values}
    yield
    if op.type in OWN_LOD:
        return
    need(op.type not in OTHER_LOD or not any(lods.values()), f"{op.type} of sequences")
    for slot, names in op.outputs.items():
        for name in names:
            r.lods.pop(name, None)
            for source in shared_from(op, slot, rows, r):
                r.lods[name] = lods.get(source) or r.lods.get(name, ())


def shared_from(op: Operator, slot: str, rows: Mapping[str, Shape], r: GraphBuilder) -> list[str]:
    """The inputs that outputs of the operator get their LoD from."""
    if op.type in SAME_ROWS:
        same = slot == "Out" and rows["X"] == r.values[op.outputs[slot][0]].shape[:1]
        return ["X"] if same else []
    return [source for source, target in get_op(op.type).share_lod if target == slot]


def offsets_of(r: GraphBuilder, op: Operator, slot: str, rows: int) -> tuple[int, ...]:
    """The offsets of the last level of an input's LoD."""
    lod = r.lods.get(op.inputs[slot][0], ())
    need(lod and lod[-1][-1] == rows, f"{slot} of {op.type} holds no sequences")
    return lod[-1]


@imports("lod_reset")
def _lod_reset(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(not attrs.get("append"), "an appended LoD")
    lod: Lod = (tuple(int(offset) for offset in attrs.get("target_lod") or ()),)
    if op.inputs.get("Y"):
        lod = r.lods.get(op.inputs["Y"][0], ())
    need(lod and lod[-1][:1] == (0,) and lod[-1][-1] == x.shape[0], "a LoD that is computed or does not match the rows")
    r.alias(x, op, "Out")
    r.lods[op.outputs["Out"][0]] = lod


@imports("sequence_pool")
def _sequence_pool(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    offsets = offsets_of(r, op, "X", x.shape[0])
    node_attrs: dict[str, Any] = {
        "offsets": offsets,
        "how": POOLS[attrs["pooltype"]],
        "empty": float(attrs.get("pad_value", 0.0)),
    }
    r.add("sequence_pool", [x], op, "Out", (len(offsets) - 1, *x.shape[1:]), **node_attrs)
    r.lods[op.outputs["Out"][0]] = r.lods[op.inputs["X"][0]][:-1]


def pick(r: GraphBuilder, op: Operator, x: Value, rows: Any, slot: str = "Out", times: int = 1) -> Value:
    """The node that takes rows of x by index, zeros for -1; `times` of them side by side are a row of the result."""
    shape = (len(rows), *x.shape[1:]) if times == 1 else (len(rows) // times, times * prod(x.shape[1:]))
    return r.add("pick_rows", [x], op, slot, shape, rows=np.asarray(rows, np.int64))


def owners(offsets: tuple[int, ...]) -> Any:
    """For every row, the sequence that it belongs to."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


@imports("sequence_conv")
def _sequence_conv(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, weights, times = r.get(op, "X"), r.constant(op, "Filter"), int(attrs["contextLength"])
    need(not attrs["paddingTrainable"] and int(attrs["contextStride"]) == 1, "learned rows around sequences")
    need(weights.dtype == np.float32 and times > 0 and len(x.shape) == 2, "a filter that does not match the rows")
    need(weights.shape[:-1] == (times * x.shape[1],), "a filter that does not match the rows")
    offsets = np.asarray(offsets_of(r, op, "X", x.shape[0]))
    need(len(r.lods[op.inputs["X"][0]]) == 1, "a window over anything but sequences of one level")
    owner = owners(r.lods[op.inputs["X"][0]][0])
    rows = np.arange(x.shape[0])[:, None] + int(attrs["contextStart"]) + np.arange(times)
    inside = (offsets[owner, None] <= rows) & (rows < offsets[owner + 1, None])
    window = pick(r, op, x, np.where(inside, rows, -1).reshape(-1), times=times)
    shape = (x.shape[0], weights.shape[1])
    r.add("product", [window], op, "Out", shape, matrix=window.shape, weights=weights, shift=None)


@imports("sequence_reverse")
def _sequence_reverse(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    offsets = np.asarray(offsets_of(r, op, "X", x.shape[0]))
    mirror = np.repeat(offsets[:-1] + offsets[1:] - 1, np.diff(offsets))
    pick(r, op, x, mirror - np.arange(len(mirror)), "Y")


@imports("sequence_expand")
def _sequence_expand(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, level = r.get(op, "X"), int(attrs["ref_level"])
    own, lod = r.lods.get(op.inputs["X"][0], ()), r.lods.get(op.inputs["Y"][0], ())
    need(len(own) <= 1 and len(x.shape) >= 2 and lod and -1 <= level < len(lod), "sequences that do not match")
    bounds = np.asarray(own[0] if own else range(x.shape[0] + 1))
    repeats = np.diff(lod[level])
    need(len(bounds) - 1 == len(repeats) and bounds[-1] == x.shape[0], "sequences that do not match")
    taken = np.repeat(np.arange(len(repeats)), repeats)
    rows = [np.arange(bounds[number], bounds[number + 1]) for number in taken]
    need(rows, "no sequence")
    pick(r, op, x, np.concatenate(rows))
    starts = (0, *np.cumsum(np.diff(bounds)[taken]).tolist())
    r.lods[op.outputs["Out"][0]] = (starts,) if own else ()


@imports("sequence_expand_as")
def _sequence_expand_as(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, lod = r.get(op, "X"), r.lods.get(op.inputs["Y"][0], ())
    need(len(lod) == 1 and len(x.shape) >= 2 and len(lod[0]) - 1 == x.shape[0], "sequences that do not match")
    pick(r, op, x, owners(lod[0]))
    r.lods[op.outputs["Out"][0]] = lod


@imports("sequence_concat")
def _sequence_concat(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    names = op.inputs["X"]
    parts, lods = [r.values.get(name) for name in names], [r.lods.get(name, ()) for name in names]
    need(all(part is not None and not part.integer for part in parts), "missing parts")
    shapes = [part.shape for part in parts if part is not None]
    need(all(len(lod) == 1 for lod in lods) and len({len(lod[0]) for lod in lods}) == 1, "sequences that do not match")
    fits = all(lod[0][-1] == shape[0] and shape[1:] == shapes[0][1:] for lod, shape in zip(lods, shapes, strict=True))
    need(fits, "sequences that do not match")
    firsts = np.cumsum([0, *(shape[0] for shape in shapes)])
    pieces = [
        np.arange(lod[0][number], lod[0][number + 1]) + first
        for number in range(len(lods[0][0]) - 1)
        for lod, first in zip(lods, firsts, strict=False)
    ]
    joined = r.add("concat", [part for part in parts if part is not None], op, "Out",
                   (int(firsts[-1]), *shapes[0][1:]), axis=0)  # fmt: skip
    pick(r, op, joined, np.concatenate(pieces))
    r.lods[op.outputs["Out"][0]] = (tuple(np.sum([lod[0] for lod in lods], axis=0).tolist()),)


@imports("sequence_softmax")
def _sequence_softmax(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(prod(x.shape) == x.shape[0], "more than one element in a row")
    r.add("sequence_softmax", [x], op, "Out", x.shape, offsets=offsets_of(r, op, "X", x.shape[0]))


@imports("cos_sim", results=("Out",))
def _cos_sim(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, y = r.get(op, "X"), r.get(op, "Y")
    need(x.shape[1:] == y.shape[1:] and y.shape[0] in (1, x.shape[0]), "rows that do not match")
    r.add("cosine", [x, y], op, "Out", (x.shape[0], 1))


@imports("lstm")
def _lstm(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    add_lstm(r, op, attrs, r.constant(op, "Weight").shape[0], "Hidden")


@imports("lstmp")
def _lstmp(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    projection = r.constant(op, "ProjWeight")
    need(projection.dtype == np.float32 and len(projection.shape) == 2, "a projection of an unexpected shape")
    identity, bounds = attrs["proj_activation"] == "identity", (float(attrs["cell_clip"]), float(attrs["proj_clip"]))
    # The projection goes through the activation of the cells (Paddle 1.8.5 lstmp_op.h).
    further = ["identity" if identity else attrs["cell_activation"]]
    add_lstm(r, op, attrs, projection.shape[0], "Projection", further, projection=projection, bounds=bounds)


def add_lstm(
    r: GraphBuilder,
    op: Operator,
    attrs: dict[str, Any],
    size: int,
    slot: str,
    further: Sequence[str] = (),
    **more: Any,
) -> None:
    """The node; the recurrent state is the hidden state, or its `projection`, which goes through a `further` activation."""
    x, weights, bias = r.get(op, "Input"), r.constant(op, "Weight"), r.constant(op, "Bias")
    names = [attrs[name] for name in ("gate_activation", "cell_activation", "candidate_activation")]
    need(set(names) <= ACTIVATIONS.keys() and weights.dtype == bias.dtype == np.float32, "an LSTM of another kind")
    peepholes, fed_back = bool(attrs["use_peepholes"]), more["projection"].shape[1] if more else size
    need(weights.shape == (fed_back, 4 * size) and x.shape[1:] == (4 * size,), "gates of an unexpected shape")
    need(bias.shape == (1, (7 if peepholes else 4) * size), "a bias of an unexpected shape")
    need(len(r.lods.get(op.inputs["Input"][0], ())) == 1, "an LSTM over anything but sequences of one level")
    node_attrs = {
        "weights": weights,
        "bias": bias.reshape(-1),
        "peepholes": peepholes,
        "reverse": bool(attrs["is_reverse"]),
    }
    node_attrs |= {
        "offsets": offsets_of(r, op, "Input", x.shape[0]),
        "activations": [ACTIVATIONS[name] for name in (*names, *further)],
    }
    need(r.for_gpus or not (r.has(op, "H0") or r.has(op, "C0")), "an LSTM with an initial state")
    need(r.has(op, "H0") == r.has(op, "C0"), "an LSTM with one of its two initial states")
    initial = [r.get(op, state) for state in ("H0", "C0") if r.has(op, state)]
    sequences = len(node_attrs["offsets"]) - 1
    shapes = [(sequences, width) for width in (fed_back, size)][: len(initial)]
    need([each.shape for each in initial] == shapes, "initial states that are not one for each sequence")
    r.add("lstm", [x, *initial], op, slot, (x.shape[0], fed_back), **node_attrs, **more)


@imports("lstm_unit", results=("C", "H"))
def _lstm_unit(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    """For GPUs; training steps read it alike."""
    before, (i, f, o, g) = lstm_unit_gates(r, op, attrs)
    shape = before.shape
    known: dict[str, Any] = {"counts_columns": False}
    cell = r.add("formula", [f, before, i, g], op, "C", shape, text="a * b + c * d", shapes=(shape,) * 4, **known)
    r.add("formula", [o, cell], op, "H", shape, text="a * tanhf(b)", shapes=(shape,) * 2, **known)


def lstm_unit_gates(r: GraphBuilder, op: Operator, attrs: Mapping[str, Any]) -> tuple[Value, list[Value]]:
    """The cell state before, and the activated gates: input, forget, output, candidate."""
    x, before = r.get(op, "X"), r.get(op, "C_prev")
    need(len(before.shape) == 2 and x.shape == (before.shape[0], 4 * before.shape[1]), "gates of an unexpected shape")
    bias, size = float(np.float32(attrs["forget_bias"])), before.shape[1]
    gates = []
    for number, text in enumerate(("ft_sigmoid(a)", f"ft_sigmoid(a + {bias!r}f)", "ft_sigmoid(a)", "tanhf(a)")):
        part = r.node("slice", [x], before.shape, starts=[0, number * size], sizes=before.shape)
        gates.append(r.formula(text, part))
    return before, gates


@imports("gru", results=("Hidden",))
def _gru(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, names = r.get(op, "Input"), [attrs[name] for name in ("gate_activation", "activation")]
    need(set(names) <= ACTIVATIONS.keys(), "a GRU with other activations")
    need(len(r.lods.get(op.inputs["Input"][0], ())) == 1, "a GRU over anything but sequences of one level")
    node_attrs = {
        "offsets": offsets_of(r, op, "Input", x.shape[0]),
        "activations": [ACTIVATIONS[name] for name in names],
    }
    add_gru(r, op, "H0", node_attrs | {"reverse": bool(attrs["is_reverse"]), "origin": bool(attrs["origin_mode"])})


@imports("gru_unit", results=("Hidden",))
def _gru_unit(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    numbers = [int(attrs[name]) for name in ("gate_activation", "activation")]
    need(min(numbers) >= 0 and max(numbers) < len(BY_NUMBER), "a GRU with other activations")
    rows = r.get(op, "Input").shape[0]
    node_attrs = {"offsets": tuple(range(rows + 1)), "activations": [BY_NUMBER[number] for number in numbers]}
    add_gru(r, op, "HiddenPrev", node_attrs | {"reverse": False, "origin": bool(attrs["origin_mode"])})


def add_gru(r: GraphBuilder, op: Operator, first: str, node_attrs: dict[str, Any]) -> None:
    """The node; `first` is the slot of the initial states, which may be empty."""
    x, initial, weights = r.get(op, "Input"), r.maybe(op, first), r.constant(op, "Weight")
    size, rows = weights.shape[0], x.shape[0]
    bias = r.constant(op, "Bias") if op.inputs.get("Bias") else np.zeros((1, 3 * size), np.float32)
    need(weights.dtype == bias.dtype == np.float32, "a GRU of a type other than float32")
    fits = weights.shape == (size, 3 * size) and bias.shape == (1, 3 * size) and x.shape == (rows, 3 * size)
    need(
        fits and (initial is None or initial.shape == (len(node_attrs["offsets"]) - 1, size)),
        "gates of an unexpected shape",
    )
    inputs = [x] if initial is None else [x, initial]
    r.add("gru", inputs, op, "Hidden", (rows, size), weights=weights, bias=bias.reshape(-1), **node_attrs)
