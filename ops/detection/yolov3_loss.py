"""yolov3_loss: location, objectness and class loss of a YOLO head."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import exp, fits
from fluidtool.ops.detection.yolo_box import sigmoid
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, ints, required
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

ATTRS: dict[str, Any] = {
    "class_num": required(INT),
    "anchors": ints(),
    "anchor_mask": ints(),
    "downsample_ratio": 32,
    "ignore_thresh": 0.7,
    "use_label_smooth": True,
    "scale_x_y": 1.0,
}


@dataclass(frozen=True, slots=True)
class Head:
    """The numbers of a YOLO head, and its maps [N, M, 5 + classes, H * W]."""

    maps: Any
    anchors: Any
    mask: list[int]
    input_size: int
    height: int
    width: int


def head(ctx: OpContext, X: Any) -> Head:
    """The head that X [N, M * (5 + classes), H, W] is the output of."""
    mask = ctx.attr("anchor_mask")
    height, width = X.shape[2:]
    maps = X.reshape(X.shape[0], len(mask), -1, height * width)
    anchors = ctx.array(ctx.np.asarray(ctx.attr("anchors"), X.dtype).reshape(-1, 2))
    return Head(maps, anchors, mask, ctx.attr("downsample_ratio") * height, height, width)


@dataclass(frozen=True, slots=True)
class Targets:
    """For each ground truth [N, B]: whether it has a place at all, its channel and cell there, what its four location
    outputs should be, and how much they weigh.
    """

    used: Any
    channel: Any
    cell: Any
    location: tuple[Any, Any, Any, Any]
    weight: Any
    match: Any


def targets(ctx: OpContext, h: Head, GTBox: Any, score: Any) -> Targets:
    """Where each ground truth belongs: the anchor that fits it best, if the head has it, in the cell of its center."""
    xp, dtype = ctx.xp, GTBox.dtype
    x, y, w, height = (GTBox[:, :, side] for side in range(4))
    valid = ~((w < 1e-6) | (height < 1e-6))
    inter = xp.minimum(w[..., None], h.anchors[:, 0] / h.input_size) * xp.minimum(
        height[..., None], h.anchors[:, 1] / h.input_size
    )
    union = (w * height)[..., None] + (h.anchors[:, 0] / h.input_size) * (h.anchors[:, 1] / h.input_size) - inter
    best = (inter / xp.where(valid[..., None], union, 1)).astype("float32").argmax(axis=2)
    places = {anchor: place for place, anchor in reversed(list(enumerate(h.mask)))}
    of_anchor = ctx.array(ctx.np.asarray([places.get(anchor, -1) for anchor in range(len(h.anchors))], "int64"))
    channel = xp.where(valid, of_anchor[best], -1)
    column, row = (x * h.width).astype("int64"), (y * h.height).astype("int64")
    used, cell = channel >= 0, row * h.width + column
    if bool((used & ((cell < 0) | (cell >= h.height * h.width))).any()):
        raise ctx.error(
            "input GTBox must hold centers and sizes relative to the image, from 0 to below 1, but a center is outside"
        )
    anchor_w, anchor_h = h.anchors[best, 0], h.anchors[best, 1]
    safe_w, safe_h = xp.where(valid, w, 1), xp.where(valid, height, 1)
    location = (
        x * h.height - column,
        y * h.height - row,
        xp.log(safe_w * h.input_size / anchor_w),
        xp.log(safe_h * h.input_size / anchor_h),
    )
    weight = (dtype.type(2.0) - w * height) * score
    return Targets(used, xp.where(used, channel, 0), xp.where(used, cell, 0), location, weight, channel)


def ignored(ctx: OpContext, h: Head, GTBox: Any, threshold: float, scale: float) -> Any:
    """Whether each predicted box [N, M, H * W] overlaps a ground truth by more than the threshold."""
    xp, dtype = ctx.xp, GTBox.dtype
    bias = -0.5 * (scale - 1.0)
    cells = xp.arange(h.height * h.width)
    column, row = (cells % h.width).astype(dtype), (cells // h.width).astype(dtype)
    chosen = h.anchors[ctx.array(h.mask)]
    x = (column + sigmoid(xp, h.maps[:, :, 0]) * scale + bias) / h.height
    y = (row + sigmoid(xp, h.maps[:, :, 1]) * scale + bias) / h.height
    w = exp(xp, h.maps[:, :, 2]) * chosen[:, :1] / h.input_size
    height = exp(xp, h.maps[:, :, 3]) * chosen[:, 1:] / h.input_size
    best = xp.zeros(x.shape, dtype)
    for number in range(GTBox.shape[1]):
        gx, gy, gw, gh = (GTBox[:, number, side, None, None] for side in range(4))
        across = xp.minimum(x + w / 2, gx + gw / 2) - xp.maximum(x - w / 2, gx - gw / 2)
        down = xp.minimum(y + height / 2, gy + gh / 2) - xp.maximum(y - height / 2, gy - gh / 2)
        inter = xp.where((across < 0) | (down < 0), 0, across * down)
        valid = ~((gw < 1e-6) | (gh < 1e-6))
        best = xp.maximum(best, xp.where(valid, inter / xp.where(valid, w * height + gw * gh - inter, 1), 0))
    return best > dtype.type(threshold)


def smooth_labels(ctx: OpContext) -> tuple[float, float]:
    """What the outputs of the right class and of all others should be."""
    if not ctx.attr("use_label_smooth"):
        return 1.0, 0.0
    share = min(1.0 / ctx.attr("class_num"), 1.0 / 40)
    return 1.0 - share, share


def cross_entropy(xp: Any, x: Any, label: Any) -> Any:
    """Of the sigmoid of x with a label."""
    return xp.maximum(x, 0) - x * label + xp.log1p(xp.exp(-abs(x)))


@op(
    "yolov3_loss",
    inputs="X GTBox GTLabel GTScore?",
    outputs="Loss ObjectnessMask~ GTMatchMask~",
    attrs=ATTRS,
)
def yolov3_loss(
    ctx: OpContext, X: Any, GTBox: Any, GTLabel: Any, GTScore: Any, *, ignore_thresh: float, scale_x_y: float
) -> dict[str, Any]:
    """Loss [N] of X [N, M * (5 + class_num), H, W] for GTBox [N, B, 4] (center and size relative to the image; size 0: none).

    GTLabel [N, B] int32, GTScore [N, B] weighs (1 without). ObjectnessMask [N, M, H, W] is the score of the cell's ground
    truth, -1 where a prediction overlaps one by more than ignore_thresh, else 0; GTMatchMask [N, B] int32 the place of
    each ground truth's anchor in anchor_mask, or -1 (Paddle 1.8.5 yolov3_loss_op.h).
    """
    _check(ctx, X, GTBox, GTLabel, GTScore)
    xp, h = ctx.xp, head(ctx, X)
    score = xp.ones(GTBox.shape[:2], X.dtype) if GTScore is None else GTScore
    found = targets(ctx, h, GTBox, score)
    objectness = -ignored(ctx, h, GTBox, ignore_thresh, scale_x_y).astype(X.dtype)
    image = xp.arange(X.shape[0])
    for number in range(GTBox.shape[1]):
        rows = image[found.used[:, number]]
        objectness[rows, found.channel[rows, number], found.cell[rows, number]] = score[rows, number]

    outputs = h.maps[image[:, None], found.channel, :, found.cell]
    x, y, w, height = (outputs[:, :, side] for side in range(4))
    tx, ty, tw, th = found.location
    location = cross_entropy(xp, x, tx) + cross_entropy(xp, y, ty) + abs(tw - w) + abs(th - height)
    classes = cross_entropy(xp, outputs[:, :, 5:], class_labels(ctx, GTLabel, outputs)).sum(axis=2)
    of_truth = xp.where(found.used, location * found.weight + classes * score, 0).sum(axis=1)
    object_map = h.maps[:, :, 4]
    of_cell = xp.where(
        objectness > 1e-5,
        cross_entropy(xp, object_map, 1.0) * objectness,
        xp.where(objectness > -0.5, cross_entropy(xp, object_map, 0.0), 0),
    )
    return {
        "Loss": (of_truth + of_cell.sum(axis=(1, 2))).astype(X.dtype),
        "ObjectnessMask": objectness.reshape(X.shape[0], len(h.mask), h.height, h.width),
        "GTMatchMask": found.match.astype("int32"),
    }


def class_labels(ctx: OpContext, GTLabel: Any, outputs: Any) -> Any:
    """What the class outputs [N, B, class_num] should be."""
    positive, negative = smooth_labels(ctx)
    right = GTLabel[:, :, None] == ctx.xp.arange(outputs.shape[2] - 5)
    return ctx.xp.where(right, positive, negative).astype(outputs.dtype)


def _check(ctx: OpContext | InferContext, x: Any, boxes: Any, labels: Any, scores: Any) -> None:
    anchors, mask, class_num = ctx.attr("anchors"), ctx.attr("anchor_mask"), ctx.attr("class_num")
    if len(anchors) <= 0 or len(anchors) % 2 != 0:
        raise ctx.error(f"attribute anchors must list pairs of width and height, found {len(anchors)} numbers")
    if not (len(mask) > 0 and all(0 <= anchor < len(anchors) // 2 for anchor in mask)):
        raise ctx.error(f"attribute anchor_mask must name anchors 0 to {len(anchors) // 2 - 1}, found {list(mask)}")
    if class_num <= 0:
        raise ctx.error(f"attribute class_num must be above 0, found {class_num}")
    channels = len(mask) * (5 + class_num)
    shape = tuple(x.shape)
    if not (fits(shape, (-1, channels, -1, -1)) and fits(shape[2:3], shape[3:])):
        raise ctx.error(
            f"input X must be (N, {channels}, H, H) for {len(mask)} anchors and {class_num} classes, "
            f"found shape {shape_text(shape)}"
        )
    if not fits(boxes.shape, (x.shape[0], -1, 4)):
        raise ctx.error(f"input GTBox must be (N, B, 4), found shape {shape_text(boxes.shape)}")
    for slot, value in (("GTLabel", labels), ("GTScore", scores)):
        if not (value is None or fits(value.shape, boxes.shape[:2])):
            raise ctx.error(
                f"input {slot} must be (N, B) as GTBox {shape_text(boxes.shape)}, found shape {shape_text(value.shape)}"
            )


@yolov3_loss.infer
def _(
    ctx: InferContext, X: TensorMeta, GTBox: TensorMeta, GTLabel: TensorMeta, GTScore: TensorMeta | None
) -> dict[str, TensorMeta]:
    _check(ctx, X, GTBox, GTLabel, GTScore)
    return {
        "Loss": TensorMeta((X.shape[0],), X.dtype),
        "ObjectnessMask": TensorMeta((X.shape[0], len(ctx.attr("anchor_mask")), *X.shape[2:]), X.dtype),
        "GTMatchMask": TensorMeta(GTBox.shape[:2], VarType.INT32),
    }


@yolov3_loss.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """yolov3_loss_grad names no gradient but that of X."""
    inputs = {slot: context.input(slot) for slot in ("X", "GTBox", "GTLabel", "GTScore")}
    inputs |= {slot: context.output(slot) for slot in ("ObjectnessMask", "GTMatchMask")}
    inputs["Loss@GRAD"] = context.output_grad("Loss")
    outputs: dict[str, list[str]] = {"X@GRAD": context.input_grad("X")}
    outputs |= {slot + "@GRAD": [] for slot in ("GTBox", "GTLabel", "GTScore")}
    return [context.describe("yolov3_loss_grad", inputs, outputs)]


@op(
    "yolov3_loss_grad",
    inputs="X GTBox GTLabel GTScore? ObjectnessMask GTMatchMask Loss@GRAD",
    outputs="X@GRAD GTBox@GRAD? GTLabel@GRAD? GTScore@GRAD?",
    attrs=ATTRS,
)
def yolov3_loss_grad(
    ctx: OpContext,
    X: Any,
    GTBox: Any,
    GTLabel: Any,
    GTScore: Any,
    ObjectnessMask: Any,
    GTMatchMask: Any,
    Loss_grad: Any,
) -> dict[str, Any]:
    """The gradient of X. Where two ground truths share a cell only the later one counts, as in Paddle."""
    xp, h = ctx.xp, head(ctx, X)
    score = xp.ones(GTBox.shape[:2], X.dtype) if GTScore is None else GTScore
    found = targets(ctx, h, GTBox, score)
    image, out = xp.arange(X.shape[0]), xp.zeros_like(h.maps)
    outputs = h.maps[image[:, None], found.channel, :, found.cell]
    share = Loss_grad.reshape(-1, 1)
    weight = found.weight * share
    tx, ty, tw, th = found.location
    location = [sigmoid(xp, outputs[:, :, 0]) - tx, sigmoid(xp, outputs[:, :, 1]) - ty]
    location += [xp.where(outputs[:, :, 2] > tw, 1, -1), xp.where(outputs[:, :, 3] > th, 1, -1)]
    classes = sigmoid(xp, outputs[:, :, 5:]) - class_labels(ctx, GTLabel, outputs)
    of_truth = xp.zeros_like(outputs)
    of_truth[:, :, :4] = xp.stack(location, axis=2) * weight[:, :, None]
    of_truth[:, :, 5:] = classes * (score * share)[:, :, None]
    for number in range(GTBox.shape[1]):
        rows = image[found.used[:, number]]
        out[rows, found.channel[rows, number], :, found.cell[rows, number]] = of_truth[rows, number]
    objectness = ObjectnessMask.reshape(X.shape[0], len(h.mask), -1)
    p = sigmoid(xp, h.maps[:, :, 4])
    out[:, :, 4] = xp.where(
        objectness > 1e-5, (p - 1) * objectness, xp.where(objectness > -0.5, p, 0)
    ) * Loss_grad.reshape(-1, 1, 1)
    return {"X@GRAD": out.reshape(X.shape)}
