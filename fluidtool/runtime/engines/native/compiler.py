"""Compiling a region for the native engine: from operators to kernel calls with addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.allocator import lay_out
from fluidtool.runtime.engines.native.binding import bind, word
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.constants import Packed
from fluidtool.runtime.engines.native.layouts import Buffer
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering import lower
from fluidtool.runtime.engines.native.region import Frame, Mention, NativeRegion, arena_of
from fluidtool.runtime.graph.pipeline import import_region, rewritten
from fluidtool.runtime.graph.spec import RegionSpec
from fluidtool.tensor.files import check_unchanged, file_of, forget, private

IDS = word(abi.GatherPool, "id_count")
COMPILING, PACKING = 6e-4, 2.5e-9  # seconds: per operator, per float
STEPPING, MULTIPLYING = 2e-5, 5e-11  # seconds saved per run: per operator, per multiply-add


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
    arena = arena_of(size)

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
        [Frame(steps, arena)],
        words_of_arena(mentioned, steps.shape[1]),
        kernel_calls,
        keep,
        mapped,
        ins,
        offsets_of,
        outs,
        [(bound.name, bound.rows) for bound in imported.bounds],
        tables,
        imported.lods,
        IDS,
        runs_to_pay(len(spec.operators), lowered.packed_floats, sum(node.multiply_adds for node in graph.nodes)),
    )


def runs_to_pay(operators: int, packed_floats: int, multiply_adds: int) -> int:
    """How many runs save the processor time that compiling took, by estimates from the sizes: not by a clock, so that
    the same runs always give the same bits.
    """
    taken = COMPILING * operators + PACKING * packed_floats
    saved = STEPPING * operators + MULTIPLYING * multiply_adds
    return int(taken / saved)


def words_of_arena(mentioned: Mapping[Buffer, list[Mention]], width: int) -> NDArray[np.int64]:
    """The words of all steps, `width` in each, that hold an address in the arena."""
    found = (each for buffer, places in mentioned.items() if buffer.role == "arena" for each in places)
    return np.array([step * width + at for step, at, _ in found], np.int64)


def mentions(kernel_calls: Sequence[KernelCall]) -> defaultdict[Buffer, list[Mention]]:
    """All uses of each buffer."""
    found = defaultdict[Buffer, list[Mention]](list)
    for number, kernel_call in enumerate(kernel_calls):
        for at, pointer in enumerate(kernel_call.arguments.pointers(), abi.FIRST):
            if pointer is not None:
                buffer, offset = pointer
                found[buffer].append((number, at, offset * 4))
    return found
