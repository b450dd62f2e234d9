"""fused_elemwise_activation and fused_elemwise_add_activation: an elementwise operator and an activation in one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.elementwise_common import aligned, broadcast_meta, summed_to
from fluidtool.ops.registry import OpInfo, op
from fluidtool.ops.schema import STRINGS, TensorMeta, required
from fluidtool.records import dataclass

FUSED: dict[str, Any] = {
    "axis": -1,
    "scale": 0.0,
    "save_intermediate_out": False,
    "functor_list": required(STRINGS),
}
BINARY = ("elementwise_add", "elementwise_mul")
UNARY = ("scale", "relu", "tanh", "sigmoid", "gelu")


@dataclass(frozen=True, slots=True)
class Compound:
    """Unary(Binary(X, Y)) when `unary_outside`, else Binary(X, Unary(Y))."""

    unary: str
    multiplies: bool
    unary_outside: bool
    scale: float
    axis: int

    def binary(self, ctx: OpContext, x: Any, y: Any) -> Any:
        """x + y or x * y, broadcast."""
        x, y = aligned(ctx, x, y, self.axis)
        return x * y if self.multiplies else x + y

    def activate(self, ctx: OpContext, x: Any) -> Any:
        """Unary(x)."""
        if self.unary == "scale":
            return x * x.dtype.type(self.scale)
        if self.unary == "relu":
            return ctx.xp.maximum(x, 0)
        if self.unary == "tanh":
            return ctx.xp.tanh(x)
        if self.unary == "sigmoid":
            return 0.5 * ctx.xp.tanh(0.5 * x) + 0.5
        return 0.5 * x * (1 + ctx.special.erf(x * x.dtype.type(math.sqrt(0.5))))

    def slope(self, ctx: OpContext, x: Any) -> Any:
        """The derivative of Unary at x."""
        if self.unary == "scale":
            return x.dtype.type(self.scale)
        if self.unary == "relu":
            return (x > 0).astype(x.dtype)
        if self.unary == "gelu":
            below = 0.5 * (1 + ctx.special.erf(x * x.dtype.type(math.sqrt(0.5))))
            return below + x * ctx.xp.exp(-0.5 * x * x) * x.dtype.type(1 / math.sqrt(2 * math.pi))
        out = self.activate(ctx, x)
        return 1 - out * out if self.unary == "tanh" else out * (1 - out)


def _compound(ctx: OpContext | InferContext) -> Compound:
    """Read functor_list: two names (in gradients with _grad), the outer one first."""
    names = [name.removesuffix("_grad") for name in ctx.attr("functor_list")]
    unary_outside = len(names) == 2 and names[1] in BINARY
    binary, unary = (names[1], names[0]) if unary_outside else (names[0], names[-1]) if names else ("", "")
    if len(names) != 2 or binary not in BINARY or unary not in UNARY:
        raise ctx.error(
            f"attribute functor_list must be one of {', '.join(BINARY)} and one of {', '.join(UNARY)}, found {names}"
        )
    return Compound(unary, binary == "elementwise_mul", unary_outside, ctx.attr("scale"), ctx.attr("axis"))


def _run(ctx: OpContext, X: Any, Y: Any) -> dict[str, Any]:
    compound = _compound(ctx)
    if compound.unary_outside:
        middle = compound.binary(ctx, X, Y)
        out = compound.activate(ctx, middle)
    else:
        middle = compound.activate(ctx, Y)
        out = compound.binary(ctx, X, middle)
    source = "X" if X.ndim >= Y.ndim else "Y"
    ctx.set_lod("Out", ctx.lod(source))
    results = {"Out": out}
    if ctx.attr("save_intermediate_out"):
        ctx.set_lod("IntermediateOut", ctx.lod(source if compound.unary_outside else "Y"))
        results["IntermediateOut"] = middle
    return results


def _run_grad(ctx: OpContext, X: Any, Y: Any, Out: Any, IntermediateOut: Any, out_grad: Any) -> dict[str, Any]:
    """Gradients by X, Y and the intermediate value; X may be absent where it is only added."""
    compound = _compound(ctx)
    if X is None:
        if compound.multiplies:
            raise ctx.error("input X is absent, but the gradient of elementwise_mul needs it")
        if compound.unary_outside and IntermediateOut is None:
            raise ctx.error("inputs X and IntermediateOut are both absent")
        X = Out
    grads = {}
    if compound.unary_outside:
        middle = compound.binary(ctx, X, Y) if IntermediateOut is None else IntermediateOut
        grad = out_grad * compound.slope(ctx, middle)
        grads["IntermediateOut@GRAD"] = grad
        right = Y
    else:
        grad, right = out_grad, compound.activate(ctx, Y)
    by_x, by_y = grad, grad
    if compound.multiplies:
        x, y = aligned(ctx, X, right, compound.axis)
        by_x, by_y = grad * y, grad * x
    grads["X@GRAD"] = summed_to(ctx, by_x, X, Y, compound.axis)
    grads["Y@GRAD"] = summed_to(ctx, by_y, Y, X, compound.axis)
    if not compound.unary_outside:
        grads["IntermediateOut@GRAD"] = grads["Y@GRAD"]
        grads["Y@GRAD"] = grads["Y@GRAD"] * compound.slope(ctx, Y)
    return grads


def _infer(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> dict[str, TensorMeta]:
    compound = _compound(ctx)
    source = X if X.rank >= Y.rank else Y
    out = broadcast_meta(ctx, X, Y, axis=compound.axis).with_lod_level(source.lod_level)
    metas = {"Out": out}
    if ctx.attr("save_intermediate_out"):
        metas["IntermediateOut"] = out if compound.unary_outside else Y
    return metas


def _make_grad(context: GradMakerContext) -> list[OpDescription]:
    """Wired as Paddle's FusedElemwiseActivationGradMaker does: the functors get the suffix _grad."""
    saved = context.op.has_attr("save_intermediate_out") and context.op.attr("save_intermediate_out")
    inputs = {slot: context.input(slot) for slot in ("X", "Y")}
    inputs["Out"] = context.output("Out")
    inputs["Out@GRAD"] = context.output_grad("Out")
    inputs["IntermediateOut"] = context.output("IntermediateOut") if saved else []
    outputs = {slot + "@GRAD": context.input_grad(slot) for slot in ("X", "Y")}
    outputs["IntermediateOut@GRAD"] = context.output_grad("IntermediateOut") if saved else []
    functors = [name + "_grad" for name in context.op.attr("functor_list")]
    return [context.describe(context.op.type + "_grad", inputs, outputs, functor_list=functors)]


def _register(name: str) -> None:
    """The operator `name` and its gradient."""

    def kernel(ctx: OpContext, X: Any, Y: Any) -> dict[str, Any]:
        return _run(ctx, X, Y)

    def grad(ctx: OpContext, X: Any, Y: Any, Out: Any, IntermediateOut: Any, Out_grad: Any) -> dict[str, Any]:
        return _run_grad(ctx, X, Y, Out, IntermediateOut, Out_grad)

    decorate: Callable[..., OpInfo] = op(name, inputs="X Y", outputs="Out IntermediateOut~", attrs=FUSED)
    info = decorate(kernel)
    info.infer(_infer)
    info.grad_maker(_make_grad)
    op(
        name + "_grad",
        inputs="X? Y Out IntermediateOut? Out@GRAD",
        outputs="X@GRAD Y@GRAD IntermediateOut@GRAD",
        attrs=FUSED,
        lod="X->X@GRAD Y->Y@GRAD",
    )(grad)


for _name in ("fused_elemwise_activation", "fused_elemwise_add_activation"):
    _register(_name)
