"""The asynchronous servers: every gradient is applied as it comes, every parameter given as it stands.

Half-async servers do the same: what is half about it happens in the trainers. Geo servers are sent changes of parameters
instead of gradients, and tell which rows changed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fluidtool.distribute.delay_compensation import TRAINER_ID
from fluidtool.distribute.pserver.attendance import OpenRoster
from fluidtool.distribute.pserver.blocks import BoundRequest, Locks
from fluidtool.distribute.pserver.description import ServerDescription
from fluidtool.distribute.pserver.expected import Expected, expected_of
from fluidtool.distribute.pserver.ledger import Ledger
from fluidtool.distribute.pserver.limits import Limits
from fluidtool.distribute.pserver.roster import Roster
from fluidtool.distribute.pserver.server import POLL, ParameterServer
from fluidtool.distribute.pserver.store import COUNTER, Store
from fluidtool.distribute.pserver.updated_rows import UpdatedRows
from fluidtool.distribute.rpc.handler import Barrier, Call, Message, NotFound, Refused, Value
from fluidtool.distribute.rpc.methods import LEAVE, POSITION
from fluidtool.distribute.settings import DistributedMode
from fluidtool.ops.context import OpContext
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor, SelectedRows

PART = "@PIECE"
PART_SUFFIX = re.compile(rf"{PART}@?\d+$")


@dataclass(frozen=True, slots=True)
class GradientBlock:
    """What is done with one gradient. rows: of a geo server's table, which rows changed."""

    expected: Expected
    request: BoundRequest
    rows: UpdatedRows | None = None


def gradient_blocks(
    context: OpContext, description: ServerDescription, locks: Locks, *, resumed: bool = False
) -> dict[str, GradientBlock]:
    """Bind the block of every gradient."""
    variables = context.op.block.program.global_block().vars
    found = {}
    for name, index in description.gradient_blocks.items():
        trainer = TRAINER_ID if description.dc_asgd else ""
        expected, rows = expected_of(variables[name]), None
        if description.mode == DistributedMode.GEO and name in description.tables:
            # What others changed before a restart is not known any more: then every row is news.
            rows = UpdatedRows(expected.shape[0], description.trainers, all_new=resumed)
        found[name] = GradientBlock(expected, BoundRequest(context, index, name, locks, trainer), rows)
    return found


class AsynchronousServer(ParameterServer):
    """Async, half-async and geo, as Paddle 1.8.5 serves them. Two updates of one parameter wait for each other.

    A trainer that numbers its steps (from 1) ends each with a fetch barrier; an update of such a step counts once, whatever
    is restarted. What others send (Paddle's trainers, scripts) counts as often as it comes.
    """

    def __init__(
        self,
        store: Store,
        roster: Roster,
        limits: Limits,
        description: ServerDescription,
        blocks: Mapping[str, GradientBlock],
        *,
        first_step: int = 0,
        ledger: Ledger | None = None,
        after_step: Callable[[int], None] = lambda number: None,
        at_end: Callable[[int], None] = lambda number: None,
    ) -> None:
        patient = replace(limits, vanished=limits.silence)  # a trainer that died may be started again, and join
        super().__init__(store, roster, patient, description.endpoint)
        self._description, self._blocks, self._after_step = description, blocks, after_step
        self._at_end = at_end
        self._tables = {parameter: gradient for gradient, parameter in description.tables.items()}
        self._first_step, self._ledger = first_step, ledger or Ledger()
        self._count, self._counting = first_step * max(len(blocks), 1), threading.Lock()

    @property
    def step(self) -> int:
        """How often each gradient was applied, on average."""
        return self._count // max(len(self._blocks), 1)

    # -- the main loop
    def _serve(self) -> None:
        step, going = self._first_step, True
        while going:
            with self._arrived:
                self._arrived.wait(POLL)
                going = not self._stopped and self.roster.live > 0
                if going:
                    self._check_limits()
            if self.step != step:
                step = self.step
                self._after_step(step)
        if not self.roster.live:
            self._at_end(self.step)

    def _state(self) -> str:
        return f"about {self.step} steps of all trainers are done"

    # -- calls
    def _forget(self, trainer: int, call: Call) -> None:
        """There is no round to leave it out of."""

    def send(self, message: Message, call: Call) -> None:
        """Apply a gradient, unless it was applied before."""
        trainer = self.roster.heard(call, message)
        self._check_running()
        name = PART_SUFFIX.sub("", message.name) if PART in message.name else message.name
        block = self._blocks.get(name)
        if block is None:
            raise NotFound(
                f"the server at {self.endpoint} takes no variable {name}; it takes {', '.join(self._blocks) or 'none'}"
            )
        value = block.expected.check(message)
        number = LoDTensor(np.array([trainer or 0], np.int64)) if self._description.dc_asgd else None
        with block.request.lock:
            if not self._is_new(message, call):
                return
            block.request.run(self.store.on_device(value), number)
            self._note(message, call)
        if block.rows is not None and isinstance(value, SelectedRows):
            block.rows.add(value.row_ids)
        with self._counting:
            self._count += 1

    def _is_new(self, message: Message, call: Call) -> bool:
        """Whether an update counts; the lock of what it changes is held until it is noted."""
        step = call.update_step
        return step is None or call.trainer_id is None or self._ledger.is_new(call.trainer_id, step, message.name)

    def _note(self, message: Message, call: Call) -> None:
        """An update that was new has ended well."""
        if call.trainer_id is not None and call.update_step is not None:
            self._ledger.note(call.trainer_id, message.name)

    def notify(self, message: Message, call: Call) -> None:
        """Count a trainer's steps, unless they were counted before."""
        with self.store.locks.of(COUNTER):
            if self._is_new(message, call):
                super().notify(message, call)
                self._note(message, call)

    def barrier(self, kind: Barrier, call: Call) -> None:
        """Nobody waits for anybody; a trainer that expects to is told that it has the wrong program. A fetch barrier ends a
        numbered step.
        """
        self.roster.heard(call)
        self._check_running()
        if kind is Barrier.SEND:
            raise Refused(
                f"the server at {self.endpoint} is asynchronous and takes no barriers, but {call.peer or 'a trainer'} runs a "
                "synchronous program; transpile all roles with the same sync_mode"
            )
        if call.trainer_id is not None and call.update_step is not None:
            self._ledger.end(call.trainer_id, call.update_step)

    def get_without_barrier(self, request: Message, call: Call) -> Value:
        """The value of a variable as it stands; of POSITION the last step of the trainer that the values contain."""
        if request.name == LEAVE and isinstance(self.roster, OpenRoster) and call.trainer_id is not None:
            self._check_running()
            self.roster.leave(call.trainer_id)
            return LoDTensor(np.empty(0, np.int64))
        if request.name != POSITION or call.trainer_id is None:
            return super().get_without_barrier(request, call)
        self.roster.heard(call, request)
        self._check_running()
        return LoDTensor(np.array([self._ledger.position(call.trainer_id)], np.int64))

    def get(self, request: Message, call: Call) -> Value:
        """A parameter as it stands; of a geo server's table the rows that changed since this trainer last asked."""
        trainer = self.roster.heard(call, request)
        self._check_running()
        block = self._blocks.get(self._tables.get(request.name, ""))
        if request.table_name and block is not None and block.rows is not None and trainer is not None:
            return self._changed(request.name, block.rows, trainer)
        value = self.store.value(request.name)
        if self._description.dc_asgd and trainer is not None:
            self._remember(request.name, value, trainer)
        return value

    def _changed(self, name: str, updated: UpdatedRows, trainer: int) -> SelectedRows:
        rows = updated.take(trainer)
        table = self.store.value(name)
        assert isinstance(table, LoDTensor)
        with self.store.locks.of(name):
            return SelectedRows(rows, len(table.array), table.array[rows])

    def _remember(self, name: str, value: Value, trainer: int) -> None:
        """What a trainer was given, for delay compensation: updates replace arrays, so this copies nothing."""
        backup = f"{name}.trainer_{trainer}_bak"
        if isinstance(value, LoDTensor) and self.store.declares(backup):
            self.store.put(backup, LoDTensor(value.array, value.offsets))
