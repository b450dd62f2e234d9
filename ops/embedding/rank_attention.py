"""rank_attention: a product with a parameter that depends on the ranks of two items."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


def _pairs(ctx: OpContext, X: Any, RankOffset: Any, MaxRank: int) -> Any:
    """Per sample and other item: whether there is one, the block of the parameter, the row of X; each [N, MaxRank]."""
    if RankOffset.shape != (len(X), 2 * MaxRank + 1):
        raise ctx.error(
            f"input RankOffset must have shape {shape_text((len(X), 2 * MaxRank + 1))} for X {X.shape} and MaxRank {MaxRank}, "
            f"found {RankOffset.shape}"
        )
    own, others, rows = RankOffset[:, :1] - 1, RankOffset[:, 1::2] - 1, RankOffset[:, 2::2]
    valid = (own >= 0) & (others >= 0)
    blocks, rows = ctx.xp.where(valid, own * MaxRank + others, 0), ctx.xp.where(valid, rows, 0)
    if blocks.size and (int(blocks.max()) >= MaxRank**2 or int(rows.max()) >= len(X) or int(rows.min()) < 0):
        raise ctx.error(f"input RankOffset holds a rank above MaxRank ({MaxRank}) or a row outside X ({len(X)} rows)")
    return valid, blocks, rows


def _check(ctx: OpContext | InferContext, X: Any, RankParam: Any, MaxRank: int) -> None:
    expected = X.shape[1] * MaxRank**2
    if not (len(RankParam.shape) == 2 and (RankParam.shape[0] == expected or -1 in (RankParam.shape[0], X.shape[1]))):
        raise ctx.error(
            f"input RankParam must have {expected} rows (columns of X * MaxRank²), found shape {shape_text(RankParam.shape)}"
        )


@op("rank_attention", inputs="X RankOffset RankParam", outputs="Out", attrs={"MaxRank": 3})
def rank_attention(ctx: OpContext, X: Any, RankOffset: Any, RankParam: Any, *, MaxRank: int) -> Any:
    """Out [N, P] = sum over k of X[row k] @ the block of RankParam for (own rank, rank k).

    RankOffset [N, 1 + 2 MaxRank] = (own rank, (rank k, row k) …), ranks from 1, 0 for none; RankParam
    [MaxRank² D, P] for X [N, D] (Paddle 1.8.5 rank_attention_op.cu, which runs on GPUs only).
    """
    _check(ctx, X, RankParam, MaxRank)
    valid, blocks, rows = _pairs(ctx, X, RankOffset, MaxRank)
    parameter = RankParam.reshape(MaxRank**2, X.shape[1], -1)
    out = ctx.xp.zeros((len(X), parameter.shape[2]), X.dtype)
    for k in range(MaxRank):
        items = X[rows[:, k]] * valid[:, k : k + 1]
        out = out + (items[:, None, :] @ parameter[blocks[:, k]])[:, 0]
    return out


@rank_attention.infer
def _(ctx: InferContext, X: TensorMeta, RankOffset: TensorMeta, RankParam: TensorMeta, *, MaxRank: int) -> TensorMeta:
    _check(ctx, X, RankParam, MaxRank)
    return TensorMeta((X.shape[0], RankParam.shape[1]), X.dtype)


@rank_attention.grad(inputs="X RankOffset RankParam Out@GRAD", outputs="RankParam@GRAD")
def rank_attention_grad(ctx: OpContext, X: Any, RankOffset: Any, RankParam: Any, Out_grad: Any, *, MaxRank: int) -> Any:
    """The outer products of items and dOut, added up per block."""
    valid, blocks, rows = _pairs(ctx, X, RankOffset, MaxRank)
    out = ctx.xp.zeros((MaxRank**2, X.shape[1], RankParam.shape[1]), X.dtype)
    for k in range(MaxRank):
        items = X[rows[:, k]] * valid[:, k : k + 1]
        ctx.add_at(out, blocks[:, k], items[:, :, None] * Out_grad[:, None, :])
    return out.reshape(RankParam.shape)
