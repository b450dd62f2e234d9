"""Recurrent layers take in the projection of their input: `fuse-fc-gru`, `fuse-fc-lstm`, `fuse-embedding-lstm`.

mul (-> elementwise_add) -> gru | lstm                  =>  fusion_gru | fusion_lstm
lookup_table -> mul (-> elementwise_add) -> lstm        =>  fused_embedding_fc_lstm
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from fluidtool.ir import Program
from fluidtool.passes.inference.match import Use
from fluidtool.passes.inference.matching import check_group, float_type, made_by, vector
from fluidtool.passes.inference.queries import rank
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NewParameter, NewVariable, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope
from fluidtool.shapes import shape_text

TABLE_LIMIT = 1 << 24  # bytes that a table of projected embeddings may take
NO_PADDING = -1
LSTM_SCRATCH = ("XX", "BatchedInput", "BatchedHidden", "BatchedCell", "ReorderedH0", "ReorderedC0")
SCRATCH = {  # outputs that nothing reads, but that Paddle wants to be named
    "fusion_gru": ("ReorderedH0", "XX", "BatchedInput", "BatchedOut"),
    "fusion_lstm": (*LSTM_SCRATCH, "CheckedCell"),
    "fused_embedding_fc_lstm": LSTM_SCRATCH,
}
LSTM_ATTRS = ("use_peepholes", "is_reverse", "gate_activation", "cell_activation", "candidate_activation")
GRU_ATTRS = ("activation", "gate_activation", "is_reverse", "origin_mode")
ACTIVATIONS = frozenset({"sigmoid", "tanh", "relu", "identity"})


def fuse_fc_gru(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace a projection and `gru` by `fusion_gru`, in place (Paddle 1.8.5 fc_gru_fuse_pass.cc)."""
    return rewrite("fuse-fc-gru", gru_rule, program, scope, keep)


def fuse_fc_lstm(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace a projection and `lstm` by `fusion_lstm`, in place (Paddle 1.8.5 fc_lstm_fuse_pass.cc)."""
    return rewrite("fuse-fc-lstm", lstm_rule, program, scope, keep)


def fuse_embedding_lstm(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace `lookup_table`, a projection and `lstm` by `fused_embedding_fc_lstm`, in place.

    The table is projected once, up to TABLE_LIMIT bytes (Paddle 1.8.5 embedding_fc_lstm_fuse_pass.cc).
    """
    return rewrite("fuse-embedding-lstm", embedding_rule, program, scope, keep)


@dataclass(frozen=True, slots=True)
class _Projection:
    """x W + b: the operators, the one that reads x, and the names; `bias` is empty without one."""

    matches: tuple[MatchContext, ...]
    reader: MatchContext
    x: str
    weight: str
    bias: str
    values: Any


def gru_rule(match: MatchContext) -> Edit | str | None:
    """A `gru` whose input is a projection."""
    if match.op.type != "gru":
        return None
    if match.op.get_attr("origin_mode", False):
        return "origin_mode is set, which fusion_gru of Paddle 1.8.5 ignores"
    found = _projection(match)
    bias = _summed_bias(match, found)
    inputs = {"X": [found.x], "WeightX": [found.weight], "WeightH": [match.input("Weight")]}
    return _edit(match, found, "fusion_gru", inputs, bias, (found.reader, found.x), ())


def lstm_rule(match: MatchContext) -> Edit | str | None:
    """An `lstm` whose input is a projection."""
    if match.op.type != "lstm":
        return None
    found = _projection(match)
    bias = _summed_bias(match, found)
    inputs = {"X": [found.x], "WeightX": [found.weight], "WeightH": [match.input("Weight")]}
    return _edit(match, found, "fusion_lstm", inputs, bias, (found.reader, found.x), ())


def embedding_rule(match: MatchContext) -> Edit | str | None:
    """An `lstm` whose input is a projection of looked-up rows."""
    if match.op.type != "lstm":
        return None
    found = _projection(match)
    look_up = made_by(found.reader, found.x, "lookup_table")
    if look_up is None:
        return f"{found.x} is not looked up in a table"
    op = look_up.op
    if int(op.get_attr("padding_idx", NO_PADDING)) != NO_PADDING:
        return "the lookup has a padding_idx"
    if op.get_attr("is_distributed", False) or op.get_attr("remote_prefetch", False):
        return "the table is distributed"
    table = look_up.numbers(look_up.input("W"))
    rows = match.numbers(found.weight).shape[0]
    if table.ndim != 2 or table.shape[1] != rows:
        return f"{look_up.input('W')} of shape {shape_text(table.shape)} is not a table with rows of {rows} numbers"
    width = _width(match)
    size = table.shape[0] * width * table.dtype.itemsize
    if size > TABLE_LIMIT:
        return f"the projected table would take {size} bytes, more than {TABLE_LIMIT}"
    wide = table.astype(np.float64) @ match.numbers(found.weight).astype(np.float64) + found.values
    wide += match.numbers(match.input("Bias")).astype(np.float64)[0, :width]
    name = f"{look_up.input('W')}.{found.weight}.projected"
    projected = match.new_parameter(name, wide.astype(table.dtype), look_up.input("W"))
    inputs = {"Ids": op.input("Ids"), "Embeddings": [projected.name], "WeightH": [match.input("Weight")]}
    reads = (look_up, look_up.input("Ids"))
    bias = (match.input("Bias"), ())
    return _edit(match, found, "fused_embedding_fc_lstm", inputs, bias, reads, (look_up,), (projected,))


def _width(match: MatchContext) -> int:
    """The columns of the gates: four times the hidden size."""
    return int(match.numbers(match.input("Weight")).shape[1])


def _projection(match: MatchContext) -> _Projection:
    """The projection that gives the input of a recurrent layer; raises NoMatch for anything else."""
    _check_layer(match)
    name = match.input("Input")
    add = made_by(match, name, "elementwise_add")
    bias, values, below = "", np.zeros(()), match
    matches: tuple[MatchContext, ...] = ()
    if add is not None:
        bias, below, name = add.input("Y"), add, add.input("X")
        values = vector(add, bias, int(add.op.get_attr("axis", -1)), 2).astype(np.float64)
        matches = (add,)
    product = made_by(below, name, "mul")
    if product is None:
        raise NoMatch(f"{match.input('Input')} is not the product of one input with a weight")
    x, weight = product.input("X"), product.input("Y")
    plain = all(int(product.op.get_attr(axis, 1)) == 1 for axis in ("x_num_col_dims", "y_num_col_dims"))
    if not plain or rank(match.block, x) != 2 or product.numbers(weight).ndim != 2:
        raise NoMatch(f"{x} and {weight} are not matrices")
    if bias and values.size != product.numbers(weight).shape[1]:
        raise NoMatch(f"{bias} does not have one number per column of {weight}")
    _check_sizes(match, product.numbers(weight).shape[1])
    return _Projection((*matches, product), product, x, weight, bias, values)


def _check_sizes(match: MatchContext, columns: int) -> None:
    """Raise NoMatch where a parameter of the layer is not as wide as its projected input, peepholes of the bias apart."""
    for slot in ("Weight", "Bias"):
        name = match.input(slot)
        if not name or not match.is_constant(name):
            continue
        shape = match.numbers(name).shape
        fits = len(shape) == 2 and (shape[1] == columns if slot == "Weight" else shape[0] == 1 and shape[1] >= columns)
        if not fits:
            raise NoMatch(
                f"{name} of shape {shape_text(shape)} is not a {slot} of {match.op.type} with {columns} columns"
            )


def _check_layer(match: MatchContext) -> None:
    if not float_type(match, match.input("Input")):
        raise NoMatch(f"{match.input('Input')} is not declared float32 or float64")
    for name in ("activation", "gate_activation", "cell_activation", "candidate_activation"):
        value = match.op.get_attr(name, "tanh")
        if value not in ACTIVATIONS:
            raise NoMatch(f"{name} is {value!r}; the fused layer supports {', '.join(sorted(ACTIVATIONS))}")


def _summed_bias(match: MatchContext, found: _Projection) -> tuple[str, tuple[NewParameter, ...]]:
    """The bias of the fused layer, by name: the layer's own, with that of the projection added to its first columns."""
    own = match.input("Bias")
    if not found.bias:
        return own, ()
    columns = found.values.size
    if own:
        total = match.numbers(own).astype(np.float64).copy()
        total[0, :columns] += found.values
    else:
        total = found.values.reshape(1, columns)
    name = f"{own or found.bias}_fuse_fc"
    weight = match.numbers(match.input("Weight"))
    new = match.new_parameter(name, total.astype(weight.dtype), own or found.bias)
    return new.name, (new,)


def _edit(
    match: MatchContext,
    found: _Projection,
    kind: str,
    inputs: dict[str, list[str]],
    bias: tuple[str, tuple[NewParameter, ...]],
    reads: Use,
    before: tuple[MatchContext, ...],
    parameters: tuple[NewParameter, ...] = (),
) -> Edit:
    """The edit that puts the fused layer in place of the projection, what comes `before` it, and the layer."""
    op = match.op
    results = {slot: op.output(slot) for slot in ("Hidden", "Cell") if op.output(slot)}
    initial = {slot: op.input(slot) for slot in ("H0", "C0") if op.input(slot)}
    named = {"Bias": [bias[0]]} if bias[0] else {}
    removed = check_group(
        (*before, *found.matches, match), [name for names in results.values() for name in names], [reads]
    )
    hidden = op.output("Hidden")[0]
    scratch = {slot: match.fresh_name(f"{hidden}.{slot.lower()}") for slot in SCRATCH[kind]}
    attrs = {name: op.attr(name) for name in (GRU_ATTRS if kind == "fusion_gru" else LSTM_ATTRS) if op.has_attr(name)}
    fused = match.new_operator(
        kind,
        {**inputs, **named, **initial},
        {**results, **{slot: [name] for slot, name in scratch.items()}},
        {**attrs, "use_seq": True},
    )
    variables = tuple(NewVariable(name, hidden, (-1, -1)) for name in scratch.values())
    return Edit(
        removed, match.position, (fused,), f"{kind} of {reads[1]}", (*bias[1], *parameters), variables=variables
    )
