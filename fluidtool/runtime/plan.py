"""Plan: a program compiled for one set of feeds and fetches. Binding it to a scope gives a loop over ready steps.

A Plan holds one BlockPlan per block, made when first needed. A BlockPlan is a list of Steps: operator, kernel, parsed
attributes, the names it reads and writes, the names that are dead after it. `bind` looks every name up once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from fluidtool import locks
from fluidtool.errors import FluidError, OperatorError, ProgramError, UninitializedError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.callstack import written_in
from fluidtool.ir.hidden_names import hidden_reads, hidden_writes
from fluidtool.ir.operator import as_attr_value
from fluidtool.ir.reuse import original_names, unshared, with_original_names
from fluidtool.ir.roles import NAMESCOPE_ATTR, ROLE_ATTR, SUPERSEDED, OpRole
from fluidtool.ir.structure import structure_fault
from fluidtool.ir.surgery import copy_operator
from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import OpInfo, get_op
from fluidtool.ops.validation import require_valid_operator
from fluidtool.runtime.bindings import Bindings, bindings_of
from fluidtool.runtime.chains import BoundChain, Chain, find_chains
from fluidtool.runtime.engines.native.compiler import Compiler
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.numpy import keep_freed_memory
from fluidtool.runtime.ownership import holds_alone
from fluidtool.runtime.partition import BoundRegion, Region, find_regions
from fluidtool.runtime.scope import Scope, ScopeVariable
from fluidtool.tensor import LoDTensor

EMPTY = "@EMPTY@"
DELETE = "delete_var"
FEED_FETCH = frozenset({"feed", "fetch"})
# Of a kernel that is given what cannot work.
FAILURES = (ValueError, TypeError, LookupError, ArithmeticError, MemoryError)


@dataclass(frozen=True, slots=True)
class Step:
    """One operator, ready to bind."""

    op: Operator
    info: OpInfo
    attrs: dict[str, Any]
    release: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The steps of one block and the variables that it declares; `work` is the steps, with regions or chains put together.

    `hidden_names` are those that occur within a region alone: nobody sees them unless its steps run one by one. `sole`:
    the region that is all there is, and gives every fetch. `plain`: no step runs another block or does more than compute its
    outputs, so that after a run nobody has a hand on its variables.
    """

    index: int
    steps: tuple[Step, ...]
    work: tuple[Step | Region | Chain, ...]
    local_names: tuple[str, ...]
    persistable_names: tuple[str, ...]
    hidden_names: frozenset[str] = frozenset()
    sole: Region | None = None
    plain: bool = False


@dataclass(slots=True)
class Plan:
    """A program compiled for these fetches; `needed_only` leaves out what they do not depend on.

    `program` is the one given, or a copy of it in which a fetched variable does not share its memory with others.
    `native` is the library that runs whole regions of an inference program; None leaves every step to its kernel.
    `delegate` is an engine that they are delegated to instead. `kept` are the persistable variables by scope, `resting` the
    bound block 0 of the last run there, for the next one.
    """

    program: Program
    fetches: tuple[str, ...]
    needed_only: bool = False
    native: Library | None = None
    delegate: Compiler | None = None
    blocks: dict[int, BlockPlan] = field(default_factory=dict)
    kept: WeakKeyDictionary[Scope, Bindings] = field(default_factory=WeakKeyDictionary, repr=False)
    resting: WeakKeyDictionary[Scope, BoundBlock] = field(default_factory=WeakKeyDictionary, repr=False)
    kernels: dict[str, Any] = field(default_factory=dict, repr=False)
    lock: Lock = field(default_factory=locks.lock, repr=False)  # of blocks, while one is compiled

    def __post_init__(self) -> None:
        fault = structure_fault(self.program)
        if fault:
            raise ProgramError(f"the program cannot run: it {fault}")
        # The native engine shares memory by itself, and fuses by who reads what.
        native = self.native is not None or self.delegate is not None
        if not native or any(trains(op) for block in self.program.blocks for op in block.ops):
            keep_freed_memory()  # training goes operator by operator, each with arrays of its own
        self.program = with_original_names(self.program) if native else unshared(self.program, self.fetches)

    def block(self, index: int) -> BlockPlan:
        """The plan of a block, compiled when first asked for."""
        plan = self.blocks.get(index)
        if plan is None:
            with self.lock:
                plan = self.blocks.get(index)
                if plan is None:
                    plan = self.blocks[index] = self._compile(index)
        return plan

    def _compile(self, index: int) -> BlockPlan:
        needed_only = self.needed_only and index == 0
        return compile_block(self.program.block(index), self.fetches, needed_only, self.delegate or self.native)

    def kernel_of(self, info: OpInfo) -> Any:
        """The kernel that operators of a type run."""
        kernel = self.kernels.get(info.type)
        if kernel is None:
            kernel = info.kernel
            if self.native is not None:
                from fluidtool.runtime.engines.native.kernels import fastest_kernel  # many programs never need it

                kernel = fastest_kernel(info.type, info.kernel, self.native)
            self.kernels[info.type] = kernel
        return kernel

    def changed_by(self, op: Operator) -> Mapping[str, str]:
        """The inputs that the operator's kernel can change where they lie, and the outputs that take their places."""
        if self.native is None or not op.input("Param"):
            return {}
        from fluidtool.runtime.engines.native.kernels import UPDATES  # many programs never need it

        return UPDATES.get(op.type, {})

    def bindings(self, scope: Scope) -> Bindings:
        """The persistable variables of block 0 in a scope: found once for as long as it has the same names."""
        found = self.kept.get(scope)
        if found is None or found.version != scope.names_version():
            found = self.kept[scope] = bindings_of(self.block(0).persistable_names, scope)
        return found

    def wake(self, scope: Scope, fed: Collection[str]) -> BoundBlock | None:
        """Block 0 as an earlier run in the scope has left it, its own scope below this one again.

        None where it is in use or was never bound, where names have come or gone in the scope, or where that run was fed
        other names.
        """
        block = self.resting.pop(scope, None)
        if block is None or block.bindings is not self.bindings(scope) or block.fed != set(fed):
            return None
        scope.take_in(block.scope)
        return block

    def rest(self, block: BoundBlock, scope: Scope) -> None:
        """Keep block 0 after a run, without any value, where nobody else can have a hand on its variables."""
        if self.block(0).plain and block.forget_values():
            block.scope.parent = None  # else what is kept for the scope would keep the scope
            block.runtime.rest()
            self.resting[scope] = block


def compile_block(block: Block, fetches: Iterable[str], needed_only: bool, native: Compiler | None = None) -> BlockPlan:
    """Compile one block. Values of block 0 are released after their last use; sub-blocks keep theirs."""
    ops = [op for op in block.ops if op.type not in FEED_FETCH]
    fetched = set(fetches)
    ops = [without_fetched(op, fetched) if op.type == DELETE else op for op in ops]
    if needed_only:
        ops = needed_operators(block.program, ops, fetched)
    elif block.idx == 0:
        ops = without_superseded(block, ops, fetched)
    steps = [Step(op, info := get_op(op.type), kernel_attrs(op, info)) for op in ops]
    local = tuple(v.name for v in block.vars.values() if not v.persistable)
    persistable = tuple(v.name for v in block.vars.values() if v.persistable)
    if block.idx == 0:
        dead = dead_after(block.program, ops, set(local) - fetched)
        steps = [Step(s.op, s.info, s.attrs, dead[i]) for i, s in enumerate(steps)]
    work: Sequence[Step | Region | Chain] = steps
    if block.idx == 0 and not any(trains(op) for op in ops):
        if native is not None:
            work = find_regions(steps, frozenset(persistable), fetched, native)
        else:
            used = [names_used(block.program, op) for op in ops]
            work = find_chains(steps, used, frozenset(fetched.union(persistable)))
    hidden = hidden_within(work) & set(local)
    for part in work:
        if isinstance(part, Region):  # what is hidden has no variable to release
            part.release = tuple(name for name in part.release if name not in hidden)
    seen = tuple(name for name in local if name not in hidden)
    sole = sole_region(work, fetched, set(persistable)) if isinstance(native, Library) else None
    plain = not any(step.info.side_effects or step.op.sub_blocks() for step in steps)
    return BlockPlan(block.idx, tuple(steps), tuple(work), seen, persistable, hidden, sole, plain)


def sole_region(work: Sequence[Step | Region | Chain], fetched: set[str], persistable: set[str]) -> Region | None:
    """The region that is all there is to do, gives just what is fetched, and takes parameters as constants only."""
    if len(work) != 1 or not isinstance(work[0], Region):
        return None
    region = work[0]
    whole = set(region.outputs) == fetched and persistable.isdisjoint((*region.inputs, *region.outputs))
    return region if whole else None


def hidden_within(work: Sequence[Step | Region | Chain]) -> frozenset[str]:
    """What operators of regions write and nothing outside their region mentions."""
    inner: set[str] = set()
    for part in work:
        if isinstance(part, Region):
            inner.update(name for step in part.steps for name in step.op.output_arg_names)
    for part in work:
        if isinstance(part, Region):
            inner.difference_update(part.inputs, part.constants, part.outputs)
        elif isinstance(part, Step):
            inner.difference_update(part.op.input_arg_names, part.op.output_arg_names)
    return frozenset(inner)


def trains(op: Operator) -> bool:
    """Whether the operator belongs to training: what came before it must then be there one by one."""
    return op.type.endswith("_grad") or bool(int(op.get_attr(ROLE_ATTR, 0)) & (OpRole.Backward | OpRole.Optimize))


def kernel_attrs(op: Operator, info: OpInfo) -> dict[str, Any]:
    """The keyword arguments of the kernel: the program's values as the declared types, else the declared defaults.

    Raises OperatorError for an operator that is not what its schema says.
    """
    require_valid_operator(op, info)
    attrs = {}
    for name in info.kernel_attrs:
        spec = info.attrs[name]
        if not op.has_attr(name):
            attrs[name] = spec.default
        elif op.attr_type(name) == spec.type:
            attrs[name] = op.attr(name)
        else:
            attrs[name] = as_attr_value(spec.type, op.attr(name))
    return attrs


def without_fetched(deletion: Operator, fetched: set[str]) -> Operator:
    """A `delete_var` operator that leaves fetched variables alone."""
    if fetched.isdisjoint(deletion.input("X")):
        return deletion
    copy = copy_operator(deletion, deletion.block)
    copy._inputs = {"X": [name for name in deletion.input("X") if name not in fetched]}
    return copy


def names_used(program: Program, op: Operator) -> set[str]:
    """Every name that an operator, or any block below it, reads or writes."""
    names = {*op.input_arg_names, *op.output_arg_names, *hidden_reads(op), *hidden_writes(op)}
    for index in op.sub_blocks():
        for inner in program.block(index).ops:
            names |= names_used(program, inner)
    return names


def needed_operators(program: Program, ops: list[Operator], fetched: set[str]) -> list[Operator]:
    """The operators that the fetches depend on, and those with effects beyond their outputs.

    Deletions are left out: they would ask for what they delete.
    """
    wanted, kept = set(fetched), []
    for op in reversed(ops):
        if op.type == DELETE:
            continue
        info = get_op(op.type)
        if info.side_effects or wanted.intersection(op.output_arg_names):
            kept.append(op)
            wanted |= names_used(program, op)
    return kept[::-1]


def is_superseded(op: Operator) -> bool:
    """Whether a rewrite put other operators in place of this one."""
    return bool(op.get_attr(NAMESCOPE_ATTR, "") == SUPERSEDED)


def without_superseded(block: Block, ops: list[Operator], fetched: set[str]) -> list[Operator]:
    """The operators without those that a rewrite left behind for their results, where nothing reads or fetches these."""
    if not any(is_superseded(op) for op in ops):
        return ops
    kept: list[Operator] = []
    wanted = set(fetched)
    for op in reversed(ops):
        if not is_superseded(op) or wanted.intersection(op.output_arg_names):
            kept.append(op)
            wanted |= names_used(block.program, op)
    return kept[::-1]


def dead_after(program: Program, ops: list[Operator], releasable: set[str]) -> list[tuple[str, ...]]:
    """For each operator the names whose last use it is; where variables share one, the last use before the next one's."""
    seen: set[str] = set()
    dead: list[tuple[str, ...]] = []
    for op in reversed(ops):
        names = (names_used(program, op) & releasable) - seen
        seen |= names
        seen -= (original_names(op).keys() & set(op.output_arg_names)) - set(op.input_arg_names)
        dead.append(tuple(sorted(names)))
    return dead[::-1]


class BoundStep:
    """A step whose names are looked up: what the loop calls."""

    __slots__ = ("args", "attrs", "context", "first", "kernel", "lods", "outputs", "release")

    def __init__(self, step: Step, context: OpContext, release: tuple[ScopeVariable, ...]) -> None:
        info = step.info
        self.context, self.attrs, self.release = context, step.attrs, release
        self.kernel = context.runtime.plan.kernel_of(info)
        self.args: tuple[tuple[Any, bool, Any], ...] = ()
        if not info.raw:
            self.args = tuple((slot, slot.duplicable, context.inputs.get(slot.name, ())) for slot in info.inputs)
        self.outputs = context.outputs
        self.first = info.outputs[0].name if info.outputs else ""
        self.lods = info.share_lod

    def run(self) -> None:
        """Read the inputs, compute, store the outputs."""
        self.store(self.compute())

    def compute(self) -> Any:
        """What the kernel makes of the inputs."""
        args: list[Any] = []
        for slot, duplicable, holders in self.args:
            if duplicable:
                values = [read(holder) for holder in holders]
                if any([value is None for value in values]):
                    self._missing_of(slot.name, holders, values)
                args.append(values)
            else:
                value = read(holders[0]) if holders else None
                if value is None and not slot.dispensable:
                    self._missing(slot.name, holders)
                args.append(value)
        return self.kernel(self.context, *args, **self.attrs)

    def store(self, result: Any) -> None:
        """Put what the kernel returned into the outputs."""
        if result is None:
            return
        if type(result) is not dict:
            result = {self.first: result}
        for slot, value in result.items():
            holders = self.outputs.get(slot)
            if not holders:
                continue
            if type(value) is list:
                for holder, item in zip(holders, value, strict=False):
                    self._put(slot, holder, item)
            else:
                self._put(slot, holders[0], value)

    def _put(self, slot: str, holder: ScopeVariable | None, value: Any) -> None:
        if value is None or holder is None:
            return
        lod = holder.pending_lod
        holder.pending_lod = None
        if lod is None:
            lod = value.offsets if type(value) is LoDTensor else []
            for source, target in self.lods:
                if target == slot:
                    lod = self._source_lod(source, slot, holder) or lod
        if type(value) is LoDTensor:
            if value.array is None:
                holder.value = value
            else:
                holder.set_tensor(value.array, lod)
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            holder.set_tensor(value if value.shape else self.context.array(value), lod)
        else:
            holder.value = value

    def _source_lod(self, source: str, slot: str, holder: ScopeVariable) -> list[list[int]]:
        targets = self.outputs[slot]
        index = next((i for i, other in enumerate(targets) if other is holder), 0) if len(targets) > 1 else 0
        sources = self.context.inputs.get(source, ())
        return self.context.lod(source, index if index < len(sources) else 0)

    def _missing_of(self, slot: str, holders: tuple[ScopeVariable | None, ...], values: list[Any]) -> None:
        """Raise UninitializedError for a variable of a list that holds no value.

        A gap in the list (@EMPTY@) is none, nor is a variable that only orders `send` and `recv`.
        """
        if self.context.info.side_effects:
            return
        for holder, value in zip(holders, values, strict=True):
            if holder is not None and value is None:
                self._missing(slot, (holder,))

    def _missing(self, slot: str, holders: tuple[ScopeVariable | None, ...]) -> None:
        op = self.context.op
        if not holders or holders[0] is None:
            raise OperatorError(f"operator {op.type} in block {op.block.idx} names no variable for its input {slot}")
        raise UninitializedError(
            f"input {slot} of operator {op.type} in block {op.block.idx} is variable {holders[0].name}, which holds no "
            "value: feed it, load it into the scope, or run the startup program first"
        )


class BoundUpdate(BoundStep):
    """A step that changes variables where they lie, when nobody but the scope holds their arrays."""

    __slots__ = ("changed", "in_place", "usual")

    def __init__(self, step: Step, context: OpContext, release: tuple[ScopeVariable, ...]) -> None:
        super().__init__(step, context, release)
        self.usual, self.in_place = step.attrs, {**step.attrs, "in_place": True}
        pairs = context.runtime.plan.changed_by(step.op).items()
        same = all(step.op.input(old) == step.op.output(new) for old, new in pairs)
        self.changed = tuple(context.inputs[old][0] for old, _ in pairs) if same else ()

    def compute(self) -> Any:
        """What the kernel makes of the inputs, which it may take the place of."""
        alone = bool(self.changed) and all([holds_alone(holder) for holder in self.changed])
        self.attrs = self.in_place if alone else self.usual
        return super().compute()


def read(holder: ScopeVariable | None) -> Any:
    """What a kernel gets of a variable: the bare array of a LoDTensor, other values as they are, None for nothing."""
    if holder is None:
        return None
    value = holder.value
    if type(value) is LoDTensor:
        if value.array is not None:
            return value.array
        return value if value.shape() != [0] else None
    return value


class BoundBlock:
    """A block bound to the variables of one scope: run it as often as you like. `fed`: the names in the scope before that."""

    __slots__ = ("bindings", "fed", "holders", "index", "runtime", "scope", "steps")

    def __init__(self, plan: BlockPlan, scope: Scope, runtime: Any, found: Bindings | None = None) -> None:
        self.index, self.scope, self.runtime = plan.index, scope, runtime
        self.fed = set(scope.local_var_names())
        self.bindings = bindings = bindings_of(plan.persistable_names, scope) if found is None else found
        self.holders = holders = bindings.holders.copy()
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

        def bind(step: Step | Region | Chain) -> BoundStep | BoundRegion | BoundChain:
            if isinstance(step, Chain):
                ended = tuple(holders[name] for name in step.release if name in holders)
                return BoundChain(step, [bound(part) for part in step.steps], ended)
            if isinstance(step, Region):
                stay = tuple(holders[name] for name in step.release if name in holders)
                return BoundRegion(step, lookup, bind, stay, bindings)
            return bound(step)

        def bound(step: Step) -> BoundStep:
            inputs, outputs = lookup_all(step.op.inputs), lookup_all(step.op.outputs)
            release = tuple(holders[name] for name in step.release if name in holders)
            context = OpContext(step.op, step.info, inputs, outputs, scope, runtime)
            kind = BoundUpdate if runtime.plan.changed_by(step.op) else BoundStep
            return kind(step, context, release)

        self.steps = tuple(bind(step) for step in plan.work)

    def forget_values(self) -> bool:
        """Empty the variables of the scope; False where it has one that this block has not looked up."""
        return all(self.holders.get(variable.name) is variable for variable in self.scope.emptied())

    def run(self) -> None:
        """Run every step in order; errors say which operator, where, and what it was given."""
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
            if step is not None and not getattr(error, "located", False):
                error.located = True  # type: ignore[attr-defined]
                error.args = (f"{error.args[0]} [{where(step)}]", *error.args[1:])
            raise
        except FAILURES as error:
            assert step is not None
            raise located(OperatorError(f"operator {step.context.op.type} failed: {error} [{where(step)}]")) from error
        except AttributeError as error:  # a fault of ours, unless an input is not what kernels take
            misfit = None if step is None else misfit_of(step)
            if step is None or misfit is None:
                raise
            raise located(OperatorError(f"operator {step.context.op.type}: {misfit} [{where(step)}]")) from error


def one_by_one(
    steps: Iterable[BoundStep | BoundRegion | BoundChain], whole: bool = False
) -> Iterator[BoundStep | BoundRegion]:
    """Every step by itself; regions stay `whole` for those who know them."""
    for step in steps:
        if isinstance(step, BoundChain) or (isinstance(step, BoundRegion) and not whole):
            yield from step.steps
        else:
            yield step


def misfit_of(step: BoundStep | BoundRegion | BoundChain) -> str | None:
    """The input of a step that is no tensor, as kernels expect one; None without. Attributes were checked at compiling."""
    for slot, holders in step.context.inputs.items():
        for holder in holders:
            value = None if holder is None else holder.value
            if value is not None and not (type(value) is LoDTensor and value.array is not None):
                kind = "no value" if type(value) is LoDTensor else type(value).__name__
                return f"input {slot} holds {kind}, where a tensor is needed"
    return None


def located(error: FluidError) -> FluidError:
    """Mark an error whose message already says where it happened."""
    error.located = True  # type: ignore[attr-defined]
    return error


def where(step: BoundStep | BoundRegion | BoundChain) -> str:
    """'block 0, X=img (1, 3, 4) float32 -> Out=t; written in train.py, line 7: t = …' for messages."""
    op = step.context.op
    shown = []
    for slot, holders in step.context.inputs.items():
        for holder in holders[:4]:
            if holder is not None:
                shown.append(f"{slot}={holder.name} {describe(holder.value)}")
    outputs = ", ".join(f"{slot}={', '.join(names)}" for slot, names in op.outputs.items() if names)
    line = written_in(op)
    return (
        f"block {op.block.idx}, {', '.join(shown) or 'no inputs'} -> {outputs or 'no outputs'}"
        f"{f'; written in {line}' if line else ''}"
    )


def describe(value: Any) -> str:
    """Shape and data type of a value, for messages."""
    if isinstance(value, LoDTensor):
        return "(no value)" if value.array is None else f"{tuple(value.array.shape)} {value.array.dtype}"
    return "(no value)" if value is None else type(value).__name__
