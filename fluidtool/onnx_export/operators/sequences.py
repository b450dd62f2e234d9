"""Operators on sequences, of which the model takes one at a time: axis 0 is that sequence."""

from __future__ import annotations

import numpy as np

from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import need, renders
from fluidtool.tensor import numpy_dtype


def one(op: Operation) -> Operation:
    """Note that the rendering is that of a single sequence."""
    op.exporter.require_single()
    return op


@renders("sequence_pool")
def sequence_pool(g: Graph, op: Operation) -> dict[str, Value]:
    x, kind = one(op)["X"], op.attr("pooltype")
    if kind == "LAST":
        return {"Out": x.part(0, -1)}
    if kind == "FIRST":
        return {"Out": x.part(0, 0, 1)}
    if kind == "SQRT":
        return {"Out": x.sum(0, keepdims=True) / x.dim_value(0).cast(x.dtype).apply("Sqrt")}
    kinds = {"AVERAGE": "Mean", "SUM": "Sum", "MAX": "Max"}
    need(kind in kinds, f"the pool type {kind}")
    found = {"Out": x.reduce(kinds[kind], [0], keepdims=True)}
    if kind == "MAX" and op.wants("MaxIndex"):
        places = g.op("ArgMax", x, axis=0, keepdims=1, dtype=np.int64)
        found["MaxIndex"] = places.cast(np.int32)
    return found


@renders("sequence_softmax")
def sequence_softmax(g: Graph, op: Operation) -> Value:
    return one(op)["X"].apply("Softmax", axis=0)


@renders("sequence_conv")
def sequence_conv(g: Graph, op: Operation) -> Value:
    x, weights = one(op)["X"], op["Filter"]
    need(not op.attr("paddingTrainable"), "rows of padding that are learned")
    start, length = op.attr("contextStart"), op.attr("contextLength")
    before, after = max(-start, 0), max(start + length - 1, 0)
    padded = x.pad([before, 0], [after, 0])
    steps = x.dim_value(0)
    columns = []
    for tap in range(length):
        low = before + start + tap
        columns.append(padded.part(0, low, steps + low))
    return g.concat(columns, 1).shaped((-1, x.size(1) * length)) @ weights


@renders("sequence_reverse")
def sequence_reverse(g: Graph, op: Operation) -> Value:
    return one(op)["X"].slice([-1], [-(2**63)], [0], [-1]).shaped(op["X"].shape)


@renders("sequence_concat")
def sequence_concat(g: Graph, op: Operation) -> Value:
    one(op)
    return g.concat(op.all("X"), 0)


@renders("sequence_expand", "sequence_expand_as")
def sequence_expand(g: Graph, op: Operation) -> Value:
    """A row for each of Y's; a whole sequence is there once already."""
    x, y = one(op)["X"], op["Y"]
    if op.lod_level("X"):
        need(op.type == "sequence_expand", "sequences expanded like others")
        return x
    if op.lod_level("Y") > 1 and op.attr("ref_level", -1) == 0:
        need(False, "a level of sequences of sequences")
    return x.expand([y.dim(0), *([1] * (x.rank - 1))]).shaped((-1, *(x.shape or ())[1:]))


@renders("sequence_reshape")
def sequence_reshape(g: Graph, op: Operation) -> Value:
    return one(op)["X"].reshape([-1, op.attr("new_dim")])


@renders("sequence_pad")
def sequence_pad(g: Graph, op: Operation) -> dict[str, Value]:
    x, value, length = one(op)["X"], op["PadValue"], op.attr("padded_length")
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
    x, length = op["X"], op["Length"].cast(np.int64).flat()
    if (x.shape or ())[0] not in (1, -1):
        return _unpadded(g, op, x, length)
    one(op)
    rows = x.squeeze(0).part(0, 0, length).shaped((-1, *(x.shape or ())[2:]))
    return rows if x.rank > 2 else rows.unsqueeze(1)


def _unpadded(g: Graph, op: Operation, x: Value, length: Value) -> Value:
    """The rows of several sequences, which no operator on sequences may read."""
    op.exporter.require_rows()
    inside = g.range(0, x.dim_value(1).scalar()) < length.unsqueeze(1)
    rest = list(x.sizes()[2:]) or [1]
    shape = (-1, *(x.shape or ())[2:]) if x.rank > 2 else (-1, 1)
    return g.op("Compress", x.reshape([-1, *rest]), inside.flat(), axis=0, shape=shape)


@renders("sequence_mask")
def sequence_mask(g: Graph, op: Operation) -> Value:
    x, given = op["X"].cast(np.int64), op.get("MaxLenTensor")
    dtype = numpy_dtype(op.attr("out_dtype"))
    longest: int | Value = op.attr("maxlen")
    if given is not None:
        longest = int(given.array.reshape(-1)[0]) if given.array is not None else given.cast(np.int64).reshape([1])
    if isinstance(longest, int) and longest < 0:
        longest = x.reduce("Max", [], keepdims=False).reshape([1])
    places = g.range(0, longest)
    return (places < x.unsqueeze(-1)).cast(np.int32).cast(dtype)


@renders("sequence_slice")
def sequence_slice(g: Graph, op: Operation) -> Value:
    x, offset, length = one(op)["X"], op["Offset"].cast(np.int64).flat(), op["Length"].cast(np.int64).flat()
    return x.part(0, offset, offset + length)


@renders("sequence_enumerate")
def sequence_enumerate(g: Graph, op: Operation) -> Value:
    x, size = one(op)["X"], op.attr("win_size")
    padded = x.flat().pad([0], [size - 1], "constant", op.attr("pad_value"))
    steps = x.dim_value(0)
    return g.stack([padded.part(0, i, steps + i) for i in range(size)], 1)


@renders("sequence_erase")
def sequence_erase(g: Graph, op: Operation) -> Value:
    x = one(op)["X"]
    tokens = list(op.attr("tokens"))
    if not tokens:
        return x
    hit = x.flat().unsqueeze(1).equals(g.constant([tokens], x.dtype)).cast(np.int32).reduce("Max", [1]).cast(np.bool_)
    return g.op("Compress", x, ~hit, axis=0, shape=(-1, *(x.shape or ())[1:]))


@renders("sequence_scatter")
def sequence_scatter(g: Graph, op: Operation) -> Value:
    x, ids, updates = one(op)["X"], op["Ids"].cast(np.int64).flat(), op["Updates"].flat()
    need(g.opset >= 16, "ONNX adds up at places from opset 16 on")
    return g.same("ScatterElements", x, ids.unsqueeze(0), updates.unsqueeze(0), axis=1, reduction="add")


@renders("max_sequence_len")
def max_sequence_len(g: Graph, op: Operation) -> Value:
    """Of the only sequence of the rank table."""
    return op["RankTable"].cast(np.int64).reshape([1])


@renders("lod_rank_table")
def lod_rank_table(g: Graph, op: Operation) -> Value:
    """Of one sequence: its length."""
    return one(op)["X"].dim_value(0)


@renders("reorder_lod_tensor_by_rank", "shrink_rnn_memory")
def as_it_is(g: Graph, op: Operation) -> Value:
    """One sequence has one order, and goes on until the last step."""
    return one(op)["X"]


@renders("fused_embedding_seq_pool")
def embedding_pool(g: Graph, op: Operation) -> Value:
    table, ids = op["W"], one(op)["Ids"].cast(np.int64)
    need(op.attr("combiner") == "sum", "a combiner other than sum")
    rows = table.gather(ids.flat(), 0)
    return rows.sum(0, keepdims=True)


@renders("fusion_seqpool_concat")
def pooled_concat(g: Graph, op: Operation) -> Value:
    one(op)
    kind = {"SUM": "Sum", "AVERAGE": "Mean"}.get(op.attr("pooltype"))
    need(kind, f"the pool type {op.attr('pooltype')}")
    assert kind is not None
    return g.concat([x.reduce(kind, [0], keepdims=True) for x in op.all("X")], 1)
