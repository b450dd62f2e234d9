"""Activations that are straight lines by pieces, and the exponential ones next to them: relu, elu and their kin."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.activation.unary import FROM_OUT, FROM_X, LIBRARIES, activation
from fluidtool.ops.context import OpContext
from fluidtool.ops.math.versions import later_attr, saved_since
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN


@activation("relu", LIBRARIES, integers=True)
def relu(ctx: OpContext, X: Any) -> Any:
    """max(X, 0)."""
    return ctx.xp.maximum(X, X.dtype.type(0))


@relu.grad(**FROM_OUT)
def relu_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut where Out > 0."""
    return Out_grad * (Out > 0)


relu_grad.grad_maker(wired("relu_grad_grad", "Out DDX=X@GRAD@GRAD", "DDOut=Out@GRAD@GRAD"))


@op("relu_grad_grad", inputs="Out DDX", outputs="DDOut", attrs=LIBRARIES, lod="Out")
def relu_grad_grad(ctx: OpContext, Out: Any, DDX: Any) -> Any:
    """ddOut = ddX where Out > 0."""
    return DDX * (Out > 0)
