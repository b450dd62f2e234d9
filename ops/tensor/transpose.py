"""transpose and transpose2: dimensions in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, USE_MKLDNN, TensorMeta, required
from fluidtool.ops.tensor.arguments import Context, axis_in, x_shape, x_shape_meta

ATTRS = {"axis": required(INTS), "data_format": "AnyLayout", "use_quantizer": False, **USE_MKLDNN}


def permutation(ctx: Context, axis: Sequence[int], rank: int) -> list[int]:
    """The order of dimensions, counted from the front; fails unless it names each exactly once."""
    fault = f"axis must name each of the {rank} dimensions of X once, found {list(axis)}"
    if len(axis) != rank:
        raise ctx.error(fault)
    order = [axis_in(ctx, place, rank, "every entry of axis") for place in axis]
    if len(set(order)) != rank:
        raise ctx.error(fault)
    return order


def _inverse(order: list[int]) -> list[int]:
    return [order.index(place) for place in range(len(order))]


@op("transpose", inputs="X", outputs="Out", attrs=ATTRS)
def transpose(ctx: OpContext, X: Any, *, axis: list[int]) -> Any:
    """X with its dimensions in the order `axis`; the LoD does not pass (Paddle 1.8.5 transpose_op.cc)."""
    return X.transpose(permutation(ctx, axis, X.ndim))


@transpose.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: list[int]) -> TensorMeta:
    return X.with_shape([X.shape[i] for i in permutation(ctx, axis, X.rank)]).with_lod_level(0)


@transpose.grad(inputs="X Out? Out@GRAD", outputs="X@GRAD")
def transpose_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, axis: list[int]) -> Any:
    """dOut with its dimensions back in place."""
    return Out_grad.transpose(_inverse(permutation(ctx, axis, Out_grad.ndim)))


@op("transpose2", inputs="X", outputs="Out XShape~", attrs=ATTRS)
def transpose2(ctx: OpContext, X: Any, *, axis: list[int]) -> Any:
    """transpose, keeping the dimensions of X in XShape."""
    return {"Out": X.transpose(permutation(ctx, axis, X.ndim)), "XShape": x_shape(ctx, X)}


@transpose2.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: list[int]) -> dict[str, TensorMeta]:
    shape = [X.shape[i] for i in permutation(ctx, axis, X.rank)]
    return {"Out": X.with_shape(shape).with_lod_level(0), "XShape": x_shape_meta(X)}


@transpose2.grad(inputs="XShape? Out@GRAD", outputs="X@GRAD", lod="XShape")
def transpose2_grad(ctx: OpContext, XShape: Any, Out_grad: Any, *, axis: list[int]) -> Any:
    """dOut with its dimensions back in place."""
    return Out_grad.transpose(_inverse(permutation(ctx, axis, Out_grad.ndim)))
