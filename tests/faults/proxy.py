"""A gRPC proxy that delays, drops and repeats calls on their way to a parameter server, by a seeded generator.

It knows no message: requests and replies pass as bytes, so that it serves Paddle's service and fluidtool's own stream alike. Where
a server offers a socket, the client is sent to a socket of the proxy instead, which does the same harm.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import grpc

from fluidtool.distribute.rpc.sockets.offers import FIRST_BYTES, Offer

WHOLE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
STREAM, SOCKET = "/Exchange", "/fluidtool.Parameters/Socket"
WAYS = {"socket": "", "stream": "stream", "calls": "compatible"}  # FLUIDTOOL_RPC of each


@dataclass(frozen=True)
class Rates:
    """How likely each fault is, for each call (of a stream or socket: for each piece). delay: seconds at most.

    drop_request: the server never sees it; drop_reply: the server did it, the client does not learn so; duplicate: the
    server gets it twice. Of a stream or socket all three mean that it breaks: before a piece, before a reply, or after both.
    half_open: of a socket: nothing passes any more, and nobody is told.
    """

    delayed: float = 0.0
    delay: float = 0.05
    drop_request: float = 0.0
    drop_reply: float = 0.0
    duplicate: float = 0.0
    half_open: float = 0.0


class Proxy:
    """Listens on a port of 127.0.0.1 and passes calls on to `target`. `faults` counts what was done, by kind."""

    def __init__(self, target: str, rates: Rates, seed: int, most: int | None = None) -> None:
        self.faults: Counter[str] = Counter()
        self._target, self._rates, self._most = target, rates, most
        self._sockets: dict[int, Sockets] = {}  # by the server's port
        self._random, self._lock = random.Random(seed), threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(64), options=WHOLE)
        self._server.add_generic_rpc_handlers((_Everything(self),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.endpoint = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Proxy:
        self._channel = grpc.insecure_channel(self._target, options=WHOLE)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()
        self._channel.close()
        for each in self._sockets.values():
            each.close()

    def happens(self, kind: str) -> bool:
        """Whether this fault falls on the piece at hand; it is counted if so."""
        with self._lock:
            spent = self._most is not None and self.faults.total() >= self._most
            if spent or self._random.random() >= getattr(self._rates, kind):
                return False
            self.faults[kind] += 1
        return True

    def maybe_wait(self) -> None:
        """Hold the piece at hand back for a while, or not."""
        if self.happens("delayed"):
            with self._lock:
                seconds = self._random.uniform(0, self._rates.delay)
            time.sleep(seconds)

    def unary(self, method: str) -> Callable[[bytes, Any], bytes]:
        """One call that passes through."""
        forward = self._channel.unary_unary(method)

        def call(request: bytes, context: Any) -> bytes:
            self.maybe_wait()
            if self.happens("drop_request"):
                context.abort(grpc.StatusCode.UNAVAILABLE, "the proxy dropped the request")
            reply = self._forward(forward, request, context)
            if self.happens("duplicate"):
                reply = self._forward(forward, request, context)
            if self.happens("drop_reply"):
                context.abort(grpc.StatusCode.UNAVAILABLE, "the proxy dropped the reply")
            return reply

        return call

    def _forward(self, forward: Any, request: bytes, context: Any) -> bytes:
        passed = forward.future(
            request, metadata=_metadata(context), timeout=context.time_remaining(), wait_for_ready=True
        )
        context.add_callback(passed.cancel)
        try:
            return bytes(passed.result() or b"")
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        except grpc.FutureCancelledError:
            context.abort(grpc.StatusCode.CANCELLED, "the caller went away")
        raise AssertionError("abort raises")

    def offer(self, request: bytes, context: Any) -> bytes:
        """A socket here, for one that the server offers."""
        forward = self._channel.unary_unary(SOCKET)
        offered = Offer.of(self._forward(forward, request, context))
        if offered is None:
            return b""
        with self._lock:
            if offered.port not in self._sockets:
                self._sockets[offered.port] = Sockets(self, (self._target.rpartition(":")[0], offered.port))
        return replace(offered, name="", port=self._sockets[offered.port].port).encoded()

    def stream(self, method: str) -> Callable[[Iterator[bytes], Any], Iterator[bytes]]:
        """A stream that passes through, until it is broken."""
        forward = self._channel.stream_stream(method)

        def call(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            broken = threading.Event()

            def pieces() -> Iterator[bytes]:
                for piece in requests:
                    self.maybe_wait()
                    if self.happens("drop_request"):
                        broken.set()
                        passed.cancel()
                        return
                    yield piece
                    if self.happens("duplicate"):  # the server has it; the client will send it again
                        time.sleep(0.02)
                        broken.set()
                        passed.cancel()
                        return

            passed = forward(pieces(), metadata=_metadata(context), wait_for_ready=True)
            context.add_callback(passed.cancel)
            try:
                for reply in passed:
                    if self.happens("drop_reply"):
                        broken.set()
                        passed.cancel()
                        break
                    yield reply
            except grpc.RpcError as error:
                if not broken.is_set():
                    context.abort(error.code(), error.details())
            if broken.is_set():
                context.abort(grpc.StatusCode.UNAVAILABLE, "the proxy broke the stream")

        return call


class Sockets:
    """Passes what sockets bring on to a server's port, until it breaks them."""

    def __init__(self, proxy: Proxy, target: tuple[str, int]) -> None:
        self._proxy, self._target = proxy, target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._silent: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._silent):
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._target, 5)
                except OSError:
                    near.close()
                    continue
                is_silent = threading.Event()
                for source, sink, is_request in ((near, far, True), (far, near, False)):
                    given = source, sink, is_request, is_silent
                    threading.Thread(target=self._pass_on, args=given, daemon=True).start()

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, is_request: bool, is_silent: threading.Event
    ) -> None:
        """The first bytes, a ticket and a welcome, pass unharmed: without them there is no connection yet."""
        with suppress(OSError):
            sink.sendall(source.recv(FIRST_BYTES))
            while data := source.recv(1 << 16):
                if is_request:
                    self._proxy.maybe_wait()
                if is_silent.is_set() or self._proxy.happens("half_open"):
                    is_silent.set()
                    self._silent.append(source)
                    return
                if self._proxy.happens("drop_request" if is_request else "drop_reply"):
                    break
                sink.sendall(data)
                if is_request and self._proxy.happens("duplicate"):  # the server has it; the client will send it again
                    time.sleep(0.02)
                    break
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class _Everything(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Takes whatever is called."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method
        if method == SOCKET:
            return grpc.unary_unary_rpc_method_handler(self._proxy.offer)
        if method.endswith(STREAM):
            return grpc.stream_stream_rpc_method_handler(self._proxy.stream(method))
        return grpc.unary_unary_rpc_method_handler(self._proxy.unary(method))


def _metadata(context: Any) -> list[tuple[str, Any]]:
    """What the caller said beside the message, less what gRPC says itself."""
    return [(key, value) for key, value in context.invocation_metadata() if not key.startswith(("grpc-", "user-agent"))]
