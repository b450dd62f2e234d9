"""yolo_box: boxes and scores from the feature map of a YOLO head."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import exp, fits
from fluidtool.ops.math.versions import later_attr, saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, ints, required
from fluidtool.shapes import shape_text


def sigmoid(xp: Any, values: Any) -> Any:
    """1 / (1 + exp(-x)), divided in float64 as Paddle does."""
    return (1.0 / (1.0 + exp(xp, -values).astype("float64"))).astype(values.dtype)


@op(
    "yolo_box",
    inputs="X ImgSize",
    outputs="Boxes Scores",
    attrs={
        "class_num": required(INT),
        "anchors": ints(),
        "downsample_ratio": 32,
        "conf_thresh": 0.01,
        "clip_bbox": True,
        "scale_x_y": 1.0,
    },
)
def yolo_box(
    ctx: OpContext,
    X: Any,
    ImgSize: Any,
    *,
    class_num: int,
    anchors: list[int],
    downsample_ratio: int,
    conf_thresh: float,
    clip_bbox: bool,
    scale_x_y: float,
) -> dict[str, Any]:
    """Boxes [N, A * H * W, 4] in pixels and Scores [N, A * H * W, class_num] of X [N, A * (5 + class_num), H, W].

    ImgSize [N, 2] int32 is height and width. What has a confidence below conf_thresh is all zeros. Paddle 1.8.5 takes
    H for the width of the grid too, 2.x does not; 2.x knows `iou_aware` (A more channels first) as well (yolo_box_op.h).
    """
    iou_aware = bool(later_attr(ctx, "iou_aware", False))
    _check(ctx, X, ImgSize, class_num, anchors, iou_aware)
    xp = ctx.xp
    batch, _, height, width = X.shape
    count = len(anchors) // 2
    confidence_iou, maps = None, X
    if iou_aware:
        confidence_iou, maps = sigmoid(xp, X[:, :count]), X[:, count:]
    maps = maps.reshape(batch, count, 5 + class_num, height, width)
    confidence = sigmoid(xp, maps[:, :, 4])
    if confidence_iou is not None:
        factor = float(ctx.op.attr("iou_aware_factor")) if ctx.op.has_attr("iou_aware_factor") else 0.5
        confidence = confidence ** (1.0 - factor) * confidence_iou**factor
    kept = (confidence >= conf_thresh)[..., None]

    cells = (height, width) if saved_since(ctx, 2, 0) else (height, height)
    sizes = ImgSize.astype(X.dtype)[:, :, None, None, None]
    boxes = _decode(ctx, maps, sizes, cells, anchors, downsample_ratio, scale_x_y)
    if clip_bbox:
        last = sizes - 1
        boxes[:2] = [xp.maximum(side, 0) for side in boxes[:2]]
        boxes[2:] = [xp.minimum(boxes[2], last[:, 1]), xp.minimum(boxes[3], last[:, 0])]
    scores = confidence[..., None] * sigmoid(xp, xp.moveaxis(maps[:, :, 5:], 2, -1))
    return {
        "Boxes": xp.where(kept, xp.stack(boxes, axis=-1), 0).reshape(batch, count * height * width, 4),
        "Scores": xp.where(kept, scores, 0).reshape(batch, count * height * width, class_num),
    }


def _decode(
    ctx: OpContext, maps: Any, sizes: Any, cells: tuple[int, int], anchors: list[int], ratio: int, scale: float
) -> list[Any]:
    """xmin, ymin, xmax, ymax, each [N, A, H, W]."""
    xp, dtype = ctx.xp, maps.dtype
    height, width = maps.shape[-2:]
    image_height, image_width = sizes[:, 0], sizes[:, 1]
    anchor = ctx.array(ctx.np.asarray(anchors, dtype).reshape(-1, 2))[:, :, None, None]
    bias = -0.5 * (scale - 1.0)
    columns, rows = xp.arange(width, dtype=dtype), xp.arange(height, dtype=dtype)[:, None]
    x = (columns + sigmoid(xp, maps[:, :, 0]) * scale + bias) * image_width / cells[1]
    y = (rows + sigmoid(xp, maps[:, :, 1]) * scale + bias) * image_height / cells[0]
    w = exp(xp, maps[:, :, 2]) * anchor[:, 0] * image_width / (ratio * cells[1])
    h = exp(xp, maps[:, :, 3]) * anchor[:, 1] * image_height / (ratio * cells[0])
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


def _check(
    ctx: OpContext | InferContext, x: Any, sizes: Any, class_num: int, anchors: list[int], iou_aware: bool
) -> None:
    if len(anchors) <= 0 or len(anchors) % 2 != 0:
        raise ctx.error(f"attribute anchors must list pairs of width and height, found {len(anchors)} numbers")
    if class_num <= 0:
        raise ctx.error(f"attribute class_num must be above 0, found {class_num}")
    channels = len(anchors) // 2 * (class_num + (6 if iou_aware else 5))
    if not fits(x.shape, (-1, channels, -1, -1)):
        raise ctx.error(
            f"input X must be (N, {channels}, H, W) for {len(anchors) // 2} anchors and {class_num} classes, "
            f"found shape {shape_text(x.shape)}"
        )
    if not fits(sizes.shape, (x.shape[0], 2)):
        raise ctx.error(
            f"input ImgSize must be ({x.shape[0]}, 2), the height and width of each image of X, found {shape_text(sizes.shape)}"
        )


@yolo_box.infer
def _(
    ctx: InferContext, X: TensorMeta, ImgSize: TensorMeta, *, class_num: int, anchors: list[int]
) -> dict[str, TensorMeta]:
    _check(ctx, X, ImgSize, class_num, anchors, bool(later_attr(ctx, "iou_aware", False)))
    batch, _, height, width = X.shape
    count = -1 if -1 in (height, width) else height * width * (len(anchors) // 2)
    return {"Boxes": TensorMeta((batch, count, 4), X.dtype), "Scores": TensorMeta((batch, count, class_num), X.dtype)}
