"""Loops cut in parts: what steps do not hand on to each other runs for all steps together, before or behind the rest.

Of a decoder, for instance, only the states go from step to step. The scores of all words are computed behind the loop, by one
product of all states, and on the way back their gradients are computed before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import Any

from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.joining import joined
from fluidtool.ops.control_flow.scopes import empty
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor

Values = MutableMapping[str, Any]  # of the variables of a step, by name
BY_ROWS: Mapping[str, tuple[str, ...]] = {
    "assign": ("X",),
    "elementwise_add": ("X", "Y"),
    "elementwise_add_grad": ("X", "Y", "Out@GRAD"),
    "elementwise_mul": ("X", "Y"),
    "elementwise_sub": ("X", "Y"),
    "mul": ("X",),
    "mul_grad": ("X", "Out@GRAD"),
    "relu": ("X",),
    "relu_grad": ("Out", "Out@GRAD"),
    "scale": ("X",),
    "sigmoid": ("X",),
    "sigmoid_grad": ("Out", "Out@GRAD"),
    "softmax": ("X",),
    "softmax_grad": ("Out", "Out@GRAD"),
    "sum": ("X",),
    "tanh": ("X",),
    "tanh_grad": ("Out", "Out@GRAD"),
}
"""Operators whose rows depend on the same rows of these inputs only."""
SUMS: Mapping[str, str] = {"elementwise_add_grad": "Y@GRAD", "mul_grad": "Y@GRAD"}
"""Those of their outputs that are sums over the rows, if the Y that they are the gradient of is the same in all steps."""
BY_STEPS = frozenset({"read_from_array", "shrink_rnn_memory", "shrink_rnn_memory_grad", "write_to_array"})
"""Operators that may run for one step after the other, earlier or later than the rest of the steps."""


@dataclass(frozen=True, slots=True)
class LoopParts:
    """The operators of a block, in their order: those of `within` run step by step, the others before or behind all steps.

    counters: the variables outside that only `increment` changes, with the operators that do. spent: what `delete_var` would
    delete within a step, but operators before or behind all steps still read.
    """

    before: tuple[Operator, ...]
    within: tuple[Operator, ...]
    behind: tuple[Operator, ...]
    counters: Mapping[str, tuple[Operator, ...]]
    spent: frozenset[str] = frozenset()


def parts_of(
    ops: Sequence[Operator],
    local: Collection[str],
    *,
    kept: Collection[str] = (),
    sums: Collection[str] = (),
    may_precede: bool = False,
) -> LoopParts | None:
    """Cut the operators of a block whose steps begin without values of `local`; None if there is nothing to gain.

    kept: names of which each step begins with a value of its own. sums: names of which only the sum over all steps is
    wanted. may_precede: the number of steps is known beforehand.
    """
    if any(op.sub_blocks() or op.variable_attrs() for op in ops):
        return None
    deleted = deletions(ops, {*local, *kept})
    whole, ops = ops, [op for n, op in enumerate(ops) if n not in deleted]
    counters = _counters(ops, local)
    bound = _bound(ops, local, kept, counters, sums)
    above, below = _leads_to(ops, bound, counters), _leads_to(ops, bound, counters, backwards=True)
    within = {n for n in range(len(ops)) if n in bound or (n in above and (n in below or not may_precede))}
    before = tuple(op for n, op in enumerate(ops) if n not in within and n in above)
    behind = tuple(op for n, op in enumerate(ops) if n not in within and n not in above)
    if not any(op.type in BY_ROWS for op in (*before, *behind)):
        return None
    moved = {name for op in (*before, *behind) for name in (*op.input_arg_names, *op.output_arg_names)}
    spent = {op for op in deleted.values() if not moved.isdisjoint(op.input_arg_names)}
    staying = {*(ops[n] for n in within), *deleted.values()} - spent
    names = frozenset(name for op in spent for name in op.input_arg_names)
    return LoopParts(before, tuple(op for op in whole if op in staying), behind, counters, names)


def deletions(ops: Sequence[Operator], own: Collection[str]) -> dict[int, Operator]:
    """The `delete_var` operators of what is a step's own, and not used afterwards: no value depends on them."""
    found: dict[int, Operator] = {}
    later: set[str] = set()
    for n in range(len(ops) - 1, -1, -1):
        names = ops[n].input_arg_names
        if ops[n].type == "delete_var" and later.isdisjoint(names) and all(name in own for name in names):
            found[n] = ops[n]
        later.update(names, ops[n].output_arg_names)
    return found


def _counters(ops: Sequence[Operator], local: Collection[str]) -> dict[str, tuple[Operator, ...]]:
    """Names outside that only `increment` writes, in place."""
    writers: dict[str, list[Operator]] = {}
    for op in ops:
        for name in op.output_arg_names:
            writers.setdefault(name, []).append(op)
    return {
        name: tuple(found)
        for name, found in writers.items()
        if name not in local and all(op.type == "increment" and op.input("X") == [name] for op in found)
    }


def _bound(
    ops: Sequence[Operator],
    local: Collection[str],
    kept: Collection[str],
    counters: Collection[str],
    sums: Collection[str],
) -> set[int]:
    """The operators that must run in their step: they touch what steps hand on, or their kind is not known here."""
    reads = [op.input_arg_names for op in ops]
    writes = [op.output_arg_names for op in ops]
    read, written = (Counter(name for names in every for name in set(names)) for every in (reads, writes))
    early = {name for n, names in enumerate(reads) for name in names if any(name in later for later in writes[n:])}
    unsure = {name for name, count in written.items() if name not in counters and (count > 1 or name in early)}
    unsure.update(name for op in ops if op.type == "delete_var" for name in op.input_arg_names)
    handed_on = {name for name in written if name not in local and name not in counters}
    found = set()
    for n, op in enumerate(ops):
        touched = {*reads[n], *writes[n]}
        if op.type == "write_to_array":  # of an array that nothing else touches: its items have their numbers
            touched -= {name for name in op.output("Out") if written[name] == 1 and not read[name]}
        elif op.type not in BY_STEPS:
            unsure_here = touched & set(counters)
            if unsure_here or op.type not in BY_ROWS:
                found.add(n)
        same = op.type in SUMS and not any(name in local or name in kept for name in op.input("Y"))
        if same and any(read[name] or name not in sums for name in op.output(SUMS[op.type])):
            found.add(n)
        if touched & handed_on or touched & unsure or any(name in counters for name in writes[n]):
            found.add(n)
    return found


def _leads_to(
    ops: Sequence[Operator], goals: Collection[int], counters: Collection[str], *, backwards: bool = False
) -> set[int]:
    """The operators whose outputs lead to `goals`; or, backwards, those to which the outputs of goals lead.

    What counters hold is known without the operators that change them.
    """
    found = set(goals)
    names: set[str] = set()
    for n in range(len(ops)) if backwards else range(len(ops) - 1, -1, -1):
        here, there = ops[n].input_arg_names, ops[n].output_arg_names
        if not backwards:
            here, there = there, here
        if n in found or not names.isdisjoint(here):
            found.add(n)
            names.update(name for name in there if name not in counters)
    return found


def counted(ctx: OpContext, counters: Mapping[str, tuple[Operator, ...]]) -> dict[str, Any]:
    """What the counters hold now."""
    found = {}
    for name in counters:
        variable = ctx.scope.find_var(name)
        found[name] = None if variable is None or variable.value is None else variable.value.array
    return found


class Together:
    """Runs operators of a block for all steps.

    start: what the counters hold before the first step. given: values that are the same in all. backwards: the last comes first.
    """

    __slots__ = (
        "_backwards",
        "_block",
        "_counters",
        "_ctx",
        "_given",
        "_position",
        "_scope",
        "_start",
        "_without",
        "sums",
    )

    def __init__(
        self,
        ctx: OpContext,
        block: int,
        parts: LoopParts,
        start: Mapping[str, Any],
        given: Values | None = None,
        without: Collection[str] = (),
        backwards: bool = False,
    ) -> None:
        ops = ctx.op.block.program.block(block).ops
        self._ctx, self._block, self._without, self._backwards = ctx, block, without, backwards
        self._counters, self._start = parts.counters, start
        self._position = {id(op): n for n, op in enumerate(ops)}
        self._scope = ctx.scope.new_scope()
        self.sums: Values = {}
        self._given = given or {}
        for name, value in self._given.items():
            self._scope.var(name).value = value

    def run(self, ops: Sequence[Operator], steps: Sequence[Values]) -> None:
        """Run the operators, each for all steps, whose values they read and add theirs to; totals go into `sums`."""
        for op in ops if steps else ():
            own = [name for name in dict.fromkeys(op.input_arg_names) if differs(steps, name)]
            for name in op.input_arg_names:
                if name in steps[0]:
                    self._scope.var(name).value = steps[0][name]
                elif name in self._counters:
                    self._scope.var(name)
            bound = self._ctx.bind_block(self._block, self._scope, self._without, (op,))
            rows = _rows_of_steps(op, own, steps, self._scope)
            if rows is None:
                self._one_by_one(op, own, bound, steps)
            else:
                way = -1 if self._backwards else 1  # in the order in which rows may lie one below the other already
                self._at_once(op, own, rows[::way], bound, steps[::way])
            self._forget(op)

    def close(self) -> None:
        """Let go of the values."""
        empty(self._scope)
        self._ctx.scope.drop_kid(self._scope)

    def _at_once(
        self, op: Operator, own: Collection[str], rows: Sequence[int], bound: Any, steps: Sequence[Values]
    ) -> None:
        for name in own:
            self._scope.var(name).value = LoDTensor(joined(self._ctx, [step[name].array for step in steps]))
        bound.run()
        totals = op.output(SUMS[op.type]) if op.type in SUMS and set(own).isdisjoint(op.input("Y")) else []
        for name in self._written(op):
            value = self._scope.var(name).value
            if name in totals:
                self.sums[name] = value
                continue
            begin = 0
            for step, count in zip(steps, rows, strict=True):
                step[name] = LoDTensor(value.array[begin : begin + count])
                begin += count

    def _one_by_one(self, op: Operator, own: Collection[str], bound: Any, steps: Sequence[Values]) -> None:
        counts = [name for name in op.input_arg_names if name in self._counters and name not in steps[0]]
        written = self._written(op)
        for number, step in enumerate(steps):
            for name in own:
                self._scope.var(name).value = step[name]
            for name in counts:
                self._scope.var(name).value = self._count(name, number, op)
            bound.run()
            for name in written:
                variable = self._scope.var(name)
                step[name], variable.value = variable.value, None

    def _written(self, op: Operator) -> list[str]:
        """The outputs that are variables of the steps."""
        return [
            name
            for name in op.output_arg_names
            if name not in self._without and self._scope.find_local_var(name) is not None
        ]

    def _count(self, name: str, step: int, op: Operator) -> LoDTensor:
        """What a counter holds in a step where the operator reads it."""
        array = self._start[name]
        increments = self._counters[name]
        here = [one for one in increments if self._position[id(one)] < self._position[id(op)]]
        amount = step * sum(_amount(one) for one in increments) + sum(_amount(one) for one in here)
        return LoDTensor(array + array.dtype.type(amount))

    def _forget(self, op: Operator) -> None:
        for name in (*op.input_arg_names, *op.output_arg_names):
            variable = self._scope.find_local_var(name)
            if variable is not None and name not in self._given:
                variable.value = None


def _amount(op: Operator) -> float:
    return float(op.get_attr("step", 1.0))


def differs(steps: Sequence[Values], name: str) -> bool:
    """Whether the steps have values of their own by this name, not one for all."""
    if name not in steps[0]:
        return False
    arrays = [getattr(step.get(name), "array", None) for step in steps]
    return len(steps) < 2 or arrays[0] is None or any(array is not arrays[0] for array in arrays)


def _rows_of_steps(op: Operator, own: Sequence[str], steps: Sequence[Values], scope: Any) -> list[int] | None:
    """How many rows each step has, if the operator may compute on the rows of all steps at once; else None."""
    if op.type not in BY_ROWS or len(steps) < 2 or not own:
        return None
    found: list[list[int]] = []
    for name in own:
        values = [step[name] for step in steps]
        if not all(type(value) is LoDTensor and value.array is not None and not value.offsets for value in values):
            return None
        first = values[0].array
        if not first.ndim or any(v.array.shape[1:] != first.shape[1:] or v.array.dtype != first.dtype for v in values):
            return None
        found.append([len(value.array) for value in values])
    shapes = {name: _shape_of(steps[0][name] if name in own else scope.find_var(name)) for name in op.input_arg_names}
    return found[0] if all(rows == found[0] for rows in found) and _is_by_rows(op, own, shapes) else None


def _shape_of(holder: Any) -> tuple[int, ...]:
    value = getattr(holder, "value", holder)
    array = value.array if type(value) is LoDTensor else None
    return () if array is None else tuple(array.shape)


def _is_by_rows(op: Operator, own: Collection[str], shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether rows depend on the same rows only, given the shapes in a step and which names have values for each."""
    slots = BY_ROWS[op.type]
    varying = [name for slot in slots if slot != "Y" for name in op.input(slot)]
    outside = [name for slot in op.inputs if slot not in slots for name in op.input(slot)]
    if any(name not in own for name in varying) or any(name in own for name in outside):
        return False
    shape = shapes[varying[0]]
    if op.type.startswith("elementwise"):
        y, axis = op.input("Y")[0], int(op.get_attr("axis", -1))
        inner = len(shapes[y]) < len(shape) and axis in (-1, len(shape) - len(shapes[y]))
        return all(shapes[name] == shape for name in varying) and (shapes[y] == shape if y in own else inner)
    if op.type.startswith("softmax"):
        return len(shape) > 1 and int(op.get_attr("axis", -1)) not in (0, -len(shape))
    return op.type.startswith("mul") or all(shapes[name] == shape for name in varying)
