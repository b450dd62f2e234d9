"""row_conv (lookahead convolution) and conv_shift (circular convolution)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import rows_multiply_adds
from fluidtool.ops.nn.precision import require_rank, require_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


def _steps_left(ctx: OpContext, X: Any, Filter: Any) -> tuple[Any, Any]:
    """(X as [batch, time, width], for each step how many steps its sequence has from there on)."""
    require_rank(ctx, "Filter", Filter, 2)
    require_shape(ctx, "Filter", Filter, (len(Filter), X.shape[-1]), "as wide as X")
    lod = ctx.lod("X")
    if not lod:
        require_rank(ctx, "X", X, 3)
        return X, ctx.xp.arange(X.shape[1], 0, -1)
    if len(lod) != 1 or X.ndim != 2:
        raise ctx.error(f"input X must be (steps, width) with a LoD of one level, found {X.shape} and {lod}")
    left = [end - step for start, end in zip(lod[0], lod[0][1:], strict=False) for step in range(start, end)]
    return X[None], ctx.array(ctx.np.asarray(left, dtype="int64"))


@op("row_conv", inputs="X Filter", outputs="Out", lod="X", multiply_adds=rows_multiply_adds("X", "Filter"))
def row_conv(ctx: OpContext, X: Any, Filter: Any) -> Any:
    """Out[t] = sum over w of Filter[w] * X[t + w] within a sequence; X [steps, width] with LoD, or [batch, time, width].

    Filter is [future context, width] (Paddle 1.8.5 row_conv_op.cc).
    """
    x, left = _steps_left(ctx, X, Filter)
    out = ctx.xp.zeros_like(x)
    for ahead in range(min(len(Filter), x.shape[1])):
        steps = x.shape[1] - ahead
        out[:, :steps] += x[:, ahead:] * Filter[ahead] * (left[:steps] > ahead)[:, None]
    return out.reshape(X.shape)


@row_conv.infer
def _(ctx: InferContext, X: TensorMeta, Filter: TensorMeta) -> TensorMeta:
    if Filter.rank != 2:
        raise ctx.error(f"input Filter must have 2 dimensions, found shape {Filter.shape}")
    return X


@row_conv.grad(inputs="X Filter Out@GRAD", outputs="X@GRAD Filter@GRAD")
def row_conv_grad(ctx: OpContext, X: Any, Filter: Any, Out_grad: Any) -> dict[str, Any]:
    """Gradients by X and Filter."""
    require_shape(ctx, "Out@GRAD", Out_grad, X.shape, "the shape of X")
    x, left = _steps_left(ctx, X, Filter)
    grad = Out_grad.reshape(x.shape)
    x_grad, filter_grad = ctx.xp.zeros_like(x), ctx.xp.zeros_like(Filter)
    for ahead in range(min(len(Filter), x.shape[1])):
        steps = x.shape[1] - ahead
        part = grad[:, :steps] * (left[:steps] > ahead)[:, None]
        x_grad[:, ahead:] += part * Filter[ahead]
        filter_grad[ahead] = (part * x[:, ahead:]).sum(axis=(0, 1))
    return {"X@GRAD": x_grad.reshape(X.shape), "Filter@GRAD": filter_grad}


@row_conv_grad.infer
def _(ctx: InferContext, X: TensorMeta, Filter: TensorMeta, Out_grad: TensorMeta) -> dict[str, TensorMeta]:
    return {"X@GRAD": X.with_lod_level(0), "Filter@GRAD": Filter}


def _require_shift(ctx: OpContext | InferContext, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    if not (len(x) == 2 and len(y) == 2 and (x[0] == y[0] or -1 in (x[0], y[0]))):
        raise ctx.error(
            f"inputs X and Y must be (batch, width) with one batch size, found {shape_text(x)} and {shape_text(y)}"
        )
    if not (-1 in (x[1], y[1]) or (y[1] % 2 == 1 and y[1] <= x[1])):
        raise ctx.error(f"input Y must have an odd width of at most {x[1]}, the width of X, found {shape_text(y)}")


@op("conv_shift", inputs="X Y", outputs="Out", lod="X")
def conv_shift(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Out[i] = sum over j of X[(i + j - half) mod width] * Y[j], row by row; Y has an odd width (conv_shift_op.cc)."""
    _require_shift(ctx, X.shape, Y.shape)
    half = (Y.shape[1] - 1) // 2
    out = ctx.xp.zeros_like(X)
    for j in range(Y.shape[1]):
        out += ctx.xp.roll(X, half - j, axis=1) * Y[:, j : j + 1]
    return out


@conv_shift.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    _require_shift(ctx, X.shape, Y.shape)
    return X


@conv_shift.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD")
def conv_shift_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any) -> dict[str, Any]:
    """Gradients by X and Y."""
    half = (Y.shape[1] - 1) // 2
    x_grad, y_grad = ctx.xp.zeros_like(X), ctx.xp.zeros_like(Y)
    for j in range(Y.shape[1]):
        x_grad += ctx.xp.roll(Out_grad * Y[:, j : j + 1], j - half, axis=1)
        y_grad[:, j] = (Out_grad * ctx.xp.roll(X, half - j, axis=1)).sum(axis=1)
    return {"X@GRAD": x_grad, "Y@GRAD": y_grad}
