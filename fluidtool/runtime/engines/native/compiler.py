"""A region: operators that run as one call into the library, compiled for the shapes of what they are given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fluidtool import locks
from fluidtool.errors import OperatorError
from fluidtool.ir import Operator
from fluidtool.runtime.engines.native.arena import lay_out
from fluidtool.runtime.engines.native.binding import bind
from fluidtool.runtime.engines.native.calls import ALIGNMENT, LARGE_PAGE, Buffer, KernelCall, Kind, aligned_floats
from fluidtool.runtime.engines.native.library import Library, first_byte
from fluidtool.runtime.engines.native.lowering import lower
from fluidtool.runtime.engines.native.packed import Packed
from fluidtool.runtime.graph.importers import read_graph
from fluidtool.runtime.graph.importers.refusals import Attributes
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import Graph, UnsupportedError, Value
from fluidtool.runtime.graph.rewrites.attention import join_attention
from fluidtool.runtime.graph.rewrites.fusion import fuse
from fluidtool.runtime.graph.rewrites.joining import join_products, merge_products
from fluidtool.runtime.graph.rewrites.mixing import mix_channels, spread_activations
from fluidtool.runtime.graph.rewrites.ordering import delay
from fluidtool.runtime.graph.rewrites.pooling import pool_lookups
from fluidtool.tensor.files import check_unchanged, file_of, forget, private

BEYOND = 5  # the size of a step that looks rows up, which it sets when an id is no row of its table
IDS = 6  # the size of a step that pools what it looks up which says how many ids there are
Mention = tuple[int, int, int]  # step, pointer, offset in bytes


class Watch(Protocol):
    """Somebody who wants to know how long everything takes."""

    def steps(self, compiled: Compiled, seconds: NDArray[np.float64]) -> None:
        """The steps of a call have run, each in so many seconds."""

    def delegated(self, engine: str, graph: Graph, call: Callable[[], Any]) -> Any:
        """Run a region that another library computes, and return what it returns."""

    def __call__(self, step: Any, block: int) -> None:
        """Run a step of a plan."""


class Runner(Protocol):
    """A region, compiled; `lods` are those of its outputs."""

    @property
    def lods(self) -> Mapping[str, list[list[int]]]:
        """By name."""

    @property
    def memory(self) -> int:
        """The bytes that it takes for itself."""

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs and, of those that are pooled, their LoDs, by name."""


class Compiler(Protocol):
    """What compiles regions: the native library, or an engine outside."""

    @property
    def any_rows(self) -> bool:
        """Whether what is compiled takes pooled inputs of any number of rows."""

    def compile(
        self,
        ops: Sequence[tuple[Operator, Attributes]],
        given: Mapping[str, NDArray[Any]],
        constants: Mapping[str, NDArray[Any]],
        wanted: Sequence[str],
        lods: Mapping[str, Lod] | None = None,
        packed: Packed | None = None,
        pooled: Collection[str] = (),
    ) -> Runner:
        """Compile operators for inputs of these shapes and LoDs; raises UnsupportedError where something is missing.

        What is packed from constants is looked for in `packed`, and kept there. Inputs that are `pooled` (pooling.py) may have
        any number of rows, in as many sequences, if `any_rows`.
        """


@dataclass(slots=True)
class Compiled:
    """Steps with addresses, the memory behind them, and what to patch before each run."""

    library: Library
    steps: NDArray[np.void]
    kernel_calls: list[KernelCall]
    arena: NDArray[np.float32]
    keep: list[Any]
    mapped: list[Any]  # of what it keeps, what lies in a file
    inputs: list[tuple[Value, list[Mention]]]
    offsets: list[tuple[str, list[Mention]]]  # of sequences that are pooled as they are looked up
    outputs: list[tuple[str, Value, list[Mention]]]
    bounds: list[tuple[str, int]]
    tables: list[int]
    lods: dict[str, list[list[int]]]
    lock: Lock = field(default_factory=locks.lock)  # of the steps and the arena, while they run

    @property
    def memory(self) -> int:
        """The bytes of its arena and its steps; what is packed is shared."""
        return self.arena.nbytes + self.steps.nbytes

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs, by name; `watch` is told how long each step took.

        Raises UnreadableError when a file with a table that is read where it lies was written to.
        """
        if self.mapped:
            check_unchanged(self.mapped)
        results: dict[str, Any] = {}
        with self.lock:
            pointers = self.steps["p"]
            held = []
            for value, places in self.inputs:
                array = np.ascontiguousarray(given[value.name], value.dtype)
                held.append(array)
                start = first_byte(array)
                for step, slot, offset in places:
                    pointers[step, slot] = start + offset
            for name, places in self.offsets:
                offsets = np.array((lods or {})[name][-1], np.int64)
                held.append(offsets)
                for step, slot, _ in places:
                    pointers[step, slot] = first_byte(offsets)
                    self.steps["n"][step, IDS] = given[name].size
            for name, value, places in self.outputs:
                array = results[name] = np.empty(value.shape, value.dtype)
                start = first_byte(array)
                for step, slot, offset in places:
                    pointers[step, slot] = start + offset
            if watch is None:
                self.library.run(self.steps)
            else:
                watch.steps(self, self.library.run_timed(self.steps))
            if self.bounds and self._went_beyond():
                check_bounds(self.bounds, given)
                self.library.run(self.steps)  # the marks may have been left by a run that was broken off
                if self._went_beyond():
                    raise OperatorError(f"the LoD of one of {[name for name, _ in self.offsets]} does not fit its rows")
        return results

    def _went_beyond(self) -> bool:
        """Whether a step has marked an id that is no row of its table; takes the marks away."""
        found = bool(self.steps["n"][self.tables, BEYOND].any())
        if found:
            self.steps["n"][self.tables, BEYOND] = 0
        return found


@dataclass(frozen=True, slots=True)
class Understood:
    """A region as a graph; inputs that are ids with the rows of their tables; the LoD of each output."""

    graph: Graph
    bounds: list[tuple[str, int]]
    lods: dict[str, list[list[int]]]


def check_bounds(bounds: Iterable[tuple[str, int]], given: Mapping[str, Any]) -> None:
    """Raise OperatorError for an id that is no row of its table."""
    for name, rows in bounds:
        ids = given[name]
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= rows):
            raise OperatorError(
                f"{name} holds an id of {int(ids.min())} to {int(ids.max())}, the table has {rows} rows"
            )


def import_region(
    ops: Sequence[tuple[Operator, Attributes]],
    given: Mapping[str, NDArray[Any]],
    constants: Mapping[str, NDArray[Any]],
    wanted: Sequence[str],
    lods: Mapping[str, Lod] | None = None,
) -> Understood:
    """The graph of operators for inputs of these shapes and LoDs; raises UnsupportedError for what cannot be read."""
    values = {name: Value(name, tuple(array.shape), integer=array.dtype != np.float32) for name, array in given.items()}
    for name, array in (*given.items(), *constants.items()):
        widened = array.dtype == np.int32 and name in given
        if (array.dtype not in (np.float32, np.int64) and not widened) or array.size == 0:
            raise UnsupportedError(f"{name} is {array.dtype} {array.shape}", operand=name)
    values |= {
        name: Value(name, tuple(array.shape), array, array.dtype != np.float32) for name, array in constants.items()
    }
    graph, found = read_graph(ops, values, wanted, lods or {})
    bounds = [(n.inputs[0].name, n.attrs["table"].shape[0]) for n in graph.nodes if n.kind == "gather"]
    if any(name not in given for name, _ in bounds):
        raise UnsupportedError("ids are computed within the region")
    return Understood(graph, bounds, {name: [list(level) for level in found.get(name, ())] for name in wanted})


def compile_region(
    ops: Sequence[tuple[Operator, Attributes]],
    given: Mapping[str, NDArray[Any]],
    constants: Mapping[str, NDArray[Any]],
    wanted: Sequence[str],
    library: Library,
    lods: Mapping[str, Lod] | None = None,
    packed: Packed | None = None,
    pooled: Collection[str] = (),
) -> Compiled:
    """Compile operators for inputs of these shapes and LoDs; raises UnsupportedError where a kernel is missing.

    Constants may lie in a mapped file: what is not packed is copied, but for very large tables. Raises UnreadableError when
    the file was written to.
    """
    check_unchanged(constants.values())
    understood = import_region(ops, given, constants, wanted, lods)
    graph = understood.graph
    pool_lookups(graph, pooled)
    spread_activations(graph)
    fuse(graph)
    merge_products(graph)
    join_attention(graph)
    join_products(graph)
    mix_channels(graph)
    delay(graph)
    lowered = lower(graph, library, packed)
    kernel_calls = lowered.kernel_calls
    for buffer in {
        buffer for kernel_call in kernel_calls for buffer in kernel_call.buffers() if buffer.role == "constant"
    }:
        buffer.array = private(buffer.array) if packed is None else packed.private(buffer.array)
    for array in constants.values():
        forget(array)
    offsets, size = lay_out(kernel_calls)
    arena = aligned_floats(size, LARGE_PAGE if size > LARGE_PAGE else ALIGNMENT)

    def address(buffer: Buffer) -> int:
        if buffer.role == "arena":
            return int(arena.ctypes.data) + 4 * offsets[buffer]
        return int(buffer.array.ctypes.data) if buffer.role == "constant" else 0

    steps = bind(kernel_calls, address, library.width)
    mentioned = mentions(kernel_calls)
    keep = [
        buffer.array for kernel_call in kernel_calls for buffer in kernel_call.buffers() if buffer.role == "constant"
    ]
    mapped = [array for array in keep if file_of(array) is not None]
    ins = [(value, mentioned[buffer]) for value, buffer in zip(graph.inputs, lowered.inputs, strict=True)]
    offsets_of = [(value.name, mentioned[buffer]) for value, buffer in lowered.offsets.items()]
    tables = [
        number
        for number, kernel_call in enumerate(kernel_calls)
        if kernel_call.kind in (Kind.GATHER_ROWS, Kind.GATHER_POOL)
    ]
    outs = [
        (name, value, mentioned[buffer])
        for name, value, buffer in zip(wanted, graph.outputs, lowered.outputs, strict=True)
    ]
    return Compiled(
        library,
        steps,
        kernel_calls,
        arena,
        keep,
        mapped,
        ins,
        offsets_of,
        outs,
        understood.bounds,
        tables,
        understood.lods,
    )


def mentions(kernel_calls: Sequence[KernelCall]) -> defaultdict[Buffer, list[Mention]]:
    """Wherever each buffer is touched."""
    found = defaultdict[Buffer, list[Mention]](list)
    for number, kernel_call in enumerate(kernel_calls):
        for slot, (buffer, offset) in kernel_call.pointers.items():
            found[buffer].append((number, slot, offset * 4))
    return found
