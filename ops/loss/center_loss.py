"""center_loss: half the squared distance of each sample to the center of its class, and the centers' update."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.loss.labels import check_classes
from fluidtool.ops.registry import op
from fluidtool.ops.schema import BOOLEAN, INT, TensorMeta, required


@op(
    "center_loss",
    inputs="X Label Centers CenterUpdateRate",
    outputs="CentersOut SampleCenterDiff Loss",
    attrs={"cluster_num": required(INT), "need_update": required(BOOLEAN)},
    lod="X->Loss",
)
def center_loss(
    ctx: OpContext, X: Any, Label: Any, Centers: Any, CenterUpdateRate: Any, *, cluster_num: int, need_update: bool
) -> Any:
    """Loss [N, 1] = |x - center|² / 2; centers move by rate * (sum of their differences) / (1 + their samples).

    X [N, D], Label N integers, Centers [cluster_num, D], CenterUpdateRate [1] (Paddle 1.8.5 center_loss_op.h).
    """
    _check(ctx, X, Centers)
    if len(Centers) != cluster_num:
        raise ctx.error(f"input Centers must have cluster_num={cluster_num} rows, found shape {Centers.shape}")
    labels = Label.reshape(-1)
    if len(labels) != len(X):
        raise ctx.error(f"input Label must hold {len(X)} labels, found shape {Label.shape}")
    check_classes(ctx, labels, cluster_num)
    difference = X - Centers[labels]
    loss = (difference * difference).sum(axis=1, keepdims=True) / 2
    centers = _moved(ctx, Centers, labels, difference, CenterUpdateRate.reshape(-1)[0]) if need_update else Centers
    return {"CentersOut": centers, "SampleCenterDiff": difference, "Loss": loss}


def _moved(ctx: OpContext, centers: Any, labels: Any, difference: Any, rate: Any) -> Any:
    member = (labels == ctx.xp.arange(len(centers))[:, None]).astype(centers.dtype)
    return centers + member @ difference * (rate / (1 + member.sum(axis=1, keepdims=True)))


def _check(ctx: OpContext | InferContext, X: Any, Centers: Any) -> None:
    x, centers = tuple(X.shape), tuple(Centers.shape)
    if not (len(x) == 2 and len(centers) == 2 and (x[1] == centers[1] or -1 in (x[1], centers[1]))):
        raise ctx.error(f"inputs X (N, D) and Centers (classes, D) must agree in D, found {x} and {centers}")


@center_loss.infer
def _(
    ctx: InferContext, X: TensorMeta, Label: TensorMeta, Centers: TensorMeta, CenterUpdateRate: TensorMeta
) -> dict[str, TensorMeta]:
    _check(ctx, X, Centers)
    return {
        "CentersOut": X.with_shape(Centers.shape).with_lod_level(0),
        "SampleCenterDiff": X.with_shape((X.shape[0], Centers.shape[1])).with_lod_level(0),
        "Loss": X.with_shape((X.shape[0], 1)),
    }


@center_loss.grad(inputs="X SampleCenterDiff Loss@GRAD", outputs="X@GRAD")
def center_loss_grad(ctx: OpContext, X: Any, SampleCenterDiff: Any, Loss_grad: Any) -> Any:
    """dX = dLoss * (x - center)."""
    return Loss_grad * SampleCenterDiff
