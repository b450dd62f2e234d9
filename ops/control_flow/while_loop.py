"""while: a block run while a condition is true."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from fluidtool.ir.operator import EMPTY
from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.compiled import CompiledLoop, LoopSpec, StepRecord, read_by
from fluidtool.ops.control_flow.loop_parts import LoopParts, Together, counted, deletions, parts_of
from fluidtool.ops.control_flow.loop_variables import arrays_around, commit, fresh, outside
from fluidtool.ops.control_flow.scopes import StepValues, empty, has_gradient, keep_scopes, local_variables, shared
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import block, strings
from fluidtool.tensor import LoDTensor

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
    if _run_compiled(ctx, lambda: _spec(ctx, sub_block), "all") is not None:
        return
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


def _run_compiled(ctx: OpContext, describe: Callable[[], LoopSpec], key: str) -> Sequence[StepRecord] | None:
    """Let the engine run the loop; None if it does not. The steps that it has kept."""
    loop: CompiledLoop | None = ctx.compiled_loop(key, describe)
    if loop is None:
        return None
    _condition(ctx)  # which must be one boolean
    result = loop.run(outside(ctx))
    if result is None:
        return None
    commit(ctx, result)
    return result.steps


def _spec(ctx: OpContext, sub_block: int, parts: LoopParts | None = None, remembered: Collection[str] = ()) -> LoopSpec:
    """The loop, for an engine; `remembered`: of a program that contains its gradient, what steps keep of what was before them."""
    program = ctx.op.block.program
    block = program.block(sub_block)
    readers = [op for other in program.blocks if other.forward_block_idx == sub_block for op in other.ops]
    local, keeps = fresh(block), has_gradient(ctx, "StepScopes")
    ops = block.ops if parts is None else parts.within
    deleted = deletions(ops, local)  # which an engine has no use for: values that steps do not keep share its memory
    read = read_by([*readers, *(() if parts is None else parts.behind)]) if keeps else {}
    return LoopSpec(
        ops=[op for n, op in enumerate(ops) if n not in deleted],
        local=frozenset(local),
        condition=ctx.op.input("Condition")[0],
        keeps=keeps,
        kept={name: whole for name, whole in read.items() if name in local},
        remembered=frozenset(remembered),
        arrays=arrays_around(block),
    )


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
    """One scope, bound once, and the values that each step left in it; what no step waits for comes behind the loop."""
    block = ctx.op.block.program.block(sub_block)
    parts = parts_of(block.ops, fresh(block))
    start = {} if parts is None else counted(ctx, parts.counters)
    names = frozenset(holder.name for holder in remembered)
    steps = _run_compiled(ctx, lambda: _spec(ctx, sub_block, parts, names), "within")
    if steps is None:
        _keep_values_one_by_one(ctx, sub_block, remembered, kept, parts)
    else:
        kept.extend(StepValues(step) for step in steps)
    if parts is not None:
        behind = Together(ctx, sub_block, parts, start)
        behind.run(parts.behind, [step.values for step in kept])
        behind.close()
        for step in kept:
            for name in parts.spent:
                step.values.pop(name, None)


def _keep_values_one_by_one(
    ctx: OpContext, sub_block: int, remembered: list[Any], kept: list[Any], parts: LoopParts | None
) -> None:
    scope = ctx.scope.new_scope()
    try:
        step = ctx.bind_block(sub_block, scope, only=None if parts is None else parts.within)
        while _condition(ctx):
            empty(scope)
            before = _values_of(remembered)
            step.run()
            values = {variable.name: variable.value for variable in local_variables(scope)}
            values.update(before)
            kept.append(StepValues(values))
    finally:
        empty(scope)
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
