"""label_smooth: labels mixed with a prior distribution."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


@op("label_smooth", inputs="X PriorDist?", outputs="Out", attrs={"epsilon": 0.0}, lod="X")
def label_smooth(ctx: OpContext, X: Any, PriorDist: Any, *, epsilon: float) -> Any:
    """Out = (1 - epsilon) * X + epsilon * prior; the prior [1, classes] is uniform when absent (label_smooth_op.h)."""
    _check(ctx, X, PriorDist)
    if PriorDist is None:
        return _kept(ctx, epsilon) * X + float(ctx.np.float32(epsilon) / X.shape[-1])
    return _kept(ctx, epsilon) * X + epsilon * PriorDist.reshape(-1)


def _kept(ctx: OpContext, epsilon: float) -> float:
    """1 - epsilon, rounded to float32 whatever the data type of X."""
    return float(1 - ctx.np.float32(epsilon))


def _check(ctx: OpContext | InferContext, X: Any, PriorDist: Any) -> None:
    if PriorDist is not None:
        shape = tuple(PriorDist.shape)
        if not (len(shape) == 2 and shape[0] in (1, -1) and (shape[1] == X.shape[-1] or -1 in (shape[1], X.shape[-1]))):
            raise ctx.error(
                f"input PriorDist must have shape (1, {X.shape[-1]}), one probability per class, found {shape_text(shape)}"
            )


@label_smooth.infer
def _(ctx: InferContext, X: TensorMeta, PriorDist: TensorMeta | None) -> TensorMeta:
    _check(ctx, X, PriorDist)
    return X


@label_smooth.grad(inputs="Out@GRAD", outputs="X@GRAD")
def label_smooth_grad(ctx: OpContext, Out_grad: Any, *, epsilon: float) -> Any:
    """dX = (1 - epsilon) * dOut."""
    return _kept(ctx, epsilon) * Out_grad
