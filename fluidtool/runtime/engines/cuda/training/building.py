"""The graph of a training step while it is built: parameters are values like others, and what updates change is noted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.records import dataclass
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.graph.bounds import ALL, COMPUTED, Bound, Column
from fluidtool.runtime.graph.importers.elementwise import aligned
from fluidtool.runtime.graph.importers.registry import IMPORTERS, GraphBuilder, Lod, need
from fluidtool.runtime.graph.ir import Node, Shape, Value
from fluidtool.tensor import LoDRankTable

Rings = Callable[[Operator], Any]
Importer = Callable[["StepBuilder", Operator, Mapping[str, Any]], None]
STEP_IMPORTERS: dict[str, Importer] = {}
BEFORE = frozenset({
    "view", "transpose", "slice", "concat", "stack", "tile", "taken", "whole", "converted", "compared", "yolo_truths",
})  # fmt: skip
"""Nodes of ids, and of places of boxes, that are computed once more before the step, to be looked at."""
TERMS = 8  # of a sum, that one formula adds to what came before


def imports_step(*types: str) -> Callable[[Importer], Importer]:
    """Register the importer of these operators into training steps."""

    def register(function: Importer) -> Importer:
        STEP_IMPORTERS.update(dict.fromkeys(types, function))
        return function

    return register


def as_in_inference(*types: str) -> None:
    """Import these operators as regions of inference do: they have no parameters, or read them like other values."""
    STEP_IMPORTERS.update(dict.fromkeys(types, _as_in_inference))


def _as_in_inference(b: StepBuilder, op: Operator, attrs: Mapping[str, Any]) -> None:
    IMPORTERS[op.type](b, op, dict(attrs))


@dataclass(frozen=True, slots=True)
class Rule:
    """How an optimizer changes its states: statements of C on their letters, on the gradient `g` and on named numbers."""

    states: tuple[str, ...]
    numbers: tuple[str, ...]
    text: str


@dataclass(frozen=True, eq=False, slots=True)
class Update:
    """An update of states of one shape in place, from a gradient (where there is one) and single numbers."""

    rule: Rule
    states: tuple[Value, ...]
    gradient: Value | None
    numbers: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """A gradient of some rows of a table: ids and the gradients of their rows, part by part; ids may be repeated."""

    ids: tuple[Value, ...]
    grads: tuple[Value, ...]  # [ids, width]


@dataclass(frozen=True, eq=False, slots=True)
class RowUpdate:
    """An update of those rows of states that a gradient names, each once by its sum; the others stay as they are."""

    rule: Rule
    states: tuple[Value, ...]
    rows: Rows
    numbers: tuple[Value, ...] = ()


@dataclass(eq=False, slots=True)
class Bucket:
    """Gradients that are summed over a ring: those that wait for others, and those on their way, with the names of each."""

    ring: Any
    parts: list[tuple[str, Value]] = field(default_factory=list)
    sent: list[tuple[Value, tuple[tuple[str, Value], ...]]] = field(default_factory=list)

    @property
    def floats(self) -> int:
        """The elements that wait."""
        return sum(prod(value.shape) for _, value in self.parts)


@dataclass(frozen=True, slots=True)
class Draw:
    """Numbers that a dropout draws: the place in the stream where it begins, how many, the operator's seed or 0.

    floats: by halves of words; else doubles.
    """

    state: Value
    count: int
    seed: int
    floats: bool = True


@dataclass(frozen=True, slots=True)
class Item:
    """A tensor of the program: its value, and the input whose LoD it has, or its LoD."""

    value: Value
    origin: str | Lod = ()


Items = tuple[Item | None, ...]  # an array of tensors
Meanings = Mapping[str, Mapping[str, Any]]  # what names stand for, by the table of the builder that says so
BY_NAME = (
    "values", "origins", "shapes", "rows", "peaks", "packed", "masks", "conditions", "arrays", "tables", "loops",
)  # fmt: skip
"""The tables of a builder by the names of variables."""


class StepBuilder(GraphBuilder):
    """GraphBuilder for training steps.

    states: values of persistable variables, by name. stores: what they become at the end. shapes: of variables that only
    stand for a shape (XShape). rows: gradients of tables that are rows. peaks, packed: what layers of sequences leave for
    their gradients, by the names of variables that stand for it. origins: for each name with a LoD, the input whose LoD it
    is, or the LoD; known: the LoDs of inputs, if the step is for these only. arrays, tables: arrays of tensors, rank tables.
    loops: what each step of a loop has left, by its variable of scopes. inner: whether this is a part of a step of a loop, and
    waits for nothing.
    """

    def __init__(self, states: Mapping[str, Value], rings: Rings | None = None, inner: bool = False) -> None:
        super().__init__(rounded={}, for_gpus=True)
        self.inner = inner
        self._rings = rings
        self.buckets: dict[int, Bucket] = {}
        self.reductions: list[Value] = []
        self.states = dict(states)
        self.shapes: dict[str, Shape] = {}
        self.updates: list[Update] = []
        self.row_updates: list[RowUpdate] = []
        self.rows: dict[str, Rows] = {}
        self.padded: set[str] = set()  # values with zeros that the program does not have
        self.peaks: dict[str, tuple[Value, Value]] = {}
        self.packed: dict[str, Value] = {}
        self.bounds: list[Bound] = []
        self.checked: list[tuple[Value, Bound]] = []  # whole numbers that are computed, and where they must be
        self.marked: dict[tuple[Value, Bound], Value] = {}  # the same in a loop, and what stands in their place
        self.draws: list[Draw] = []
        self.moved: set[str] = set()
        self.stores: dict[str, Value] = {}
        self.masks: dict[str, Value] = {}  # of dropout, by name: floats here, where the program has bytes
        self.origins: dict[str, str | Lod] = {}
        self.known: Mapping[str, Lod] = {}
        self.arrays: dict[str, Items] = {}
        self.tables: dict[str, LoDRankTable] = {}
        self.loops: dict[str, Sequence[Meanings]] = {}
        self.unrolled = 0  # operators of loops that have been imported
        self.stacks: dict[Any, Any] = {}  # runs of stacked recurrent layers, by what they read
        self.filled: dict[Value | None, float] = {}  # single numbers that are constants
        self.operators: frozenset[int] = frozenset()  # the ids of all operators of the step

    def ring(self, op: Operator) -> Any:
        """The ranks that an operator works with; raises as joining them does."""
        need(self._rings is not None, "sums over ranks")
        assert self._rings is not None
        return self._rings(op)

    # ---------------------------------------------------------------- inputs
    def get(self, op: Operator, slot: str, integer: bool | None = False) -> Value:
        """The value in an input slot; a state that an update has changed is not there any more."""
        need(self.moved.isdisjoint(op.inputs.get(slot, [])), f"{slot} is read after its update")
        return super().get(op, slot, integer)

    def wants(self, op: Operator, slot: str) -> bool:
        """Whether an output slot names a variable."""
        return bool(op.outputs.get(slot)) and op.outputs[slot][0] not in ("", EMPTY)

    def shape_of(self, op: Operator, slot: str) -> Shape:
        """The shape of an input, which may be no more than that."""
        return self.shape_of_name(op.inputs[slot][0])

    def ids(
        self,
        op: Operator,
        slot: str,
        rows: int,
        ignored: int | None = None,
        lengths: Value | None = None,
        column: Column = ALL,
    ) -> Value:
        """Whole numbers that must name one of `rows` rows; those of a line beyond its length, or of other columns, do not count.

        They come from outside, or are computed of what does, apart from lines: a kernel looks at them before the step. In a loop
        kernels mark those that do not, and 0 stands in their place.
        """
        found = self.get(op, slot, integer=True)
        bound = Bound(COMPUTED, rows, ignored, column=column)
        if self.inner:
            need(lengths is None, f"{slot} of lines, in a loop")
            within = self._marked(found, bound)
            return within if column == ALL else found
        if self.is_from_outside(found):
            lines = "" if lengths is None else self.given_name(lengths)
            bound = Bound(self.given_name(found), rows, ignored, lines, column=column)
            if bound not in self.bounds:
                self.bounds.append(bound)
            return found
        need(lengths is None, f"{slot} that is computed")
        self.check_before(self.viewed.get(found, found), bound, f"{slot} that is computed")
        return found

    def _marked(self, value: Value, bound: Bound) -> Value:
        """Whole numbers within a bound, which are noted to be marked if there are others."""
        if (value, bound) not in self.marked:
            text = f"(a >= 0 && a < {bound.rows} ? a : {'0' if bound.ignored is None else f'a == {bound.ignored} ? a : 0'})"
            within = self.whole_node("whole", [value], value.shape, text=text, shapes=(value.shape,))
            self.marked[value, bound] = within
        return self.marked[value, bound]

    def check_before(self, value: Value, bound: Bound, why: str) -> None:
        """Look at whole numbers before the step; refused, for this reason, if they are not known then, and in loops."""
        need(not self.inner and self._is_known_before(value), why)
        if (value, bound) not in self.checked:
            self.checked.append((value, bound))

    def divisor(self, value: Value) -> tuple[Value, tuple[Bound, ...]]:
        """Whole numbers that divide others: zeros are found before the step, as ids out of range are."""
        shapes, found = (
            (value.shape,),
            self.whole_node("whole", [value], value.shape, text="(a == 0 ? -1 : 0)", shapes=(value.shape,)),
        )
        if self.inner:
            self._marked(found, Bound(COMPUTED, 1))
        else:
            self.check_before(
                found, Bound(COMPUTED, 1), "a divisor that depends on floats, or on what the step changes"
            )
        return self.whole_node("whole", [value, found], value.shape, text="(b < 0 ? 1 : a)", shapes=shapes * 2), ()

    def _is_known_before(self, value: Value) -> bool:
        """Whether whole numbers are computed by few operations of what comes from outside, and is no state."""
        made, own = {node.output: node for node in self.nodes}, set(self.states.values())
        waiting, seen = [value], set[Value]()
        while waiting:
            value = waiting.pop()
            node = made.get(value)
            if value in seen or (node is None and value not in own):
                continue
            if node is None or node.kind not in BEFORE:
                return False
            seen.add(value)
            waiting += node.inputs
        return True

    def number(self, op: Operator, slot: str) -> Value:
        """A single number."""
        value = self.get(op, slot)
        need(prod(value.shape) == 1, f"{slot} of more than one number")
        return value

    def constant_of(self, name: str) -> Any:
        """The array of a constant; of floats that are a formula, if it is a single number."""
        value = self.values.get(name)
        if value in self.filled:
            return np.array([self.filled[value]], np.float32)
        return super().constant_of(name)

    def shape_of_name(self, name: str) -> Shape:
        """The shape of what a name stands for, which may be no more than that."""
        return self.shapes[name] if name in self.shapes else super().shape_of_name(name)

    def known_number(self, name: str) -> int | None:
        """A single whole number or boolean that is known when the step is built; None for any other value."""
        value = self.conditions.get(name) or self.values.get(name)
        if value is None or value.array is None or value.shape != (1,):
            return None
        return int(value.array[0]) if value.integer or name in self.conditions else None

    def let_number(self, name: str, number: int) -> None:
        """Let a name stand for a whole number."""
        self.forget([name])
        self.values[name] = Value(name, (1,), np.array([number], np.int64), integer=True)

    def let_boolean(self, name: str, holds: bool) -> None:
        """Let a name stand for a boolean."""
        self.forget([name])
        self.conditions[name] = Value(name, (1,), np.array([holds], np.float32))

    def state(self, op: Operator, slot: str, into: str) -> Value:
        """A state that an update changes in place: the same variable as its output."""
        value = self.get(op, slot)
        name = op.inputs[slot][0]
        need(op.outputs.get(into) == [name] and self.states.get(name) is value, f"{into} is not {slot} in place")
        need(name not in self.moved, f"{name} is changed twice")
        self.moved.add(name)
        return value

    def need_within(self, op: Operator, slot: str) -> None:
        """Refuse an operator if others outside the step use what it leaves in the variable of an input."""
        (name,) = op.inputs.get(slot) or [""]
        users = [each for each in op.block.ops if name in names_used(op.block.program, each)]
        need(bool(name) and all(id(each) in self.operators for each in users), f"{slot} is read outside the step")

    def draw(self, shape: Shape, seed: int, rate: float) -> Value:
        """1 where a float in [0, 1) is not below a rate, else 0; drawn in every run."""
        return self.node("draw", [self._drawing(shape, seed, True)], shape, rate=rate)

    def draw_kept(self, shape: Shape, seed: int, rate: float) -> Value:
        """1 where a double in [0, 1) is not below a rate, else 0; drawn in every run."""
        return self.node("draw_kept", [self._drawing(shape, seed, False)], shape, rate=rate)

    def _drawing(self, shape: Shape, seed: int, floats: bool) -> Value:
        state = Value(f"draw {len(self.draws)}", (6,), integer=True)
        self.draws.append(Draw(state, prod(shape), seed, floats))
        return state

    def sum_rows(self, parts: Sequence[Rows]) -> Rows:
        """The sum of gradients of rows: those of one behind those of the other."""
        pairs = [pair for each in parts for pair in zip(each.ids, each.grads, strict=True)]
        return Rows(*map(tuple, zip(*pairs, strict=True)))

    # ---------------------------------------------------------------- names
    def meanings(self, names: Iterable[str], tables: Sequence[str] = BY_NAME) -> Meanings:
        """What names stand for now."""
        found = {table: getattr(self, table) for table in tables}
        names = list(names)
        return {table: {name: by[name] for name in names if name in by} for table, by in found.items()}

    def forget(self, names: Iterable[str]) -> None:
        """Let names stand for nothing."""
        tables = [getattr(self, table) for table in BY_NAME]
        for name in names:
            for by in tables:
                by.pop(name, None)

    def recall(self, meanings: Meanings) -> None:
        """Let names stand for what they stood for."""
        for table, by in meanings.items():
            getattr(self, table).update(by)

    def item(self, name: str) -> Item:
        """The tensor of a name."""
        need(name in self.values, f"{name} has no value")
        return Item(self.values[name], self.origins.get(name, ()))

    def let(self, name: str, item: Item) -> None:
        """Let a name stand for a tensor."""
        self.forget([name])
        self.values[name] = item.value
        if item.origin:
            self.origins[name] = item.origin

    def lod(self, name: str) -> Lod:
        """The LoD of a name; of steps that are for any LoD, nothing."""
        return self.lod_from(self.origins.get(name, ()))

    def lod_from(self, origin: str | Lod) -> Lod:
        """The LoD of an input, or the LoD itself."""
        return self.known.get(origin, ()) if isinstance(origin, str) else origin

    # ---------------------------------------------------------------- nodes
    def put(self, op: Operator, slot: str, value: Value, number: int = 0) -> None:
        """Make a value the operator's output."""
        self.values[op.outputs[slot][number]] = value

    def formula(self, text: str, *inputs: Value, shape: Shape | None = None, shapes: Sequence[Shape] = ()) -> Value:
        """A formula of values a, b, c …, each broadcast to `shape`, by default the shape of the first.

        shapes: theirs as they are broadcast, of the rank of the result; by default their own.
        """
        whole = inputs[0].shape if shape is None else shape
        wide = tuple(shapes) or tuple(broadcast(whole, each.shape) for each in inputs)
        return self.node("formula", inputs, whole, text=text, shapes=wide, counts_columns=False)

    def by_column(self, text: str, *inputs: Value, shape: Shape, shapes: Sequence[Shape]) -> Value:
        """A formula that also reads the number of its column, after its inputs, which are broadcast from `shapes`."""
        return self.node("formula", inputs, shape, text=text, shapes=tuple(shapes), counts_columns=True)

    def view(self, value: Value, shape: Sequence[int]) -> Value:
        """The same elements in another shape."""
        return value if value.shape == tuple(shape) else self.rearranged("view", value, shape)

    def rearranged(self, kind: str, value: Value, shape: Sequence[int], **attrs: Any) -> Value:
        """Elements of a value, floats or whole numbers, elsewhere: the latter are looked at where they come from."""
        if not value.integer:
            return self.node(kind, [value], shape, **attrs)
        found = self.whole_node(kind, [value], shape, value.short, **attrs)
        self.viewed[found] = self.viewed.get(value, value)
        return found

    def transposed(self, value: Value, axes: Sequence[int]) -> Value:
        """The axes in another order."""
        return self.node("transpose", [value], [value.shape[axis] for axis in axes], axes=list(axes))

    def sums(self, value: Value, kept: Sequence[int]) -> Value:
        """The sums over all axes but those that are kept."""
        return self.node("sums", [value], [value.shape[axis] for axis in kept], kept=tuple(kept))

    def joins(self, value: Value, kept: Sequence[int], how: int) -> Value:
        """Extremes or products over all axes but those that are kept. how: as `reduce` has it."""
        return self.node("joins", [value], [value.shape[axis] for axis in kept], kept=tuple(kept), how=how)

    def summed_to(self, value: Value, wide: Shape, shape: Shape) -> Value:
        """The sums over the axes along which something of shape `wide` was broadcast, in that `shape`."""
        if value.shape == wide:
            return self.view(value, shape)
        kept = [axis for axis, size in enumerate(wide) if size == value.shape[axis] and size > 1]
        return self.view(self.sums(value, kept), shape)

    def zeros(self, shape: Shape) -> Value:
        """Zeros."""
        return self.node("formula", [], shape, text="0.0f", shapes=(), counts_columns=False)

    def part(self, value: Value, start: int, count: int) -> Value:
        """Some of the rows."""
        if (start, count) == (0, value.shape[0]):
            return value
        shape = (count, *value.shape[1:])
        return self.rearranged("slice", value, shape, starts=[start] + [0] * (len(shape) - 1), sizes=shape)

    def joined(self, values: Sequence[Value]) -> Value:
        """Rows of several values, one below the other."""
        need(len({value.shape[1:] for value in values}) == 1, "rows of different shapes")
        if len(values) == 1:
            return values[0]
        shape = (sum(value.shape[0] for value in values), *values[0].shape[1:])
        if not values[0].integer:
            return self.node("concat", values, shape, axis=0)
        found = self.whole_node("concat", values, shape, values[0].short, axis=0)
        wholes = {self.viewed.get(value, value) for value in values}
        if len(wholes) == 1:
            self.viewed[found] = wholes.pop()
        return found

    def added_up(self, values: Sequence[Value]) -> Value:
        """The sum of values of one shape, in their order."""
        need(len({value.shape for value in values}) == 1, "a sum of different shapes")
        total, rest = values[0], list(values[1:])
        while rest:
            some, rest = rest[:TERMS], rest[TERMS:]
            text = " + ".join("abcdefghi"[: 1 + len(some)])
            total = self.formula(text, total, *some)
        return total

    def total(self, items: Sequence[Item]) -> Item | None:
        """The sum of tensors, with the LoD of the first that has one; None of nothing."""
        if not items:
            return None
        return Item(
            self.added_up([item.value for item in items]), next((each.origin for each in items if each.origin), ())
        )

    def product(self, x: Value, y: Value, swap_y: bool = False) -> Value:
        """The product of two matrices, or of each pair of matrices of two batches."""
        columns = y.shape[-2] if swap_y else y.shape[-1]
        return self.node("matmul", [x, y], (*x.shape[:-1], columns), swap_y=swap_y)


def broadcast(whole: Shape, shape: Shape) -> Shape:
    """A shape as it is broadcast to another one, from the right; a single number fits all."""
    if prod(shape) == 1:
        return (1,) * len(whole)
    wide = aligned(whole, shape, -1)
    need(all(b in (1, a) for a, b in zip(whole, wide, strict=True)), "shapes that do not broadcast")
    return wide


@dataclass(frozen=True, slots=True)
class BuiltStep:
    """A training step as a graph: its values by name, what it changes, draws and checks.

    lods: for each result that has one, the input whose LoD it is, or the LoD. shapes: results that are no more than a shape.
    checked: whole numbers that are computed, and their bounds; marked: those of a loop.
    types: of results that have another one outside.
    """

    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    stores: Mapping[str, Value]
    updates: tuple[Update, ...]
    draws: tuple[Draw, ...]
    bounds: tuple[Bound, ...]
    lods: Mapping[str, str | Lod] = field(default_factory=dict)
    row_updates: tuple[RowUpdate, ...] = ()
    reductions: tuple[Value, ...] = ()
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    checked: tuple[tuple[Value, Bound], ...] = ()
    marked: tuple[tuple[Value, Bound], ...] = ()
    types: Mapping[str, Any] = field(default_factory=dict)
