"""Engines: how the processes of a job find each other and join rings. FLUIDTOOL_COLLECTIVE names one, or 'auto'."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Protocol

from fluidtool.distribute.collective.communicator import DEADLINE_SECONDS, Communicator
from fluidtool.distribute.collective.mpi import MpiCommunicator, is_started_by_mpi
from fluidtool.distribute.collective.threads import thread_communicators
from fluidtool.errors import UsageError
from fluidtool.records import dataclass
from fluidtool.tensor import CUDAPlace, Place

AUTO, GRPC, MPI, NCCL = "auto", "grpc", "mpi", "nccl"
ENGINE, DEADLINE = "FLUIDTOOL_COLLECTIVE", "FLUIDTOOL_COLLECTIVE_DEADLINE"
GRAPHS = "FLUIDTOOL_NCCL"


@dataclass(frozen=True, slots=True)
class Identifier:
    """What names a ring, the same on every rank: 128 bytes of NCCL, or of chance; endpoints: of all ranks, in order."""

    data: bytes
    endpoints: tuple[str, ...]


class Engine(Protocol):
    """One way to connect processes."""

    is_networked: bool

    def identify(self, name: str, endpoints: tuple[str, ...], rank: int) -> Identifier:
        """Agree with the other ranks on an identifier, which the variable `name` holds."""

    def join(self, identifier: Identifier, ring: int, rank: int, size: int) -> Communicator:
        """Join a ring; every rank does."""

    def close(self) -> None:
        """Let go of connections."""


class MpiEngine:
    """Processes that mpiexec started: MPI knows them all, endpoints are not used."""

    is_networked = False

    def __init__(self, seconds: float = DEADLINE_SECONDS) -> None:
        self._seconds = seconds

    def identify(self, name: str, endpoints: tuple[str, ...], rank: int) -> Identifier:
        """Nothing to agree on."""
        return Identifier(b"", endpoints)

    def join(self, identifier: Identifier, ring: int, rank: int, size: int) -> Communicator:
        """A communicator of all processes."""
        return MpiCommunicator(rank, size, ring, self._seconds)

    def close(self) -> None:
        """Nothing to let go of."""


class ThreadWorld:
    """Ranks that are threads of this process: what an engine of each has in common."""

    def __init__(self, size: int, seconds: float = DEADLINE_SECONDS) -> None:
        self.size, self.seconds = size, seconds
        self._rings: dict[int, list[Communicator]] = {}

    def ring(self, ring: int, rank: int) -> Communicator:
        """One rank's end of a ring, made for all when the first asks."""
        return self._rings.setdefault(ring, thread_communicators(self.size, ring, self.seconds))[rank]

    def abort(self, reason: str) -> None:
        """Fail in every thread, on every ring."""
        for ends in self._rings.values():
            ends[0].abort(reason)


class ThreadEngine:
    """One thread's way into a ThreadWorld."""

    is_networked = False

    def __init__(self, world: ThreadWorld) -> None:
        self._world = world

    def identify(self, name: str, endpoints: tuple[str, ...], rank: int) -> Identifier:
        """Nothing to agree on."""
        return Identifier(b"", endpoints)

    def join(self, identifier: Identifier, ring: int, rank: int, size: int) -> Communicator:
        """The rank's end; raises UsageError for another number of ranks."""
        if size != self._world.size:
            raise UsageError(f"the program is for {size} ranks, but there are {self._world.size} threads")
        return self._world.ring(ring, rank)

    def close(self) -> None:
        """Nothing to let go of."""


def single(ring: int) -> Communicator:
    """A ring of one."""
    return thread_communicators(1, ring)[0]


def engine_name(place: Place, environment: Mapping[str, str]) -> str:
    """NCCL for a GPU, MPI for what mpiexec started, else messages over gRPC; raises UsageError for an unknown name."""
    named = environment.get(ENGINE, AUTO)
    if named not in (AUTO, GRPC, MPI, NCCL):
        raise UsageError(f"{ENGINE} must be one of {AUTO}, {GRPC}, {MPI}, {NCCL}, found {named!r}")
    if named == NCCL and not isinstance(place, CUDAPlace):
        raise UsageError(f"{ENGINE} is {NCCL}, which needs GPUs, but this program runs on the CPU")
    if named != AUTO:
        return named
    if isinstance(place, CUDAPlace):
        return NCCL
    return MPI if is_started_by_mpi(environment) and find_spec("mpi4py") else GRPC


def joins_graphs(environment: Mapping[str, str]) -> bool:
    """Whether graphs of several GPUs work together, with sums by NCCL within them or in buckets between them (FLUIDTOOL_NCCL=1).

    Otherwise programs of several GPUs run there one operator at a time: nobody has run the graphs on real ones.
    """
    return environment.get(GRAPHS, "0") not in ("", "0")


def deadline_seconds(environment: Mapping[str, str]) -> float:
    """How long a rank waits for the others; raises UsageError for what is no positive number."""
    text = environment.get(DEADLINE)
    if text is None:
        return DEADLINE_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{DEADLINE} must be a number of seconds above 0, found {text!r}")
    return seconds
