"""Data parallelism: one program on several devices, one thread per device; the optimizer runs once on summed gradients."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from fluidtool.distribute.collective.buckets import Sums, bucket_bytes
from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.engines import deadline_seconds, joins_graphs
from fluidtool.errors import FeedError, FetchError
from fluidtool.ir import Operator, Program
from fluidtool.ir.collectives import uses_rings
from fluidtool.ops.control_flow.readers import EndOfDataError
from fluidtool.runtime.batches import split_batch, sum_over_devices
from fluidtool.runtime.executor import Executor, Observer, communicators_of
from fluidtool.runtime.phases import Phase, all_gradients, split_phases
from fluidtool.runtime.scope import Scope
from fluidtool.runtime.trainers import IDENTIFIER, Trainers, TrainerSettings
from fluidtool.runtime.transfer import CopiedVariable
from fluidtool.tensor import CUDAPlace, LoDTensor, Place, SelectedRows

if TYPE_CHECKING:
    from fluidtool.runtime.communicators import Communicators

Values = dict[str, Any]
DEVICES = -2  # the ring of the GPUs of one process; those of programs start at 0


class ParallelRunner:
    """Runs a program at several places; parameters are shared, variables that forward operators keep are per device.

    loss_gradient: the gradient of the loss on every device (1/devices makes the update use the mean of the
    devices' gradients); None: it is fed. `scopes` of another runner share its variables.
    shares_variables: what forward operators keep is shared, too, and the devices take turns (one count of all samples).
    trainers: other processes that train the same program; gradients are summed over them, too.
    """

    def __init__(
        self,
        program: Program,
        places: Sequence[Place],
        scope: Scope,
        loss_gradient: float | None,
        *,
        make_executor: Callable[[Place], Executor] = Executor,
        scopes: Sequence[Scope] = (),
        trainers: TrainerSettings | None = None,
        shares_variables: bool = False,
    ) -> None:
        self.program, self.loss_gradient = program, loss_gradient
        self._shares = shares_variables
        self.executors = [make_executor(place) for place in places]
        self.generators = [executor.new_generator(program) for executor in self.executors]
        self.scopes = list(scopes) or [scope, *(Scope(scope) for _ in places[1:])]
        self._phases: dict[tuple[int, frozenset[str]], list[Phase]] = {}
        self._sums_itself = uses_rings(program)
        self._trainers = None if trainers is None else self._join(trainers)
        self._ends: list[Communicator] | None = None
        self._rings = self._device_rings() if self._sums_itself else [None] * len(places)

    def split(self, feed: Mapping[str, Any], partial: bool) -> list[Values]:
        """The feed of each device; `partial` allows batches with too few samples, for which fewer devices run."""
        count = len(self.executors)
        shares: dict[str, list[Any]] = {}
        for name, value in feed.items():
            tensor = value if isinstance(value, LoDTensor) else LoDTensor(self.executors[0].device.array(value))
            pieces = split_batch(tensor, count) if tensor.shape() else [tensor]
            if len(pieces) < count and not partial and not self._for_all(name, pieces):
                kind = "CPU" if self.executors[0].device.name == "numpy" else "GPU"
                raise FeedError(
                    f"The number({len(pieces)}) of samples[{name}] of current batch is less than the count({count}) of "
                    f"devices({kind}), currently, it is not allowed: feed at least one sample per device, or use "
                    "fewer devices (the environment variable CPU_NUM)"
                )
            shares[name] = pieces
        reached = max(
            (len(pieces) for name, pieces in shares.items() if not self._for_all(name, pieces)), default=count
        )
        shares = {name: pieces * reached if self._for_all(name, pieces) else pieces for name, pieces in shares.items()}
        if len({len(pieces) for pieces in shares.values()}) > 1:
            found = ", ".join(f"{name}: {len(pieces)}" for name, pieces in shares.items())
            raise FeedError(f"all fed values must split over the same number of devices, found {found}")
        devices = len(next(iter(shares.values()))) if shares else count
        return [{name: pieces[i] for name, pieces in shares.items()} for i in range(devices)]

    def _for_all(self, name: str, pieces: Sequence[Any]) -> bool:
        """Whether a fed value is every device's: one that persists and cannot be divided."""
        return len(pieces) == 1 and self._persists(name)

    def _persists(self, name: str) -> bool:
        var = self.program.global_block().vars.get(name)
        return var is not None and var.persistable

    def run(
        self, feeds: Sequence[Mapping[str, Any]], fetches: Sequence[str], observer: Observer | None = None
    ) -> list[list[Any]]:
        """Run once, on one device per feed; returns for each fetch the devices' values, in order."""
        phases = self.phases(fetches)
        if self._trainers is None:
            return self._run(phases, feeds, fetches, observer)
        self._trainers.agree(self.program, phases)
        try:
            return self._run(phases, feeds, fetches, observer)
        except BaseException as error:
            self._trainers.abort(f"another trainer failed: {error}")
            raise

    def _run(
        self,
        phases: Sequence[Phase],
        feeds: Sequence[Mapping[str, Any]],
        fetches: Sequence[str],
        observer: Observer | None,
    ) -> list[list[Any]]:
        shared = any(phase.once for phase in phases)
        values: list[Values] = [self._temporaries(i, feed, shared) for i, feed in enumerate(feeds)]
        with ThreadPoolExecutor(max_workers=1 if self._takes_turns() else len(feeds)) as pool:
            for phase in phases:
                if phase.once:
                    result = self._run_phase(phase, 0, values[0], observer)
                    for own in values:
                        own.update(result)
                    continue
                futures = [pool.submit(self._run_phase, phase, i, own, observer) for i, own in enumerate(values)]
                values = values[: self._reached(futures, shared)]
                for own in values:
                    own.update(
                        futures.pop(0).result()
                    )  # kept, a future would keep its error, and so all callers' frames
                self._reduce(phase, values)
        return [[self._fetch(name, i, own) for i, own in enumerate(values)] for name in fetches]

    def _reached(self, futures: Sequence[Future[Values]], shared: bool) -> int:
        """How many devices get batches of a reader: all, or fewer in inference if no batch may be dropped."""
        keeps_last = not shared and any(not op.get_attr("drop_last", True) for op in self._reads())
        ended = [isinstance(future.exception(), EndOfDataError) for future in futures] if keeps_last else []
        return ended.index(True) if True in ended[1:] and not ended[0] else len(futures)

    def _takes_turns(self) -> bool:
        """Devices that share a reader, or variables that they write, run in sequence: in order, and no update is lost."""
        return self._shares or bool(self._reads())

    def _reads(self) -> list[Operator]:
        return [op for op in self.program.global_block().ops if op.type == "read"]

    def phases(self, fetches: Sequence[str]) -> list[Phase]:
        """The phases for these fetches; per-device variables are created on first use."""
        key = (self.program.mutation, frozenset(fetches))
        phases = self._phases.get(key)
        if phases is None:
            self._phases = {k: v for k, v in self._phases.items() if k[0] == self.program.mutation}
            wanted = set(fetches) if self._trainers is None else {*fetches, *all_gradients(self.program)}
            phases = self._phases[key] = split_phases(self.program, wanted, self.loss_gradient)
        self._give_variables(phases)
        return phases

    def broadcast(self) -> None:
        """Overwrite the per-device variables with those of the first device."""
        for scope in self.scopes[1:]:
            scope.erase(scope.local_var_names())
        for phases in self._phases.values():
            self._give_variables(phases)

    def _give_variables(self, phases: Sequence[Phase]) -> None:
        """Give every device the variables that its operators keep, and those of the first that another GPU cannot read."""
        for phase in phases:
            if not phase.once:
                self._give_own(phase.keeps)
                self._give_copies(phase.reads)

    def _give_copies(self, names: Sequence[str]) -> None:
        first = self.executors[0]
        for executor, scope in zip(self.executors[1:], self.scopes[1:], strict=True):
            if executor.place != first.place:
                for name in names:
                    if scope.find_local_var(name) is None:
                        scope.hold(
                            CopiedVariable(self.scopes[0].find_var(name) or self.scopes[0].var(name), executor.device)
                        )

    def _give_own(self, names: Sequence[str]) -> None:
        for name in [] if self._shares else names:
            source = self.scopes[0].find_var(name)
            for scope in self.scopes[1:]:
                if source is not None and not _has_own(scope, name):
                    scope.var(name).value = _copy(source.value)

    def _run_phase(self, phase: Phase, device: int, values: Values, observer: Observer | None) -> Values:
        feed = {name: value for name, value in values.items() if value is not None and name in phase.takes}
        found = self.executors[device].run(
            phase.program,
            feed,
            phase.gives,
            self.scopes[device],
            optional=phase.gives,
            observer=observer,
            generator=self.generators[device],
            communicators=self._rings[device],
        )
        return dict(zip(phase.gives, found, strict=True))

    def _temporaries(self, device: int, feed: Mapping[str, Any], shared: bool) -> Values:
        """The feed without persistable variables: those go into the device's scope.

        shared: operators that run once write what all devices read; other devices then keep only their per-device variables.
        """
        persistable = {var.name for var in self.program.global_block().vars.values() if var.persistable}
        scope, array = self.scopes[device], self.executors[device].device.array
        for name in persistable & feed.keys():
            if device == 0 or not shared or _has_own(scope, name):
                value = feed[name]
                is_tensor = isinstance(value, LoDTensor)
                scope.var(name).value = LoDTensor(
                    array(value.array if is_tensor else value), value.lod() if is_tensor else None
                )
        return {name: value for name, value in feed.items() if name not in persistable}

    def _reduce(self, phase: Phase, values: list[Values]) -> None:
        if self._sums_itself:
            return
        for name in () if self._sum_beside(phase.gradients, values) else phase.gradients:
            parts = [own[name] for own in values if own.get(name) is not None]
            if len(parts) > 1:
                total = sum_over_devices(parts, self.executors[0].device)
                for own in values:
                    own[name] = total
        if self._trainers is not None and phase.gradients:
            summed = self._trainers.sum_gradients(phase.gradients, [values[0].get(name) for name in phase.gradients])
            for own in values:
                own.update(zip(phase.gradients, summed, strict=True))

    def _sum_beside(self, names: Sequence[str], values: list[Values]) -> bool:
        """Sum gradients by NCCL, a thread for each GPU; False if they are not all floats on GPUs that it joins."""
        parts: list[list[Any]] = [[own.get(name) for name in names] for own in values]
        dense = all(isinstance(part, LoDTensor) and part.array.dtype == "float32" for own in parts for part in own)
        ends = self._nccl_ends() if names and len(values) > 1 and dense else []
        if not ends:
            return False
        size = bucket_bytes(os.environ)

        def sums(device: int) -> list[Any]:
            with self.executors[device].device.active():
                return Sums(ends[device], size).of([part.array for part in parts[device]])

        with ThreadPoolExecutor(max_workers=len(values)) as pool:
            found = list(pool.map(sums, range(len(values))))
        for own, given, arrays in zip(values, parts, found, strict=True):
            for name, part, array in zip(names, given, arrays, strict=True):
                own[name] = LoDTensor(array, part.offsets)
        return True

    def _nccl_ends(self) -> list[Communicator]:
        """The ends of a ring of all GPUs, joined once; none unless each place is one of its own, with FLUIDTOOL_NCCL=1."""
        if self._ends is None:
            self._ends = self._joined_gpus()
        return self._ends

    def _joined_gpus(self) -> list[Communicator]:
        devices = [each.place.device_id for each in self.executors if isinstance(each.place, CUDAPlace)]
        engine = self.executors[0].engine
        if len(set(devices)) < len(self.executors) or engine is None or engine.step_compiler is None:
            return []
        if not joins_graphs(os.environ):
            return []
        if not self.executors[0].device.xp.cuda.nccl.available:
            return []
        from fluidtool.distribute.collective.nccl import NcclCommunicator

        return list(NcclCommunicator.of_devices(devices, DEVICES, deadline_seconds(os.environ)))

    # ---------------------------------------------------------------- other ranks
    def _join(self, settings: TrainerSettings) -> Trainers:
        executor, scope = self.executors[0], self.scopes[0]
        holder = scope.find_var(IDENTIFIER)
        joined = communicators_of(scope, executor.place, executor.policy).join_trainers(
            None if holder is None else holder.value, settings.trainer_id, settings.number
        )
        trainers = Trainers(joined, settings, executor.device)
        trainers.start_alike(self.program, scope)
        return trainers

    def _device_rings(self) -> list[Communicators | None]:
        """The rings for each device's run, if the program sums its gradients itself."""
        places, executor = [each.place for each in self.executors], self.executors[0]
        if len(places) == 1:
            return [None]
        return list(communicators_of(self.scopes[0], executor.place, executor.policy).for_devices(places))

    def _fetch(self, name: str, device: int, values: Values) -> Any:
        if values.get(name) is not None and not (self._shares and self._persists(name)):
            return values[name]
        holder = self.scopes[device].find_var(name)
        if holder is None or holder.value is None:
            raise FetchError(
                f"Cannot find fetched variable({name}) in current computation graph: no operator computes it and it is "
                "not in the scope; name a variable that an operator of the main program writes"
            )
        return _copy(holder.value)


def _has_own(scope: Scope, name: str) -> bool:
    """Whether a device's scope has a variable of its own, rather than a copy of the first device's."""
    found = scope.find_local_var(name)
    return found is not None and not (isinstance(found, CopiedVariable) and found.is_copy)


def _copy(value: Any) -> Any:
    if isinstance(value, LoDTensor):
        return LoDTensor(None if value.array is None else value.array.copy(), value.lod())
    if isinstance(value, SelectedRows):
        return SelectedRows(value.row_ids, value.table_height, value.value)
    return value
