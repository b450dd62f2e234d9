"""A region compiled for the native engine: kernel calls with addresses, run by one call into the library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool import locks
from fluidtool.errors import OperatorError
from fluidtool.records import dataclass
from fluidtool.runtime.engines.base import Watch
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.allocator import lay_out
from fluidtool.runtime.engines.native.binding import bind, word
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.constants import Packed
from fluidtool.runtime.engines.native.layouts import ALIGNMENT, LARGE_PAGE, Buffer, aligned_floats
from fluidtool.runtime.engines.native.library import Library, first_byte
from fluidtool.runtime.engines.native.lowering import lower
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import Value
from fluidtool.runtime.graph.pipeline import check_bounds, import_region, rewritten
from fluidtool.runtime.graph.spec import RegionSpec
from fluidtool.tensor.files import check_unchanged, file_of, forget, private

IDS = word(abi.GatherPool, "id_count")
COMPILING, PACKING = 6e-4, 2.5e-9  # seconds: per operator, per float
STEPPING, MULTIPLYING = 2e-5, 5e-11  # seconds saved per run: per operator, per multiply-add
Mention = tuple[int, int, int]  # step, word of the pointer, offset in bytes


@dataclass(slots=True)
class NativeRegion:
    """Kernel calls with addresses, their memory, and what to patch before each run."""

    library: Library
    steps: NDArray[np.int64]  # one per row
    kernel_calls: list[KernelCall]
    arena: NDArray[np.float32]
    keep: list[Any]
    mapped: list[Any]  # those of its arrays that are mapped from files
    inputs: list[tuple[Value, list[Mention]]]
    offsets: list[tuple[str, list[Mention]]]  # of sequences pooled during lookup
    outputs: list[tuple[str, Value, list[Mention]]]
    bounds: list[tuple[str, int]]
    tables: list[tuple[int, int]]  # step and word of each mark
    lods: dict[str, list[list[int]]]
    runs_to_pay: int = 0
    lock: Lock = field(default_factory=locks.lock)  # of the steps and the arena, while they run

    @property
    def memory(self) -> int:
        """The bytes of its arena and its steps; packed constants are shared."""
        return self.arena.nbytes + self.steps.nbytes

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs, by name; `watch` gets the time of each step.

        Raises UnreadableError if a file with a table that is read in place has been written to.
        """
        if self.mapped:
            check_unchanged(self.mapped)
        results: dict[str, Any] = {}
        with self.lock:
            steps = self.steps
            held = []
            for value, places in self.inputs:
                array = np.ascontiguousarray(given[value.name], value.dtype)
                held.append(array)
                start = first_byte(array)
                for step, at, offset in places:
                    steps[step, at] = start + offset
            for name, places in self.offsets:
                offsets = np.array((lods or {})[name][-1], np.int64)
                held.append(offsets)
                for step, at, _ in places:
                    steps[step, at] = first_byte(offsets)
                    steps[step, IDS] = given[name].size
            for name, value, places in self.outputs:
                array = results[name] = np.empty(value.shape, value.dtype)
                start = first_byte(array)
                for step, at, offset in places:
                    steps[step, at] = start + offset
            if watch is None:
                self.library.run(steps)
            else:
                watch.kernel_calls(self, self.library.run_timed(steps))
            if self.bounds and self._went_beyond():
                check_bounds(self.bounds, given)
                self.library.run(steps)  # an interrupted run may have left marks
                if self._went_beyond():
                    raise OperatorError(
                        f"the LoD of {' or '.join(name for name, _ in self.offsets)} does not match its rows"
                    )
        return results

    def _went_beyond(self) -> bool:
        """Whether a step has marked an id out of range for its table; clears the marks."""
        marked = [place for place in self.tables if self.steps[place]]
        for place in marked:
            self.steps[place] = 0
        return bool(marked)


def compile_region(spec: RegionSpec, library: Library, packed: Packed | None = None) -> NativeRegion:
    """Compile a region; raises UnsupportedError if a kernel is missing.

    Constants may be in a mapped file: those not packed are copied, except very large tables. Raises UnreadableError if
    the file has been written to.
    """
    check_unchanged(spec.constants.values())
    imported = import_region(spec)
    graph = rewritten(imported.graph, spec.pooled)
    lowered = lower(graph, library, packed)
    kernel_calls = lowered.kernel_calls
    for buffer in {
        buffer for kernel_call in kernel_calls for buffer in kernel_call.buffers() if buffer.role == "constant"
    }:
        buffer.array = private(buffer.array) if packed is None else packed.private(buffer.array)
    for array in spec.constants.values():
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
        (number, word(type(kernel_call.arguments), "beyond"))
        for number, kernel_call in enumerate(kernel_calls)
        if isinstance(kernel_call.arguments, abi.GatherRows | abi.GatherPool)
    ]
    outs = [
        (name, value, mentioned[buffer])
        for name, value, buffer in zip(spec.outputs, graph.outputs, lowered.outputs, strict=True)
    ]
    return NativeRegion(
        library,
        steps,
        kernel_calls,
        arena,
        keep,
        mapped,
        ins,
        offsets_of,
        outs,
        imported.bounds,
        tables,
        imported.lods,
        runs_to_pay(len(spec.operators), lowered.packed_floats, sum(node.multiply_adds for node in graph.nodes)),
    )


def runs_to_pay(operators: int, packed_floats: int, multiply_adds: int) -> int:
    """How many runs save the processor time that compiling took, by estimates from the sizes: not by a clock, so that
    the same runs always give the same bits.
    """
    taken = COMPILING * operators + PACKING * packed_floats
    saved = STEPPING * operators + MULTIPLYING * multiply_adds
    return int(taken / saved)


def mentions(kernel_calls: Sequence[KernelCall]) -> defaultdict[Buffer, list[Mention]]:
    """All uses of each buffer."""
    found = defaultdict[Buffer, list[Mention]](list)
    for number, kernel_call in enumerate(kernel_calls):
        for at, pointer in enumerate(kernel_call.arguments.pointers(), abi.FIRST):
            if pointer is not None:
                buffer, offset = pointer
                found[buffer].append((number, at, offset * 4))
    return found
