"""Kernels of our own for what cupy lacks: sums in a fixed order, checks of indices that do not wait, numpy's random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.records import dataclass

BLOCK = 256
WORDS = 8  # random words for each thread
LIMIT = 2**31 - 1  # the largest index that a flag can tell
CLEAR = 2**64 - 1  # a flag that nothing has set
MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645  # of PCG64 (numpy/random/src/pcg64/pcg64.h)
MASK = 2**128 - 1

PCG64 = r"""
struct wide { word high, low; };
static __device__ wide times(wide a, wide b)
{
    wide found;
    found.low = a.low * b.low;
    found.high = __umul64hi(a.low, b.low) + a.high * b.low + a.low * b.high;
    return found;
}
static __device__ wide plus(wide a, wide b)
{
    wide found;
    found.low = a.low + b.low;
    found.high = a.high + b.high + (found.low < a.low);
    return found;
}
static __device__ wide jumped(wide state, wide factor, wide step, word count)
{
    wide all = {0, 1}, added = {0, 0}, one = {0, 1};
    for (; count; count >>= 1) {
        if (count & 1) {
            all = times(all, factor);
            added = plus(times(added, factor), step);
        }
        step = times(plus(factor, one), step);
        factor = times(factor, factor);
    }
    return plus(times(all, state), added);
}
static __device__ word drawn(wide state)
{
    word mixed = state.high ^ state.low;
    unsigned turn = (unsigned)(state.high >> 58);
    return mixed >> turn | mixed << ((64 - turn) & 63);
}
"""

SOURCE = r"""
typedef long long whole;
typedef unsigned long long word;

// ---------------------------------------------------------------- checks
// flag: the smallest of (place << 32 | index + 2^31) of all indices outside [low, high).
extern "C" __global__ void mark_outside(const whole* ids, whole count, whole low, whole high, whole ignored, int ignores,
                                        word* flag)
{
    whole at = (whole)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    whole id = ids[at];
    if ((id >= low && id < high) || (ignores && id == ignored)) return;
    whole shown = id < -2147483647LL ? -2147483647LL : id > 2147483647LL ? 2147483647LL : id;
    atomicMin(flag, (word)at << 32 | (word)(shown + 2147483648LL));
}

// ---------------------------------------------------------------- sums in order
// rows[order] ascends. total[row] += values[i], i ascending within a row: each thread adds one column of one row.
ADD_ROWS(float)
ADD_ROWS(double)

// ---------------------------------------------------------------- random numbers
// A thread jumps to its words (state := a state + c, 128 bits) and draws them one after another.
PCG64
extern "C" __global__ void draw_floats(word high, word low, word step_high, word step_low, word factor_high, word factor_low,
                                       whole words, whole first, float* out, whole count)
{
    whole begin = ((whole)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    wide state = {high, low}, step = {step_high, step_low}, factor = {factor_high, factor_low};
    if (begin >= words) return;
    state = jumped(state, factor, step, (word)begin);
    for (whole i = begin; i < words && i < begin + 8; i++) {
        state = plus(times(state, factor), step);
        word both = drawn(state);
        whole at = first + 2 * i;
        out[at] = (float)((unsigned)both >> 8) * (1.0f / 16777216.0f);
        if (at + 1 < count) out[at + 1] = (float)((unsigned)(both >> 32) >> 8) * (1.0f / 16777216.0f);
    }
}
extern "C" __global__ void draw_doubles(word high, word low, word step_high, word step_low, word factor_high,
                                        word factor_low, whole words, double* out)
{
    whole begin = ((whole)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    wide state = {high, low}, step = {step_high, step_low}, factor = {factor_high, factor_low};
    if (begin >= words) return;
    state = jumped(state, factor, step, (word)begin);
    for (whole i = begin; i < words && i < begin + 8; i++) {
        state = plus(times(state, factor), step);
        out[i] = (double)(drawn(state) >> 11) * (1.0 / 9007199254740992.0);
    }
}
"""

ADD_ROWS = r"""
extern "C" __global__ void add_rows_TYPE(const whole* rows, const whole* order, const TYPE* values, TYPE* total, whole count,
                                         whole columns, whole height)
{
    whole at = (whole)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count * columns) return;
    whole first = at / columns, column = at % columns, row = rows[order[first]];
    if ((first > 0 && rows[order[first - 1]] == row) || row < 0 || row >= height) return;
    TYPE sum = total[row * columns + column];
    for (whole i = first; i < count && rows[order[i]] == row; i++) sum = sum + values[order[i] * columns + column];
    total[row * columns + column] = sum;
}
"""


def source() -> str:
    """All kernels, those for floats and doubles written out."""
    return (
        SOURCE.replace("PCG64", PCG64)
        .replace("ADD_ROWS(float)", ADD_ROWS.replace("TYPE", "float"))
        .replace("ADD_ROWS(double)", ADD_ROWS.replace("TYPE", "double"))
    )


class Kernels:
    """The kernels on the GPUs of a cupy; compiled on first use, which cupy remembers on disk."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._module = xp.RawModule(code=source())

    def compile(self) -> None:
        """Raises cupy's CompileException where NVRTC refuses the sources."""
        self._module.compile()

    def _launch(self, name: str, threads: int, *args: Any) -> None:
        if threads:
            self._module.get_function(name)((-(-threads // BLOCK),), (BLOCK,), args)

    def clear_flags(self, count: int) -> Any:
        """Flags that nothing has set."""
        return self._xp.full(count, CLEAR, np.uint64)

    def mark_outside(self, ids: Any, low: int, high: int, ignored: int | None, flag: Any) -> None:
        """Set a flag if one of the ids, other than the ignored one, is not in [low, high)."""
        whole = self._xp.ascontiguousarray(ids.astype(np.int64, copy=False))
        bounds = np.int64(low), np.int64(high), np.int64(ignored or 0), np.int32(ignored is not None)
        self._launch("mark_outside", whole.size, whole, np.int64(whole.size), *bounds, flag)

    def add_rows(self, total: Any, rows: Any, values: Any) -> None:
        """total[rows[i]] += values[i], in this order; `total` is contiguous, of floats or doubles, the rows are in range."""
        rows = self._xp.ascontiguousarray(rows.astype(np.int64, copy=False))
        order = self._xp.argsort(rows).astype(np.int64, copy=False)  # cupy's sort is stable
        columns = total.size // len(total)
        name = "add_rows_float" if total.dtype == np.float32 else "add_rows_double"
        sizes = np.int64(rows.size), np.int64(columns), np.int64(len(total))
        self._launch(name, rows.size * columns, rows, order, self._xp.ascontiguousarray(values), total, *sizes)

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
        """What `generator.random(shape, dtype)` draws, bit by bit; the generator goes on after it."""
        out = self._xp.empty(shape, dtype)
        halves = out.dtype == np.float32
        begin = drawing(generator, out.size, halves)
        first = int(begin.first)
        words = -(-(out.size - first) // 2) if halves else out.size
        if first:
            out.reshape(-1)[0] = np.float32((begin.half >> 8) * 2.0**-24)
        numbers = [np.uint64(part) for each in (begin.state, begin.step, MULTIPLIER) for part in parts(each)]
        sizes = (np.int64(words), np.int64(first), out, np.int64(out.size)) if halves else (np.int64(words), out)
        self._launch("draw_floats" if halves else "draw_doubles", -(-words // WORDS), *numbers, *sizes)
        return out


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a drawing begins: the state and step of PCG64, and whether half a word (`half`) is left from before."""

    state: int
    step: int
    first: bool
    half: int


def drawing(generator: np.random.Generator, count: int, halves: bool) -> Beginning:
    """Where drawing so many numbers begins, floats by `halves` of words, else doubles; the generator goes on after them."""
    state = dict(generator.bit_generator.state)
    place, step = state["state"]["state"], state["state"]["inc"]
    first = bool(halves and state["has_uint32"] and count > 0)
    begin = Beginning(place, step, first, state["uinteger"])
    words = -(-(count - first) // 2) if halves else count
    last = jumped(place, step, words)
    state["state"] = {"state": last, "inc": step}
    if halves and count:
        state["has_uint32"] = (count - first) % 2
        state["uinteger"] = word_of(last) >> 32 if words else state["uinteger"]
    generator.bit_generator.state = state
    return begin


def parts(number: int) -> tuple[int, int]:
    """The upper and the lower 64 bits."""
    return number >> 64, number & (2**64 - 1)


def jumped(state: int, step: int, count: int) -> int:
    """The state of PCG64 after this many words."""
    factor, every, added = MULTIPLIER, 1, 0
    while count:
        if count & 1:
            every, added = every * factor & MASK, (added * factor + step) & MASK
        factor, step, count = factor * factor & MASK, (factor + 1) * step & MASK, count >> 1
    return (every * state + added) & MASK


def word_of(state: int) -> int:
    """The word that PCG64 gives in a state."""
    high, low = state >> 64, state & (2**64 - 1)
    mixed, turn = high ^ low, high >> 58
    return (mixed >> turn | mixed << (64 - turn)) & (2**64 - 1)


def read_flags(flags: NDArray[np.uint64]) -> tuple[int, int] | None:
    """The first flag that is set, and the index that it tells; None if none is."""
    found = np.flatnonzero(flags != CLEAR)
    if not found.size:
        return None
    number = int(found[0])
    return number, int(flags[number] & 0xFFFFFFFF) - 2**31
