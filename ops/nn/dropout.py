"""dropout and dropout_nd: zero a random part of the elements while training."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.precision import require_floating
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints, one_of, or_variable
from fluidtool.proto.enums import VarType

DROPOUT: dict[str, Any] = {
    "dropout_prob": or_variable(0.5),
    "is_test": False,
    "fix_seed": False,
    "seed": 0,
    "dropout_implementation": one_of("downgrade_in_infer", "downgrade_in_infer", "upscale_in_train"),
}


def scales_up(ctx: OpContext, dropout_prob: float) -> bool:
    """Whether training scales up (upscale_in_train) instead of inference scaling down (downgrade_in_infer)."""
    if not 0 <= dropout_prob <= 1:
        raise ctx.error(f"attribute dropout_prob must be between 0 and 1, found {dropout_prob}")
    implementation = ctx.attr("dropout_implementation")
    if implementation not in ("upscale_in_train", "downgrade_in_infer"):
        raise ctx.error(
            f"attribute dropout_implementation must be 'upscale_in_train' or 'downgrade_in_infer', found {implementation!r}"
        )
    return bool(implementation == "upscale_in_train")


def _drop(ctx: OpContext, X: Any, Seed: Any, mask_shape: tuple[int, ...]) -> dict[str, Any]:
    require_floating(ctx, "X", X)
    rate = ctx.attr("dropout_prob")
    upscales = scales_up(ctx, rate)
    if ctx.attr("is_test"):
        return {"Out": X if upscales else X * X.dtype.type(1 - rate)}
    seed = ctx.attr("seed") if ctx.attr("fix_seed") else 0
    if Seed is not None:
        seed = int(ctx.host(Seed).reshape(-1)[0])
    keep = ctx.random(mask_shape, "float32", seed) >= rate
    out = X * keep
    if upscales and rate < 1:
        out = out * X.dtype.type(1 / (1 - rate))
    return {"Out": out, "Mask": ctx.xp.broadcast_to(keep, X.shape).astype("uint8")}


def _drop_grad(ctx: OpContext, Mask: Any, out_grad: Any) -> Any:
    rate = ctx.attr("dropout_prob")
    grad = out_grad * Mask.astype(out_grad.dtype)
    if scales_up(ctx, rate) and rate < 1:
        grad = grad * out_grad.dtype.type(1 / (1 - rate))
    return grad


def _infer(ctx: InferContext, X: TensorMeta) -> dict[str, TensorMeta]:
    probability = ctx.attr("dropout_prob")
    if not 0.0 <= probability <= 1.0:
        raise ctx.error(f"'dropout_prob' must be between 0.0 and 1.0, found {probability}")
    if ctx.attr("is_test"):
        return {"Out": X}
    return {"Out": X, "Mask": X.with_dtype(VarType.UINT8).with_lod_level(0)}


@op("dropout", inputs="X Seed?", outputs="Out Mask~", attrs=DROPOUT, lod="X->Out", random=True)
def dropout(ctx: OpContext, X: Any, Seed: Any) -> dict[str, Any]:
    """Out = X where Mask (uint8) is 1, else 0; floating point (Paddle 1.8.5 dropout_op.h).

    upscale_in_train divides by 1 - dropout_prob while training; downgrade_in_infer multiplies by it under is_test, which
    gives no Mask. The numbers drawn are not those of Paddle's generator; a seed makes them repeatable.
    """
    return _drop(ctx, X, Seed, X.shape)


@dropout.infer
def _(ctx: InferContext, X: TensorMeta, Seed: TensorMeta | None) -> dict[str, TensorMeta]:
    return _infer(ctx, X)


@dropout.grad(inputs="Mask Out@GRAD", outputs="X@GRAD", lod="Out@GRAD")
def dropout_grad(ctx: OpContext, Mask: Any, Out_grad: Any) -> Any:
    """dX = dOut where Mask is 1, scaled as the forward was."""
    return _drop_grad(ctx, Mask, Out_grad)


@op(
    "dropout_nd",
    inputs="X Seed?",
    outputs="Out Mask~",
    attrs={**DROPOUT, "axis": ints()},
    lod="X->Out",
    random=True,
)
def dropout_nd(ctx: OpContext, X: Any, Seed: Any, *, axis: list[int]) -> dict[str, Any]:
    """dropout that keeps or drops whole slices: one draw per index of the axes in `axis` (Paddle 2.6 dropout_nd)."""
    if not all(-X.ndim <= a < X.ndim for a in axis):
        raise ctx.error(f"attribute axis {axis} is out of range for X of shape {X.shape}")
    kept = {a % X.ndim for a in axis} or set(range(X.ndim))
    return _drop(ctx, X, Seed, tuple(size if a in kept else 1 for a, size in enumerate(X.shape)))


@dropout_nd.infer
def _(ctx: InferContext, X: TensorMeta, Seed: TensorMeta | None) -> dict[str, TensorMeta]:
    return _infer(ctx, X)


@dropout_nd.grad(inputs="Mask Out@GRAD", outputs="X@GRAD", lod="Out@GRAD")
def dropout_nd_grad(ctx: OpContext, Mask: Any, Out_grad: Any) -> Any:
    """dX = dOut where Mask is 1, scaled as the forward was."""
    return _drop_grad(ctx, Mask, Out_grad)
