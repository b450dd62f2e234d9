"""Rank tables for dynamic RNNs: sequences sorted by length, and tensors split into time steps accordingly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.control_flow.arrays import array_of, index_of
from fluidtool.ops.control_flow.joining import joined
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.sequence.picking import join_lods, offsets_of, take_sequences
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDRankTable, LoDTensor, LoDTensorArray


@op("lod_rank_table", inputs="X", outputs="Out", attrs={"level": 0})
def lod_rank_table(ctx: OpContext, X: Any, *, level: int) -> LoDRankTable:
    """The sequences of one LoD level of X, longest first (Paddle 1.8.5 lod_rank_table_op.cc)."""
    levels = len(ctx.lod("X"))
    if not 0 <= level < levels:
        raise ctx.error(
            f"level {level} is out of range: X has {levels} LoD levels; feed it with sequence lengths of enough levels"
        )
    return LoDRankTable.from_lod(ctx.lod("X"), level)


@op("max_sequence_len", inputs="RankTable", outputs="Out", raw=True)
def max_sequence_len(ctx: OpContext) -> Any:
    """The length of the longest sequence, [1] int64 (Paddle 1.8.5 max_sequence_len_op.cc)."""
    return ctx.array([_table(ctx).ranked[0][1]], VarType.INT64)


@max_sequence_len.infer
def _(ctx: InferContext) -> TensorMeta:
    return TensorMeta((1,), VarType.INT64)


@op(
    "reorder_lod_tensor_by_rank",
    inputs="X RankTable",
    outputs="Out",
    raw=True,
    traits=Traits(gradient_scope=False, memory="keeps_lod", lod_branch="X"),
)
def reorder_lod_tensor_by_rank(ctx: OpContext) -> Any:
    """The sequences of X (rows without a LoD) in the order of the table (Paddle 1.8.5 reorder_lod_tensor_by_rank_op.cc)."""
    return _reordered(ctx, [index for index, _ in _table(ctx).ranked])


@reorder_lod_tensor_by_rank.infer
def _(ctx: InferContext) -> TensorMeta | None:
    found: TensorMeta | None = ctx.meta(ctx.op.input("X")[0])
    return found


@reorder_lod_tensor_by_rank.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.output_grad("Out"), "RankTable": context.input("RankTable")}
    return [OpDescription("reorder_lod_tensor_by_rank_grad", inputs, {"Out": context.input_grad("X")})]


@op("reorder_lod_tensor_by_rank_grad", inputs="X RankTable", outputs="Out", raw=True, traits=Traits(memory="keeps_lod"))
def reorder_lod_tensor_by_rank_grad(ctx: OpContext) -> Any:
    """X, the gradient of the reordered tensor, in the original order."""
    items = _table(ctx).ranked
    return _reordered(ctx, sorted(range(len(items)), key=lambda rank: items[rank][0]))


def _reordered(ctx: OpContext, order: list[int]) -> Any:
    X, lod = _array(ctx), ctx.lod("X")
    count = len(lod[0]) - 1 if lod else X.shape[0]
    if max(order, default=-1) >= count:
        raise ctx.error(f"RankTable ranks {len(order)} sequences, but X has {count} {'sequences' if lod else 'rows'}")
    reordered, rows = take_sequences(ctx, lod, order)
    ctx.set_lod("Out", reordered)
    return X[ctx.array(rows)]


@op("lod_tensor_to_array", inputs="X RankTable", outputs="Out", raw=True)
def lod_tensor_to_array(ctx: OpContext) -> LoDTensorArray:
    """Item t of the output: the t-th element of every sequence that is long enough, in the order of the table.

    (Paddle 1.8.5 lod_tensor_to_array_op.cc)
    """
    X, table, lod = _array(ctx), _table(ctx), ctx.lod("X")
    if table.level >= len(lod):
        raise ctx.error(f"X needs a LoD of at least {table.level + 1} levels, found {len(lod)}")
    offsets = lod[table.level]
    if max(index for index, _ in table.ranked) >= len(offsets) - 1:
        raise ctx.error(f"RankTable ranks {len(table.ranked)} sequences, but X has {len(offsets) - 1}")
    starts = ctx.np.asarray([offsets[index] for index, _ in table.ranked])
    lengths = ctx.np.asarray([length for _, length in table.ranked])
    steps = [
        take_sequences(ctx, lod[table.level + 1 :], starts[lengths > step] + step) for step in range(table.ranked[0][1])
    ]
    rows = ctx.np.concatenate([rows for _, rows in steps])
    if len(rows) and rows.max() >= X.shape[0]:
        raise ctx.error(
            f"RankTable has sequences of up to {table.ranked[0][1]} elements, but X has only {X.shape[0]} rows"
        )
    whole, end, out = X[ctx.array(rows)], 0, LoDTensorArray()
    for deeper, own in steps:
        out.append(LoDTensor(whole[end : end + len(own)], deeper))
        end += len(own)
    return out


@lod_tensor_to_array.infer
def _(ctx: InferContext) -> TensorMeta | None:
    meta: TensorMeta | None = ctx.meta(ctx.op.input("X")[0])
    return None if meta is None else replace(meta, kind=VarType.LOD_TENSOR_ARRAY, lod_level=max(meta.lod_level - 1, 0))


@lod_tensor_to_array.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.output_grad("Out"), "RankTable": context.input("RankTable")}
    return [context.describe("array_to_lod_tensor", inputs, {"Out": context.input_grad("X")})]


@op("array_to_lod_tensor", inputs="X RankTable", outputs="Out", raw=True)
def array_to_lod_tensor(ctx: OpContext) -> Any:
    """The steps of an array merged into sequences in their original order.

    (Paddle 1.8.5 array_to_lod_tensor_op.cc)
    """
    steps, table = array_of(ctx, "X"), _table(ctx)
    if len(steps) <= 0 or len(steps) < table.ranked[0][1]:
        raise ctx.error(f"the array X has {len(steps)} steps, but RankTable has a sequence of {table.ranked[0][1]}")
    empty = [number for number, step in enumerate(steps) if step.array is None]
    if empty:
        raise ctx.error(f"steps {empty} of the array X were never written")
    depths = {len(step.offsets) for step in steps}
    if len(depths) != 1:
        raise ctx.error(f"the steps of X must have the same number of LoD levels, found {sorted(depths)}")
    counts = [len(step.offsets[0]) - 1 if step.offsets else step.array.shape[0] for step in steps]
    bases = ctx.np.asarray(offsets_of(counts))
    ranks = sorted(range(len(table.ranked)), key=lambda rank: table.ranked[rank][0])
    lengths = [table.ranked[rank][1] for rank in ranks]
    picks = ctx.np.concatenate([bases[:length] + rank for rank, length in zip(ranks, lengths, strict=True)])
    needed = (ctx.np.asarray(lengths)[:, None] > ctx.np.arange(len(steps))).sum(axis=0)
    for step, (need, count) in enumerate(zip(needed.tolist(), counts, strict=True)):
        if need > count:
            raise ctx.error(f"step {step} of X has {count} elements, but RankTable has {need} sequences that long")
    deeper, rows = take_sequences(ctx, join_lods([step.offsets for step in steps]), picks)
    ctx.set_lod("Out", [*table.coarse_lod, offsets_of(lengths), *deeper])
    return joined(ctx, [step.array for step in steps])[ctx.array(rows)]


@array_to_lod_tensor.infer
def _(ctx: InferContext) -> TensorMeta | None:
    meta: TensorMeta | None = ctx.meta(ctx.op.input("X")[0])
    return None if meta is None else replace(meta, kind=VarType.LOD_TENSOR, lod_level=meta.lod_level + 1)


@array_to_lod_tensor.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.output_grad("Out"), "RankTable": context.input("RankTable")}
    return [context.describe("lod_tensor_to_array", inputs, {"Out": context.input_grad("X")})]


@op("shrink_rnn_memory", inputs="X RankTable I", outputs="Out", raw=True, traits=Traits(memory="view", lod_branch="X"))
def shrink_rnn_memory(ctx: OpContext) -> Any:
    """The first rows (sequences, with a LoD) of X: one per sequence longer than I.

    (Paddle 1.8.5 shrink_rnn_memory_op.cc)
    """
    X, lod = _array(ctx), ctx.lod("X")
    count = _active(_table(ctx), index_of(ctx))
    available = len(lod[0]) - 1 if lod else X.shape[0]
    if lod and count > available:
        return X[:count]
    if count > available:
        raise ctx.error(f"X has {available} rows, but RankTable has {count} sequences still running")
    rows, shrunk = count, []
    for level in lod:
        shrunk.append(level[: rows + 1])
        rows = level[rows]
    ctx.set_lod("Out", shrunk)
    return X[:rows]


@shrink_rnn_memory.infer
def _(ctx: InferContext) -> TensorMeta | None:
    found: TensorMeta | None = ctx.meta(ctx.op.input("X")[0])
    return found


@shrink_rnn_memory.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.input("X"), "Out@GRAD": context.output_grad("Out")}
    return [context.describe("shrink_rnn_memory_grad", inputs, {"X@GRAD": context.input_grad("X")})]


@op("shrink_rnn_memory_grad", inputs="X Out@GRAD?", outputs="X@GRAD", lod="X")
def shrink_rnn_memory_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """The gradient with zeros for the dropped rows; all zeros if there is none."""
    grad = ctx.xp.zeros_like(X)
    if Out_grad is not None:
        grad[: Out_grad.shape[0]] = Out_grad
    return grad


def _table(ctx: OpContext) -> LoDRankTable:
    table = ctx.value("RankTable")
    if not isinstance(table, LoDRankTable):
        raise ctx.error(
            f"input RankTable must hold a rank table, found {type(table).__name__}; create one with lod_rank_table"
        )
    if not table.ranked:
        raise ctx.error("the rank table has no sequences")
    ranked: LoDRankTable = table
    return ranked


def _array(ctx: OpContext) -> Any:
    value = ctx.value("X")
    if not (isinstance(value, LoDTensor) and value.array is not None):
        raise ctx.error(f"input X must hold a tensor, found {type(value).__name__}")
    return value.array


def _active(table: LoDRankTable, step: int) -> int:
    """How many sequences are longer than `step`."""
    return sum(length > step for _, length in table.ranked)
