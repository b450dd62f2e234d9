"""add_position_encoding: sinusoids of the position added to the features."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, limited
from fluidtool.ops.sequence.picking import row_positions, single_level


@op(
    "add_position_encoding",
    inputs="X",
    outputs="Out",
    attrs={"alpha": limited(1.0, 0.0), "beta": limited(1.0, 0.0)},
    lod="X",
)
def add_position_encoding(ctx: OpContext, X: Any, *, alpha: float, beta: float) -> Any:
    """Out = alpha * X + beta * [sin(p / 10000^(k / (h - 1))), cos(…)], p the position, h half the features.

    X [n, length, D] or, with a LoD, [T, D]; D even (Paddle 1.8.5 add_position_encoding_op.h).
    """
    np, lod = ctx.np, ctx.lod("X")
    expected = 2 if lod else 3
    if X.ndim != expected:
        raise ctx.error(f"X must have {expected} dimensions {'with' if lod else 'without'} a LoD, found {X.shape}")
    if X.shape[-1] % 2 != 0:
        raise ctx.error(f"the last dimension of X must be even, found {X.shape[-1]}")
    half = X.shape[-1] // 2
    positions = row_positions(ctx, single_level(ctx, "X", X.shape[0])) if lod else np.arange(X.shape[1])
    wavelengths = 10000.0 ** (np.arange(half) / (half - 1) if half > 1 else np.ones(half))
    angles = positions[:, None] / wavelengths
    encoding = ctx.array(beta * np.concatenate([np.sin(angles), np.cos(angles)], axis=1))
    return (X * X.dtype.type(alpha) + encoding).astype(X.dtype)


@add_position_encoding.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@add_position_encoding.grad(inputs="Out@GRAD", outputs="X@GRAD")
def add_position_encoding_grad(ctx: OpContext, Out_grad: Any, *, alpha: float) -> Any:
    """dX = alpha * dOut."""
    return Out_grad * Out_grad.dtype.type(alpha)
