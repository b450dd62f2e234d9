"""Regions of training programs: an engine runs each in one call, and changes parameters where they are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any
from weakref import WeakKeyDictionary, getweakrefcount

import numpy as np

from fluidtool.errors import OutOfMemoryError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.hidden_names import hidden_writes
from fluidtool.ir.roles import OpRole
from fluidtool.ops.registry import get_op
from fluidtool.records import dataclass
from fluidtool.runtime.bindings import array_of
from fluidtool.runtime.bound_region import copied, lod_of, run_again
from fluidtool.runtime.dependencies import is_own, names_used
from fluidtool.runtime.engines.base import CompiledStep, StepCompiler
from fluidtool.runtime.graph.importers.refusals import every_attribute
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import UnsupportedError
from fluidtool.runtime.phases import role
from fluidtool.runtime.specialization import MOST_KEPT
from fluidtool.runtime.step import Step
from fluidtool.runtime.transfer import move_here
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.references import ONE, are_alone, references

MOVING = 3  # launches of a region in a loop: what goes in, its graph, what comes out
SHORTEST = 2  # operators that are worth a region
UPDATE = 4  # what an update is worth, where another operator is worth 1
LAYER = 16  # what an operator is worth that is some launches for each step: a recurrent layer, a loop, a best path
LAYERS = frozenset(
    {
        f"{layer}{side}"
        for layer in ("lstm", "lstmp", "gru", "cudnn_lstm", "recurrent", "while")
        for side in ("", "_grad")
    }
    | {"crf_decoding"}
)
SEVERAL = 4  # what an operator is worth in a loop that is some launches itself
MANY_CALLS = (
    "gru_unit", "lstm_unit", "softmax", "layer_norm", "sigmoid_cross_entropy_with_logits", "softmax_with_cross_entropy",
    "cross_entropy", "cross_entropy2", "lookup_table", "lookup_table_v2",
)  # fmt: skip
MORE_LAUNCHES = frozenset(f"{type}{side}" for type in MANY_CALLS for side in ("", "_grad"))
METRICS = frozenset({"accuracy", "auc", "chunk_eval", "edit_distance", "mean_iou", "precision_recall"})
"""Operators that nothing in a step reads: those that have no place wait until it is over, in place of dividing it."""
MAY_LACK = {
    "recurrent_grad": "outputs@GRAD",
    "while_grad": "Out@GRAD",
}  # slots with gradients that are 0 if they are missing
COPIED = 1 << 16  # elements of a parameter that is copied for every run, since others change it
PATIENCE = 8  # runs after each other whose parameters are elsewhere than in the last one, before a region is given up
EAGER = 8  # LoDs for which a region is compiled when they come first; from then on when they come a second time


@dataclass(eq=False, slots=True)
class Memo:
    """What was compiled of a region, and when. compiled: with the places of its states. moves: how many times they have moved.
    seen: inputs that came once. copied: states that are taken for inputs, since they move.
    """

    compiled: OrderedDict[Any, tuple[tuple[int, ...], CompiledStep]] = field(default_factory=OrderedDict)
    moves: int = 0
    seen: OrderedDict[Any, None] = field(default_factory=OrderedDict)
    copied: set[str] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class TrainingRegion:
    """Steps of a training program that an engine may run in one call.

    reads: names from outside. states: those of them, and of what is written, that are persistable and that nothing else
    writes. outputs: names that are read after it. optional: those of `reads` that may have no value. reasons: why steps run one
    by one, by result. parts: what runs instead, once an operator turned out to have no place in it. has_run: whether it has run
    in one call. inner: whether it is in the block of a loop. memos: by the scope of a run, since blocks may be bound anew in each.
    """

    steps: tuple[Step, ...]
    reads: tuple[str, ...]
    states: tuple[str, ...]
    outputs: tuple[str, ...]
    release: tuple[str, ...]
    compiler: StepCompiler
    divide: Callable[[Sequence[Step]], tuple[Step | TrainingRegion, ...]]
    optional: frozenset[str] = frozenset()
    reasons: dict[str, str] = field(default_factory=dict)
    parts: tuple[Step | TrainingRegion, ...] | None = None
    has_run: bool = False
    inner: bool = False
    memos: WeakKeyDictionary[Any, Memo] = field(default_factory=WeakKeyDictionary, repr=False)

    def memo_of(self, scope: Any) -> Memo:
        """What was compiled for the variables of a scope."""
        found = self.memos.get(scope)
        if found is None:
            found = self.memos[scope] = Memo()
        return found

    @property
    def updates(self) -> bool:
        """Whether it changes parameters."""
        return any(step.op.input("Param") for step in self.steps)

    def changes(self) -> frozenset[str]:
        """The states that it writes."""
        written = {name for step in self.steps for name in step.op.output_arg_names}
        return frozenset(written.intersection(self.states))

    @property
    def is_worthwhile(self) -> bool:
        """Whether its operators are more work than copying values in and out; an update is some launches."""
        copied = [name for name in self.reads if name not in self.states]
        work = sum(worth(step.op) for step in self.steps)
        if self.inner:
            return work + sum(SEVERAL - 1 for step in self.steps if step.op.type in MORE_LAUNCHES) > MOVING
        return (len(self.steps) >= SHORTEST or work >= LAYER) and work > len(copied) + len(self.outputs)

    @property
    def reads_lods(self) -> bool:
        """Whether what it computes depends on LoDs."""
        return any(self.compiler.reads_lods(step.op) for step in self.steps)

    def compile(
        self,
        given: dict[str, Any],
        states: Sequence[str],
        lods: Mapping[str, Lod] | None = None,
        rings: Callable[[Operator], Any] | None = None,
    ) -> CompiledStep | None:
        """Compile it for these arrays, some of which are states; None if an operator has no place in it: `parts` run instead."""
        try:
            operators = [(step.op, every_attribute(step.op, step.info)) for step in self.steps]
            return self.compiler.compile(operators, given, states, self.outputs, lods, rings, self.inner)
        except UnsupportedError as error:
            self.part_at(error)
            return None

    def part_at(self, error: UnsupportedError) -> None:
        """Let the operator that has no place here run by itself."""
        place = next((i for i, step in enumerate(self.steps) if error.result in step.op.output_arg_names), None)
        self.reasons[error.result] = str(error)
        if place is None:
            self.parts = self.steps
        elif self._reads_changed(place):  # which another region may, after this one
            self.parts = (*self.divide(self.steps[:place]), *self.divide(self.steps[place:]))
        else:
            self._part_at(place)

    def _reads_changed(self, place: int) -> bool:
        """Whether a step reads a state that steps before it change."""
        changed = {name for step in self.steps[:place] for name in step.op.output_arg_names}
        return not changed.intersection(self.states).isdisjoint(self.steps[place].op.input_arg_names)

    def part_at_rows(self, name: str) -> None:
        """Let what reads a gradient of rows from outside run by itself."""
        place = next(i for i, step in enumerate(self.steps) if name in step.op.input_arg_names)
        self.reasons[self.steps[place].op.output_arg_names[0]] = f"{name} is rows that are made elsewhere"
        self._part_at(place)

    def _part_at(self, place: int) -> None:
        before, after = self.steps[:place], self.steps[place + 1 :]
        self.parts = (*self.divide(before), self.steps[place], *self.divide(after))


def worth(op: Operator) -> int:
    """What an operator is worth in a region."""
    return LAYER if op.type in LAYERS else UPDATE if op.input("Param") else 1


# ---------------------------------------------------------------- finding them
def find_training_regions(
    block: Block, steps: Sequence[Step], persistable: frozenset[str], fetched: Collection[str], compiler: StepCompiler
) -> list[Step | TrainingRegion]:
    """The steps of a training program, with those that the engine takes grouped into regions.

    Steps between them that depend on nothing in the region before move in front of it.
    """
    taken = {number for number, step in enumerate(steps) if compiler.takes(step.op)}
    return group_steps(block, steps, persistable, fetched, compiler, taken)


def find_loops(
    block: Block, steps: Sequence[Step], persistable: frozenset[str], fetched: Collection[str], compiler: StepCompiler
) -> list[Step | TrainingRegion]:
    """The steps of an inference program, with loops and what lies between their operators grouped into regions."""
    numbers = [number for number, step in enumerate(steps) if compiler.unrolls(step.op)]
    if not any(steps[number].op.type in LAYERS for number in numbers):
        return list(steps)
    taken = {number for number in range(numbers[0], numbers[-1] + 1) if compiler.takes(steps[number].op)}
    return group_steps(block, steps, persistable, fetched, compiler, taken)


def group_steps(
    block: Block,
    steps: Sequence[Step],
    persistable: frozenset[str],
    fetched: Collection[str],
    compiler: StepCompiler,
    taken: set[int],
    inner: bool = False,
) -> list[Step | TrainingRegion]:
    """The steps, with those that are `taken` grouped into regions. inner: whether the block is that of a loop."""
    program = block.program
    rates = {number for number, step in enumerate(steps) if role(step.op) & OpRole.LRSched}
    made = {name for number in rates & taken for name in steps[number].op.output_arg_names}
    if any(names_used(program, steps[number].op) & made for number in rates - taken):
        taken -= rates  # together they may move in front of a region
    numbers = {id(step.op): number for number, step in enumerate(steps)}
    while True:
        while refused := {n for n in taken if not _fits(block, steps[n], _foreign(program, steps, taken, persistable))}:
            taken -= refused
        owned = persistable - _foreign(program, steps, taken, persistable)
        parts = [
            part if isinstance(part, Step) else _region(program, part, steps, owned, fetched, compiler, inner)
            for part in _joined(program, steps, taken)
        ]
        idle = (part for part in parts if isinstance(part, TrainingRegion) and not part.is_worthwhile)
        lost = {numbers[id(step.op)] for part in idle for step in part.steps}
        if not lost:
            return parts
        taken -= lost  # what they write is written outside regions


def _foreign(program: Program, steps: Sequence[Step], taken: set[int], persistable: frozenset[str]) -> frozenset[str]:
    """Persistable names that steps outside all regions write."""
    others = (step for number, step in enumerate(steps) if number not in taken)
    return persistable.intersection(name for step in others for name in written_by(program, step.op))


def _fits(block: Block, step: Step, foreign: frozenset[str]) -> bool:
    """Whether a step writes nothing that others write, and reads little of it."""
    if not foreign.isdisjoint(step.op.output_arg_names):
        return False
    found = (block.find_var_recursive(name) for name in foreign.intersection(step.op.input_arg_names))
    return all(var is not None and prod(max(size, 1) for size in var.shape) <= COPIED for var in found)


def written_by(program: Program, op: Operator) -> set[str]:
    """The names that an operator, or any block below it, writes."""
    names = {*op.output_arg_names, *hidden_writes(op)}
    for index in op.sub_blocks():
        for inner in program.block(index).ops:
            names |= written_by(program, inner)
    return names


def _joined(program: Program, steps: Sequence[Step], taken: set[int]) -> list[Step | list[Step]]:
    """Runs of steps that are taken, and the others alone; in an order that gives the same results."""
    found: list[Step | list[Step]] = []
    run: list[Step] = []
    late: list[Step] = []  # metrics that wait until the run is over
    released: set[str] = set()

    def close() -> None:
        kept = _mentioned(program, late)
        freed = released.union(name for step in (*run, *late) for name in step.release) & kept
        if run:
            last = replace(run[-1], release=(*run[-1].release, *sorted(released.difference(run[-1].release))))
            found.append([_keeping(step, kept) for step in (*run[:-1], last)])
        for step in late:
            found.append(replace(step, release=tuple(sorted(freed)) if step is late[-1] else ()))
        for part in (run, late, released):
            part.clear()

    for number, step in enumerate(steps):
        is_apart = not late or _is_apart(program, step, late)
        if number in taken:
            if not is_apart:
                close()
            run.append(step)
        elif run and is_apart and _may_move(program, step, run):
            released.update(step.release)
            found.append(replace(step, release=()))
        elif run and step.op.type in METRICS and not step.hollow:
            late.append(step)
        else:
            close()
            found.append(step)
    close()
    return found


def _mentioned(program: Program, steps: Sequence[Step]) -> frozenset[str]:
    """The names that steps use."""
    return frozenset(name for step in steps for name in names_used(program, step.op))


def _keeping(step: Step, names: frozenset[str]) -> Step:
    """A step that does not release these names."""
    if names.isdisjoint(step.release):
        return step
    return replace(step, release=tuple(name for name in step.release if name not in names))


def _is_apart(program: Program, step: Step, late: Sequence[Step]) -> bool:
    """Whether a step and those that wait give the same results in either order."""
    written = frozenset(name for each in late for name in written_by(program, each.op))
    changed = written_by(program, step.op).union(step.hollow)
    return written.isdisjoint(names_used(program, step.op)) and _mentioned(program, late).isdisjoint(changed)


def _may_move(program: Program, step: Step, run: Sequence[Step]) -> bool:
    """Whether a step gives the same results before a run as after it."""
    inner = [op for index in step.op.sub_blocks() for op in program.block(index).ops]
    infos = (step.info, *(get_op(op.type) for op in inner))
    if any(info.side_effects or info.random for info in infos) or any(op.sub_blocks() for op in inner) or step.hollow:
        return False
    made = {name for each in run for name in each.op.output_arg_names}
    read = {name for each in run for name in each.op.input_arg_names}
    mentioned, written = names_used(program, step.op), written_by(program, step.op)
    return made.isdisjoint(mentioned) and read.isdisjoint(written)


def _region(
    program: Program,
    part: Sequence[Step],
    steps: Sequence[Step],
    owned: frozenset[str],
    fetched: Collection[str],
    compiler: StepCompiler,
    inner: bool,
) -> TrainingRegion:
    made: dict[str, None] = {}
    read: dict[str, None] = {}
    for step in part:
        read |= dict.fromkeys(
            name for name in step.op.input_arg_names if name not in made and not is_own(step.op, name)
        )
        made |= dict.fromkeys(step.op.output_arg_names)
    mine = {id(step.op) for step in part}
    elsewhere = {name for step in steps if id(step.op) not in mine for name in names_used(program, step.op)}
    states = [name for name in {**read, **made} if name in owned]
    outputs = [name for name in made if name not in owned and (name in fetched or name in elsewhere)]
    release = dict.fromkeys(name for step in part for name in step.release)

    def divide(rest: Sequence[Step]) -> tuple[Step | TrainingRegion, ...]:
        whole = _region(program, rest, steps, owned, fetched, compiler, inner)
        return (whole,) if whole.is_worthwhile else tuple(rest)

    named = tuple(read), tuple(states), tuple(outputs), tuple(release)
    return TrainingRegion(tuple(part), *named, compiler, divide, optional_reads(part), inner=inner)


def optional_reads(steps: Sequence[Step]) -> frozenset[str]:
    """The gradients from outside that loops do without, if nothing else reads them."""
    slots = [(MAY_LACK.get(step.op.type) == slot, names) for step in steps for slot, names in step.op.inputs.items()]
    needed = {name for is_optional, names in slots if not is_optional for name in names}
    return frozenset(name for is_optional, names in slots if is_optional for name in names) - needed


def reasons_of(parts: Iterable[Any]) -> dict[str, str]:
    """Why operators have no place in regions, by result."""
    found: dict[str, str] = {}
    for part in parts:
        if isinstance(part, TrainingRegion):
            found |= part.reasons | reasons_of(part.parts or ())
    return found


def reasons_of_loops(parts: Iterable[Any], compiler: StepCompiler | None) -> dict[str, str]:
    """Why loops are in no region, by result."""
    steps = [part for part in parts if isinstance(part, Step) and part.op.sub_blocks()]
    found = {} if compiler is None else {step.op.output_arg_names[0]: compiler.refusal(step.op) for step in steps}
    return {name: why for name, why in found.items() if why}


# ---------------------------------------------------------------- running them
class BoundTrainingRegion:
    """A region whose names have been looked up, with what was compiled by the shapes of its inputs."""

    __slots__ = (
        "_all",
        "_at_work",
        "_bind",
        "_bound",
        "_changed",
        "_changing",
        "_memo",
        "_reads_lods",
        "_updates",
        "outputs",
        "reads",
        "region",
        "release",
        "runtime",
        "states",
    )

    def __init__(
        self,
        region: TrainingRegion,
        lookup: Callable[[str], Any],
        bind: Callable[[Any], Any],
        release: tuple[Any, ...],
        runtime: Any,
    ) -> None:
        self.region, self.release, self.runtime = region, release, runtime
        self._bind = bind
        self._at_work: Any = None
        self._bound: tuple[Sequence[Any], list[Any]] | None = None
        self._memo = Memo()
        self._reads_lods, self._updates = region.reads_lods, region.updates
        self._changed = region.changes()
        self.states = {name: lookup(name) for name in region.states}
        self._all = [holder for holder in self.states.values() if holder is not None]  # those taken for inputs, too
        self._changing = [holder for name in self._changed if (holder := self.states[name]) is not None]
        self.reads = {name: lookup(name) for name in region.reads if name not in self.states}
        self.outputs = {name: lookup(name) for name in region.outputs}

    @property
    def steps(self) -> Sequence[Any]:
        """What runs if nothing is compiled: the steps one by one, or the parts of a region that was divided."""
        wanted: Sequence[Any] = self.region.parts or self.region.steps
        if self._bound is None or self._bound[0] is not wanted:
            self._bound = wanted, [self._bind(step) for step in wanted]
        return self._bound[1]

    @property
    def context(self) -> Any:
        """The operator that is running, for messages."""
        return (self._at_work or self.steps[0]).context

    def run(self) -> None:
        """Run in one call, or one by one."""
        if self.region.parts is None and self._run_compiled():
            self._at_work = None
            return
        self._move_states()
        self._run_one_by_one()

    def _run_one_by_one(self) -> None:
        for step in self.steps:
            self._at_work = step
            step.run()

    def _run_compiled(self) -> bool:
        """Run in one call; False if that is not possible, and nothing was done."""
        self._memo = self.region.memo_of(self.runtime.scope)
        for name in self._memo.copied.intersection(self.states):
            self.reads[name] = self.states.pop(name)
        given = {name: array_or_shape(holder) for name, holder in self.reads.items()}
        given = {name: value for name, value in given.items() if value is not None or name not in self.region.optional}
        absent = [name for name, value in given.items() if value is None]
        rows = next((name for name in absent if holds_rows(self.reads[name])), None)
        if rows is not None:
            self.region.part_at_rows(rows)
        compiled = None if absent else self._compiled_again(given) or self._compiled_now(given)
        if compiled is None:
            return False
        if self._updates:
            self.runtime.checks.settle()
        try:
            on_host = {name: host for name, (array, host) in self.runtime.fed_ids.items() if given.get(name) is array}
            found = compiled.run(given, self.runtime.generator, on_host, self._same_arrays)
        except UnsupportedError as error:  # of a library, whose calls come before anything changes
            self.region.part_at(error)
            return False
        if found is None:
            return False
        results, mark = found
        if mark is not None:
            again = [
                (self.reads[name], tensor_of(value, lod_of(self.reads[name])))
                for name, value in given.items()
                if name in self.reads
            ]
            self.runtime.checks.postpone(mark, lambda: run_again(self, again, self._run_one_by_one, self.runtime))
        self.region.has_run = True
        self._show_changes(compiled)
        for name, array in results.items():
            self.outputs[name].pending_lod = None
            self.outputs[name].set_tensor(array, self._lod(compiled, name))
        for name, shape in compiled.shapes.items():
            self.outputs[name].value = tensor_of(tuple(shape), self._lod(compiled, name))
        return True

    @property
    def _same_arrays(self) -> object:
        """The run in which arrays keep their numbers, if this runs many times in it."""
        return self.runtime.same_arrays if self.region.inner else None

    def _copy_from_now_on(self, before: tuple[int, ...], now: tuple[int, ...]) -> bool:
        """Take states that are only read, and that are elsewhere in every run, for inputs; False if there are none."""
        moved = [name for name, old, new in zip(self.states, before, now, strict=True) if old != new]
        moved = [name for name in moved if name not in self._changed and self._memo.moves > 1]
        for name in moved:
            self.reads[name] = self.states.pop(name)
        if moved:
            self._memo.copied.update(moved)
            self._memo.compiled.clear()
            self._memo.moves = 0
        return bool(moved)

    def _show_changes(self, compiled: CompiledStep) -> None:
        """Give arrays that somebody watches a new identity, as an operator would that replaces them."""
        for holder in self._changing:
            if getweakrefcount(holder.value.array):
                holder.set_tensor(compiled.renewed(holder.value.array), holder.value.offsets)

    def _lod(self, compiled: CompiledStep, name: str) -> list[list[int]]:
        """The LoD of an output: that of an input."""
        source = compiled.lods.get(name, "")
        if not isinstance(source, str):
            return [list(level) for level in source]
        return [list(level) for level in lod_of(self.reads.get(source) or self.states.get(source))]

    def _own_states(self) -> bool:
        """Make every state that changes an array to which nothing but its variable refers; False if one has no array."""
        device = self.runtime.device
        for name, holder in self.states.items():
            value = None if holder is None else holder.value
            if type(value) is not LoDTensor or value.array is None or value.array.size == 0:
                return False
            shared = (name in self._changed and references(value, "array") > ONE) or isinstance(value.array, np.ndarray)
            if shared or value.array.base is not None or not value.array.flags.c_contiguous:
                holder.set_tensor(device.array(value.array).copy(), value.offsets)
        return True

    def _ring(self, op: Operator) -> Any:
        return self.runtime.communicators.of_step(op)

    def _is_due(self, key: Any) -> bool:
        """Whether to compile for inputs with these LoDs, or in a loop: the first few, and those that come again.

        Batches whose lengths never repeat would be compiled in every run.
        """
        seen = self._memo.seen
        if len(self._memo.compiled) < EAGER or key in seen:
            seen.pop(key, None)
            return True
        seen[key] = None
        if len(seen) > 4 * MOST_KEPT:
            seen.popitem(last=False)
        return False

    def _move_states(self) -> None:
        """Put all states on the device of the run; those of a loop's block are there already."""
        if not self.region.inner:
            move_here(self._all, self.runtime.device)

    def _signature(self, reads: Mapping[str, Any], lods: Mapping[str, Lod] | None) -> tuple[Any, ...]:
        """What compiling reads of the inputs that are no states."""
        names = tuple(reads) if self.region.optional else None
        return _shapes(reads.values()), None if lods is None else tuple(lods.values()), names

    def _lods(self) -> dict[str, Lod] | None:
        """The LoDs of the inputs, where operators read them."""
        return {name: lod_of(holder) for name, holder in self.reads.items()} if self._reads_lods else None

    def _compiled_again(self, given: dict[str, Any]) -> CompiledStep | None:
        """What ran last, if it fits again; `given` then has the states, too. This is all that a run in a series looks at.

        What is compiled keeps the memory of the states that it changes or reads where they are, so an array at one of their places
        that is no view is still the same.
        """
        if not self._memo.compiled:
            return None
        key = next(reversed(self._memo.compiled))
        places, compiled = self._memo.compiled[key]
        try:
            if not are_alone([holder.value for holder in self._changing]):
                return None
            arrays = [holder.value.array for holder in self.states.values()]
            there = tuple([array.data.ptr for array in arrays])
            if there != places or any([array.base is not None for array in arrays]):
                return None
        except AttributeError:  # a value that is no array of a GPU
            return None
        copies_states = not self.states.keys().isdisjoint(compiled.names)  # of which it does not keep the memory
        if (copies_states and key[-1] != _shapes(arrays)) or key[:-1] != self._signature(given, self._lods()):
            return None
        self._memo.moves = 0
        given |= zip(self.states, arrays, strict=True)
        return compiled

    def _compiled_now(self, given: dict[str, Any]) -> CompiledStep | None:
        """What was compiled for what is given, or is compiled now; `given` then has the states, too."""
        self._move_states()
        if not self._own_states():
            return None
        given |= {name: holder.value.array for name, holder in self.states.items()}
        return self._compiled(given)

    def _compiled(self, given: dict[str, Any]) -> CompiledStep | None:
        """What was compiled for these inputs and these places of the states."""
        lods = self._lods()
        arrays = [given[name] for name in self.states]
        reads = {name: value for name, value in given.items() if name not in self.states}
        key = (*self._signature(reads, lods), _shapes(arrays))
        places = tuple(given[name].data.ptr for name in self.states)
        memo = self._memo
        found = memo.compiled.get(key)
        if found is not None and found[0] == places:
            memo.moves = 0
            memo.compiled.move_to_end(key)
            return found[1]
        memo.moves += found is not None
        if found is not None and self._copy_from_now_on(found[0], places):
            return self._compiled(given)
        if memo.moves > PATIENCE:
            self.region.parts = self.region.steps
            self.region.reasons[self.region.steps[0].op.output_arg_names[0]] = (
                "its parameters are replaced in every run"
            )
            return None
        may_wait = lods is not None or self.region.inner
        if may_wait and found is None and not self._is_due(key):
            return None
        compiled = self._compiled_in_memory(given, lods)
        if compiled is None:
            return None
        memo.compiled[key] = places, compiled
        room, taken = self.region.compiler.room, sum(each.memory for _, each in memo.compiled.values())
        while len(memo.compiled) > 1 and (len(memo.compiled) > MOST_KEPT or taken > room):
            _, (_, oldest) = memo.compiled.popitem(last=False)
            taken -= oldest.memory
        return compiled

    def _compiled_in_memory(self, given: dict[str, Any], lods: Mapping[str, Lod] | None) -> CompiledStep | None:
        """The region compiled for what is given, in the memory of what was compiled before if there is no more."""
        try:
            return self.region.compile(given, tuple(self.states), lods, self._ring)
        except OutOfMemoryError:
            if not self._memo.compiled:
                raise
        self._memo.compiled.clear()
        return self.region.compile(given, tuple(self.states), lods, self._ring)


def _shapes(values: Iterable[Any]) -> tuple[Any, ...]:
    """The shapes and data types of arrays, among which may be shapes without an array."""
    return tuple([each if type(each) is tuple else (each.shape, each.dtype.char) for each in values])


def holds_rows(holder: Any) -> bool:
    """Whether a variable holds a gradient of rows."""
    return holder is not None and type(holder.value) is SelectedRows


def tensor_of(value: Any, lod: Sequence[Sequence[int]]) -> LoDTensor:
    """What `array_or_shape` says of a variable with a LoD, as a tensor."""
    if type(value) is not tuple:
        return LoDTensor(value, copied(lod))
    found = LoDTensor()
    found.set_dims(value)
    found.offsets = copied(lod)
    return found


def array_or_shape(holder: Any) -> Any:
    """The array of a variable; the shape of one that is no more than that; None for any other value, and for no elements."""
    array = array_of(holder)
    if array is not None:
        return array if array.size else None
    value = None if holder is None else holder.value
    shape = value.shape() if type(value) is LoDTensor and value.array is None else [0]
    return tuple(shape) if shape != [0] else None
