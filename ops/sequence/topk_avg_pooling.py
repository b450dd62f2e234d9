"""sequence_topk_avg_pooling: averages of the largest values of every row of ragged matrices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, INTS, TensorMeta, required
from fluidtool.ops.sequence.picking import single_level
from fluidtool.proto.enums import VarType


@op(
    "sequence_topk_avg_pooling",
    inputs="X ROW COLUMN",
    outputs="Out pos~",
    attrs={"topks": required(INTS), "channel_num": required(INT)},
)
def sequence_topk_avg_pooling(
    ctx: OpContext, X: Any, ROW: Any, COLUMN: Any, *, topks: list[int], channel_num: int
) -> dict[str, Any]:
    """Out[r, c, m] = sum of the topks[m] largest values of row r in channel c, divided by topks[m].

    Item i of X holds `channel_num` matrices of as many rows and columns as sequence i of ROW and COLUMN. Out
    [rows, channel_num * len(topks)]; pos (int32, flat): the columns of the largest, -1 where there are fewer
    (Paddle 1.8.5 sequence_topk_avg_pooling_op.h).
    """
    np, most = ctx.np, _most(ctx, topks, channel_num)
    values = ctx.host(X).reshape(-1)
    outs = [np.zeros((0, channel_num * len(topks)), values.dtype)]  # all there is of a batch without sequences
    positions = [np.zeros(0, np.int32)]
    for start, rows, columns in _matrices(ctx, X, ROW, COLUMN, channel_num):
        item = values[start : start + channel_num * rows * columns].reshape(channel_num, rows, columns)
        order = np.argsort(-item, axis=-1, kind="stable")[..., :most]
        sums = np.zeros((channel_num, rows, most + 1), dtype=values.dtype)
        sums[..., 1 : order.shape[-1] + 1] = np.cumsum(np.take_along_axis(item, order, -1), axis=-1, dtype=values.dtype)
        sums[..., order.shape[-1] + 1 :] = sums[..., order.shape[-1], None]
        pos = np.full((channel_num, rows, most), -1, dtype=np.int32)
        pos[..., : order.shape[-1]] = order
        outs.append(
            (sums[..., topks] / np.asarray(topks, dtype=values.dtype))
            .swapaxes(0, 1)
            .reshape(rows, channel_num * len(topks))
        )
        positions.append(pos.swapaxes(0, 1).reshape(-1))
    ctx.set_lod("Out", ctx.lod("ROW"))
    return {"Out": ctx.array(np.concatenate(outs)), "pos": ctx.array(np.concatenate(positions))}


@sequence_topk_avg_pooling.infer
def _(
    ctx: InferContext, X: TensorMeta, ROW: TensorMeta, COLUMN: TensorMeta, *, topks: list[int], channel_num: int
) -> dict[str, TensorMeta]:
    out = TensorMeta((ROW.shape[0], channel_num * len(topks)), X.dtype, ROW.lod_level)
    return {"Out": out, "pos": TensorMeta((-1,), VarType.INT32)}


@sequence_topk_avg_pooling.grad(inputs="X ROW COLUMN pos Out@GRAD", outputs="X@GRAD", lod="X")
def sequence_topk_avg_pooling_grad(
    ctx: OpContext, X: Any, ROW: Any, COLUMN: Any, pos: Any, Out_grad: Any, *, topks: list[int], channel_num: int
) -> Any:
    """Every value among the topks[m] largest of its row gets dOut[m] / topks[m], for every m."""
    np, most = ctx.np, _most(ctx, topks, channel_num)
    gradient, columns_of = ctx.host(Out_grad), ctx.host(pos).reshape(-1, channel_num, most)
    counts = np.asarray(topks)
    shares = ((np.arange(most) < counts[:, None]) / counts[:, None]).astype(gradient.dtype)
    by_rank = gradient.reshape(-1, channel_num, len(topks)) @ shares
    grad, top = np.zeros(X.size, dtype=gradient.dtype), 0
    for start, rows, columns in _matrices(ctx, X, ROW, COLUMN, channel_num):
        picked, share = columns_of[top : top + rows], by_rank[top : top + rows]
        row, channel, rank = np.nonzero(picked >= 0)
        cells = start + (channel * rows + row) * columns + picked[row, channel, rank]
        grad[cells] = share[row, channel, rank]
        top += rows
    return ctx.array(grad.reshape(X.shape))


def _most(ctx: OpContext, topks: list[int], channel_num: int) -> int:
    if channel_num <= 0:
        raise ctx.error(f"channel_num must be positive, found {channel_num}")
    if not (topks and min(topks) > 0 and max(topks) == topks[-1]):
        raise ctx.error(f"topks must be positive and end with the largest, found {topks}")
    return topks[-1]


def _matrices(ctx: OpContext, X: Any, ROW: Any, COLUMN: Any, channel_num: int) -> Iterator[tuple[int, int, int]]:
    """First value, rows and columns of the matrices of every item."""
    starts = single_level(ctx, "X", X.shape[0])
    rows = ctx.np.diff(single_level(ctx, "ROW", ROW.shape[0])).tolist()
    columns = ctx.np.diff(single_level(ctx, "COLUMN", COLUMN.shape[0])).tolist()
    count = len(starts) - 1
    if len(rows) != count or len(columns) != count:
        raise ctx.error(
            f"X, ROW and COLUMN must have equally many sequences, found {count}, {len(rows)} and {len(columns)}"
        )
    for number, (start, end) in enumerate(pairwise(starts)):
        if end - start != channel_num * rows[number] * columns[number]:
            raise ctx.error(
                f"sequence {number} of X must have channel_num * rows * columns = {channel_num} * {rows[number]} * "
                f"{columns[number]} values, found {end - start}"
            )
        yield start, rows[number], columns[number]
