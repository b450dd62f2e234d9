"""conditional_block: a block run if a condition is true, and its gradient."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.scopes import drop_scopes, has_gradient, keep_scopes, kept_scopes, shared, zeros_like
from fluidtool.ops.gradient import GradMakerContext, OpDescription, grad_name
from fluidtool.ops.registry import op
from fluidtool.ops.schema import block, strings
from fluidtool.ops.traits import Traits
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows

ATTRS: dict[str, Any] = {"sub_block": block(), "is_scalar_condition": False, "skip_eager_deletion_vars": strings()}


@op(
    "conditional_block",
    inputs="Cond* Input*",
    outputs="Out* Scope",
    attrs=ATTRS,
    raw=True,
    traits=Traits(gradient_scope=False),
)
def conditional_block(ctx: OpContext, *, sub_block: int, is_scalar_condition: bool) -> None:
    """Run `sub_block` in a new scope if the condition is true (Paddle 1.8.5 conditional_block_op.cc).

    The condition is Cond, one boolean, if `is_scalar_condition`; else that no tensor of Input is empty. If the
    program contains the gradient, the scope is kept in Scope. Programs of Fluid before 1.0 call these slots X and Params.
    """
    keep = has_gradient(ctx, "Scope")
    if keep:
        keep_scopes(ctx, "Scope", [])
    if not _holds(ctx, is_scalar_condition):
        return
    scope = ctx.scope.new_scope()
    if keep:
        keep_scopes(ctx, "Scope", [scope])
    try:
        ctx.run_block(sub_block, scope)
    finally:
        if not keep:
            ctx.scope.drop_kid(scope)


@op("conditional_block_infer", inputs="Cond* Input*", outputs="Out* Scope", attrs=ATTRS, raw=True)
def conditional_block_infer(ctx: OpContext, *, sub_block: int, is_scalar_condition: bool) -> None:
    """conditional_block of programs without gradients (Paddle 1.8.5 conditional_block_infer_op.cc)."""
    conditional_block.kernel(ctx, sub_block=sub_block, is_scalar_condition=is_scalar_condition)


def _holds(ctx: OpContext, is_scalar_condition: bool) -> bool:
    early = "X" in ctx.inputs  # Fluid before 1.0: X is the condition, and the tensors that must not be empty
    if not is_scalar_condition:
        watched = ctx.inputs.get("X" if early else "Input", ())
        return all(_size(holder.value) != 0 for holder in watched if holder is not None)
    array = ctx.value("X" if early else "Cond").array
    if array is None or array.size != 1:
        raise ctx.error(f"Cond must hold one boolean, found {'nothing' if array is None else f'shape {array.shape}'}")
    return bool(array.item())


def _size(value: Any) -> int:
    if isinstance(value, LoDTensor):
        return 0 if value.array is None else int(value.array.size)
    if isinstance(value, SelectedRows):
        return value.numel()
    return len(value) if isinstance(value, LoDTensorArray) else 0


@conditional_block.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    if context.grad_block is None:
        return []
    inputs = {
        "Cond": context.input("Cond"),
        "Input": context.input("Input"),
        "Out": context.output("Out"),
        "Out@GRAD": context.output_grad("Out"),
        "Scope": context.output("Scope"),
    }
    outputs = {"Input@GRAD": context.input_grad("Input", drop_empty=False)}
    gradient = context.describe("conditional_block_grad", inputs, outputs, sub_block=context.grad_block.idx)
    gradient.attrs.pop("skip_eager_deletion_vars", None)
    return [gradient]


@op(
    "conditional_block_grad",
    inputs="Cond* Input* Out* Out@GRAD* Scope",
    outputs="Input@GRAD*",
    attrs={"sub_block": block(), "is_scalar_condition": False},
    raw=True,
)
def conditional_block_grad(ctx: OpContext, *, sub_block: int, is_scalar_condition: bool) -> None:
    """Run the gradient block in the scope of the branch; the gradient of a branch not taken is 0.

    (Paddle 1.8.5 conditional_block_op.cc)
    """
    scopes = kept_scopes(ctx, "Scope") if _holds(ctx, is_scalar_condition) else []
    if scopes:
        ctx.run_block(sub_block, scopes[0])
    for slot in ("Input", "X", "Params"):
        gradients = ctx.outputs.get(grad_name(slot), ())
        for source, holder in zip(ctx.inputs.get(slot, ()), gradients, strict=False):
            if source is None or holder is None:
                continue
            inside = scopes[0].find_local_var(grad_name(source.name)) if scopes else None
            if inside is None or inside.value is None:
                holder.value = zeros_like(ctx, source.value)
            else:
                holder.value = shared(inside.value)
    drop_scopes(ctx, scopes)
    scopes.clear()
