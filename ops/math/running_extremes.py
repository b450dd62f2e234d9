"""cummax and cummin: the extreme so far along one dimension, and where it stands (Paddle 2.x)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

ATTRS: dict[str, Any] = {"axis": -1, "dtype": 3}


@op("cummax", inputs="x", outputs="out indices", attrs=ATTRS)
def cummax(ctx: OpContext, x: Any, *, axis: int, dtype: int) -> dict[str, Any]:
    """The greatest element so far along `axis`, and its index; the last of equal ones."""
    return _running(ctx, x, axis, dtype, ctx.xp.greater_equal)


@op("cummin", inputs="x", outputs="out indices", attrs=ATTRS)
def cummin(ctx: OpContext, x: Any, *, axis: int, dtype: int) -> dict[str, Any]:
    """The smallest element so far along `axis`, and its index; the last of equal ones."""
    return _running(ctx, x, axis, dtype, ctx.xp.less_equal)


def _running(ctx: OpContext, x: Any, axis: int, dtype: int, beats: Any) -> dict[str, Any]:
    rank = max(x.ndim, 1)
    if not -rank <= axis < rank:
        raise ctx.error(f"axis {axis} is out of range for x of shape {shape_text(x.shape)}")
    values = ctx.xp.moveaxis(x.reshape(x.shape or (1,)), axis, 0)
    best, place = values[:1], ctx.xp.zeros((1, *values.shape[1:]), ctx.dtype(dtype))
    outs, places = [best], [place]
    for i in range(1, len(values)):
        better = beats(values[i : i + 1], best) | (values[i : i + 1] != values[i : i + 1])
        best = ctx.xp.where(better, values[i : i + 1], best)
        place = ctx.xp.where(better, place.dtype.type(i), place)
        outs.append(best)
        places.append(place)
    if not len(values):
        outs, places = [values], [values.astype(place.dtype)]
    out = ctx.xp.moveaxis(ctx.xp.concatenate(outs), 0, axis)
    return {
        "out": out.reshape(x.shape),
        "indices": ctx.xp.moveaxis(ctx.xp.concatenate(places), 0, axis).reshape(x.shape),
    }


def _extremes(ctx: InferContext, x: TensorMeta, *, dtype: int) -> dict[str, TensorMeta]:
    return {"out": x, "indices": x.with_dtype(VarType(dtype))}


def _to_its_place(ctx: OpContext, x: Any, indices: Any, out_grad: Any, *, axis: int) -> Any:
    """dx = dout, added up at the index that each output came from."""
    rank = max(x.ndim, 1)
    length = x.shape[axis] if x.ndim else 1
    place = ctx.xp.moveaxis(indices.reshape(x.shape or (1,)), axis, 0).reshape(length, -1)
    grad = ctx.xp.moveaxis(out_grad.reshape(x.shape or (1,)), axis, 0)
    flat = grad.reshape(length, -1)
    total = ctx.xp.zeros_like(flat)
    columns = ctx.xp.broadcast_to(ctx.xp.arange(flat.shape[1]), flat.shape)
    ctx.add_at(total, (place, columns), flat)
    return ctx.xp.moveaxis(total.reshape(grad.shape), 0, axis % rank).reshape(x.shape)


for _info in (cummax, cummin):
    _info.infer(_extremes)
    _info.grad(inputs="x indices out@GRAD", outputs="x@GRAD")(_to_its_place)
