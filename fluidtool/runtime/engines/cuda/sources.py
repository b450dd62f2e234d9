"""CUDA C++ of a cluster of nodes: one kernel that computes its last node, and reads the inputs of the first ones.

Sizes are part of the source, so that the compiler knows them; indices are 32 bits. Kernels that are alike have one name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from math import prod
from string import ascii_lowercase
from typing import Any, Protocol

import numpy as np

from fluidtool.runtime.engines.cuda.calls import Buffer, Launch, Place, Pointer
from fluidtool.runtime.graph.importers.registry import ALONE, PRELU
from fluidtool.runtime.graph.ir import Activation, Node, Shape, Value

THREADS = 256
Index = Sequence[str]

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
FT_DEVICE int ft_row(whole id, int rows, float* outside)
{
    if (id >= 0 && id < rows) return (int)id;
    *outside = 1.0f;  // by any thread that finds one: what it reads does not matter
    return 0;
}
FT_DEVICE float ft_of_bf16(half16 x) { return __uint_as_float((unsigned)x << 16); }
FT_DEVICE half16 ft_to_bf16(float x)
{
    const unsigned bits = __float_as_uint(x);
    return (half16)(x != x ? 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
#ifndef FT_EMULATED
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
FT_DEVICE half16 ft_to_fp16(float x)
{
    const bool finite = fabsf(x) < 1.0f / 0.0f;  // the largest number instead of infinity: masks are added, and stay masks
    return ft_nearest_fp16(finite ? ft_clip(x, -65504.0f, 65504.0f) : x);
}
"""

FUNCTIONS = (
    "", "ft_relu", "ft_clip", "ft_sigmoid", "tanhf", "ft_gelu", "ft_leaky", "ft_hard_swish", "ft_swish", "expf", "sqrtf",
    "ft_square", "ft_affine", "ft_hard_sigmoid", "fabsf", "ft_gelu_tanh", "ft_clip", "ft_softsign",
)  # fmt: skip
"""By the number of an activation (graph/importers/registry.py)."""
RELU6 = 2
OPERATIONS = ("({} + {})", "({} - {})", "({} * {})", "({} / {})", "ft_larger({}, {})", "ft_smaller({}, {})")


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
        self.lines.append(f"const int i{self.count} = {expression};")
        return f"i{self.count}"

    def within(self, make: Callable[[], str]) -> str:
        """Statements, the last of which is what `make` gives: the statements of a loop."""
        before, self.lines = self.lines, []
        last = make()
        lines, self.lines = self.lines, before
        return " ".join([*lines, last])

    # ---------------------------------------------------------------- indices
    def flat(self, index: Index, shape: Shape) -> str:
        """The number of an element, row by row."""
        terms = [
            part if step == 1 else f"{part} * {step}"
            for part, size, step in zip(index, shape, (prod(shape[a + 1 :]) for a in range(len(shape))), strict=True)
            if size > 1
        ]
        return self.whole(" + ".join(terms)) if terms else "0"

    def split(self, flat: str, shape: Shape, order: Sequence[int] | None = None) -> list[str]:
        """The index of an element by its number; the axes of `order`, the last of which is counted first."""
        found = ["0"] * len(shape)
        order = [axis for axis in (range(len(shape)) if order is None else order) if shape[axis] > 1]
        step = prod(shape)
        for axis in order:
            step //= shape[axis]
            part = flat if step == 1 else f"{flat} / {step}"
            found[axis] = self.whole(part if axis == order[0] else f"{part} % {shape[axis]}")
        return found

    def reshaped(self, index: Index, shape: Shape, into: Shape) -> list[str]:
        """The same element of an array of another shape."""
        kept = [(part, size) for part, size in zip(index, shape, strict=True) if size > 1]
        if [size for _, size in kept] == [size for size in into if size > 1]:
            parts = iter(part for part, _ in kept)
            return [next(parts) if size > 1 else "0" for size in into]
        return self.split(self.flat(index, shape), into)

    def at(self, place: Place, index: Index) -> str:
        """An element of a place."""
        terms = [
            part if step == 1 else f"{part} * {step}"
            for part, step in zip(index, place.strides, strict=True)
            if step and part != "0"
        ]
        return self.read(place.buffer, place.offset, " + ".join(terms) or "0")

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

    # ---------------------------------------------------------------- whole kernels
    def launch(self, out: Place, blocks: int, threads: int, prefix: str) -> Launch:
        """The kernel; the place of its results is its last argument."""
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

    def call(self, text: str, arguments: Sequence[str]) -> str:
        """A formula of arguments, which it calls a, b, c …; as a function, so that each is computed once."""
        if not arguments:
            return f"({text})"
        name = f"ft_{hashlib.sha256(f'{len(arguments)} {text}'.encode()).hexdigest()[:12]}"
        declared = ", ".join(f"float {letter}" for letter in ascii_lowercase[: len(arguments)])
        self.functions[name] = f"FT_DEVICE float {name}({declared}) {{ return {text}; }}\n"
        return f"{name}({', '.join(arguments)})"

    def thread(self, count: int | str) -> str:
        """The number of the thread; those beyond the count return."""
        self.lines.append("const int at = blockIdx.x * blockDim.x + threadIdx.x;")
        self.lines.append(f"if (at >= {count}) return;")
        return "at"

    def store(self, out: Place, index: Index, value: str) -> str:
        """The statement that stores a result."""
        terms = [
            part if step == 1 else f"{part} * {step}"
            for part, step in zip(index, out.strides, strict=True)
            if step and part != "0"
        ]
        stored = f"ft_to_{out.buffer.half}({value})" if out.buffer.half else value
        return f"out[{' + '.join(terms) or '0'}] = {stored};"

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
    scale, shift = (src.table(np.asarray(node.attrs[name], np.float32)) for name in ("scale", "shift"))
    return f"({src.load(node.inputs[0], index)} * {scale}[{index[1]}] + {shift}[{index[1]}])"


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
        [src.whole(f"{part} + {start}") if start else part for part, start in zip(parts, starts, strict=True)],
    )


def _concat(src: Source, node: Node, index: Index) -> str:
    axis, place, end = node.attrs["axis"], 0, node.output.shape[node.attrs["axis"]]
    text = ""
    for value in node.inputs:
        size = value.shape[axis]
        here = index[axis] if not place else src.whole(f"{index[axis]} - {place}")
        loaded = src.load(value, [*index[:axis], here if size > 1 else "0", *index[axis + 1 :]])
        place += size
        text += loaded if place == end else f"({index[axis]} < {place} ? {loaded} : "
    return f"({text}{')' * (len(node.inputs) - 1)})"


def _stack(src: Source, node: Node, index: Index) -> str:
    axis, last = node.attrs["axis"], len(node.inputs) - 1
    loaded = [src.load(value, [*index[:axis], *index[axis + 1 :]]) for value in node.inputs]
    chosen = [f"({index[axis]} == {at} ? {text} : " if at < last else text for at, text in enumerate(loaded)]
    return f"({''.join(chosen)}{')' * last})"


def _pad(src: Source, node: Node, index: Index) -> str:
    parts, inside = [], []
    for part, sources in zip(index, node.attrs["sources"], strict=True):
        if sources is None:
            parts.append(part)
            continue
        parts.append(src.whole(f"(int){src.table(np.asarray(sources, np.int64))}[{part}]"))
        if np.min(sources) < 0:
            inside.append(f"{parts[-1]} >= 0")
    loaded = src.load(node.inputs[0], parts)
    return f"({' && '.join(inside)} ? {loaded} : {number(node.attrs['value'])})" if inside else loaded


def _mix(src: Source, node: Node, index: Index) -> str:
    channels = node.output.shape[1]
    which, taken = np.zeros(channels, np.int64), np.zeros(channels, np.int64)
    for at, (written, read) in enumerate(node.attrs["taken"]):
        which[written], taken[written] = at, read
    channel = src.whole(f"(int){src.table(taken)}[{index[1]}]")
    parts = [src.load(value, [index[0], channel, *index[2:]]) for value in node.inputs]
    if len(parts) == 1:
        return parts[0]
    source, last = src.whole(f"(int){src.table(which)}[{index[1]}]"), len(parts) - 1
    chosen = [f"({source} == {at} ? {text} : " if at < last else text for at, text in enumerate(parts)]
    return f"({''.join(chosen)}{')' * last})"


def _gather(src: Source, node: Node, index: Index) -> str:
    ids, table = node.inputs[0], node.attrs["table"]
    place = src.low.place(ids)
    lead = node.output.shape[:-1]
    own = src.reshaped(index[:-1], lead, ids.shape)
    rows = src.low.weights(table)
    row = src.whole(f"ft_row({src.at(place, own)}, {table.shape[0]}, {src.writable(src.low.outside())})")
    loaded = src.read(rows, 0, f"{row} * {table.shape[1]} + {index[-1]}")
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


def _label(src: Source, node: Node, index: Index) -> str:
    """The element of a row that its label names; 0 for a label that is no class, or is ignored."""
    x, labels = node.inputs
    lead = x.shape[:-1]
    label = src.whole(f"(int){src.load(labels, src.reshaped(index[:-1], lead, labels.shape))}")
    counted = f"{label} >= 0 && {label} < {x.shape[-1]} && {label} != {node.attrs['ignored']}"
    loaded = src.load(x, [*index[:-1], label if x.shape[-1] > 1 else "0"])
    return f"({counted} ? {loaded} : 0.0f)"


def _rows(src: Source, node: Node, index: Index) -> str:
    """Rows of a table that is not constant, by ids; zeros for the id `zero`."""
    table, ids = node.inputs
    lead = node.output.shape[:-1]
    row = src.whole(f"(int){src.load(ids, src.reshaped(index[:-1], lead, ids.shape))}")
    loaded = src.load(table, [row, index[-1]])
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
    "label": _label,
    "rows": _rows,
}
