"""Loops of the native engine: their instructions, made once, and runs of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fluidtool.ops.control_flow.compiled import LoopResult, LoopSpec
from fluidtool.ops.rnn.gru_cell import GruWeights
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import pack_matrix, run_call
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.loops.instructions import Instructions, NoInstructionError, Patch, instructions_of
from fluidtool.runtime.engines.native.loops.values import (
    ARRAY,
    WORDS,
    Array,
    Arrays,
    Memory,
    NoFormError,
    Record,
    RecordedStep,
    read_tensor,
    write_tensor,
)
from fluidtool.tensor import LoDRankTable, LoDTensor, LoDTensorArray

RUNNING, FINISHED, MORE_KEPT, MORE_BORROWED, MORE_STEPS, MORE_ITEMS, UNSUITABLE = range(7)  # as in src/loop_values.c
STATE, WANTED, STEP, NEXT, KEPT, KEPT_END, BORROWED, BORROWED_START, BORROWED_END = 0, 1, 2, 3, 4, 5, 6, 8, 10
MOST, CONDITION, STATE_WORDS = 12, 13, 14
LEAST_CHUNK, MOST_CHUNK = 1 << 18, 1 << 24  # bytes
ROOM = 32  # steps, and items of an array, that there is room for at first
STEPS_AT_ONCE = 1024  # of a loop that keeps no values: then Python may stop it (Ctrl-C)
OUTSIDE = "outside "  # before the name of a variable that steps know by another name, too


class NativeLoop:
    """A loop, compiled: `run` runs it."""

    __slots__ = ("_bytes", "_code", "_instructions", "_library", "_local", "_spec", "_written")

    def __init__(self, spec: LoopSpec, instructions: Instructions, library: Library) -> None:
        self._spec, self._instructions, self._library = spec, instructions, library
        self._code = np.array(instructions.rows, np.int64)
        self._written = {name for op in spec.ops for name in op.output_arg_names if name in instructions.slots}
        self._local = {*spec.local, *(inner for _, inner in spec.links)}
        self._bytes = LEAST_CHUNK

    def run(self, find: Callable[[str], Any], steps: Sequence[Mapping[str, Any]] | None = None) -> LoopResult | None:
        """Run all steps; None if it has to run operator by operator: then nothing has changed.

        find: what a variable outside holds. steps: the values that each step begins with, of a loop that has a condition none.
        """
        try:
            return _Run(self, find, steps).result()
        except (NoFormError, MemoryError):  # whose message is the operator's
            return None


class _Run:
    """One run of a loop."""

    def __init__(self, loop: NativeLoop, find: Callable[[str], Any], steps: Sequence[Mapping[str, Any]] | None) -> None:
        self.loop, self.find, self.steps = loop, find, steps
        self.spec, self.instructions, self.library = loop._spec, loop._instructions, loop._library
        self.memory = Memory()
        self.asked = (-1, -1), 0  # where memory for what stays was last lacking, and how much there was then
        self.slots = self.instructions.slots
        self.values = np.zeros((len(self.slots), WORDS), np.int64)
        self.outer = np.zeros(len(self.slots), np.int64)
        self.packed: dict[tuple[str, str], Array] = {}
        self.totals = {name: self._zeros_like(like) for name, like in self.instructions.totals.items()}
        self.code = loop._code.copy()
        self.given: dict[str, LoDTensorArray | LoDTensor | None] = {}
        self.kept = self._rows_of_steps()
        self.steps_at_once = STEPS_AT_ONCE if self.kept is None else len(self.kept)
        self.arrays = self._outside()
        for patch in self.instructions.patches:
            self._apply(patch)

    # ---------------------------------------------------------------- what there is before
    def _rows_of_steps(self) -> Array | None:
        """The values of the steps: room for them, or those that they begin with."""
        if self.steps is None:
            return np.zeros((ROOM, len(self.slots), WORDS), np.int64) if self.spec.keeps else None
        rows = np.zeros((len(self.steps), len(self.slots), WORDS), np.int64)
        names = [name for name in self.slots if name in self.spec.given]
        first = self.steps[0]
        if isinstance(first, RecordedStep):
            record = first.record
            numbers = [step.number for step in self.steps if isinstance(step, RecordedStep) and step.record is record]
            if len(numbers) != len(self.steps):
                raise NoFormError
            self.memory.add_all(record.memory)
            changed = {name for step in self.steps if isinstance(step, RecordedStep) for name in step.changed}
            for name in names:
                slot = record.slots.get(name)
                if name in changed or slot is None:
                    self._write_given(rows, name)
                else:
                    rows[:, self.slots[name]] = record.rows[numbers, slot]
            return rows
        for name in names:
            self._write_given(rows, name)
        return rows

    def _write_given(self, rows: Array, name: str) -> None:
        assert self.steps is not None
        slot, last = self.slots[name], None
        for number, step in enumerate(self.steps):
            value = step.get(name)
            if value is not None and value is last:
                rows[number, slot] = rows[number - 1, slot]
            else:
                write_tensor(rows[number, slot], value, self.memory)
            last = value

    def _outside(self) -> Arrays:
        """Write the values of variables outside; the arrays among them."""
        arrays: list[LoDTensorArray] = []
        places: dict[int, int] = {}
        for name, slot in self.slots.items():
            if name in self.loop._local or name in self.spec.given:
                continue
            value = self.find(name.removeprefix(OUTSIDE))
            if value is self.spec.absent:
                if name in self.loop._written:
                    continue
                raise NoFormError
            self.outer[slot] = 1
            self.given[name] = value
            if isinstance(value, LoDTensorArray):
                if places.setdefault(id(value), slot) != slot:
                    raise NoFormError
                arrays.append(value)
                self.values[slot, ARRAY] = len(arrays)
            elif not isinstance(value, LoDRankTable):
                write_tensor(self.values[slot], value, self.memory)
        for name in self.instructions.matrices:
            place = self.slots.get(name)
            if place is not None and (not self.outer[place] or name in self.loop._written):
                raise NoFormError
        for name in self.spec.arrays:  # created by the first write
            place = self.slots.get(name)
            if place is not None and self.outer[place] and self.given[name] is None:
                arrays.append(LoDTensorArray())
                self.values[place, ARRAY] = len(arrays)
        for name in self.spec.gathered:
            arrays.append(LoDTensorArray())
            self.outer[self.slots[name]], self.values[self.slots[name], ARRAY] = 1, len(arrays)
        return Arrays(arrays, ROOM, self.memory)

    def _zeros_like(self, name: str) -> Array:
        value = self.find(name)
        if type(value) is not LoDTensor or type(value.array) is not np.ndarray or value.array.dtype != np.float32:
            raise NoFormError
        return np.zeros(value.array.shape, np.float32)

    def _apply(self, patch: Patch) -> None:
        """Set what is known only now."""
        row = self.code[patch.row]
        if patch.kind == "total":
            array = self.totals[patch.name]
            row[patch.word + 1] = array.size
        elif patch.kind == "lengths":
            table = self.find(patch.name)
            if not isinstance(table, LoDRankTable) or not table.ranked:
                raise NoFormError
            array = self.packed.setdefault(
                ("lengths", patch.name), np.array([length for _, length in table.ranked], np.int64)
            )
            row[patch.word + 1] = len(array)
        else:
            key = patch.kind, patch.name
            if key not in self.packed:
                self.packed[key] = self._packed(patch)
            array = self.packed[key]
        row[patch.word] = array.ctypes.data

    def _packed(self, patch: Patch) -> Array:
        value = self.find(patch.name)
        array = value.array if type(value) is LoDTensor else None
        if type(array) is not np.ndarray or array.ndim != 2 or array.dtype != np.float32 or not array.size:
            raise NoFormError
        kind, transposed = patch.kind.removesuffix(" transposed"), patch.kind.endswith("transposed")
        if kind in ("gates", "candidate"):
            if array.shape[1] != 3 * array.shape[0]:
                raise NoFormError
            weights = GruWeights.split(np.ascontiguousarray(array))
            array = weights.gates if kind == "gates" else weights.candidate
        return pack_matrix(self.library, np.ascontiguousarray(array), transposed)

    # ---------------------------------------------------------------- running
    def result(self) -> LoopResult | None:
        """What the loop leaves; None if it has to run operator by operator."""
        state = self.state = np.zeros(STATE_WORDS, np.int64)
        state[MOST] = -1 if self.steps is None else len(self.steps)
        state[CONDITION] = self.slots[self.spec.condition] if self.steps is None else 0
        for which in (0, 1):
            self._more_borrowed(which, LEAST_CHUNK)
        while True:
            run_call(self.library, self._call(), 1)
            if state[STATE] in (FINISHED, UNSUITABLE):
                return self._left() if state[STATE] == FINISHED else None
            self._provide(int(state[STATE]), int(state[WANTED]))

    def _call(self) -> abi.Loop[Array]:
        return abi.Loop(
            instructions=self.code, state=self.state, values=self.values, outer=self.outer, kept=self.kept,
            arrays=self.arrays.table, count=len(self.code), slot_count=len(self.slots),
            kept_steps=self.steps_at_once, array_count=len(self.arrays.table),
            keeps=int(self.spec.keeps), given=int(self.steps is not None),
        )  # fmt: skip

    def _provide(self, lacking: int, wanted: int) -> None:
        """Memory of the kind that the loop lacks."""
        if lacking == MORE_KEPT:
            place = int(self.state[STEP]), int(self.state[NEXT])
            if place == self.asked[0]:  # an instruction makes several values, and begins with the first again
                size = 2 * max(wanted, self.asked[1])
            else:
                size = max(wanted, self.loop._bytes)
            self.asked = place, size
            self.loop._bytes = min(2 * self.loop._bytes, MOST_CHUNK)
            chunk = np.empty(size, np.uint8)
            self.state[KEPT] = self.memory.add(chunk)
            self.state[KEPT_END] = self.state[KEPT] + size
        elif lacking == MORE_BORROWED:
            which = int(self.state[STEP]) % 2
            before = int(self.state[BORROWED_END + which] - self.state[BORROWED_START + which])
            self._more_borrowed(which, 2 * max(wanted, before))
        elif lacking == MORE_STEPS:
            if self.kept is not None:
                self.kept = np.concatenate([self.kept, np.zeros_like(self.kept)])
            self.steps_at_once = self.steps_at_once + STEPS_AT_ONCE if self.kept is None else len(self.kept)
        else:
            count, number = divmod(wanted, 1024)
            self.arrays.grow(number, count)

    def _more_borrowed(self, which: int, size: int) -> None:
        chunk = np.empty(size, np.uint8)
        start = self.memory.add(chunk)
        self.state[BORROWED + which] = self.state[BORROWED_START + which] = start
        self.state[BORROWED_END + which] = start + size

    # ---------------------------------------------------------------- what there is afterwards
    def _left(self) -> LoopResult:
        handed = {OUTSIDE + outer for _, outer in self.spec.handed}
        changed = {
            name.removeprefix(OUTSIDE): self._value(self.slots[name])
            for name in self.given
            if name in self.loop._written or name in handed
        }
        steps: list[RecordedStep] = []
        if self.kept is not None:
            names = {*self.spec.kept, *self.spec.remembered.intersection(self.loop._written)}
            slots = {name: self.slots[name] for name in names if name in self.slots}
            common = {
                name: LoDTensor(value.array, value.offsets)
                for name in self.spec.remembered.difference(self.loop._written)
                if type(value := self.find(name)) is LoDTensor
            }
            record = Record(slots, self.kept, common, self.memory)
            steps = [RecordedStep(record, number) for number in range(int(self.state[STEP]))]
        gathered = {name: self._value(self.slots[name]) for name in self.spec.gathered}
        return LoopResult(changed, steps, {**self.totals, **gathered})

    def _value(self, slot: int) -> Any:
        row = self.values[slot]
        return self.arrays.value(int(row[ARRAY]) - 1) if row[ARRAY] else read_tensor(row, self.memory)


class NativeLoops:
    """Compiles loops (ops/control_flow/compiled.py)."""

    __slots__ = ("_library",)

    def __init__(self, library: Library) -> None:
        self._library = library

    def compile(self, spec: LoopSpec) -> NativeLoop | None:
        """The loop; None if an operator has no instructions, or none has the condition: such a loop ends at once or never."""
        written = {name for op in spec.ops for name in op.output_arg_names}
        local = {*spec.local, *spec.given, *(inner for _, inner in spec.links)}
        staying = {name for name in written if name not in local and name not in spec.without}
        try:
            totals = instructions_of(spec.ops, (), spec.without).totals
            rows = {name for each in spec.without if each not in totals for name in spec.rows[each]}
            spec = replace(spec, kept={**spec.kept, **dict.fromkeys(rows, True)})
            kept = {name for name, whole in spec.kept.items() if whole}
            found = instructions_of(spec.ops, {*kept, *(staying if spec.keeps else ())}, spec.without, spec.gathered)
        except NoInstructionError:
            return None
        if spec.condition and spec.condition not in found.slots:
            return None
        before = [_hand_on(found, OUTSIDE + outer, inner, must=False) for outer, inner in spec.links]
        for inner, outer in spec.handed:
            found.add("hand_on", found.slot(inner), found.slot(OUTSIDE + outer), 1)
            found.add("carry_value", found.slot(OUTSIDE + outer))
        for name in found.slots:
            if name in spec.kept:
                found.add("keep_value" if spec.kept[name] else "hollow_value", found.slot(name))
            elif name in staying:
                found.add("keep_value" if spec.keeps else "carry_value", found.slot(name))
        found.rows = before + found.rows
        found.patches = [Patch(patch.row + len(before), patch.word, patch.kind, patch.name) for patch in found.patches]
        return NativeLoop(spec, found, self._library)


def _hand_on(to: Instructions, source: str, target: str, must: bool) -> list[int]:
    to.add("hand_on", to.slot(source), to.slot(target), int(must))
    return to.rows.pop()
