"""What a parameter server is to the transport: a Handler, which answers messages or refuses them.

The transport calls a handler on threads of its own, several at once. A call that brings `again` must not wait for the round:
it raises Waits instead, changes nothing, and calls `again` when it is worth making the same call again. Any other may block
until the round allows it. Whatever blocks must look at `Call.is_active()` now and then (a condition waited for with a
timeout): a trainer that is gone must not hold a thread forever.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from fluidtool.errors import EXIT_SUPERSEDED, EXIT_UNREADABLE, FluidError
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor, SelectedRows

Value = LoDTensor | SelectedRows
NUMBERED = 1 << 32  # more than any count of fetch barriers
TERM = 1 << 40  # of an elastic job: a trainer's term times this, and its step, make the sequence of a call


class RemoteError(FluidError, ConnectionError):
    """A message that was refused, or a peer that did not answer. Each kind is one status of gRPC."""

    code = "FT800"
    exit_code = EXIT_UNREADABLE


class NotFound(RemoteError):
    """The server keeps no variable of that name (NOT_FOUND)."""

    code = "FT801"


class Refused(RemoteError):
    """The server does not take the message: a wrong shape, data type, step or trainer (INVALID_ARGUMENT)."""

    code = "FT802"


class Gone(RemoteError):
    """The job cannot go on: a peer died, or the server stops (FAILED_PRECONDITION, UNAVAILABLE)."""

    code = "FT803"


class Late(RemoteError):
    """A deadline passed while waiting for the others (DEADLINE_EXCEEDED)."""

    code = "FT804"


class LeftOut(RemoteError):
    """The round goes on without this trainer, which may join again (ABORTED)."""

    code = "FT805"


class Superseded(RemoteError):
    """Another copy of this server serves in its place (FAILED_PRECONDITION)."""

    code = "FT806"
    exit_code = EXIT_SUPERSEDED


class BothLost(RemoteError):
    """Neither copy of a server is left (FAILED_PRECONDITION)."""

    code = "FT807"


class Waits(Exception):
    """A call cannot be answered yet. give_up: tells the handler that nobody will make it again."""

    def __init__(self, give_up: Callable[[], object]) -> None:
        super().__init__("a call cannot be answered yet")
        self.give_up = give_up


class Barrier(Enum):
    """The two barriers of a round; the values are the names on the wire."""

    SEND = "BATCH_BARRIER@RECV"
    FETCH = "FETCH_BARRIER@RECV"


class Message(NamedTuple):
    """One message about a variable (a tuple, as it is made for each message, and a frozen record takes twice as long to make).

    value: None where there is none (a request); bytes for an identifier of NCCL. out_name: under which name the answer is
    stored, and the folder of a checkpoint. table_name: the slice of a table that ids are looked up in. trainer_id: what
    the message says (0 also where it says nothing; a barrier of Paddle's says nothing).
    Arrays that come from the wire are read-only views of what was received.
    """

    name: str
    value: Value | bytes | None = None
    out_name: str = ""
    table_name: str = ""
    trainer_id: int = 0
    profile: int = 0


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Call:
    """Who calls. trainer_id and sequence are None where the peer is not fluidtool (Paddle does not tell them).

    sequence: the step that the trainer is in. Its startup fetch is step 0 (or the step that it resumed from), and each of
    its fetch barriers ends a step. A trainer of an asynchronous job that numbers its updates counts from NUMBERED; others
    there end no steps. A call that a client repeats after a broken connection never reaches the handler
    twice: the transport drops it. again: see the module.
    """

    trainer_id: int | None = None
    sequence: int | None = None
    peer: str = ""
    active: Callable[[], bool] = _always
    again: Callable[[], object] | None = None

    @property
    def update_step(self) -> int | None:
        """The step, from 1, of a trainer that numbers its updates."""
        return None if self.sequence is None or self.sequence < NUMBERED else self.sequence - NUMBERED

    @property
    def term(self) -> int:
        """Of an elastic job: which time of taking part this is, among those of all trainers; 0 before a trainer has joined."""
        return 0 if self.sequence is None else self.sequence // TERM

    @property
    def round(self) -> int:
        """Of an elastic job: the step that the trainer is in."""
        return 0 if self.sequence is None else self.sequence % TERM

    def is_active(self) -> bool:
        """Whether the peer still waits for the answer."""
        return self.active()


class Handler(Protocol):
    """A server's answers. Refusals are raised: NotFound, Refused, Gone, Late."""

    def send(self, message: Message, call: Call) -> None:
        """A gradient came (SendVariable). May block until the round takes gradients."""

    def barrier(self, kind: Barrier, call: Call) -> None:
        """A trainer has sent everything (SEND), or fetched everything (FETCH)."""

    def complete(self, trainer_id: int, call: Call) -> None:
        """A trainer is finished (COMPLETE)."""

    def get(self, request: Message, call: Call) -> Value:
        """The variable `request.name` (GetVariable). May block until the round gives parameters."""

    def get_without_barrier(self, request: Message, call: Call) -> Value:
        """The variable as it stands now (GetVariableNoBarrier)."""

    def prefetch(self, request: Message, call: Call) -> Value:
        """The rows of a table that the ids in `request.value` name (PrefetchVariable)."""

    def checkpoint(self, request: Message, call: Call) -> None:
        """Save the lookup table below the folder `request.out_name` (CheckpointNotify)."""

    def notify(self, message: Message, call: Call) -> None:
        """Steps of a trainer came (DistributeNotify): the counter of the learning rate."""
