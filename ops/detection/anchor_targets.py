"""Which anchors a region proposal network learns from: rpn_target_assign, retinanet_target_assign."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import check_boxes, check_info, pixel_deltas, pixel_overlaps
from fluidtool.ops.detection.sampling import reservoir
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, TensorMeta, required
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

TIE = 1e-5  # overlaps closer than this to the best one of a box count as the best


@dataclass(frozen=True, slots=True)
class Sampling:
    """The maximum number of anchors per image, and of foreground among them; None for all. The generator samples them."""

    batch: int
    foreground: int
    generator: Any


@dataclass(frozen=True, slots=True)
class Assignment:
    """Anchors of one image: foreground, background, those with a target box, its ground truth, and its weights."""

    foreground: Any
    background: Any
    located: Any
    truth: Any
    weights: Any


def assign(np: Any, overlaps: Any, positive: float, negative: float, sampling: Sampling | None) -> Assignment:
    """Assign anchors from overlaps [A, G] with ground truth (Paddle's ScoreAssign).

    Foreground is what overlaps a box by `positive` or as well as any anchor does, background what overlaps none by
    `negative`; background wins. Foreground that it takes leaves a copy of the first foreground anchor without weight.
    """
    number = overlaps.dtype.type
    best = overlaps.max(axis=1, initial=number(-np.inf))
    top = overlaps.max(axis=0, initial=number(-np.inf))
    is_best = (abs(overlaps - top) < number(TIE)).any(axis=1)
    foreground = np.flatnonzero(is_best | (best >= number(positive)))
    background = np.flatnonzero(best < number(negative))
    if sampling is not None:
        foreground = foreground[reservoir(np, sampling.foreground, len(foreground), sampling.generator)]
        room = sampling.batch - len(foreground)
        background = background[reservoir(np, room, len(background), sampling.generator)]
    label = np.full(len(overlaps), -1)
    label[foreground] = 1
    taken = int((label[background] == 1).sum())
    label[background] = 0
    positives = np.flatnonzero(label == 1)
    located = np.concatenate([np.repeat(foreground[:1], taken), positives])
    truth = overlaps[located].argmax(axis=1) if overlaps.shape[1] else np.zeros(0, "int64")
    weights = np.ones((len(located), 4), overlaps.dtype)
    weights[:taken] = 0
    return Assignment(positives, np.flatnonzero(label == 0), located, truth, weights)


@dataclass(frozen=True, slots=True)
class Image:
    """What one image gives: the anchors that count, the ground truth that is no crowd, in the scaled image."""

    inside: Any
    boxes: Any
    labels: Any


def images(
    ctx: OpContext, Anchor: Any, GtBoxes: Any, IsCrowd: Any, ImInfo: Any, labels: Any, straddle: float
) -> Iterator[Image]:
    """Each image's anchors and ground truth; anchors may stick out by `straddle` pixels, as far as they like if < 0."""
    np = ctx.np
    anchors, boxes, crowd, info = map(ctx.host, (Anchor, GtBoxes, IsCrowd, ImInfo))
    starts, crowd_starts = ctx.sequences("GtBoxes"), ctx.sequences("IsCrowd")
    if starts != crowd_starts or len(info) < len(starts) - 1:
        raise ctx.error(
            f"inputs GtBoxes, IsCrowd and ImInfo must describe the same images, found LoD {starts}, LoD {crowd_starts} and "
            f"{len(info)} rows"
        )
    number = anchors.dtype.type
    inside = np.arange(len(anchors))
    for image, (start, end) in enumerate(pairwise(starts)):
        height, width, scale = info[image, :3]
        if straddle >= 0:
            border = number(straddle)
            within = (anchors[:, :2] >= -border).all(axis=1)
            within &= (anchors[:, 2] < width + border) & (anchors[:, 3] < height + border)
            inside = np.flatnonzero(within)
        kept = start + np.flatnonzero(crowd.reshape(-1)[start:end] == 0)
        yield Image(inside, boxes[kept] * scale, None if labels is None else labels.reshape(-1)[kept])


def outputs(ctx: OpContext, Anchor: Any, found: list[tuple[Image, Assignment]], labels: list[Any]) -> dict[str, Any]:
    """The outputs that both operators have; labels are those of each image's foreground."""
    np, anchors = ctx.np, ctx.host(Anchor)
    located, scored, targets, classes = [], [], [], []
    for number, ((image, assigned), label) in enumerate(zip(found, labels, strict=True)):
        first = number * len(anchors)
        located.append(image.inside[assigned.located] + first)
        scored.append(image.inside[np.concatenate([assigned.foreground, assigned.background])] + first)
        truth = image.boxes[assigned.truth] if len(assigned.truth) else np.zeros((0, 4), anchors.dtype)
        targets.append(pixel_deltas(np, anchors[image.inside[assigned.located]], truth))
        classes.append(np.concatenate([label, np.zeros(len(assigned.background), "int32")]))
    for slot, parts in (
        ("LocationIndex", located),
        ("TargetBBox", located),
        ("BBoxInsideWeight", located),
        ("ScoreIndex", scored),
        ("TargetLabel", scored),
    ):
        ctx.set_lod(slot, [list(accumulate(map(len, parts), initial=0))])
    return {
        "LocationIndex": ctx.array(np.concatenate(located).astype("int32")),
        "ScoreIndex": ctx.array(np.concatenate(scored).astype("int32")),
        "TargetBBox": ctx.array(np.concatenate(targets)),
        "TargetLabel": ctx.array(np.concatenate(classes).astype("int32")[:, None]),
        "BBoxInsideWeight": ctx.array(np.concatenate([assigned.weights for _, assigned in found])),
    }


def _check(ctx: OpContext | InferContext, anchor: Any, boxes: Any, info: Any) -> None:
    check_boxes(ctx, "Anchor", anchor)
    check_boxes(ctx, "GtBoxes", boxes)
    check_info(ctx, info)


@op(
    "rpn_target_assign",
    inputs="Anchor GtBoxes IsCrowd ImInfo",
    outputs="LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight",
    attrs={
        "rpn_batch_size_per_im": 256,
        "rpn_straddle_thresh": required(FLOAT),
        "rpn_positive_overlap": 0.7,
        "rpn_negative_overlap": 0.3,
        "rpn_fg_fraction": 0.25,
        "use_random": True,
    },
    random=True,
)
def rpn_target_assign(
    ctx: OpContext,
    Anchor: Any,
    GtBoxes: Any,
    IsCrowd: Any,
    ImInfo: Any,
    *,
    rpn_batch_size_per_im: int,
    rpn_straddle_thresh: float,
    rpn_positive_overlap: float,
    rpn_negative_overlap: float,
    rpn_fg_fraction: float,
    use_random: bool,
) -> dict[str, Any]:
    """Sampled anchors of every image: foreground in LocationIndex [F], with background in ScoreIndex [F + B], both int32
    and counted over all images; their labels 1 and 0, offsets TargetBBox [F, 4] and weights.

    Anchor [A, 4]; GtBoxes [G, 4] and IsCrowd [G] have one sequence per image; ImInfo [N, 3] is height, width, scale
    (Paddle 1.8.5 rpn_target_assign_op.cc). The draw is Paddle's, its numbers are not.
    """
    _check(ctx, Anchor, GtBoxes, ImInfo)
    np, sampling = ctx.np, None
    if rpn_fg_fraction > 0 and rpn_batch_size_per_im > 0:
        foreground = int(np.float32(rpn_fg_fraction) * np.float32(rpn_batch_size_per_im))
        sampling = Sampling(rpn_batch_size_per_im, foreground, ctx.generator() if use_random else None)
    found = []
    for image in images(ctx, Anchor, GtBoxes, IsCrowd, ImInfo, None, rpn_straddle_thresh):
        overlaps = pixel_overlaps(np, ctx.host(Anchor)[image.inside], image.boxes)
        found.append((image, assign(np, overlaps, rpn_positive_overlap, rpn_negative_overlap, sampling)))
    return outputs(ctx, Anchor, found, [np.ones(len(assigned.foreground), "int32") for _, assigned in found])


@rpn_target_assign.infer
def _(
    ctx: InferContext, Anchor: TensorMeta, GtBoxes: TensorMeta, IsCrowd: TensorMeta, ImInfo: TensorMeta
) -> dict[str, TensorMeta]:
    _check(ctx, Anchor, GtBoxes, ImInfo)
    return _metas(Anchor, -1)


def _metas(Anchor: TensorMeta, rows: int) -> dict[str, TensorMeta]:
    return {
        "LocationIndex": TensorMeta((rows,), VarType.INT32),
        "ScoreIndex": TensorMeta((rows,), VarType.INT32),
        "TargetBBox": TensorMeta((rows, 4), Anchor.dtype),
        "TargetLabel": TensorMeta((rows, 1), VarType.INT32),
        "BBoxInsideWeight": TensorMeta((rows, 4), Anchor.dtype),
    }


@op(
    "retinanet_target_assign",
    inputs="Anchor GtBoxes GtLabels IsCrowd ImInfo",
    outputs="LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight ForegroundNumber",
    attrs={"positive_overlap": 0.5, "negative_overlap": 0.4},
)
def retinanet_target_assign(
    ctx: OpContext,
    Anchor: Any,
    GtBoxes: Any,
    GtLabels: Any,
    IsCrowd: Any,
    ImInfo: Any,
    *,
    positive_overlap: float,
    negative_overlap: float,
) -> dict[str, Any]:
    """rpn_target_assign without sampling: all anchors, the label of foreground is the class from GtLabels [G, 1].

    ForegroundNumber [N, 1] int32 is how many target boxes an image has, plus 1 (Paddle 1.8.5 rpn_target_assign_op.cc).
    """
    _check(ctx, Anchor, GtBoxes, ImInfo)
    np, found, labels = ctx.np, [], []
    for image in images(ctx, Anchor, GtBoxes, IsCrowd, ImInfo, ctx.host(GtLabels), -1.0):
        overlaps = pixel_overlaps(np, ctx.host(Anchor), image.boxes)
        assigned = assign(np, overlaps, positive_overlap, negative_overlap, None)
        found.append((image, assigned))
        truth = assigned.truth[len(assigned.located) - len(assigned.foreground) :]
        labels.append(image.labels[truth].astype("int32"))
    counts = np.asarray([[len(assigned.located) + 1] for _, assigned in found], "int32")
    ctx.set_lod("ForegroundNumber", [list(range(len(counts) + 1))])
    return outputs(ctx, Anchor, found, labels) | {"ForegroundNumber": ctx.array(counts)}


@retinanet_target_assign.infer
def _(
    ctx: InferContext,
    Anchor: TensorMeta,
    GtBoxes: TensorMeta,
    GtLabels: TensorMeta,
    IsCrowd: TensorMeta,
    ImInfo: TensorMeta,
) -> dict[str, TensorMeta]:
    _check(ctx, Anchor, GtBoxes, ImInfo)
    rows = GtLabels.shape[0]
    return _metas(Anchor, rows) | {"ForegroundNumber": TensorMeta((rows, 1), VarType.INT32)}
