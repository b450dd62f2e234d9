"""select_input and select_output: one of several variables, by number."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.control_flow.scopes import shared
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta


@op("select_input", inputs="X* Mask", outputs="Out", raw=True)
def select_input(ctx: OpContext) -> dict[str, list[Any]]:
    """Out = X[Mask]; a tensor, array of tensors or SelectedRows (Paddle 1.8.5 select_input_op.cc)."""
    branch = _branch(ctx, len(ctx.inputs.get("X", ())), "inputs X")
    return {"Out": [shared(ctx.value("X", branch))]}


@select_input.infer
def _(ctx: InferContext) -> TensorMeta | None:
    metas = [ctx.meta(name) for name in ctx.op.input("X")]
    return metas[0] if metas else None


@select_input.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.output_grad("Out"), "Mask": context.input("Mask")}
    return [context.describe("select_output", inputs, {"Out": context.input_grad("X", drop_empty=False)})]


@op("select_output", inputs="X Mask", outputs="Out*", raw=True)
def select_output(ctx: OpContext) -> dict[str, list[Any]]:
    """Out[Mask] = X; the other outputs are unchanged (Paddle 1.8.5 select_output_op.cc)."""
    count = len(ctx.outputs.get("Out", ()))
    values: list[Any] = [None] * count
    values[_branch(ctx, count, "outputs Out")] = shared(ctx.value("X"))
    return {"Out": values}


@select_output.infer
def _(ctx: InferContext) -> dict[str, list[TensorMeta | None]]:
    names = ctx.op.input("X")
    return {"Out": [ctx.meta(names[0]) if names else None] * ctx.count("Out")}


@select_output.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.output_grad("Out"), "Mask": context.input("Mask")}
    return [context.describe("select_input", inputs, {"Out": context.input_grad("X")})]


def _branch(ctx: OpContext, count: int, what: str) -> int:
    mask = ctx.value("Mask").array
    if mask is None or mask.size != 1:
        raise ctx.error(f"Mask must hold one number, found {'nothing' if mask is None else f'shape {mask.shape}'}")
    branch = int(mask.item())
    if not 0 <= branch < count:
        raise ctx.error(f"Mask is {branch}, but there are {count} {what}, numbered from 0")
    return branch
