"""deformable_psroi_pooling: psroi_pool whose bins may be shifted by learnt offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import fits, round_away
from fluidtool.ops.detection.regions import check_pooled, check_regions, pooled_meta, region_images
from fluidtool.ops.registry import op
from fluidtool.ops.schema import BOOLEAN, FLOAT, INT, INTS, TensorMeta, limited, required
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

ATTRS: dict[str, Any] = {
    "no_trans": required(BOOLEAN),
    "spatial_scale": required(FLOAT),
    "output_dim": required(INT),
    "group_size": required(INTS),
    "pooled_height": required(INT),
    "pooled_width": required(INT),
    "part_size": required(INTS),
    "sample_per_part": required(INT),
    "trans_std": limited(required(FLOAT), 0.0),
}


@dataclass(frozen=True, slots=True)
class Bins:
    """All bins [R, D, P, Q]: where each starts, how far its samples lie apart, where its offsets and cells are stored."""

    start_x: Any
    start_y: Any
    step_x: Any
    step_y: Any
    width: Any
    height: Any
    plane: Any
    offset_x: Any
    offset_y: Any


def bins_of(ctx: OpContext, Input: Any, ROIs: Any, Trans: Any) -> Bins:
    """The bins of all regions; `plane` is the flat index of image and channel, offset_x/y index flattened Trans."""
    xp, dtype = ctx.xp, Input.dtype
    number = dtype.type
    attr = {name: ctx.attr(name) for name in ATTRS}
    height, width = attr["pooled_height"], attr["pooled_width"]
    p, q = xp.arange(height)[:, None], xp.arange(width)
    scale = number(attr["spatial_scale"])
    sides = round_away(xp, ROIs).astype(dtype)
    left, top = (sides[:, axis] * scale - number(0.5) for axis in (0, 1))
    right, bottom = ((sides[:, axis] + 1) * scale - number(0.5) for axis in (2, 3))
    region_width = xp.maximum(right - left, number(0.1))[:, None, None, None]
    region_height = xp.maximum(bottom - top, number(0.1))[:, None, None, None]
    bin_width, bin_height = region_width / width, region_height / height
    start_x = q.astype(dtype) * bin_width + left[:, None, None, None]
    start_y = p.astype(dtype) * bin_height + top[:, None, None, None]

    channel = xp.arange(attr["output_dim"])[:, None, None]
    offset_x = offset_y = None
    if not attr["no_trans"]:
        classes = Trans.shape[1] // 2
        part_height, part_width = attr["part_size"]
        part = (p * part_height // height) * part_width + q * part_width // width
        of_class = xp.arange(len(ROIs))[:, None, None, None] * classes + channel // (attr["output_dim"] // classes)
        offset_x = of_class * 2 * part_height * part_width + part
        offset_y = offset_x + part_height * part_width
        flat = Trans.reshape(-1) * number(attr["trans_std"])
        start_x = start_x + flat[offset_x] * region_width
        start_y = start_y + flat[offset_y] * region_height
    group_height, group_width = attr["group_size"]
    group = (p * group_height // height).clip(0, group_height - 1) * group_width
    group = group + (q * group_width // width).clip(0, group_width - 1)
    image = region_images(ctx, ROIs, Input.shape[0])[:, None, None, None]
    plane = image * Input.shape[1] + channel * (group_height * group_width) + group
    samples = attr["sample_per_part"]
    return Bins(
        start_x,
        start_y,
        bin_width / samples,
        bin_height / samples,
        region_width,
        region_height,
        plane,
        offset_x,
        offset_y,
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of every bin: whether it counts, its four cells as (flat index, weight), its distances from the first."""

    usable: Any
    cells: tuple[tuple[Any, Any], ...]
    distance_x: Any
    distance_y: Any


def samples(xp: Any, bins: Bins, shape: tuple[int, ...], count: int) -> Iterator[Sample]:
    """count² samples of every bin; those more than half a cell outside do not count, others move to the border."""
    height, width = shape[2:]
    number = bins.start_x.dtype.type
    for i in range(count):
        for j in range(count):
            x, y = xp.broadcast_arrays(bins.start_x + j * bins.step_x, bins.start_y + i * bins.step_y, bins.plane)[:2]
            usable = (x >= -0.5) & (x <= number(width - 0.5)) & (y >= -0.5) & (y <= number(height - 0.5))
            x, y = x.clip(0, width - 1), y.clip(0, height - 1)
            x0, y0 = xp.floor(x), xp.floor(y)
            dx, dy = x - x0, y - y0
            columns = x0.astype("int64"), xp.ceil(x).astype("int64")
            rows = y0.astype("int64"), xp.ceil(y).astype("int64")
            places = [((bins.plane * height + r) * width + c) for c in columns for r in rows]
            weights = [a * b for a in (1 - dx, dx) for b in (1 - dy, dy)]
            yield Sample(usable, tuple(zip(places, weights, strict=True)), dx, dy)


@op("deformable_psroi_pooling", inputs="Input ROIs Trans", outputs="TopCount Output", attrs=ATTRS)
def deformable_psroi_pooling(
    ctx: OpContext, Input: Any, ROIs: Any, Trans: Any, *, sample_per_part: int
) -> dict[str, Any]:
    """Output [R, output_dim, pooled_height, pooled_width]: means of bilinear samples, TopCount how many there were.

    Input [N, output_dim * group cells, H, W], ROIs [R, 4] in pixels of the image with a LoD, Trans [R, 2 * classes, …
    part_size] shifts bins by trans_std times the region's size (Paddle 1.8.5 deformable_psroi_pooling_op.h).
    """
    _check(ctx, Input, ROIs, Trans)
    xp = ctx.xp
    bins, flat = bins_of(ctx, Input, ROIs, Trans), Input.reshape(-1)
    total, count = xp.zeros((), Input.dtype), xp.zeros(bins.plane.shape, Input.dtype)
    for sample in samples(xp, bins, Input.shape, sample_per_part):
        value = sum(weight * flat[place] for place, weight in sample.cells)
        total = total + xp.where(sample.usable, value, 0)
        count = count + sample.usable
    return {"TopCount": count, "Output": xp.where(count > 0, total / xp.maximum(count, 1), 0)}


def _check(ctx: OpContext | InferContext, x: Any, rois: Any, trans: Any) -> None:
    check_regions(ctx, "Input", x, rois)
    attr = {name: ctx.attr(name) for name in ATTRS}
    check_pooled(
        ctx,
        **{
            name: attr[name]
            for name in ("pooled_height", "pooled_width", "output_dim", "sample_per_part", "spatial_scale")
        },
    )
    for name in ("group_size", "part_size"):
        if not (len(attr[name]) == 2 and min(attr[name]) > 0):
            raise ctx.error(f"attribute {name} must be two numbers above 0, found {list(attr[name])}")
    channels = attr["output_dim"] * attr["group_size"][0] * attr["group_size"][1]
    if x.shape[1] != -1 and x.shape[1] < channels:
        raise ctx.error(
            f"input Input needs output_dim * group_size = {channels} channels, found shape {shape_text(x.shape)}"
        )
    if attr["no_trans"]:
        return
    shape, classes = tuple(trans.shape), attr["output_dim"]
    if not (
        fits(shape, (rois.shape[0], -1, *attr["part_size"]))
        and (shape[1] == -1 or (shape[1] % 2 == 0 and 1 <= shape[1] // 2 <= classes))
    ):
        raise ctx.error(
            f"input Trans must be (R, 2 * classes, {attr['part_size'][0]}, {attr['part_size'][1]}) with 1 to {classes} classes "
            f"for {rois.shape[0]} regions, found shape {shape_text(shape)}"
        )


@deformable_psroi_pooling.infer
def _(ctx: InferContext, Input: TensorMeta, ROIs: TensorMeta, Trans: TensorMeta) -> dict[str, TensorMeta]:
    _check(ctx, Input, ROIs, Trans)
    out = pooled_meta(ctx, Input, ROIs, *(ctx.attr(n) for n in ("output_dim", "pooled_height", "pooled_width")))
    return {"TopCount": out, "Output": out}


@deformable_psroi_pooling.grad(inputs="Input ROIs Trans TopCount Output@GRAD", outputs="Input@GRAD Trans@GRAD")
def deformable_psroi_pooling_grad(
    ctx: OpContext,
    Input: Any,
    ROIs: Any,
    Trans: Any,
    TopCount: Any,
    Output_grad: Any,
    *,
    no_trans: bool,
    sample_per_part: int,
    trans_std: float,
) -> dict[str, Any]:
    """Every sample gives its share to its four cells, and to the offset of its bin what moving it would change."""
    xp, dtype = ctx.xp, Input.dtype
    bins, flat = bins_of(ctx, Input, ROIs, Trans), Input.reshape(-1)
    share = (Output_grad / xp.maximum(TopCount, 1)).astype("float64")
    cells, by_x, by_y = xp.zeros(Input.size), xp.zeros(share.shape), xp.zeros(share.shape)
    for sample in samples(xp, bins, Input.shape, sample_per_part):
        given = xp.where(sample.usable, share, 0)
        for place, weight in sample.cells:
            cells = cells + ctx.sums_at(place.reshape(-1), (given * weight).reshape(-1), Input.size)
        near, below, beside, across = (flat[place] for place, _ in sample.cells)
        by_x += ((across - below) * sample.distance_y + (beside - near) * (1 - sample.distance_y)) * given
        by_y += ((across - beside) * sample.distance_x + (below - near) * (1 - sample.distance_x)) * given
    grads = {"Input@GRAD": cells.astype(dtype).reshape(Input.shape)}
    if no_trans:
        return grads | {"Trans@GRAD": xp.zeros_like(Trans)}
    moved = xp.zeros(Trans.size)
    for place, by, size in ((bins.offset_x, by_x, bins.width), (bins.offset_y, by_y, bins.height)):
        change = (by * size * trans_std).reshape(-1)
        moved = moved + ctx.sums_at(xp.broadcast_to(place, by.shape).reshape(-1), change, Trans.size)
    return grads | {"Trans@GRAD": moved.astype(dtype).reshape(Trans.shape)}
