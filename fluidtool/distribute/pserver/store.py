"""A server's variables as trainers see them: values by name, rows by ids, the table that is saved on demand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from fluidtool.distribute.pserver.blocks import BoundRequest, Locks, RLock
from fluidtool.distribute.pserver.description import NONE, ServerDescription
from fluidtool.distribute.pserver.expected import expected_of
from fluidtool.distribute.rpc.handler import Message, NotFound, Refused, Value
from fluidtool.io.parameters import NOT_SAVED
from fluidtool.ops.context import OpContext
from fluidtool.tensor import LoDTensor, SelectedRows

TABLE_PATH = "kLookupTablePath"
COUNTER = "@LR_DECAY_COUNTER@"
SHOWN = 8
BACKUP = re.compile(r"(.+)\.trainer_\d+_bak")


class Store:
    """Reads what the server keeps. Arrays are handed out as they are, not copied: an update leaves one alone that is out."""

    def __init__(self, context: OpContext, description: ServerDescription, locks: Locks) -> None:
        self._context, self._description, self.locks = context, description, locks
        self._variables = context.op.block.program.global_block().vars
        self._known_locks: dict[str, RLock] = {}  # of the program's variables, whose places last as long as the server
        self._holders: dict[str, Any] = {}
        self._look_ups = {
            name: BoundRequest(context, index, name, locks) for name, index in description.prefetch_blocks.items()
        }
        schedule = _schedule_block(description)
        self._schedule = None if schedule == NONE else context.bind_block(schedule, context.scope)
        has_table = description.checkpoint_block != NONE
        self._saving = context.bind_block(description.checkpoint_block, context.scope) if has_table else None

    # -- values
    def value(self, name: str) -> Value:
        """The value of a variable, on the host; raises NotFound where there is none."""
        with self._lock_of(name):
            value = self._held(name)
            if isinstance(value, LoDTensor) and value.array is not None:
                return LoDTensor(self._context.host(value.array), value.offsets)
            if isinstance(value, SelectedRows) and value.tensor.array is not None:
                return SelectedRows(value.row_ids, value.table_height, self._context.host(value.value))
        raise NotFound(f"variable {name} holds no value on this server yet: run its startup program first")

    def check(self, name: str) -> None:
        """Raise NotFound where a variable has no value."""
        value = self._held(name)
        if (value.tensor if isinstance(value, SelectedRows) else value) is None:
            self.value(name)

    def _lock_of(self, name: str) -> RLock:
        found = self._known_locks.get(name)
        if found is None:
            found = self.locks.of(name)
            if name in self._variables:
                self._known_locks[name] = found
        return found

    def _held(self, name: str) -> Any:
        holder = self._holders.get(name)
        if holder is not None:
            return holder.value
        holder = self._context.scope.find_var(name)
        if holder is not None and name in self._variables:
            self._holders[name] = holder
        if holder is None:
            known = [each for each, variable in self._variables.items() if variable.persistable]
            shown = ", ".join(known[:SHOWN]) + (" …" if len(known) > SHOWN else "")
            raise NotFound(
                f"the server at {self._description.endpoint} keeps no variable {name}; it keeps {shown or 'none'}"
            )
        return holder.value

    def declares(self, name: str) -> bool:
        """Whether the program has a variable of this name."""
        return name in self._variables

    def put(self, name: str, value: Value) -> None:
        """Give a variable its value, on this server's device."""
        holder = self._context.scope.find_var(name) or self._context.scope.root().var(name)
        holder.value = self.on_device(value)

    def on_device(self, value: Value) -> Value:
        """A value that came from a trainer, where this server computes (no copy on the CPU)."""
        if isinstance(value, SelectedRows):
            return SelectedRows(value.row_ids, value.table_height, self._context.array(value.value))
        array = self._context.array(value.array)
        return value if array is value.array else LoDTensor(array, value.offsets)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Nothing is updated until the block ends."""
        with ExitStack() as held:
            for lock in self.locks.all():
                held.enter_context(lock)
            yield

    def kept(self) -> dict[str, Value]:
        """Everything that a restart needs, as it is at one moment: what lasts and holds a value, gradients left out."""
        with self.unchanged():
            return {
                name: self.value(name)
                for name, variable in self._variables.items()
                if variable.persistable and variable.type not in NOT_SAVED and self._is_kept(name)
            }

    def _is_kept(self, name: str) -> bool:
        holder = self._context.scope.find_var(name)
        return name not in self._description.gradient_blocks and holder is not None and holder.is_initialized()

    # -- tables
    def look_up(self, request: Message) -> Value:
        """The rows that ids name: of a slice (`table_name`), or by the block that is for this request's name."""
        ids = request.value
        if not isinstance(ids, LoDTensor) or ids.array is None or ids.array.dtype.kind not in "iu":
            raise Refused(f"a request for rows must contain ids (int64), found {type(ids).__name__}")
        if request.table_name:
            return self._rows(request.table_name, ids)
        block = self._look_ups.get(request.name)
        if block is None:
            known = ", ".join(self._look_ups) or "none"
            raise NotFound(f"this server does not look up rows of {request.name}, only of {known}")
        found = block.run(self.on_device(ids), answer=request.out_name)
        if not isinstance(found, LoDTensor):
            raise NotFound(f"looking up {request.name} does not compute a variable {request.out_name}")
        return LoDTensor(self._context.host(found.array), found.offsets)

    def _rows(self, name: str, ids: LoDTensor) -> LoDTensor:
        table, wanted = self._held(name), ids.numpy().reshape(-1)
        if not isinstance(table, LoDTensor) or table.array is None:
            raise NotFound(f"{name} is not a table with values on this server")
        height = len(table.array)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < height):
            outside = wanted[(wanted < 0) | (wanted >= height)][0]
            raise Refused(f"id {int(outside)} is not a row of {name}, which has {height} on this server")
        with self.locks.of(name):
            return LoDTensor(self._context.host(table.array[self._context.array(wanted)]))

    def save_table(self, folder: str) -> None:
        """Save the lookup table as `folder` says; raises Refused where the program has none."""
        if self._saving is None:
            raise Refused("this server was asked to save a lookup table, but its program has none (checkpint_block_id)")
        with self.locks.of(TABLE_PATH):
            self._context.scope.root().var(TABLE_PATH).value = folder
            self._saving.run()

    # -- asynchronous jobs
    def start_asynchronous(self) -> None:
        """Compute learning rates, which come before any gradient, and let delay compensation start from what is here."""
        self.run_schedule()
        for name in self._variables:
            backup = BACKUP.fullmatch(name)
            if backup is not None and self._held(name) is None and self.declares(backup[1]):
                value = self.value(backup[1])
                assert isinstance(value, LoDTensor)
                self.put(name, LoDTensor(value.array, value.offsets))

    def run_schedule(self) -> None:
        """Compute learning rates."""
        if self._schedule is not None:
            with self.locks.of(COUNTER), np.errstate(all="ignore"):
                self._schedule.run()

    def count_steps(self, message: Message) -> None:
        """A trainer's steps since the last time: add them to its counter and compute learning rates anew."""
        if COUNTER not in message.name or self._schedule is None:
            raise Refused(f"this server ignores {message.name}: its program has no decaying learning rate")
        variable = self._variables.get(message.name)
        if variable is None:
            raise NotFound(f"this server has no counter {message.name}")
        steps = expected_of(variable).check(message)
        assert isinstance(steps, LoDTensor)
        with self.locks.of(COUNTER), np.errstate(all="ignore"):
            counter = self.value(message.name)
            assert isinstance(counter, LoDTensor)
            self.put(message.name, LoDTensor(counter.numpy() + steps.numpy()))
            assert self._schedule is not None
            self._schedule.run()


def _schedule_block(description: ServerDescription) -> int:
    """The block that computes learning rates; programs from before Fluid 1.6 do not say: it is the first, if no gradient's."""
    if description.schedule_block != NONE:
        return description.schedule_block
    is_first = 1 in description.optimize_blocks and 1 not in description.gradient_blocks.values()
    return 1 if is_first and not description.is_sync else NONE
