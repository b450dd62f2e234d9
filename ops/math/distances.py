"""Norms of a whole tensor and distances between two: l1_norm, squared_l2_norm, squared_l2_distance, dist, cos_sim."""

from __future__ import annotations

import math
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.elementwise_common import aligned, summed_to
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


@op("l1_norm", inputs="X", outputs="Out")
def l1_norm(ctx: OpContext, X: Any) -> Any:
    """sum(|X|) as one number (l1_norm_op.h)."""
    return abs(X).sum(dtype=X.dtype).reshape(scalar_shape(ctx))


@l1_norm.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return TensorMeta(scalar_shape(ctx), X.dtype)


@l1_norm.grad(inputs="X Out@GRAD", outputs="X@GRAD")
def l1_norm_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * sign(X)."""
    return _one_number(ctx, Out_grad) * ctx.xp.sign(X)


@op("squared_l2_norm", inputs="X", outputs="Out")
def squared_l2_norm(ctx: OpContext, X: Any) -> Any:
    """sum(X²) as one number, shape [1] (squared_l2_norm_op.h)."""
    return (X * X).sum(dtype=X.dtype).reshape(1)


@squared_l2_norm.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return TensorMeta((1,), X.dtype)


@squared_l2_norm.grad(inputs="X Out@GRAD", outputs="X@GRAD")
def squared_l2_norm_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = 2 * dOut * X."""
    return _one_number(ctx, Out_grad) * X * 2


def _one_number(ctx: OpContext, Out_grad: Any) -> Any:
    if Out_grad.size != 1:
        raise ctx.error(f"Out@GRAD must hold one number, found shape {shape_text(Out_grad.shape)}")
    return Out_grad.reshape(())


@op("squared_l2_distance", inputs="X Y", outputs="sub_result~ Out", lod="X->Out")
def squared_l2_distance(ctx: OpContext, X: Any, Y: Any) -> dict[str, Any]:
    """Out [rows, 1] = the sum of sub_result², sub_result [rows, columns] = X - Y (squared_l2_distance_op.h).

    X and Y flatten to rows; Y may have a single row for all of X's.
    """
    _check_rows(ctx, X.shape, Y.shape)
    difference = X.reshape(X.shape[0], -1) - Y.reshape(Y.shape[0], -1)
    return {
        "sub_result": difference,
        "Out": (difference * difference).sum(axis=1, keepdims=True, dtype=X.dtype),
    }


@squared_l2_distance.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> dict[str, TensorMeta]:
    _check_rows(ctx, X.shape, Y.shape)
    columns = -1 if -1 in X.shape[1:] else math.prod(X.shape[1:])
    return {
        "sub_result": TensorMeta((X.shape[0], columns), X.dtype),
        "Out": TensorMeta((X.shape[0], 1), X.dtype),
    }


@squared_l2_distance.grad(inputs="X Y sub_result Out@GRAD", outputs="X@GRAD Y@GRAD")
def squared_l2_distance_grad(ctx: OpContext, X: Any, Y: Any, sub_result: Any, Out_grad: Any) -> dict[str, Any]:
    """dX = 2 * dOut * sub_result, dY = -dX, summed over the rows when Y has a single one."""
    grad = Out_grad.reshape(-1, 1) * sub_result * 2
    y_grad = grad if Y.shape[0] == X.shape[0] else grad.sum(axis=0, dtype=X.dtype)
    return {"X@GRAD": grad.reshape(X.shape), "Y@GRAD": -y_grad.reshape(Y.shape)}


def _check_rows(ctx: OpContext | InferContext, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    fits = len(x) == len(y) >= 2 and (x[0] == -1 or y[0] in (1, -1, x[0]))
    known = -1 not in x[1:] + y[1:]
    if not (fits and (not known or math.prod(x[1:]) == math.prod(y[1:]))):
        raise ctx.error(
            f"X and Y must have rows of one length, and Y as many rows as X or one, found {shape_text(x)} and {shape_text(y)}"
        )


@op("dist", inputs="X Y", outputs="Out", attrs={"p": 2.0})
def dist(ctx: OpContext, X: Any, Y: Any, *, p: float) -> Any:
    """The p-norm of X - Y (broadcast) as one number; p may be 0 (elements that differ), inf and -inf (dist_op.h)."""
    x, y = aligned(ctx, X, Y, -1)
    size = abs(x - y)
    if not (size.size or not math.isinf(p)):
        raise ctx.error("X and Y have no elements")
    if p == 0:
        out = (size != 0).sum()
    elif math.isinf(p):
        out = size.max() if p > 0 else size.min()
    else:
        out = ctx.xp.power(ctx.xp.power(size, X.dtype.type(p)).sum(dtype=X.dtype), X.dtype.type(1 / p))
    return out.astype(X.dtype).reshape(scalar_shape(ctx))


@dist.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return TensorMeta(scalar_shape(ctx), X.dtype)


@dist.grad(inputs="X Y Out Out@GRAD", outputs="X@GRAD Y@GRAD")
def dist_grad(ctx: OpContext, X: Any, Y: Any, Out: Any, Out_grad: Any, *, p: float) -> dict[str, Any]:
    """dX = dOut * sign(X - Y) * (|X - Y| / Out)^(p - 1), dY = -dX; 0 where X equals Y."""
    x, y = aligned(ctx, X, Y, -1)
    difference, out = x - y, Out.reshape(())
    signed = _one_number(ctx, Out_grad) * ctx.xp.sign(difference)
    if p == 0:
        grad = ctx.xp.zeros_like(difference)
    elif math.isinf(p):
        grad = signed * (abs(difference) == out)
    else:
        slope = ctx.xp.power(abs(difference) / out, X.dtype.type(p - 1))
        grad = ctx.xp.where(difference == 0, X.dtype.type(0), signed * slope)
    return {"X@GRAD": summed_to(ctx, grad, X, Y, -1), "Y@GRAD": summed_to(ctx, -grad, Y, X, -1)}


@op(
    "cos_sim",
    inputs="X Y",
    outputs="Out XNorm~ YNorm~",
    attrs={"@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@": True},
    lod="X->Out",
)
def cos_sim(ctx: OpContext, X: Any, Y: Any) -> dict[str, Any]:
    """Out [rows, 1] = the cosine between the rows of X and of Y, XNorm and YNorm their lengths (cos_sim_op.h).

    Y may have a single row for all of X's.
    """
    _check_rows(ctx, X.shape, Y.shape)
    x, y = X.reshape(X.shape[0], -1), Y.reshape(Y.shape[0], -1)
    x_norm, y_norm = _lengths(ctx, x), _lengths(ctx, y)
    return {
        "Out": (x * y).sum(axis=1, keepdims=True, dtype=x.dtype) / x_norm / y_norm,
        "XNorm": x_norm,
        "YNorm": y_norm,
    }


@cos_sim.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> dict[str, TensorMeta]:
    _check_rows(ctx, X.shape, Y.shape)
    rows = TensorMeta((X.shape[0], 1), X.dtype)
    return {"Out": rows, "XNorm": rows, "YNorm": TensorMeta((Y.shape[0], 1), X.dtype)}


@cos_sim.grad(inputs="X Y Out XNorm YNorm Out@GRAD", outputs="X@GRAD Y@GRAD")
def cos_sim_grad(ctx: OpContext, X: Any, Y: Any, Out: Any, XNorm: Any, YNorm: Any, Out_grad: Any) -> dict[str, Any]:
    """dX = dOut * (Y / (XNorm * YNorm) - Out * X / XNorm²), dY in the same way."""
    x, y = X.reshape(X.shape[0], -1), Y.reshape(Y.shape[0], -1)
    grad, out = Out_grad.reshape(-1, 1), Out.reshape(-1, 1)
    both = XNorm * YNorm
    y_grad = grad * (x / both - out * y / (YNorm * YNorm))
    if Y.shape[0] != X.shape[0]:
        y_grad = y_grad.sum(axis=0, dtype=x.dtype)
    return {
        "X@GRAD": (grad * (y / both - out * x / (XNorm * XNorm))).reshape(X.shape),
        "Y@GRAD": y_grad.reshape(Y.shape),
    }


def _lengths(ctx: OpContext, rows: Any) -> Any:
    return ctx.xp.sqrt((rows * rows).sum(axis=1, keepdims=True, dtype=rows.dtype))
