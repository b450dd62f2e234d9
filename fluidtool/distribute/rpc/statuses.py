"""What errors are as statuses of gRPC, and the other way round."""

from __future__ import annotations

from fluidtool.distribute.rpc.handler import BothLost, Gone, Late, LeftOut, NotFound, Refused, RemoteError, Superseded
from fluidtool.errors import FluidError

OK, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, PERMISSION_DENIED = 0, 3, 4, 5, 7
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, UNIMPLEMENTED, INTERNAL = 8, 9, 10, 12, 13
UNAVAILABLE, UNAUTHENTICATED = 14, 16

_ERRORS: dict[int, type[RemoteError]] = {
    INVALID_ARGUMENT: Refused,
    DEADLINE_EXCEEDED: Late,
    NOT_FOUND: NotFound,
    PERMISSION_DENIED: Refused,
    RESOURCE_EXHAUSTED: Refused,
    FAILED_PRECONDITION: Gone,
    ABORTED: LeftOut,
    UNAVAILABLE: Gone,
    UNAUTHENTICATED: Refused,
}
_STATUSES = (
    (NotFound, NOT_FOUND),
    (Refused, INVALID_ARGUMENT),
    ((Gone, Superseded, BothLost), FAILED_PRECONDITION),
    (LeftOut, ABORTED),
    (Late, DEADLINE_EXCEEDED),
)


def status_of(error: FluidError) -> int:
    """The status that tells a peer of the error."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), INTERNAL)


def error_of(status: int, text: str) -> RemoteError:
    """The error that a status tells of."""
    return _ERRORS.get(status, RemoteError)(text)
