"""lookup_table and lookup_table_v2: the rows of a table that ids name."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.distributed.tables import (
    NO_PADDING,
    lives_on_servers,
    look_up_remotely,
    remote_shards,
    table_shape,
)
from fluidtool.ops.embedding.rows import add_rows, find_rows
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, long, longs, strings
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.tensor import SelectedRows

_TABLE_ATTRS: dict[str, Any] = {
    "is_sparse": False,
    "is_distributed": False,
    "padding_idx": long(NO_PADDING),
    "remote_prefetch": False,
    "trainer_id": 0,
    "height_sections": longs(),
    "epmap": strings(),
    "table_names": strings(),
}


def _looked_up(ctx: OpContext, W: Any, ids: Any, padding_idx: int) -> Any:
    if ids.dtype.kind not in "iu":
        raise ctx.error(f"input Ids must hold integers (int64), found {ids.dtype}; cast them")
    if lives_on_servers(ctx):
        return look_up_remotely(ctx, W, ids, padding_idx, *remote_shards(ctx))
    if isinstance(W, SelectedRows):
        places, table = _places(ctx, W, ids, padding_idx), W.value
    else:
        places, table = _checked(ctx, ids, len(W), padding_idx), W
    out = table[places]
    if padding_idx != NO_PADDING:
        out[ids == padding_idx] = 0
    return out


def _checked(ctx: OpContext, ids: Any, height: int, padding_idx: int) -> Any:
    """The ids, with row 0 for padding; fails if one is out of range for the table."""
    if padding_idx != NO_PADDING:
        ids = ctx.xp.where(ids == padding_idx, 0, ids)
    ctx.require_within(
        ids,
        height,
        lambda found: (
            f"input Ids holds {found}, expected 0 to {height - 1} (table W has {height} rows); "
            "correct the ids or enlarge the table"
        ),
    )
    return ids


def _places(ctx: OpContext, table: SelectedRows, ids: Any, padding_idx: int) -> Any:
    host = ctx.host(ids)
    places = find_rows(ctx, table, host)
    missing = (places < 0) & ((host != padding_idx) | (padding_idx == NO_PADDING))
    if missing.any():
        raise ctx.error(
            f"input Ids holds {int(host[missing][0])}, which is not in table W (SelectedRows of {len(table.row_ids)})"
        )
    return ctx.array(places.clip(min=0))


def _gradient(ctx: OpContext, W: Any, ids: Any, Out_grad: Any, is_sparse: bool, padding_idx: int) -> Any:
    """W@GRAD: SelectedRows of the ids as they come when sparse (padding included), else an array like W."""
    shape = table_shape(W)
    values = Out_grad.reshape(-1, shape[1])
    flat = ids.reshape(-1)
    if is_sparse:
        return SelectedRows(ctx.host(flat).astype("int64"), shape[0], values)
    rows = _checked(ctx, flat, shape[0], padding_idx)
    if padding_idx != NO_PADDING:
        values = ctx.xp.where((flat == padding_idx)[:, None], values.dtype.type(0), values)
    return add_rows(ctx, shape[0], rows, values)


def _infer_gradient(W: TensorMeta, is_sparse: bool) -> TensorMeta:
    kind = VarType.SELECTED_ROWS if is_sparse else VarType.LOD_TENSOR
    return TensorMeta(W.shape, W.dtype, 0, kind)


@op(
    "lookup_table",
    inputs="W Ids",
    outputs="Out",
    attrs=_TABLE_ATTRS | {"grad_inplace": False},
    lod="Ids",
    traits=Traits(table="W", plain_lookup=True),
)
def lookup_table(ctx: OpContext, W: Any, Ids: Any, *, padding_idx: int) -> Any:
    """Out [..., width] = W[ids] for Ids [..., 1]; zeros where an id is padding_idx (unless that is -1).

    W [rows, width] of floats or int8, or SelectedRows that hold the ids (Paddle 1.8.5 lookup_table_op.h).
    """
    if Ids.ndim < 1 or Ids.shape[-1] != 1:
        raise ctx.error(f"input Ids must have size 1 in its last dimension, found shape {Ids.shape}")
    return _looked_up(ctx, W, Ids[..., 0], padding_idx)


@lookup_table.infer
def _(ctx: InferContext, W: TensorMeta, Ids: TensorMeta) -> TensorMeta:
    if W.rank != 2:
        raise ctx.error(f"table W must have two dimensions, found shape {W.shape}")
    if Ids.rank < 1 or Ids.shape[-1] not in (1, -1):
        raise ctx.error(f"input Ids must have size 1 in its last dimension, found shape {Ids.shape}")
    return TensorMeta((*Ids.shape[:-1], W.shape[1]), W.dtype, Ids.lod_level)


@lookup_table.grad(inputs="W Ids Out@GRAD", outputs="W@GRAD")
def lookup_table_grad(ctx: OpContext, W: Any, Ids: Any, Out_grad: Any, *, is_sparse: bool, padding_idx: int) -> Any:
    """W@GRAD: dOut added up per row (padding left out), or SelectedRows of all ids when is_sparse."""
    return _gradient(ctx, W, Ids, Out_grad, is_sparse, padding_idx)


@lookup_table_grad.infer
def _(ctx: InferContext, W: TensorMeta, Ids: TensorMeta, Out_grad: TensorMeta, *, is_sparse: bool) -> TensorMeta:
    return _infer_gradient(W, is_sparse)


@op(
    "lookup_table_v2",
    inputs="W Ids",
    outputs="Out",
    attrs=_TABLE_ATTRS,
    lod="Ids",
    traits=Traits(table="W", plain_lookup=True),
)
def lookup_table_v2(ctx: OpContext, W: Any, Ids: Any, *, padding_idx: int) -> Any:
    """Out [..., width] = W[ids] for Ids [...]; otherwise as lookup_table (Paddle 1.8.5 lookup_table_v2_op.h)."""
    return _looked_up(ctx, W, Ids, padding_idx)


@lookup_table_v2.infer
def _(ctx: InferContext, W: TensorMeta, Ids: TensorMeta) -> TensorMeta:
    if W.rank != 2:
        raise ctx.error(f"table W must have two dimensions, found shape {W.shape}")
    return TensorMeta((*Ids.shape, W.shape[1]), W.dtype, Ids.lod_level)


@lookup_table_v2.grad(inputs="W Ids Out@GRAD", outputs="W@GRAD")
def lookup_table_v2_grad(ctx: OpContext, W: Any, Ids: Any, Out_grad: Any, *, is_sparse: bool, padding_idx: int) -> Any:
    """W@GRAD: dOut added up per row (padding left out), or SelectedRows of all ids when is_sparse."""
    return _gradient(ctx, W, Ids, Out_grad, is_sparse, padding_idx)


@lookup_table_v2_grad.infer
def _(ctx: InferContext, W: TensorMeta, Ids: TensorMeta, Out_grad: TensorMeta, *, is_sparse: bool) -> TensorMeta:
    return _infer_gradient(W, is_sparse)
