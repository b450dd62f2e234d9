"""prior_box: the default boxes of SSD for every cell of a feature map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.grid import centers, check_grid, repeated, steps
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOATS, USE_MKLDNN, TensorMeta, floats, limited, required


def expand_aspect_ratios(aspect_ratios: Sequence[float], flip: bool) -> list[float]:
    """1, then each new ratio, followed by its inverse if `flip` (Paddle's ExpandAspectRatios)."""
    expanded = [1.0]
    for ratio in aspect_ratios:
        if all(abs(ratio - known) >= 1e-6 for known in expanded):
            expanded += [ratio, 1.0 / ratio] if flip else [ratio]
    return expanded


def check_sizes(
    ctx: OpContext | InferContext, min_sizes: Sequence[float], max_sizes: Sequence[float], ratios: Sequence[float]
) -> None:
    """Fail on sizes that are not positive, or on a max_size that is not above its min_size."""
    if not (len(min_sizes) > 0 and min(min_sizes) > 0):
        raise ctx.error(f"attribute min_sizes needs numbers above 0, found {list(min_sizes)}")
    if not all(r > 0 for r in ratios):
        raise ctx.error(f"attribute aspect_ratios needs numbers above 0, found {list(ratios)}")
    if max_sizes and not (
        len(max_sizes) == len(min_sizes) and all(b > a for a, b in zip(min_sizes, max_sizes, strict=True))
    ):
        raise ctx.error(
            f"attribute max_sizes must give one larger number for each of min_sizes {list(min_sizes)}, "
            f"found {list(max_sizes)}"
        )


def around(ctx: OpContext, center_x: Any, center_y: Any, half_width: Any, half_height: Any, Image: Any) -> Any:
    """Boxes [H, W, P, 4] of the given half sizes [P] around every center, relative to the image."""
    xp, height, width = ctx.xp, Image.shape[2], Image.shape[3]
    cx, cy = center_x[None, :, None], center_y[:, None, None]
    sides = (
        (cx - half_width) / width,
        (cy - half_height) / height,
        (cx + half_width) / width,
        (cy + half_height) / height,
    )
    return xp.stack(xp.broadcast_arrays(*sides), axis=-1)


def half_sizes(
    ctx: OpContext, min_sizes: Sequence[float], max_sizes: Sequence[float], ratios: Sequence[float], max_first: bool
) -> list[tuple[float, float]]:
    """Half widths and heights of one cell's boxes, in order. Paddle takes roots in float64, from 2.0 on in float32."""
    single = ctx.np.float32
    number = single if saved_since(ctx, 2, 0) else ctx.np.float64
    halves = []
    for position, size in enumerate(map(single, min_sizes)):
        roots = [number(ratio) ** 0.5 for ratio in map(single, ratios) if not (max_first and abs(ratio - 1) < 1e-6)]
        shaped = [(float(size * root) / 2, float(size / root) / 2) for root in roots]
        largest = []
        if max_sizes:
            side = float(number(size * single(max_sizes[position])) ** 0.5) / 2
            largest = [(side, side)]
        halves += [(float(size) / 2, float(size) / 2), *largest, *shaped] if max_first else [*shaped, *largest]
    return halves


@op(
    "prior_box",
    inputs="Input Image",
    outputs="Boxes Variances",
    attrs={
        "min_sizes": required(FLOATS),
        "max_sizes": floats(),
        "aspect_ratios": required(FLOATS),
        "variances": required(FLOATS),
        "flip": True,
        "clip": True,
        "step_w": limited(0.0, 0.0),
        "step_h": limited(0.0, 0.0),
        "offset": 0.5,
        "min_max_aspect_ratios_order": False,
        "use_quantizer": False,
        **USE_MKLDNN,
    },
)
def prior_box(
    ctx: OpContext,
    Input: Any,
    Image: Any,
    *,
    min_sizes: list[float],
    max_sizes: list[float],
    aspect_ratios: list[float],
    variances: list[float],
    flip: bool,
    clip: bool,
    step_w: float,
    step_h: float,
    offset: float,
    min_max_aspect_ratios_order: bool,
) -> dict[str, Any]:
    """Prior boxes [H, W, P, 4] relative to Image for every cell of Input, NCHW both (Paddle 1.8.5 prior_box_op.h)."""
    check_grid(ctx, "Input", Input, variances)
    check_grid(ctx, "Image", Image, variances)
    check_sizes(ctx, min_sizes, max_sizes, aspect_ratios)
    halves = half_sizes(
        ctx, min_sizes, max_sizes, expand_aspect_ratios(aspect_ratios, flip), min_max_aspect_ratios_order
    )
    half = ctx.array(ctx.np.asarray(halves, Input.dtype))
    step_width, step_height = steps(Input, Image, step_w, step_h)
    center_x = centers(ctx, Input.shape[3], offset, step_width, Input.dtype)
    center_y = centers(ctx, Input.shape[2], offset, step_height, Input.dtype)
    boxes = around(ctx, center_x, center_y, half[:, 0], half[:, 1], Image)
    if clip:
        boxes = boxes.clip(0, 1)
    return {"Boxes": boxes, "Variances": repeated(ctx, variances, boxes)}


@prior_box.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    Image: TensorMeta,
    *,
    min_sizes: list[float],
    max_sizes: list[float],
    aspect_ratios: list[float],
    variances: list[float],
    flip: bool,
) -> dict[str, TensorMeta]:
    check_grid(ctx, "Input", Input, variances)
    check_grid(ctx, "Image", Image, variances)
    check_sizes(ctx, min_sizes, max_sizes, aspect_ratios)
    count = len(expand_aspect_ratios(aspect_ratios, flip)) * len(min_sizes) + len(max_sizes)
    boxes = TensorMeta((Input.shape[2], Input.shape[3], count, 4), Input.dtype)
    return {"Boxes": boxes, "Variances": boxes}
