"""Calls of a client one by one: Paddle's own way, with one unary call for each message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from fluidtool.distribute.rpc.handler import Message, RemoteError
from fluidtool.distribute.rpc.methods import SERVICE, Method, changes_state
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.service import CALL_KEY, STEP_KEY, TRAINER_KEY
from fluidtool.distribute.rpc.statuses import DEADLINE_EXCEEDED, UNAVAILABLE, error_of
from fluidtool.distribute.rpc.wire import decode, encoded
from fluidtool.records import dataclass

PAUSE = 0.1
GRACE = 1.0  # seconds beyond a deadline, after which gRPC is not trusted to end a call


@dataclass(slots=True)
class Pending:
    """A call that was made and is not answered yet, with all that it takes to make it again."""

    number: int
    step: int
    method: Method
    message: Message
    deadline: float
    tries: int
    reply: Message | None = None
    error: RemoteError | None = None
    done: bool = False
    future: Any = field(default=None, repr=False)

    @property
    def left(self) -> float:
        """Seconds until its deadline."""
        return self.deadline - time.monotonic()

    @property
    def failed(self) -> bool:
        """Whether it is known to have failed."""
        if self.future is not None:
            return bool(self.future.done() and self.future.exception() is not None)
        return self.error is not None

    def __str__(self) -> str:
        return f"{self.method.name} of {self.message.name!r}"


class Transport(Protocol):
    """How calls reach a server. `ordered`: the server takes them one after the other, as they were posted. `own`: it is
    fluidtool's.
    """

    ordered: bool
    own: bool

    def post(self, pending: Pending) -> None:
        """Send a call; does not wait for the answer."""

    def wait(self, pending: Pending) -> Message:
        """The answer of a call that was posted; raises RemoteError."""

    def look(self) -> None:
        """Note what has been answered meanwhile."""

    def flush(self) -> None:
        """Let what was posted go: a transport may gather small calls."""

    def close(self) -> None:
        """Give the connection back."""

    def abandon(self) -> None:
        """Break off whatever is under way."""

    def leave_to_parent(self) -> None:
        """In the child of a fork: the connection stays the parent's."""


class UnaryTransport:
    """A gRPC call for each message. Calls that broke off are repeated: reads always, others where the server knows
    repetitions by their numbers (a real Paddle server would count them twice).
    """

    ordered = False

    def __init__(
        self, grpc: Any, channel: Any, endpoint: str, options: TransportOptions, client: str, trainer_id: int, own: bool
    ) -> None:
        self._grpc, self._endpoint, self._options, self.own = grpc, endpoint, options, own
        self._client, self._trainer_id = client, trainer_id
        self._calls: dict[Method, Callable[..., Any]] = {
            method: channel.unary_unary(f"/{SERVICE}/{method.name}").future for method in Method
        }

    def post(self, pending: Pending) -> None:
        """Make the call."""
        metadata = self._options.security.metadata()
        if self.own:
            metadata += (
                (TRAINER_KEY, str(self._trainer_id)),
                (STEP_KEY, str(pending.step)),
                (CALL_KEY, f"{self._client}-{pending.number}"),
            )
        pending.future = self._calls[pending.method](
            encoded(pending.message), timeout=max(pending.left, 0.001), metadata=metadata, wait_for_ready=True
        )

    def wait(self, pending: Pending) -> Message:
        """The answer; what broke off is repeated."""
        while True:
            try:
                return decode(pending.future.result(timeout=max(pending.left, 0) + GRACE), self._options.limits)
            except self._grpc.FutureTimeoutError:
                # gRPC ends no call while a large message waits for room on a connection that broke off.
                pending.future.cancel()
                text = f"server {self._endpoint}: {pending} was not answered in time"
                raise error_of(DEADLINE_EXCEEDED, text) from None
            except self._grpc.RpcError as error:
                status = error.code().value[0]
                if status == UNAVAILABLE and pending.tries > 0 and pending.left > 0 and self._may_repeat(pending):
                    pending.tries -= 1
                    threading.Event().wait(PAUSE)
                    self.post(pending)
                    continue
                raise error_of(status, f"server {self._endpoint}: {pending} failed: {error.details()}") from None

    def flush(self) -> None:
        """Nothing to let go: calls are made when they are posted."""

    def look(self) -> None:
        """Nothing to note: calls know by themselves that they have failed."""

    def close(self) -> None:
        """Nothing to give back: the channel is the client's."""

    abandon = leave_to_parent = close

    def _may_repeat(self, pending: Pending) -> bool:
        return self.own or not changes_state(pending.method, pending.message)
