"""while: a block run while a condition is true, and its gradient."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.scopes import (
    added,
    drop_scopes,
    has_gradient,
    keep_scopes,
    kept_scopes,
    local_variables,
    shared,
    zeros_like,
)
from fluidtool.ops.gradient import EMPTY, GradMakerContext, OpDescription, grad_name
from fluidtool.ops.registry import op
from fluidtool.ops.schema import block, strings
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor, LoDTensorArray, numpy_dtype

ATTRS: dict[str, Any] = {"sub_block": block(), "is_test": False, "skip_eager_deletion_vars": strings()}


@op("while", inputs="X* Condition*", outputs="Out* StepScopes", attrs=ATTRS, raw=True)
def while_loop(ctx: OpContext, *, sub_block: int, is_test: bool) -> None:
    """Run `sub_block` while Condition (one boolean) is true (Paddle 1.8.5 while_op.cc).

    Every step starts with new local variables. If the program contains the gradient, the scope of every step is kept
    in StepScopes, with the values that the inputs had before the step.
    """
    if is_test or not has_gradient(ctx, "StepScopes"):
        _run_in_one_scope(ctx, sub_block)
    else:
        _run_keeping_steps(ctx, sub_block)


def _run_in_one_scope(ctx: OpContext, sub_block: int) -> None:
    scope = ctx.scope.new_scope()
    try:
        step = ctx.bind_block(sub_block, scope)
        variables = local_variables(scope)
        while _condition(ctx):
            for variable in variables:
                variable.value = None
            step.run()
    finally:
        ctx.scope.drop_kid(scope)


def _run_keeping_steps(ctx: OpContext, sub_block: int) -> None:
    changed = _changed_in_place(ctx, sub_block)
    inputs = {holder.name: holder for holder in ctx.inputs.get("X", ()) if holder is not None}
    remembered = [holder for name, holder in inputs.items() if name not in changed]
    scopes: list[Any] = []
    keep_scopes(ctx, "StepScopes", scopes)
    while _condition(ctx):
        scope = ctx.scope.new_scope()
        scopes.append(scope)
        before = [(holder.name, shared(holder.value)) for holder in remembered if isinstance(holder.value, LoDTensor)]
        ctx.run_block(sub_block, scope)
        for name, value in before:
            scope.var(name).value = value


def _changed_in_place(ctx: OpContext, sub_block: int) -> set[str]:
    """Names that one operator of the block both reads and writes: its gradient reverses the change itself."""
    names: set[str] = set()
    for inner in ctx.op.block.program.block(sub_block).ops:
        names.update(set(inner.input_arg_names) & set(inner.output_arg_names))
    return names


def _condition(ctx: OpContext) -> bool:
    array = ctx.value("Condition").array
    if array is None or array.size != 1:
        raise ctx.error(
            f"Condition must hold one boolean, found {'nothing' if array is None else f'shape {array.shape}'}"
        )
    return bool(array.item())


@while_loop.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    gradients = context.grad_block
    if gradients is None:
        return []
    written = {name for inner in gradients.ops for name in inner.output_arg_names}
    wanted = [name if name in written else EMPTY for name in context.input_grad("X", drop_empty=False)]
    outside = _outer_gradients(context)
    inputs = {
        "X": context.input("X"),
        "Out": context.output("Out"),
        "StepScopes": context.output("StepScopes"),
        "Out@GRAD": outside,
    }
    changed = {"sub_block": gradients.idx, "original_output_grad": outside, "skip_eager_deletion_vars": []}
    return [context.describe("while_grad", inputs, {"X@GRAD": wanted}, **changed)]


def _outer_gradients(context: GradMakerContext) -> list[str]:
    """What the gradient block reads from outside itself, the forward block and the blocks around them."""
    gradients = context.grad_block
    assert gradients is not None
    forward, parent = gradients.program.block(gradients.forward_block_idx), gradients.parent
    known = {*context.input("X"), *context.output("Out")}
    found: dict[str, None] = {}
    for inner in gradients.ops:
        for name in inner.input_arg_names:
            declared = forward.has_var_recursive(name) or (parent is not None and parent.has_var_recursive(name))
            if name not in known and not declared:
                found[name] = None
        known.update(inner.output_arg_names)
    return list(found)


@op(
    "while_grad",
    inputs="X* Out* Out@GRAD* StepScopes",
    outputs="X@GRAD*",
    attrs={**ATTRS, "original_output_grad": strings()},
    raw=True,
)
def while_grad(ctx: OpContext, *, sub_block: int, is_test: bool, original_output_grad: list[str]) -> None:
    """Run the gradient block over the steps in reverse (Paddle 1.8.5 while_op.cc).

    Gradients from outside are linked into every step. The gradient of a variable that is carried from step to
    step replaces the outer one; all others are summed.
    """
    if is_test:
        raise ctx.error("is_test is set, so the loop kept no steps to run backwards; set it to False")
    scopes = kept_scopes(ctx, "StepScopes")
    outside = ctx.inputs.get("Out@GRAD", ())
    if len(outside) != len(original_output_grad):
        raise ctx.error(
            f"Out@GRAD and original_output_grad must be equally many, found {len(outside)} and {len(original_output_grad)}"
        )
    links = [(holder, name) for holder, name in zip(outside, original_output_grad, strict=True) if holder is not None]
    for holder, _ in links:
        _fill_missing(ctx, holder)
    carried = {holder.name for holder, _ in links}
    targets = [
        (grad_name(name), holder)
        for name, holder in zip(ctx.op.input("X"), ctx.outputs.get("X@GRAD", ()), strict=False)
        if holder is not None
    ]
    totals: dict[str, Any] = {}
    while scopes:
        scope = scopes[-1]
        for holder, name in links:
            if holder.value is not None:
                scope.var(name).value = shared(holder.value)
        ctx.run_block(sub_block, scope)
        for name, holder in targets:
            inside = scope.find_var(name)
            value = None if inside is None else inside.value
            if holder.name not in carried:
                totals[holder.name] = added(ctx, totals.get(holder.name), value)
            elif value is not None:
                holder.value = shared(value)
        drop_scopes(ctx, [scopes.pop()])
    for (_, holder), source in zip(targets, _forward_inputs(ctx), strict=True):
        if holder.name not in carried:
            total = totals.get(holder.name)
            holder.value = zeros_like(ctx, source.value) if total is None else total


def _forward_inputs(ctx: OpContext) -> list[Any]:
    grads = ctx.outputs.get("X@GRAD", ())
    return [x for x, grad in zip(ctx.inputs.get("X", ()), grads, strict=False) if grad is not None]


def _fill_missing(ctx: OpContext, holder: Any) -> None:
    """A declared gradient that was not computed is 0."""
    if holder.value is not None and not (isinstance(holder.value, LoDTensor) and holder.value.array is None):
        return
    declared = ctx.op.block.find_var_recursive(holder.name)
    if declared is None:
        return
    if declared.type == VarType.LOD_TENSOR_ARRAY:
        holder.value = LoDTensorArray()
    elif declared.type == VarType.LOD_TENSOR:
        forward = ctx.scope.find_var(holder.name.split("@GRAD")[0])
        like = None if forward is None else zeros_like(ctx, forward.value)
        if like is None and declared.has_shape and -1 not in declared.shape and declared.dtype is not None:
            like = LoDTensor(ctx.xp.zeros(declared.shape, dtype=numpy_dtype(declared.dtype)))
        holder.value = like
