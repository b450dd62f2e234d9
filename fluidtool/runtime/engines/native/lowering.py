"""Nodes -> steps: layouts chosen, weights packed, memory named. One function a kind of node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.graph import Activation, Graph, Node, NotNativeError, Shape, Value, reads
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.reading import ALONE, need
from fluidtool.runtime.engines.native.steps import (
    Blocked,
    Buffer,
    Draft,
    Drafts,
    Kind,
    Plain,
    aligned_floats,
    constant,
    finish,
    row_major,
)

Halo = tuple[int, int, int, int]
NO_HALO: Halo = (0, 0, 0, 0)
SEGMENT = 128  # floats of a row that a product reads at a time
SMALL = 20_000  # multiplications below which a step is not cut
CACHE = 200_000  # bytes of input that a part may sweep over again and again


@dataclass(slots=True)
class Lowering:
    """The steps as they grow, and where every value lies: plain, blocked, or both."""

    library: Library
    left: Counter[Value]
    halos: dict[Value, Halo]
    steps: Drafts = field(default_factory=Drafts)
    plains: dict[Value, Plain] = field(default_factory=dict)
    blockeds: dict[Value, Blocked] = field(default_factory=dict)
    narrows: dict[Value, Blocked] = field(default_factory=dict)
    reading: tuple[Value, ...] = ()
    outputs: frozenset[Value] = frozenset()

    @property
    def width(self) -> int:
        """Lanes of a vector."""
        return self.library.width

    # ------------------------------------------------------------ where values lie
    def new_plain(self, value: Value) -> Plain:
        """Room for a row-major value; what nobody but the caller reads is written where the caller gets it."""
        role = "output" if value in self.outputs else "arena"
        place = self.plains[value] = Plain(Buffer(prod(value.shape), role), 0, row_major(value.shape))
        return place

    def new_blocked(self, value: Value, lanes: int = 0) -> Blocked:
        """Room for a blocked value, with a halo of zeros if a convolution that reads it needs one."""
        halo = self.halos.get(value, NO_HALO)
        place = Blocked(Buffer(0), value.shape, lanes or self.width, halo)
        place.buffer.size = place.size
        self.zero_halo(place)
        (self.narrows if lanes else self.blockeds)[value] = place
        return place

    def zero_halo(self, place: Blocked) -> None:
        """The step that clears a halo."""
        if any(place.halo):
            top, left, bottom, right = place.halo
            columns = place.shape[3] + left + right
            sizes = dict(enumerate((place.shape[0] * place.blocks, place.rows, columns, top, bottom, left, right, place.lanes)))
            self.steps.add(Kind.HALO, {3: (place.buffer, 0)}, sizes, tasks=self.parts(place.size // 8, sizes[0]))

    def plain(self, value: Value) -> Plain:
        """Where the value lies with strides; it is put there when it lies blocked only."""
        found = self.plains.get(value)
        if found is not None:
            return found
        if value.array is not None:
            found = self.plains[value] = Plain(constant(value.array), 0, row_major(value.shape))
            return found
        source = self.blockeds[value]
        n, c, h, w = value.shape
        if h * w == 1 and c % source.lanes == 0 and not any(source.halo):
            found = self.plains[value] = Plain(source.buffer, 0, row_major(value.shape))
            return found
        found = self.new_plain(value)
        sizes = dict(enumerate((n, c, h, w, source.image, source.block, source.row, source.blocks)))
        pointers = {0: (source.buffer, source.origin), 3: (found.buffer, 0)}
        self.steps.add(Kind.UNBLOCK, pointers, sizes, tasks=self.parts(prod(value.shape), n * h * source.blocks))
        return found

    def contiguous(self, value: Value) -> Plain:
        """Where the value lies row-major."""
        found = self.plain(value)
        if is_contiguous(found.strides, value.shape):
            return found
        copy = self.new_plain(value)
        self.copy(found, copy, value.shape)
        return copy

    def blocked(self, value: Value, narrow: bool = False) -> Blocked:
        """Where the value lies in blocks of channels; `narrow`: one block of as many lanes as there are channels."""
        n, c, h, w = value.shape
        narrow = narrow and c < self.width
        found = self.blockeds.get(value) or (self.narrows.get(value) if narrow else None)
        if found is not None:
            return found
        source = self.contiguous(value)
        found = self.new_blocked(value, c if narrow else 0)
        sizes = dict(enumerate((n, c, h, w, found.image, found.block, found.row, found.blocks, found.lanes)))
        pointers = {0: (source.buffer, source.offset), 3: (found.buffer, found.origin)}
        self.steps.add(Kind.BLOCK, pointers, sizes, tasks=self.parts(prod(value.shape), n * h * found.blocks))
        return found

    def reuse_blocked(self, value: Value, out: Value) -> Blocked | None:
        """The place of a value that dies here, for a result of the same form; None when it cannot be used."""
        place = self.blockeds.get(value)
        if place is None or not self.free(place.buffer, value):
            return None
        if place.shape != out.shape or any(a < b for a, b in zip(place.halo, self.halos.get(out, NO_HALO), strict=True)):
            return None
        self.blockeds[out] = place
        return place

    def reuse_plain(self, value: Value, out: Value) -> Plain | None:
        """The same for a row-major value."""
        place = self.plains.get(value)
        if place is None or out in self.outputs or not self.free(place.buffer, value):
            return None
        if value.shape != out.shape or not is_contiguous(place.strides, value.shape):
            return None
        self.plains[out] = place
        return place

    def free(self, buffer: Buffer, value: Value) -> bool:
        """Whether nobody needs the buffer any more, but for `value`, which the node at hand reads place by place."""
        places = (self.plains, self.blockeds, self.narrows)
        lying = {v for found in places for v, place in found.items() if place.buffer is buffer}
        others = [v for v in self.reading if v is not value and v in lying]
        return buffer.role == "arena" and not others and all(self.left[v] == 0 for v in lying)

    # ------------------------------------------------------------ shared steps
    def parts(self, work: int, most: int) -> int:
        """Into how many parts to cut a step of so many multiplications."""
        threads = self.library.threads
        return max(1, min(most, 4 * threads)) if threads > 1 and work > SMALL else 1

    def copy(self, source: Plain, target: Plain, shape: Shape) -> None:
        """A step that moves a strided array."""
        sizes, strides = merged(shape, [source.strides, target.strides])
        need(len(sizes) <= 6, "a copy of more than six axes")
        padded = [1] * (6 - len(sizes))
        n = [*padded, *sizes, *padded, *strides[0], *padded, *strides[1]]
        pointers = {0: (source.buffer, source.offset), 3: (target.buffer, target.offset)}
        self.steps.add(Kind.COPY, pointers, dict(enumerate(n)), tasks=self.parts(prod(shape), prod(sizes[:-1])))

    def elementwise(
        self, operation: int, shape: Shape, a: Any, b: Any, y: Any, activation: Activation
    ) -> None:
        """A step over axes `shape`; a, b, y: ((buffer, offset), strides), b may be None."""
        places = [a, y] if b is None else [a, y, b]
        sizes, strides = merged(shape, [place[1] for place in places])
        need(len(sizes) <= 5 and strides[1][-1] in (0, 1), "an elementwise operation over more than five axes")
        need(all(stride[-1] in (0, 1) for stride in strides), "an elementwise operation over strided rows")
        if strides[1][-1] == 0:
            sizes, strides = [*sizes, 1], [[*stride, 1] for stride in strides]
            need(len(sizes) <= 5, "an elementwise operation over more than five axes")
        ones, zeros = [1] * (5 - len(sizes)), [0] * (5 - len(sizes))
        outer = [[*zeros, *stride[:-1]] for stride in strides]
        n = dict(enumerate([*ones, *sizes]))
        n |= {5 + i: s for i, s in enumerate(outer[0])} | {13 + i: s for i, s in enumerate(outer[1])}
        n |= {17: strides[0][-1], 19: operation}
        if b is not None:
            n |= {9 + i: s for i, s in enumerate(outer[2])} | {18: strides[2][-1]}
        work = prod(sizes) * (20 if activation.kind > 2 else 2)
        tasks = self.parts(work, max(prod(sizes[:-1]), sizes[-1] // 64))
        pointers = {0: a[0], 1: None if b is None else b[0], 3: y[0]}
        self.steps.add(Kind.ELEMENTWISE, pointers, n, activation=activation, tasks=tasks)

    def pack(self, weights: Any) -> Buffer:
        """A constant matrix [K][N] as packed weights."""
        depth, columns = weights.shape
        matrix = weights if weights.dtype == np.float32 else weights.astype(np.float32)
        packed = Buffer(-(-columns // self.width) * self.width * depth, "constant")
        packed.array = aligned_floats(packed.size)
        strides = [stride // 4 for stride in matrix.strides]
        n = dict(enumerate((depth, columns, *strides, 1, 1)))
        self.run_now(Kind.PACK, {0: matrix, 3: packed.array}, n, -(-columns // (2 * self.width)))
        return packed

    def run_now(self, kind: Kind, arrays: dict[int, Any], sizes: dict[int, int], most: int) -> None:
        """Do a step while compiling."""
        buffers = {slot: Buffer(array.size, "constant", array) for slot, array in arrays.items()}
        draft = Draft(kind, {slot: (buffer, 0) for slot, buffer in buffers.items()}, sizes, tasks=most)
        self.library.run(finish([draft], lambda buffer: buffer.array.ctypes.data))


LOWER: dict[str, Callable[[Lowering, Node], None]] = {}


def lowers(kind: str) -> Callable[[Any], Any]:
    """Register the function for a kind of node."""

    def register(function: Any) -> Any:
        LOWER[kind] = function
        return function

    return register


def lower(graph: Graph, library: Library) -> tuple[list[Draft], list[Buffer], list[Buffer]]:
    """The steps of a graph, and the buffers of its inputs and of its outputs. Raises NotNativeError."""
    low = Lowering(library, graph.uses(), needed_halos(graph), outputs=frozenset(graph.outputs))
    inputs = [Buffer(prod(value.shape), "input") for value in graph.inputs]
    for value, buffer in zip(graph.inputs, inputs, strict=True):
        low.plains[value] = Plain(buffer, 0, row_major(value.shape))
    for node in graph.nodes:
        low.reading = tuple(reads(node))
        for value in low.reading:
            low.left[value] -= 1
        LOWER[node.kind](low, node)
    outputs: list[Buffer] = []
    for value in graph.outputs:
        place = low.contiguous(value)
        buffer = place.buffer
        if buffer.role != "output" or place.offset or buffer.size != prod(value.shape) or buffer in outputs:
            buffer = Buffer(prod(value.shape), "output")
            low.copy(place, Plain(buffer, 0, row_major(value.shape)), value.shape)
        outputs.append(buffer)
    return low.steps.steps, inputs, outputs


# ---------------------------------------------------------------- strides
def is_contiguous(strides: Shape, shape: Shape) -> bool:
    """Whether an array of these strides is row-major (axes of size 1 may have any stride)."""
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, row_major(shape), strict=True))


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The fewest axes that say the same: neighbours that every array walks through as one are one."""
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [stride[axis] for stride in strides]
        if sizes and all(k[-1] == stride * size for k, stride in zip(kept, here, strict=True)):
            sizes[-1] *= size
            for k, stride in zip(kept, here, strict=True):
                k[-1] = stride
        else:
            sizes.append(size)
            for k, stride in zip(kept, here, strict=True):
                k.append(stride)
    return (sizes, kept) if sizes else ([1], [[1] for _ in strides])


# ---------------------------------------------------------------- convolution
def needed_halos(graph: Graph) -> dict[Value, Halo]:
    """For each value the zeros that the convolutions which read it need around it."""
    halos: dict[Value, Halo] = {}
    for node in graph.nodes:
        if node.kind == "conv":
            x, (top, left, _, _) = node.inputs[0], node.facts["pads"]
            reach = [
                (out - 1) * s + (w - 1) * d + 1 - before - size
                for out, s, w, d, before, size in zip(
                    node.output.shape[2:], node.facts["strides"], node.facts["weights"].shape[2:],
                    node.facts["dilations"], (top, left), x.shape[2:], strict=True,
                )
            ]  # fmt: skip
            wanted = (top, left, max(reach[0], 0), max(reach[1], 0))
            halos[x] = tuple(map(max, halos.get(x, NO_HALO), wanted))  # type: ignore[assignment]
    return halos


@lowers("conv")
def _conv(low: Lowering, node: Node) -> None:
    x, facts = node.inputs[0], node.facts
    count, inner, *_ = facts["weights"].shape
    if facts["groups"] == x.shape[1] == count and inner == 1:
        _depthwise(low, node)
        return
    groups = facts["groups"]
    need(groups == 1 or (inner % low.width == 0 and (count // groups) % low.width == 0), "groups of few channels")
    source = low.blocked(x, narrow=groups == 1)
    out = _conv_output(low, node)
    packed, bias = _pack_filter(low, facts, source.lanes)
    offsets, lengths = _segments(facts, inner, source)
    n = _image_sizes(node, source, out)
    blocks = -(-(count // groups) // low.width)
    n |= {3: blocks, 4: len(offsets), 5: lengths[0], 6: lengths[1], 7: lengths[2]}
    n |= {14: out.block, 19: groups, 20: inner // source.lanes * source.block, 21: packed.size // groups}
    n |= {22: blocks * out.block, 23: low.width, 27: blocks * low.width}
    n |= _residual_sizes(low, node)
    _flatten(n, node, source, out, low)
    work = prod(node.output.shape) * prod(facts["weights"].shape[1:])
    tasks = _cut(low, n, work, 4 * prod(x.shape[1:]), 4 * packed.size)
    low.steps.add(Kind.CONVOLUTION, _pointers(low, node, source, out, packed, bias, offsets), n,
                  activation=node.activation, tasks=tasks)  # fmt: skip


def _conv_output(low: Lowering, node: Node) -> Blocked:
    if node.residual is not None:
        low.blocked(node.residual)
        reused = low.reuse_blocked(node.residual, node.output)
        if reused is not None:
            return reused
    return low.new_blocked(node.output)


def _pointers(
    low: Lowering, node: Node, source: Blocked, out: Blocked, weights: Buffer, bias: Buffer | None, offsets: list[int]
) -> dict[int, Any]:
    facts = node.facts
    table = np.asarray(offsets, np.int64)
    start = source.origin - facts["pads"][0] * source.row - facts["pads"][1] * source.lanes
    residual = low.blockeds[node.residual] if node.residual is not None else None
    return {
        0: (source.buffer, start),
        1: (weights, 0),
        2: None if bias is None else (bias, 0),
        3: (out.buffer, out.origin),
        4: None if residual is None else (residual.buffer, residual.origin),
        5: (Buffer(table.size, "constant", table), 0),
    }


def _image_sizes(node: Node, source: Blocked, out: Blocked) -> dict[int, int]:
    images, _, rows, columns = node.output.shape
    down, right = node.facts["strides"]
    return {
        0: images, 1: rows, 2: columns, 8: source.image, 9: down * source.row, 10: right * source.lanes,
        11: out.image, 12: out.row, 13: out.lanes, 25: 1, 26: 1, 28: 1,
    }  # fmt: skip


def _residual_sizes(low: Lowering, node: Node) -> dict[int, int]:
    if node.residual is None:
        return {}
    place = low.blockeds[node.residual]
    return {15: place.image, 16: place.row, 17: place.lanes, 18: place.block}


def _flatten(n: dict[int, int], node: Node, source: Blocked, out: Blocked, low: Lowering) -> None:
    """Rows that follow each other without a gap in everything are one row."""
    places = [source, out, *([low.blockeds[node.residual]] if node.residual is not None else [])]
    gaps = any(place.halo[1] or place.halo[3] for place in places)
    if not gaps and node.facts["strides"] == (1, 1) and node.facts["weights"].shape[2:] == (1, 1):
        n[2] *= n[1]
        n[1] = 1


def _segments(facts: dict[str, Any], inner: int, source: Blocked) -> tuple[list[int], tuple[int, int, int]]:
    """(offsets of the segments, (length, length of the last ones, how many last ones))."""
    rows, columns = facts["weights"].shape[2:]
    down, right = facts["dilations"]
    whole, rest = divmod(inner, source.lanes)
    together = right == 1
    offsets = [
        block * source.block + row * down * source.row + column * right * source.lanes
        for block in range(whole)
        for row in range(rows)
        for column in range(1 if together else columns)
    ]
    last = [
        whole * source.block + row * down * source.row + column * right * source.lanes
        for row in range(rows if rest else 0)
        for column in range(columns)
    ]
    return offsets + last, (source.lanes * (columns if together else 1), rest, len(last))


def _pack_filter(low: Lowering, facts: dict[str, Any], lanes: int) -> tuple[Buffer, Buffer | None]:
    weights, groups, width = np.ascontiguousarray(facts["weights"], np.float32), facts["groups"], low.width
    count, inner, rows, columns = weights.shape
    each = -(-(count // groups) // width) * width
    packed = Buffer(groups * each * inner * rows * columns, "constant")
    packed.array = aligned_floats(packed.size)
    arrays = {0: weights, 3: packed.array}
    if facts["scale"] is not None:
        arrays[1] = np.ascontiguousarray(facts["scale"], np.float32)
    n = dict(enumerate((count // groups, inner, rows * columns, groups, packed.size // groups, lanes)))
    low.run_now(Kind.PACK_FILTER, arrays, n, groups * -(-each // (2 * width)))
    return packed, _bias(facts["shift"], groups, each)


def _bias(shift: Any, groups: int, each: int) -> Buffer | None:
    if shift is None:
        return None
    padded = np.zeros((groups, each), np.float32)
    padded[:, : shift.size // groups] = shift.reshape(groups, -1)
    return constant(padded)


def _cut(low: Lowering, n: dict[int, int], work: int, x_bytes: int, weight_bytes: int) -> int:
    """Choose the parts by row, column and channel block; returns how many tasks that makes."""
    pairs, groups, lines = -(-n[3] // 2), n[19], n[0] * n[1]
    threads = low.library.threads
    if x_bytes * n[0] > CACHE or weight_bytes < x_bytes:
        wanted = max(4 * threads if work > SMALL else 1, -(-x_bytes * n[0] // CACHE))
        if lines >= wanted or n[2] < 64:
            n[25] = min(lines, wanted)
        else:
            n[28] = min(-(-wanted // lines), max(n[2] // 24, 1))
            n[25] = lines
    if work > SMALL and threads > 1 and groups * n[25] * n[28] < 2 * threads:
        n[26] = min(pairs, 4 * threads)
    return groups * n[25] * n[26] * n[28]


def _depthwise(low: Lowering, node: Node) -> None:
    facts, width = node.facts, low.width
    source = low.blocked(node.inputs[0])
    out = _conv_output(low, node)
    count, _, rows, columns = facts["weights"].shape
    blocks = -(-count // width)
    weights = np.zeros((blocks * width, rows * columns), np.float64)
    weights[:count] = facts["weights"].reshape(count, -1)
    if facts["scale"] is not None:
        weights[:count] *= facts["scale"].reshape(-1, 1)
    packed = constant(weights.reshape(blocks, width, -1).transpose(0, 2, 1))
    bias = _bias(facts["shift"], 1, blocks * width)
    down, right = facts["dilations"]
    offsets = [r * down * source.row + c * right * source.lanes for r in range(rows) for c in range(columns)]
    n = _image_sizes(node, source, out) | {3: blocks, 4: len(offsets), 14: out.block, 20: source.block}
    n |= _residual_sizes(low, node)
    work = prod(node.output.shape) * len(offsets)
    low.steps.add(
        Kind.DEPTHWISE, _pointers(low, node, source, out, packed, bias, offsets), n,
        activation=node.activation, tasks=low.parts(work, n[0] * n[3] * n[1]),
    )  # fmt: skip


@lowers("affine")
def _affine(low: Lowering, node: Node) -> None:
    """A factor and a shift by channel: a depthwise convolution of one tap."""
    need(len(node.output.shape) == 4, "batch_norm of no image")
    ones = np.ones((node.output.shape[1], 1, 1, 1), np.float32)
    node.facts |= {"weights": ones, "strides": (1, 1), "dilations": (1, 1), "pads": NO_HALO, "groups": node.output.shape[1]}
    _depthwise(low, node)


@lowers("pool")
def _pool(low: Lowering, node: Node) -> None:
    source, facts = low.blocked(node.inputs[0]), node.facts
    out = low.new_blocked(node.output)
    images, _, rows, columns = node.output.shape
    n = dict(enumerate((images, rows, columns, out.blocks, *facts["window"], *facts["strides"], *facts["pads"][:2])))
    n |= dict(enumerate((*source.shape[2:], source.image, source.row, source.block), 10))
    n |= dict(enumerate((out.image, out.row, out.block, facts["mode"], int(facts["adaptive"])), 15))
    work = prod(node.inputs[0].shape)
    pointers = {0: (source.buffer, source.origin), 3: (out.buffer, out.origin)}
    low.steps.add(Kind.POOL, pointers, n, tasks=low.parts(work, images * out.blocks * rows))


# ---------------------------------------------------------------- products
@lowers("product")
def _product(low: Lowering, node: Node) -> None:
    facts = node.facts
    (rows, depth), columns = facts["matrix"], facts["weights"].shape[1]
    source = low.contiguous(node.inputs[0])
    residual = low.contiguous(node.residual) if node.residual is not None else None
    out = low.reuse_plain(node.residual, node.output) if node.residual is not None else None
    out = out or low.new_plain(node.output)
    packed = low.pack(facts["weights"])
    blocks = -(-columns // low.width)
    bias = _bias(facts["shift"], 1, blocks * low.width)
    n = _matrix_sizes(rows, depth, columns, low.width)
    n |= {10: depth, 13: columns, 17: columns, 18: low.width}
    tasks = _cut_product(low, n, rows * depth * columns)
    pointers = {
        0: (source.buffer, source.offset),
        1: (packed, 0),
        2: None if bias is None else (bias, 0),
        3: (out.buffer, out.offset),
        4: None if residual is None else (residual.buffer, residual.offset),
        5: (_offsets(depth), 0),
    }
    low.steps.add(Kind.CONVOLUTION, pointers, n, activation=node.activation, tasks=tasks)


def _matrix_sizes(rows: int, depth: int, columns: int, width: int) -> dict[int, int]:
    blocks = -(-columns // width)
    whole, rest = divmod(depth, SEGMENT)
    return {
        0: 1, 1: 1, 2: rows, 3: blocks, 4: whole + (rest > 0), 5: SEGMENT, 6: rest, 7: int(rest > 0), 14: width,
        19: 1, 23: columns - (blocks - 1) * width, 25: 1, 26: 1, 28: 1,
    }  # fmt: skip


def _offsets(depth: int) -> Buffer:
    table = np.arange(0, depth, SEGMENT, dtype=np.int64)
    return Buffer(table.size, "constant", table)


def _cut_product(low: Lowering, n: dict[int, int], work: int) -> int:
    threads, pairs = low.library.threads, -(-n[3] // 2)
    if work > SMALL and threads > 1:
        n[26] = min(pairs, 4 * threads)
        if n[26] < 2 * threads:
            n[28] = max(min(n[2] // 12, 4 * threads // n[26]), 1)
    return n[19] * n[25] * n[26] * n[28]


@lowers("matmul")
def _matmul(low: Lowering, node: Node) -> None:
    """Products of computed matrices: Y is packed at run time, X is read as it lies."""
    x, y = node.inputs
    source, other = low.plain(x), low.plain(y)
    if source.strides[-1] != 1:
        source = low.contiguous(x)
    outer = (1,) * (4 - len(x.shape)) + x.shape[:-2]
    *_, rows, depth = x.shape
    columns = node.output.shape[-1]
    out = low.new_plain(node.output)
    images, groups = outer
    blocks, width = -(-columns // low.width), low.width
    each = blocks * width * depth
    packed = Buffer(images * groups * each)
    by_depth, by_column = other.strides[-2:]
    if node.facts["swap_y"]:
        by_depth, by_column = by_column, by_depth
    outer_y = (0,) * (4 - len(y.shape)) + other.strides[:-2]
    n = dict(enumerate((depth, columns, by_depth, by_column, images * groups, images, *outer_y, groups * each, each)))
    low.steps.add(Kind.PACK, {0: (other.buffer, other.offset), 3: (packed, 0)}, n,
                  tasks=low.parts(packed.size, images * groups * -(-blocks // 2)))  # fmt: skip
    outer_x = (0,) * (4 - len(x.shape)) + source.strides[:-2]
    n = _matrix_sizes(rows, depth, columns, width)
    n |= {0: images, 8: outer_x[0], 10: source.strides[-2], 11: groups * rows * columns, 13: columns, 19: groups}
    n |= {20: outer_x[1], 21: each, 22: rows * columns, 24: groups * each}
    tasks = images * _cut_matmul(low, n, images * groups * rows * depth * columns)
    pointers = {0: (source.buffer, source.offset), 1: (packed, 0), 3: (out.buffer, 0), 5: (_offsets(depth), 0)}
    low.steps.add(Kind.CONVOLUTION, pointers, n, activation=node.activation, tasks=tasks)


def _cut_matmul(low: Lowering, n: dict[int, int], work: int) -> int:
    if n[0] * n[19] < 2 * low.library.threads:
        return _cut_product(low, n, work)
    return n[19]


# ---------------------------------------------------------------- elementwise
@lowers("unary")
def _unary(low: Lowering, node: Node) -> None:
    _elementwise(low, node, ALONE)


@lowers("binary")
def _binary(low: Lowering, node: Node) -> None:
    _elementwise(low, node, node.facts["operation"])


def _elementwise(low: Lowering, node: Node, operation: int) -> None:
    x, rest = node.inputs[0], node.inputs[1:]
    y_shape = node.facts.get("y_shape", x.shape)
    lies_blocked = [v for v in node.inputs if v in low.blockeds and v not in low.plains and v.shape == node.output.shape]
    by_channel = bool(rest) and len(x.shape) == 4 and y_shape == (*x.shape[:2], 1, 1) != x.shape
    if lies_blocked and x in low.blockeds and (not rest or y_shape == x.shape or by_channel):
        _elementwise_blocked(low, node, operation, by_channel)
        return
    places = [low.plain(value) for value in node.inputs]
    if any(place.strides[-1:] != (1,) and value.shape[-1:] != (1,) for place, value in zip(places, node.inputs, strict=True)):
        places = [low.contiguous(value) for value in node.inputs]
    strides = [places[0].strides]
    if rest:
        strides.append(_broadcast_strides(places[1].strides, rest[0].shape, y_shape))
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    a, *b = (((p.buffer, p.offset), s) for p, s in zip(places, strides, strict=True))
    y = ((out.buffer, out.offset), out.strides)
    low.elementwise(operation, node.output.shape, a, b[0] if b else None, y, node.activation)


def _broadcast_strides(strides: Shape, shape: Shape, aligned: Shape) -> Shape:
    """Strides for the shape with ones around it: 0 wherever it is repeated."""
    found = []
    left = list(zip(shape, strides, strict=True))
    for size in aligned:
        while left and left[0][0] == 1 != size:
            left.pop(0)
        if size == 1:
            found.append(0)
            if left and left[0][0] == 1:
                left.pop(0)
        else:
            found.append(left.pop(0)[1])
    return tuple(found)


def _elementwise_blocked(low: Lowering, node: Node, operation: int, by_channel: bool) -> None:
    x, rest = node.inputs[0], node.inputs[1:]
    places = [low.blocked(x), *(low.blocked(value) for value in rest)]
    out = low.reuse_blocked(x, node.output) or low.new_blocked(node.output)
    n, _, h, w = x.shape
    shape = (n, out.blocks, h, w, low.width)
    a, y = (((p.buffer, p.origin), (p.image, p.block, p.row, p.lanes, 1)) for p in (places[0], out))
    b = None
    if rest:
        other = places[1]
        steps = (other.image, other.block, 0, 0, 1) if by_channel else (other.image, other.block, other.row, other.lanes, 1)
        b = ((other.buffer, other.origin), steps)
    low.elementwise(operation, shape, a, b, y, node.activation)


# ---------------------------------------------------------------- rows
@lowers("softmax")
def _softmax(low: Lowering, node: Node) -> None:
    x = node.inputs[0]
    source = low.contiguous(x)
    columns = x.shape[-1]
    n = {0: prod(x.shape) // columns, 1: columns, 2: 1, 3: 1}
    pointers: dict[int, Any] = {0: (source.buffer, source.offset)}
    if node.facts["mask_shape"] is not None:
        mask = low.contiguous(node.inputs[1])
        strides = _broadcast_strides(mask.strides, node.inputs[1].shape, node.facts["mask_shape"])
        pointers[1] = (mask.buffer, mask.offset)
        n |= {2: x.shape[1], 3: x.shape[2]} | {4 + i: stride for i, stride in enumerate(strides)}
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    pointers[3] = (out.buffer, out.offset)
    tasks = low.parts(20 * prod(x.shape), n[0])
    low.steps.add(Kind.SOFTMAX, pointers, n, numbers=(node.facts["factor"],), tasks=tasks)


@lowers("layer_norm")
def _layer_norm(low: Lowering, node: Node) -> None:
    x, (rows, columns), facts = node.inputs[0], node.facts["matrix"], node.facts
    source = low.contiguous(x)
    residual = low.contiguous(node.residual) if node.residual is not None else None
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    need(node.activation.kind == 0 or not node.activation.constants, "an activation with constants")
    pointers = {
        0: (source.buffer, source.offset),
        1: None if facts["scale"] is None else (constant(facts["scale"]), 0),
        2: None if facts["shift"] is None else (constant(facts["shift"]), 0),
        3: (out.buffer, out.offset),
        4: None if residual is None else (residual.buffer, residual.offset),
    }
    low.steps.add(Kind.LAYER_NORM, pointers, {0: rows, 1: columns}, activation=node.activation,
                  numbers=(facts["epsilon"],), tasks=low.parts(10 * rows * columns, rows))  # fmt: skip


@lowers("gather")
def _gather(low: Lowering, node: Node) -> None:
    ids, table = node.inputs[0], node.facts["table"]
    source = low.plain(ids)
    need(source.buffer.role == "input" and source.offset == 0, "computed ids")
    out = low.new_plain(node.output)
    memory = Buffer(table.size, "constant", np.ascontiguousarray(table, np.float32))
    n = {0: prod(ids.shape), 1: table.shape[1], 3: node.facts["zero"]}
    low.steps.add(Kind.GATHER_ROWS, {0: (memory, 0), 3: (out.buffer, 0), 5: (source.buffer, 0)}, n,
                  tasks=low.parts(n[0] * n[1], n[0]))  # fmt: skip


# ---------------------------------------------------------------- moves
@lowers("view")
def _view(low: Lowering, node: Node) -> None:
    place = low.contiguous(node.inputs[0])
    low.plains[node.output] = Plain(place.buffer, place.offset, row_major(node.output.shape))


@lowers("transpose")
def _transpose(low: Lowering, node: Node) -> None:
    place = low.plain(node.inputs[0])
    strides = tuple(place.strides[axis] for axis in node.facts["axes"])
    low.plains[node.output] = Plain(place.buffer, place.offset, strides)


@lowers("slice")
def _slice(low: Lowering, node: Node) -> None:
    place = low.plain(node.inputs[0])
    starts, sizes = node.facts["starts"], tuple(node.facts["sizes"])
    offset = place.offset + sum(start * stride for start, stride in zip(starts, place.strides, strict=True))
    view = Plain(place.buffer, offset, place.strides)
    if node.output.shape == sizes:
        low.plains[node.output] = view
        return
    out = low.new_plain(node.output)
    low.copy(view, Plain(out.buffer, 0, row_major(sizes)), sizes)


@lowers("concat")
def _concat(low: Lowering, node: Node) -> None:
    out, axis, start = low.new_plain(node.output), node.facts["axis"], 0
    for value in node.inputs:
        target = Plain(out.buffer, start * out.strides[axis], out.strides)
        low.copy(low.plain(value), target, value.shape)
        start += value.shape[axis]


@lowers("stack")
def _stack(low: Lowering, node: Node) -> None:
    out, axis = low.new_plain(node.output), node.facts["axis"]
    strides = (*out.strides[:axis], *out.strides[axis + 1 :])
    for number, value in enumerate(node.inputs):
        low.copy(low.plain(value), Plain(out.buffer, number * out.strides[axis], strides), value.shape)


