"""A compiled block, bound to the variables of a scope: a loop over bound steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fluidtool.errors import NEEDS_LESS, FluidError, OperatorError, OutOfMemoryError
from fluidtool.ir import Block, Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import get_op
from fluidtool.records import dataclass
from fluidtool.runtime.bindings import Bindings, bindings_of
from fluidtool.runtime.bound_region import BoundRegion
from fluidtool.runtime.chains import BoundChain, Chain, find_chains
from fluidtool.runtime.dependencies import (
    DELETE,
    FEED_FETCH,
    dead_after,
    hollow_after,
    names_used,
    needed_operators,
    trains,
    without_fetched,
    without_spent_deletions,
    without_superseded,
)
from fluidtool.runtime.engines.base import Engine
from fluidtool.runtime.partition import Region, find_regions
from fluidtool.runtime.scope import Scope, ScopeVariable
from fluidtool.runtime.step import (
    BoundAfterChecks,
    BoundByVariables,
    BoundStep,
    BoundTakeover,
    BoundUpdate,
    BoundUpdates,
    Located,
    Step,
    kernel_attrs,
    located,
    misfit_of,
    say_where,
    where,
    with_updates_together,
)
from fluidtool.runtime.training_regions import BoundTrainingRegion, TrainingRegion, find_loops, find_training_regions

if TYPE_CHECKING:
    from fluidtool.runtime.inner_training import InnerSteps

# Raised by a kernel whose input has the wrong type.
FAILURES = (ValueError, TypeError, LookupError, ArithmeticError)
# How numpy's errors begin of arrays that no memory can hold.
BEYOND_NUMPY = ("array is too big", "Maximum allowed size exceeded", "Maximum allowed dimension exceeded")


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The steps of one block and the variables that it declares. `work`: the steps, grouped into regions, regions or chains.

    `hidden_names` occur only within a region: they get no value unless its steps run one by one. `sole`:
    the only region, which computes every fetch. `plain`: no step leaves scopes of other blocks, or does anything but compute its
    outputs, so that nothing refers to its variables after a run. `states`: persistable names that only regions of training use,
    which see to it where their arrays are.
    """

    index: int
    steps: tuple[Step, ...]
    work: tuple[Step | Region | Chain | TrainingRegion, ...]
    local_names: tuple[str, ...]
    persistable_names: tuple[str, ...]
    hidden_names: frozenset[str] = frozenset()
    sole: Region | None = None
    plain: bool = False
    inner: InnerSteps | None = None
    states: frozenset[str] = frozenset()

    def part(self, only: Collection[Operator] | None, without: Collection[str]) -> Sequence[Any]:
        """The steps of `only` some operators, as of `BoundBlock`; grouped where the block is that of a loop that is trained."""
        if self.inner is not None:
            return self.inner.work(only, without)
        return self.work if only is None else [step for step in self.steps if step.op in only]


def compile_block(
    block: Block,
    fetches: Iterable[str],
    needed_only: bool,
    engine: Engine | None = None,
    numbers: frozenset[str] | None = None,
) -> BlockPlan:
    """Compile one block. Values of block 0 are released after their last use; sub-blocks keep theirs.

    numbers: what the host computes of a program that runs on a GPU, whose inner blocks have regions, too; None for others.
    """
    ops = [op for op in block.ops if op.type not in FEED_FETCH]
    fetched = set(fetches)
    ops = [without_fetched(op, fetched) if op.type == DELETE else op for op in ops]
    if needed_only:
        ops = needed_operators(block.program, ops, fetched)
    elif block.idx == 0:
        ops = without_superseded(block, ops, fetched)
        released = {var.name for var in block.vars.values() if not var.persistable} - fetched
        ops = without_spent_deletions(block.program, ops, released)
    steps = [Step(op, info := get_op(op.type), kernel_attrs(op, info)) for op in ops]
    local = tuple(v.name for v in block.vars.values() if not v.persistable)
    persistable = tuple(v.name for v in block.vars.values() if v.persistable)
    has_inner_regions = numbers is not None and not any(trains(op) for each in block.program.blocks for op in each.ops)
    if block.idx > 0 and has_inner_regions:
        persistable = persistable_around(block)
    if block.idx == 0:
        dead = dead_after(block.program, ops, set(local) - fetched)
        steps = [Step(s.op, s.info, s.attrs, dead[i]) for i, s in enumerate(steps)]
        if engine is not None and any(trains(op) for op in ops):
            from fluidtool.runtime.row_gradients import with_rows_as_gradients  # an inference program starts without

            hollow = hollow_after(block.program, ops, set(local) - fetched)
            steps = [replace(step, hollow=names) for step, names in zip(steps, hollow, strict=True)]
            steps = with_rows_as_gradients(block.program, steps, fetched.union(persistable), engine.updates)
    work: Sequence[Step | Region | Chain | TrainingRegion] = steps
    inner: InnerSteps | None = None
    compiler = None if engine is None else engine.step_compiler
    if compiler is not None and not compiler.takes_program(block.program):
        compiler = None
    if block.idx == 0 and compiler is not None and any(trains(op) for op in ops):
        work = find_training_regions(block, steps, frozenset(persistable), fetched, compiler)
    elif block.idx == 0 and not any(trains(op) for op in ops):
        if engine is not None:
            work = steps if compiler is None else find_loops(block, steps, frozenset(persistable), fetched, compiler)
            work = around_loops(block, work, frozenset(persistable), fetched, engine, numbers or frozenset())
        else:
            used = [names_used(block.program, op) for op in ops]
            work = find_chains(steps, used, frozenset(fetched.union(persistable)))
    elif has_inner_regions:
        assert engine is not None and numbers is not None
        from fluidtool.runtime.inner_regions import find_inner_regions  # on GPUs alone

        work = find_inner_regions(block, steps, frozenset(persistable), fetched, engine, numbers)
    elif block.idx > 0 and compiler is not None:
        from fluidtool.runtime.inner_training import inner_steps  # on GPUs alone

        inner = inner_steps(block, steps, persistable_around(block), fetched, compiler, numbers or frozenset())
    hidden = hidden_within(work) & set(local)
    for part in work:
        if isinstance(part, Region):  # hidden names have no variable to release
            part.release = tuple(name for name in part.release if name not in hidden)
    seen = tuple(name for name in local if name not in hidden)
    sole = sole_region(work, fetched, set(persistable))
    plain = not any(step.info.side_effects for step in steps) and not any(map(keeps_scopes, work))
    states = states_alone(block, work)
    return BlockPlan(block.idx, tuple(steps), tuple(work), seen, persistable, hidden, sole, plain, inner, states)


def states_alone(block: Block, work: Sequence[Step | Region | Chain | TrainingRegion]) -> frozenset[str]:
    """The states of training regions that no other part of a block mentions."""
    regions = [part for part in work if isinstance(part, TrainingRegion)]
    others = [step for part in work if not isinstance(part, TrainingRegion) for step in steps_of(part)]
    found = frozenset(name for region in regions for name in region.states)
    return found.difference(
        *(set(region.reads).difference(region.states) for region in regions),
        *(names_used(block.program, step.op) for step in others),
    )


def steps_of(part: Step | Region | Chain | TrainingRegion) -> Sequence[Step]:
    """The steps of a part."""
    return (part,) if isinstance(part, Step) else part.steps


def persistable_around(block: Block) -> tuple[str, ...]:
    """The persistable variables that operators of an inner block mention, wherever they are declared."""
    mentioned = dict.fromkeys(name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names))
    found = ((name, block.find_var_recursive(name)) for name in mentioned)
    return tuple(name for name, var in found if var is not None and var.persistable)


def around_loops(
    block: Block,
    parts: Sequence[Step | TrainingRegion],
    persistable: frozenset[str],
    fetched: set[str],
    engine: Engine,
    on_host: frozenset[str],
) -> list[Step | Region | TrainingRegion]:
    """The parts of an inference program, with steps before, between and behind loops grouped into regions.

    on_host: results that the host computes.
    """
    if all(isinstance(part, Step) for part in parts):
        steps = [part for part in parts if isinstance(part, Step)]
        return list(find_regions(steps, persistable, fetched, engine, on_host))
    found: list[Step | Region | TrainingRegion] = []
    used = [_names_of(block, part) for part in parts]
    for is_step, run in groupby(range(len(parts)), key=lambda number: isinstance(parts[number], Step)):
        numbers = list(run)
        if not is_step:
            found += [parts[number] for number in numbers]
            continue
        others = {name for number, names in enumerate(used) if number not in numbers for name in names}
        steps = [step for number in numbers if isinstance(step := parts[number], Step)]
        found += find_regions(steps, persistable, fetched | others, engine, on_host)
    return found


def _names_of(block: Block, part: Step | TrainingRegion) -> set[str]:
    return {name for step in steps_of(part) for name in names_used(block.program, step.op)}


def keeps_scopes(part: Step | Region | Chain | TrainingRegion) -> bool:
    """Whether a part may run other blocks whose scopes stay; those of loops in a training region go with the run."""
    if isinstance(part, TrainingRegion):
        return False
    return any(step.op.sub_blocks() for step in steps_of(part))


def sole_region(
    work: Sequence[Step | Region | Chain | TrainingRegion], fetched: set[str], persistable: set[str]
) -> Region | None:
    """The only region of the block, if it computes exactly the fetches and takes parameters only as constants."""
    if len(work) != 1 or not isinstance(work[0], Region):
        return None
    region = work[0]
    whole = set(region.outputs) == fetched and persistable.isdisjoint((*region.inputs, *region.outputs))
    return region if whole else None


def hidden_within(work: Sequence[Step | Region | Chain | TrainingRegion]) -> frozenset[str]:
    """Names that operators of regions write and that nothing outside their region mentions."""
    inner: set[str] = set()
    for part in work:
        if isinstance(part, Region | TrainingRegion):
            inner.update(name for step in part.steps for name in step.op.output_arg_names)
    if not inner:
        return frozenset()
    for part in work:
        if isinstance(part, Region):
            inner.difference_update(part.inputs, part.constants, part.outputs)
        elif isinstance(part, TrainingRegion):
            inner.difference_update(part.reads, part.states, part.outputs)
        elif isinstance(part, Step):
            inner.difference_update(part.op.input_arg_names, part.op.output_arg_names)
    return frozenset(inner)


class BoundBlock:
    """A block, or `only` some of its operators, bound to the variables of one scope, for any number of runs.

    fed: the names in the scope before binding. without: results that the operators do not write; what they would be
    computed from is not deleted.
    """

    __slots__ = ("bindings", "fed", "holders", "index", "others", "runtime", "scope", "steps")

    def __init__(
        self,
        plan: BlockPlan,
        scope: Scope,
        runtime: Any,
        found: Bindings | None = None,
        without: Collection[str] = (),
        only: Collection[Operator] | None = None,
    ) -> None:
        self.index, self.scope, self.runtime = plan.index, scope, runtime
        self.fed = set(scope.local_var_names())
        self.bindings = bindings = bindings_of(plan.persistable_names, scope) if found is None else found
        self.holders = holders = bindings.holders.copy()
        self.others = [holder for name, holder in holders.items() if name not in plan.states]
        for name in plan.local_names:
            holders[name] = scope.var(name)

        def lookup(name: str) -> ScopeVariable | None:
            if name == EMPTY or not name:
                return None
            found = holders.get(name)
            if found is None:
                above = None if name in plan.hidden_names else scope.find_var(name)
                found = holders[name] = above or scope.var(name)
            return found

        def lookup_all(names: dict[str, list[str]]) -> dict[str, tuple[Any, ...]]:
            return {slot: tuple(lookup(name) for name in arguments) for slot, arguments in names.items() if arguments}

        def bind(
            step: Step | Region | Chain | TrainingRegion,
        ) -> BoundStep | BoundRegion | BoundChain | BoundTrainingRegion:
            if isinstance(step, TrainingRegion):
                ended = tuple(holders[name] for name in step.release if name in holders)
                return BoundTrainingRegion(step, lookup, bind, ended, runtime)
            if isinstance(step, Chain):
                ended = tuple(holders[name] for name in step.release if name in holders)
                return BoundChain(step, [bound(part) for part in step.steps], ended)
            if isinstance(step, Region):
                stay = tuple(holders[name] for name in step.release if name in holders)
                return BoundRegion(step, lookup, bind, stay, bindings, runtime)
            return bound(step)

        sources = _sources(plan.steps, without) if without else frozenset()
        numbers: frozenset[str] = runtime.plan.numbers or frozenset()
        copies: dict[str, ScopeVariable] = {}

        def bound(step: Step) -> BoundStep:
            read, written = step.op.inputs, step.op.outputs
            if without:
                written = {slot: names for slot, names in written.items() if not any(name in without for name in names)}
            if sources and step.op.type == DELETE:
                read = {slot: [name for name in names if name not in sources] for slot, names in read.items()}
            inputs, outputs = lookup_all(read), lookup_all(written)
            release = tuple(holders[name] for name in step.release if name in holders)
            if numbers:
                from fluidtool.runtime.loop_numbers import BoundMaker, is_maker, with_copies  # on GPUs alone

                if is_maker(step.op, numbers):
                    context = OpContext(step.op, step.info, inputs, outputs, scope, runtime)
                    return BoundMaker(step, context, release, numbers)
                inputs = with_copies(step.op, inputs, numbers, copies, runtime)
            context = OpContext(step.op, step.info, inputs, outputs, scope, runtime)
            if named := step.op.variable_attrs():
                return BoundByVariables(step, context, release, lookup_all(named))
            if step.hollow or (step.release and runtime.plan.overwritten_by(step.op)):
                return BoundTakeover(step, context, release, tuple(holders[name] for name in step.hollow))
            if runtime.plan.changed_by(step.op):
                return BoundUpdate(step, context, release)
            return (BoundAfterChecks if step.op.input("Param") else BoundStep)(step, context, release)

        self.steps = tuple(with_updates_together([bind(step) for step in plan.part(only, without)]))

    def forget_values(self) -> bool:
        """Empty the variables of the scope; False if it has one that this block has not looked up."""
        mine = self.holders.get
        return all([mine(variable.name) is variable for variable in self.scope.emptied()])

    def run(self) -> None:
        """Run every step in order; errors name the operator, its place and its inputs."""
        observer = self.runtime.observer
        step = None
        try:
            if observer is None:
                for step in self.steps:
                    step.run()
                    for holder in step.release:
                        holder.value = None
            else:
                whole = getattr(observer, "whole_regions", False)
                for step in one_by_one(self.steps, whole):
                    observer(step, self.index)
                    for holder in step.release:
                        holder.value = None
        except FluidError as error:
            self.runtime.checks.settle()  # an index that was outside before is the reason
            if step is not None:
                say_where(error, step)
            raise
        except MemoryError as error:
            assert step is not None
            raise self._out_of_memory(step, error) from error
        except FAILURES as error:
            assert step is not None
            if str(error).startswith(BEYOND_NUMPY):
                raise self._out_of_memory(step, error) from error
            self.runtime.checks.settle()
            text = f"operator {step.context.op.type} failed: {error} [{where(step)}]"
            raise located(OperatorError(text), step.context.op) from error
        except AttributeError as error:  # a bug here, unless an input has the wrong type
            misfit = None if step is None else misfit_of(step)
            if step is None or misfit is None:
                raise
            text = f"operator {step.context.op.type}: {misfit} [{where(step)}]"
            raise located(OperatorError(text), step.context.op) from error

    def _out_of_memory(self, step: Located, error: Exception) -> FluidError:
        parts = str(error), self.runtime.device.memory(), f"[{where(step)}]"
        text = f"operator {step.context.op.type} needs more memory than is available: {' '.join(filter(None, parts))}"
        return located(OutOfMemoryError(text, hint=NEEDS_LESS), step.context.op)


def _sources(steps: Iterable[Step], results: Collection[str]) -> frozenset[str]:
    """What the operators that compute any of the results read, and what else they compute."""
    computing = [step.op for step in steps if any(name in results for name in step.op.output_arg_names)]
    return frozenset(name for op in computing for name in (*op.input_arg_names, *op.output_arg_names))


def one_by_one(
    steps: Iterable[BoundStep | BoundRegion | BoundChain | BoundTrainingRegion | BoundUpdates], whole: bool = False
) -> Iterator[BoundStep | BoundRegion]:
    """Every step separately; callers that know regions pass `whole` to keep those."""
    for step in steps:
        if isinstance(step, BoundTrainingRegion):
            yield from one_by_one(step.steps, whole)
        elif isinstance(step, BoundChain | BoundUpdates) or (isinstance(step, BoundRegion) and not whole):
            yield from step.steps
        else:
            yield step
