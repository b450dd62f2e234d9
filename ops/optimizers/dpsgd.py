"""dpsgd: gradient descent with a clipped gradient and one random number added (differential privacy)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.optimizers.common import check_shapes, like_inputs, number
from fluidtool.ops.registry import op
from fluidtool.ops.traits import Traits


@op(
    "dpsgd",
    inputs="Param Grad LearningRate",
    outputs="ParamOut",
    attrs={"clip": 10.0, "batch_size": 16.0, "sigma": 1.0, "seed": 0},
    random=True,
    traits=Traits(sharded=()),
)
def dpsgd(
    ctx: OpContext,
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    *,
    clip: float,
    batch_size: float,
    sigma: float,
    seed: int,
) -> Any:
    """p -= lr * (g / max(|g| / clip, 1) + noise / batch_size); noise is one number of N(0, sigma²) (dpsgd_op.h)."""
    check_shapes(ctx, Param=Param, Grad=Grad)
    if not (clip > 0 and batch_size > 0):
        raise ctx.error(f"clip and batch_size must be positive, found {clip} and {batch_size}")
    norm = ctx.xp.sqrt((Grad * Grad).sum())
    scale = ctx.xp.maximum(norm / clip, 1)
    noise = float(ctx.generator(seed).normal(0.0, sigma))
    return Param - number(ctx, LearningRate, Param) * (Grad / scale + noise / batch_size)


like_inputs(dpsgd, ParamOut="Param")
