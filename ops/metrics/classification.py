"""precision_recall, mean_iou and positive_negative_pair."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.loss.labels import check_classes
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.proto.enums import VarType


@op(
    "precision_recall",
    inputs="MaxProbs Indices Labels Weights? StatesInfo?",
    outputs="BatchMetrics AccumMetrics AccumStatesInfo",
    attrs={"class_number": required(INT)},
)
def precision_recall(
    ctx: OpContext, MaxProbs: Any, Indices: Any, Labels: Any, Weights: Any, StatesInfo: Any, *, class_number: int
) -> Any:
    """Macro and micro averaged precision, recall and F1 of this batch, and with the earlier StatesInfo added.

    Indices (predicted classes), Labels, Weights [N, 1]; the metrics are float64 [6]; AccumStatesInfo [class_number, 4]
    counts true positives, false positives, true negatives and false negatives (Paddle 1.8.5 precision_recall_op.h).
    """
    xp = ctx.xp
    predicted, labels = Indices.reshape(-1), Labels.reshape(-1)
    if not (len(predicted) == len(labels) and (Weights is None or Weights.size == len(labels))):
        raise ctx.error(
            f"inputs Indices, Labels and Weights must have one row per sample, found {Indices.shape} and {Labels.shape}"
        )
    check_classes(ctx, predicted, class_number, slot="Indices")
    check_classes(ctx, labels, class_number, slot="Labels")
    dtype = MaxProbs.dtype
    weights = xp.ones(len(labels), dtype) if Weights is None else Weights.reshape(-1)
    classes = xp.arange(class_number)[:, None]
    chosen, true = (predicted == classes).astype(dtype) * weights, labels == classes
    hits, misses = chosen * true, weights * true * (predicted != classes)
    states = xp.stack([hits, chosen * ~true, weights - xp.maximum(chosen, weights * true), misses], axis=-1).sum(axis=1)
    states = states.astype(dtype)
    total = states if StatesInfo is None else states + StatesInfo
    return {"BatchMetrics": _metrics(ctx, states), "AccumMetrics": _metrics(ctx, total), "AccumStatesInfo": total}


def _metrics(ctx: OpContext, states: Any) -> Any:
    xp = ctx.xp
    hits, false, missed = states[:, 0], states[:, 1], states[:, 3]
    macro = _ratio(ctx, hits, false).mean(), _ratio(ctx, hits, missed).mean()
    micro = _ratio(ctx, hits.sum(), false.sum()), _ratio(ctx, hits.sum(), missed.sum())
    values = [*macro, _f1(ctx, *macro), *micro, _f1(ctx, *micro)]
    return xp.stack(values).astype(xp.float64)


def _ratio(ctx: OpContext, hits: Any, others: Any) -> Any:
    """hits / (hits + others), 1 where there are neither."""
    some = (hits > 0) | (others > 0)
    one = hits.dtype.type(1)
    return ctx.xp.where(some, hits, one) / ctx.xp.where(some, hits + others, one)


def _f1(ctx: OpContext, precision: Any, recall: Any) -> Any:
    some = (precision > 0) | (recall > 0)
    divisor = ctx.xp.where(some, precision + recall, precision.dtype.type(1))
    return 2 * precision * recall / divisor


@precision_recall.infer
def _(
    ctx: InferContext,
    MaxProbs: TensorMeta,
    Indices: TensorMeta,
    Labels: TensorMeta,
    Weights: TensorMeta | None,
    StatesInfo: TensorMeta | None,
    *,
    class_number: int,
) -> dict[str, TensorMeta]:
    metrics = TensorMeta((6,), VarType.FP64)
    states = TensorMeta((class_number, 4), MaxProbs.dtype)
    return {"BatchMetrics": metrics, "AccumMetrics": metrics, "AccumStatesInfo": states}


@op(
    "mean_iou",
    inputs="Predictions Labels InWrongs*? InCorrects*? InMeanIou*?",
    outputs="OutMeanIou OutWrong OutCorrect",
    attrs={"num_classes": required(INT)},
)
def mean_iou(
    ctx: OpContext,
    Predictions: Any,
    Labels: Any,
    InWrongs: list[Any],
    InCorrects: list[Any],
    InMeanIou: list[Any],
    *,
    num_classes: int,
) -> Any:
    """OutMeanIou = mean of correct / (correct + wrong) over the classes that occur, plus the inputs InMeanIou.

    Predictions, Labels: integers of one shape. OutWrong and OutCorrect, int32 [num_classes], include InWrongs and
    InCorrects; a wrong prediction counts for both of its classes (Paddle 1.8.5 mean_iou_op.h).
    """
    xp = ctx.xp
    predicted, labels = Predictions.reshape(-1), Labels.reshape(-1)
    if len(predicted) != len(labels):
        raise ctx.error(
            f"inputs Predictions and Labels must have the same shape, found {Predictions.shape} and {Labels.shape}"
        )
    check_classes(ctx, predicted, num_classes, slot="Predictions")
    check_classes(ctx, labels, num_classes, slot="Labels")
    wrong = predicted != labels
    correct = xp.bincount(labels[~wrong], minlength=num_classes)
    missed = xp.bincount(xp.concatenate([labels[wrong], predicted[wrong]]), minlength=num_classes)
    correct = (correct + sum(InCorrects)).astype(xp.int32)
    missed = (missed + sum(InWrongs)).astype(xp.int32)
    occurring = correct + missed
    shares = correct.astype(xp.float32) / xp.maximum(occurring, 1).astype(xp.float32)
    mean = shares.sum() / (occurring > 0).sum().astype(xp.float32)
    return {"OutMeanIou": mean.reshape(1) + sum(InMeanIou), "OutWrong": missed, "OutCorrect": correct}


@mean_iou.infer
def _(
    ctx: InferContext,
    Predictions: TensorMeta,
    Labels: TensorMeta,
    InWrongs: list[TensorMeta],
    InCorrects: list[TensorMeta],
    InMeanIou: list[TensorMeta],
    *,
    num_classes: int,
) -> dict[str, TensorMeta]:
    counts = TensorMeta((num_classes,), VarType.INT32)
    return {"OutMeanIou": TensorMeta((1,), VarType.FP32), "OutWrong": counts, "OutCorrect": counts}


@op(
    "positive_negative_pair",
    inputs="Score Label QueryID AccumulatePositivePair? AccumulateNegativePair? AccumulateNeutralPair? Weight?",
    outputs="PositivePair NegativePair NeutralPair?",
    attrs={"column": 0},
)
def positive_negative_pair(
    ctx: OpContext,
    Score: Any,
    Label: Any,
    QueryID: Any,
    AccumulatePositivePair: Any,
    AccumulateNegativePair: Any,
    AccumulateNeutralPair: Any,
    Weight: Any,
    *,
    column: int,
) -> Any:
    """Pairs of one query with different labels: scored in the labels' order (positive), otherwise, or equally.

    Score [N, width], of which `column` counts; Label, QueryID, Weight [N, 1]. A pair weighs the mean of its weights;
    equal scores count as neutral and as negative (Paddle 1.8.5 positive_negative_pair_op.h).
    """
    xp, width = ctx.xp, Score.shape[1]
    if not -width <= column < width:
        raise ctx.error(f"column {column} is out of range for Score of shape {Score.shape}")
    query = QueryID.reshape(-1)
    fields = [Score[:, column], Label.reshape(-1), xp.ones_like(Score[:, 0]) if Weight is None else Weight.reshape(-1)]
    if not all(len(field) == len(query) for field in fields):
        raise ctx.error(
            f"inputs Score, Label, QueryID and Weight must have one row per document, found {Score.shape}, {Label.shape} "
            f"and {QueryID.shape}"
        )
    counts = xp.zeros(3, Score.dtype)
    for one in xp.unique(query):
        counts = counts + _count_pairs(ctx, *(field[query == one] for field in fields))
    earlier = (AccumulatePositivePair, AccumulateNegativePair, AccumulateNeutralPair)
    if all(count is not None for count in earlier):
        counts = counts + xp.concatenate([count.reshape(1) for count in earlier])
    return {"PositivePair": counts[:1], "NegativePair": counts[1:2], "NeutralPair": counts[2:]}


def _count_pairs(ctx: OpContext, score: Any, label: Any, weight: Any) -> Any:
    xp = ctx.xp
    first, second = xp.triu_indices(len(score), 1)
    different = label[first] != label[second]
    first, second = first[different], second[different]
    weights = (weight[first] + weight[second]) / 2
    gap = score[first] - score[second]
    ordered = gap * (label[first] - label[second]) > 0
    return xp.stack([(weights * ordered).sum(), (weights * ~ordered).sum(), (weights * (gap == 0)).sum()])


@positive_negative_pair.infer
def _(
    ctx: InferContext,
    Score: TensorMeta,
    Label: TensorMeta,
    QueryID: TensorMeta,
    AccumulatePositivePair: TensorMeta | None,
    AccumulateNegativePair: TensorMeta | None,
    AccumulateNeutralPair: TensorMeta | None,
    Weight: TensorMeta | None,
) -> dict[str, TensorMeta]:
    count = TensorMeta((1,), Score.dtype)
    return {"PositivePair": count, "NegativePair": count, "NeutralPair": count}
