"""while: a block run while a condition is true, and its gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import field
from typing import Any

from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.compiled import ABSENT, CompiledLoop, LoopResult, LoopSpec, StepRecord, read_by
from fluidtool.ops.control_flow.loop_gradients import FirstRows, Products, Total, sums_of_steps
from fluidtool.ops.control_flow.loop_parts import LoopParts, Together, counted, differs, parts_of
from fluidtool.ops.control_flow.scopes import (
    StepValues,
    drop_scopes,
    empty,
    handed_on,
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
from fluidtool.records import dataclass
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
    result = loop.run(_outside(ctx))
    if result is None:
        return None
    _commit(ctx, result)
    return result.steps


def _spec(ctx: OpContext, sub_block: int, parts: LoopParts | None = None, remembered: Collection[str] = ()) -> LoopSpec:
    """The loop, for an engine; `remembered`: of a program that contains its gradient, what steps keep of what was before them."""
    program = ctx.op.block.program
    block = program.block(sub_block)
    readers = [op for other in program.blocks if other.forward_block_idx == sub_block for op in other.ops]
    local, keeps = _fresh(block), has_gradient(ctx, "StepScopes")
    read = read_by([*readers, *(() if parts is None else parts.behind)]) if keeps else {}
    return LoopSpec(
        ops=block.ops if parts is None else parts.within,
        local=frozenset(local),
        condition=ctx.op.input("Condition")[0],
        keeps=keeps,
        kept={name: whole for name, whole in read.items() if name in local},
        remembered=frozenset(remembered),
        arrays=_arrays_around(block),
    )


def _arrays_around(block: Any) -> frozenset[str]:
    """The variables outside that are written as arrays of tensors."""
    written = {name for op in block.ops if op.type == "write_to_array" for name in op.output("Out")}
    return frozenset(written - _fresh(block))


def _outside(ctx: OpContext) -> Callable[[str], Any]:
    """Looks up values of variables that the loop can see; ABSENT if there is no such variable."""

    def find(name: str) -> Any:
        variable = ctx.scope.find_var(name)
        return ABSENT if variable is None else variable.value

    return find


def _commit(ctx: OpContext, result: LoopResult) -> None:
    """Give variables outside what the loop has left."""
    for name, value in result.changed.items():
        variable = ctx.scope.find_var(name)
        if type(value) is LoDTensor and value.array is not None:
            variable.set_tensor(value.array, value.offsets)
        else:
            variable.value = value


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
    parts = parts_of(block.ops, _fresh(block))
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
        ctx.scope.drop_kid(scope)


def _fresh(block: Any) -> set[str]:
    """The variables that each step of a block begins without."""
    return {variable.name for variable in block.vars.values() if not variable.persistable}


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
    summed = {name for name, holder in targets if holder.name not in carried}
    sums = _sums(ctx, sub_block, summed)
    totals: dict[str, Total] = {holder.name: Total(ctx) for _, holder in targets}
    wanted = Wanted(
        sums={name: each.reads for name, each in sums.items()},
        each=frozenset(name for name, holder in targets if name not in sums and holder.name not in carried),
        handed=tuple((name, holder.name) for name, holder in targets if holder.name in carried),
        summed=frozenset(summed),
    )
    for ran in _run_backwards(ctx, sub_block, scopes, links, wanted):
        for name, holder in targets:
            if name in sums:
                if name in ran.totals:
                    sums[name].add(ran.totals[name])
                elif sums[name].op in ran.ops:
                    sums[name].take(ran.value)
            elif holder.name not in carried:
                totals[holder.name].add(ran.totals[name] if name in ran.totals else ran.value(name))
            elif not ran.is_compiled and (value := ran.value(name)) is not None:
                holder.value = handed_on(value)
    for (name, holder), source in zip(targets, _forward_inputs(ctx), strict=True):
        if holder.name not in carried:
            total = sums[name].total(source.value) if name in sums else totals[holder.name].value
            holder.value = zeros_like(ctx, source.value) if total is None else total


Links = list[tuple[Any, str]]  # variables outside, and the names that steps know them by


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of the gradient block.

    sums: results that are only wanted as sums over all steps, and what they are made of in each step; each: those that are wanted
    of every step; handed: what steps leave, and the variables outside that hand it on to the next step; summed: all that is
    added up in some way.
    """

    sums: Mapping[str, tuple[str, ...]]
    each: frozenset[str]
    handed: tuple[tuple[str, str], ...]
    summed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Ran:
    """Some operators of the gradient block have run, for a step or for all: `value` finds what they left, by name.

    totals: sums over all steps. is_compiled: variables outside have what steps hand on already.
    """

    ops: Collection[Operator]
    value: Callable[[str], Any]
    totals: Mapping[str, Any] = field(default_factory=dict)
    is_compiled: bool = False


def _run_backwards(ctx: OpContext, sub_block: int, steps: list[Any], links: Links, wanted: Wanted) -> Iterator[Ran]:
    """Run the gradient block for each step, the last first; the values of a step are gone when the next one is asked for."""
    block = ctx.op.block.program.block(sub_block)
    if not (steps and isinstance(steps[0], StepValues)):
        yield from _run_by_scopes(ctx, sub_block, steps, links, wanted.sums)
        return
    known = {name for _, name in links}.union(steps[0].values)
    forward = block.program.block(block.forward_block_idx)
    parts = parts_of(block.ops, _fresh(block) - known, kept=_fresh(forward), sums=wanted.summed, may_precede=True)
    if parts is None:
        yield from _run_by_values(ctx, sub_block, steps, links, wanted)
    else:
        yield from _run_in_parts(ctx, sub_block, steps, links, wanted, parts)


def _run_by_scopes(
    ctx: OpContext, sub_block: int, steps: list[Any], links: Links, without: Collection[str]
) -> Iterator[Ran]:
    ops = ctx.op.block.program.block(sub_block).ops
    while steps:
        scope = steps[-1]
        for name, value in _linked(links):
            scope.var(name).value = value
        ctx.bind_block(sub_block, scope, without).run()
        yield Ran(ops, _finder(scope))
        drop_scopes(ctx, [steps.pop()])


def _compiled_gradient(
    ctx: OpContext,
    sub_block: int,
    steps: Sequence[MutableMapping[str, Any]],
    links: Links,
    wanted: Wanted,
    only: Sequence[Operator] | None,
    later: Collection[str],
) -> Iterator[Ran] | None:
    """Let the engine run the gradient block for each of the steps; None if it does not."""
    block = ctx.op.block.program.block(sub_block)
    common = steps[0].common if isinstance(steps[0], StepRecord) else _same_in_all(steps)
    ops = block.ops if only is None else only
    read = {name for op in ops for name in op.input_arg_names}
    given = frozenset(name for name in read if name in steps[0] and name not in common)
    used = read.union(name for op in ops for name in op.output_arg_names)
    linked = tuple((holder.name, name) for holder, name in links if name in used and holder.value is not None)

    gathered = _gathered(ops, wanted.each.intersection(_fresh(block)).difference(later))

    def describe() -> LoopSpec:
        left = {name for op in ops for name in op.output_arg_names}
        return LoopSpec(
            ops=ops,
            local=frozenset(_fresh(block) - common.keys()),
            keeps=True,
            kept=dict.fromkeys((name for name in (*wanted.each - gathered, *later) if name in left), True),
            given=given,
            without=frozenset(name for name in wanted.sums if any(name in op.output_arg_names for op in ops)),
            links=linked,
            handed=tuple((name, holder) for name, holder in wanted.handed if (holder, name) in linked),
            rows=wanted.sums,
            arrays=_arrays_around(block),
            gathered=gathered,
        )

    find = _outside(ctx)
    loop: CompiledLoop | None = ctx.compiled_loop((only is None, given, linked), describe)
    result = None if loop is None else loop.run(lambda name: common[name] if name in common else find(name), steps)
    if result is None:
        return None
    _commit(ctx, result)
    return _ran_by_engine(ctx, ops, steps, result)


def _gathered(ops: Sequence[Operator], wanted: Collection[str]) -> frozenset[str]:
    """The arrays of tensors that one operator writes an item of, and none reads."""
    touched = Counter(name for op in ops for name in (*op.input_arg_names, *op.output_arg_names))
    written = {name for op in ops if op.type == "write_to_array" for name in op.output("Out")}
    return frozenset(name for name in wanted if name in written and touched[name] == 1)


def _same_in_all(steps: Sequence[MutableMapping[str, Any]]) -> dict[str, Any]:
    """The values that no step has another one of."""
    return {name: value for name, value in steps[0].items() if not differs(steps, name)}


def _ran_by_engine(
    ctx: OpContext, ops: Sequence[Operator], steps: Sequence[MutableMapping[str, Any]], result: LoopResult
) -> Iterator[Ran]:
    """The steps that an engine has run, one after the other, and then the sums."""
    find = _outside(ctx)
    left = [op for op in ops if not any(name in result.totals for name in op.output_arg_names)]

    def finder(before: MutableMapping[str, Any], after: MutableMapping[str, Any]) -> Callable[[str], Any]:
        def value(name: str) -> Any:
            if name in result.totals:
                return None
            for values in (after, before):
                if (found := values.get(name)) is not None:
                    return found
            found = find(name)
            return None if found is ABSENT else found

        return value

    for before, after in zip(steps, result.steps, strict=True):
        yield Ran(left, finder(before, after), is_compiled=True)
    yield Ran((), lambda name: None, result.totals, is_compiled=True)


def _run_by_values(
    ctx: OpContext,
    sub_block: int,
    steps: list[StepValues],
    links: Links,
    wanted: Wanted,
    only: Sequence[Operator] | None = None,
    later: Collection[str] = (),
) -> Iterator[Ran]:
    """By the engine, or in one scope, bound anew only if another step has other names. later: what is read afterwards."""
    compiled = _compiled_gradient(ctx, sub_block, [step.values for step in reversed(steps)], links, wanted, only, later)
    if compiled is not None:
        steps.clear()
        yield from compiled
        return
    without = wanted.sums
    ops = ctx.op.block.program.block(sub_block).ops if only is None else only
    needed = _needed(ops, without)
    used = None if only is None else {name for op in ops for name in op.input_arg_names}
    links = links if used is None else [(holder, name) for holder, name in links if name in used]
    scope, names = ctx.scope.new_scope(), None
    try:
        while steps:
            values = steps.pop().values
            kept = values.items() if used is None else [(name, values[name]) for name in used if name in values]
            given = [*kept, *_linked(links)]
            if names != [name for name, _ in given]:
                drop_scopes(ctx, [scope])
                scope, names = ctx.scope.new_scope(), [name for name, _ in given]
                for name in names:
                    scope.var(name)
                bound = ctx.bind_block(sub_block, scope, without, needed)
            empty(scope)
            for name, value in given:
                scope.var(name).value = value
            bound.run()
            yield Ran(ops, _finder(scope))
    finally:
        drop_scopes(ctx, [scope])


def _run_in_parts(
    ctx: OpContext,
    sub_block: int,
    steps: list[StepValues],
    links: Links,
    wanted: Wanted,
    parts: LoopParts,
) -> Iterator[Ran]:
    """What no step waits for runs before or behind all steps, for all of them at once where it can."""
    without = wanted.sums
    values = [step.values for step in reversed(steps)]
    rest = Together(ctx, sub_block, parts, counted(ctx, parts.counters), dict(_linked(links)), without, backwards=True)
    read = {name for op in parts.behind for name in op.input_arg_names if name not in parts.counters}
    later = [name for op in parts.within for name in op.output_arg_names if name in read]
    try:
        rest.run(_needed(parts.before, without), values)
        within = _run_by_values(ctx, sub_block, steps, links, wanted, parts.within, later)
        for step, ran in zip([*values, {}], within, strict=False):
            yield ran
            step.update((name, ran.value(name)) for name in later if ran.ops)
        rest.run(_needed(parts.behind, without), values)
    finally:
        rest.close()
    for step in values:
        yield Ran((*parts.before, *parts.behind), step.get)
    yield Ran((), rest.sums.get)


def _needed(ops: Sequence[Operator], without: Collection[str]) -> list[Operator]:
    """The operators of which something is to be written."""
    return [op for op in ops if not op.output_arg_names or not all(name in without for name in op.output_arg_names)]


def _finder(scope: Any) -> Callable[[str], Any]:
    """Looks up values by the names of variables; None where there is none."""

    def value(name: str) -> Any:
        variable = scope.find_var(name)
        return None if variable is None else variable.value

    return value


def _linked(links: Links) -> list[tuple[str, Any]]:
    """The gradients from outside that there are, by the names that steps know them by."""
    return [(name, handed_on(holder.value)) for holder, name in links if holder.value is not None]


def _sums(ctx: OpContext, sub_block: int, wanted: Collection[str]) -> dict[str, Products | FirstRows]:
    """The wanted gradients that need not be computed in each step, and that no operator of the block reads.

    What such a gradient is computed from must still be there when the block has run: memory_optimize writes other
    values to its names.
    """
    ops = ctx.op.block.program.block(sub_block).ops
    if any(inner.sub_blocks() for inner in ops):
        return {}
    used = Counter(name for inner in ops for name in (*inner.input_arg_names, *inner.output_arg_names))
    found: dict[str, Products | FirstRows] = {}
    overwritten: set[str] = set()
    for inner in reversed(ops):
        if overwritten.isdisjoint(inner.output_arg_names):
            overwritten.update(inner.output_arg_names)
            if overwritten.isdisjoint(inner.input_arg_names):
                found.update(sums_of_steps(ctx, inner))
        overwritten.update(inner.output_arg_names)
    return {name: each for name, each in found.items() if name in wanted and used[name] == 1}


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
