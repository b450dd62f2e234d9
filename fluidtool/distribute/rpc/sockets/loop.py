"""The loop that serves the sockets of a server: one thread for all of them.

It reads what has arrived, makes the calls of each client in their order, and sends the answers together. A call that must
wait for its round is made again when the handler says so; until then its connection is a few objects, and no thread. Calls
with long contents, and those that save, run on a few threads beside the loop, one for each connection at most.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fluidtool.distribute.metrics.exposition import Traffic
from fluidtool.distribute.rpc.handler import Handler, Refused, Waits
from fluidtool.distribute.rpc.options import HEADER_ROOM, TransportOptions
from fluidtool.distribute.rpc.presence import Presence, process_of
from fluidtool.distribute.rpc.sockets.connection import Asked, Client, Connection
from fluidtool.distribute.rpc.sockets.door import Door
from fluidtool.distribute.rpc.sockets.memory import Memory
from fluidtool.distribute.rpc.sockets.offers import WELCOME, Offer, tune
from fluidtool.distribute.rpc.sockets.packets import TAKEN, PacketReader, answer, packet
from fluidtool.distribute.rpc.sockets.space import Space
from fluidtool.distribute.rpc.statuses import INTERNAL, OK, status_of
from fluidtool.distribute.rpc.wire import Buffer
from fluidtool.errors import FluidError

SCRATCH = 64 << 10  # bytes that are received at a time
LONG = (
    1 << 20
)  # bytes of a content whose call runs beside the loop: a short update takes less than another thread needs to begin
MOST_CONNECTIONS = 4096
RECEIVED_AT_MOST = 32  # times in a row that one client's long content is received, before others have their turn
TICK = 0.5
SIGN = 5.0  # seconds without a byte after which a client that waits is told that the server is there
SIGN_OF_LIFE = packet(0, 0, OK, TAKEN, [])  # that all calls before the first one are taken: it says nothing else
LAST_SECONDS = 2.0  # that a client has to read why it was refused
KEPT_CLIENTS = 1 << 13
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Loop:
    """Serves sockets, from `start` to `stop`. lost: told of each trainer whose socket ended."""

    def __init__(
        self,
        endpoint: str,
        handler: Handler,
        options: TransportOptions,
        lost: Callable[[int], None] | None,
        traffic: Traffic | None,
        presence: Presence,
    ) -> None:
        self._handler, self._options, self._lost, self._traffic = handler, options, lost, traffic
        self._presence = presence
        self._selector = selectors.DefaultSelector()
        self.door = Door(endpoint, self._selector, self._let_in)
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._soon: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._scratch = memoryview(bytearray(SCRATCH))
        self._memory, self._space = Memory(), Space(options.caller_bytes, options.all_bytes)
        self._connections: dict[str, Connection] = {}  # by the client's name
        self._watched: dict[Connection, int] = {}  # what the selector looks for
        self._slow: dict[Connection, None] = {}  # within a packet, or with answers that are not taken
        self._waiting: dict[Connection, None] = {}  # for room
        self._done: OrderedDict[str, int] = OrderedDict()  # each client's last change that is taken
        self._after: dict[Connection, Connection] = {}  # which waits for a call of an older connection of its client
        self._stopping: float | None = None
        self._pool = ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix=f"calls {endpoint}")
        self._thread = threading.Thread(target=self._run, name=f"sockets {endpoint}", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._selector.register(self._woken, READ, self._drain)
        self.door.open()
        self._thread.start()

    def begin_to_stop(self, grace: float) -> None:
        """Take no more sockets, and let those that are there go on for `grace` seconds. Any thread may ask."""
        self._call_soon(partial(self._stop_in, grace))

    def stop(self) -> None:
        """After `begin_to_stop`: return when all sockets are closed."""
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def offer(self, trainer_id: int, client: str) -> Offer:
        """What a client needs for a socket. Any thread may ask."""
        return self.door.offer(trainer_id, client)

    # -- the thread
    def _run(self) -> None:
        last = time.monotonic()
        try:
            while not self._has_stopped():
                for key, events in self._selector.select(TICK):
                    key.data(events)
                while self._soon:
                    self._soon.popleft()()
                now = time.monotonic()
                if now - last >= TICK:
                    last = now
                    self._look_around(now)
        finally:
            for connection in list(self._watched):
                self._close(connection)
            self.door.close()
            self._selector.close()
            self._waker.close()
            self._woken.close()

    def _call_soon(self, what: Callable[[], None]) -> None:
        """Have the loop call something. Any thread may ask."""
        self._soon.append(what)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._waker.send(b"\0")
            except OSError:
                return  # it is woken already, or has ended

    def _drain(self, events: int) -> None:
        self._woken.recv(4096)
        self._is_woken = False  # what comes after this wakes it again; what came before is called next

    def _stop_in(self, grace: float) -> None:
        self._stopping = time.monotonic() + grace
        self.door.shut()

    def _has_stopped(self) -> bool:
        if self._stopping is None:
            return False
        return not self._watched or time.monotonic() > self._stopping

    def _look_around(self, now: float) -> None:
        """Once in a while: end what stands still."""
        self.door.look_around(now)
        for connection in [each for each in self._slow if now - each.last_seen > self._patience(each)]:
            self._close(connection)
        for connection in [each for each in self._watched if each.is_owing and now - each.last_seen > SIGN]:
            connection.answer(SIGN_OF_LIFE)
            self._settle(connection)
        stalled = self._space.stalled(now) if self._waiting else None
        if stalled is not None:
            self._close(stalled)

    def _patience(self, connection: Connection) -> float:
        return LAST_SECONDS if connection.is_shut else self._options.deadline

    # -- connections
    def _let_in(self, found: socket.socket, client: Client) -> bool:
        """A client has a socket now. One that it had before is closed: what it sent there and was not told of, it sends again."""
        older = self._connections.get(client.name)
        if len(self._watched) >= MOST_CONNECTIONS and older is None:
            return False
        reader = PacketReader(self._options.limits.message + HEADER_ROOM, self._memory)
        connection = Connection(found, client, reader)
        connection.again = partial(self._call_soon, partial(self._make_again, connection))
        reader.make_room = partial(self._make_room, connection)
        tune(connection.socket, min(self._options.silence, self._options.deadline))
        self._presence.begin(client.trainer_id, process_of(client.name))
        self._watched[connection] = READ
        self._selector.register(found, READ, partial(self._handle, connection))
        connection.answer([WELCOME])
        if older is not None:
            self._close(older)
            if older.is_busy:
                running = next((each for each, later in self._after.items() if later is older), older)
                self._after[running], connection.is_busy = connection, True
        self._connections[client.name] = connection
        connection.done = self._done.setdefault(client.name, 0)
        self._done.move_to_end(client.name)
        if len(self._done) > KEPT_CLIENTS:
            self._done.popitem(last=False)
        self._settle(connection)
        return True

    def _handle(self, connection: Connection, events: int) -> None:
        if events & READ:
            self._receive(connection)
        if not connection.is_closed:
            self._work(connection)

    def _receive(self, connection: Connection) -> None:
        try:
            for _ in range(RECEIVED_AT_MOST):
                self._receive_once(connection)
                if connection.has_ended or not connection.reader.is_long:
                    return
        except Refused as error:  # which is an OSError, too
            self._refuse(connection, 0, 0, error)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)
        except MemoryError as error:
            self._refuse(connection, 0, 0, error)

    def _receive_once(self, connection: Connection) -> None:
        reader = connection.reader
        target = self._scratch if connection.is_ending else reader.target(self._scratch)
        count = connection.socket.recv_into(target)
        connection.has_ended = not count
        if count and not connection.is_ending:
            connection.last_seen = time.monotonic()
            connection.arrived(reader.received(target, count))

    def _make_again(self, connection: Connection) -> None:
        """The handler says that the call that waits may be made."""
        connection.was_woken = connection.is_busy
        if connection.waits is not None:
            connection.waits = None
            self._work(connection)

    def _work(self, connection: Connection) -> None:
        """Make the calls that have arrived, until one must wait, and send what there is to say."""
        while True:
            self._make_calls(connection)
            self._settle(connection)
            if not (connection.may_answer and connection.has_more):
                return

    def _make_calls(self, connection: Connection) -> None:
        while connection.may_answer:
            asked = connection.asked
            if asked is None:
                try:
                    asked = connection.asked = connection.next(self._options.limits)
                except Exception as error:  # whatever was sent, it must not end the loop
                    self._refuse(connection, 0, 0, error)
                    return
                if asked is None:
                    return
            if asked.size >= LONG or asked.saves:
                self._make_beside(connection, asked)
                return
            self._ended(connection, asked, self._outcome(connection, asked))

    def _outcome(self, connection: Connection, asked: Asked) -> Any:
        """What comes of a call: a value, None for a change, Waits, or an error."""
        try:
            if asked.changes and asked.number <= connection.done:
                return None
            return asked.answer_by(self._handler, asked.message, connection.call(asked.step))
        except Exception as found:  # whatever it is, the peer must learn that its message was not taken
            return found

    def _make_beside(self, connection: Connection, asked: Asked) -> None:
        """Make a call on another thread."""
        connection.is_busy, connection.was_woken = True, False

        def run() -> None:
            outcome = self._outcome(connection, asked)
            self._call_soon(partial(self._made_beside, connection, asked, outcome))

        self._pool.submit(run)

    def _made_beside(self, connection: Connection, asked: Asked, outcome: Any) -> None:
        connection.is_busy = False
        later = self._after.pop(connection, None)
        self._ended(connection, asked, outcome)
        connection.was_woken = False
        for each in (connection, later):
            if each is not None and not each.is_closed:
                each.is_busy, each.done = False, self._done.get(each.client.name, 0)
                self._work(each)

    def _ended(self, connection: Connection, asked: Asked, outcome: Any) -> None:
        """Note what came of a call."""
        if type(outcome) is Waits:
            if connection.is_closed or connection.was_woken:
                outcome.give_up()
            else:
                connection.waits = outcome
            return
        connection.asked = None
        if asked.is_long and self._space.leave(connection) and self._waiting:
            self._soon.append(self._give_room)
        if isinstance(outcome, Exception):
            self._refuse(connection, asked.number, asked.step, outcome, goes_on=not asked.changes)
        elif asked.changes:
            self._note(connection, asked.number)
            connection.taken = asked.number, asked.step
            if self._traffic is not None:
                self._count(asked.size, ())
        else:
            self._reply(connection, asked, outcome)

    def _note(self, connection: Connection, number: int) -> None:
        """A change is taken, and not taken again. What the client knows of it, it says when it has another socket."""
        if number > connection.done:
            connection.done = self._done[connection.client.name] = number

    def _reply(self, connection: Connection, asked: Asked, value: Any) -> None:
        try:
            parts = answer(asked.number, asked.step, asked.pattern, asked.message.out_name, value)
        except FluidError as error:
            self._refuse(connection, asked.number, asked.step, error, goes_on=True)
            return
        connection.taken = None  # an answer tells of all changes before it
        connection.answer(parts)
        if self._traffic is not None:
            self._count(asked.size, parts)

    def _refuse(self, connection: Connection, number: int, step: int, error: Exception, goes_on: bool = False) -> None:
        """Tell of an error. Where a change was refused, nothing behind it (a barrier!) must count."""
        if connection.is_closed:
            return
        self._tell_taken(connection)
        known = isinstance(error, FluidError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        status = status_of(error) if isinstance(error, FluidError) else INTERNAL
        connection.answer(packet(number, step, status, 0, [text.encode()]))
        connection.is_ending = not goes_on

    def _tell_taken(self, connection: Connection) -> None:
        if connection.taken is not None:
            connection.answer(packet(*connection.taken, OK, TAKEN, []))
            connection.taken = None

    def _count(self, received: int, parts: list[Buffer] | tuple[()]) -> None:
        assert self._traffic is not None
        self._traffic.received.add(received)
        self._traffic.sent.add(sum(map(len, parts)))

    def _settle(self, connection: Connection) -> None:
        """Send, close what has ended, and look for what is to come."""
        if connection.is_closed:
            return
        if not (connection.waits or connection.is_busy):
            self._tell_taken(connection)
        try:
            connection.send()
        except OSError:
            self._close(connection)
            return
        if self._is_over(connection):
            self._close(connection)
            return
        if connection.is_ending and not (connection.is_shut or connection.unsent):
            connection.shut()
        within = connection.reader.is_within and not connection.reader.is_waiting
        if within or connection.unsent or connection.is_shut:
            self._slow[connection] = None
        else:
            self._slow.pop(connection, None)
        self._watch(connection, (READ if connection.may_read else 0) | (WRITE if connection.unsent else 0))

    def _is_over(self, connection: Connection) -> bool:
        """Whether nothing more will come, and everything is said. Nobody is there any more to hear of a call that waits."""
        if not connection.has_ended or connection.is_busy or (connection.unsent and not connection.is_ending):
            return False
        return connection.asked is None or connection.waits is not None

    def _watch(self, connection: Connection, events: int) -> None:
        before = self._watched[connection]
        if events == before:
            return
        self._watched[connection] = events
        then = partial(self._handle, connection)
        if not before:
            self._selector.register(connection.socket, events, then)
        elif not events:
            self._selector.unregister(connection.socket)
        else:
            self._selector.modify(connection.socket, events, then)

    def _close(self, connection: Connection) -> None:
        if connection.is_closed:
            return
        if self._watched.pop(connection):
            self._selector.unregister(connection.socket)
        self._slow.pop(connection, None)
        self._waiting.pop(connection, None)
        connection.close()
        self._space.leave_all(connection)
        if self._connections.get(connection.client.name) is connection:
            del self._connections[connection.client.name]
        trainer = connection.client.trainer_id
        is_last = self._presence.end(trainer, process_of(connection.client.name))
        if is_last and self._lost is not None:
            self._lost(trainer)
        if self._waiting:
            self._soon.append(self._give_room)

    # -- room for long contents
    def _make_room(self, connection: Connection, size: int) -> bool:
        if self._space.enter(connection, size):
            self._waiting.pop(connection, None)
            return True
        self._waiting[connection] = None
        return False

    def _give_room(self) -> None:
        """Room was given back: let those go on that wait for it, the first first."""
        for connection in list(self._waiting):
            connection.arrived(connection.reader.go_on())
            if connection in self._waiting:
                return
            self._work(connection)
