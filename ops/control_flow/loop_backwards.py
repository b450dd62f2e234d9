"""The gradient block of a loop over its steps, the last first: by an engine, or operator by operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import field
from typing import Any

from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.compiled import ABSENT, CompiledLoop, LoopResult, LoopSpec, StepRecord
from fluidtool.ops.control_flow.loop_parts import LoopParts, Together, counted, differs, parts_of
from fluidtool.ops.control_flow.loop_variables import arrays_around, commit, fresh, outside
from fluidtool.ops.control_flow.scopes import StepValues, drop_scopes, empty, handed_on
from fluidtool.records import dataclass

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


def run_backwards(ctx: OpContext, sub_block: int, steps: list[Any], links: Links, wanted: Wanted) -> Iterator[Ran]:
    """Run the gradient block for each step, the last first; the values of a step are gone when the next one is asked for."""
    block = ctx.op.block.program.block(sub_block)
    if not (steps and isinstance(steps[0], StepValues)):
        yield from _run_by_scopes(ctx, sub_block, steps, links, wanted.sums)
        return
    known = {name for _, name in links}.union(steps[0].values)
    forward = block.program.block(block.forward_block_idx)
    parts = parts_of(block.ops, fresh(block) - known, kept=fresh(forward), sums=wanted.summed, may_precede=True)
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
        _leave(ctx, steps.pop())


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

    gathered = _gathered(ops, wanted.each.intersection(fresh(block)).difference(later))

    def describe() -> LoopSpec:
        left = {name for op in ops for name in op.output_arg_names}
        return LoopSpec(
            ops=ops,
            local=frozenset(fresh(block) - common.keys()),
            keeps=True,
            kept=dict.fromkeys((name for name in (*wanted.each - gathered, *later) if name in left), True),
            given=given,
            without=frozenset(name for name in wanted.sums if any(name in op.output_arg_names for op in ops)),
            links=linked,
            handed=tuple((name, holder) for name, holder in wanted.handed if (holder, name) in linked),
            rows=wanted.sums,
            arrays=arrays_around(block),
            gathered=gathered,
        )

    find = outside(ctx)
    loop: CompiledLoop | None = ctx.compiled_loop((only is None, given, linked), describe)
    result = None if loop is None else loop.run(lambda name: common[name] if name in common else find(name), steps)
    if result is None:
        return None
    commit(ctx, result)
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
    find = outside(ctx)
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
                _leave(ctx, scope)
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
        _leave(ctx, scope)


def _leave(ctx: OpContext, scope: Any) -> None:
    """Drop a scope, and its values now: what is bound to it refers to itself, and parameters with another reference are copied."""
    empty(scope)
    drop_scopes(ctx, [scope])


def _run_in_parts(
    ctx: OpContext, sub_block: int, steps: list[StepValues], links: Links, wanted: Wanted, parts: LoopParts
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
