"""Suppression for every class of a batch: multiclass_nms, multiclass_nms2 (with indices), multiclass_nms3 (Paddle 2.x)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.suppression import (
    Suppression,
    candidates,
    check_scores,
    descending,
    overlap_of,
    row_width,
    suppress,
)
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, INT, TensorMeta, required
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

ATTRS: dict[str, Any] = {
    "background_label": 0,
    "score_threshold": required(FLOAT),
    "nms_top_k": required(INT),
    "nms_threshold": 0.3,
    "nms_eta": 1.0,
    "keep_top_k": required(INT),
    "normalized": True,
}


Finder = Callable[[OpContext, Any, Any, list[int] | None], tuple[Any, Any, list[int]]]
"""Like `run`."""


@dataclass(frozen=True, slots=True)
class Options:
    """The attributes of the family."""

    background_label: int
    score_threshold: float
    nms_top_k: int
    nms_threshold: float
    nms_eta: float
    keep_top_k: int
    normalized: bool


@dataclass(frozen=True, slots=True)
class Detections:
    """What was found in one image, ordered by class: class, position of the box, score, box."""

    labels: Any
    positions: Any
    scores: Any
    boxes: Any


def options(ctx: OpContext) -> Options:
    """The attributes of the operator."""
    return Options(**{name: ctx.attr(name) for name in ATTRS})


def detect(
    np: Any, boxes: Any, scores: Any, chosen: Options, per_class: bool, keep: Suppression = suppress
) -> Detections:
    """Detections of one image from scores [C, M] and boxes [M, width], or [M, C, width] if each class has its own."""
    overlap = overlap_of(np, boxes.shape[-1], chosen.normalized)
    labels, positions = [], []
    busy = np.flatnonzero((scores > scores.dtype.type(chosen.score_threshold)).any(axis=1))
    for label in busy:
        if label == chosen.background_label:
            continue
        order = candidates(np, scores[label], chosen.score_threshold, chosen.nms_top_k)
        of_class = boxes[order, label] if per_class else boxes[order]
        kept = order[keep(np, of_class, overlap, chosen.nms_threshold, chosen.nms_eta)]
        positions.append(np.sort(kept) if per_class else kept)
        labels.append(np.full(len(kept), label))
    label = np.concatenate([np.zeros(0, "int64"), *labels])
    position = np.concatenate([np.zeros(0, "int64"), *positions])
    if -1 < chosen.keep_top_k < len(label):
        best = descending(np, scores[label, position])[: chosen.keep_top_k]
        keys = (position[best], label[best]) if per_class else (label[best],)
        best = best[np.lexsort(keys)]
        label, position = label[best], position[best]
    found = boxes[position, label] if per_class else boxes[position]
    return Detections(label, position, scores[label, position], found)


def images(ctx: OpContext, BBoxes: Any, Scores: Any, offsets: list[int] | None) -> Iterator[tuple[Any, Any, int]]:
    """Boxes and scores [C, M] of each image and the position of its first box (times classes where these have their own)."""
    boxes, scores = ctx.host(BBoxes), ctx.host(Scores)
    if scores.ndim == 3:
        for image in range(len(scores)):
            yield boxes[image], scores[image], image * scores.shape[2]
        return
    for start, end in pairwise(offsets or [0]):
        yield boxes[start:end], scores[start:end].T, start * scores.shape[1]


def run(
    ctx: OpContext, BBoxes: Any, Scores: Any, offsets: list[int] | None, keep: Suppression = suppress
) -> tuple[Any, Any, list[int]]:
    """Rows [label, score, box …] of all images, their positions in the input [No, 1] int32, and offsets by image."""
    check_scores(ctx, BBoxes, Scores, flat=True)
    np, chosen, per_class = ctx.np, options(ctx), Scores.ndim == 2
    rows, indices = [], []
    for boxes, scores, first in images(ctx, BBoxes, Scores, offsets):
        found = detect(np, boxes, scores, chosen, per_class, keep)
        leading = np.stack([found.labels.astype(boxes.dtype), found.scores], axis=1)
        rows.append(np.concatenate([leading, found.boxes], axis=1))
        inside = found.positions * len(scores) + found.labels if per_class else found.positions
        indices.append((first + inside).astype("int32"))
    out = np.concatenate([np.zeros((0, BBoxes.shape[2] + 2), Scores.dtype), *rows]).astype(Scores.dtype)
    index = np.concatenate([np.zeros(0, "int32"), *indices])[:, None]
    return ctx.array(out), ctx.array(index), list(accumulate(map(len, rows), initial=0))


def lod_offsets(ctx: OpContext, Scores: Any) -> list[int] | None:
    """Where each image's boxes start, from the LoD of BBoxes; None if images have a separate dimension."""
    return ctx.sequences("BBoxes") if Scores.ndim == 2 else None


@op("multiclass_nms", inputs="BBoxes Scores", outputs="Out", attrs=ATTRS)
def multiclass_nms(ctx: OpContext, BBoxes: Any, Scores: Any) -> Any:
    """Detections [No, 2 + width] as label, score, box, with one sequence per image (Paddle 1.8.5 multiclass_nms_op.cc).

    Scores [N, C, M] with BBoxes [N, M, 4] (or polygons of 8, 16, 24 or 32 numbers), or Scores [M, C] with BBoxes
    [M, C, 4] and a LoD. Nothing found at all gives [[-1]].
    """
    return detections(ctx, BBoxes, Scores)


def detections(ctx: OpContext, BBoxes: Any, Scores: Any, find: Finder = run) -> Any:
    """The output of multiclass_nms."""
    out, _, offsets = find(ctx, BBoxes, Scores, lod_offsets(ctx, Scores))
    if not len(out):
        out, offsets = ctx.array(ctx.np.full((1, 1), -1, Scores.dtype)), [0, 1]
    ctx.set_lod("Out", [offsets])
    return out


@op("multiclass_nms2", inputs="BBoxes Scores", outputs="Out Index~", attrs=ATTRS)
def multiclass_nms2(ctx: OpContext, BBoxes: Any, Scores: Any) -> dict[str, Any]:
    """multiclass_nms, and in Index [No, 1] int32 where each detection is among all boxes of the batch."""
    return detections_and_index(ctx, BBoxes, Scores)


def detections_and_index(ctx: OpContext, BBoxes: Any, Scores: Any, find: Finder = run) -> dict[str, Any]:
    """The outputs of multiclass_nms2."""
    out, index, offsets = find(ctx, BBoxes, Scores, lod_offsets(ctx, Scores))
    ctx.set_lod("Out", [offsets])
    ctx.set_lod("Index", [offsets])
    return {"Out": out, "Index": index}


@op(
    "multiclass_nms3",
    inputs="BBoxes Scores RoisNum?",
    outputs="Out Index NmsRoisNum?",
    attrs=ATTRS,
)
def multiclass_nms3(ctx: OpContext, BBoxes: Any, Scores: Any, RoisNum: Any) -> dict[str, Any]:
    """multiclass_nms2 without LoD: RoisNum [N] says how many boxes of flat input each image has, NmsRoisNum [N] int32
    how many detections (Paddle 2.6.2 multiclass_nms3_kernel.cc).
    """
    return detections_and_counts(ctx, BBoxes, Scores, RoisNum)


def detections_and_counts(ctx: OpContext, BBoxes: Any, Scores: Any, RoisNum: Any, find: Finder = run) -> dict[str, Any]:
    """The outputs of multiclass_nms3."""
    offsets = None
    if Scores.ndim == 2:
        offsets = ctx.sequences("BBoxes") if RoisNum is None else [0, *accumulate(ctx.host(RoisNum).tolist())]
    out, index, found = find(ctx, BBoxes, Scores, offsets)
    counts = [end - start for start, end in pairwise(found)]
    return {"Out": out, "Index": index, "NmsRoisNum": ctx.array(ctx.np.asarray(counts, "int32"))}


def _rows(ctx: InferContext, BBoxes: TensorMeta, Scores: TensorMeta) -> int:
    """What Paddle writes for the number of detections: until 2.0 the number of boxes of one image."""
    check_scores(ctx, BBoxes, Scores, flat=True)
    return BBoxes.shape[1] if Scores.rank == 3 and not saved_since(ctx, 2, 0) else -1


@multiclass_nms.infer
def _(ctx: InferContext, BBoxes: TensorMeta, Scores: TensorMeta) -> TensorMeta:
    shape = (_rows(ctx, BBoxes, Scores), row_width(BBoxes))
    return TensorMeta(shape, Scores.dtype, max(BBoxes.lod_level, 1))


@multiclass_nms2.infer
def _(ctx: InferContext, BBoxes: TensorMeta, Scores: TensorMeta) -> dict[str, TensorMeta]:
    rows, level = _rows(ctx, BBoxes, Scores), max(BBoxes.lod_level, 1)
    return {
        "Out": TensorMeta((rows, row_width(BBoxes)), Scores.dtype, level),
        "Index": TensorMeta((rows, 1), VarType.INT32, level),
    }


@multiclass_nms3.infer
def _(ctx: InferContext, BBoxes: TensorMeta, Scores: TensorMeta, RoisNum: TensorMeta | None) -> dict[str, TensorMeta]:
    check_scores(ctx, BBoxes, Scores, flat=True)
    images = Scores.shape[0] if Scores.rank == 3 else RoisNum.shape[0] if RoisNum is not None else -1
    return {
        "Out": TensorMeta((-1, row_width(BBoxes)), Scores.dtype),
        "Index": TensorMeta((-1, 1), VarType.INT32),
        "NmsRoisNum": TensorMeta((images,), VarType.INT32),
    }
