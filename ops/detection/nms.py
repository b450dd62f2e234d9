"""nms: greedy suppression of one list of boxes (Paddle 2.x)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import check_boxes, corners
from fluidtool.ops.detection.suppression import suppress
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType


@op("nms", inputs="Boxes", outputs="KeepBoxesIdxs", attrs={"iou_threshold": 1.0})
def nms(ctx: OpContext, Boxes: Any, *, iou_threshold: float) -> Any:
    """Positions [K] int64 of the boxes [N, 4], given from best to worst, that suppression keeps (Paddle 2.6.2 nms_kernel.h)."""
    check_boxes(ctx, "Boxes", Boxes)
    np = ctx.np

    def overlap(first: Any, second: Any) -> Any:
        xmin1, ymin1, xmax1, ymax1 = corners(first)
        xmin2, ymin2, xmax2, ymax2 = corners(second)
        width = np.maximum(np.minimum(xmax1, xmax2) - np.maximum(xmin1, xmin2), 0)
        height = np.maximum(np.minimum(ymax1, ymax2) - np.maximum(ymin1, ymin2), 0)
        inter = width * height
        union = (xmax1 - xmin1) * (ymax1 - ymin1) + (xmax2 - xmin2) * (ymax2 - ymin2) - inter
        return np.where(union == 0, 0, inter / np.where(union == 0, 1, union))

    return ctx.array(suppress(np, ctx.host(Boxes), overlap, iou_threshold))


@nms.infer
def _(ctx: InferContext, Boxes: TensorMeta) -> TensorMeta:
    check_boxes(ctx, "Boxes", Boxes)
    return TensorMeta((-1,), VarType.INT64)
