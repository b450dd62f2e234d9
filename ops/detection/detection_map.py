"""detection_map: mean average precision of detections, accumulated over batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from itertools import pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import fits, jaccard
from fluidtool.ops.detection.suppression import descending
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

Marks = defaultdict[int, list[tuple[float, int]]]


@dataclass(slots=True)
class Tally:
    """By class: ground truths, and for every detection its score with whether it is right (1 or 0), and wrong."""

    positives: dict[int, int] = field(default_factory=dict)
    right: Marks = field(default_factory=lambda: defaultdict(list))
    wrong: Marks = field(default_factory=lambda: defaultdict(list))

    def mark(self, label: int, score: Any, is_right: bool) -> None:
        """Note one detection."""
        self.right[label].append((score, int(is_right)))
        self.wrong[label].append((score, int(not is_right)))


@dataclass(frozen=True, slots=True)
class Truth:
    """The ground truth of one class in one image."""

    boxes: Any
    difficult: Any


def by_class(np: Any, rows: Any) -> Iterator[tuple[int, Any]]:
    """(class, rows of it) by ascending class; the class is the whole part of the first column."""
    labels = rows[:, 0].astype("int64")
    for label in np.unique(labels):
        yield int(label), rows[labels == label]


def count(np: Any, tally: Tally, detections: Any, labels: Any, threshold: float, all_of_them: bool) -> None:
    """Add one image: each detection, best first, is right when the ground truth nearest to it is near and not yet taken.

    Ground truth marked difficult does not count, nor do detections of it, unless `all_of_them`.
    """
    truths = {}
    for label, rows in by_class(np, labels):
        difficult = abs(rows[:, 1]) >= 1e-6 if labels.shape[1] == 6 else np.zeros(len(rows), bool)
        truths[label] = Truth(rows[:, -4:], difficult)
        counted = len(rows) if all_of_them else int((~difficult).sum())
        if counted:
            tally.positives[label] = tally.positives.get(label, 0) + counted
    for label, rows in by_class(np, detections):
        truth = truths.get(label)
        if truth is None:
            for score in rows[:, 1]:
                tally.mark(label, score, False)
            continue
        rows = rows[descending(np, rows[:, 1])]
        overlaps = jaccard(np, rows[:, None, 2:6].clip(0, 1), truth.boxes, 0)
        nearest = overlaps.argmax(axis=1)
        taken = np.zeros(len(truth.boxes), bool)
        for score, overlap, chosen in zip(rows[:, 1], overlaps.max(axis=1), nearest, strict=True):
            if not overlap > overlaps.dtype.type(threshold):
                tally.mark(label, score, False)
            elif all_of_them or not truth.difficult[chosen]:
                tally.mark(label, score, not taken[chosen])
                taken[chosen] = True


def average_precision(np: Any, right: Any, wrong: Any, positives: int, eleven_points: bool, dtype: Any) -> Any:
    """From (score, mark) pairs [K, 2] of a class, by the area below precision over recall or by 11 points of it."""
    order = descending(np, right[:, 0])
    hits = np.cumsum(right[order, 1])
    misses = np.cumsum(wrong[descending(np, wrong[:, 0]), 1])
    precision = hits.astype(dtype) / (hits + misses).astype(dtype)
    recall = hits.astype(dtype) / dtype.type(positives)
    if eleven_points:
        return (eleven_maxima(np, precision, recall) / 11)[::-1].cumsum(dtype=dtype)[-1]
    steps = abs(np.diff(recall, prepend=dtype.type(0)))
    return np.where(steps > 1e-6, precision * steps, 0).cumsum(dtype="float32")[-1]


def eleven_maxima(np: Any, precision: Any, recall: Any) -> Any:
    """The best precision at recall of 0, 0.1, … 1, searched from the end in Paddle's way: once all that is left has
    enough recall, lower points search that much again and no more.
    """
    best = np.zeros(11, precision.dtype)
    end = len(recall)
    for point in range(10, -1, -1):
        first = int(np.searchsorted(recall[:end], point / 10.0, side="left"))
        best[point] = max(best[point], precision[first:end].max(initial=0))
        if first > 0:
            end = first
            if point > 0:
                best[point - 1] = best[point]
    return best


@op(
    "detection_map",
    inputs="DetectRes Label HasState? PosCount? TruePos? FalsePos?",
    outputs="AccumPosCount AccumTruePos AccumFalsePos MAP",
    attrs={
        "class_num": required(INT),
        "background_label": 0,
        "overlap_threshold": 0.5,
        "evaluate_difficult": True,
        "ap_type": "integral",
    },
)
def detection_map(
    ctx: OpContext,
    DetectRes: Any,
    Label: Any,
    HasState: Any,
    PosCount: Any,
    TruePos: Any,
    FalsePos: Any,
    *,
    class_num: int,
    background_label: int,
    overlap_threshold: float,
    evaluate_difficult: bool,
    ap_type: str,
) -> dict[str, Any]:
    """MAP [1] of DetectRes [M, 6] (label, score, box) for Label [K, 6] (label, difficult, box) or [K, 5] without difficult.

    Both have one sequence per image, boxes are relative to it. AccumPosCount [class_num, 1] int32 and AccumTruePos,
    AccumFalsePos [K, 2] (score, mark; one sequence per class) continue PosCount, TruePos and FalsePos when HasState is
    not 0. A class whose number of ground truths equals background_label is left out, as in Paddle (Paddle 1.8.5
    detection_map_op.h).
    """
    _check(ctx, DetectRes, Label, ap_type)
    np, tally = ctx.np, Tally()
    starts, label_starts = ctx.sequences("DetectRes"), ctx.sequences("Label")
    if len(starts) != len(label_starts):
        raise ctx.error(
            f"inputs DetectRes and Label must have equally many sequences, found {len(starts) - 1} and {len(label_starts) - 1}"
        )
    detections, labels = ctx.host(DetectRes), ctx.host(Label)
    if PosCount is not None and HasState is not None and int(ctx.host(HasState).reshape(-1)[0]):
        counts = ctx.host(PosCount).reshape(-1)
        tally.positives = {label: int(counts[label]) for label in range(class_num)}
        for slot, values, marks in (("TruePos", TruePos, tally.right), ("FalsePos", FalsePos, tally.wrong)):
            rows = ctx.host(values)
            for label, (start, end) in enumerate(pairwise(ctx.sequences(slot))):
                if end > start:
                    marks[label] = [(score, int(mark)) for score, mark in rows[start:end]]
    for own, gt in zip(pairwise(starts), pairwise(label_starts), strict=True):
        count(np, tally, detections[slice(*own)], labels[slice(*gt)], overlap_threshold, evaluate_difficult)
    mean = mean_precision(np, tally, background_label, ap_type == "11point", detections.dtype)
    out: dict[str, Any] = {"MAP": ctx.array(np.asarray([mean], detections.dtype))}
    for slot, marks in (("AccumTruePos", tally.right), ("AccumFalsePos", tally.wrong)):
        lists = [marks.get(label, []) for label in range(class_num)]
        ctx.set_lod(slot, [[0, *np.cumsum([len(pairs) for pairs in lists]).tolist()]])
        pairs = [pair for pairs in lists for pair in pairs]
        out[slot] = ctx.array(np.asarray(pairs, detections.dtype).reshape(-1, 2))
    positives = [[tally.positives.get(label, 0)] for label in range(class_num)]
    return out | {"AccumPosCount": ctx.array(np.asarray(positives, "int32"))}


def mean_precision(np: Any, tally: Tally, background: int, eleven_points: bool, dtype: Any) -> Any:
    """The mean of the average precisions of all classes that count; 0 without any."""
    values = []
    for label, positives in sorted(tally.positives.items()):
        if positives == background:
            continue
        right, wrong = tally.right.get(label), tally.wrong.get(label)
        if not right or not wrong:
            values.append(dtype.type(0))
            continue
        pairs = np.asarray(right, "float64"), np.asarray(wrong, "float64")
        values.append(average_precision(np, *pairs, positives, eleven_points, dtype))
    return np.asarray(values, dtype).cumsum(dtype=dtype)[-1] / dtype.type(len(values)) if values else dtype.type(0)


def _check(ctx: OpContext | InferContext, detections: Any, labels: Any, ap_type: str) -> None:
    if not fits(detections.shape, (-1, 6)):
        raise ctx.error(
            f"input DetectRes must be (M, 6), rows of label, score and box, found shape {shape_text(detections.shape)}"
        )
    if len(labels.shape) != 2 or labels.shape[1] not in (5, 6, -1):
        raise ctx.error(
            f"input Label must be (K, 6) or (K, 5), rows of label, perhaps difficult, and box, "
            f"found shape {shape_text(labels.shape)}"
        )
    if ap_type not in ("integral", "11point"):
        raise ctx.error(f"attribute ap_type must be 'integral' or '11point', found {ap_type!r}")


@detection_map.infer
def _(
    ctx: InferContext,
    DetectRes: TensorMeta,
    Label: TensorMeta,
    HasState: TensorMeta | None,
    PosCount: TensorMeta | None,
    TruePos: TensorMeta | None,
    FalsePos: TensorMeta | None,
    *,
    ap_type: str,
) -> dict[str, TensorMeta]:
    # Paddle leaves the shapes of the states undeclared: they are carried from batch to batch.
    _check(ctx, DetectRes, Label, ap_type)
    return {"MAP": TensorMeta((1,), DetectRes.dtype)}
