"""The blocks of a server's program: what each reads from trainers, and running them, bound once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any

import numpy as np

from fluidtool.distribute.pserver.description import ServerDescription
from fluidtool.distribute.pserver.expected import Expected, expected_of
from fluidtool.distribute.pserver.updates import update_in_place
from fluidtool.distribute.rpc.handler import Value
from fluidtool.ir import Block, Program
from fluidtool.ops.context import BoundBlock, OpContext
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope, ScopeVariable
from fluidtool.tensor import LoDTensor, SelectedRows

WORTH_A_THREAD = 1 << 18  # elements that a group of blocks updates
TABLE_SLOTS = ("Param", "W")
RLock = AbstractContextManager[Any]


def reads(block: Block) -> list[str]:
    """What a block reads from outside, in order of first use."""
    found: dict[str, None] = {}
    written: set[str] = set()
    for op in block.ops:
        found |= dict.fromkeys(name for name in op.input_arg_names if name not in written)
        written.update(op.output_arg_names)
    return list(found)


def writes(block: Block) -> set[str]:
    """What a block writes."""
    return {name for op in block.ops for name in op.output_arg_names}


def contributions(program: Program, description: ServerDescription) -> dict[int, list[Expected]]:
    """What trainers send in a synchronous job, by the block that it is for.

    That is what the server's operator lists and, for tables, what a block reads that neither lasts nor is computed here.
    """
    blocks = [program.block(index) for index in description.optimize_blocks]
    computed = {name for block in blocks for name in writes(block)} - {*description.inputs}
    variables = program.global_block().vars

    def is_sent(name: str) -> bool:
        if name in description.inputs:
            return name in variables
        return name in variables and not variables[name].persistable and name not in computed

    return {block.idx: [expected_of(variables[name]) for name in reads(block) if is_sent(name)] for block in blocks}


def groups(program: Program, indexes: Iterable[int]) -> list[list[int]]:
    """Neighboring blocks with one parent, which may run at the same time; a new parent waits for those before."""
    return [list(group) for _, group in groupby(indexes, lambda index: program.block(index).parent_idx)]


class UpdateBlocks:
    """The optimize blocks of a synchronous server: one run of them is the update of a round."""

    def __init__(self, context: OpContext, description: ServerDescription, locks: Locks) -> None:
        program = context.op.block.program
        self.expected: dict[str, Expected] = {}
        self._blocks: list[list[_Update]] = []
        parts = contributions(program, description)
        for group in groups(program, description.optimize_blocks):
            self._blocks.append([_Update.bound_to(context, index, parts[index], locks) for index in group])
        for block in parts.values():
            self.expected |= {each.name: each for each in block}
        self._pool: ThreadPoolExecutor | None = None
        self._threads = min(os.cpu_count() or 1, max(len(group) for group in self._blocks))

    def run(self, received: Mapping[str, Value]) -> None:
        """Update with what was received; a block for which nothing came is left out, a missing part counts nothing."""
        for group in self._blocks:
            ready = [block for block in group if block.fill(received)]
            try:
                self._run(ready)
            finally:
                for block in ready:
                    block.clear()

    def _run(self, blocks: Sequence[_Update]) -> None:
        if self._threads == 1 or len(blocks) == 1 or sum(block.size for block in blocks) < WORTH_A_THREAD:
            for block in blocks:
                block.run()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "fluidtool-update")
        largest_first = sorted(blocks, key=lambda block: -block.size)
        for done in [self._pool.submit(block.run) for block in largest_first]:
            done.result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


@dataclass(frozen=True, slots=True)
class _Update:
    """One optimize block, bound."""

    parts: tuple[tuple[Expected, ScopeVariable], ...]
    bound: BoundBlock
    lock: RLock

    @classmethod
    def bound_to(cls, context: OpContext, index: int, parts: Iterable[Expected], locks: Locks) -> _Update:
        """Bind a block and look up the variables that trainers fill."""
        scope, lock = context.scope, locks.of_block(context.op.block.program.block(index))
        bound = context.bind_block(index, scope)
        update_in_place(bound)
        return cls(tuple((part, scope.find_var(part.name) or scope.var(part.name)) for part in parts), bound, lock)

    @property
    def size(self) -> int:
        """The number of elements that were received for it."""
        return sum(numbers_of(holder.value) for _, holder in self.parts)

    def fill(self, received: Mapping[str, Value]) -> bool:
        """Take what was received; whether there is anything to do."""
        if self.parts and not any(holds_numbers(received.get(part.name)) for part, _ in self.parts):
            return False
        for part, holder in self.parts:
            holder.value = received[part.name] if part.name in received else part.nothing()
        return True

    def run(self) -> None:
        """Run the block."""
        with self.lock, np.errstate(all="ignore"):
            self.bound.run()

    def clear(self) -> None:
        """Let what was received go."""
        for _, holder in self.parts:
            holder.value = None


def numbers_of(value: Value | None) -> int:
    """How many numbers a contribution has."""
    tensor = value.tensor if isinstance(value, SelectedRows) else value
    return 0 if tensor is None or tensor.array is None else int(tensor.array.size)


def holds_numbers(value: Value | None) -> bool:
    """Whether a contribution changes anything: rows may be none."""
    return value is not None and not (isinstance(value, SelectedRows) and not len(value.row_ids))


class Locks:
    """A lock for each parameter and what is updated with it: updates of one parameter wait for one another, and a thread that
    is handed a value takes it between two of them.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, RLock] = {}

    def of(self, name: str) -> RLock:
        """The lock of a variable."""
        found = self._locks.get(name)
        if found is not None:
            return found
        with self._guard:
            return self._locks.setdefault(name, threading.RLock())

    def of_block(self, block: Block) -> RLock:
        """The lock of what a block updates or looks up."""
        lock = self.of(table_of(block))
        with self._guard:
            for name in writes(block):
                if is_kept(block, name):
                    self._locks.setdefault(name, lock)
        return lock

    def all(self) -> list[RLock]:
        """Every lock there is, in the order in which to take them."""
        with self._guard:
            return list(dict.fromkeys(self._locks.values()))


def table_of(block: Block) -> str:
    """The parameter that a block updates or looks up; "" where it is neither."""
    for op in block.ops:
        for slot in TABLE_SLOTS:
            if op.input(slot):
                return op.input(slot)[0]
    kept = {name for name in writes(block) if is_kept(block, name)}
    return next((name for name in reads(block) if name in kept), "")


def is_kept(block: Block, name: str) -> bool:
    """Whether a variable outlives a run."""
    variable = block.find_var_recursive(name)
    return variable is not None and variable.persistable


class BoundRequest:
    """A block that one value is put into at a time: the update for a gradient, the look-up of ids.

    The value and the temporaries have a scope of their own; requests for one parameter wait for one another.
    """

    def __init__(self, context: OpContext, index: int, name: str, locks: Locks, trainer: str = "") -> None:
        block = context.op.block.program.block(index)
        self.scope: Scope = context.scope.new_scope()
        self.lock = locks.of_block(block)
        self._value = self.scope.var(name)
        self._trainer = self.scope.var(trainer) if trainer else None
        self._bound = context.bind_block(index, self.scope)
        update_in_place(self._bound)

    def run(self, value: Any, trainer_id: Any = None, answer: str = "") -> Any:
        """Run the block on a value; the value of variable `answer` afterwards."""
        with self.lock, np.errstate(all="ignore"):
            self._value.value = value
            if self._trainer is not None:
                self._trainer.value = trainer_id
            try:
                self._bound.run()
                return detached(self.scope.find_var(answer)) if answer else None
            finally:
                self._value.value = None


def detached(variable: ScopeVariable | None) -> Any:
    """The value of a variable as it is now, whatever is put into the variable later."""
    value = None if variable is None else variable.value
    return LoDTensor(value.array, value.offsets) if isinstance(value, LoDTensor) else value
