"""one_hot and shard_index: whole numbers as places."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.ops.tensor.arguments import number
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

ATTRS = {"depth": -1, "dtype": 5, "allow_out_of_range": False}


def _encoded(ctx: OpContext, ids: Any, depth_tensor: Any, depth: int, dtype: int, allow_out_of_range: bool) -> Any:
    size = depth if depth_tensor is None else number(ctx, depth_tensor, "depth_tensor")
    if size <= 0:
        raise ctx.error(f"depth must be positive, found {size}")
    if ids.dtype.kind not in "iu":
        raise ctx.error(f"X must hold int32 or int64, found {ids.dtype}")
    if not allow_out_of_range:
        ctx.require_within(
            ids,
            size,
            lambda found: (
                f"X must lie in [0, {size}), the depth, found {found}; set allow_out_of_range for rows of zeros"
            ),
        )
    return (ids[..., None] == ctx.xp.arange(size, dtype=ids.dtype)).astype(ctx.dtype(dtype))


@op("one_hot", inputs="X depth_tensor?", outputs="Out", attrs=ATTRS, lod="X")
def one_hot(ctx: OpContext, X: Any, depth_tensor: Any, *, depth: int, dtype: int, allow_out_of_range: bool) -> Any:
    """A 1 at place X of `depth` places, 0 elsewhere; the last size of X is 1 (Paddle 1.8.5 one_hot_op.h)."""
    if X.ndim < 2 or X.shape[-1] != 1:
        raise ctx.error(f"the last size of X must be 1, found shape {X.shape}")
    return _encoded(ctx, X[..., 0], depth_tensor, depth, dtype, allow_out_of_range)


@one_hot.infer
def _(ctx: InferContext, X: TensorMeta, depth_tensor: TensorMeta | None, *, depth: int, dtype: int) -> TensorMeta:
    if X.rank < 2 or X.shape[-1] not in (1, -1):
        raise ctx.error(f"the last size of X must be 1, found shape {shape_text(X.shape)}")
    return X.with_shape((*X.shape[:-1], depth if depth_tensor is None else -1)).with_dtype(VarType(dtype))


@op("one_hot_v2", inputs="X depth_tensor?", outputs="Out", attrs=ATTRS, lod="X")
def one_hot_v2(ctx: OpContext, X: Any, depth_tensor: Any, *, depth: int, dtype: int, allow_out_of_range: bool) -> Any:
    """one_hot with the `depth` places as a new last dimension (Paddle 1.8.5 one_hot_v2_op.h)."""
    return _encoded(ctx, X, depth_tensor, depth, dtype, allow_out_of_range)


@one_hot_v2.infer
def _(ctx: InferContext, X: TensorMeta, depth_tensor: TensorMeta | None, *, depth: int, dtype: int) -> TensorMeta:
    return X.with_shape((*X.shape, depth if depth_tensor is None else -1)).with_dtype(VarType(dtype))


@op(
    "shard_index",
    inputs="X",
    outputs="Out",
    attrs={"index_num": required(INT), "nshards": required(INT), "shard_id": required(INT), "ignore_value": -1},
    lod="X",
)
def shard_index(ctx: OpContext, X: Any, *, index_num: int, nshards: int, shard_id: int, ignore_value: int) -> Any:
    """Numbers below index_num as places within shard `shard_id`, others as ignore_value (Paddle 1.8.5 shard_index_op.h)."""
    if index_num <= 0:
        raise ctx.error(f"index_num must be positive, found {index_num}")
    if nshards <= 0:
        raise ctx.error(f"nshards must be positive, found {nshards}")
    if not 0 <= shard_id < nshards:
        raise ctx.error(f"shard_id must be in [0, {nshards}), found {shard_id}")
    ctx.require_within(X, index_num, lambda found: f"X must lie in [0, {index_num}), the index_num, found {found}")
    size = (index_num + nshards - 1) // nshards
    return ctx.xp.where(X // size == shard_id, X % size, X.dtype.type(ignore_value))


@shard_index.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    if X.rank < 2 and not saved_since(ctx, 2, 0):
        raise ctx.error(f"X must have at least two dimensions, found shape {shape_text(X.shape)}")
    return X
