"""CUDA C++ of a cluster of nodes: one kernel that computes its last node, and reads the inputs of the first ones.

Sizes are part of the source, so that the compiler knows them; indices are 32 bits. Kernels that are alike have one name.
A thread computes several elements that lie side by side, its lanes, where memory is read and written in pieces of 16 bytes by that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from string import ascii_lowercase
from typing import Any, Protocol

import numpy as np

from fluidtool.runtime.engines.cuda.calls import BYTES, Buffer, Launch, Place, Pointer, row_major
from fluidtool.runtime.graph.importers.registry import ALONE, PRELU, need
from fluidtool.runtime.graph.ir import Activation, Node, Shape, Value

THREADS = 256
BUSY = 1 << 16  # threads that keep a GPU busy
ENOUGH = 1 << 15  # threads that are at least left when each computes several elements
Index = Sequence[str]
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
NOWHERE = Buffer(0)
MOST_POINTERS = 512  # of a kernel, whose arguments take at most 4 KiB
MOST_HELD = 128  # elements of pieces that a thread holds, of which registers have 255
WIDTH = {"": 4, "fp16": 2, "bf16": 2}  # bytes of an element

PRELUDE = r"""
typedef long long whole;
typedef unsigned short half16;
#define FT_DEVICE static __device__ __forceinline__
FT_DEVICE float ft_larger(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
FT_DEVICE float ft_smaller(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
FT_DEVICE float ft_prelu(float x, float slope) { return x > 0.0f ? x : x * slope; }
FT_DEVICE float ft_relu(float x) { return x < 0.0f ? 0.0f : x; }
FT_DEVICE float ft_clip(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
FT_DEVICE float ft_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
FT_DEVICE float ft_gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
FT_DEVICE float ft_gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}
FT_DEVICE float ft_leaky(float x, float slope) { return x < 0.0f ? x * slope : x; }
FT_DEVICE float ft_hard_swish(float x, float threshold, float offset, float scale)
{
    return x * ft_clip(x + offset, 0.0f, threshold) / scale;
}
FT_DEVICE float ft_swish(float x, float beta) { return x / (1.0f + expf(-beta * x)); }
FT_DEVICE float ft_square(float x) { return x * x; }
FT_DEVICE float ft_affine(float x, float factor, float offset) { return x * factor + offset; }
FT_DEVICE float ft_hard_sigmoid(float x, float slope, float offset) { return ft_clip(x * slope + offset, 0.0f, 1.0f); }
FT_DEVICE float ft_softsign(float x) { return x / (1.0f + fabsf(x)); }
FT_DEVICE whole ft_whole(float x)  // cut towards zero; what is beyond whole numbers, or is none, becomes the lowest one
{
    return x >= -9223372036854775808.0f && x < 9223372036854775808.0f ? (whole)x : -9223372036854775807ll - 1;
}
FT_DEVICE int ft_row(whole id, int rows, float* outside)
{
    if (id >= 0 && id < rows) return (int)id;
    *outside = 1.0f;  // by any thread that finds one: what it reads does not matter
    return 0;
}
FT_DEVICE whole ft_divisor(whole number, float* outside)
{
    if (number != 0) return number;
    *outside = 1.0f;
    return 1;
}
FT_DEVICE int ft_label(whole id, int classes, whole ignored, float* outside)
{
    return id == ignored ? -1 : ft_row(id, classes, outside);
}
FT_DEVICE float ft_of_bf16(half16 x) { return __uint_as_float((unsigned)x << 16); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define FT_CONVERTS_PAIRS
#endif
FT_DEVICE half16 ft_to_bf16(float x)
{
#ifdef FT_CONVERTS_PAIRS
    half16 found;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(found) : "f"(x));
    return found;
#else
    const unsigned bits = __float_as_uint(x);
    return (half16)(x != x ? 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}
#ifndef FT_EMULATED
#define FT_ALIGNED(at, bytes)
#define FT_WITHIN(at, bytes)
FT_DEVICE float ft_of_fp16(half16 x)
{
    float found;
    asm("cvt.f32.f16 %0, %1;" : "=f"(found) : "h"(x));
    return found;
}
FT_DEVICE half16 ft_nearest_fp16(float x)
{
    half16 found;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(found) : "f"(x));
    return found;
}
#endif
FT_DEVICE float ft_within_fp16(float x)
{
    const bool finite = fabsf(x) < 1.0f / 0.0f;  // the largest number instead of infinity: masks are added, and stay masks
    return finite ? ft_clip(x, -65504.0f, 65504.0f) : x;
}
FT_DEVICE half16 ft_to_fp16(float x) { return ft_nearest_fp16(ft_within_fp16(x)); }
FT_DEVICE unsigned ft_pair_bf16(float first, float second)
{
#ifdef FT_CONVERTS_PAIRS
    unsigned found;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(second), "f"(first));
    return found;
#else
    return ft_to_bf16(first) | (unsigned)ft_to_bf16(second) << 16;
#endif
}
FT_DEVICE unsigned ft_pair_fp16(float first, float second)
{
#ifdef FT_CONVERTS_PAIRS
    unsigned found;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(ft_within_fp16(second)), "f"(ft_within_fp16(first)));
    return found;
#else
    return ft_to_fp16(first) | (unsigned)ft_to_fp16(second) << 16;
#endif
}
template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) ft_piece { T each[N]; };
template <int N> FT_DEVICE void ft_get_float(float* v, const float* at)
{
    FT_ALIGNED(at, sizeof(float) * N)
    const ft_piece<float, N> x = *(const ft_piece<float, N>*)at;
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = x.each[k];
}
template <int N> FT_DEVICE void ft_put_float(float* at, const float* v)
{
    FT_ALIGNED(at, sizeof(float) * N)
    ft_piece<float, N> x;
#pragma unroll
    for (int k = 0; k < N; k++) x.each[k] = v[k];
    *(ft_piece<float, N>*)at = x;
}
template <int N> FT_DEVICE bool ft_is_aligned(const float* at) { return ((whole)at & (alignof(ft_piece<float, N>) - 1)) == 0; }
template <int N> FT_DEVICE void ft_get_anywhere(float* v, const float* at)
{
    if (ft_is_aligned<N>(at)) return ft_get_float<N>(v, at);
    FT_WITHIN(at, sizeof(float) * N)
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = at[k];
}
template <int N> FT_DEVICE void ft_put_anywhere(float* at, const float* v)
{
    if (ft_is_aligned<N>(at)) return ft_put_float<N>(at, v);
    FT_WITHIN(at, sizeof(float) * N)
#pragma unroll
    for (int k = 0; k < N; k++) at[k] = v[k];
}
#define FT_HALVES(kind, first, second) \
template <int N> FT_DEVICE void ft_get_##kind(float* v, const half16* at) \
{ \
    FT_ALIGNED(at, sizeof(half16) * N) \
    const ft_piece<unsigned, N / 2> x = *(const ft_piece<unsigned, N / 2>*)at; \
    for (int k = 0; k < N / 2; k++) { v[2 * k] = first; v[2 * k + 1] = second; } \
} \
template <int N> FT_DEVICE void ft_put_##kind(half16* at, const float* v) \
{ \
    FT_ALIGNED(at, sizeof(half16) * N) \
    ft_piece<unsigned, N / 2> x; \
    for (int k = 0; k < N / 2; k++) x.each[k] = ft_pair_##kind(v[2 * k], v[2 * k + 1]); \
    *(ft_piece<unsigned, N / 2>*)at = x; \
}
FT_HALVES(bf16, __uint_as_float(x.each[k] << 16), __uint_as_float(x.each[k] & 0xffff0000u))
FT_HALVES(fp16, ft_of_fp16((half16)(x.each[k] & 0xffffu)), ft_of_fp16((half16)(x.each[k] >> 16)))
"""

FUNCTIONS = (
    "", "ft_relu", "ft_clip", "ft_sigmoid", "tanhf", "ft_gelu", "ft_leaky", "ft_hard_swish", "ft_swish", "expf", "sqrtf",
    "ft_square", "ft_affine", "ft_hard_sigmoid", "fabsf", "ft_gelu_tanh", "ft_clip", "ft_softsign",
)  # fmt: skip
"""By the number of an activation (graph/importers/registry.py)."""
RELU6 = 2
OPERATIONS = ("({} + {})", "({} - {})", "({} * {})", "({} / {})", "ft_larger({}, {})", "ft_smaller({}, {})")


def threads_for(count: int) -> int:
    """The threads for a row of this many elements: a power of two."""
    return min(THREADS, max(32, 1 << (count - 1).bit_length()))


def number(value: float) -> str:
    """A float of C."""
    text = repr(float(np.float32(value)))
    special = {"inf": "(1.0f / 0.0f)", "-inf": "(-1.0f / 0.0f)", "nan": "(0.0f / 0.0f)"}
    return special.get(text) or f"{text}f"


def kind_of(buffer: Buffer) -> str:
    """What a kernel calls the type of the elements of a buffer."""
    return "whole" if buffer.integer else "half16" if buffer.half else "float"


def activated(activation: Activation, value: str) -> str:
    """An activation of a value."""
    if not activation.kind:
        return value
    constants = (0.0, *activation.constants) if activation.kind == RELU6 else activation.constants
    return f"{FUNCTIONS[activation.kind]}({', '.join([value, *map(number, constants)])})"


class Places(Protocol):
    """Where values are, and which are computed within their reader."""

    @property
    def inlined(self) -> Mapping[Value, Node]:
        """The nodes of values that are in no memory."""

    def place(self, value: Value) -> Place:
        """Where a value is."""

    def constant(self, array: Any) -> Buffer:
        """The buffer of constant numbers."""

    def weights(self, array: Any) -> Buffer:
        """The buffer of constant numbers of which there are many: halves, where memory has those."""

    def outside(self) -> Buffer:
        """The number that becomes 1 if an id is out of range."""


class Source:
    """A kernel while it is written."""

    def __init__(self, low: Places) -> None:
        self.low = low
        self.lines: list[str] = []
        self.pointers: dict[tuple[Buffer, int], str] = {}
        self.functions: dict[str, str] = {}
        self.changed: set[str] = set()  # names of pointers through which the kernel writes
        self.count = 0
        self.lanes = 1  # elements side by side that the statements of `inner` are for, one after the other
        self.inner: list[str] = []
        self.after: list[str] = []
        self.varying: set[str] = set()  # variables that differ from lane to lane
        self.bases: dict[str, str] = {}  # those that count up from this one, a multiple of the lanes
        self.flats: dict[tuple[str, ...], tuple[Shape, str]] = {}  # strides, and the number of an element, by its index
        self.loaded: dict[tuple[str, str, tuple[str, ...]], str] = {}
        self.guards: tuple[str, ...] = ()
        self.shared = ""  # registers of pieces, only one of which is read
        self.total = 0  # elements that the kernel computes
        self.held = 0  # elements of pieces in registers
        self.is_scattered = False  # whether lanes read many elements, or write, one by one, or hold too many

    def pointer(self, buffer: Buffer, offset: int = 0) -> str:
        """The name of a pointer argument."""
        return self.pointers.setdefault((buffer, offset), f"p{len(self.pointers)}")

    def writable(self, buffer: Buffer, offset: int = 0) -> str:
        """The name of a pointer argument through which the kernel writes."""
        name = self.pointer(buffer, offset)
        self.changed.add(name)
        return name

    def whole(self, expression: str) -> str:
        """A variable for an index."""
        if expression.isidentifier() or expression.isdigit():
            return expression
        self.count += 1
        name = f"i{self.count}"
        if self.varies(expression):
            self.inner.append(f"const int {name} = {expression};")
            self.varying.add(name)
        else:
            self.lines.append(f"const int {name} = {expression};")
        return name

    def within(self, make: Callable[[], str]) -> str:
        """Statements, the last of which is what `make` gives: the statements of a loop."""
        before, self.lines = self.lines, []
        last = make()
        lines, self.lines = self.lines, before
        return " ".join([*lines, last])

    # ---------------------------------------------------------------- lanes
    def side_by_side(self, lanes: int, base: str, make: Callable[[str], str]) -> str:
        """Statements for some elements from an index on, a multiple of their number; `make` gives the last one for an index."""
        if lanes == 1:
            return self.within(lambda: make(base))
        outside = self.lines
        self.lines, self.inner, self.after, self.lanes, self.held = [], [], [], lanes, 0
        self.varying, self.bases, self.flats, self.loaded = {"lane"}, {}, {}, {}
        last = make(self.counted(base))
        loop = f"\n#pragma unroll\nfor (int lane = 0; lane < {lanes}; lane++) {{"
        text = " ".join([*self.lines, loop, *self.inner, last, "}", *self.after])
        self.lines, self.lanes, self.varying = outside, 1, set()
        return text

    def counted(self, base: str) -> str:
        """The variable that counts lanes from a base."""
        self.count += 1
        name = f"l{self.count}"
        self.inner.append(f"const int {name} = {base} + lane;")
        self.varying.add(name)
        self.bases[name] = base
        return name

    def varies(self, expression: str) -> bool:
        """Whether an expression differs from lane to lane."""
        return self.lanes > 1 and not self.varying.isdisjoint(IDENTIFIER.findall(expression))

    def plus(self, part: str, number: int) -> str:
        """An index and a number."""
        if not number:
            return part
        if part in self.bases and number % self.lanes == 0:
            return self.counted(self.whole(f"{self.bases[part]} + {number}"))
        return self.whole(f"{part} + {number}" if number > 0 else f"{part} - {-number}")

    def compared(self, part: str, how: str, bound: int) -> str:
        """A comparison of an index ('<' or '>='), which all lanes share where the bound lies between two pieces."""
        return f"{self.bases.get(part, part) if bound % self.lanes == 0 else part} {how} {bound}"

    @contextmanager
    def guarded(self, *conditions: str) -> Iterator[None]:
        """What is loaded meanwhile is there only under these conditions."""
        before, self.guards = self.guards, (*self.guards, *conditions)
        yield
        self.guards = before

    @contextmanager
    def sharing(self, registers: str, value: Value) -> Iterator[None]:
        """A value that is read meanwhile, and not computed here, may be in these registers: it is there alone, or not at all."""
        before, self.shared = self.shared, "" if value in self.low.inlined else registers
        yield
        self.shared = before

    def piece(self, place: Place, index: Index) -> str | None:
        """Where the lanes of an index begin, if they lie side by side in 16 bytes that are whole there."""
        if self.lanes == 1 or place.buffer.integer or place.offset % self.lanes:
            return None
        strides, flat = self.flats.get(tuple(index), ((), ""))
        if flat and all(a == b or part == "0" for a, b, part in zip(strides, place.strides, index, strict=True)):
            return self.bases[flat]
        terms = [(part, step) for part, step in zip(index, place.strides, strict=True) if step and part != "0"]
        moving = [(part, step) for part, step in terms if self.varies(part)]
        rest = [(part, step) for part, step in terms if not self.varies(part)]
        if len(moving) != 1 or moving[0][1] != 1 or moving[0][0] not in self.bases:
            return None
        if any(step % self.lanes for _, step in rest):
            return None
        return " + ".join([*(f"{part} * {step}" for part, step in rest), self.bases[moving[0][0]]])

    # ---------------------------------------------------------------- indices
    def flat(self, index: Index, shape: Shape) -> str:
        """The number of an element, row by row."""
        base = self.piece(Place(NOWHERE, row_major(shape)), index)
        if base is not None:
            return self.counted(self.whole(base))
        terms = [
            part if step == 1 else f"{part} * {step}"
            for part, size, step in zip(index, shape, row_major(shape), strict=True)
            if size > 1
        ]
        return self.whole(" + ".join(terms)) if terms else "0"

    def split(self, flat: str, shape: Shape, order: Sequence[int] | None = None) -> list[str]:
        """The index of an element by its number; the axes of `order`, the last of which is counted first."""
        found = ["0"] * len(shape)
        order = [axis for axis in (range(len(shape)) if order is None else order) if shape[axis] > 1]
        base = self.bases.get(flat) if order else None
        if base is not None and shape[order[-1]] % self.lanes == 0:
            found = self.split(base, shape, order)
            found[order[-1]] = self.counted(found[order[-1]])
            return found
        step, strides = prod(shape), [0] * len(shape)
        for axis in order:
            step //= shape[axis]
            strides[axis] = step
            part = flat if step == 1 else f"{flat} / {step}"
            found[axis] = self.whole(part if axis == order[0] else f"{part} % {shape[axis]}")
        if base is not None:
            self.flats[tuple(found)] = tuple(strides), flat
        return found

    def reshaped(self, index: Index, shape: Shape, into: Shape) -> list[str]:
        """The same element of an array of another shape."""
        kept = [(part, size) for part, size in zip(index, shape, strict=True) if size > 1]
        if [size for _, size in kept] == [size for size in into if size > 1]:
            parts = iter(part for part, _ in kept)
            return [next(parts) if size > 1 else "0" for size in into]
        return self.split(self.flat(index, shape), into)

    def at(self, place: Place, index: Index) -> str:
        """An element of a place; those of all lanes are read at once where they lie side by side."""
        base = self.piece(place, index)
        if base is not None and not any(map(self.varies, self.guards)):
            return self.read_piece(place, base)
        if any(step and self.varies(part) for part, step in zip(index, place.strides, strict=True)):
            self.is_scattered |= 2 * BYTES * place.buffer.floats >= WIDTH[place.buffer.half] * self.total
        terms = [
            part if step == 1 else f"{part} * {step}"
            for part, step in zip(index, place.strides, strict=True)
            if step and part != "0"
        ]
        return self.read(place.buffer, place.offset, " + ".join(terms) or "0")

    def read_piece(self, place: Place, base: str) -> str:
        """The element of a lane, of those that are read at once."""
        pointer, guard = self.pointer(place.buffer, place.offset), " && ".join(self.guards)
        key = pointer, base, self.guards
        if key not in self.loaded:
            name = self.loaded[key] = self.shared or self.registers()
            kind = place.buffer.half or ("anywhere" if place.buffer.role == "state" else "float")
            get = f"ft_get_{kind}<{self.lanes}>({name}, {pointer} + {base});"
            self.lines.append(f"{f'if ({guard}) ' if guard else ''}{get}")
        return f"{self.loaded[key]}[lane]"

    def registers(self) -> str:
        """A variable for the elements of all lanes."""
        self.count, self.held = self.count + 1, self.held + self.lanes
        self.is_scattered |= self.held > MOST_HELD
        self.lines.append(f"float v{self.count}[{self.lanes}];")
        return f"v{self.count}"

    def read(self, buffer: Buffer, offset: int, place: str) -> str:
        """An element of a buffer, as a float (or a whole number)."""
        text = f"{self.pointer(buffer, offset)}[{place}]"
        return f"ft_of_{buffer.half}({text})" if buffer.half else text

    # ---------------------------------------------------------------- values
    def load(self, value: Value, index: Index) -> str:
        """An element of a value: read, or computed where the value belongs to this cluster."""
        node = self.low.inlined.get(value)
        return self.at(self.low.place(value), index) if node is None else self.result(node, index)

    def result(self, node: Node, index: Index) -> str:
        """An element of an elementwise node."""
        return self.finished(node, EXPRESSIONS[node.kind](self, node, index), index)

    def finished(self, node: Node, value: str, index: Index) -> str:
        """A result with what is added to it, and its activation."""
        if node.residual is not None:
            other = self.load(node.residual, self.reshaped(index, node.output.shape, node.residual.shape))
            value = f"({value} + {other})"
        return activated(node.activation, value)

    def table(self, numbers: Any) -> str:
        """A constant list of numbers."""
        whole = np.asarray(numbers).dtype.kind in "iu"
        array = np.ascontiguousarray(numbers, np.int64 if whole else np.float32).reshape(-1)
        return self.pointer(self.low.constant(array))

    def numbered(self, numbers: Any, part: str) -> str:
        """A number of a constant list."""
        array = np.ascontiguousarray(numbers, np.float32).reshape(-1)
        return self.at(Place(self.low.constant(array), (1,)), [part])

    # ---------------------------------------------------------------- whole kernels
    def launch(self, out: Place, blocks: int, threads: int, prefix: str) -> Launch:
        """The kernel; the place of its results is its last argument. Raises UnsupportedError for too many arguments."""
        need(len(self.pointers) < MOST_POINTERS, f"more than {MOST_POINTERS - 1} arrays in one kernel")
        arguments = [
            f"{'' if name in self.changed else 'const '}{kind_of(buffer)}* {name}"
            for (buffer, _), name in self.pointers.items()
        ]
        statements = "\n    ".join(self.lines)
        text = f"({', '.join([*arguments, f'{kind_of(out.buffer)}* out'])})\n{{\n    {statements}\n}}\n"
        name = f"{prefix}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        bounds = f"__launch_bounds__({threads})"
        pointers = (*(Pointer(buffer, offset) for buffer, offset in self.pointers), out.pointer)
        source = f'extern "C" __global__ void {bounds} {name}{text}'
        return Launch(name, source, pointers, blocks, threads, tuple(self.functions.values()))

    def call(self, text: str, arguments: Sequence[str], taken: str = "float", given: str = "float") -> str:
        """A formula of arguments, which it calls a, b, c …; as a function, so that each is computed once. taken, given: types."""
        if not arguments:
            return f"({text})"
        declared = ", ".join(f"{taken} {letter}" for letter in ascii_lowercase[: len(arguments)])
        name = f"ft_{hashlib.sha256(f'{given} {declared} {text}'.encode()).hexdigest()[:12]}"
        self.functions[name] = f"FT_DEVICE {given} {name}({declared}) {{ return {text}; }}\n"
        return f"{name}({', '.join(arguments)})"

    def thread(self, count: int | str) -> str:
        """The number of the thread; those beyond the count return."""
        self.lines.append("const int at = blockIdx.x * blockDim.x + threadIdx.x;")
        self.lines.append(f"if (at >= {count}) return;")
        return "at"

    def store(self, out: Place, index: Index, value: str, pointer: str = "out") -> str:
        """The statement that stores a result: in a lane, for all of them to be stored at once after the last one.

        pointer: what the kernel calls the first element of the place.
        """
        base = self.piece(out, index)
        if base is not None:
            self.count += 1
            name = f"r{self.count}"
            self.lines.append(f"float {name}[{self.lanes}];")
            self.after.append(f"ft_put_{out.buffer.half or 'float'}<{self.lanes}>({pointer} + {base}, {name});")
            return f"{name}[lane] = {value};"
        self.is_scattered |= self.lanes > 1
        terms = [
            part if step == 1 else f"{part} * {step}"
            for part, step in zip(index, out.strides, strict=True)
            if step and part != "0"
        ]
        stored = f"ft_to_{out.buffer.half}({value})" if out.buffer.half else value
        return f"{pointer}[{' + '.join(terms) or '0'}] = {stored};"

    def reduced(self, name: str, start: str, value: str, join: str, count: int | str, threads: int) -> None:
        """A number of a row: each thread joins every `threads`-th element, then they join theirs through shared memory.

        value: statements that end with `const float v = …;` for the element i. join: of a and b.
        """
        joined = join.format(a="found", b="v")
        self.lines += [
            f"float {name};",
            "{",
            f"    float found = {start};",
            f"    for (int i = me; i < {count}; i += {threads}) {{ {value} found = {joined}; }}",
            "    shared[me] = found;",
            "    __syncthreads();",
            f"    for (int half = {threads // 2}; half > 0; half /= 2) {{",
            f"        if (me < half) shared[me] = {join.format(a='shared[me]', b='shared[me + half]')};",
            "        __syncthreads();",
            "    }",
            f"    {name} = shared[0];",
            "    __syncthreads();",
            "}",
        ]

    def row(self, threads: int) -> None:
        """The start of a kernel with a block for each row."""
        self.lines += [
            f"__shared__ float shared[{threads}];",
            "const int row = blockIdx.x, me = threadIdx.x;",
        ]


# ---------------------------------------------------------------- elements of elementwise nodes
def _unary(src: Source, node: Node, index: Index) -> str:
    return src.load(node.inputs[0], index)


def _binary(src: Source, node: Node, index: Index) -> str:
    x, y = node.inputs
    shape, operation = node.attrs["y_shape"], node.attrs["operation"]
    broadcast = ["0" if size == 1 else part for part, size in zip(index, shape, strict=True)]
    a, b = src.load(x, index), src.load(y, src.reshaped(broadcast, shape, y.shape))
    if operation == PRELU:
        return f"ft_prelu({a}, {b})"
    return a if operation == ALONE else OPERATIONS[operation].format(a, b)


def _affine(src: Source, node: Node, index: Index) -> str:
    scale, shift = (src.numbered(node.attrs[name], index[1]) for name in ("scale", "shift"))
    return f"({src.load(node.inputs[0], index)} * {scale} + {shift})"


def _view(src: Source, node: Node, index: Index) -> str:
    return src.load(node.inputs[0], src.reshaped(index, node.output.shape, node.inputs[0].shape))


def _transpose(src: Source, node: Node, index: Index) -> str:
    return src.load(node.inputs[0], [index[list(node.attrs["axes"]).index(axis)] for axis in range(len(index))])


def _slice(src: Source, node: Node, index: Index) -> str:
    sizes = tuple(node.attrs["sizes"])
    parts = src.reshaped(index, node.output.shape, sizes)
    starts = node.attrs["starts"]
    return src.load(
        node.inputs[0],
        [src.plus(part, start) for part, start in zip(parts, starts, strict=True)],
    )


def _concat(src: Source, node: Node, index: Index) -> str:
    axis, place, end = node.attrs["axis"], 0, node.output.shape[node.attrs["axis"]]
    text, registers = "", src.registers() if src.lanes > 1 else ""
    passed: list[str] = []
    for value in node.inputs:
        size = value.shape[axis]
        here = src.plus(index[axis], -place)
        place += size
        inside = src.compared(index[axis], "<", place)
        with src.guarded(*passed, *([inside] if place < end else [])), src.sharing(registers, value):
            loaded = src.load(value, [*index[:axis], here if size > 1 else "0", *index[axis + 1 :]])
        passed = [src.compared(index[axis], ">=", place)]
        text += loaded if place == end else f"({inside} ? {loaded} : "
    return f"({text}{')' * (len(node.inputs) - 1)})"


def _chosen(src: Source, which: str, loads: Sequence[Callable[[], str]]) -> str:
    """The load of this number."""
    texts, last = [], len(loads) - 1
    for at, load in enumerate(loads):
        with src.guarded(f"{which} == {at}"):
            texts.append(f"({which} == {at} ? {load()} : " if at < last else load())
    return f"({''.join(texts)}{')' * last})"


def _stack(src: Source, node: Node, index: Index) -> str:
    axis = node.attrs["axis"]
    own = [*index[:axis], *index[axis + 1 :]]
    return _chosen(src, index[axis], [partial(src.load, value, own) for value in node.inputs])


def _pad(src: Source, node: Node, index: Index) -> str:
    parts, inside = [], []
    for part, sources in zip(index, node.attrs["sources"], strict=True):
        if sources is None:
            parts.append(part)
            continue
        parts.append(src.whole(f"(int){src.table(np.asarray(sources, np.int64))}[{part}]"))
        if np.min(sources) < 0:
            inside.append(f"{parts[-1]} >= 0")
    with src.guarded(*inside):
        loaded = src.load(node.inputs[0], parts)
    return f"({' && '.join(inside)} ? {loaded} : {number(node.attrs['value'])})" if inside else loaded


def _mix(src: Source, node: Node, index: Index) -> str:
    channels = node.output.shape[1]
    which, taken = np.zeros(channels, np.int64), np.zeros(channels, np.int64)
    for at, (written, read) in enumerate(node.attrs["taken"]):
        which[written], taken[written] = at, read
    channel = src.whole(f"(int){src.table(taken)}[{index[1]}]")
    loads = [partial(src.load, value, [index[0], channel, *index[2:]]) for value in node.inputs]
    if len(loads) == 1:
        return loads[0]()
    return _chosen(src, src.whole(f"(int){src.table(which)}[{index[1]}]"), loads)


def _gather(src: Source, node: Node, index: Index) -> str:
    ids, table = node.inputs[0], node.attrs["table"]
    lead = node.output.shape[:-1]
    own = src.reshaped(index[:-1], lead, ids.shape)
    rows = src.low.weights(table)
    row = src.whole(f"ft_row({src.load(ids, own)}, {table.shape[0]}, {src.writable(src.low.outside())})")
    loaded = src.at(Place(rows, row_major(table.shape)), [row, index[-1]])
    return loaded if node.attrs["zero"] == -1 else f"({row} == {node.attrs['zero']} ? 0.0f : {loaded})"


def _formula(src: Source, node: Node, index: Index) -> str:
    """A formula (`text`) of broadcast inputs; with `counts_columns`, of the number of the column, too."""
    arguments = []
    for value, shape in zip(node.inputs, node.attrs["shapes"], strict=True):
        own = ["0" if size == 1 else part for part, size in zip(index, shape, strict=True)]
        arguments.append(src.load(value, src.reshaped(own, shape, value.shape)))
    if node.attrs["counts_columns"]:
        arguments.append(index[-1])
    return src.call(node.attrs["text"], arguments)


def _whole(src: Source, node: Node, index: Index) -> str:
    """A formula (`text`) of whole numbers, which are broadcast; with checks, the second one divides, and is marked if it is 0."""
    arguments = []
    for value, shape in zip(node.inputs, node.attrs["shapes"], strict=True):
        own = ["0" if size == 1 else part for part, size in zip(index, shape, strict=True)]
        arguments.append(src.load(value, src.reshaped(own, shape, value.shape)))
    if node.attrs.get("checks"):
        arguments[1] = f"ft_divisor({arguments[1]}, {src.writable(src.low.outside())})"
    return src.call(node.attrs["text"], arguments, "whole", "whole")


def _tile(src: Source, node: Node, index: Index) -> str:
    """Numbers that are repeated along axes."""
    (x,), own = node.inputs, []
    for part, size, whole in zip(index, x.shape, node.output.shape, strict=True):
        own.append("0" if size == 1 else part if size == whole else src.whole(f"{part} % {size}"))
    return src.load(x, own)


def _compared(src: Source, node: Node, index: Index) -> str:
    """A comparison (`text`) of a and b, the latter broadcast."""
    x, y = node.inputs
    own = ["0" if size == 1 else part for part, size in zip(index, node.attrs["y_shape"], strict=True)]
    b = src.load(y, src.reshaped(own, node.attrs["y_shape"], y.shape))
    return src.call(node.attrs["text"], [src.load(x, index), b], "whole" if x.integer else "float")


def _converted(src: Source, node: Node, index: Index) -> str:
    """A number of another type (`text`, of a)."""
    (x,) = node.inputs
    types = ["whole" if value.integer else "float" for value in (x, node.output)]
    return src.call(node.attrs["text"], [src.load(x, index)], *types)


def _hits(src: Source, node: Node, index: Index) -> str:
    """1 where one of the places of a row is its label, else 0."""
    places, labels = node.inputs
    label = src.load(labels, src.reshaped(index, node.output.shape, labels.shape))
    found = " || ".join(f"{src.load(places, [index[0], str(k)])} == {label}" for k in range(places.shape[1]))
    return f"({found} ? 1.0f : 0.0f)"


def _label(src: Source, node: Node, index: Index) -> str:
    """The element of a row that its label names; 0 for one that is no class, which is marked if there are checks, or is ignored."""
    (x, labels), classes, ignored = node.inputs, node.inputs[0].shape[-1], node.attrs["ignored"]
    loaded = src.load(labels, src.reshaped(index[:-1], x.shape[:-1], labels.shape))
    if node.attrs.get("checks"):
        label = src.whole(f"ft_label({loaded}, {classes}, {ignored}ll, {src.writable(src.low.outside())})")
        counted = f"{label} >= 0"
    else:
        label = src.whole(f"(int){loaded}")
        counted = f"{label} >= 0 && {label} < {classes} && {label} != {ignored}"
    with src.guarded(counted):
        loaded = src.load(x, [*index[:-1], label if x.shape[-1] > 1 else "0"])
    return f"({counted} ? {loaded} : 0.0f)"


def _one_hot(src: Source, node: Node, index: Index) -> str:
    """1 at the place of a label, 0 elsewhere; with checks, a label that is no place is marked."""
    (labels,), depth = node.inputs, node.output.shape[-1]
    label = src.load(labels, src.reshaped(index[:-1], node.output.shape[:-1], labels.shape))
    if node.attrs["checks"]:
        label = src.whole(f"ft_row({label}, {depth}, {src.writable(src.low.outside())})")
    return f"({label} == {index[-1]} ? 1.0f : 0.0f)"


def _rows(src: Source, node: Node, index: Index) -> str:
    """Rows of a table that is not constant, by ids; zeros for the id `zero`. With checks, an id that is no row is marked."""
    table, ids = node.inputs
    lead = node.output.shape[:-1]
    loaded = src.load(ids, src.reshaped(index[:-1], lead, ids.shape))
    marked = (
        f"ft_row({loaded}, {table.shape[0]}, {src.writable(src.low.outside())})" if node.attrs.get("checks") else ""
    )
    row = src.whole(marked or f"(int){loaded}")
    loaded = src.load(table, [row if table.shape[0] > 1 else "0", index[-1]])
    return loaded if node.attrs["zero"] == -1 else f"({row} == {node.attrs['zero']} ? 0.0f : {loaded})"


EXPRESSIONS: dict[str, Callable[[Source, Node, Index], str]] = {
    "unary": _unary,
    "binary": _binary,
    "affine": _affine,
    "view": _view,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "stack": _stack,
    "pad": _pad,
    "mix": _mix,
    "gather": _gather,
    "formula": _formula,
    "whole": _whole,
    "tile": _tile,
    "compared": _compared,
    "converted": _converted,
    "hits": _hits,
    "label": _label,
    "one_hot": _one_hot,
    "rows": _rows,
}
