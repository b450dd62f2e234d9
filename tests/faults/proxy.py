"""A gRPC proxy that delays, drops and repeats calls on their way to a parameter server, by a seeded generator.

It knows no message: requests and replies pass as bytes, so that it serves Paddle's service and fluidtool's own stream alike.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

WHOLE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
STREAM = "/Exchange"


@dataclass(frozen=True)
class Rates:
    """How likely each fault is, for each call (of a stream: for each piece). delay: seconds at most.

    drop_request: the server never sees it; drop_reply: the server did it, the client does not learn so; duplicate: the
    server gets it twice. Of a stream all three mean that it breaks: before a piece, before a reply, or after both.
    """

    delayed: float = 0.0
    delay: float = 0.05
    drop_request: float = 0.0
    drop_reply: float = 0.0
    duplicate: float = 0.0


class Proxy:
    """Listens on a port of 127.0.0.1 and passes calls on to `target`. `faults` counts what was done, by kind."""

    def __init__(self, target: str, rates: Rates, seed: int, most: int | None = None) -> None:
        self.faults: Counter[str] = Counter()
        self._target, self._rates, self._most = target, rates, most
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


class _Everything(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Takes whatever is called."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method
        if method.endswith(STREAM):
            return grpc.stream_stream_rpc_method_handler(self._proxy.stream(method))
        return grpc.unary_unary_rpc_method_handler(self._proxy.unary(method))


def _metadata(context: Any) -> list[tuple[str, Any]]:
    """What the caller said beside the message, less what gRPC says itself."""
    return [(key, value) for key, value in context.invocation_metadata() if not key.startswith(("grpc-", "user-agent"))]
