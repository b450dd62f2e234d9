"""lod_reset: the same rows under another LoD."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints
from fluidtool.ops.traits import Traits
from fluidtool.tensor.lod import LoD, lod_fault


@op(
    "lod_reset",
    inputs="X Y?",
    outputs="Out",
    attrs={"target_lod": ints(), "append": False},
    traits=Traits(memory="view", lod_branch="Y"),
)
def lod_reset(ctx: OpContext, X: Any, Y: Any, *, target_lod: list[int], append: bool) -> Any:
    """X with the LoD of Y, else with the offsets that Y holds, else with `target_lod`; `append` puts it below X's own.

    (Paddle 1.8.5 lod_reset_op.h)
    """
    lod: LoD = ctx.lod("Y") if Y is not None else []
    if not lod:
        level = target_lod if Y is None else ctx.host(Y).reshape(-1).tolist()
        if len(level) <= 1:
            raise ctx.error(f"the target LoD must have at least two offsets, found {list(level)}")
        lod = [[int(offset) for offset in level]]
        if append:
            lod = [*ctx.lod("X"), *lod]
    fault = lod_fault(lod[-1:] if append else lod, X.shape[0])
    if fault is not None:
        raise ctx.error(f"the target LoD does not fit X of {X.shape[0]} rows: {fault}")
    ctx.set_lod("Out", lod)
    return X


@lod_reset.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta | None, *, target_lod: list[int], append: bool) -> TensorMeta:
    if Y is None and len(target_lod) < 2:
        raise ctx.error(f"the target LoD must have at least two offsets, found {target_lod}")
    if Y is not None:
        return X.with_lod_level(max(Y.lod_level, 1))
    return X.with_lod_level(X.lod_level + 1 if append else 1)


@lod_reset.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def lod_reset_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """The gradient as it is."""
    return Out_grad
