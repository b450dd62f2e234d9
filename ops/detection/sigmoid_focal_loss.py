"""sigmoid_focal_loss: cross entropy that easy examples count little in (RetinaNet)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import exp, fits
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


def parts(ctx: OpContext, X: Any, Label: Any, FgNum: Any, alpha: float) -> tuple[Any, Any, Any, Any, Any]:
    """Sigmoid p of X in X's dtype, log p and log (1 - p) in float64, and the weights of both terms (0 where unused)."""
    xp, dtype = ctx.xp, X.dtype
    p = (1.0 / (1.0 + exp(xp, -X).astype("float64"))).astype(dtype)
    log_p = xp.log(xp.maximum(p, xp.finfo("float32").tiny).astype("float64"))
    positive = xp.maximum(X, 0).astype("float64")
    log_rest = -positive - xp.log1p(xp.exp(-abs(X.astype("float64"))))
    label = Label.reshape(-1, 1)
    is_class = label == xp.arange(1, X.shape[1] + 1)
    is_other = ~is_class & (label != -1)
    count = xp.maximum(FgNum.reshape(-1)[0], 1).astype(dtype)
    weight_pos = xp.where(is_class, dtype.type(alpha) / count, 0)
    weight_neg = xp.where(is_other, dtype.type(1.0 - alpha) / count, 0)
    return p, log_p, log_rest, weight_pos, weight_neg


@op("sigmoid_focal_loss", inputs="X Label FgNum", outputs="Out", attrs={"gamma": 2.0, "alpha": 0.25}, lod="X")
def sigmoid_focal_loss(ctx: OpContext, X: Any, Label: Any, FgNum: Any, *, gamma: float, alpha: float) -> Any:
    """-alpha (1 - p)^gamma log p for the class of a row, -(1 - alpha) p^gamma log (1 - p) for the others, over FgNum.

    X [N, C] floating point, Label [N, 1] int32 from 1 to C, 0 for background, -1 for rows that do not count; FgNum [1]
    (Paddle 1.8.5 sigmoid_focal_loss_op.h).
    """
    _check(ctx, X, Label, FgNum)
    p, log_p, log_rest, weight_pos, weight_neg = parts(ctx, X, Label, FgNum, alpha)
    term_pos = ((1 - p) ** gamma * log_p).astype(X.dtype)
    term_neg = (p**gamma * log_rest).astype(X.dtype)
    return -term_pos * weight_pos - term_neg * weight_neg


def _check(ctx: OpContext | InferContext, x: Any, label: Any, count: Any) -> None:
    if len(x.shape) != 2:
        raise ctx.error(f"input X must be (N, C), found shape {shape_text(x.shape)}")
    if not fits(label.shape, (x.shape[0], 1)):
        raise ctx.error(f"input Label must be ({x.shape[0]}, 1), found shape {shape_text(label.shape)}")
    if tuple(count.shape) not in ((1,), (-1,), ()):
        raise ctx.error(f"input FgNum must be (1,), found shape {shape_text(count.shape)}")


@sigmoid_focal_loss.infer
def _(ctx: InferContext, X: TensorMeta, Label: TensorMeta, FgNum: TensorMeta) -> TensorMeta:
    _check(ctx, X, Label, FgNum)
    return X


@sigmoid_focal_loss.grad(inputs="X Label FgNum Out@GRAD", outputs="X@GRAD")
def sigmoid_focal_loss_grad(
    ctx: OpContext, X: Any, Label: Any, FgNum: Any, Out_grad: Any, *, gamma: float, alpha: float
) -> Any:
    """The derivative by X: (1 - p)^gamma (1 - p - gamma p log p) and p^gamma (gamma (1 - p) log (1 - p) - p)."""
    p, log_p, log_rest, weight_pos, weight_neg = parts(ctx, X, Label, FgNum, alpha)
    term_pos = ((1 - p) ** gamma * (1 - p - p * gamma * log_p)).astype(X.dtype)
    term_neg = (p**gamma * (log_rest * (1 - p) * gamma - p)).astype(X.dtype)
    return (-weight_pos * term_pos - weight_neg * term_neg) * Out_grad
