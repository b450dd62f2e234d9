"""A region on a GPU: memory, kernels and library calls; after the first run, one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from threading import Lock
from typing import Any

import numpy as np

from fluidtool import locks
from fluidtool.errors import NEEDS_LESS, OutOfMemoryError
from fluidtool.ops.context import Device
from fluidtool.records import dataclass
from fluidtool.runtime.engines.base import Watch
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
from fluidtool.runtime.engines.cuda.lowering import Lowered
from fluidtool.runtime.engines.cuda.sources import PRELUDE
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.pipeline import ImportedRegion, check_bounds


class Libraries:
    """The libraries on one GPU, opened when a region first calls them; plans are kept for the life of the engine."""

    def __init__(self, device: Device, precision: str = "float32") -> None:
        self.device, self.precision = device, precision
        self._products: CublasLt | None = None
        self._convolutions: Cudnn | None = None

    def run(self, call: Call, address: Callable[[Pointer], int]) -> None:
        """Make a call on the current stream. Raises RefusedError for one that cuDNN has no plan for."""
        if isinstance(call, Product):
            self._products = self._products or CublasLt(self.device.xp, self.precision)
            self._products.run(call, address)
        elif isinstance(call, Convolution | Attention | AttentionGradient):
            self._convolutions = self._convolutions or Cudnn(self.device.xp, self.precision)
            self._convolutions.run(call, address)


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
    graph: Any = None
    has_run: bool = False

    def run(self) -> None:
        """Do it on the current device."""
        if self.has_run and self.graph is None:
            self.graph = self._captured()
        if self.graph is None:
            self.has_run = True
            for step in self.steps:  # no capture allows what libraries do the first time
                step()
        else:
            self.graph.launch()

    @property
    def refused(self) -> int:
        """How many calls cuDNN has refused, which others replace."""
        return sum(isinstance(step, Chosen) and step.is_refused for step in self.steps)

    def _captured(self) -> Any:
        """Everything between inputs and outputs as one graph."""
        with self.device.xp.cuda.Stream() as stream:
            stream.begin_capture()
            for step in self.steps:
                step()
            return stream.end_capture()


@dataclass(eq=False, slots=True)
class CudaRegion:
    """A region compiled for one GPU. The inputs are copied to where its graph reads them."""

    device: Device
    imported: ImportedRegion
    names: tuple[str, ...]
    calls: tuple[Call, ...]
    work: Work
    inputs: list[Any]
    outputs: list[Any]
    kept: tuple[Any, ...]  # what library calls know by its address alone
    memory: int
    lods: dict[str, list[list[int]]]
    runs_to_pay: int = 0
    flags: Any = None  # of ids out of range
    lock: Lock = field(default_factory=locks.lock)  # of its memory

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs, by name. Raises OperatorError for ids out of range."""
        with self.lock, self.device.active():
            self._check(given)
            if watch is None:
                return self._run(given)
            return dict(watch.delegated("cuda", self.imported.graph, lambda: self._waited(given)))

    def _check(self, given: Mapping[str, Any]) -> None:
        """Raise OperatorError for an id out of range, before a kernel reads there; ids on the GPU are waited for once."""
        there = [each for each in self.imported.bounds if not isinstance(given[each[0]], np.ndarray)]
        check_bounds((each for each in self.imported.bounds if each not in there), given)
        if not there:
            return
        if self.flags is None:
            self.flags = self.device.flags(len(self.imported.bounds))
        for number, (name, rows) in enumerate(there):
            self.device.mark_outside(given[name], 0, rows, None, self.flags[number : number + 1])
        if self.device.read_flags(self.flags[: len(there)]) is not None:
            self.flags = None
            check_bounds(there, given)

    def _waited(self, given: Mapping[str, Any]) -> dict[str, Any]:
        found = self._run(given)
        self.device.wait()
        return found

    def _run(self, given: Mapping[str, Any]) -> dict[str, Any]:
        for value, array in zip(self.imported.graph.inputs, self.inputs, strict=True):
            put(array, given[value.name])
        self.work.run()
        return {name: array.copy() for name, array in zip(self.names, self.outputs, strict=True)}


def put(into: Any, array: Any) -> None:
    """Copy an array of the host or of this device to where a graph reads it."""
    if isinstance(array, np.ndarray):
        into.set(np.ascontiguousarray(array, into.dtype))
    else:
        into[...] = array


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
            fixed = {buffer: constants.on_device(buffer) for buffer in constants_of(lowered.calls)}
        except MemoryError as error:
            rows = graph.inputs[0].shape[0] if graph.inputs and graph.inputs[0].shape else 0
            raise OutOfMemoryError(too_large(device, needed, rows, error), hint=NEEDS_LESS) from error
        arrays = {
            **fixed,
            **dict(zip(lowered.inputs, inputs, strict=True)),
            **dict(zip(lowered.outputs, outputs, strict=True)),
        }

        work = work_of(lowered.calls, arrays, arena, offsets, device, libraries)
    return CudaRegion(
        device, imported, names, lowered.calls, work, inputs, outputs, (arena, *fixed.values()), needed, imported.lods
    )


def work_of(
    calls: tuple[Call, ...],
    arrays: Mapping[Buffer, Any],
    arena: Any,
    offsets: Mapping[Buffer, int],
    device: Device,
    libraries: Libraries,
) -> Work:
    """Calls with the memory of their buffers: an array for each, or a place in the arena."""

    def array(pointer: Pointer) -> Any:
        buffer = pointer.buffer
        if buffer.role == "arena":
            place = arena[offsets[buffer] : offsets[buffer] + buffer.floats]
            kind = np.int64 if buffer.integer else np.uint16 if buffer.half else np.float32
            return place.view(kind)[pointer.offset :]
        found = arrays[buffer]
        return found.reshape(-1)[pointer.offset :] if pointer.offset else found

    module = kernels(device, calls)
    return Work(device, [_step(call, array, module, libraries) for call in calls])


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
    """A call with its memory."""
    if isinstance(call, Launch):
        kernel, arrays = module.get_function(call.name), tuple(map(array, call.pointers))
        return lambda: kernel((call.blocks,), (call.threads,), arrays)
    if isinstance(call, Choice):
        first, *others = (_step(each, array, module, libraries) for each in (call.first, *call.otherwise))
        return Chosen(first, others)
    if isinstance(call, Reduction):
        given, out = (int(array(pointer).data.ptr) for pointer in call.pointers)
        return lambda: call.ring.sum_aside(given, out, call.count)
    if isinstance(call, Arrival):
        arrive: Callable[[], None] = call.reduction.ring.arrive
        return arrive
    addresses = {pointer: int(array(pointer).data.ptr) for pointer in call.pointers}
    return lambda: libraries.run(call, addresses.__getitem__)


class Chosen:
    """A call, or those in its place if it is refused: found out in the first run, which is not captured."""

    def __init__(self, first: Callable[[], None], otherwise: list[Callable[[], None]]) -> None:
        self._first, self._otherwise = first, otherwise
        self.is_refused = False

    def __call__(self) -> None:
        """Do what is chosen."""
        if not self.is_refused:
            try:
                return self._first()
            except RefusedError:
                self.is_refused = True
        for step in self._otherwise:
            step()


def too_large(device: Device, needed: int, rows: int, error: MemoryError) -> str:
    """What was asked, what is free, and how many rows of the first input would fit."""
    free, _ = device.xp.cuda.runtime.memGetInfo()
    fit = rows * int(free) // max(needed, 1)
    advice = f" About {fit} of the {rows} rows of a batch would fit." if 0 < fit < rows else ""
    return f"a region needs {needed:,} bytes on the GPU: {error} {device.memory()}{advice}"
