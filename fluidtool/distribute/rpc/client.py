"""The client of one server: posts calls, waits for answers, and says which step the trainer is in."""

from __future__ import annotations

import itertools
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fluidtool.distribute.rpc.calls import Pending, Transport, UnaryTransport
from fluidtool.distribute.rpc.handler import (
    NUMBERED,
    TERM,
    Barrier,
    Gone,
    Late,
    Message,
    NotFound,
    Refused,
    RemoteError,
    Value,
)
from fluidtool.distribute.rpc.lasting import Lasting, LastingTransport
from fluidtool.distribute.rpc.methods import AHEAD, COMPLETE, JOIN, LEAVE, POSITION, ROLL, SAVE, WITHOUT_BARRIER, Method
from fluidtool.distribute.rpc.options import TransportOptions, load_grpc
from fluidtool.distribute.rpc.replicated import ReplicatedTransport
from fluidtool.distribute.rpc.service import CALL_KEY, OWN_SERVICE, TRAINER_KEY, VERSION, WHOLE_MESSAGES, asking
from fluidtool.distribute.rpc.sockets.line import Line, Lines
from fluidtool.distribute.rpc.sockets.memory import Memory
from fluidtool.distribute.rpc.sockets.offers import Offer, reached
from fluidtool.distribute.rpc.statuses import DEADLINE_EXCEEDED, UNAVAILABLE, UNIMPLEMENTED, error_of
from fluidtool.distribute.rpc.streaming import Stream
from fluidtool.distribute.rpc.tls import peer_fault
from fluidtool.tensor import LoDTensor

REACHED = 2.0  # seconds that a socket of a server has to let a client in
LOOK = 5.0  # seconds after which it is found out why a server does not answer
FINDING_OUT = 1.0  # seconds before the deadline that are kept for that
PROCESS = secrets.token_hex(8)  # a child of a fork has the same: its parent's connections are still there
CHANNEL = (
    *WHOLE_MESSAGES,
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.use_local_subchannel_pool", 1),
)


class Client:
    """A trainer's connection to one server: Paddle's, or fluidtool's, which takes a faster way.

    `post_*` return at once with what `wait` takes; what is posted together travels together. Every call has the deadline
    of the options. Errors are RemoteErrors. Threads may share a client.
    """

    is_replicated = False

    def __init__(self, endpoint: str, trainer_id: int = 0, options: TransportOptions | None = None) -> None:
        self.endpoint, self.trainer_id = endpoint, trainer_id
        self.options = TransportOptions() if options is None else options
        self.step = self.options.first_step
        self._grpc = load_grpc()
        self._name = f"{PROCESS}.{secrets.token_hex(8)}"
        self._numbers = itertools.count(1)
        self._unanswered: list[Pending] = []
        self._lock = threading.RLock()
        self._channel = self._connect()
        self._streams: Any = (
            None  # the channel of streams, which asks whether the server is there; Paddle's would refuse that
        )
        self._transport: Transport | None = None

    # -- what a trainer says
    def post_send(self, name: str, value: Value | bytes) -> None:
        """Send a variable. A refusal comes with the next `settle`, barrier or read."""
        self._post_unanswered(Method.SendVariable, Message(name, value, trainer_id=self.trainer_id))

    def post_notify(self, name: str, value: Value) -> None:
        """Send a count of steps."""
        self._post_unanswered(Method.DistributeNotify, Message(name, value, trainer_id=self.trainer_id))

    def post_get(self, name: str, out_name: str = "", *, with_barrier: bool = True, table_name: str = "") -> Pending:
        """Ask for a variable: as it is after the round, or as it is now."""
        if with_barrier:
            method, asked = Method.GetVariable, name
        else:
            method, asked = Method.GetVariableNoBarrier, name + WITHOUT_BARRIER
        return self._post_read(method, Message(asked, None, out_name or name, table_name, self.trainer_id))

    def post_prefetch(self, name: str, ids: Value, out_name: str, table_name: str = "") -> Pending:
        """Ask for the rows that ids name."""
        return self._post_read(Method.PrefetchVariable, Message(name, ids, out_name, table_name, self.trainer_id))

    def send(self, name: str, value: Value | bytes) -> None:
        """Send a variable and wait until it is taken."""
        self.post_send(name, value)
        self.settle()

    def get(self, name: str, out_name: str = "", *, with_barrier: bool = True) -> Value:
        """A variable: as it is after the round, or as it is now."""
        return self.wait_value(self.post_get(name, out_name, with_barrier=with_barrier))

    def prefetch(self, name: str, ids: Value, out_name: str, table_name: str = "") -> Value:
        """The rows that ids name."""
        return self.wait_value(self.post_prefetch(name, ids, out_name, table_name))

    def post_send_barrier(self) -> None:
        """Say that everything is sent. Where calls could overtake one another it waits for those before."""
        self._settle_unordered()
        self._post_unanswered(Method.SendVariable, Message(Barrier.SEND.value))

    def post_fetch_barrier(self) -> None:
        """Say that everything is fetched; ends the step."""
        self._settle_unordered()
        self._post_unanswered(Method.GetVariable, Message(Barrier.FETCH.value))
        self.step += 1

    def send_barrier(self) -> None:
        """Say that everything is sent, and wait until the server has counted it."""
        self.post_send_barrier()
        self.settle()

    def fetch_barrier(self) -> None:
        """Say that everything is fetched, and wait until the server has counted it."""
        self.post_fetch_barrier()
        self.settle()

    def post_checkpoint(self, folder: str) -> None:
        """Have the server save its part of the lookup table below `folder`."""
        self._post_unanswered(Method.CheckpointNotify, Message(SAVE, out_name=folder, trainer_id=self.trainer_id))

    def checkpoint(self, folder: str) -> None:
        """Have the server save its part of the lookup table below `folder`, and wait until it is done."""
        self.post_checkpoint(folder)
        self.settle()

    def complete(self) -> None:
        """Say that this trainer is finished."""
        self.settle()
        self._post_unanswered(Method.SendVariable, Message(COMPLETE, trainer_id=self.trainer_id))
        self.settle()

    def position(self) -> int:
        """The last step of this trainer that the values of an asynchronous server contain."""
        found = self.get(POSITION, with_barrier=False)
        return int(found.numpy()[0]) if isinstance(found, LoDTensor) else 0

    def number_updates(self, step: int) -> None:
        """What is sent next belongs to this step, from 1, of an asynchronous job; a fetch barrier ends it."""
        self.step = NUMBERED + step

    # -- copies of a server
    def forward(self, message: Message, step: int) -> None:
        """Pass on what a trainer has sent in a step."""
        with self._lock:
            self.step = step
            self._post_unanswered(Method.SendVariable, message)

    # -- elastic jobs
    def join(self) -> tuple[int, int]:
        """Take part from the next round that opens, of the server that keeps the roll; waits for that. The term, and the round
        whose parameters are to be fetched first. Raises LeftOut.
        """
        term, number = self._asked(JOIN, secrets.token_hex(8))
        return term, number

    def begin(self, term: int, number: int) -> None:
        """What comes next is of this term, and of the step after round `number` was fetched."""
        self.step = TERM * term + number

    def end_step(self) -> None:
        """The step is over; servers of elastic jobs need not be told."""
        self.step += 1

    def roll(self) -> list[int]:
        """The trainers of the round that this step belongs to; waits until it is open. Raises LeftOut."""
        return self._asked(ROLL)

    def post_next_roll(self) -> Pending:
        """Ask for the trainers of the next step's round, after whatever was asked for in this one."""
        with self._lock:
            self.step += 1
            try:
                return self.post_get(ROLL, AHEAD, with_barrier=False)
            finally:
                self.step -= 1

    def next_roll(self, pending: Pending) -> list[int]:
        """The answer; nobody where no round could open. Raises LeftOut."""
        return _numbers(self.wait_value(pending))

    def leave(self) -> bool:
        """Take part no more; whether this trainer has to make one more step, which the others count on."""
        return self._asked(LEAVE) == [1]

    def _asked(self, name: str, out_name: str = "") -> list[int]:
        return _numbers(self.get(name, out_name, with_barrier=False))

    # -- answers
    def wait(self, pending: Pending) -> Message:
        """The answer to a call; raises what the server refused, also of what was sent before."""
        transport = self._way()
        try:
            reply = transport.wait(pending)
        except RemoteError:
            self._first_failure()
            raise
        self._first_failure()
        return reply

    def wait_value(self, pending: Pending) -> Value:
        """The value that a call asked for; raises NotFound when the server answers without one."""
        value = self.wait(pending).value
        if value is None or isinstance(value, bytes):
            raise NotFound(
                f"server {self.endpoint}: {pending} returned no value; the server does not keep that variable"
            )
        return value

    def settle(self, patience: float | None = None) -> None:
        """Wait until the server has taken everything that was sent, `patience` seconds at most; raises the first refusal."""
        if self._transport is None:
            return
        with self._lock:
            waiting, self._unanswered = self._unanswered, []
        for position, pending in enumerate(waiting):
            if patience is not None:
                pending.deadline = min(pending.deadline, time.monotonic() + patience)
            try:
                self._way().wait(pending)
            except RemoteError:
                self._abandon(waiting[position + 1 :])
                raise

    def flush(self) -> None:
        """Let what was posted go, without waiting: small calls travel together, at the next wait at the latest."""
        if self._transport is not None:
            self._transport.flush()

    def close(self) -> None:
        """Give the connection back; says nothing to the server."""
        if self._transport is not None:
            self._transport.close()
        self._close_channels()

    def abandon(self) -> None:
        """Break off whatever is under way, as a process does that dies."""
        if self._transport is not None:
            self._transport.abandon()
        self._close_channels()

    def _close_channels(self) -> None:
        self._channel.close()
        if self._streams is not None:
            self._streams.close()

    def leave_to_parent(self) -> None:
        """In the child of a fork: the connection stays the parent's."""
        if self._transport is not None:
            self._transport.leave_to_parent()

    # -- how
    @property
    def unanswered_failed(self) -> bool:
        """Whether something that was sent has been refused already."""
        if self._transport is not None:
            self._transport.look()
        return any(pending.failed for pending in self._unanswered)

    @property
    def streaming(self) -> bool:
        """Whether both sides have the stream."""
        return self._way().ordered

    @property
    def own(self) -> bool:
        """Whether the server is fluidtool's."""
        return self._way().own

    def _post_read(self, method: Method, message: Message) -> Pending:
        """Ask for something as it is after what was sent before."""
        self._settle_unordered()
        return self._post(method, message)

    def _settle_unordered(self) -> None:
        if not self._way().ordered:
            self.settle()

    def _post_unanswered(self, method: Method, message: Message) -> None:
        with self._lock:
            if self._unanswered and self._unanswered[0].done:
                self._unanswered = [
                    pending for pending in self._unanswered if not pending.done or pending.error is not None
                ]
            if self._unanswered and self._unanswered[0].error is not None:
                self.settle()
            self._unanswered.append(self._post(method, message))

    def _post(self, method: Method, message: Message) -> Pending:
        with self._lock:
            deadline = time.monotonic() + self.options.deadline
            pending = Pending(next(self._numbers), self.step, method, message, deadline, self.options.retry_times)
            self._way(deadline).post(pending)
            return pending

    def _first_failure(self) -> None:
        """Raise the refusal of something sent before, which is why what came after it failed."""
        if any(pending.failed for pending in self._unanswered):
            self.settle()

    def _abandon(self, pendings: list[Pending]) -> None:
        for pending in pendings:
            if pending.future is not None:
                pending.future.cancel()

    def _way(self, end: float | None = None) -> Transport:
        """How calls go. end: when it must be known, by the clock of `time.monotonic`; None: within the deadline of a call."""
        if self._transport is None:
            with self._lock:
                if self._transport is None:
                    self._transport = self._choose(time.monotonic() + self.options.deadline if end is None else end)
        return self._transport

    def _choose(self, end: float) -> Transport:
        """A socket or a stream when the server says by then that it has them, else Paddle's calls."""
        own = self._is_own(end)
        if own and self.options.streaming:
            first = self._first_socket(end) if self.options.sockets and not self.options.security.encrypted else None
            if first is None:
                return LastingTransport(lambda patience: self._open_stream(), self.endpoint, self.options)
            return LastingTransport(
                Lines(self._another_socket, first, self.endpoint, self.options), self.endpoint, self.options
            )
        return UnaryTransport(self._grpc, self._channel, self.endpoint, self.options, self._name, self.trainer_id, own)

    def _is_own(self, end: float) -> bool:
        """Whether the server is fluidtool's; a connection that breaks meanwhile is made again."""
        attempts = self.options.retry_times + 1
        while True:
            left = end - time.monotonic()
            try:
                return self._greet(min(max(left - FINDING_OUT, left / 2), LOOK))
            except self._grpc.RpcError as error:
                status = error.code().value[0]
                if status == UNIMPLEMENTED:
                    return False
                attempts -= status == UNAVAILABLE
                waits = status == UNAVAILABLE or (status == DEADLINE_EXCEEDED and left > LOOK)
                self._check_peer(status, end - time.monotonic())
                if not waits or not attempts:
                    raise error_of(status, f"server {self.endpoint} does not answer: {error.details()}") from error

    def _check_peer(self, status: int, patience: float) -> None:
        """Raise Refused for a server that cannot be reached because of certificates, if that shows within so many seconds."""
        if status in (UNAVAILABLE, DEADLINE_EXCEEDED) and patience > 0:
            fault = peer_fault(self.endpoint, self.options.security, patience)
            if fault:
                raise Refused(f"cannot communicate with server {self.endpoint}: {fault}")

    def _greet(self, patience: float) -> bool:
        return self._ask("Hello", patience, ()) == VERSION

    def _ask(self, method: str, patience: float, about: tuple[tuple[str, str], ...]) -> bytes:
        answer = self._channel.unary_unary(f"/{OWN_SERVICE}/{method}")(
            VERSION,
            timeout=max(patience, 0.0),
            metadata=(*self.options.security.metadata(), *about),
            wait_for_ready=True,
        )
        return bytes(answer)

    def _socket(self, patience: float) -> socket.socket | None:
        """A socket of the server, within so many seconds; None where it offers none that can be reached. Raises what gRPC raises,
        as RemoteErrors.
        """
        end = time.monotonic() + patience
        try:
            offer = Offer.of(self._ask("Socket", patience, self._metadata()))
        except self._grpc.RpcError as error:
            status = error.code().value[0]
            if status == UNIMPLEMENTED:
                return None
            raise error_of(status, f"server {self.endpoint} offers no socket: {error.details()}") from error
        return (
            None
            if offer is None
            else reached(offer, self.endpoint, min(end - time.monotonic(), REACHED), self.options.silence)
        )

    def _first_socket(self, end: float) -> socket.socket | None:
        """As `_socket`; a connection that breaks meanwhile is made again."""
        for left in range(self.options.retry_times, -1, -1):
            try:
                return self._socket(min(end - time.monotonic(), LOOK))
            except (Gone, Late):
                if not left or time.monotonic() >= end:
                    raise
        return None

    def _another_socket(self, patience: float) -> socket.socket | None:
        """As `_socket`, once a connection has broken: that of gRPC may be half-open, too."""
        self._channel.close()
        self._channel = self._connect()
        return self._socket(patience)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (TRAINER_KEY, str(self.trainer_id)), (CALL_KEY, f"{self._name}-0")

    def _open_stream(self) -> Stream:
        def call(frames: Iterator[bytes]) -> Any:
            metadata = (*self.options.security.metadata(), *self._metadata())
            if self._streams is None:
                self._streams = self._connect(*asking(self.options.silence))
            exchange = self._streams.stream_stream(f"/{OWN_SERVICE}/Exchange")
            return exchange(frames, metadata=metadata, wait_for_ready=True)

        return Stream(call, self.options.limits)

    def _connect(self, *others: tuple[str, int]) -> Any:
        credentials = self.options.security.channel_credentials(self._grpc)
        if credentials is None:
            return self._grpc.insecure_channel(self.endpoint, options=(*CHANNEL, *others))
        options = (*CHANNEL, *others, *self.options.security.channel_options())
        return self._grpc.secure_channel(self.endpoint, credentials, options=options)

    def open_line(self, patience: float) -> Lasting:
        """A connection of this client's name to a server that is fluidtool's; raises RemoteError."""
        found = None
        if self.options.sockets and not self.options.security.encrypted:
            found = self._socket(patience)
        return (
            self._open_stream() if found is None else Line(found, self.options.limits, Memory(), self.options.silence)
        )


class ReplicatedClient(Client):
    """The client of a server of which there are two copies. other: the endpoint of the second one."""

    is_replicated = True

    def __init__(self, endpoint: str, other: str, trainer_id: int, options: TransportOptions) -> None:
        super().__init__(endpoint, trainer_id, options)
        self._places = endpoint, other

    def _choose(self, end: float) -> Transport:
        """The copy that serves, whichever that is; it is looked for when the first call goes."""

        def client_of(place: str, patience: float) -> Client:
            return Client(place, self.trainer_id, replace(self.options, deadline=patience, retry_times=0))

        return ReplicatedTransport(client_of, self._places, self.options)


def _numbers(value: Value) -> list[int]:
    return [int(number) for number in value.numpy()] if isinstance(value, LoDTensor) else []


def connect(endpoint: str, trainer_id: int = 0, options: TransportOptions | None = None) -> Client:
    """A client of the server at `endpoint`, or of both copies of it; it connects with the first call."""
    other = None if options is None else options.replicas.get(endpoint)
    if options is None or other is None:
        return Client(endpoint, trainer_id, options)
    return ReplicatedClient(endpoint, other, trainer_id, options)
