"""Rows, each computed by a warp or by a block: softmax, normalization, reductions. A row is read once where registers hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda import sources
from fluidtool.runtime.engines.cuda.calls import Place, are_channels_last
from fluidtool.runtime.engines.cuda.columns import Columns
from fluidtool.runtime.engines.cuda.lowering import LARGEST, Lowering, lowers
from fluidtool.runtime.engines.cuda.sources import THREADS, Source, activated, number
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Value

WARP = 32
WARPS = 4  # rows of a block, where each has a warp
KEPT = 32  # elements of a row that a thread keeps in registers
POWER = "expf(ft_larger(v - most, -64.0f))"
"""Of a softmax: no probability is 0, as in Paddle (ops/activation/softmax.py)."""


@dataclass(eq=False, slots=True)
class Rows:
    """A kernel for rows of so many elements while it is written; the variables `row` and `me` say which row, and whose thread."""

    src: Source
    rows: int
    count: int
    lanes: int
    threads: int = WARP

    def __post_init__(self) -> None:
        pieces = self.count // self.lanes
        while self.threads < THREADS and self.threads * KEPT // self.lanes < pieces:
            self.threads *= 2
        while self.threads < min(THREADS, pieces) and self.rows * self.threads < sources.ENOUGH:
            self.threads *= 2  # rows are few
        self.src.total = self.rows * self.count
        if self.threads > WARP:
            self.src.lines += [
                f"__shared__ float shared[{self.threads // WARP}];",
                "const int row = blockIdx.x, me = threadIdx.x;",
            ]
        else:
            self.src.lines.append(
                f"const int row = blockIdx.x * {WARPS} + threadIdx.x / {WARP}, me = threadIdx.x % {WARP};"
            )
            if self.rows % WARPS:
                self.src.lines.append(f"if (row >= {self.rows}) return;")
        if self.is_kept:
            self.src.lines.append(f"float x[{self.pieces * self.lanes}];")

    @property
    def pieces(self) -> int:
        """The pieces of a row that a thread has."""
        return -(-self.count // (self.lanes * self.threads))

    @property
    def is_kept(self) -> bool:
        """Whether registers hold a row."""
        return self.pieces * self.lanes <= KEPT

    @property
    def blocks(self) -> int:
        """The blocks of the grid."""
        return self.rows if self.threads > WARP else -(-self.rows // WARPS)

    @property
    def at_once(self) -> int:
        """The threads of a block."""
        return self.threads if self.threads > WARP else WARPS * WARP

    @property
    def kept(self) -> str:
        """Where a thread keeps an element."""
        return f"x[k * {self.lanes} + lane]" if self.lanes > 1 else "x[k]"

    def index(self, part: str) -> str:
        """The number of an element of this row, among all elements."""
        return self.src.flat(["row" if self.rows > 1 else "0", part], (self.rows, self.count))

    def each(self, make: Callable[[str], str]) -> None:
        """A loop over a thread's elements: `make` gives the last statement for one, by its place in the row."""
        inner = self.src.side_by_side(self.lanes, "b", make)
        step = self.lanes * self.threads
        if not self.is_kept:
            loop = f"#pragma unroll 4\n    for (int b = me * {self.lanes}; b < {self.count}; b += {step})"
            self.src.lines.append(f"{loop} {{ {inner} }}")
            return
        inside = "" if self.pieces * step == self.count else f"if (b < {self.count}) "
        loop = f"#pragma unroll\n    for (int k = 0; k < {self.pieces}; k++)"
        self.src.lines.append(
            f"{loop} {{ const int b = (k * {self.threads} + me) * {self.lanes}; {inside}{{ {inner} }} }}"
        )

    def first(self, value: Callable[[str], str], make: Callable[[str], str]) -> None:
        """The loop that reads: `make` gives what is said of each value, called v, which registers keep if they can."""
        kept = f"{self.kept} = v; " if self.is_kept else ""
        self.each(lambda part: f"const float v = {value(part)}; {kept}{make(part)}")

    def again(self, value: Callable[[str], str], make: Callable[[str], str]) -> None:
        """A further loop over the same values: `make` gives what is said of each, called v, by its place in the row."""

        def statements(part: str) -> str:
            read = self.kept if self.is_kept else value(part)
            return f"const float v = {read}; {make(part)}"

        self.each(statements)

    def joined(self, name: str, join: str) -> None:
        """The values of a variable of all threads of the row, joined, in all of them. join: of a and b."""
        other = join.format(a=name, b="other")
        step = f"const float other = __shfl_xor_sync(0xffffffffu, {name}, far); {name} = {other};"
        self.src.lines.append(f"#pragma unroll\n    for (int far = {WARP // 2}; far > 0; far /= 2) {{ {step} }}")
        if self.threads > WARP:
            more = join.format(a=name, b="shared[j]")
            self.src.lines += [
                f"if (me % {WARP} == 0) shared[me / {WARP}] = {name};",
                "__syncthreads();",
                f"{name} = shared[0];",
                f"for (int j = 1; j < {self.threads // WARP}; j++) {name} = {more};",
                "__syncthreads();",
            ]


def in_rows(low: Lowering, out: Place, rows: int, count: int, prefix: str, write: Callable[[Rows], None]) -> None:
    """A kernel for rows, with as many lanes as memory allows."""
    for lanes in low.lanes():
        if count % lanes:
            continue
        kernel = Rows(Source(low), rows, count, lanes)
        write(kernel)
        if lanes == 1 or not kernel.src.is_scattered:
            low.calls.append(kernel.src.launch(out, kernel.blocks, kernel.at_once, prefix))
            return


@lowers("softmax")
def _softmax(low: Lowering, node: Node) -> None:
    x, *mask = node.inputs
    softmax(low, x, mask[0] if mask else None, node.attrs, low.new(node.output))


@dataclass(frozen=True, eq=False, slots=True)
class Dropped:
    """The results of a softmax after a dropout: result * kept * factor. kept: 1 or 0. factor: as C has it."""

    place: Place
    kept: Value
    factor: str


def softmax(
    low: Lowering,
    x: Value,
    mask: Value | None,
    attrs: Mapping[str, Any],
    out: Place,
    stats: Place | None = None,
    dropped: Dropped | None = None,
) -> None:
    """Rows of x * factor + mask: exp(x - the largest) / their sum; to `stats` the logarithm of the sum of all exp(x)."""
    shape, count = x.shape, x.shape[-1]
    need(prod(shape) <= LARGEST, "too many scores")

    def write(kernel: Rows) -> None:
        src = kernel.src

        def index(part: str) -> list[str]:
            return src.split(kernel.index(part), shape)

        def element(part: str) -> str:
            own = index(part)
            value = src.load(x, own)
            if attrs["factor"] != 1.0:
                value = f"({value} * {number(attrs['factor'])})"
            if mask is not None:
                wide = attrs["mask_shape"]
                broadcast = ["0" if size == 1 else at for at, size in zip(own, wide, strict=True)]
                value = f"({value} + {src.load(mask, src.reshaped(broadcast, wide, mask.shape))})"
            return value

        src.lines.append("float most = -1.0f / 0.0f, sum = 0.0f;")
        kernel.first(element, lambda part: "most = ft_larger(most, v);")
        kernel.joined("most", "ft_larger({a}, {b})")
        power = f"{kernel.kept} = {POWER}; sum += {kernel.kept};" if kernel.is_kept else f"sum += {POWER};"
        kernel.again(element, lambda part: power)
        kernel.joined("sum", "({a} + {b})")
        result = "v / sum" if kernel.is_kept else f"{POWER} / sum"

        def stored(part: str) -> str:
            own = index(part)
            if dropped is None:
                return src.store(out, own, result)
            both = [(out, "y", "out")]
            value = f"y * {src.load(dropped.kept, own)} * {dropped.factor}"
            both.append((dropped.place, value, src.writable(dropped.place.buffer, dropped.place.offset)))
            return " ".join([f"const float y = {result};", *(src.store(place, own, *more) for place, *more in both)])

        kernel.again(element, stored)
        if stats is not None:
            src.lines.append(f"if (me == 0) {src.writable(stats.buffer, stats.offset)}[row] = most + logf(sum);")

    in_rows(low, out, prod(shape[:-1]), count, "softmax", write)


@lowers("log_softmax")
def _log_softmax(low: Lowering, node: Node) -> None:
    """The logarithms of probabilities of the last axis, not below that of the smallest normal number."""
    (x,), shape, out = node.inputs, node.output.shape, low.new(node.output)
    lowest = number(float(np.log(np.finfo(np.float32).tiny)))

    def write(kernel: Rows) -> None:
        src = kernel.src

        def element(part: str) -> str:
            return src.load(x, src.split(kernel.index(part), shape))

        def stored(part: str) -> str:
            index = src.split(kernel.index(part), shape)
            return src.store(out, index, f"ft_larger(v - most - logf(sum), {lowest})")

        src.lines.append("float most = -1.0f / 0.0f, sum = 0.0f;")
        kernel.first(element, lambda part: "most = ft_larger(most, v);")
        kernel.joined("most", "ft_larger({a}, {b})")
        kernel.again(element, lambda part: "sum += expf(v - most);")
        kernel.joined("sum", "({a} + {b})")
        kernel.again(element, stored)

    in_rows(low, out, prod(shape[:-1]), shape[-1], "softmax", write)


@lowers("layer_norm")
def _layer_norm(low: Lowering, node: Node) -> None:
    x, (rows, count) = node.inputs[0], node.attrs["matrix"]
    out = low.new(node.output)

    def element(src: Source, index: list[str]) -> str:
        value = src.load(x, index)
        if node.residual is None:
            return value
        return f"({value} + {src.load(node.residual, src.reshaped(index, x.shape, node.residual.shape))})"

    def column(src: Source, name: str, part: str, index: list[str]) -> str | None:
        numbers = node.attrs[name]
        return None if numbers is None else src.numbered(numbers, part)

    def index(kernel: Rows, part: str) -> list[str]:
        return kernel.src.split(kernel.index(part), x.shape)

    normalized(low, node, out, (rows, count), index, element, column)


@lowers("group_norm")
def _group_norm(low: Lowering, node: Node) -> None:
    """attrs: `groups`, `epsilon`, and `scale` and `shift` by channel, or None."""
    x = node.inputs[0]
    groups = Groups(low, x, node.attrs["groups"])

    def column(src: Source, name: str, part: str, index: list[str]) -> str | None:
        numbers = node.attrs[name]
        return None if numbers is None else src.numbered(numbers, index[1])

    out = low.new(node.output, low.strides_like(node))
    normalized(low, node, out, groups.matrix, groups.index, lambda src, index: src.load(x, index), column)


@dataclass(frozen=True, eq=False, slots=True)
class Groups:
    """The groups of channels of each image of a value, as rows whose elements are in the order of memory."""

    low: Lowering
    x: Value
    count: int

    @property
    def matrix(self) -> tuple[int, int]:
        """How many groups there are, and how many elements each has."""
        rows = self.x.shape[0] * self.count
        return rows, prod(self.x.shape) // rows

    def index(self, kernel: Rows, part: str) -> list[str]:
        """The index of an element of the group `row`."""
        src, shape = kernel.src, self.x.shape
        if not are_channels_last(self.low.strides_of(self.x), shape):
            return src.split(kernel.index(part), shape)
        each = shape[1] // self.count
        own, *place = src.split(part, (each, *shape[2:]), [*range(1, len(shape) - 1), 0])
        image, group = (src.whole(f"row {sign} {self.count}") for sign in "/%")
        return [image, src.flat([group, own], (self.count, each)), *place]


def normalized(
    low: Lowering,
    node: Node,
    out: Place,
    matrix: tuple[int, int],
    index: Callable[[Rows, str], list[str]],
    element: Callable[[Source, list[str]], str],
    column: Callable[[Source, str, str, list[str]], str | None],
    kept: Mapping[str, Place] = MappingProxyType({}),
) -> None:
    """Rows minus their mean, divided by their deviation, times a scale, plus a shift.

    index: of an element, by its place in a row. column: of `scale` and `shift`. kept: where `mean` and `variance` are kept.
    """
    count, epsilon = matrix[1], number(node.attrs["epsilon"])

    def write(kernel: Rows) -> None:
        src = kernel.src

        def value(part: str) -> str:
            return element(src, index(kernel, part))

        def stored(part: str) -> str:
            own = index(kernel, part)
            scale, shift = (column(src, name, part, own) for name in ("scale", "shift"))
            found = "(v - mean) * factor"
            found = found if scale is None else f"{found} * {scale}"
            found = found if shift is None else f"{found} + {shift}"
            return src.store(out, own, activated(node.activation, found))

        src.lines.append("float sum = 0.0f, squares = 0.0f;")
        kernel.first(value, lambda part: "sum += v;")
        kernel.joined("sum", "({a} + {b})")
        src.lines.append(f"const float mean = sum / {number(count)};")
        kernel.again(value, lambda part: "squares += (v - mean) * (v - mean);")
        kernel.joined("squares", "({a} + {b})")
        src.lines.append(
            f"const float variance = squares / {number(count)}, factor = 1.0f / sqrtf(variance + {epsilon});"
        )
        for name, place in kept.items():
            src.lines.append(f"if (me == 0) {src.writable(place.buffer, place.offset)}[row] = {name};")
        kernel.again(value, stored)

    in_rows(low, out, *matrix, "norm", write)


HOW = {  # the start, how two are joined, as in graph/importers/reductions.py
    0: ("0.0f", "({a} + {b})"),
    1: ("0.0f", "({a} + {b})"),
    2: ("-1.0f / 0.0f", "ft_larger({a}, {b})"),
    3: ("1.0f / 0.0f", "ft_smaller({a}, {b})"),
    4: ("1.0f", "({a} * {b})"),
}
MEAN = 1


@lowers("reduce")
def _reduce(low: Lowering, node: Node) -> None:
    x, (outer, count, inner) = node.inputs[0], node.attrs["sizes"]
    start, join = HOW[node.attrs["how"]]
    out = low.new(node.output)
    result = f"total / {number(count)}" if node.attrs["how"] == MEAN else "total"
    if inner == 1:
        reduce_rows(low, x, (outer, count), (start, join), (out, node.output.shape, result))
        return

    def element(src: Source, column: str, line: str) -> str:
        before, behind = src.split(column, (outer, inner))
        return src.load(x, src.split(src.flat([before, line, behind], (outer, count, inner)), x.shape))

    def stored(src: Source, column: str, total: str) -> str:
        return src.store(out, src.split(column, node.output.shape), result.replace("total", total))

    Columns(low, outer * inner, count, (start, join), element, out, stored, "reduce").in_one_call()


def reduce_rows(
    low: Lowering,
    x: Value,
    matrix: tuple[int, int],
    how: tuple[str, str],
    into: tuple[Place, tuple[int, ...], str],
    prefix: str = "reduce",
) -> None:
    """Each row of a matrix, joined: `how` has the start and the join; `into` the place, its shape, and what `total` becomes."""
    (start, join), (out, shape, result) = how, into

    def write(kernel: Rows) -> None:
        src = kernel.src
        src.lines.append(f"float total = {start};")
        kernel.first(
            lambda part: src.load(x, src.split(kernel.index(part), x.shape)),
            lambda part: f"total = {join.format(a='total', b='v')};",
        )
        kernel.joined("total", join)
        stored = src.within(lambda: src.store(out, src.split("row", shape), result))
        src.lines.append(f"if (me == 0) {{ {stored} }}")

    in_rows(low, out, *matrix, prefix, write)


@lowers("softmax_axis")
def _softmax_axis(low: Lowering, node: Node) -> None:
    x, (outer, count, inner) = node.inputs[0], node.attrs["sizes"]
    src, out = Source(low), low.new(node.output)
    at = src.thread(outer * inner)
    first = src.whole(f"{at} / {inner} * {count * inner} + {at} % {inner}")

    def element() -> str:
        return f"const float v = {src.load(x, src.split(src.whole(f'{first} + i * {inner}'), x.shape))};"

    def stored() -> str:
        value = element()
        return f"{value} {src.store(out, src.split(src.whole(f'{first} + i * {inner}'), x.shape), f'{POWER} / sum')}"

    loop = f"for (int i = 0; i < {count}; i++)"
    src.lines += [
        "float most = -1.0f / 0.0f, sum = 0.0f;",
        f"{loop} {{ {src.within(element)} most = ft_larger(most, v); }}",
        f"{loop} {{ {src.within(element)} sum += {POWER}; }}",
        f"{loop} {{ {src.within(stored)} }}",
    ]
    low.calls.append(src.launch(out, -(-outer * inner // THREADS), THREADS, "softmax"))
