"""filter_by_instag: only the samples that carry one of the wanted tags."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import BOOLEAN, TensorMeta, long, required
from fluidtool.proto.enums import VarType


@op(
    "filter_by_instag",
    inputs="Ins Ins_tag Filter_tag",
    outputs="Out LossWeight IndexMap",
    attrs={"is_lod": required(BOOLEAN), "out_val_if_empty": long(0)},
)
def filter_by_instag(
    ctx: OpContext, Ins: Any, Ins_tag: Any, Filter_tag: Any, *, is_lod: bool, out_val_if_empty: int
) -> Any:
    """Out = the rows of Ins whose sample has a tag of Filter_tag; one row of out_val_if_empty when none has.

    Ins_tag (int64 with LoD) lists each sample's tags; a sample is a row of Ins, or with is_lod a sequence. IndexMap
    [samples kept, 3] = (row in Out, row in Ins, rows); LossWeight (float32) is 1 per sample, or 0 (filter_by_instag_op.h).
    """
    np = ctx.np
    tag_offsets = np.asarray(ctx.lod("Ins_tag")[0] if ctx.lod("Ins_tag") else ctx.sequences("Ins_tag"))
    offsets = np.asarray(ctx.lod("Ins")[0]) if is_lod and ctx.lod("Ins") else np.arange(len(Ins) + 1)
    if len(offsets) < len(tag_offsets):
        raise ctx.error(
            f"Ins has {len(offsets) - 1} samples, but Ins_tag (LoD) lists the tags of {len(tag_offsets) - 1}"
        )
    wanted = np.isin(ctx.host(Ins_tag).reshape(-1), ctx.host(Filter_tag).reshape(-1))
    sums = np.concatenate([[0], np.cumsum(wanted)])
    kept = np.flatnonzero(sums[tag_offsets[1:]] > sums[tag_offsets[:-1]])
    if not len(kept):
        return _nothing(ctx, Ins, out_val_if_empty)
    starts, lengths = offsets[kept], offsets[kept + 1] - offsets[kept]
    ends = np.cumsum(lengths)
    rows = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
    samples = [range(len(kept) + 1)]
    ctx.set_lod("Out", [[0, *ends]])
    ctx.set_lod("IndexMap", samples)
    ctx.set_lod("LossWeight", samples)
    return {
        "Out": Ins[ctx.array(rows)],
        "LossWeight": ctx.xp.ones((len(kept), 1), ctx.xp.float32),
        "IndexMap": ctx.array(np.stack([ends - lengths, starts, lengths], axis=1).astype(np.int64)),
    }


def _nothing(ctx: OpContext, Ins: Any, value: int) -> dict[str, Any]:
    for slot in ("Out", "IndexMap", "LossWeight"):
        ctx.set_lod(slot, [[0, 1]])
    return {
        "Out": ctx.xp.full((1, *Ins.shape[1:]), value, Ins.dtype),
        "LossWeight": ctx.xp.zeros((1, 1), ctx.xp.float32),
        "IndexMap": ctx.array(ctx.np.array([[0, 1, 1]], ctx.np.int64)),
    }


@filter_by_instag.infer
def _(ctx: InferContext, Ins: TensorMeta, Ins_tag: TensorMeta, Filter_tag: TensorMeta) -> dict[str, TensorMeta]:
    return {
        "Out": TensorMeta((-1, *Ins.shape[1:]), Ins.dtype),
        "LossWeight": TensorMeta((-1, 1), ctx.declared_dtype("LossWeight", VarType.FP32)),
        "IndexMap": TensorMeta((-1, -1), VarType.INT64),  # Paddle declares 2 columns, and writes 3
    }


@filter_by_instag.grad(inputs="Ins LossWeight IndexMap Out@GRAD", outputs="Ins@GRAD", lod="Ins")
def filter_by_instag_grad(ctx: OpContext, Ins: Any, LossWeight: Any, IndexMap: Any, Out_grad: Any) -> Any:
    """dIns = dOut in the rows that were kept, 0 in the others."""
    out, np = ctx.xp.zeros(Ins.shape, Out_grad.dtype), ctx.np
    if LossWeight.size == 1 and not float(LossWeight.reshape(-1)[0]):
        return out
    targets, starts, lengths = ctx.host(IndexMap).T
    rows = np.repeat(starts - targets, lengths) + np.arange(int(lengths.sum()))
    out[ctx.array(rows)] = Out_grad[: len(rows)]
    return out
