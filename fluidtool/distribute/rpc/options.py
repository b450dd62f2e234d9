"""How patient, how strict and how fast the transport is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from fluidtool.distribute.rpc.security import Security
from fluidtool.distribute.rpc.wire import LARGEST_INT, Limits
from fluidtool.errors import DeviceError, UsageError
from fluidtool.records import dataclass

REPLICAS = "FLUIDTOOL_REPLICAS"  # of each server, where its second copy listens
CHUNK = 1 << 20  # bytes that travel in one chunk
HEADER_ROOM = 1 << 20  # what a message may have beside its tensor
MINUTE = 60.0
SHORTEST_SILENCE = 15.0  # seconds; a server says three times as often that it is there


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """deadline: seconds that a call may take (FLAGS_rpc_deadline, in ms there). retry_times: how often a call is repeated
    when the connection breaks (FLAGS_rpc_retry_times). streaming: use what is faster than Paddle's calls where both sides
    have it (FLUIDTOOL_RPC=compatible switches that off). sockets: that is a socket, or else a stream of gRPC
    (FLUIDTOOL_RPC=stream). silence: seconds without a byte on a socket after which a client that waits tries another one, and
    after which a machine that has vanished is noticed, if that is less than the deadline.
    threads: how many calls a server answers at a time; calls by gRPC that wait for the round take one each.
    first_step: the step that a client starts in (FLUIDTOOL_RESUME_STEP).
    caller_bytes, all_bytes: how much of messages a server holds at a time, of one caller and of all; twice that, as
    streams have room of their own.
    replicas: by the endpoint of a server, that of its second copy (FLUIDTOOL_REPLICAS).
    """

    deadline: float = 180.0
    retry_times: int = 3
    streaming: bool = True
    sockets: bool = True
    silence: float = MINUTE
    threads: int = 4096
    first_step: int = 0
    caller_bytes: int = 2 * LARGEST_INT
    all_bytes: int = 8 * LARGEST_INT
    limits: Limits = field(default_factory=Limits)
    security: Security = field(default_factory=Security)
    replicas: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> TransportOptions:
        """As the environment variables say; raises UsageError for one that is no number."""
        deadline = _number(environment, "FLAGS_rpc_deadline", 180_000) / 1000
        return cls(
            deadline=deadline,
            retry_times=_number(environment, "FLAGS_rpc_retry_times", 3),
            streaming=environment.get("FLUIDTOOL_RPC", "") != "compatible",
            sockets=environment.get("FLUIDTOOL_RPC", "") != "stream",
            silence=min(max(deadline / 3, SHORTEST_SILENCE), MINUTE),
            first_step=_number(environment, "FLUIDTOOL_RESUME_STEP", 0),
            security=Security.from_environment(environment),
            replicas=_replicas(environment.get(REPLICAS, "")),
        )


def _replicas(text: str) -> dict[str, str]:
    """ "HOST:PORT=HOST:PORT,…" """
    pairs = [pair.split("=") for pair in text.split(",") if pair]
    if any(len(pair) != 2 for pair in pairs):
        raise UsageError(f"{REPLICAS} must be a list of HOST:PORT=HOST:PORT, found {text!r}")
    return {endpoint: other for endpoint, other in pairs}


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "") or str(default)
    if not text.isdecimal():
        raise UsageError(f"{name} must be a number of at least 0, found {text!r}")
    return int(text)


def load_grpc() -> Any:
    """The package grpcio, imported; raises DeviceError with the way to install it."""
    try:
        import grpc
    except ImportError as error:
        raise DeviceError(
            "roles on a network need gRPC, but grpcio is not installed; install it with: pip install 'fluidtool[dist]'"
        ) from error
    return grpc
