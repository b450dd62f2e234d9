"""What this machine can do at most, measured: multiplications and additions, and bytes moved, per second."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from fluidtool.ops.context import Device
from fluidtool.profiling.work import Work
from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.binding import empty_calls, write
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.memory import aligned_floats
from fluidtool.runtime.engines.numpy import NUMPY

PEAK_SUMS = 12  # SUMS in src/peak.c
PEAK_PAIR_SUMS = 16  # PEAK_SUMS in src/pairs.c
TRIES = 5
ENOUGH = 2e-3  # seconds of one measurement
SIZES = (1 << 18, 1 << 21, 1 << 24, 1 << 26)  # bytes that a copy reads and writes: from the caches to the memory
MATRIX = 768  # numpy's product of two such matrices
GPU_SIZES = (1 << 21, 1 << 24, 1 << 26, 1 << 29)
GPU_MATRIX = 4096


@dataclass(frozen=True, slots=True)
class Peak:
    """`flops` per second; `bandwidth`: (bytes that are touched, bytes per second) from small to large; `by` what."""

    flops: float
    bandwidth: tuple[tuple[int, float], ...]
    by: str

    @property
    def memory(self) -> float:
        """Bytes per second that the memory behind the caches gives."""
        return self.bandwidth[-1][1]

    def better(self, other: Peak) -> Peak:
        """The best of two measurements of the same machine."""
        both = zip(self.bandwidth, other.bandwidth, strict=True)
        return Peak(max(self.flops, other.flops), tuple((size, max(a, b)) for (size, a), (_, b) in both), self.by)

    def bytes_per_second(self, touched: int) -> float:
        """The bandwidth for a piece of work that touches so many bytes."""
        return next((speed for size, speed in self.bandwidth if touched <= size), self.memory)

    def reached(self, work: Work, seconds: float, times: int = 1) -> tuple[str, float | None]:
        """(what limits the work, the part of it that was reached): the larger part of 'multiply-adds' and 'memory'."""
        if seconds <= 0 or not (work.multiply_adds or work.bytes):
            return "", None
        computing = 2 * work.multiply_adds / seconds / self.flops
        moving = work.bytes / seconds / self.bytes_per_second(work.bytes // max(times, 1))
        return ("multiply-adds", computing) if computing >= moving else ("memory", moving)


def measure_peak(library: Library | None, device: Device = NUMPY) -> Peak:
    """The peak of the native engine with its threads, or without it of numpy or of a GPU."""
    if library is not None:
        threads = library.threads
        bandwidth = tuple((size, _copied(_native_copy(library, size // 2), size)) for size in SIZES)
        by = f"{library.instructions}, {threads} thread{'s' if threads != 1 else ''}{', bf16 pairs' if library.pairs else ''}"
        return Peak(_native_flops(library), bandwidth, by)
    sizes, matrix = (SIZES, MATRIX) if device.name == "numpy" else (GPU_SIZES, GPU_MATRIX)
    with device.active():
        bandwidth = tuple((size, _copied(_array_copy(device, size // 2), size)) for size in sizes)
        return Peak(_array_flops(device, matrix), bandwidth, device.name)


def _best(work: Callable[[], object]) -> float:
    """Seconds that one round of `work` takes, in the best of some tries."""
    work()
    rounds, best = 1, float("inf")
    for _ in range(TRIES):
        start = perf_counter()
        for _ in range(rounds):
            work()
        taken = (perf_counter() - start) / rounds
        best = min(best, taken)
        rounds = max(1, min(int(ENOUGH / best), 10_000))
    return best


def _copied(copy: Callable[[], object], size: int) -> float:
    return size / _best(copy)


def _native_flops(library: Library) -> float:
    rounds, tasks = 20_000, library.threads
    sums = aligned_floats(library.width * tasks)
    kernel, each = (abi.MultiplyPairs, 2 * PEAK_PAIR_SUMS) if library.pairs else (abi.MultiplyAdds, PEAK_SUMS)
    calls = empty_calls(1)
    write(calls, 0, kernel(out=sums, rounds=rounds), [sums.ctypes.data], tasks)
    return 2 * each * library.width * rounds * tasks / _best(lambda: library.run(calls))


def _native_copy(library: Library, size: int) -> Callable[[], object]:
    rows = 64
    columns = size // 4 // rows
    source, target = aligned_floats(rows * columns), aligned_floats(rows * columns)
    source[:], target[:] = 1, 0
    shape, strides = (1, 1, 1, 1, rows, columns), (0, 0, 0, 0, columns, 1)
    arguments = abi.Copy(source=source, out=target, shape=shape, source_strides=strides, out_strides=strides)
    calls = empty_calls(1)
    write(calls, 0, arguments, [source.ctypes.data, target.ctypes.data], library.threads)
    keep = (source, target)

    def copy() -> object:
        library.run(calls)
        return keep

    return copy


def _array_flops(device: Device, size: int) -> float:
    a = device.xp.ones((size, size), np.float32)
    out = device.xp.empty_like(a)

    def multiply() -> None:
        device.xp.matmul(a, a, out=out)
        device.wait()

    return 2 * size**3 / _best(multiply)


def _array_copy(device: Device, size: int) -> Callable[[], object]:
    source, target = device.xp.ones(size // 4, np.float32), device.xp.zeros(size // 4, np.float32)

    def copy() -> None:
        device.xp.copyto(target, source)
        device.wait()

    return copy
