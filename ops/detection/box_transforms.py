"""Small operators on boxes: box_clip, box_decoder_and_assign, polygon_box_transform."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import center_form, check_boxes, check_info, corner_form, corners, exp, round_away
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


@op("box_clip", inputs="Input ImInfo", outputs="Output", lod="Input")
def box_clip(ctx: OpContext, Input: Any, ImInfo: Any) -> Any:
    """Boxes [..., 4] cut at the border of their image: sequence i of Input belongs to row i of ImInfo [N, 3].

    A row is height, width and scale; the border is that of the original image (Paddle 1.8.5 box_clip_op.h).
    """
    _check_clip(ctx, Input, ImInfo)
    levels = ctx.lod("Input")
    if len(levels) != 1:
        raise ctx.error(f"input Input needs a LoD of one level, found {len(levels)}; feed it with sequence lengths")
    if len(levels[0]) - 1 != ImInfo.shape[0]:
        raise ctx.error(f"input Input has {len(levels[0]) - 1} sequences, but ImInfo has {ImInfo.shape[0]} rows")
    xp = ctx.xp
    height, width = (round_away(xp, ImInfo[:, side] / ImInfo[:, 2]) - 1 for side in (0, 1))
    image = ctx.array(ctx.np.repeat(ctx.np.arange(len(levels[0]) - 1), ctx.np.diff(levels[0])))
    limits = xp.stack([width, height, width, height], axis=-1)[image].astype(Input.dtype)
    limits = limits.reshape(len(limits), *[1] * (Input.ndim - 2), 4)
    return xp.maximum(xp.minimum(Input, limits), 0)


def _check_clip(ctx: OpContext | InferContext, boxes: Any, info: Any) -> None:
    if len(boxes.shape) <= 1 or boxes.shape[-1] not in (4, -1):
        raise ctx.error(f"input Input must hold boxes of 4 numbers, (..., 4), found shape {shape_text(boxes.shape)}")
    check_info(ctx, info)


@box_clip.infer
def _(ctx: InferContext, Input: TensorMeta, ImInfo: TensorMeta) -> TensorMeta:
    _check_clip(ctx, Input, ImInfo)
    return Input


@op(
    "box_decoder_and_assign",
    inputs="PriorBox PriorBoxVar? TargetBox BoxScore",
    outputs="DecodeBox OutputAssignBox",
    attrs={"box_clip": 4.135},
    lod="TargetBox->DecodeBox PriorBox->OutputAssignBox",
)
def box_decoder_and_assign(
    ctx: OpContext, PriorBox: Any, PriorBoxVar: Any, TargetBox: Any, BoxScore: Any, *, box_clip: float
) -> dict[str, Any]:
    """Decode TargetBox [R, C * 4] for every class, and take for each region the box of its best class but class 0.

    PriorBox [R, 4] in pixels, PriorBoxVar [4], BoxScore [R, C]; box_clip limits the logarithms of sizes. A region without
    a score above -1 keeps its prior (Paddle 1.8.5 box_decoder_and_assign_op.h).
    """
    _check_assign(ctx, PriorBox, PriorBoxVar, TargetBox, BoxScore)
    xp, dtype = ctx.xp, TargetBox.dtype
    regions, classes = BoxScore.shape
    center_x, center_y, width, height = (side[:, None] for side in center_form(PriorBox, 1))
    x, y, w, h = corners(PriorBoxVar * TargetBox.reshape(regions, classes, 4))
    decoded = corner_form(
        xp,
        x * width + center_x,
        y * height + center_y,
        exp(xp, xp.minimum(w, dtype.type(box_clip))) * width,
        exp(xp, xp.minimum(h, dtype.type(box_clip))) * height,
        1,
    )
    if classes > 1:
        best = BoxScore[:, 1:].argmax(axis=1)
        rows = xp.arange(regions)
        assigned = xp.where(BoxScore[rows, best + 1][:, None] > -1, decoded[rows, best + 1], PriorBox)
    else:
        assigned = PriorBox
    return {"DecodeBox": decoded.reshape(regions, classes * 4), "OutputAssignBox": assigned}


def _check_assign(ctx: OpContext | InferContext, prior: Any, variance: Any, target: Any, score: Any) -> None:
    check_boxes(ctx, "PriorBox", prior)
    if variance is None:
        raise ctx.error("input PriorBoxVar is missing; give it the four variances")
    if tuple(variance.shape) not in ((4,), (-1,)):
        raise ctx.error(f"input PriorBoxVar must be (4,), found {shape_text(variance.shape)}")
    if len(score.shape) != 2:
        raise ctx.error(f"input BoxScore must be (R, C), found shape {shape_text(score.shape)}")
    shape = tuple(target.shape)
    fits = len(shape) == 2 and (shape[1] == score.shape[1] * 4 or -1 in (shape[1], score.shape[1]))
    regions = {prior.shape[0], score.shape[0], *shape[:1]} - {-1}
    if not (fits and len(regions) <= 1):
        raise ctx.error(
            f"input TargetBox must be (R, C * 4) for PriorBox {shape_text(prior.shape)} and BoxScore {shape_text(score.shape)}, "
            f"found shape {shape_text(shape)}"
        )


@box_decoder_and_assign.infer
def _(
    ctx: InferContext,
    PriorBox: TensorMeta,
    PriorBoxVar: TensorMeta | None,
    TargetBox: TensorMeta,
    BoxScore: TensorMeta,
) -> dict[str, TensorMeta]:
    _check_assign(ctx, PriorBox, PriorBoxVar, TargetBox, BoxScore)
    return {"DecodeBox": TargetBox, "OutputAssignBox": PriorBox}


@op("polygon_box_transform", inputs="Input", outputs="Output")
def polygon_box_transform(ctx: OpContext, Input: Any) -> Any:
    """Offsets of corners [N, 2 * points, H, W] to coordinates in an image four times as large.

    Even channels are x, odd ones y: 4 * column - Input, 4 * row - Input (Paddle 1.8.5 polygon_box_transform_op.cc).
    """
    _check_geometry(ctx, Input)
    xp = ctx.xp
    batch, channels, height, width = Input.shape
    columns = xp.broadcast_to(4 * xp.arange(width, dtype=Input.dtype), (height, width))
    rows = xp.broadcast_to(4 * xp.arange(height, dtype=Input.dtype)[:, None], (height, width))
    grid = xp.stack([columns, rows])
    return (grid - Input.reshape(batch, channels // 2, 2, height, width)).reshape(Input.shape)


def _check_geometry(ctx: OpContext | InferContext, tensor: Any) -> None:
    if not (len(tensor.shape) == 4 and (tensor.shape[1] == -1 or tensor.shape[1] % 2 == 0)):
        raise ctx.error(f"input Input must be (N, 2 * points, H, W), found shape {shape_text(tensor.shape)}")


@polygon_box_transform.infer
def _(ctx: InferContext, Input: TensorMeta) -> TensorMeta:
    _check_geometry(ctx, Input)
    return Input.with_lod_level(0)
