"""The rings that programs of one scope have joined: ring_id -> communicator. Operators reach them through their run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from fluidtool import locks
from fluidtool.distribute.collective.buckets import Background, Listener, Sums, bucket_bytes, overlaps
from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.compression import COMPRESSION, compression_of
from fluidtool.distribute.collective.engines import (
    GRPC,
    MPI,
    Engine,
    Identifier,
    MpiEngine,
    deadline_seconds,
    engine_name,
    single,
)
from fluidtool.distribute.collective.order import check_order
from fluidtool.distribute.collective.threads import thread_communicators
from fluidtool.distribute.environment import role_from_environment
from fluidtool.errors import CollectiveError, ProgramError, UsageError
from fluidtool.ir import Operator, Program
from fluidtool.ir.collectives import collective_lines, may_wait, ring_number
from fluidtool.runtime.policy import Policy
from fluidtool.shapes import shape_text
from fluidtool.tensor import CUDAPlace, Place

TRAINERS = -1  # the ring of ParallelExecutor(num_trainers, trainer_id); those of programs start at 0


class Communicators:
    """Rings by number, joined by operators of a startup program and used by all programs of the scope.

    make_engine: how processes are connected; by default chosen by the place and the environment, on first use.
    """

    def __init__(
        self, place: Place, policy: Policy | None = None, make_engine: Callable[[], Engine] | None = None
    ) -> None:
        self._place, self._policy = place, Policy() if policy is None else policy
        self._make_engine = make_engine or self._engine_of_environment
        self._engine: Engine | None = None
        self._lock = locks.lock()  # held while the engine is created
        self._rings: dict[int, Communicator] = {}
        self._device_rings: set[int] = set()
        self._waiting: dict[int, list[Any]] = {}
        self._sums: dict[int, Sums] = {}
        self._background: Background | None = None
        self.listener: Listener | None = None  # is told when sums of gradients run
        self._may_wait: WeakKeyDictionary[Program, dict[tuple[int, int], bool]] = WeakKeyDictionary()
        self._programs: WeakKeyDictionary[Program, tuple[int, set[int]]] = WeakKeyDictionary()

    @property
    def engine(self) -> Engine:
        """What connects the processes; raises UsageError or DeviceError if it is not available."""
        with self._lock:
            if self._engine is None:
                self._engine = self._make_engine()
            return self._engine

    # ---------------------------------------------------------------- joining
    def identify(self, op: Operator, name: str, endpoints: Sequence[str], rank: int) -> Identifier:
        """Agree with the other ranks, if there are any, on an identifier; raises PolicyError for endpoints not allowed."""
        if len(endpoints) == 1:
            return Identifier(b"", tuple(endpoints))
        if self.engine.is_networked:
            for endpoint in endpoints:
                self._policy.endpoint(endpoint, op.type)
        return self.engine.identify(name, tuple(endpoints), rank)

    def join(self, op: Operator, identifier: Any, rank: int, size: int) -> None:
        """Join the operator's ring and wait for all ranks; an earlier ring of that number is left."""
        if not isinstance(identifier, Identifier):
            raise ProgramError(
                f"operator {op.type}: its input {op.input('X')[0]} is not the identifier of a ring; run c_gen_nccl_id first"
            )
        self._join(ring_number(op), identifier, rank, size)

    def join_devices(self, op: Operator) -> None:
        """The devices of this process form the ring: one device until several run a program at once."""
        ring = ring_number(op)
        self._device_rings.add(ring)
        self._rings[ring] = single(ring)

    def join_trainers(self, identifier: Any, rank: int, size: int) -> Communicator:
        """The ring of `size` trainers that run a ParallelExecutor.

        identifier: the result of gen_nccl_id in the startup program; None: endpoints come from the environment.
        """
        if not isinstance(identifier, Identifier):
            identifier = self._identifier_of_environment(rank, size)
        if identifier.endpoints and len(identifier.endpoints) != size:
            raise UsageError(
                f"num_trainers is {size}, but the program was transpiled for {len(identifier.endpoints)} trainers"
            )
        self._join(TRAINERS, identifier, rank, size)
        return self._rings[TRAINERS]

    def for_devices(self, places: Sequence[Place]) -> list[Communicators]:
        """One communicator per device of this process, for the rings of c_comm_init_all.

        Raises UsageError if the program also has rings between processes: those have one rank per process.
        """
        between = [ring for ring in self._rings if ring not in self._device_rings and ring != TRAINERS]
        if between:
            raise UsageError(
                f"ring {between[0]} has one rank per process, but {len(places)} devices would run its operators; use one device "
                "per process (the environment variable CPU_NUM), or ParallelExecutor(num_trainers=…)"
            )
        devices = [Communicators(place, self._policy) for place in places]
        for ring in sorted(self._device_rings):
            for own, end in zip(devices, _device_ring(ring, places), strict=True):
                own._rings[ring] = end
        return devices

    # ---------------------------------------------------------------- using
    def ring(self, op: Operator, array: Any = None) -> Communicator:
        """The communicator that a collective operator names.

        The first such operator of a program compares the order of all its collectives between the ranks; for operators
        whose shapes are known only at run time, `array` is compared, too. Raises CollectiveError if they differ,
        ProgramError for a ring that has not been joined.
        """
        communicator = self._checked(op, array)
        self._drain()
        return communicator

    def of_step(self, op: Operator) -> Communicator:
        """The communicator of an operator that is part of a training step; raises as `ring` does."""
        return self._checked(op, None)

    def _checked(self, op: Operator, array: Any) -> Communicator:
        number = ring_number(op)
        communicator = self._rings.get(number)
        if communicator is None:
            joined = ", ".join(map(str, sorted(self._rings))) or "none"
            raise ProgramError(
                f"operator {op.type} uses ring {number}, which has not been joined (joined: {joined}); "
                "first run the startup program that was transpiled with this program, in the same scope"
            )
        seen = self._check(op.block.program)
        if array is not None and not communicator.checks_arrays and (_is_open(op) or id(op) not in seen):
            seen.add(id(op))
            self._drain()
            described = f"{op.type} of {op.input_arg_names[0]} {shape_text(array.shape)} {array.dtype}"
            check_order(communicator, [described])
        return communicator

    def postpone(self, op: Operator, holder: Any, array: Any) -> bool:
        """Whether a sum may be deferred to the next c_sync_comm_stream of its ring, which then stores it in `holder`.

        Raises as `ring` does.
        """
        self._checked(op, array)
        found = self._may_wait.setdefault(op.block.program, {})
        key = (op.block.program.mutation, id(op))
        if key not in found:
            found[key] = may_wait(op)
        if found[key]:
            self._waiting.setdefault(ring_number(op), []).append(holder)
            self._sums_of(ring_number(op)).add(array)
        return found[key]

    def settle(self, op: Operator) -> None:
        """Take the deferred sums of the operator's ring, in buckets of FLAGS_fuse_parameter_memory_size MiB."""
        holders = self._waiting.pop(ring_number(op), [])
        if holders:
            for holder, array in zip(holders, self._sums_of(ring_number(op)).take(), strict=True):
                holder.set_tensor(array, holder.value.offsets)

    def abort(self, reason: str) -> None:
        """Make pending operations of the other ranks fail, on every ring."""
        self._waiting.clear()
        for sums in self._sums.values():
            sums.clear()
        for communicator in self._rings.values():
            communicator.abort(reason)

    def close(self) -> None:
        """Leave every ring."""
        if self._background is not None:
            self._background.close()
            self._background = None
        for communicator in self._rings.values():
            communicator.close()
        self._rings.clear()
        self._sums.clear()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # ---------------------------------------------------------------- inside
    def _sums_of(self, ring: int) -> Sums:
        if ring not in self._sums:
            if self._background is None and overlaps(os.environ) and self._rings[ring].allows_threads:
                self._background = Background()
            self._sums[ring] = Sums(
                self._rings[ring],
                bucket_bytes(os.environ),
                compression_of(os.environ),
                background=self._background,
                listener=self.listener,
            )
        return self._sums[ring]

    def _drain(self) -> None:
        """Wait for the sums that run beside: whatever comes next must reach the other ranks after them."""
        if self._background is not None:
            self._background.drain()

    def _check(self, program: Program) -> set[int]:
        mutation, seen = self._programs.get(program, (-1, set()))
        if mutation != program.mutation:
            seen = set()
            self._programs[program] = (program.mutation, seen)
            self._drain()
            self._compare(program)
        return seen

    def _compare(self, program: Program) -> None:
        """Rings of equal size are assumed to have the same ranks: then their relative order counts, too."""
        lines = collective_lines(program)
        compression = f"{COMPRESSION}={os.environ.get(COMPRESSION, 'none')}"
        if len({communicator.size for communicator in self._rings.values()}) == 1:
            check_order(self._rings[min(self._rings)], [*(line for _, line in lines), compression])
            return
        for ring in sorted({ring for ring, _ in lines} & self._rings.keys()):
            check_order(self._rings[ring], [*(line for number, line in lines if number == ring), compression])

    def _join(self, ring: int, identifier: Identifier, rank: int, size: int) -> None:
        before = self._rings.pop(ring, None)
        if before is not None:
            before.close()
        self._sums.pop(ring, None)
        self._rings[ring] = self.engine.join(identifier, ring, rank, size) if size > 1 else single(ring)

    def _engine_of_environment(self) -> Engine:
        name, seconds = engine_name(self._place, os.environ), deadline_seconds(os.environ)
        if name == MPI:
            return MpiEngine(seconds)
        from fluidtool.distribute.collective.network import GrpcEngine, NcclEngine

        return GrpcEngine(seconds) if name == GRPC else NcclEngine(seconds)

    def _identifier_of_environment(self, rank: int, size: int) -> Identifier:
        if not self.engine.is_networked:
            return Identifier(b"", ())
        endpoints = role_from_environment(os.environ).trainer_endpoints
        if len(endpoints) != size:
            raise CollectiveError(
                f"num_trainers is {size}, but the endpoints of the trainers are unknown: transpile with the mode nccl2 and run "
                f"the startup program first, or set PADDLE_TRAINER_ENDPOINTS to {size} endpoints"
            )
        return self.engine.identify("NCCLID", endpoints, rank)


def _device_ring(ring: int, places: Sequence[Place]) -> Sequence[Communicator]:
    """The ends of a ring of devices of this process, whichever of its GPUs they are."""
    gpus = [place.device_id for place in places if isinstance(place, CUDAPlace)]
    if gpus:
        from fluidtool.distribute.collective.nccl import NcclCommunicator

        return NcclCommunicator.of_devices(gpus, ring, deadline_seconds(os.environ))
    return thread_communicators(len(places), ring, deadline_seconds(os.environ))


def _is_open(op: Operator) -> bool:
    var = op.block.find_var_recursive(op.input_arg_names[0])
    return var is None or not var.shape or any(size < 0 for size in var.shape)
