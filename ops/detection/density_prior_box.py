"""density_prior_box: several boxes of each fixed size spread over every cell of a feature map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.grid import centers, check_grid, repeated, steps
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOATS, TensorMeta, floats, ints, limited, required


def density_offsets(
    fixed_sizes: Sequence[float], fixed_ratios: Sequence[float], densities: Sequence[int], step: int, np: Any
) -> Any:
    """For each box of a cell: start of its sub-grid, its shifts in x and y, its half width and height; float64 [5, boxes]."""
    single, grids = np.float32, []
    for size, density in zip(fixed_sizes, densities, strict=False):
        shift = step // density
        start = -step / 2.0 + shift / 2.0
        row, column = np.divmod(np.arange(density * density), density)
        for ratio in fixed_ratios:
            root = np.sqrt(single(ratio))
            half = float(single(size) * root) / 2, float(single(size) / root) / 2
            grids.append(np.stack(np.broadcast_arrays(start, column * shift, row * shift, *half)).astype("float64"))
    return np.concatenate(grids, axis=1)


@op(
    "density_prior_box",
    inputs="Input Image",
    outputs="Boxes Variances",
    attrs={
        "variances": required(FLOATS),
        "clip": True,
        "flatten_to_2d": False,
        "step_w": limited(0.0, 0.0),
        "step_h": limited(0.0, 0.0),
        "offset": 0.5,
        "fixed_sizes": floats(),
        "fixed_ratios": floats(),
        "densities": ints(),
    },
)
def density_prior_box(
    ctx: OpContext,
    Input: Any,
    Image: Any,
    *,
    variances: list[float],
    clip: bool,
    flatten_to_2d: bool,
    step_w: float,
    step_h: float,
    offset: float,
    fixed_sizes: list[float],
    fixed_ratios: list[float],
    densities: list[int],
) -> dict[str, Any]:
    """Prior boxes of fixed sizes, `density`² of each spread over a cell (Paddle 1.8.5 density_prior_box_op.h).

    Boxes are [H, W, P, 4], or [H * W * P, 4] with flatten_to_2d, relative to Image and cut at its border.
    """
    check_grid(ctx, "Input", Input, variances)
    check_grid(ctx, "Image", Image, variances)
    _check_densities(ctx, fixed_sizes, fixed_ratios, densities)
    xp, dtype = ctx.xp, Input.dtype
    step_width, step_height = steps(Input, Image, step_w, step_h)
    spread = density_offsets(fixed_sizes, fixed_ratios, densities, int(float(step_width + step_height) * 0.5), ctx.np)
    start, shift_x, shift_y, half_width, half_height = ctx.array(spread)

    def positions(size: int, step: Any, shift: Any) -> Any:
        first = (centers(ctx, size, offset, step, dtype)[:, None].astype("float64") + start).astype("float32")
        return (first + shift.astype("float32")).astype("float64")

    x = positions(Input.shape[3], step_width, shift_x)[None, :, :]
    y = positions(Input.shape[2], step_height, shift_y)[:, None, :]
    height, width = Image.shape[2], Image.shape[3]
    sides = (
        xp.maximum((x - half_width) / width, 0),
        xp.maximum((y - half_height) / height, 0),
        xp.minimum((x + half_width) / width, 1),
        xp.minimum((y + half_height) / height, 1),
    )
    boxes = xp.stack(xp.broadcast_arrays(*sides), axis=-1).astype(dtype)
    if clip:
        boxes = boxes.clip(0, 1)
    if flatten_to_2d:
        boxes = boxes.reshape(-1, 4)
    return {"Boxes": boxes, "Variances": repeated(ctx, variances, boxes)}


def _check_densities(
    ctx: OpContext | InferContext, sizes: Sequence[float], ratios: Sequence[float], densities: Sequence[int]
) -> None:
    if len(ratios) <= 0:
        raise ctx.error("attribute fixed_ratios is empty, expected at least one number")
    if len(sizes) != len(densities) or len(sizes) <= 0:
        raise ctx.error(
            f"attributes fixed_sizes and densities must have the same length above 0, found {len(sizes)} and {len(densities)}"
        )
    for name, values in (("fixed_sizes", sizes), ("fixed_ratios", ratios), ("densities", densities)):
        if not all(v > 0 for v in values):
            raise ctx.error(f"attribute {name} needs numbers above 0, found {list(values)}")


@density_prior_box.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    Image: TensorMeta,
    *,
    variances: list[float],
    flatten_to_2d: bool,
    fixed_sizes: list[float],
    fixed_ratios: list[float],
    densities: list[int],
) -> dict[str, TensorMeta]:
    check_grid(ctx, "Input", Input, variances)
    check_grid(ctx, "Image", Image, variances)
    _check_densities(ctx, fixed_sizes, fixed_ratios, densities)
    count = len(fixed_ratios) * sum(density**2 for density in densities)
    height, width = Input.shape[2], Input.shape[3]
    shape: tuple[int, ...] = (height, width, count, 4)
    if flatten_to_2d:
        shape = (-1, 4)
    boxes = TensorMeta(shape, Input.dtype)
    return {"Boxes": boxes, "Variances": boxes}
