"""The smallest part of a program that shows a difference: cut at values that agree, as close to the difference as possible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any

from fluidtool.debugging.places import FEED_FETCH
from fluidtool.debugging.sides import Side
from fluidtool.debugging.values import Allowed, compare_values
from fluidtool.errors import FluidError, ProgramError
from fluidtool.feeding import check_value
from fluidtool.ir import Program, Variable
from fluidtool.ir.dataflow import BlockFlow, Version, block_flow
from fluidtool.ir.surgery import copy_fields, copy_operator, copy_variable
from fluidtool.passes.cut import cut_to
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.compare import Comparison

Show = Callable[[int], "Part | None"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of both programs that computes `target` from `feed`, and how far the two are apart there."""

    left: Program
    right: Program | None
    feed: Mapping[str, LoDTensor]
    target: str
    partner: str
    comparison: Comparison
    operators: int
    expected: Mapping[str, Any]  # the value of B


@dataclass(frozen=True, slots=True)
class Source:
    """A program to take parts of, with the def-use view of its block 0 and the names of its inputs."""

    program: Program
    flow: BlockFlow
    inputs: frozenset[str]

    def enters(self, version: Version) -> bool:
        """Whether a value has to be given where the program is cut before its first reader.

        A parameter is there, and a loop also reads what it is the first to write.
        """
        var = self.flow.block.find_var_recursive(version.name)
        return var is not None and not var.persistable and (version.number > 0 or version.name in self.inputs)

    def behind(self, target: str, boundary: Collection[str] = ()) -> list[int]:
        """The operators that the last value of `target` depends on, cut at `boundary`, in order."""
        found: set[int] = set()
        waiting = [self.flow.last[target]] if target in self.flow.last else []
        while waiting:
            at = self.flow.writer.get(waiting.pop())
            if at is None or at in found or self.flow.block.ops[at].type in FEED_FETCH:
                continue
            found.add(at)
            waiting += [version for name, version in self.flow.reads[at].items() if name not in boundary]
        return sorted(found)

    def part(self, target: str, feed: Mapping[str, LoDTensor]) -> Program:
        """What computes `target` from the values of `feed` that it needs; the inputs are declared so that they fit.

        Raises ProgramError if it needs more.
        """
        part = cut_to(self._only(self.behind(target, feed), target, feed), [target], None, list(feed))
        block = part.global_block()
        for name, value in feed.items():
            if name in block.vars and not _fits(block.vars[name], value):
                var = copy_variable(block.vars[name], block)
                var.shape, var.lod_level, var.dtype = tuple(value.shape()), len(value.lod()), value.dtype()
                block.vars[name] = var
                part.touch()
        return part

    def _only(self, positions: Sequence[int], target: str, feed: Collection[str]) -> Program:
        """Some operators of block 0 and what they name; the program itself if one of them has a block."""
        block = self.flow.block
        ops = [block.ops[at] for at in positions]
        if any(op.sub_blocks() for op in ops):
            return self.program
        only = Program()
        copy_fields(only, self.program)
        inside = only.global_block()
        inside.ops = [copy_operator(op, inside) for op in ops]
        named = {name for op in ops for name in (*op.input_arg_names, *op.output_arg_names)}
        inside.vars = {
            name: copy_variable(block.vars[name], inside) for name in (*named, target, *feed) if name in block.vars
        }
        return only


def source_of(program: Program, inputs: Collection[str]) -> Source:
    """A program to take parts of."""
    return Source(program, block_flow(program.global_block()), frozenset(inputs))


def _fits(var: Variable, value: LoDTensor) -> bool:
    try:
        check_value(var, value)
    except FluidError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where the way to a value can be cut: before the operators at `positions` of those that it needs (`live`)."""

    live: Sequence[int]
    positions: Sequence[int]
    source: Source

    def boundary(self, position: int) -> list[str]:
        """The values that cross the cut: computed or fed before, read after."""
        flow, crossing = self.source.flow, dict[str, None]()
        for at in self.live[position:]:
            for name in sorted(flow.effects[at].reads):
                version = flow.reads[at][name]
                if flow.writer.get(version, -1) < self.live[position] and self.source.enters(version):
                    crossing[name] = None
        return list(crossing)


def find_cuts(source: Source, target: str, given: Collection[str]) -> Cuts:
    """The cuts whose boundary consists of values of `given`, in linear time; the first one is the whole way."""
    flow, live = source.flow, source.behind(target)
    rank = {at: number for number, at in enumerate(live)}
    blocked = [0] * (len(live) + 2)  # differences of the number of values that may not cross
    last: dict[Version, int] = {}
    for number, at in enumerate(live):
        for name, version in flow.reads[at].items():
            if name not in given and source.enters(version):
                last[version] = number
    for version, number in last.items():
        writer = flow.writer.get(version)
        first = rank[writer] + 1 if writer in rank else 0
        blocked[first] += 1
        blocked[number + 1] -= 1
    return Cuts(live, [number for number, count in enumerate(accumulate(blocked[: len(live)])) if not count], source)


def last_that_shows(positions: Sequence[int], show: Show) -> Part | None:
    """The part from the last position that shows the difference: the last one is tried, then ever larger parts, then
    those between by halves.
    """
    low, high, step = -1, len(positions), 1
    found: Part | None = None
    while found is None and high > 0:
        low = max(high - step, 0)
        found = show(positions[low])
        if found is None:
            high, step = low, step * 2
    while found is not None and high - low > 1:
        middle = (low + high) // 2
        part = show(positions[middle])
        low, high, found = (middle, high, part) if part is not None else (low, middle, found)
    return found


# ---------------------------------------------------------------- parts
@dataclass(frozen=True, slots=True)
class Narrowing:
    """The search for the smallest part of two sides; `right` is None where B's values are recorded (`expected`)."""

    left: Side
    right: Side | None
    values: Mapping[str, Any]
    expected: Mapping[str, Any]
    allowed: Allowed
    advance: Callable[[], object]

    def narrow(self, target: str, partner: str) -> Part | None:
        """The smallest part that computes `target` and shows the difference; None if not even all of it does."""
        program = self.left.model.program
        source = source_of(program, self.left.model.feeds)
        other = None if self.right is None else source_of(self.right.model.program, self.right.model.feeds)
        cuts = find_cuts(source, target, self._given(program))

        def show(position: int) -> Part | None:
            self.advance()
            return self._part(source, other, cuts.boundary(position), target, partner)

        return last_that_shows(cuts.positions, show)

    def _given(self, program: Program) -> set[str]:
        """The values that may be fed: tensors that both programs have, written once."""
        found = {name for name, value in self.values.items() if _can_be_fed(value)} - overwritten(program)
        if self.right is None:
            return {name for name in found if _can_be_fed(self.expected.get(name))}
        other = self.right.model.program
        return found.intersection(other.global_block().vars) - overwritten(other)

    def _part(
        self, source: Source, other: Source | None, boundary: Sequence[str], target: str, partner: str
    ) -> Part | None:
        """The part behind a boundary, if it shows the difference."""
        values = self.expected if self.right is None else self.values
        feed = {name: values[name] for name in boundary}
        try:
            left = source.part(target, feed)
            right = None if other is None else other.part(partner, feed)
        except ProgramError:  # the other program needs more than what crosses here
            return None
        found = self._run(left, right, feed, target, partner)
        if found is None:
            return None
        compared = compare_values(target, *found, self.allowed)
        if compared.agrees:
            return None
        operators = sum(op.type not in FEED_FETCH for op in left.global_block().ops)
        return Part(left, right, feed, target, partner, compared, operators, {partner: found[1]})

    def _run(
        self, left: Program, right: Program | None, feed: Mapping[str, Any], target: str, partner: str
    ) -> tuple[Any, Any] | None:
        """The value of each side; None if a side cannot run this part alone, so that it shows nothing."""
        try:
            mine = self.left.part(left).outputs(_fed(left, feed), [target])
            if self.right is None or right is None:
                other = {partner: self.expected[partner]}
            else:
                other = self.right.part(right).outputs(_fed(right, feed), [partner])
        except FluidError:
            return None
        return (mine[target], other[partner]) if target in mine and partner in other else None


def _can_be_fed(value: Any) -> bool:
    """Whether a .npz file can hold a value exactly."""
    return isinstance(value, LoDTensor) and value.is_initialized() and value.numpy().dtype.name != "bfloat16"


def overwritten(program: Program) -> set[str]:
    """Values that more than one operator writes, so that cutting at their name would mean another one."""
    seen: set[str] = set()
    twice: set[str] = set()
    for block in program.blocks:
        for op in block.ops:
            names = set(op.output_arg_names)
            twice |= names & seen if not op.sub_blocks() else names
            seen |= names
    return twice


def _fed(program: Program, feed: Mapping[str, Any]) -> dict[str, Any]:
    names = {name for op in program.global_block().ops if op.type == "feed" for name in op.output("Out")}
    return {name: value for name, value in feed.items() if name in names}
