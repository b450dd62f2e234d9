"""rnn_memory_helper: names a step's output of a static RNN; a missing gradient is 0."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType

ATTRS: dict[str, Any] = {"dtype": int(VarType.FP32)}


@op("rnn_memory_helper", inputs="X", outputs="Out", attrs=ATTRS, lod="X")
def rnn_memory_helper(ctx: OpContext, X: Any) -> Any:
    """Out = X (Paddle 1.8.5 rnn_memory_helper_op.cc)."""
    return X


@rnn_memory_helper.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@rnn_memory_helper.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.input("X"), "Out": context.output("Out"), "Out@GRAD": context.output_grad("Out")}
    return [context.describe("rnn_memory_helper_grad", inputs, {"X@GRAD": context.input_grad("X")})]


@op("rnn_memory_helper_grad", inputs="Out@GRAD X Out", outputs="X@GRAD", attrs=ATTRS, raw=True)
def rnn_memory_helper_grad(ctx: OpContext) -> dict[str, Any]:
    """dX = dOut, or zeros like X without it (Paddle 1.8.5 rnn_memory_helper_op.cc)."""
    ctx.set_lod("X@GRAD", ctx.lod("X"))
    if ctx.has("Out@GRAD") and ctx.value("Out@GRAD").array is not None:
        return {"X@GRAD": ctx.value("Out@GRAD").array}
    return {"X@GRAD": ctx.xp.zeros_like(ctx.value("X").array)}
