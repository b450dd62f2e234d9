"""iou_similarity: how much every box of one list overlaps every box of another."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import check_boxes, corners
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta


@op("iou_similarity", inputs="X Y", outputs="Out", attrs={"box_normalized": True}, lod="X")
def iou_similarity(ctx: OpContext, X: Any, Y: Any, *, box_normalized: bool) -> Any:
    """Intersection over union [N, M] of X [N, 4] and Y [M, 4] (Paddle 1.8.5 iou_similarity_op.h)."""
    check_boxes(ctx, "X", X)
    check_boxes(ctx, "Y", Y)
    xp, pixel = ctx.xp, 0 if box_normalized else 1
    xmin1, ymin1, xmax1, ymax1 = (side[:, None] for side in corners(X))
    xmin2, ymin2, xmax2, ymax2 = corners(Y)
    areas1 = (ymax1 - ymin1 + pixel) * (xmax1 - xmin1 + pixel)
    areas2 = (ymax2 - ymin2 + pixel) * (xmax2 - xmin2 + pixel)
    height = xp.maximum(xp.minimum(ymax1, ymax2) - xp.maximum(ymin1, ymin2) + pixel, 0)
    width = xp.maximum(xp.minimum(xmax1, xmax2) - xp.maximum(xmin1, xmin2) + pixel, 0)
    inter = width * height
    return inter / (areas1 + areas2 - inter + 1e-10)


@iou_similarity.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    check_boxes(ctx, "X", X)
    check_boxes(ctx, "Y", Y)
    return X.with_shape((X.shape[0], Y.shape[0]))
