"""data_norm: normalization by statistics that are gathered over a whole data set."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.nn.precision import require_floating, require_rank, require_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta, limited

DATA_NORM: dict[str, Any] = {
    "epsilon": limited(1e-4, 0.0, 0.001),
    "slot_dim": -1,
    "summary_decay_rate": 0.9999999,
    "enable_scale_and_shift": False,
    "data_layout": "NCHW",
    "sync_stats": False,
    **USE_MKLDNN,
}
SHOW_PRECISION = 1e-7


def _shown(ctx: OpContext, X: Any, slot_dim: int) -> Any:
    """1 where the slot of a cell was shown: slots are `slot_dim` wide, and the first cell of one that was not is zero."""
    if X.shape[1] % slot_dim != 0:
        raise ctx.error(f"attribute slot_dim {slot_dim} must divide the width of X {X.shape}")
    shown = ctx.xp.abs(X[:, ::slot_dim]) >= SHOW_PRECISION
    return ctx.xp.repeat(shown, slot_dim, axis=1)


def _require_scale(ctx: OpContext, scale_w: Any, bias: Any, width: int) -> None:
    for slot, value in {"scale_w": scale_w, "bias": bias}.items():
        if value is None:
            raise ctx.error(f"enable_scale_and_shift is set, but the input {slot} is missing")
        require_shape(ctx, slot, value, (width,), "the width of X")


@op(
    "data_norm",
    inputs="scale_w? bias? X BatchSize BatchSum BatchSquareSum",
    outputs="Y Means~ Scales~",
    attrs=DATA_NORM,
    lod="X->Y",
)
def data_norm(
    ctx: OpContext,
    scale_w: Any,
    bias: Any,
    X: Any,
    BatchSize: Any,
    BatchSum: Any,
    BatchSquareSum: Any,
    *,
    slot_dim: int,
    enable_scale_and_shift: bool,
) -> dict[str, Any]:
    """Y = (X - Means) * Scales, Means = BatchSum / BatchSize, Scales = sqrt(BatchSize / BatchSquareSum), X [N, C].

    enable_scale_and_shift multiplies by scale_w and adds bias; with slot_dim, slots that were not shown give zeros
    (Paddle 1.8.5 data_norm_op.cc).
    """
    require_floating(ctx, "X", X)
    require_rank(ctx, "X", X, 2)
    for slot, value in {"BatchSize": BatchSize, "BatchSum": BatchSum, "BatchSquareSum": BatchSquareSum}.items():
        require_shape(ctx, slot, value, (X.shape[1],), "the width of X")
    means, scales = BatchSum / BatchSize, ctx.xp.sqrt(BatchSize / BatchSquareSum)
    out = (X - means) * scales
    if enable_scale_and_shift:
        _require_scale(ctx, scale_w, bias, X.shape[1])
        out = out * scale_w + bias
    if slot_dim > 0:
        out = out * _shown(ctx, X, slot_dim)
    return {"Y": out, "Means": means, "Scales": scales}


@data_norm.infer
def _(
    ctx: InferContext,
    scale_w: TensorMeta | None,
    bias: TensorMeta | None,
    X: TensorMeta,
    BatchSize: TensorMeta,
    BatchSum: TensorMeta,
    BatchSquareSum: TensorMeta,
) -> dict[str, TensorMeta]:
    if not 2 <= X.rank <= 5:
        raise ctx.error(f"input X must have 2 to 5 dimensions, found shape {X.shape}")
    statistic = X.with_shape([X.shape[1] if ctx.attr("data_layout") == "NCHW" else X.shape[-1]]).with_lod_level(0)
    return {"Y": X, "Means": statistic, "Scales": statistic}


@data_norm.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """The statistics are outputs too: Paddle's GPU kernel moves them on; its CPU kernel leaves that to the gradients."""
    inputs = {slot: context.input(slot) for slot in ("X", "scale_w", "bias")}
    inputs |= {slot: context.output(slot) for slot in ("Scales", "Means")}
    inputs["Y@GRAD"] = context.output_grad("Y")
    statistics = ("BatchSize", "BatchSum", "BatchSquareSum")
    outputs = {slot: context.input(slot) for slot in statistics}
    outputs |= {slot + "@GRAD": context.input_grad(slot) for slot in ("X", *statistics, "scale_w", "bias")}
    return [context.describe("data_norm_grad", inputs, outputs)]


@op(
    "data_norm_grad",
    inputs="X scale_w? bias? Scales Means Y@GRAD",
    outputs="X@GRAD BatchSize@GRAD BatchSum@GRAD BatchSquareSum@GRAD scale_w@GRAD bias@GRAD BatchSize BatchSum BatchSquareSum",
    attrs=DATA_NORM,
)
def data_norm_grad(
    ctx: OpContext,
    X: Any,
    scale_w: Any,
    bias: Any,
    Scales: Any,
    Means: Any,
    Y_grad: Any,
    *,
    slot_dim: int,
    epsilon: float,
    enable_scale_and_shift: bool,
) -> dict[str, Any]:
    """X@GRAD; as gradients of the statistics what this batch adds to them: the counts, sums and squares of X.

    With slot_dim only shown slots count, and what they add is an average over them.
    """
    xp, dtype = ctx.xp, X.dtype
    shown = _shown(ctx, X, slot_dim) if slot_dim > 0 else xp.ones(X.shape, dtype=bool)
    grads = {"X@GRAD": Y_grad * Scales}
    if enable_scale_and_shift:
        _require_scale(ctx, scale_w, bias, X.shape[1])
        grad = Y_grad * shown
        grads["X@GRAD"] = grad * Scales * scale_w
        grads["scale_w@GRAD"] = ((X - Means) * Scales * grad).sum(axis=0)
        grads["bias@GRAD"] = grad.sum(axis=0)
    count = shown.sum(axis=0).astype(dtype)
    total, square = (X * shown).sum(axis=0), (xp.square(X - Means) * shown).sum(axis=0)
    epsilon = dtype.type(epsilon)
    if slot_dim > 0 and len(X):
        divisor = xp.maximum(count, 1)
        total = total / divisor
        square = xp.where(count >= 1, square / divisor + count * epsilon, square)
        count = xp.minimum(count, 1)
    else:
        square = square + count * epsilon
    return {**grads, "BatchSize@GRAD": count, "BatchSum@GRAD": total, "BatchSquareSum@GRAD": square}
