"""anchor_generator: the anchors of Faster R-CNN for every cell of a feature map."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import round_away
from fluidtool.ops.detection.grid import check_grid, repeated
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOATS, TensorMeta, floats, required


@op(
    "anchor_generator",
    inputs="Input",
    outputs="Anchors Variances",
    attrs={
        "anchor_sizes": required(FLOATS),
        "aspect_ratios": required(FLOATS),
        "variances": required(FLOATS),
        "stride": floats(16.0, 16.0),
        "offset": 0.5,
    },
)
def anchor_generator(
    ctx: OpContext,
    Input: Any,
    *,
    anchor_sizes: list[float],
    aspect_ratios: list[float],
    variances: list[float],
    stride: list[float],
    offset: float,
) -> dict[str, Any]:
    """Anchors [H, W, A, 4] in pixels of the image for every cell of Input, NCHW (Paddle 1.8.5 anchor_generator_op.h)."""
    check_grid(ctx, "Input", Input, variances)
    _check_anchors(ctx, anchor_sizes, aspect_ratios, stride)
    xp, number = ctx.xp, Input.dtype.type
    step_x, step_y = map(number, stride)
    halves = []
    for ratio in map(number, aspect_ratios):
        base_width = round_away(ctx.np, number(sqrt(step_x * step_y / ratio)))
        base_height = round_away(ctx.np, number(base_width * ratio))
        for size in map(number, anchor_sizes):
            halves.append((0.5 * (size / step_x * base_width - 1), 0.5 * (size / step_y * base_height - 1)))
    half = ctx.array(ctx.np.asarray(halves, Input.dtype))
    x = xp.arange(Input.shape[3], dtype=Input.dtype) * step_x + number(offset) * (step_x - 1)
    y = xp.arange(Input.shape[2], dtype=Input.dtype) * step_y + number(offset) * (step_y - 1)
    x, y = x[None, :, None], y[:, None, None]
    sides = (x - half[:, 0], y - half[:, 1], x + half[:, 0], y + half[:, 1])
    anchors = xp.stack(xp.broadcast_arrays(*sides), axis=-1)
    return {"Anchors": anchors, "Variances": repeated(ctx, variances, anchors)}


def _check_anchors(
    ctx: OpContext | InferContext, sizes: Sequence[float], ratios: Sequence[float], stride: Sequence[float]
) -> None:
    if not (len(stride) == 2 and min(stride) > 0):
        raise ctx.error(f"attribute stride must be two numbers above 0, found {list(stride)}")
    for name, values in (("anchor_sizes", sizes), ("aspect_ratios", ratios)):
        if not (len(values) > 0 and min(values) > 0):
            raise ctx.error(f"attribute {name} needs numbers above 0, found {list(values)}")


@anchor_generator.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    *,
    anchor_sizes: list[float],
    aspect_ratios: list[float],
    variances: list[float],
    stride: list[float],
) -> dict[str, TensorMeta]:
    check_grid(ctx, "Input", Input, variances)
    _check_anchors(ctx, anchor_sizes, aspect_ratios, stride)
    count = len(anchor_sizes) * len(aspect_ratios)
    anchors = TensorMeta((Input.shape[2], Input.shape[3], count, 4), Input.dtype)
    return {"Anchors": anchors, "Variances": anchors}
