"""Parameter servers as a run sees them: `ctx.runtime.remote` of operator kernels.

Connections belong to the process, one per server and trainer: a startup program and the training program of the same
trainer share them, whatever runs them, and a server is told once that the trainer has finished.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fluidtool import locks
from fluidtool.errors import FluidError
from fluidtool.ir import Operator, Program
from fluidtool.ops.context import RemoteVariable
from fluidtool.runtime.policy import Policy
from fluidtool.tensor import LoDTensor, SelectedRows

if TYPE_CHECKING:
    from fluidtool.distribute.communicator import Communicator
    from fluidtool.distribute.rpc.calls import Pending
    from fluidtool.distribute.rpc.client import Client

LAST_SECONDS = 5.0
Place = tuple[str, int]  # endpoint, trainer
Read = tuple[str, str]  # variable, the name that it is stored under


class Connections:
    """The open connections of this process."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._clients: dict[Place, Client] = {}
        self._parents: list[Any] = []  # connections of the parent process after a fork
        self.communicator: Communicator | None = None

    def trainers(self) -> set[int]:
        """The trainers that have connections."""
        return {trainer_id for _, trainer_id in self._clients}

    def to(self, endpoint: str, trainer_id: int) -> Client:
        """The connection of a trainer to a server, opened on first use."""
        from fluidtool.distribute.rpc.client import connect
        from fluidtool.distribute.rpc.options import TransportOptions

        with self._lock:
            client = self._clients.get((endpoint, trainer_id))
            if client is None:
                if not self._clients:
                    atexit.register(self.drain)
                client = connect(endpoint, trainer_id, TransportOptions.from_environment(os.environ))
                self._clients[endpoint, trainer_id] = client
            return client

    def open(self, places: set[Place]) -> list[Client]:
        """The open ones of these connections."""
        return [client for place, client in self._clients.items() if place in places]

    def complete(self, places: set[Place]) -> None:
        """Tell each server that the trainer has finished, unless it was told before; raises the first refusal."""
        failures = []
        for place in sorted(places):
            with self._lock:
                client = self._clients.pop(place, None)
            if client is None:
                continue
            try:
                client.complete()
            except FluidError as error:
                failures.append(error)
            finally:
                client.close()
        if failures:
            raise failures[0]

    def drop(self, places: set[Place]) -> None:
        """Close connections without notice, as when a process dies."""
        for place in places:
            with self._lock:
                client = self._clients.pop(place, None)
            if client is not None:
                client.close()

    def leave_to_parent(self) -> None:
        """In the child of a fork: open connections stay the parent's, whose threads serve them, and are not closed here."""
        for client in self._clients.values():
            client.leave_to_parent()
        self._parents += [self._clients, self.communicator]
        self._clients, self.communicator = {}, None

    def drain(self) -> None:
        """Before the process ends: let sent messages arrive, and close. Failures can no longer be reported."""
        for client in list(self._clients.values()):
            with suppress(FluidError):
                client.settle(LAST_SECONDS)
            client.close()


PROCESS = Connections()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=PROCESS.leave_to_parent)


class Servers:
    """What one executor sends to parameter servers; implements `fluidtool.ops.context.Remote`.

    sent, received: bytes of values so far; waited: seconds that were spent waiting for answers. For monitoring.
    """

    def __init__(self, policy: Policy, connections: Connections = PROCESS) -> None:
        self._policy, self._connections = policy, connections
        self.sent = self.received = 0
        self.waited = 0.0
        self._used: set[Place] = set()
        self._trainers: WeakKeyDictionary[Program, tuple[Any, int]] = WeakKeyDictionary()
        self._announced: dict[Place, dict[Read, Pending]] = {}
        self._numbered: list[Client] = []
        self._joined: list[Client] = []  # the servers of an elastic job, the one that keeps the roll first
        self._term = 0
        self._ahead: Pending | None = None  # the question who takes part in the next round

    def send(self, op: Operator, variables: Sequence[tuple[RemoteVariable, Any]]) -> None:
        """Send values; a refusal is raised by the next barrier or read."""
        for variable, value in variables:
            self._client(op, variable.endpoint).post_send(variable.name, value)
            self.sent += _bytes(value)

    def notify(self, op: Operator, variables: Sequence[tuple[RemoteVariable, Any]]) -> None:
        """Send the number of steps run."""
        for variable, value in variables:
            self._client(op, variable.endpoint).post_notify(variable.name, value)

    def hand_over(self, names: Sequence[str], values: Sequence[Any]) -> bool:
        """Hand variables to the communicator of this process, if it has one."""
        communicator = self._connections.communicator
        if communicator is not None:
            communicator.hand_over(names, values)
        return communicator is not None

    def hand_over_barrier(self) -> None:
        """Tell the communicator of this process, if it has one, that a step's variables are complete."""
        if self._connections.communicator is not None:
            self._connections.communicator.barrier()

    def send_barrier(self, op: Operator, endpoints: Sequence[str]) -> None:
        """Tell the servers that this step's values are all sent: where one keeps a roll, it alone, when the others have them."""
        if self._joined:
            self._say_sent(op, endpoints)
            return
        self._barrier(op, endpoints, lambda client: client.post_send_barrier())

    def fetch_barrier(self, op: Operator, endpoints: Sequence[str]) -> None:
        """Tell the servers that this step's values are all fetched."""
        self._announced.clear()
        if self._joined:
            for client in self._joined:
                client.end_step()
            return
        self._barrier(op, endpoints, lambda client: client.post_fetch_barrier())

    def announce(self, op: Operator, variables: Sequence[RemoteVariable]) -> None:
        """Request early what `receive` will need, so that the answers come together."""
        for variable in variables:
            client = self._client(op, variable.endpoint)
            asked = self._announced.setdefault((client.endpoint, client.trainer_id), {})
            asked[variable.name, variable.out_name] = client.post_get(variable.name, variable.out_name)
        self._ask_ahead()

    def receive(self, op: Operator, variables: Sequence[RemoteVariable], with_barrier: bool = True) -> list[Any]:
        """The values, in order."""
        waiting = []
        for variable in variables:
            client = self._client(op, variable.endpoint)
            asked = self._announced.get((client.endpoint, client.trainer_id), {}) if with_barrier else {}
            pending = asked.pop((variable.name, variable.out_name), None)
            if pending is None:
                pending = client.post_get(variable.name, variable.out_name, with_barrier=with_barrier)
            waiting.append((client, pending))
        if with_barrier:
            self._ask_ahead()
        return self._arrived(client.wait_value(pending) for client, pending in waiting)

    def _ask_ahead(self) -> None:
        """Behind the parameters of this step, ask who takes part in the next round, which is known when they are: one wait less."""
        if self._joined and self._ahead is None:
            self._ahead = self._joined[0].post_next_roll()
            self._joined[0].flush()

    def prefetch(self, op: Operator, requests: Sequence[tuple[RemoteVariable, Any]]) -> list[Any]:
        """The values that servers compute from ids, in order."""
        waiting = []
        for variable, ids in requests:
            client = self._client(op, variable.endpoint)
            waiting.append((client, client.post_prefetch(variable.name, ids, variable.out_name, variable.table_name)))
            self.sent += _bytes(ids)
        return self._arrived(client.wait_value(pending) for client, pending in waiting)

    def checkpoint(self, op: Operator, folders: Sequence[tuple[str, str]]) -> None:
        """Have each server save its part of a table."""
        clients = []
        for endpoint, folder in folders:
            clients.append(self._client(op, endpoint))
            clients[-1].post_checkpoint(folder)
        for client in clients:
            client.settle()

    def number_steps(self, op: Operator, endpoints: Sequence[str], trainer: int) -> int | None:
        """Of asynchronous servers: the last step of this trainer that all have. From now on `end_step` ends a step at each.

        None, and nothing is numbered, where one of them is Paddle's, or the program does not say which trainer's it is.
        """
        clients = [self._client(op, endpoint) for endpoint in endpoints]
        if not clients or not all(client.own and client.trainer_id == trainer for client in clients):
            return None
        self._numbered = clients
        return min(client.position() for client in clients)

    def begin_step(self, number: int) -> None:
        """What is sent next belongs to the step of this number, from 1."""
        for client in self._numbered:
            client.number_updates(number)

    def end_step(self) -> None:
        """The updates of a numbered step are all sent."""
        for client in self._numbered:
            client.post_fetch_barrier()

    def join(self, op: Operator, endpoints: Sequence[str]) -> int:
        """Take part in the rounds of an elastic job, whose first server keeps the roll. The round whose parameters come first.

        Raises Refused where a server is not fluidtool's, LeftOut.
        """
        from fluidtool.distribute.rpc.handler import Refused

        self.drop()
        clients = [self._client(op, endpoint) for endpoint in endpoints]
        strange = next((client for client in clients if not client.own), None)
        if strange is not None:
            raise Refused(
                f"the server at {strange.endpoint} is real Paddle's, whose protocol has no way to join or leave: it cannot "
                "serve an elastic job; launch it without --elastic"
            )
        clients[0].begin(self._term, 0)
        self._term, number = clients[0].join()
        for client in clients:
            client.begin(self._term, number)
        self._joined = clients
        return number

    def roll(self) -> list[int]:
        """The trainers of this step's round; waits until it is open. Raises LeftOut."""
        begin = perf_counter()
        ahead, self._ahead = self._ahead, None
        first = self._joined[0]
        found = ([] if ahead is None else first.next_roll(ahead)) or first.roll()
        self.waited += perf_counter() - begin
        return found

    def leave(self) -> bool:
        """Tell the servers, or the one that keeps the roll, that this trainer takes part no more; whether it has to make one more
        step.
        """
        return any([client.leave() for client in self._joined[:1] or self._numbered])

    def _say_sent(self, op: Operator, endpoints: Sequence[str]) -> None:
        begin = perf_counter()
        others = [self._client(op, endpoint) for endpoint in endpoints if endpoint != self._joined[0].endpoint]
        for client in others:
            if client.is_replicated:  # both copies must have it
                client.post_send_barrier()
            client.flush()
        for client in others:
            client.settle()
        self._joined[0].post_send_barrier()
        self._joined[0].flush()
        self.waited += perf_counter() - begin

    def flush(self) -> None:
        """Flush what was sent, without waiting."""
        for client in self._connections.open(self._used):
            client.flush()

    def settle(self) -> None:
        """Wait until the servers have taken everything that was sent; raises the first refusal."""
        for client in self._connections.open(self._used):
            client.settle()

    def complete(self) -> None:
        """Tell every server that this trainer has finished."""
        used, last = self._used, {(client.endpoint, client.trainer_id) for client in self._joined[:1]}
        self._forget()
        self._connections.complete(used - last)
        self._connections.complete(last)  # which then ends the job

    def drop(self) -> None:
        """Close every connection without notice."""
        used = self._used
        self._forget()
        self._connections.drop(used)

    def _forget(self) -> None:
        self._used, self._numbered, self._joined, self._ahead = set(), [], [], None
        self._announced.clear()

    def _arrived(self, values: Iterable[Any]) -> list[Any]:
        begin = perf_counter()
        found = list(values)
        self.waited += perf_counter() - begin
        self.received += sum(map(_bytes, found))
        return found

    def _barrier(self, op: Operator, endpoints: Sequence[str], post: Callable[[Client], None]) -> None:
        clients = [self._client(op, endpoint) for endpoint in endpoints]
        for client in clients:
            post(client)
        begin = perf_counter()
        for client in clients:
            if not client.streaming:
                client.settle()
        self.waited += perf_counter() - begin

    def _client(self, op: Operator, endpoint: str) -> Client:
        place = self._policy.endpoint(endpoint, op.type), self._trainer(op)
        self._used.add(place)
        return self._connections.to(*place)

    def _trainer(self, op: Operator) -> int:
        """The trainer that a program belongs to: `send` has 0 or no number, but an operator beside it has the number."""
        program = op.block.program
        known = self._trainers.get(program)
        if known is None or known[0] != program.mutation:
            ops = program.global_block().ops
            known = program.mutation, max((int(each.get_attr("trainer_id", 0) or 0) for each in ops), default=0)
            self._trainers[program] = known
        return known[1]


def _bytes(value: Any) -> int:
    """The bytes of a value's elements, and of the row numbers of sparse values."""
    if isinstance(value, SelectedRows):
        return int(value.value.nbytes) + 8 * len(value.row_ids)
    array = value.array if isinstance(value, LoDTensor) else None
    return 0 if array is None else int(array.nbytes)
