"""Who may call is decided by what comes before a message: nothing of the message of others is ever read.

gRPC takes no more than a window of 64 KiB of a message that nobody reads. So those without the token are turned away by a
handler that takes a stream and reads nothing of it; on the wire that is no other than a handler that takes one message.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fluidtool.distribute.rpc.security import Security
from fluidtool.distribute.rpc.statuses import UNAUTHENTICATED

REFUSERS = 2  # threads that turn callers away
WAITING = 64  # callers that wait for that; more are told at once that there is no such method


class Gate:
    """gRPC's way from the name of a method to its handler, for callers that bring the token."""

    def __init__(self, grpc: Any, security: Security, handlers: Mapping[str, Any]) -> None:
        self._handlers, self._security = handlers, security
        self._pool = ThreadPoolExecutor(REFUSERS, thread_name_prefix="turning away")
        self._waiting, self._lock = 0, threading.Lock()
        self._refusing = grpc.stream_unary_rpc_method_handler(on_threads_of(self._pool, self._refuse))
        self._status = next(code for code in grpc.StatusCode if code.value[0] == UNAUTHENTICATED)

    def service(self, call: Any) -> Any:
        """The handler of a call (its `method` and `invocation_metadata`); None: no such method."""
        if self._security.admits(call.invocation_metadata or ()):
            return self._handlers.get(call.method)
        with self._lock:
            if self._waiting >= WAITING:
                return None
            self._waiting += 1
        return self._refusing

    def close(self) -> None:
        """Give the threads back."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _refuse(self, messages: Iterator[bytes], context: Any) -> None:
        with self._lock:
            self._waiting -= 1
        context.abort(self._status, "this server takes only calls that bring its token")


def on_threads_of(pool: ThreadPoolExecutor, behavior: Any) -> Any:
    """The behavior, run on threads of its own, so that it cannot take those of others."""

    def run(messages: Iterator[bytes], context: Any) -> Any:
        return behavior(messages, context)

    run.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return run
