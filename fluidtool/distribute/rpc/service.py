"""The server: Paddle's service, one call for each message, and beside it what fluidtool's own trainers use: sockets, a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fluidtool.distribute.endpoints import host_and_port
from fluidtool.distribute.metrics.exposition import Traffic
from fluidtool.distribute.rpc.frames import Frame, FrameReader, chunks, frame_parts
from fluidtool.distribute.rpc.gate import Gate, on_threads_of
from fluidtool.distribute.rpc.handler import Call, Handler, Message, Refused, RemoteError
from fluidtool.distribute.rpc.ledger import Ledger
from fluidtool.distribute.rpc.methods import SERVICE, Method, answerer, changes_state
from fluidtool.distribute.rpc.options import CHUNK, HEADER_ROOM, TransportOptions, load_grpc
from fluidtool.distribute.rpc.presence import Presence, process_of
from fluidtool.distribute.rpc.rooms import Room, Rooms
from fluidtool.distribute.rpc.sockets.loop import Loop
from fluidtool.distribute.rpc.statuses import INTERNAL, OK, status_of
from fluidtool.distribute.rpc.wire import LARGEST_INT, Buffer, Requests, decode, encode
from fluidtool.errors import FluidError
from fluidtool.records import dataclass

OWN_SERVICE = "fluidtool.Parameters"
VERSION = b"fluidtool.Parameters 1"
TRAINER_KEY, STEP_KEY, CALL_KEY = "fluidtool-trainer", "fluidtool-step", "fluidtool-call"
ARRIVING = 1024  # messages that arrive at a time
# Paddle's trainers make a call for each variable, all of them on one connection.
CONNECTIONS = (
    ("grpc.max_concurrent_streams", 1024),
    ("grpc.max_allowed_incoming_connections", 4096),
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.absolute_max_metadata_size", 32 << 10),
)
ASKED_AT_LEAST = 5.0  # seconds between two questions of a client whether the server is there
WHOLE_MESSAGES = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


def asking(seconds: float) -> tuple[tuple[str, int], ...]:
    """Options of gRPC that have it ask whether the other side is there, and break a connection that is silent for so long."""
    half = max(int(500 * seconds), 1)
    return (
        ("grpc.keepalive_time_ms", half),
        ("grpc.keepalive_timeout_ms", half),
        ("grpc.http2.max_pings_without_data", 0),
    )


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as metadata says: trainer, and the client process of it. None and "" for Paddle's own peers."""

    trainer_id: int | None = None
    client: str = ""
    number: int = 0
    step: int | None = None

    @classmethod
    def of(cls, metadata: Iterable[tuple[str, Any]]) -> Caller:
        """The caller; raises Refused for metadata that fluidtool does not write."""
        found = {key: value for key, value in metadata if key in (TRAINER_KEY, STEP_KEY, CALL_KEY)}
        if TRAINER_KEY not in found:
            return cls()
        client, _, number = str(found.get(CALL_KEY, "")).rpartition("-")
        try:
            step = int(found[STEP_KEY]) if STEP_KEY in found else None
            return cls(int(found[TRAINER_KEY]), client, int(number or 0), step)
        except ValueError as error:
            raise Refused(f"the metadata {found} of a call does not belong to fluidtool") from error


class Server:
    """A running server. `port` is the one it listens on, `loop` serves its sockets. lost: told of each trainer of ours whose
    connection ended. traffic: counts messages.
    """

    def __init__(
        self,
        endpoint: str,
        handler: Handler,
        options: TransportOptions,
        lost: Callable[[int], None] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        grpc = load_grpc()
        options.security.check_address(endpoint)
        self._grpc, self._handler, self._options, self._ledger = grpc, handler, options, Ledger()
        self._lost, self._traffic = lost, traffic
        self._presence = Presence()
        self._requests = Requests(options.limits)
        self._largest = min(options.limits.message + HEADER_ROOM, LARGEST_INT)
        self._pool = ThreadPoolExecutor(options.threads, thread_name_prefix=f"server {endpoint}")
        self._streams = ThreadPoolExecutor(options.threads, thread_name_prefix=f"streams {endpoint}")
        self._rooms, self._stream_rooms = (
            Rooms(options.caller_bytes, options.all_bytes, ARRIVING, options.deadline) for _ in range(2)
        )
        self._gate = Gate(grpc, options.security, {**self._compatible(), **self._own()})
        own_limits = (
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", self._largest),
            ("grpc.so_reuseport", 0),
            *CONNECTIONS,
            *asking(min(options.silence, options.deadline)),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", int(1000 * ASKED_AT_LEAST)),
        )
        self._server = grpc.server(self._pool, options=own_limits)
        self._server.add_generic_rpc_handlers((self._gate,))
        self.port = self._listen(endpoint)
        self.endpoint = f"{endpoint.rpartition(':')[0]}:{self.port}"
        self.loop = self._sockets(endpoint)
        self._server.start()

    def stop(self, grace: float = 1.0) -> None:
        """Take no more calls, let those that run go on for `grace` seconds, and return when all threads are free."""
        if self.loop is not None:
            self.loop.begin_to_stop(grace)
        self._server.stop(grace).wait()
        if self.loop is not None:
            self.loop.stop()
        for pool in (self._pool, self._streams, self._gate):
            pool.close() if isinstance(pool, Gate) else pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(0)

    def _listen(self, endpoint: str) -> int:
        credentials = self._options.security.server_credentials(self._grpc)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(endpoint)
            else:
                port = self._server.add_secure_port(endpoint, credentials)
        except RuntimeError:
            port = 0
        if not port:
            raise RemoteError(
                f"cannot listen at {endpoint}: port {host_and_port(endpoint)[1]} is taken, or the address is not this "
                "machine's; choose another endpoint, or end the process that uses it"
            )
        return int(port)

    def _sockets(self, endpoint: str) -> Loop | None:
        """The loop that serves sockets; None where they are not wanted, what is sent must be encrypted, or no port is free."""
        if not self._options.sockets or self._options.security.encrypted:
            return None
        try:
            loop = Loop(endpoint, self._handler, self._options, self._lost, self._traffic, self._presence)
        except OSError:
            return None
        loop.start()
        return loop

    def _compatible(self) -> dict[str, Any]:
        """Paddle's service. Each call has one message; that it is taken as a stream lets it wait until there is room."""
        make = self._grpc.stream_unary_rpc_method_handler
        return {f"/{SERVICE}/{method.name}": make(self._unary(method)) for method in Method}

    def _own(self) -> dict[str, Any]:
        """fluidtool's service: Hello, by which a client learns that it is there, Socket, which offers one, and Exchange."""
        hello, offer = (
            self._grpc.stream_unary_rpc_method_handler(on_threads_of(self._streams, answer))
            for answer in (self._hello, self._offer)
        )
        exchange = self._grpc.stream_stream_rpc_method_handler(on_threads_of(self._streams, self._exchange))
        named = {"Hello": hello, "Socket": offer, "Exchange": exchange}
        return {f"/{OWN_SERVICE}/{name}": handler for name, handler in named.items()}

    # -- one call for each message
    def _unary(self, method: Method) -> Callable[[Iterator[bytes], Any], bytes]:
        def call(requests: Iterator[bytes], context: Any) -> bytes:
            caller, peer = self._caller(context), context.peer()
            try:
                with self._rooms.taken(caller.client or peer, self._largest, context.cancel) as room:
                    request = next(requests, b"")
                    self._rooms.arrived(room, len(request))
                    message = decode(request, self._options.limits)
                    asker = Call(caller.trainer_id, caller.step, peer, context.is_active)
                    parts = self._answer(method, message, caller, caller.number, asker)
                    self._count(len(request), parts)
                    return b"".join(parts)
            except FluidError as error:
                context.abort(self._code(status_of(error)), str(error))
                raise

        return call

    def _hello(self, requests: Iterator[bytes], context: Any) -> bytes:
        return VERSION

    def _offer(self, requests: Iterator[bytes], context: Any) -> bytes:
        """A socket for a trainer of ours; nothing where there are none."""
        caller = self._caller(context)
        if self.loop is None or caller.trainer_id is None or not caller.client:
            return b""
        return self.loop.offer(caller.trainer_id, caller.client).encoded()

    def _caller(self, context: Any) -> Caller:
        try:
            return Caller.of(context.invocation_metadata())
        except Refused as error:
            context.abort(self._code(status_of(error)), str(error))
            raise

    def _code(self, status: int) -> Any:
        return next(code for code in self._grpc.StatusCode if code.value[0] == status)

    # -- a stream of frames
    def _exchange(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Answer the frames of one trainer in their order.

        The trainer does not wait for what it sends. So after a message that was refused the stream ends: what was sent
        behind it (a barrier!) must not count.
        """
        caller, peer = self._caller(context), context.peer()
        rooms, room = self._stream_rooms, Room(peer, 0, context.cancel)
        reader = FrameReader(self._options.limits.message + HEADER_ROOM, partial(rooms.change, room))
        process = process_of(caller.client)
        if caller.trainer_id is not None:
            self._presence.begin(caller.trainer_id, process)
        try:
            for chunk in requests:
                if len(chunk) > CHUNK:
                    raise Refused(f"received a chunk of {len(chunk)} bytes, but at most {CHUNK} are allowed")
                replies: list[Buffer] = []
                for frame in reader.frames(chunk):
                    reply, goes_on = self._reply(
                        frame, caller, Call(caller.trainer_id, frame.step, peer, context.is_active)
                    )
                    replies += reply
                    if room.size:
                        rooms.arrived(room, 0)
                    if not goes_on:
                        yield from chunks(replies)
                        return
                yield from chunks(replies)
        except Refused as error:  # bytes that are no frames: there is no way to know where the next one starts
            context.abort(self._code(status_of(error)), str(error))
        finally:
            rooms.arrived(room, 0)
            self._end_stream(caller.trainer_id, process)

    def _end_stream(self, trainer: int | None, process: str) -> None:
        """A stream ends; a trainer that has no other connection is lost for now."""
        if trainer is not None and self._presence.end(trainer, process) and self._lost is not None:
            self._lost(trainer)

    def _reply(self, frame: Frame, caller: Caller, call: Call) -> tuple[list[Buffer], bool]:
        """The frame that answers, and whether the stream goes on."""
        pipelined = True
        try:
            method = Method(frame.code)
            message = self._requests.decode(frame.content)
            pipelined = changes_state(method, message)
            parts = self._answer(method, message, caller, frame.number, call)
            self._count(len(frame.content), parts)
            return frame_parts(frame.number, frame.step, OK, parts), True
        except FluidError as error:
            status, text = status_of(error), str(error)
        except Exception as error:  # whatever it is, the peer must learn that its message was not taken
            status, text = INTERNAL, f"{type(error).__name__}: {error}"
        return frame_parts(frame.number, frame.step, status, [text.encode()]), not pipelined

    def _count(self, received: int, parts: list[Buffer]) -> None:
        if self._traffic is not None:
            self._traffic.received.add(received)
            self._traffic.sent.add(sum(map(len, parts)))

    def _answer(self, method: Method, message: Message, caller: Caller, number: int, call: Call) -> list[Buffer]:
        answer = partial(answerer(method, message), self._handler, message, call)
        if not changes_state(method, message):
            return encode(Message(message.out_name, answer()))
        if caller.client:
            self._ledger.once(caller.client, number, answer, self._options.deadline)
        else:
            answer()
        return [b""]


def serve(
    endpoint: str,
    handler: Handler,
    options: TransportOptions | None = None,
    *,
    lost: Callable[[int], None] | None = None,
    traffic: Traffic | None = None,
) -> Server:
    """Start a server at `endpoint` (port 0: any free one; `Server.port` tells) that has `handler` answer.

    lost: told of each trainer of ours whose stream ended, for whatever reason; it may open another. traffic: counts messages.
    Raises PolicyError for an address that is open to others without protection, RemoteError when it cannot listen there.
    """
    return Server(endpoint, handler, TransportOptions() if options is None else options, lost, traffic)
