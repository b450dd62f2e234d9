"""The observer that times a run: every operator, and within a region every kernel call."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from fluidtool import locks
from fluidtool.ir import Block, Operator
from fluidtool.passes.peak import Sizes
from fluidtool.profiling.work import NO_WORK, Work, array_of, operator_work, step_works
from fluidtool.records import dataclass
from fluidtool.runtime.bound_region import BoundRegion
from fluidtool.runtime.engines.base import MadeCall
from fluidtool.runtime.engines.native.allocator import lifetimes
from fluidtool.runtime.engines.native.preview import kernel_call_view
from fluidtool.runtime.engines.native.region import NativeRegion
from fluidtool.runtime.graph.ir import Graph
from fluidtool.runtime.step import BoundStep
from fluidtool.tensor import CUDAPlace, LoDTensor


@dataclass(frozen=True, slots=True)
class What:
    """What ran: operator, or kernel with what is fused into it; who ran it; its result.

    block, operator: the position of the operator in the program; of several that are fused, of the last one.
    """

    name: str
    kernel: str
    engine: str
    region: int | None
    result: str
    shape: tuple[int, ...]
    block: int | None = None
    operator: int | None = None


@dataclass(slots=True)
class Total:
    """What one item was, and all that it did in one run."""

    what: What
    times: int = 0
    work: Work = NO_WORK


@dataclass(frozen=True, slots=True)
class Event:
    """One span of time: seconds since the run began."""

    name: str
    engine: str
    thread: int
    start: float
    length: float
    shape: tuple[int, ...] = ()


class Recorder:
    """Give it to a run as observer, once. Items in the order in which they first ended.

    seconds: how long each item took, without what ran within it. All else is known where `details` are asked for: of many
    runs that do the same, one is enough.
    """

    whole_regions = True

    def __init__(self, feed: Mapping[str, Any], *, details: bool = True) -> None:
        self.details = details
        self.seconds: defaultdict[Hashable, float] = defaultdict(float)
        self.totals: dict[Hashable, Total] = {}
        self.events: list[Event] = []
        self.memory: list[tuple[Hashable, float, int]] = []
        self._alive = Sizes()
        for name, value in feed.items():
            self._alive.put(name, _size(value))
        self._regions = 0
        self._numbers: dict[Hashable, int] = {}
        self._engine = "native"
        self._threads: dict[int, int] = {}
        self._positions: dict[int, dict[int, int]] = {}
        self._lock = locks.lock()
        self._within = threading.local()
        self._origin = perf_counter()

    def __call__(self, step: Any, block: int) -> None:
        """Run a step of a plan."""
        if isinstance(step, BoundRegion):
            self._region(step, block)
        else:
            self._operator(step, block)

    # ---------------------------------------------------------------- operators
    def _operator(self, step: BoundStep, block: int) -> None:
        outer = getattr(self._within, "seconds", 0.0)
        self._within.seconds = 0.0
        start = perf_counter()
        step.run()
        step.context.runtime.device.wait()
        length = perf_counter() - start
        own = length - self._within.seconds
        self._within.seconds = outer + length
        with self._lock:
            self.seconds[block, id(step.context.op)] += own
            if self.details:
                self._describe(step, block, start, length)

    def _describe(self, step: BoundStep, block: int, start: float, length: float) -> None:
        """Keep what an operator did that has just run."""
        op, key = step.context.op, (block, id(step.context.op))
        engine = "cupy" if isinstance(step.context.place, CUDAPlace) else "numpy"
        result, shape = _result(step)
        where = (op.block.idx, self._position(op))
        self._add(key, What(op.type, "", engine, None, result, shape, *where), operator_work(step))
        self._event(op.type, engine, start, length, shape)
        if block == 0:
            for holders in step.context.outputs.values():
                for holder in holders:
                    if holder is not None and not _persists(op, holder.name):
                        self._alive.put(holder.name, _size(holder.value))
            self._remember(key, start, self._alive.total)
            self._forget(step.release)

    # ---------------------------------------------------------------- regions
    def _region(self, step: BoundRegion, block: int) -> None:
        outer = getattr(self._within, "seconds", 0.0)
        self._within.seconds = 0.0
        self._within.region, self._within.operators = None, [part.op for part in step.region.steps]
        self._within.which = id(step.region)
        start = perf_counter()
        step.run(self)
        length = perf_counter() - start
        within, self._within.seconds = self._within.seconds, outer + length
        number, self._within.region = self._within.region, None
        with self._lock:
            if number is not None:
                self.seconds["region", number] += length - within
            if number is not None and self.details:
                for name, holder in step.outputs.items() if block == 0 else ():
                    self._alive.put(name, 0 if holder is None else _size(holder.value))
                what = What(f"in and out of region {number}", "in and out", self._engine, number, "", ())
                self._add(("region", number), what, NO_WORK)
            self._forget(step.release)

    def kernel_calls(self, compiled: NativeRegion, seconds: NDArray[Any]) -> None:
        """The kernel calls of a region have run one after the other, and are over now."""
        end, took = perf_counter(), float(seconds.sum())
        with self._lock:
            self._regions += 1
            number = self._within.region = self._regions
            self._engine = "native"
            for position, own in zip(_items(compiled, len(seconds)), seconds.tolist(), strict=True):
                self.seconds[number, position] += own
            if self.details:
                self._describe_kernel_calls(number, compiled, seconds, end - took)
        self._within.seconds += took + perf_counter() - end  # what the profiler itself takes is nobody's

    def _describe_kernel_calls(self, number: int, compiled: NativeRegion, seconds: NDArray[Any], start: float) -> None:
        """Keep what the kernel calls of a region did."""
        alive = _alive_in_arena(compiled)
        outside = self._alive.total + sum(4 * value.floats for _, value, _ in compiled.outputs)
        self._event(f"region {number}", "native", start, float(seconds.sum()), ())
        works = step_works(compiled.kernel_calls)
        views = [kernel_call_view(kernel_call, compiled.library.width) for kernel_call in compiled.kernel_calls]
        producers = _producers(self._within.operators, [view.result for view in views])
        items = _items(compiled, len(views))
        for position, (item, shown, work, op) in enumerate(zip(items, views, works, producers, strict=True)):
            name = f"{shown.kernel} {shown.computes}" if not shown.result else shown.computes or shown.kernel
            where = (None, None) if op is None else (op.block.idx, self._position(op))
            what = What(name, shown.kernel, "native", number, shown.result, tuple(shown.shape), *where)
            own = float(seconds[position])
            self._add((number, item), what, work)
            self._event(name, "native", start, own, what.shape)
            self._remember((number, item), start, outside + alive[position])
            start += own

    def calls(self, engine: str, made: Sequence[MadeCall], seconds: Sequence[float]) -> None:
        """The calls of a region on a device have been made, one after the other, and are over now."""
        end, took = perf_counter(), sum(seconds)
        with self._lock:
            number = self._within.region = self._number(made)
            self._engine = engine
            for position, own in enumerate(seconds):
                self.seconds[number, position] += own
            if self.details:
                self._describe_calls(number, made, seconds, end - took)
        self._within.seconds += took + perf_counter() - end  # what the profiler itself takes is nobody's

    def _number(self, made: Sequence[MadeCall]) -> int:
        """The number of a region that makes these calls: the same in all steps of a loop that are alike."""
        key = self._within.which, tuple(made)
        if key not in self._numbers:
            self._regions += 1
            self._numbers[key] = self._regions
        return self._numbers[key]

    def _describe_calls(self, number: int, made: Sequence[MadeCall], seconds: Sequence[float], start: float) -> None:
        """Keep what the calls of a region did."""
        self._event(f"region {number}", self._engine, start, sum(seconds), ())
        producers = _producers(self._within.operators, [call.result for call in made])
        for position, (call, own, op) in enumerate(zip(made, seconds, producers, strict=True)):
            where = (None, None) if op is None else (op.block.idx, self._position(op))
            name = call.kind if op is None else f"{call.kind} {op.type}"
            what = What(name, call.kind, self._engine, number, call.result, tuple(call.shape), *where)
            self._add((number, position), what, Work(call.multiply_adds, 0))
            self._event(name, self._engine, start, own, what.shape)
            self._remember((number, position), start, self._alive.total)
            start += own

    def delegated(self, engine: str, graph: Graph, call: Callable[[], Any]) -> Any:
        """A region that another library computes: one item, whose work is that of all its computations."""
        start = perf_counter()
        result = call()
        length = perf_counter() - start
        with self._lock:
            self._regions += 1
            number = self._within.region = self._regions
            self._engine = engine
            self.seconds[number, 0] += length
            if self.details:
                self._describe_delegated(number, graph, start, length)
        self._within.seconds += length
        return result

    def _describe_delegated(self, number: int, graph: Graph, start: float, length: float) -> None:
        """Keep what a region did that another library computed."""
        name, outputs = f"region {number}", graph.outputs
        what = What(name, "region", self._engine, number, outputs[0].name, outputs[0].shape)
        self._add((number, 0), what, Work(sum(node.multiply_adds for node in graph.nodes), 0))
        self._event(name, self._engine, start, length, what.shape)
        self._remember((number, 0), start, self._alive.total + sum(4 * prod(v.shape) for v in outputs))

    # ---------------------------------------------------------------- what is kept
    def _position(self, op: Operator) -> int | None:
        """The place of an operator in its block; None for one that the runtime has added."""
        block: Block = op.block
        if block.idx not in self._positions:
            self._positions[block.idx] = {id(each): position for position, each in enumerate(block.ops)}
        return self._positions[block.idx].get(id(op))

    def _add(self, key: Hashable, what: What, work: Work) -> None:
        total = self.totals.setdefault(key, Total(what))
        total.times += 1
        total.work += work

    def _event(self, name: str, engine: str, start: float, length: float, shape: tuple[int, ...]) -> None:
        thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
        self.events.append(Event(name, engine, thread, start - self._origin, length, shape))

    def _remember(self, key: Hashable, start: float, alive: int) -> None:
        self.memory.append((key, start - self._origin, alive))

    def _forget(self, release: tuple[Any, ...]) -> None:
        for holder in release:
            self._alive.drop(holder.name)


def _producers(operators: Sequence[Operator], results: Sequence[str]) -> Iterator[Operator | None]:
    """The operator that writes each result. Where a name is written several times, results are in program order."""
    writers: dict[str, list[int]] = {}
    for position, op in enumerate(operators):
        for name in op.output_arg_names:
            writers.setdefault(name, []).append(position)
    reached = 0
    for result in results:
        found = writers.get(result)
        if not found:
            yield None
            continue
        position = found[-1] if len(found) == 1 else next((each for each in found if each >= reached), found[-1])
        reached = max(reached, position)
        yield operators[position]


def _result(step: BoundStep) -> tuple[str, tuple[int, ...]]:
    """The first output that holds an array, and its shape."""
    outputs = step.context.outputs
    for holders in (outputs.get(step.first, ()), *outputs.values()):
        for holder in holders:
            array = None if holder is None else array_of(holder.value)
            if array is not None:
                return holder.name, tuple(array.shape)
    return "", ()


def _persists(op: Any, name: str) -> bool:
    var = op.block.vars.get(name)
    return var is not None and bool(var.persistable)


def _size(value: Any) -> int:
    array = array_of(value) if isinstance(value, LoDTensor) else value
    return int(getattr(array, "nbytes", 0))


def _items(compiled: NativeRegion, count: int) -> list[int]:
    """By kernel call the position of its item: calls that do the same for other images of a batch are one."""
    positions = {id(call): position for position, call in enumerate(compiled.kernel_calls)}
    return [positions[id(call.repeats or call)] for call in compiled.kernel_calls] or list(range(count))


def _alive_in_arena(compiled: NativeRegion) -> list[int]:
    """Bytes of the arena that hold something while each step runs."""
    changes = [0] * (len(compiled.kernel_calls) + 1)
    for buffer, (first, last) in lifetimes(compiled.kernel_calls).items():
        changes[first] += 4 * buffer.size
        changes[last + 1] -= 4 * buffer.size
    return list(accumulate(changes[:-1]))
