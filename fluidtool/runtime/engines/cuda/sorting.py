"""Sorted keys: whole numbers below 2 ** 63 that say what is compared, and where it stands, so that no two of them are equal."""

from __future__ import annotations

from collections.abc import Callable

from fluidtool.runtime.engines.cuda.calls import Buffer, Place
from fluidtool.runtime.engines.cuda.lowering import LARGEST, Lowering
from fluidtool.runtime.engines.cuda.sources import THREADS, Source
from fluidtool.runtime.graph.importers.registry import need

CHUNK = 2048  # keys that a block sorts in its own memory
BEHIND = f"{(1 << 63) - 1}ll"  # behind all keys


def sorted_keys(low: Lowering, rows: int, count: int, key: Callable[[Source, str, str], str]) -> Place:
    """The keys of each row, sorted: by blocks, then two sorted runs at once. `key` gives one by its row and its number in it.

    A row of the place, which has a power of two of them, ends with what is behind all keys.
    """
    size = max(2, 1 << (count - 1).bit_length())
    need(rows * size <= LARGEST, "more numbers than a kernel sorts")
    chunk = min(size, CHUNK)
    keys, src = _room(rows, size), Source(low)
    swap = "if ((keys[a] > keys[b]) == ((a & k) == 0)) { const whole t = keys[a]; keys[a] = keys[b]; keys[b] = t; }"
    pair = "const int a = me / j * 2 * j + me % j, b = a + j;"
    each = f"for (int i = me; i < {chunk}; i += {chunk // 2})"
    parts = size // chunk
    src.lines += [
        f"__shared__ whole keys[{chunk}];",
        f"const int me = threadIdx.x, row = blockIdx.x / {parts}, start = blockIdx.x % {parts} * {chunk};",
    ]
    loaded = src.within(lambda: f"keys[i] = {key(src, 'row', 'at')};")
    src.lines += [
        f"{each} {{ const int at = start + i; if (at < {count}) {{ {loaded} }} else keys[i] = {BEHIND}; }}",
        "__syncthreads();",
        f"for (int k = 2; k <= {chunk}; k *= 2) for (int j = k / 2; j > 0; j /= 2) {{ {pair} {swap} __syncthreads(); }}",
        f"{each} out[blockIdx.x * {chunk} + i] = keys[i];",
    ]
    low.calls.append(src.launch(keys, rows * parts, chunk // 2, "sort"))
    run = chunk
    while run < size:
        keys, run = _merged(low, keys, run, rows * size), 2 * run
    return keys


def _room(rows: int, size: int) -> Place:
    return Place(Buffer(2 * rows * size, integer=True), (size, 1))


def _merged(low: Lowering, keys: Place, run: int, count: int) -> Place:
    """Sorted runs of twice the length: each key counts those of the other run that are before it."""
    src, out = Source(low), Place(Buffer(2 * count, integer=True), keys.strides)
    at, given = src.thread(count), src.pointer(keys.buffer, keys.offset)
    src.lines += [
        f"const int own = {at} / {run} * {run}, pair = {at} / {2 * run} * {2 * run};",
        f"const int other = own == pair ? pair + {run} : pair;",
        f"const whole key = {given}[{at}];",
        f"int low = 0, high = {run};",
        "while (low < high) {",
        "    const int middle = (low + high) / 2;",
        f"    const whole there = {given}[other + middle];",
        "    if (there < key || (there == key && other < own)) low = middle + 1; else high = middle;",
        "}",
        f"out[pair + {at} - own + low] = key;",
    ]
    low.calls.append(src.launch(out, -(-count // THREADS), THREADS, "merge"))
    return out
