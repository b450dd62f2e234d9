"""What the user decides about a job with parameter servers."""

from __future__ import annotations

from enum import IntEnum

from fluidtool.distribute.dispatchers import PSDispatcher, RoundRobin
from fluidtool.distribute.sharding import SMALLEST_BLOCK
from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.records import dataclass


class DistributedMode(IntEnum):
    """How a server treats gradients (attribute distributed_mode of listen_and_serv, Paddle 1.7+)."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3


@dataclass(frozen=True, slots=True)
class Threads:
    """How many threads a server uses for each kind of request."""

    send: int = 12
    get: int = 12
    prefetch: int = 12


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of a transpilation for parameter servers. Raises UsageError where they contradict each other."""

    trainer_id: int
    trainers: int
    servers: tuple[str, ...]
    sync: bool = True
    slice_variables: bool = True
    min_block_size: int = SMALLEST_BLOCK
    dispatcher: type[PSDispatcher] = RoundRobin
    runtime_split: bool = False
    half_async: bool = False
    completely_not_async: bool = False
    dc_asgd: bool = False
    geo: bool = False
    current_endpoint: str = ""
    threads: Threads = Threads()

    def __post_init__(self) -> None:
        check_trainers(self.trainer_id, self.trainers)
        check_min_block_size(self.min_block_size)
        check_dispatcher(self.dispatcher)
        if self.dc_asgd and self.sync:
            raise UsageError("enable_dc_asgd works in asynchronous mode only; transpile with sync_mode=False")
        if self.runtime_split and self.sync:
            raise UsageError(
                "runtime_split_send_recv works in asynchronous mode only; transpile with sync_mode=False, or turn "
                "it off"
            )

    @property
    def merges(self) -> bool:
        """Whether a server waits for a gradient of every trainer and takes their mean."""
        return self.trainers > 1 and (self.sync or self.completely_not_async)

    @property
    def names_trainers(self) -> bool:
        """Whether the gradients of a trainer carry its number in their names."""
        return self.trainers > 1 and self.sync

    @property
    def distributed_mode(self) -> DistributedMode:
        """The mode of the servers; it follows the sync_mode that the trainers were transpiled with."""
        if self.geo:
            return DistributedMode.GEO
        if self.sync or self.completely_not_async:
            return DistributedMode.SYNC
        return DistributedMode.ASYNC if self.runtime_split else DistributedMode.HALF_ASYNC

    @property
    def cuts(self) -> int:
        """The most shards that a variable is cut into."""
        return len(self.servers) if self.slice_variables or self.geo else 1


def check_trainers(trainer_id: object, trainers: object) -> None:
    """Raises ArgumentTypeError or UsageError unless 0 <= trainer_id < trainers."""
    for name, value in (("trainer_id", trainer_id), ("trainers", trainers)):
        if not isinstance(value, int) or isinstance(value, bool):
            hint = "; for trainers by endpoint set config.mode to 'nccl2' or 'collective'" if name == "trainers" else ""
            raise ArgumentTypeError(
                f"{name} takes a number in pserver mode, found {type(value).__name__}: {value!r}{hint}"
            )
    assert isinstance(trainer_id, int) and isinstance(trainers, int)
    if trainers < 1:
        raise UsageError(f"trainers must be at least 1, found {trainers}")
    if not 0 <= trainer_id < trainers:
        raise UsageError(f"trainer_id must be between 0 and {trainers - 1} for {trainers} trainers, found {trainer_id}")


def check_min_block_size(size: object) -> None:
    """Raises ArgumentTypeError for what is not a number, AssertedError for a size below Paddle's least."""
    message = f"min_block_size must be a number of elements of at least {SMALLEST_BLOCK}, found {size!r}"
    if not isinstance(size, (int, float)):
        raise ArgumentTypeError(message)
    if not isinstance(size, int) or size < SMALLEST_BLOCK:
        raise AssertedError(message)


def check_dispatcher(dispatcher: object) -> None:
    """Raises ArgumentTypeError unless it is a rule of placement."""
    if not (isinstance(dispatcher, type) and issubclass(dispatcher, PSDispatcher) and dispatcher is not PSDispatcher):
        raise ArgumentTypeError(
            f"split_method takes RoundRobin, HashName or another class derived from PSDispatcher, found {dispatcher!r}"
        )
