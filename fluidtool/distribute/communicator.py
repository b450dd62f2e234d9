"""How trainers talk to servers beside their steps: merged gradients (async, half-async); geo_communicator: how parameters changed.

A `send` operator of such a program hands its variables over to the communicator of its process instead of sending them.
Fields: Paddle 1.8.5 operators/distributed/communicator.cc.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fluidtool.distribute.rpc.client import Client
from fluidtool.distribute.rpc.handler import Gone
from fluidtool.errors import FluidError, ProgramError
from fluidtool.ir import Operator, Program
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor, SelectedRows

MERGED_AT_MOST = 20  # Paddle's communicator_max_merge_var_num and communicator_send_queue_size
Connect = Callable[[str], Client]


class Variables(Protocol):
    """A scope."""

    def find_var(self, name: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a variable: their names, servers and numbers of rows. counts: it is a number of steps, told to all.
    sums: merged by adding up, else by the mean.
    """

    names: tuple[str, ...]
    endpoints: tuple[str, ...]
    rows: tuple[int, ...]
    sums: bool = False
    counts: bool = False


class Communicator(Protocol):
    """What operators meet."""

    def hand_over(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Take the variables of a `send`; names are its send_varnames where these are more than its variables' shards."""

    def barrier(self) -> None:
        """A step's variables are all handed over."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Send what was handed over, and end; raises what went wrong."""


def sent_shards(program: Program) -> dict[str, Shards]:
    """What the `send` operators of a program hand over, by variable."""
    found = {}
    for op in program.global_block().ops:
        names = tuple(op.get_attr("send_varnames", ()) or ())
        if op.type == "send" and names and len(op.input("X")) == 1:
            counts = not op.get_attr("use_send_handler", True)
            sums = counts or bool(op.get_attr("merge_add", False))
            found[op.input("X")[0]] = Shards(names, _endpoints(op), _rows(op, "sections"), sums, counts)
    return found


def fetched_shards(program: Program) -> dict[str, Shards]:
    """What the `recv` operators of a program fetch, by variable."""
    found = {}
    for op in program.global_block().ops:
        if op.type == "recv":
            names = tuple(op.get_attr("recv_varnames", ()) or ()) or tuple(op.output("Out"))
            found[op.output("Out")[0]] = Shards(names, _endpoints(op), ())
    return found


def _endpoints(op: Operator) -> tuple[str, ...]:
    return tuple(op.get_attr("epmap", ()) or ())


def _rows(op: Operator, attribute: str) -> tuple[int, ...]:
    return tuple(int(rows) for rows in op.get_attr(attribute, ()) or ())


def merged(values: Sequence[Any], sums: bool) -> Any:
    """One gradient of several: their sum, or their mean. Rows stand one after the other, unmerged."""
    if len(values) == 1:
        return values[0]
    share = 1.0 if sums else 1.0 / len(values)
    if isinstance(values[0], SelectedRows):
        rows = np.concatenate([value.row_ids for value in values])
        array = np.concatenate([np.asarray(value.value) for value in values])
        return SelectedRows(rows, values[0].table_height, array if sums else array * array.dtype.type(share))
    total = np.asarray(values[0].array)
    for value in values[1:]:
        total = total + np.asarray(value.array)
    return LoDTensor(total if sums else total * total.dtype.type(share))


def cut(value: Any, shards: Shards) -> list[tuple[str, str, Any]]:
    """(endpoint, name, shard) of a value; shards of SelectedRows are numbered from their start, empty ones left out."""
    if shards.counts:
        return [(endpoint, name, value) for name in shards.names for endpoint in shards.endpoints]
    if len(shards.names) == 1:
        return [(shards.endpoints[0], shards.names[0], value)]
    found: list[tuple[str, str, Any]] = []
    start = 0
    for name, endpoint, length in zip(shards.names, shards.endpoints, shards.rows, strict=True):
        if isinstance(value, SelectedRows):
            here = np.flatnonzero((value.row_ids >= start) & (value.row_ids < start + length))
            if len(here):
                shard = SelectedRows(value.row_ids[here] - start, length, np.asarray(value.value)[here])
                found.append((endpoint, name, shard))
        else:
            found.append((endpoint, name, LoDTensor(value.array[start : start + length])))
        start += length
    return found


class Exchange:
    """Sends merged values and fetches parameters into a scope."""

    def __init__(
        self, sends: Mapping[str, Shards], fetches: Mapping[str, Shards], scope: Variables, connect: Connect
    ) -> None:
        self.sends, self.fetches, self.scope, self.connect = sends, fetches, scope, connect

    def send(self, gathered: Mapping[str, Sequence[Any]]) -> None:
        """Merge and send, and wait until it is taken."""
        clients = []
        for name, values in gathered.items():
            shards = self.sends[name]
            for endpoint, shard_name, shard in cut(merged(values, shards.sums), shards):
                client = self.connect(endpoint)
                (client.post_notify if shards.counts else client.post_send)(shard_name, shard)
                clients.append(client)
        for client in dict.fromkeys(clients):
            client.settle()

    def fetch(self) -> None:
        """Fetch every parameter."""
        waiting = []
        for name, shards in self.fetches.items():
            places = list(zip(shards.endpoints, shards.names, strict=True))
            waiting.append((name, [(client := self.connect(e), client.post_get(shard)) for e, shard in places]))
        for name, asked in waiting:
            values = [client.wait_value(pending) for client, pending in asked]
            variable = self.scope.find_var(name)
            if variable is None:
                raise ProgramError(
                    f"the communicator must fetch {name}, which is not in the scope; run the startup program first"
                )
            if len(values) == 1:
                variable.value = values[0]
            else:
                variable.value = LoDTensor(np.concatenate([array_of(value) for value in values]))


def array_of(value: Any) -> Any:
    """The array of a LoDTensor, or of the rows of SelectedRows."""
    return value.value if isinstance(value, SelectedRows) else value.array


class AsyncCommunicator:
    """A thread of its own merges what was handed over, sends it, and fetches; steps do not wait for it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._waiting: dict[str, deque[Any]] = {name: deque() for name in exchange.sends}
        self._changed = threading.Condition()
        self._running = False
        self._failure: FluidError | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._running = True
        self._thread = threading.Thread(target=self._run, name="communicator", daemon=True)
        self._thread.start()

    def hand_over(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Queue a value; waits while too many are queued. Raises what went wrong in the thread."""
        with self._changed:
            for name, value in zip(names, values, strict=True):
                queue = self._queue(name)
                while len(queue) >= MERGED_AT_MOST and self._running and self._failure is None:
                    self._changed.wait(1.0)
                self._check()
                queue.append(value)
            self._changed.notify_all()

    def barrier(self) -> None:
        """Nothing waits here."""

    def stop(self) -> None:
        """Send what is queued, fetch once more, and end the thread; raises what went wrong."""
        with self._changed:
            self._running = False
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def _queue(self, name: str) -> deque[Any]:
        if name not in self._waiting:
            raise ProgramError(
                f"{name} was passed to a communicator of {', '.join(self._waiting) or 'nothing'}; start one for the "
                f"program that is run"
            )
        return self._waiting[name]

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._running:
            raise Gone("the communicator was stopped; start it before the program runs")

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    while self._running and not any(self._waiting.values()):
                        self._changed.wait(1.0)
                    if not any(self._waiting.values()):
                        return
                    taken = {name: list(queue) for name, queue in self._waiting.items() if queue}
                    for queue in self._waiting.values():
                        queue.clear()
                    self._changed.notify_all()
                self._exchange.send(taken)
                self._exchange.fetch()
        except FluidError as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()


class HalfAsyncCommunicator:
    """At its barrier a trainer sends what its step handed over and fetches; it waits for no other trainer.

    synchronous: the servers' rounds are ended too (Paddle's SYNC mode).
    """

    def __init__(self, exchange: Exchange, synchronous: Sequence[str] = ()) -> None:
        self._exchange, self._servers = exchange, tuple(synchronous)
        self._gathered: dict[str, list[Any]] = {}

    def start(self) -> None:
        """There is nothing to start."""

    def hand_over(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Keep values for the barrier."""
        for name, value in zip(names, values, strict=True):
            if name not in self._exchange.sends:
                raise ProgramError(
                    f"{name} was passed to a communicator of another program; start one for this program"
                )
            self._gathered.setdefault(name, []).append(value)

    def barrier(self) -> None:
        """Send, end the round where there are rounds, and fetch."""
        gathered, self._gathered = self._gathered, {}
        clients = [self._exchange.connect(endpoint) for endpoint in self._servers]
        self._exchange.send(gathered)
        for client in clients:
            client.send_barrier()
        self._exchange.fetch()
        for client in clients:
            client.fetch_barrier()

    def stop(self) -> None:
        """Send what no barrier followed."""
        if self._gathered:
            self.barrier()
