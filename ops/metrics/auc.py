"""auc: the area under the ROC curve, from histograms of scores that are kept between runs."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, limited
from fluidtool.proto.enums import VarType


@op(
    "auc",
    inputs="Predict Label StatPos StatNeg InsTagWeight/+",
    outputs="AUC StatPosOut StatNegOut",
    attrs={"curve": "ROC", "num_thresholds": limited(8191, 1), "slide_steps": limited(1, 0)},
)
def auc(
    ctx: OpContext,
    Predict: Any,
    Label: Any,
    StatPos: Any,
    StatNeg: Any,
    InsTagWeight: Any,
    *,
    num_thresholds: int,
    slide_steps: int,
) -> Any:
    """AUC (float64, one number) over the last slide_steps batches, or over all when that is 0.

    Predict [N, 1 or 2]: its last column is the probability of label 1; Label [N, 1] integers, 0 or above. StatPos and
    StatNeg are int64 histograms of num_thresholds + 1 buckets: one for each step, then their sum, then a count of the
    steps; a single one without sliding, where the rest of a longer variable is dropped. Labels below 0 are not counted
    (Paddle 1.8.5 auc_op.h). A first InsTagWeight of 0 says that the batch stands for no samples: the sums do not count it
    (Paddle 2.6.2).
    """
    buckets, length = num_thresholds + 1, prod(_shape(num_thresholds, slide_steps))
    for slot, stat in (("StatPos", StatPos), ("StatNeg", StatNeg)):
        if stat.size < length or (slide_steps and stat.size > length):
            raise ctx.error(
                f"input {slot} must hold {length} counts for num_thresholds={num_thresholds} and "
                f"slide_steps={slide_steps}, found shape {stat.shape}"
            )
    positive, negative = _histograms(ctx, Predict, Label, num_thresholds)
    now = int(StatPos.reshape(-1)[-1]) % slide_steps * buckets if slide_steps else 0
    counts = InsTagWeight is None or float(ctx.host(InsTagWeight).reshape(-1)[0]) != 0
    positives = _updated(StatPos.reshape(-1)[:length], positive, now, slide_steps, counts)
    negatives = _updated(StatNeg.reshape(-1)[:length], negative, now, slide_steps, counts)
    total, shape = slice(slide_steps * buckets, (slide_steps + 1) * buckets), _shape(num_thresholds, slide_steps)
    return {
        "AUC": _area(ctx, positives[total], negatives[total]),
        "StatPosOut": positives.reshape(shape),
        "StatNegOut": negatives.reshape(shape),
    }


def _shape(num_thresholds: int, slide_steps: int) -> tuple[int, ...]:
    buckets = num_thresholds + 1
    return ((slide_steps + 1) * buckets + 1,) if slide_steps else (1, buckets)


def _histograms(ctx: OpContext, Predict: Any, Label: Any, num_thresholds: int) -> tuple[Any, Any]:
    if Predict.ndim != 2 or Label.size != len(Predict):
        raise ctx.error(
            f"inputs Predict (N, classes) and Label (N, 1) must agree in N, found {Predict.shape} and {Label.shape}"
        )
    scores = Predict[:, -1]
    outside = ~((scores >= 0) & (scores <= 1))
    if outside.any():
        raise ctx.error(
            f"input Predict must lie in [0, 1], found {scores[outside][0]}; feed it through a sigmoid or softmax"
        )
    places = (scores * num_thresholds).astype(ctx.xp.int64)
    labels = Label.reshape(-1)
    positive = ctx.xp.bincount(places[labels > 0], minlength=num_thresholds + 1)
    negative = ctx.xp.bincount(places[labels == 0], minlength=num_thresholds + 1)
    return positive, negative


def _updated(stat: Any, batch: Any, now: int, slide_steps: int, counts: bool) -> Any:
    """The histograms after this batch: in their sum it replaces the batch slide_steps ago, which is stored at `now`.

    One that does not count leaves nothing in the sum, but is stored, as in Paddle.
    """
    if slide_steps == 0:
        return stat + batch if counts else stat
    out, buckets = stat.copy(), len(batch)
    total = slice(slide_steps * buckets, (slide_steps + 1) * buckets)
    out[total] += batch * counts - out[now : now + buckets]
    out[now : now + buckets] = batch
    out[-1] += 1
    return out


def _area(ctx: OpContext, positive: Any, negative: Any) -> Any:
    """Trapezoids under the curve as the threshold falls."""
    xp = ctx.xp
    true, false = xp.cumsum(positive[::-1]).astype(xp.float64), xp.cumsum(negative[::-1]).astype(xp.float64)
    area = (abs(negative[::-1]) * (2 * true - positive[::-1]) / 2).sum()
    some = (true[-1] > 0) & (false[-1] > 0)
    return xp.where(some, area / xp.where(some, true[-1] * false[-1], 1), area).reshape(scalar_shape(ctx))


@auc.infer
def _(
    ctx: InferContext,
    Predict: TensorMeta,
    Label: TensorMeta,
    StatPos: TensorMeta,
    StatNeg: TensorMeta,
    InsTagWeight: TensorMeta | None,
    *,
    num_thresholds: int,
    slide_steps: int,
) -> dict[str, TensorMeta]:
    stat = TensorMeta(_shape(num_thresholds, slide_steps), VarType.INT64)
    return {"AUC": TensorMeta(scalar_shape(ctx), VarType.FP64), "StatPosOut": stat, "StatNegOut": stat}
