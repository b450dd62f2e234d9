"""What works on sequences, and which LoD each operator passes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ops.registry import get_op
from fluidtool.runtime.engines.native.graph import Shape
from fluidtool.runtime.engines.native.reading.registry import Lod, Reading, need, reads

OWN_LOD = frozenset(
    {"lod_reset", "sequence_pool", "split", "box_coder", "im2sequence"}
)  # their readers say which LoD their results have
SAME_ROWS = frozenset(
    {
        "reshape", "reshape2", "flatten", "flatten2", "flatten_contiguous_range",
        "squeeze", "squeeze2", "unsqueeze", "unsqueeze2", "pad",
    }
)  # fmt: skip
OTHER_LOD = frozenset(
    {"slice", "stack", "concat", "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"}
)
POOLS = {"SUM": 0, "AVERAGE": 1, "SQRT": 2, "MAX": 3, "FIRST": 4, "LAST": 5}
ACTIVATIONS = {"identity": 0, "relu": 1, "sigmoid": 3, "tanh": 4}  # enum ft_activation of src/engine.h
BY_NUMBER = (0, 64, 4, 1)  # of gru_unit: identity, the sigmoid over the whole range (src/recurrent.c), tanh, relu


@contextmanager
def passing_lod_on(r: Reading, op: Operator) -> Iterator[None]:
    """Around the reading of an operator: its results get the LoD that its body would give them."""
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


def shared_from(op: Operator, slot: str, rows: Mapping[str, Shape], r: Reading) -> list[str]:
    """The inputs whose LoD an output of the operator takes."""
    if op.type in SAME_ROWS:
        same = slot == "Out" and rows["X"] == r.values[op.outputs[slot][0]].shape[:1]
        return ["X"] if same else []
    return [source for source, target in get_op(op.type).share_lod if target == slot]


def offsets_of(r: Reading, op: Operator, slot: str, rows: int) -> tuple[int, ...]:
    """The offsets of the last level of an input's LoD."""
    lod = r.lods.get(op.inputs[slot][0], ())
    need(lod and lod[-1][-1] == rows, f"{slot} of {op.type} holds no sequences")
    return lod[-1]


@reads("lod_reset")
def _lod_reset(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(not attrs.get("append"), "LoD that is added to")
    lod: Lod = (tuple(int(offset) for offset in attrs.get("target_lod") or ()),)
    if op.inputs.get("Y"):
        lod = r.lods.get(op.inputs["Y"][0], ())
    need(lod and lod[-1][:1] == (0,) and lod[-1][-1] == x.shape[0], "a LoD that is computed or does not fit")
    r.alias(x, op, "Out")
    r.lods[op.outputs["Out"][0]] = lod


@reads("sequence_pool")
def _sequence_pool(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    offsets = offsets_of(r, op, "X", x.shape[0])
    facts: dict[str, Any] = {
        "offsets": offsets,
        "how": POOLS[attrs["pooltype"]],
        "empty": float(attrs.get("pad_value", 0.0)),
    }
    r.add("sequence_pool", [x], op, "Out", (len(offsets) - 1, *x.shape[1:]), **facts)
    r.lods[op.outputs["Out"][0]] = r.lods[op.inputs["X"][0]][:-1]


@reads("lstm")
def _lstm(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, weights, bias = r.get(op, "Input"), r.constant(op, "Weight"), r.constant(op, "Bias")
    need(not op.inputs.get("H0") and not op.inputs.get("C0"), "an LSTM that is given its first state")
    names = [attrs[name] for name in ("gate_activation", "cell_activation", "candidate_activation")]
    need(set(names) <= ACTIVATIONS.keys() and weights.dtype == bias.dtype == np.float32, "an LSTM of other numbers")
    size, peepholes = weights.shape[0], bool(attrs["use_peepholes"])
    need(weights.shape == (size, 4 * size) and x.shape[1:] == (4 * size,), "gates that do not fit")
    need(bias.shape == (1, (7 if peepholes else 4) * size), "a bias that does not fit")
    need(len(r.lods.get(op.inputs["Input"][0], ())) == 1, "an LSTM over other than sequences of one level")
    facts = {"weights": weights, "bias": bias.reshape(-1), "peepholes": peepholes, "reverse": bool(attrs["is_reverse"])}
    facts |= {"offsets": offsets_of(r, op, "Input", x.shape[0]), "activations": [ACTIVATIONS[name] for name in names]}
    r.add("lstm", [x], op, "Hidden", (x.shape[0], size), **facts)


@reads("gru", results=("Hidden",))
def _gru(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    x, names = r.get(op, "Input"), [attrs[name] for name in ("gate_activation", "activation")]
    need(set(names) <= ACTIVATIONS.keys(), "a GRU of other numbers")
    need(len(r.lods.get(op.inputs["Input"][0], ())) == 1, "a GRU over other than sequences of one level")
    facts = {"offsets": offsets_of(r, op, "Input", x.shape[0]), "activations": [ACTIVATIONS[name] for name in names]}
    add_gru(r, op, "H0", facts | {"reverse": bool(attrs["is_reverse"]), "origin": bool(attrs["origin_mode"])})


@reads("gru_unit", results=("Hidden",))
def _gru_unit(r: Reading, op: Operator, attrs: dict[str, Any]) -> None:
    numbers = [int(attrs[name]) for name in ("gate_activation", "activation")]
    need(min(numbers) >= 0 and max(numbers) < len(BY_NUMBER), "a GRU of other numbers")
    rows = r.get(op, "Input").shape[0]
    facts = {"offsets": tuple(range(rows + 1)), "activations": [BY_NUMBER[number] for number in numbers]}
    add_gru(r, op, "HiddenPrev", facts | {"reverse": False, "origin": bool(attrs["origin_mode"])})


def add_gru(r: Reading, op: Operator, first: str, facts: dict[str, Any]) -> None:
    """The node; `first` is the slot of the first states, which may be empty."""
    x, initial, weights = r.get(op, "Input"), r.maybe(op, first), r.constant(op, "Weight")
    size, rows = weights.shape[0], x.shape[0]
    bias = r.constant(op, "Bias") if op.inputs.get("Bias") else np.zeros((1, 3 * size), np.float32)
    need(weights.dtype == bias.dtype == np.float32, "a GRU of other numbers")
    fits = weights.shape == (size, 3 * size) and bias.shape == (1, 3 * size) and x.shape == (rows, 3 * size)
    need(fits and (initial is None or initial.shape == (len(facts["offsets"]) - 1, size)), "gates that do not fit")
    inputs = [x] if initial is None else [x, initial]
    r.add("gru", inputs, op, "Hidden", (rows, size), weights=weights, bias=bias.reshape(-1), **facts)
