"""A region on a GPU: memory, kernels and library calls; after the first run, one CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from math import inf
from threading import Lock
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from fluidtool import locks
from fluidtool.errors import NEEDS_LESS, FluidError, OutOfMemoryError
from fluidtool.ops.context import Device
from fluidtool.records import dataclass
from fluidtool.runtime.engines.base import MadeCall, Watch
from fluidtool.runtime.engines.cuda.arena import lay_out
from fluidtool.runtime.engines.cuda.calls import (
    BYTES,
    Arrival,
    Attention,
    AttentionGradient,
    Buffer,
    Call,
    Choice,
    Convolution,
    Launch,
    Pointer,
    Product,
    Reduction,
    RefusedError,
    flat,
)
from fluidtool.runtime.engines.cuda.cublaslt import CublasLt
from fluidtool.runtime.engines.cuda.cudnn import Cudnn
from fluidtool.runtime.engines.cuda.layouts import channels_first
from fluidtool.runtime.engines.cuda.lowering import Lowered
from fluidtool.runtime.engines.cuda.moving import Inputs, Mover
from fluidtool.runtime.engines.cuda.plans import Copies
from fluidtool.runtime.engines.cuda.sources import PRELUDE
from fluidtool.runtime.graph.bounds import check_bounds
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import Graph, OutsideError, UnsupportedError, Value
from fluidtool.runtime.graph.pipeline import ImportedRegion

LibraryCall = Product | Convolution | Attention | AttentionGradient
OF_CAPTURES = range(900, 910)  # cudaErrorStreamCaptureUnsupported and what else only captures raise (driver_types.h)


class LoweredCalls(Protocol):
    """A region that is lowered, as far as layouts are chosen by it."""

    @property
    def graph(self) -> Graph:
        """Its nodes."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """Its calls."""

    @property
    def results(self) -> tuple[Value | None, ...]:
        """What each of them computes."""


class Libraries:
    """The libraries on one GPU, opened when a region first calls them; plans are kept for the life of the engine.

    Threads call them one at a time: handles and descriptions keep what a call sets, such as its stream, until it is made.
    """

    def __init__(self, device: Device, precision: str = "float32") -> None:
        self.device, self.precision = device, precision
        self._products: CublasLt | None = None
        self._convolutions: Cudnn | None = None
        self._copies = Copies(device.xp)
        self.mover = Mover(device)
        self._lock = locks.lock()

    def prepare(self, call: LibraryCall, address: Callable[[Pointer], int]) -> None:
        """Make the plan of a call. Raises RefusedError where the library has none, or cannot be used."""
        self._asked(call, lambda library: library.plan(call, address))

    def run(self, call: LibraryCall, address: Callable[[Pointer], int]) -> None:
        """Make a call on the current stream. Raises RefusedError if the library refuses it."""
        self._asked(call, lambda library: library.run(call, address))

    def channels_first(self, lowered: LoweredCalls) -> frozenset[Value]:
        """Which images of a region, lowered with all channels last, should have them first: of float32, by what is measured."""
        if self.precision != "float32":
            return frozenset()
        graph = lowered.graph
        with self.device.active():
            return channels_first(
                graph.nodes, graph.outputs, lowered.calls, lowered.results, self._seconds, self._copies.seconds
            )

    def _seconds(self, call: Convolution) -> float:
        """How long a convolution takes; nobody knows where the memory for it does not suffice, or the library fails."""
        try:
            return float(self._asked(call, lambda library: library.seconds(call)))
        except (RefusedError, MemoryError):
            return inf

    def _asked(self, call: LibraryCall, work: Callable[[Any], Any]) -> Any:
        try:
            with self._lock:
                return work(self._library(call))
        except (RefusedError, FluidError, MemoryError, self.device.xp.cuda.runtime.CUDARuntimeError):
            raise
        except Exception as error:  # the libraries have classes of their own, and none that all of these are
            name = "cuBLASLt" if isinstance(call, Product) else "cuDNN"
            raise RefusedError(
                f"{name} failed ({type(error).__name__}: {' '.join(str(error).split()):.200})"
            ) from error

    def _library(self, call: LibraryCall) -> CublasLt | Cudnn:
        if isinstance(call, Product):
            self._products = self._products or CublasLt(self.device.xp, self.precision)
            return self._products
        self._convolutions = self._convolutions or Cudnn(self.device.xp, self.precision)
        return self._convolutions


@dataclass(eq=False, slots=True)
class Constants:
    """The constants of a region's specializations: on the host, where rewrites compute with them, and on the GPU."""

    device: Device
    given: tuple[Any, ...]
    host: dict[int, Any] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    arrays: dict[Buffer, Any] = field(default_factory=dict)

    def on_host(self, array: Any) -> Any:
        """A copy of a constant on the host, made once."""
        if id(array) not in self.host:
            self.host[id(array)] = self.device.host(array)
        return self.host[id(array)]

    def on_device(self, buffer: Buffer) -> Any:
        """The numbers of a constant buffer on the GPU."""
        if buffer not in self.arrays:
            self.arrays[buffer] = self.device.array(buffer.array)
        return self.arrays[buffer]


@dataclass(eq=False, slots=True)
class Work:
    """Calls with their memory: made one by one in the first run, in which libraries prepare themselves, then as one graph."""

    device: Device
    steps: list[Callable[[], None]]
    results: Sequence[Value | None] = ()  # what each of them computes
    graph: Any = None
    has_run: bool = False
    is_captured: bool = True  # False where that has failed

    def run(self) -> None:
        """Do it on the current device. Raises UnsupportedError if a library refuses a call that no other one replaces."""
        if not self.steps:  # nobody reads what a region computes
            return
        if self.graph is not None:
            self.graph.launch()
            return
        if self.has_run and self.is_captured:
            self.graph = self._captured()
            if self.graph is not None:
                self.graph.launch()
                return
        for number in range(len(self.steps)):  # no capture allows what libraries do the first time
            self._make(number)
        self.has_run = True

    def timed(self) -> list[float]:
        """Make the calls one by one, and wait for each; the seconds that each took. Raises UnsupportedError as a run does."""
        found = []
        self.device.wait()
        for number in range(len(self.steps)):
            start = perf_counter()
            self._make(number)
            self.device.wait()
            found.append(perf_counter() - start)
        return found

    def _make(self, number: int) -> None:
        try:
            self.steps[number]()
        except RefusedError as error:
            raise refusal(error, self.results[number]) from error

    @property
    def refused(self) -> int:
        """How many calls cuDNN has refused, which others replace."""
        return sum(isinstance(step, Replaced) for step in self.steps)

    def _captured(self) -> Any:
        """Everything between inputs and outputs as one graph; None, with a warning, if something cannot be captured."""
        failure = self.device.xp.cuda.runtime.CUDARuntimeError
        with self.device.xp.cuda.Stream(
            non_blocking=True
        ) as stream:  # of any other, CUDA forbids threads the usual stream
            try:
                stream.begin_capture()
                for step in self.steps:
                    step()
                return stream.end_capture()
            except (RefusedError, failure) as error:
                with suppress(failure):  # a capture that has failed ends with an error, too
                    stream.end_capture()
                if isinstance(error, failure) and getattr(error, "status", 0) not in OF_CAPTURES:
                    raise
                self.is_captured = False
                text = f"a CUDA graph cannot be captured ({error}); its calls are made one by one, which takes the host longer"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
                return None


@dataclass(eq=False, slots=True)
class CudaRegion:
    """A region compiled for one GPU. The inputs are copied to where its graph reads them."""

    device: Device
    imported: ImportedRegion
    names: tuple[str, ...]
    calls: tuple[Call, ...]
    work: Work
    inputs: Inputs
    outputs: list[Any]
    kept: tuple[Any, ...]  # what library calls know by its address alone
    mover: Mover
    memory: int
    lods: dict[str, list[list[int]]]
    whole: Any = None  # the first output, and behind it whether an id was out of range; None if no rows are looked up
    runs_to_pay: int = 0
    lock: Lock = field(default_factory=locks.lock)  # of its memory

    @property
    def marks_ids(self) -> bool:
        """Whether it looks up rows by ids, or reads tags, classes or lengths."""
        return self.whole is not None

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs, by name. Raises OperatorError for ids out of range, OutsideError for
        what an operator will refuse.
        """
        results, mark = self._computed(given, self.work.run if watch is None else lambda: self._watched(watch))
        if mark is not None and is_set(self.device.host(mark[-1:])):
            with self.device.active():
                check_bounds((each for each in self.imported.bounds if each.of_table), given)
            raise OutsideError("a tag, a class or a length is out of range")
        return results

    def ahead(self, given: Mapping[str, Any], run: object = None) -> tuple[dict[str, Any], Any]:
        """The outputs, and the array in whose last place is 1 if an id on the GPU is out of range; None if that cannot be.

        The host waits for nothing. Ids that it has are looked at now; raises OperatorError for one out of range. Inputs that are
        the same arrays as before in this `run` are not copied again.
        """
        return self._computed(given, self.work.run, run)

    def _computed(
        self, given: Mapping[str, Any], work: Callable[[], object], run: object = None
    ) -> tuple[dict[str, Any], Any]:
        is_certain = not self.imported.looks_up_computed
        for bound in self.imported.bounds:
            if all(isinstance(given[name], np.ndarray) for name in (bound.name, bound.lengths) if name):
                check_bounds((bound,), given)
            else:
                is_certain = False
        with self.lock, self.device.active():
            self.inputs.take([given[value.name] for value in self.imported.graph.inputs], run)
            work()
            outside = self.imported.types
            types = [outside.get(name, each.dtype) for name, each in zip(self.names, self.outputs, strict=True)]
            if is_certain:
                return dict(zip(self.names, self.mover.copies(self.outputs, types), strict=True)), None
            whole, *others = self.mover.copies([self.whole, *self.outputs[1:]], [self.whole.dtype, *types[1:]])
            found = [whole[:-1].reshape(self.outputs[0].shape).astype(types[0], copy=False), *others]
            return dict(zip(self.names, found, strict=True)), whole

    def _watched(self, watch: Watch) -> None:
        """Make the calls one by one, and time each."""
        watch.calls("cuda", self._made(), self.work.timed())

    def _made(self) -> list[MadeCall]:
        """What the calls are and compute. The work of a node counts where its result is complete."""
        left = {node.output: node.multiply_adds for node in self.imported.graph.nodes}
        found: list[MadeCall] = []
        for call, value in zip(reversed(self.calls), reversed(self.work.results), strict=True):
            made = call.first if isinstance(call, Choice) else call
            kind = made.name.partition("_")[0] if isinstance(made, Launch) else type(made).__name__.lower()
            name, shape = ("", ()) if value is None else (value.name, value.shape)
            found.append(MadeCall(kind, name, shape, 0 if value is None else left.pop(value, 0)))
        return found[::-1]


def is_set(mark: Any) -> bool:
    """Whether what a region left behind its first output, now on the host, says that an id was out of range."""
    return bool(mark[-1] != 0)


def bind(
    imported: ImportedRegion, names: tuple[str, ...], lowered: Lowered, constants: Constants, libraries: Libraries
) -> CudaRegion:
    """Memory and kernels for the calls. Raises OutOfMemoryError, which says what would fit."""
    device, graph = constants.device, imported.graph
    with device.active():
        offsets, size = lay_out(lowered.calls)
        needed = BYTES * (size + sum(value.floats for value in (*graph.inputs, *graph.outputs)))
        try:
            arena = device.xp.empty(max(size, 1), np.float32)
            inputs = [device.xp.empty(value.shape, value.dtype) for value in graph.inputs]
            outputs = [device.xp.empty(value.shape, value.dtype) for value in graph.outputs]
            whole = None if lowered.mark is None else device.xp.zeros(outputs[0].size + 1, outputs[0].dtype)
            fixed = {buffer: constants.on_device(buffer) for buffer in constants_of(lowered.calls)}
        except MemoryError as error:
            rows = graph.inputs[0].shape[0] if graph.inputs and graph.inputs[0].shape else 0
            raise OutOfMemoryError(too_large(device, needed, rows, error), hint=NEEDS_LESS) from error
        if whole is not None:
            outputs[0] = whole[:-1].reshape(outputs[0].shape)
        arrays = {
            **fixed,
            **dict(zip(lowered.inputs, inputs, strict=True)),
            **dict(zip(lowered.outputs, outputs, strict=True)),
            **({} if lowered.mark is None or whole is None else {lowered.mark: whole[-1:].view(np.float32)[:1]}),
        }
        work = work_of(lowered.calls, lowered.results, arrays, arena, offsets, device, libraries)
    kept = (arena, *fixed.values())
    mover = libraries.mover
    parts = (device, imported, names, lowered.calls, work, Inputs(mover, inputs), outputs, kept, mover)
    return CudaRegion(*parts, needed, imported.lods, whole)


def work_of(
    calls: tuple[Call, ...],
    results: Sequence[Value | None],
    arrays: Mapping[Buffer, Any],
    arena: Any,
    offsets: Mapping[Buffer, int],
    device: Device,
    libraries: Libraries,
) -> Work:
    """Calls with the memory of their buffers: an array for each, or a place in the arena.

    Raises UnsupportedError for a call, named by its result, that a library refuses and that no other one replaces.
    """

    def array(pointer: Pointer) -> Any:
        buffer = pointer.buffer
        if buffer.role == "arena":
            place = arena[offsets[buffer] : offsets[buffer] + buffer.floats]
            kind = np.int64 if buffer.integer else np.uint16 if buffer.half else np.float32
            return place.view(kind)[pointer.offset :]
        found = arrays[buffer]
        return found.reshape(-1)[pointer.offset :] if pointer.offset else found

    steps, module = [], kernels(device, calls)
    for call, value in zip(calls, results, strict=True):
        try:
            steps.append(_step(call, array, module, libraries))
        except RefusedError as error:
            raise refusal(error, value) from error
        except device.xp.cuda.compiler.CompileException as error:
            refused = RefusedError(f"NVRTC refused a generated kernel ({' '.join(str(error).split()):.200})")
            raise refusal(refused, value) from error
    return Work(device, steps, results)


def refusal(error: RefusedError, value: Value | None) -> UnsupportedError:
    """What splits a region at the operator whose call was refused; the user is warned, since it is slower."""
    what = "a region" if value is None else f"the operator that computes {value.name}"
    text = f"{error}; {what} is computed by cupy instead, one operator at a time"
    warnings.warn(text, RuntimeWarning, stacklevel=2)
    return UnsupportedError(str(error), result="" if value is None else value.name)


def constants_of(calls: tuple[Call, ...]) -> dict[Buffer, None]:
    """The buffers of constants that calls read."""
    pointers = (pointer for call in calls for pointer in call.pointers)
    return {pointer.buffer: None for pointer in pointers if pointer.buffer.role == "constant"}


def source_of(calls: tuple[Call, ...]) -> str:
    """The source of all generated kernels and of the functions that they call, each once."""
    launches = {call.name: call for call in flat(calls) if isinstance(call, Launch)}.values()
    functions = dict.fromkeys(function for call in launches for function in call.functions)
    return PRELUDE + "".join(functions) + "\n".join(call.source for call in launches)


def kernels(device: Device, calls: tuple[Call, ...]) -> Any:
    """The generated kernels, compiled; cupy keeps what it has compiled on disk."""
    return device.xp.RawModule(code=source_of(calls))


def _step(call: Call, array: Callable[[Pointer], Any], module: Any, libraries: Libraries) -> Callable[[], None]:
    """A call with its memory. Raises RefusedError for one that a library refuses."""
    if isinstance(call, Launch):
        kernel, arrays = module.get_function(call.name), tuple(map(array, call.pointers))
        return lambda: kernel((call.blocks,), (call.threads,), arrays)
    if isinstance(call, Choice):
        try:
            return _step(call.first, array, module, libraries)
        except RefusedError:
            return Replaced(tuple(_step(each, array, module, libraries) for each in call.otherwise))
    if isinstance(call, Reduction):
        given, out = (int(array(pointer).data.ptr) for pointer in call.pointers)
        return lambda: call.ring.sum_aside(given, out, call.count)
    if isinstance(call, Arrival):
        arrive: Callable[[], None] = call.reduction.ring.arrive
        return arrive
    addresses = {pointer: int(array(pointer).data.ptr) for pointer in call.pointers}
    libraries.prepare(call, addresses.__getitem__)
    return lambda: libraries.run(call, addresses.__getitem__)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The calls in the place of one that a library refuses."""

    steps: tuple[Callable[[], None], ...]

    def __call__(self) -> None:
        """Make them."""
        for step in self.steps:
            step()


def too_large(device: Device, needed: int, rows: int, error: MemoryError) -> str:
    """What was asked, what is free, and how many rows of the first input would fit."""
    free, _ = device.xp.cuda.runtime.memGetInfo()
    fit = rows * int(free) // max(needed, 1)
    advice = f" About {fit} of the {rows} rows of a batch would fit." if 0 < fit < rows else ""
    return f"a region needs {needed:,} bytes on the GPU: {error} {device.memory()}{advice}"
