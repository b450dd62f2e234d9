"""prelu: a leaky relu with learned slopes."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


@op("prelu", inputs="X Alpha", outputs="Out", attrs={"mode": "all"}, lod="X")
def prelu(ctx: OpContext, X: Any, Alpha: Any, *, mode: str) -> Any:
    """X where X > 0, else X * Alpha: one slope for `all`, one per channel, or one per element of a sample.

    Channels are dimension 1; the last one with data_format NHWC of Paddle 2.x (prelu_op.h).
    """
    slopes = _slopes(ctx, X, Alpha, mode)
    return ctx.xp.where(X > 0, X, X * slopes)


@prelu.infer
def _(ctx: InferContext, X: TensorMeta, Alpha: TensorMeta) -> TensorMeta:
    return X


@prelu.grad(inputs="X Alpha Out@GRAD", outputs="X@GRAD Alpha@GRAD")
def prelu_grad(ctx: OpContext, X: Any, Alpha: Any, Out_grad: Any, *, mode: str) -> dict[str, Any]:
    """dX = dOut where X > 0, else dOut * Alpha; dAlpha = the sum of dOut * X where X <= 0."""
    slopes = _slopes(ctx, X, Alpha, mode)
    grads: dict[str, Any] = {}
    if ctx.wants("X@GRAD"):
        grads["X@GRAD"] = ctx.xp.where(X > 0, Out_grad, Out_grad * slopes)
    if ctx.wants("Alpha@GRAD"):
        shared = tuple(i for i in range(X.ndim) if slopes.shape[i] == 1)
        grads["Alpha@GRAD"] = (Out_grad * X * (X <= 0)).sum(axis=shared, dtype=X.dtype).reshape(Alpha.shape)
    return grads


def _slopes(ctx: OpContext, X: Any, Alpha: Any, mode: str) -> Any:
    """Alpha in a shape that broadcasts to X."""
    if mode == "all":
        shape = [1] * X.ndim
    elif mode == "channel":
        if X.ndim <= 1:
            raise ctx.error(f"mode channel needs an X of at least 2 dimensions, found shape {shape_text(X.shape)}")
        channel = X.ndim - 1 if later_attr(ctx, "data_format", "NCHW").endswith("C") else 1
        shape = [X.shape[i] if i == channel else 1 for i in range(X.ndim)]
    elif mode == "element":
        shape = [1, *X.shape[1:]]
    else:
        raise ctx.error(f"mode must be all, channel or element, found {mode!r}")
    expected = 1
    for size in shape:
        expected *= size
    if Alpha.size != expected:
        raise ctx.error(
            f"Alpha of shape {shape_text(Alpha.shape)} must hold {expected} slopes for mode {mode} "
            f"and X of shape {shape_text(X.shape)}"
        )
    return Alpha.reshape(shape)
