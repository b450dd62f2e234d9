"""fused_embedding_seq_pool: the sum of the looked-up rows of every sequence."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, long
from fluidtool.ops.sequence.picking import row_sequences, single_level
from fluidtool.ops.sequence.segments import scatter_sum, segment_sum
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import SelectedRows

NO_PADDING = -1


def _check(ctx: OpContext | InferContext, W: Any, Ids: Any) -> None:
    if len(W.shape) != 2:
        raise ctx.error(f"input W must be (words, width), found shape {shape_text(W.shape)}")
    if not Ids.shape:
        raise ctx.error("input Ids must have a row for each step of its sequences, found shape ()")
    combiner = ctx.attr("combiner")
    if combiner != "sum":
        raise ctx.error(f'attribute combiner must be "sum", found {combiner!r}')


def _known_ids(ctx: OpContext, W: Any, Ids: Any, padding_idx: int) -> tuple[Any, Any]:
    """The ids [rows, per row] and which of them count; raises OperatorError for one outside the table."""
    _check(ctx, W, Ids)
    ids = Ids.reshape(len(Ids), -1)
    counts = ids != padding_idx if padding_idx != NO_PADDING else ids == ids
    wrong = ids[counts & ((ids < 0) | (ids >= len(W)))]
    if wrong.size:
        raise ctx.error(f"input Ids must lie between 0 and {len(W) - 1}, found {int(wrong[0])}")
    return ids, counts


@op(
    "fused_embedding_seq_pool",
    inputs="W Ids",
    outputs="Out",
    attrs={
        "combiner": "sum",
        "padding_idx": long(NO_PADDING),
        "grad_inplace": False,
        "is_sparse": False,
        "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@": True,
    },
)
def fused_embedding_seq_pool(ctx: OpContext, W: Any, Ids: Any, *, padding_idx: int) -> Any:
    """Out [sequences, k * width]: for each of the k ids of a row of Ids [rows, ...], the sum of their rows of W.

    Declared Ids end in a dimension of 1, or have one dimension alone; what a run gives may have any shape.
    Ids equal to padding_idx add nothing, unless that is -1 (Paddle 1.8.5 fused_embedding_seq_pool_op.h).
    """
    ids, counts = _known_ids(ctx, W, Ids, padding_idx)
    rows = W[ctx.xp.where(counts, ids, 0)] * counts[:, :, None].astype(W.dtype)
    return segment_sum(ctx, rows.reshape(len(ids), -1), single_level(ctx, "Ids", len(ids)))


@fused_embedding_seq_pool.infer
def _(ctx: InferContext, W: TensorMeta, Ids: TensorMeta) -> TensorMeta:
    _check(ctx, W, Ids)
    if Ids.rank > 1 and Ids.shape[-1] != 1:
        raise ctx.error(f"the last dimension of input Ids must be 1, found shape {Ids.shape}")
    return TensorMeta((-1, W.shape[1] * prod(Ids.shape[1:])), W.dtype)


@fused_embedding_seq_pool.grad(inputs="W Ids Out@GRAD", outputs="W@GRAD")
def fused_embedding_seq_pool_grad(
    ctx: OpContext, W: Any, Ids: Any, Out_grad: Any, *, padding_idx: int, is_sparse: bool
) -> Any:
    """dOut of the sequence goes to each of its rows; with is_sparse as SelectedRows of all ids, padding included."""
    ids, counts = _known_ids(ctx, W, Ids, padding_idx)
    sequences = ctx.array(row_sequences(ctx, single_level(ctx, "Ids", len(ids))))
    values = Out_grad[sequences].reshape(-1, W.shape[1])
    if is_sparse:
        return SelectedRows(ctx.host(ids).reshape(-1), len(W), values)
    kept = ctx.xp.where(counts, ids, 0).reshape(-1)
    return scatter_sum(ctx, values * counts.reshape(-1, 1).astype(values.dtype), ctx.host(kept), len(W))


@fused_embedding_seq_pool_grad.infer
def _(ctx: InferContext, W: TensorMeta, Ids: TensorMeta, Out_grad: TensorMeta, *, is_sparse: bool) -> TensorMeta:
    kind = VarType.SELECTED_ROWS if is_sparse else VarType.LOD_TENSOR
    return TensorMeta(W.shape, W.dtype, kind=kind)
