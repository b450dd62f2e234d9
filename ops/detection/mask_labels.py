"""generate_mask_labels: mask targets for the regions of Mask R-CNN, drawn from polygons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import check_boxes, check_info, pixel_overlaps
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

FINER = 5.0  # edges are drawn on a grid this many times as fine, as in the COCO tools


def draw(np: Any, points: Any, size: int) -> Any:
    """Mask [size, size] of 0 and 1 of a polygon [K, 2] given in cells of the mask.

    Every edge is drawn on a finer grid; where it passes from one column of cells to the next it toggles all cells of the
    column below it.
    """
    fine = (FINER * points.astype("float64") + 0.5).astype("int64")
    start, end = fine, np.roll(fine, -1, axis=0)
    extent = abs(end - start)
    flat = extent[:, 0] >= extent[:, 1]
    long = np.where(flat, 0, 1)
    edges = np.arange(len(fine))
    turned = start[edges, long] > end[edges, long]
    low, high = np.where(turned[:, None], end, start), np.where(turned[:, None], start, end)
    steps = extent[edges, long]
    slope = (high - low)[edges, 1 - long] / np.where(steps == 0, np.nan, steps)
    edge = np.repeat(edges, steps + 1)
    along = np.arange(len(edge)) - np.repeat(np.cumsum(steps + 1) - steps - 1, steps + 1)
    along = np.where(turned[edge], steps[edge] - along, along)
    across = np.nan_to_num(low[edge, 1 - long[edge]] + np.where(along == 0, 0.0, slope[edge] * along) + 0.5)
    places = np.empty((len(edge), 2), "int64")
    places[np.arange(len(edge)), long[edge]] = along + low[edge, long[edge]]
    places[np.arange(len(edge)), 1 - long[edge]] = across.astype("int64")

    x, y = places[:, 0], places[:, 1]
    moved = np.flatnonzero(x[1:] != x[:-1]) + 1
    column = (np.minimum(x[moved], x[moved - 1]) + 0.5) / FINER - 0.5
    row = (np.minimum(y[moved], y[moved - 1]) + 0.5) / FINER - 0.5
    usable = (np.floor(column) == column) & (column >= 0) & (column <= size - 1)
    toggles = column[usable].astype("int64") * size + np.ceil(row[usable].clip(0, size)).astype("int64")
    inside = np.cumsum(np.bincount(toggles, minlength=size * size + 1))[: size * size] % 2
    return inside.reshape(size, size).T


def mask_of(np: Any, polygons: Sequence[Any], box: Any, size: int) -> Any:
    """The union of polygons in a box, as a mask [size * size] int32."""
    extent = np.maximum(box[2:] - box[:2], box.dtype.type(1))
    mask = np.zeros((size, size), bool)
    for polygon in polygons:
        mask |= draw(np, (polygon - box[:2]) * box.dtype.type(size) / extent, size) > 0
    return mask.reshape(-1).astype("int32")


def bounds(np: Any, polygons: Sequence[Any]) -> Any:
    """The box [4] around the polygons of one object; Paddle takes no maximum below the smallest float."""
    points = np.concatenate(polygons)
    return np.concatenate([points.min(axis=0), np.maximum(points.max(axis=0), np.finfo(points.dtype).tiny)])


@dataclass(frozen=True, slots=True)
class Masks:
    """The mask targets of one image: regions [K, 4], their positions in the image, class (0: none), masks [K, M * M]."""

    rois: Any
    positions: Any
    labels: Any
    masks: Any


def image_masks(
    ctx: OpContext, rois: Any, labels: Any, scale: Any, objects: Sequence[Sequence[Any]], size: int
) -> Masks:
    """A mask for every region with a class, from the object that it overlaps most; else the first region without one."""
    np = ctx.np
    positive = np.flatnonzero(labels > 0)
    if not len(positive):
        background = np.flatnonzero(labels == 0)[:1]
        rois, ignored = rois[:1] / scale * scale, np.zeros((1, size * size), "int32")
        return Masks(rois, background if len(background) else np.zeros(1, "int64"), np.zeros(1, "int64"), ignored)
    if len(objects) <= 0:
        raise ctx.error(
            "input Rois holds regions with a class, but GtSegms has no object with a class, except crowds, in their image"
        )
    boxes = rois[positive] / scale
    overlaps = pixel_overlaps(np, boxes, np.stack([bounds(np, polygons) for polygons in objects]))
    best = overlaps.argmax(axis=1)
    masks = [mask_of(np, objects[chosen], box, size) for chosen, box in zip(best, boxes, strict=True)]
    return Masks(boxes * scale, positive, labels[positive], np.stack(masks))


@op(
    "generate_mask_labels",
    inputs="ImInfo GtClasses IsCrowd GtSegms Rois LabelsInt32",
    outputs="MaskRois RoiHasMaskInt32 MaskInt32",
    attrs={"num_classes": required(INT), "resolution": required(INT)},
)
def generate_mask_labels(
    ctx: OpContext,
    ImInfo: Any,
    GtClasses: Any,
    IsCrowd: Any,
    GtSegms: Any,
    Rois: Any,
    LabelsInt32: Any,
    *,
    num_classes: int,
    resolution: int,
) -> dict[str, Any]:
    """Regions with masks [P, 4], their positions among their image's regions [P, 1], and MaskInt32 [P, num_classes *
    resolution²]: 0 or 1 in the part of the region's class, -1 elsewhere; one sequence per image.

    GtSegms [S, 2] are points with a LoD of three levels: objects of an image, polygons of an object, points of a polygon.
    Rois [R, 4] are in the scaled image, ImInfo [N, 3] is height, width, scale (Paddle 1.8.5 generate_mask_labels_op.cc).
    """
    _check(ctx, ImInfo, GtSegms, Rois)
    np = ctx.np
    info, classes, crowd, points, rois, labels = map(
        ctx.host, (ImInfo, GtClasses.reshape(-1), IsCrowd.reshape(-1), GtSegms, Rois, LabelsInt32.reshape(-1))
    )
    levels, roi_starts, gt_starts = ctx.lod("GtSegms"), ctx.sequences("Rois"), ctx.sequences("GtClasses")
    if len(levels) != 3:
        raise ctx.error(
            f"input GtSegms needs a LoD of three levels (objects, polygons, points), found {len(levels)}; feed it with them"
        )
    if not (levels[0] == gt_starts == ctx.sequences("IsCrowd") and len(roi_starts) == len(gt_starts) <= len(info) + 1):
        raise ctx.error(
            f"inputs GtClasses, IsCrowd and GtSegms must list the same objects for each image of Rois, found LoD "
            f"{gt_starts}, {ctx.sequences('IsCrowd')}, {levels[0]} and {len(roi_starts) - 1} images"
        )
    if len(labels) != len(rois):
        raise ctx.error(f"input LabelsInt32 must have {len(rois)} labels, found {len(labels)}")
    polygons = [points[a:b] for a, b in pairwise(levels[2])]
    if not all(map(len, polygons)):
        raise ctx.error("input GtSegms has a polygon without points; leave it out")
    objects = [polygons[a:b] for a, b in pairwise(levels[1])]
    found = []
    for image, (start, end) in enumerate(pairwise(roi_starts)):
        if start == end:
            continue
        numbers = range(gt_starts[image], gt_starts[image + 1])
        drawn = [objects[n] for n in numbers if classes[n] > 0 and crowd[n] == 0]
        found.append(image_masks(ctx, rois[start:end], labels[start:end], info[image, 2], drawn, resolution))
    chosen = np.concatenate([np.zeros(0, "int64"), *[masks.labels for masks in found]])
    if len(chosen) and not int(chosen.max()) < num_classes:
        raise ctx.error(
            f"input LabelsInt32 must be below num_classes = {num_classes}, found {int(chosen.max(initial=0))}"
        )
    positive = np.flatnonzero(chosen > 0)
    targets = np.full((len(chosen), num_classes, resolution**2), -1, "int32")
    empty = np.zeros((0, resolution**2), "int32")
    targets[positive, chosen[positive]] = np.concatenate([empty, *[masks.masks for masks in found]])[positive]
    counts = iter([len(masks.labels) for masks in found])
    offsets = list(accumulate((next(counts) if a != b else 0 for a, b in pairwise(roi_starts)), initial=0))
    for slot in ("MaskRois", "RoiHasMaskInt32", "MaskInt32"):
        ctx.set_lod(slot, [offsets])
    positions = np.concatenate([np.zeros(0, "int64"), *[masks.positions for masks in found]]).astype("int32")
    return {
        "MaskRois": ctx.array(np.concatenate([rois[:0], *[masks.rois for masks in found]])),
        "RoiHasMaskInt32": ctx.array(positions[:, None]),
        "MaskInt32": ctx.array(targets.reshape(len(chosen), num_classes * resolution**2)),
    }


def _check(ctx: OpContext | InferContext, info: Any, segments: Any, rois: Any) -> None:
    check_info(ctx, info)
    check_boxes(ctx, "GtSegms", segments, width=2)
    check_boxes(ctx, "Rois", rois)


@generate_mask_labels.infer
def _(
    ctx: InferContext,
    ImInfo: TensorMeta,
    GtClasses: TensorMeta,
    IsCrowd: TensorMeta,
    GtSegms: TensorMeta,
    Rois: TensorMeta,
    LabelsInt32: TensorMeta,
    *,
    num_classes: int,
    resolution: int,
) -> dict[str, TensorMeta]:
    _check(ctx, ImInfo, GtSegms, Rois)
    return {
        "MaskRois": TensorMeta((-1, 4), Rois.dtype, Rois.lod_level),
        "RoiHasMaskInt32": TensorMeta((-1, 1), VarType.INT32, Rois.lod_level),
        "MaskInt32": TensorMeta((-1, num_classes * resolution**2), VarType.INT32, Rois.lod_level),
    }
