"""The grid of cells that prior boxes and anchors are laid on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext


def check_grid(ctx: OpContext | InferContext, slot: str, tensor: Any, variances: Sequence[float]) -> None:
    """Fail unless the tensor is NCHW and the variances are four positive numbers."""
    if len(tensor.shape) != 4:
        raise ctx.error(f"input {slot} must be (N, C, H, W), found {len(tensor.shape)} dimensions {tensor.shape}")
    if not (len(variances) == 4 and min(variances) > 0):
        raise ctx.error(f"attribute variances must be four numbers above 0, found {list(variances)}")


def centers(ctx: OpContext, size: int, offset: float, step: Any, dtype: Any) -> Any:
    """(i + offset) * step for each cell of one axis."""
    return (ctx.xp.arange(size, dtype=dtype) + dtype.type(offset)) * dtype.type(step)


def steps(Input: Any, Image: Any, step_w: float, step_h: float) -> tuple[Any, Any]:
    """How far neighboring cells lie apart in the image, x and y, in the dtype of Input."""
    number = Input.dtype.type
    if step_w == 0 or step_h == 0:
        return number(Image.shape[3]) / number(Input.shape[3]), number(Image.shape[2]) / number(Input.shape[2])
    return number(step_w), number(step_h)


def repeated(ctx: OpContext, variances: Sequence[float], like: Any) -> Any:
    """The variances, one copy for every box of `like`."""
    return ctx.xp.broadcast_to(ctx.array(ctx.np.asarray(variances, like.dtype)), like.shape).copy()
