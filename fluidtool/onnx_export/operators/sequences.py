"""Operators on sequences: of one at a time, whose rows are axis 0, or of several, whose lengths are known."""

from __future__ import annotations

import numpy as np

from fluidtool.onnx_export import ragged
from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import need, renders
from fluidtool.tensor import numpy_dtype


@renders("sequence_pool")
def sequence_pool(g: Graph, op: Operation) -> dict[str, Value]:
    x, kind = op["X"], op.attr("pooltype")
    lengths = op.lengths("X")
    if lengths is not None:
        return _pooled(g, op, x, lengths, kind)
    if kind == "LAST":
        return {"Out": x.part(0, -1)}
    if kind == "FIRST":
        return {"Out": x.part(0, 0, 1)}
    if kind == "SQRT":
        return {"Out": x.sum(0, keepdims=True) / x.dim_value(0).cast(x.dtype).apply("Sqrt")}
    need(kind in POOLS, f"the pool type {kind}")
    found = {"Out": x.reduce(POOLS[kind], [0], keepdims=True)}
    if kind == "MAX" and op.wants("MaxIndex"):
        places = g.op("ArgMax", x, axis=0, keepdims=1, dtype=np.int64)
        found["MaxIndex"] = places.cast(np.int32)
    return found


POOLS = {"AVERAGE": "Mean", "SUM": "Sum", "MAX": "Max"}


def _pooled(g: Graph, op: Operation, x: Value, lengths: Value, kind: str) -> dict[str, Value]:
    """Of several sequences; one without rows gives `pad_value`."""
    op.tell("Out", op.levels("X")[:-1])
    found: dict[str, Value] = {}
    if kind in ("FIRST", "LAST"):
        begins = ragged.starts(g, lengths)
        rows = begins if kind == "FIRST" else begins + lengths - 1
        out = x.pad([0] * x.rank, [1, *[0] * (x.rank - 1)]).gather(g.maximum(rows, 0), 0)
    elif kind == "MAX":
        rows, _ = ragged.padded(g, x, lengths, ragged.lowest(x.dtype))
        out = rows.reduce("Max", [1])
        if op.wants("MaxIndex"):
            places = g.op("ArgMax", rows, axis=1, keepdims=0, dtype=np.int64, shape=out.shape)
            found["MaxIndex"] = (places + ragged.beside(ragged.starts(g, lengths), x)).cast(np.int32)
    else:
        need(kind in ("SUM", "AVERAGE", "SQRT"), f"the pool type {kind}")
        out = ragged.padded(g, x, lengths)[0].sum(1)
        divisor = ragged.beside(g.maximum(lengths, 1), x).cast(x.dtype)
        out = out if kind == "SUM" else out / (divisor if kind == "AVERAGE" else divisor.apply("Sqrt"))
    empty = ragged.beside(lengths, x).equals(0)
    return {"Out": ragged.open_rows(g.where(empty, op.attr("pad_value"), out)), **found}


@renders("sequence_softmax")
def sequence_softmax(g: Graph, op: Operation) -> Value:
    x, lengths = op["X"], op.lengths("X")
    if lengths is None:
        return x.apply("Softmax", axis=0)
    rows, inside = ragged.padded(g, x, lengths, ragged.lowest(x.dtype))
    return ragged.packed(g, rows.apply("Softmax", axis=1), inside)


@renders("sequence_conv")
def sequence_conv(g: Graph, op: Operation) -> Value:
    x, weights, lengths = op["X"], op["Filter"], op.lengths("X")
    need(not op.attr("paddingTrainable"), "rows of padding that are learned")
    start, length = op.attr("contextStart"), op.attr("contextLength")
    rows, inside = (x, None) if lengths is None else ragged.padded(g, x, lengths)
    axis = rows.rank - 2
    before, after = max(-start, 0), max(start + length - 1, 0)
    padded = rows.pad([*[0] * axis, before, 0], [*[0] * axis, after, 0])
    steps = rows.dim_value(axis)
    columns = []
    for tap in range(length):
        low = before + start + tap
        columns.append(padded.part(axis, low, steps + low))
    windows = g.concat(columns, axis + 1)
    windows = windows if inside is None else ragged.packed(g, windows, inside)
    return windows.shaped((-1, x.size(1) * length)) @ weights


@renders("sequence_reverse")
def sequence_reverse(g: Graph, op: Operation) -> Value:
    x, lengths = op["X"], op.lengths("X")
    if lengths is None:
        return x.slice([-1], [-(2**63)], [0], [-1]).shaped(x.shape)
    of = ragged.owners(g, lengths)
    mirrored = (ragged.starts(g, lengths) + lengths - 1).gather(of, 0) - ragged.places(g, lengths)
    return ragged.open_rows(x.gather(mirrored, 0))


@renders("sequence_concat")
def sequence_concat(g: Graph, op: Operation) -> Value:
    """Of several: the rows of all inputs in the order of their sequences, and within one in that of the inputs."""
    parts = op.all("X")
    whole = g.concat(parts, 0)
    if not any(part.levels for part in parts):
        op.single()
        return whole
    need(all(part.levels for part in parts), "one sequence beside several")
    lengths = [part.levels[-1] for part in parts]
    of = g.concat([ragged.owners(g, each) for each in lengths], 0)
    total = lengths[0]
    for each in lengths[1:]:
        total = total + each
    op.tell("Out", [total])
    # Stable: of equal numbers TopK takes the earlier place.
    _, order = g.node("TopK", [of, whole.dim_value(0)], [np.int64, np.int64], axis=0, largest=0, sorted=1)
    return ragged.open_rows(whole.gather(order.shaped((-1,)), 0))


@renders("sequence_expand")
def sequence_expand(g: Graph, op: Operation) -> Value:
    """A row, or a sequence, as often as Y's level says; a whole sequence is there once already."""
    x, y, level = op["X"], op["Y"], op.attr("ref_level", -1)
    if not y.levels:
        op.single()
        return x if op.lod_level("X") else _for_each_row(x, y)
    counts = y.levels[level]
    of = ragged.owners(g, counts)
    if not op.lod_level("X") and not x.levels:
        return ragged.open_rows(x.gather(of, 0))
    if not x.levels:
        op.exporter.require_single()
    lengths = x.levels[-1] if x.levels else x.dim_value(0)
    repeated = lengths.gather(of, 0)
    op.tell("Out", [repeated])
    return ragged.taken(g, x, ragged.starts(g, lengths).gather(of, 0), repeated)


def _for_each_row(x: Value, y: Value) -> Value:
    return x.expand([y.dim(0), *([1] * (x.rank - 1))]).shaped((-1, *(x.shape or ())[1:]))


@renders("sequence_expand_as")
def sequence_expand_as(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Y"]
    if not y.levels:
        op.single()
        need(not op.lod_level("X"), "sequences expanded like others")
        return _for_each_row(x, y)
    op.tell("Out", y.levels)
    return ragged.open_rows(x.gather(ragged.owners(g, y.levels[-1]), 0))


@renders("sequence_reshape")
def sequence_reshape(g: Graph, op: Operation) -> Value:
    x, width, lengths = op["X"], op.attr("new_dim"), op.lengths("X")
    if lengths is not None:
        op.tell("Out", [g.binary("Div", lengths * x.size(1), width)])
    return x.reshape([-1, width])


@renders("sequence_pad")
def sequence_pad(g: Graph, op: Operation) -> dict[str, Value]:
    x, value, length, lengths = op["X"], op["PadValue"], op.attr("padded_length"), op.lengths("X")
    if lengths is not None:
        rows, inside = ragged.padded(g, x, lengths, 0, g.constant([length], np.int64) if length > 0 else None)
        filled = g.where(inside.unsqueeze(*range(2, rows.rank)) if rows.rank > 2 else inside, rows, value)
        return {"Out": filled.shaped((-1, length, *(x.shape or ())[1:])), "Length": lengths}
    steps = x.dim_value(0)
    out = x
    if length > 0:
        missing = g.constant([length], np.int64) - steps
        rest = value.reshape([1] * x.rank) if value.shape in ((1,), ()) else value.unsqueeze(0)
        rows = rest.expand([missing, *x.sizes()[1:]])
        out = g.concat([x, rows], 0).shaped((length, *(x.shape or ())[1:]))
    return {"Out": out.unsqueeze(0), "Length": steps}


@renders("sequence_unpad")
def sequence_unpad(g: Graph, op: Operation) -> Value:
    """The rows of all sequences, and how long these are."""
    x, length = op["X"], op["Length"].cast(np.int64).flat()
    op.tell("Out", [length])
    inside = g.range(0, x.dim_value(1).scalar()) < length.unsqueeze(1)
    rows = ragged.packed(g, x, inside)
    return rows if x.rank > 2 else rows.unsqueeze(1)


@renders("sequence_mask")
def sequence_mask(g: Graph, op: Operation) -> Value:
    x, given = op["X"].cast(np.int64), op.get("MaxLenTensor")
    dtype = numpy_dtype(op.attr("out_dtype"))
    longest: int | Value = op.attr("maxlen")
    if given is not None:
        longest = (
            int(given.array.reshape(-1)[0]) if given.array is not None else given.cast(np.int64).flat().part(0, 0, 1)
        )
    if isinstance(longest, int) and longest < 0:
        longest = x.reduce("Max", [], keepdims=False).reshape([1])
    places = g.range(0, longest)
    return (places < x.unsqueeze(-1)).cast(np.int32).cast(dtype)


@renders("sequence_slice")
def sequence_slice(g: Graph, op: Operation) -> Value:
    x, offset, length = op["X"], op["Offset"].cast(np.int64).flat(), op["Length"].cast(np.int64).flat()
    lengths = op.lengths("X")
    if lengths is None:
        return x.part(0, offset, offset + length)
    op.tell("Out", [length])
    return ragged.taken(g, x, ragged.starts(g, lengths) + offset, length)


@renders("sequence_enumerate")
def sequence_enumerate(g: Graph, op: Operation) -> Value:
    x, size, lengths = op["X"], op.attr("win_size"), op.lengths("X")
    tokens, inside = (x.flat(), None) if lengths is None else ragged.padded(g, x.flat(), lengths, op.attr("pad_value"))
    axis = tokens.rank - 1
    padded = tokens.pad([0] * tokens.rank, [*[0] * axis, size - 1], "constant", op.attr("pad_value"))
    steps = tokens.dim_value(axis)
    windows = g.stack([padded.part(axis, i, steps + i) for i in range(size)], axis + 1)
    return windows if inside is None else ragged.packed(g, windows, inside).shaped((-1, size))


@renders("sequence_erase")
def sequence_erase(g: Graph, op: Operation) -> Value:
    x, lengths = op["X"], op.lengths("X")
    tokens = list(op.attr("tokens"))
    if not tokens:
        op.tell("Out", x.levels)
        return x
    hit = x.flat().unsqueeze(1).equals(g.constant([tokens], x.dtype)).cast(np.int32).reduce("Max", [1]).cast(np.bool_)
    if lengths is not None:
        kept, _ = ragged.padded(g, (~hit).cast(np.int64), lengths)
        op.tell("Out", [*x.levels[:-1], kept.sum(1)])
    return g.op("Compress", x, ~hit, axis=0, shape=(-1, *(x.shape or ())[1:]))


@renders("sequence_scatter")
def sequence_scatter(g: Graph, op: Operation) -> Value:
    x, ids, updates = op["X"], op["Ids"].cast(np.int64).flat(), op["Updates"].flat()
    need(g.opset >= 16, "adding at indices needs opset 16 or later")
    lengths = op.lengths("Ids")
    if lengths is not None:
        return g.same("ScatterND", x, g.stack([ragged.owners(g, lengths), ids], 1), updates, reduction="add")
    return g.same("ScatterElements", x, ids.unsqueeze(0), updates.unsqueeze(0), axis=1, reduction="add")


@renders("lod_reset")
def lod_reset(g: Graph, op: Operation) -> Value:
    """The same rows as other sequences: those of Y, or between the offsets that Y or an attribute holds."""
    x, y = op["X"], op.get("Y")
    if y is not None and (y.levels or op.lod_level("Y")):
        if not y.levels:
            op.exporter.require_single()
        op.tell("Out", y.levels)
        return x
    if y is None:
        lengths = g.constant(np.diff(np.array(op.attr("target_lod"), np.int64)))
    else:
        offsets = y.cast(np.int64).flat()
        lengths = offsets.part(0, 1) - offsets.part(0, 0, -1)
    if op.attr("append") and (op.lod_level("X") or x.levels):
        need(x.levels, "a level below that of one sequence")
        op.tell("Out", [*x.levels, lengths])
        return x
    op.tell("Out", [lengths])
    return x


@renders("max_sequence_len")
def max_sequence_len(g: Graph, op: Operation) -> Value:
    """Of the only sequence of the rank table."""
    return op["RankTable"].cast(np.int64).reshape([1])


@renders("lod_rank_table")
def lod_rank_table(g: Graph, op: Operation) -> Value:
    """Of one sequence: its length."""
    return op.single()["X"].dim_value(0)


@renders("reorder_lod_tensor_by_rank", "shrink_rnn_memory")
def as_it_is(g: Graph, op: Operation) -> Value:
    """One sequence has one order, and goes on until the last step."""
    return op.single()["X"]


@renders("fused_embedding_seq_pool")
def embedding_pool(g: Graph, op: Operation) -> Value:
    table, ids = op["W"], op.single()["Ids"].cast(np.int64)
    need(op.attr("combiner") == "sum", "a combiner other than sum")
    rows = table.gather(ids.flat(), 0)
    return rows.sum(0, keepdims=True)


@renders("fusion_seqpool_concat")
def pooled_concat(g: Graph, op: Operation) -> Value:
    op.single()
    kind = {"SUM": "Sum", "AVERAGE": "Mean"}.get(op.attr("pooltype"))
    need(kind, f"the pool type {op.attr('pooltype')}")
    assert kind is not None
    return g.concat([x.reduce(kind, [0], keepdims=True) for x in op.all("X")], 1)
