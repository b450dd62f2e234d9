"""while: a block run while a condition is true, and its gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.loop_gradients import Total, Weight
from fluidtool.ops.control_flow.scopes import (
    StepValues,
    drop_scopes,
    empty,
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
    block = ctx.op.block.program.block(sub_block)
    changed = _changed_in_place(ctx, sub_block)
    inputs = {holder.name: holder for holder in ctx.inputs.get("X", ()) if holder is not None}
    remembered = [holder for name, holder in inputs.items() if name not in changed]
    kept: list[Any] = []
    keep_scopes(ctx, "StepScopes", kept)
    if any(inner.sub_blocks() for inner in block.ops):
        _keep_scopes_of_steps(ctx, sub_block, remembered, kept)
    else:
        _keep_values_of_steps(ctx, sub_block, remembered, kept)


def _keep_scopes_of_steps(ctx: OpContext, sub_block: int, remembered: list[Any], kept: list[Any]) -> None:
    """A scope for each step: blocks within the block refer to it."""
    while _condition(ctx):
        scope = ctx.scope.new_scope()
        kept.append(scope)
        before = _values_of(remembered)
        ctx.run_block(sub_block, scope)
        for name, value in before:
            scope.var(name).value = value


def _keep_values_of_steps(ctx: OpContext, sub_block: int, remembered: list[Any], kept: list[Any]) -> None:
    """One scope, bound once, and the values that each step left in it."""
    scope = ctx.scope.new_scope()
    try:
        step = ctx.bind_block(sub_block, scope)
        while _condition(ctx):
            empty(scope)
            before = _values_of(remembered)
            step.run()
            values = {variable.name: variable.value for variable in local_variables(scope)}
            values.update(before)
            kept.append(StepValues(values))
    finally:
        ctx.scope.drop_kid(scope)


def _values_of(holders: list[Any]) -> list[tuple[str, Any]]:
    """The tensors that variables hold now, by name."""
    return [(holder.name, shared(holder.value)) for holder in holders if isinstance(holder.value, LoDTensor)]


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
    weights = _weights_of_products(ctx, sub_block, {name for name, holder in targets if holder.name not in carried})
    totals: dict[str, Total] = {holder.name: Total(ctx) for _, holder in targets}
    for scope in _run_backwards(ctx, sub_block, scopes, links, weights):
        for name, holder in targets:
            if name in weights:
                weights[name].take(scope)
                continue
            inside = scope.find_var(name)
            value = None if inside is None else inside.value
            if holder.name not in carried:
                totals[holder.name].add(value)
            elif value is not None:
                holder.value = shared(value)
    for (name, holder), source in zip(targets, _forward_inputs(ctx), strict=True):
        if holder.name not in carried:
            total = weights[name].total(source.value) if name in weights else totals[holder.name].value
            holder.value = zeros_like(ctx, source.value) if total is None else total


Links = list[tuple[Any, str]]  # variables outside, and the names that steps know them by


def _run_backwards(
    ctx: OpContext, sub_block: int, steps: list[Any], links: Links, without: Collection[str]
) -> Iterator[Any]:
    """Run the gradient block for each step, the last first; yields its scope, and is done with it afterwards."""
    run = _run_by_values if steps and isinstance(steps[0], StepValues) else _run_by_scopes
    return run(ctx, sub_block, steps, links, without)


def _run_by_scopes(
    ctx: OpContext, sub_block: int, steps: list[Any], links: Links, without: Collection[str]
) -> Iterator[Any]:
    while steps:
        scope = steps[-1]
        for name, value in _linked(links):
            scope.var(name).value = value
        ctx.bind_block(sub_block, scope, without).run()
        yield scope
        drop_scopes(ctx, [steps.pop()])


def _run_by_values(
    ctx: OpContext, sub_block: int, steps: list[StepValues], links: Links, without: Collection[str]
) -> Iterator[Any]:
    """In one scope, bound anew only if another step has other names."""
    scope, names = ctx.scope.new_scope(), None
    try:
        while steps:
            given = [*steps.pop().values.items(), *_linked(links)]
            if names != [name for name, _ in given]:
                drop_scopes(ctx, [scope])
                scope, names = ctx.scope.new_scope(), [name for name, _ in given]
                for name in names:
                    scope.var(name)
                bound = ctx.bind_block(sub_block, scope, without)
            empty(scope)
            for name, value in given:
                scope.var(name).value = value
            bound.run()
            yield scope
    finally:
        drop_scopes(ctx, [scope])


def _linked(links: Links) -> list[tuple[str, Any]]:
    """The gradients from outside that there are, by the names that steps know them by."""
    return [(name, shared(holder.value)) for holder, name in links if holder.value is not None]


def _weights_of_products(ctx: OpContext, sub_block: int, wanted: Collection[str]) -> dict[str, Weight]:
    """The wanted gradients that are the second factor's of a `mul`, and that no operator of the block reads.

    What such a gradient is computed from must still be there when the block has run: memory_optimize writes other
    values to its names.
    """
    ops = ctx.op.block.program.block(sub_block).ops
    used = Counter(name for inner in ops for name in (*inner.input_arg_names, *inner.output_arg_names))
    plain = not any(inner.sub_blocks() for inner in ops)
    found: dict[str, Weight] = {}
    overwritten: set[str] = set()
    for inner in reversed(ops):
        overwritten.update(inner.output_arg_names)
        names = inner.output("Y@GRAD") if inner.type == "mul_grad" and plain else []
        if (
            len(names) == 1
            and names[0] in wanted
            and used[names[0]] == 1
            and overwritten.isdisjoint((*inner.input("X"), *inner.input("Out@GRAD")))
            and not inner.variable_attrs()
        ):
            found[names[0]] = Weight(ctx, inner)
    return found


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
