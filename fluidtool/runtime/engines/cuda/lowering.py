"""Nodes -> calls: which nodes are computed within others, where values are, and one function for each kind of node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda import sources
from fluidtool.runtime.engines.cuda.calls import (
    Buffer,
    Call,
    Launch,
    Matrix,
    Place,
    Pointer,
    Product,
    Reduction,
    are_channels_last,
    channels_last,
    row_major,
    same_strides,
    viewed_strides,
)
from fluidtool.runtime.engines.cuda.sources import EXPRESSIONS, THREADS, Source, activated
from fluidtool.runtime.graph.importers.registry import AFFINE, GELU_TANH, need
from fluidtool.runtime.graph.ir import NONE, RELU, Activation, Graph, Node, Shape, UnsupportedError, Value, operands
from fluidtool.runtime.graph.weights import matrices

MOVES = frozenset({"view", "transpose", "slice"})
DEEPEST = 64  # nodes that follow each other within one kernel, which is written by functions that call each other
WITHIN = MOVES | {
    "unary", "binary", "affine", "concat", "stack", "formula", "compared", "converted", "hits", "one_hot", "tile",
}  # fmt: skip
"""What may be computed within its reader: without reading anything at an index that it looks up."""
ROWS = frozenset(
    {
        "softmax", "log_softmax", "softmax_dropped", "softmax_gradient", "layer_norm", "group_norm_step", "group_norm_gradient",
        "reduce", "sums", "joins",
    }
)  # fmt: skip
"""Nodes that read an element two or three times."""
NARROW = (frozenset(EXPRESSIONS) - {"label"}) | {
    "softmax", "softmax_axis", "layer_norm", "group_norm", "pool", "product", "matmul", "attention", "conv", "interpolate",
    "pixel_shuffle", "local_response", "conv3d", "pool_frames",
}  # fmt: skip
"""Nodes whose results are kept in halves, where memory has those."""
PIECE = 8  # halves of 16 bytes
WHOLE = MOVES | {
    "best_path", "extreme_place", "top_k", "order", "converted", "whole", "concat", "stack", "tile", "rows", "taken",
}  # fmt: skip
"""Nodes whose results may be whole numbers."""
LARGEST = 2**31 - 4096  # elements that an index of 32 bits reaches, also that of a thread or a turn after the last one


@dataclass(frozen=True, slots=True)
class Lowered:
    """The calls of a region, the value that each computes, and the buffers of its inputs and outputs.

    mark: where kernels note that an id is out of range; None if none looks up rows.
    """

    calls: tuple[Call, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    graph: Graph
    results: tuple[Value | None, ...] = ()
    mark: Buffer | None = None


def lower(
    graph: Graph,
    libraries: frozenset[str],
    constants: dict[str, Buffer] | None = None,
    half: str = "",
    first: frozenset[Value] = frozenset(),
) -> Lowered:
    """The calls of a graph. Raises UnsupportedError for a node that has none with these libraries ('cublaslt', 'cudnn').

    constants: those of other specializations of the region, by a digest of their numbers; new ones are added.
    half: 'fp16' or 'bf16' to keep weights, and what is computed between inputs and outputs, in 16 bits.
    first: images whose channels lie first; by default those of images that convolutions compute or read lie last.
    """
    low = Lowering(graph, libraries, {} if constants is None else constants, half=half, first=first)
    inputs = []
    for value in graph.inputs:
        need(prod(value.shape) <= LARGEST, f"{value.name} of more than {LARGEST} elements")
        buffer = Buffer(value.floats, "input", integer=value.integer)
        inputs.append(buffer)
        low.places[value] = Place(buffer, row_major(value.shape))
    low.nodes()
    outputs = low.outputs(graph.outputs)
    low.name_calls(None)
    if low.mark is None:
        return Lowered(tuple(low.calls), tuple(inputs), outputs, graph, tuple(low.results))
    calls, results = (cleared(low.mark), *low.calls), (None, *low.results)
    return Lowered(calls, tuple(inputs), outputs, graph, results, low.mark)


def cleared(mark: Buffer) -> Launch:
    """The kernel before all that look, after which no id has been out of range."""
    source = 'extern "C" __global__ void clear_mark(float* out)\n{\n    *out = 0.0f;\n}\n'
    return Launch("clear_mark", source, (Pointer(mark),), 1, 1)


@dataclass(eq=False, slots=True)
class Lowering:
    """A graph while it is lowered."""

    graph: Graph
    libraries: frozenset[str]
    constants: dict[str, Buffer]
    calls: list[Call] = field(default_factory=list)
    places: dict[Value, Place] = field(default_factory=dict)
    inlined: dict[Value, Node] = field(default_factory=dict)
    apart: frozenset[Value] | None = None  # values with memory of their own; by default all outputs
    first: frozenset[Value] = frozenset()  # images whose channels lie first
    half: str = ""  # what numbers of 16 bits are, if memory has those
    narrow: frozenset[Value] | None = None  # values kept in them; by default results of the kinds of nodes that may be
    beside: dict[tuple[Value, str], Place] = field(
        default_factory=dict
    )  # what nodes compute beside their results, by name
    factors: dict[tuple[Place, Shape], Place] = field(
        default_factory=dict
    )  # copies of them for products, which several may read
    masks: dict[tuple[Value, Shape], Place] = field(default_factory=dict)  # copies of them for attention, likewise
    padded: dict[tuple[Place, Shape, Shape], Place] = field(
        default_factory=dict
    )  # images in halves with further channels, by place, shape and larger shape
    exact: frozenset[Value] = frozenset()  # probabilities of losses, whose logarithm would be coarse in halves
    kind: str = ""  # of the node that is lowered
    reductions: dict[Value, Reduction] = field(default_factory=dict)
    sorted: dict[tuple[Value, ...], Pointer] = field(default_factory=dict)  # ids of training steps, once they are
    results: list[Value | None] = field(default_factory=list)  # what each call computes
    mark: Buffer | None = None  # of ids out of range

    def __post_init__(self) -> None:
        uses, outputs = self.graph.uses(), set(self.graph.outputs)
        self.apart = frozenset(outputs) if self.apart is None else self.apart
        readers = {value: node for node in self.graph.nodes for value in operands(node)}
        self.exact = frozenset(node.inputs[0] for node in self.graph.nodes if is_loss(node))
        depths: dict[Value, int] = {}  # of what is computed within a kernel: the longest chain of nodes
        for node in self.graph.nodes:
            value, reader = node.output, readers.get(node.output)
            if reader is None or uses[value] != 1 or value in outputs or node.kind not in WITHIN or value.integer:
                continue
            moved = node.kind in MOVES and not any(each in self.inlined for each in node.inputs)
            fits = reader.kind in WITHIN or reader.kind in ROWS
            depth = 1 + max((depths.get(each, 0) for each in operands(node)), default=0)
            if fits and not moved and depth <= DEEPEST and prod(value.shape) >= prod(reader.output.shape):
                self.inlined[value], depths[value] = node, depth

    def nodes(self) -> None:
        """The calls of all nodes. Raises UnsupportedError, which names the result, for one that has none."""
        for node in self.graph.nodes:
            if node.output in self.inlined:
                continue
            try:
                need(prod(node.output.shape) <= LARGEST, f"a result of more than {LARGEST} elements")
                need(node.kind in LOWER, f"{node.kind.replace('_', ' ')} has no kernel for GPUs")
                need(not node.output.integer or node.kind in WHOLE, "integers that are computed")
                self.kind = node.kind
                LOWER[node.kind](self, node)
                self.name_calls(node.output)
            except UnsupportedError as error:
                error.result = node.output.name
                raise

    def name_calls(self, value: Value | None) -> None:
        """Note what the calls compute that were added since the last time."""
        self.results += [value] * (len(self.calls) - len(self.results))

    def outside(self) -> Buffer:
        """The number that becomes 1 if an id is out of range."""
        if self.mark is None:
            self.mark = Buffer(1, "mark")
        return self.mark

    def outputs(self, values: Iterable[Value]) -> tuple[Buffer, ...]:
        """The buffers of results, each of its own."""
        found: dict[Buffer, None] = {}
        for value in values:
            place = self.place(value)
            if place.buffer.role != "output" or place.buffer in found:
                copy = Place(Buffer(value.floats, "output", integer=value.integer), row_major(value.shape))
                self.copy(value, copy)
                place = copy
            found[place.buffer] = None
        return tuple(found)

    def constant(self, array: Any) -> Buffer:
        """The buffer of constant numbers; equal numbers share one."""
        array = np.ascontiguousarray(array)
        key = sha256(array.tobytes()).hexdigest() + array.dtype.char
        integer = array.dtype == np.int64
        return self.constants.setdefault(key, Buffer(array.size * (1 + integer), "constant", array, bool(integer)))

    def weights(self, array: Any) -> Buffer:
        """The buffer of constant numbers of which there are many, in halves where memory has those; equal ones share one."""
        array = np.ascontiguousarray(array, np.float32)
        if not self.half:
            return self.constant(array)
        key = f"{sha256(array.tobytes()).hexdigest()}{self.half}"
        if key not in self.constants:
            self.constants[key] = Buffer(halved(array.size), "constant", HALVES[self.half](array), half=self.half)
        return self.constants[key]

    def place(self, value: Value) -> Place:
        """Where a value is."""
        found = self.places.get(value)
        if found is None:
            need(value.array is not None, f"{value.name} is not computed")
            array = np.asarray(value.array, value.dtype)
            found = self.places[value] = Place(self.constant(array), row_major(value.shape))
        return found

    def new(self, value: Value, strides: Shape | None = None) -> Place:
        """Memory for a value, row by row unless `strides` are given; outputs have their own, which is always so."""
        wanted = self.is_apart(value)
        half = self.half_of(value) if not wanted else ""
        if wanted or value.integer:
            buffer = Buffer(value.floats, "output" if wanted else "arena", integer=value.integer)
        else:
            buffer = self.room(value.shape, half)
        place = Place(buffer, row_major(value.shape) if wanted or strides is None else strides)
        self.places[value] = place
        return place

    def half_of(self, value: Value) -> str:
        """What numbers of the result of this node are kept in: halves, or ''."""
        is_narrow = self.kind in NARROW and value not in self.exact if self.narrow is None else value in self.narrow
        return self.half if is_narrow else ""

    def is_apart(self, value: Value) -> bool:
        """Whether a value has memory of its own, which is read after the region."""
        return self.apart is not None and value in self.apart

    def room(self, shape: Shape, half: str = "") -> Buffer:
        """Memory of the arena."""
        count = prod(shape)
        return Buffer(halved(count) if half else count, half=half)

    def contiguous(self, value: Value, half: str = "") -> Place:
        """A row-major place of a value, in float32 or halves."""
        return self.laid(value, row_major(value.shape), half)

    def laid(self, value: Value, strides: Shape, half: str = "") -> Place:
        """A place of a value with these strides, in float32 or halves."""
        place = self.place(value)
        if same_strides(place.strides, strides, value.shape) and (value.integer or place.buffer.half == half):
            return place
        room = Buffer(value.floats, integer=True) if value.integer else self.room(value.shape, half)
        return self.copy(value, Place(room, strides))

    def copy(self, value: Value, into: Place) -> Place:
        """Copy a value to another place."""
        self.elementwise(into, value.shape, lambda src, index: src.load(value, index))
        return into

    def elementwise(self, out: Place, shape: Shape, element: Callable[[Source, list[str]], str]) -> None:
        """A kernel with a thread for some elements side by side, in the order of the memory that it writes."""
        count = prod(shape)
        most = next(lanes for lanes in self.lanes() if lanes == 1 or count >= lanes * sources.ENOUGH)
        for lanes in self.lanes(most):
            src = self.each(out, shape, element, lanes)
            if lanes == 1 or not src.is_scattered:
                break
        self.calls.append(src.launch(out, -(-count // (lanes * THREADS)), THREADS, "each"))

    def lanes(self, most: int = PIECE) -> Iterator[int]:
        """How many elements a thread may compute at once, the most first: those of 16 bytes, or fewer."""
        most = min(most, PIECE if self.half else PIECE // 2)
        while most >= 1:
            yield most
            most //= 2

    def each(self, out: Place, shape: Shape, element: Callable[[Source, list[str]], str], lanes: int) -> Source:
        """The kernel with so many lanes, and what is left over one by one."""
        src, count = Source(self), prod(shape)
        src.total = count
        order = sorted(range(len(shape)), key=lambda axis: -out.strides[axis])

        def stored(flat: str) -> str:
            index = src.split(flat, shape, order)
            value = element(src, index)
            return src.store(out, index, value)

        at = src.thread(-(-count // lanes))
        first = src.whole(f"{at} * {lanes}") if lanes > 1 else at
        if count % lanes:
            alone = src.within(lambda: stored("i"))
            each = f"for (int i = {first}; i < {count}; i++) {{ {alone} }}"
            src.lines.append(f"if ({first} > {count - lanes}) {{ {each} return; }}")
        src.lines.append(src.side_by_side(lanes, first, stored))
        return src

    def strides_of(self, value: Value) -> Shape:
        """How a value lies in memory, or most of what it is computed of."""
        node = self.inlined.get(value)
        if node is None:
            return self.place(value).strides
        alike = [each for each in operands(node) if each.shape == value.shape]
        return self.strides_of(alike[0]) if alike else row_major(value.shape)

    def image(self, value: Value) -> Callable[[Shape], Shape]:
        """What gives the strides of the images and the filters of a convolution that computes a value."""
        return row_major if value in self.first else channels_last

    def strides_like(self, node: Node) -> Shape | None:
        """Channels last if an image, or a volume, of this shape that a node reads is so; else None."""
        shape = node.output.shape
        if len(shape) not in (4, 5) or node.output in self.first:
            return None
        waiting = list(operands(node))
        while waiting:
            value = waiting.pop()
            inner = self.inlined.get(value)
            if inner is not None:
                waiting += operands(inner)
            elif len(value.shape) == len(shape) and value in self.places and shape[1] > 1 < prod(shape[2:]):
                strides = self.places[value].strides
                if are_channels_last(strides, value.shape) and value.shape[2:] == shape[2:]:
                    return channels_last(shape)
        return None


def is_loss(node: Node) -> bool:
    """Whether a node takes the logarithm of probabilities, its first input, or reads some for that."""
    return node.kind == "label" or "exact" in node.attrs


def halved(count: int) -> int:
    """The floats that so many halves take."""
    return -(-count // 2)


def fp16(array: Any) -> Any:
    """The bits of floats as halves, as kernels round them: those that are too large become the largest."""
    finite = np.isfinite(array)
    return np.where(finite, np.clip(array, -65504, 65504), array).astype(np.float16).view(np.uint16)


def bf16(array: Any) -> Any:
    """The upper bits of floats, rounded to the nearest, of two to the even one."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


HALVES = {"fp16": fp16, "bf16": bf16}

LOWER: dict[str, Callable[[Lowering, Node], None]] = {}


def lowers(*kinds: str) -> Callable[[Any], Any]:
    """Register the function for kinds of nodes."""

    def register(function: Any) -> Any:
        LOWER.update(dict.fromkeys(kinds, function))
        return function

    return register


# ---------------------------------------------------------------- elementwise nodes
@lowers(*EXPRESSIONS)
def _elementwise(low: Lowering, node: Node) -> None:
    out = low.new(node.output, low.strides_like(node))
    low.elementwise(out, node.output.shape, lambda src, index: src.result(node, index))


@lowers("view", "transpose", "slice")
def _move(low: Lowering, node: Node) -> None:
    """The same memory, if strides can say so."""
    x = node.inputs[0]
    alias = (
        None if x in low.inlined or (x.integer and not node.output.integer) else ALIASES[node.kind](low.place(x), node)
    )
    if alias is None or node.residual is not None or node.activation != NONE:
        _elementwise(low, node)
    else:
        low.places[node.output] = alias


def _viewed(place: Place, node: Node) -> Place | None:
    strides = viewed_strides(node.inputs[0].shape, place.strides, node.output.shape)
    return None if strides is None else Place(place.buffer, strides, place.offset)


def _transposed(place: Place, node: Node) -> Place:
    return Place(place.buffer, tuple(place.strides[axis] for axis in node.attrs["axes"]), place.offset)


def _sliced(place: Place, node: Node) -> Place | None:
    sizes, starts = node.attrs["sizes"], node.attrs["starts"]
    offset = place.offset + sum(start * step for start, step in zip(starts, place.strides, strict=True))
    kept = [step for size, step in zip(sizes, place.strides, strict=True) if size > 1]
    if [size for size in sizes if size > 1] != [size for size in node.output.shape if size > 1]:
        return None
    steps = iter(kept)
    return Place(place.buffer, tuple(next(steps) if size > 1 else 0 for size in node.output.shape), offset)


@lowers("stack")
def _stack(low: Lowering, node: Node) -> None:
    """One value, however often it is stacked, without a copy."""
    x = node.inputs[0]
    alone = len(set(node.inputs)) == 1 and x not in low.inlined and not x.integer
    if not alone or node.residual is not None or node.activation != NONE:
        _elementwise(low, node)
        return
    place, axis = low.place(x), node.attrs["axis"]
    low.places[node.output] = Place(place.buffer, (*place.strides[:axis], 0, *place.strides[axis:]), place.offset)


@lowers("tile")
def _tile(low: Lowering, node: Node) -> None:
    """Numbers that are repeated along axes of size 1, without a copy."""
    (x,), shape = node.inputs, node.output.shape
    alone = all(size in (1, whole) for size, whole in zip(x.shape, shape, strict=True)) and x not in low.inlined
    if not alone or node.residual is not None or node.activation != NONE:
        _elementwise(low, node)
        return
    place = low.place(x)
    strides = tuple(step if size > 1 else 0 for size, step in zip(x.shape, place.strides, strict=True))
    low.places[node.output] = Place(place.buffer, strides, place.offset)


ALIASES: dict[str, Callable[[Place, Node], Place | None]] = {
    "view": _viewed,
    "transpose": _transposed,
    "slice": _sliced,
}


# ---------------------------------------------------------------- images
AXES = "zyx"  # of a volume, and the last two of an image


def like_input(low: Lowering, node: Node) -> Shape | None:
    """Channels last if the image that a node reads is so, unless they should be first; else None."""
    x, value = node.inputs[0], node.output
    are_last = are_channels_last(low.place(x).strides, x.shape) and value not in low.first
    return channels_last(value.shape) if are_last else None


# ---------------------------------------------------------------- products
def need_cublaslt(low: Lowering) -> None:
    """Refuse products where their library is missing."""
    need("cublaslt" in low.libraries, "a product needs cuBLASLt (the package nvmath-python), which is not installed")


def need_cudnn(low: Lowering) -> None:
    """Refuse convolutions where their library is missing."""
    need(
        "cudnn" in low.libraries,
        "a convolution needs cuDNN (the package nvidia-cudnn-frontend), which is not installed",
    )


MOST_CALLS = 3  # in the place of one that would need copies
TENSOR_CORES = 8  # halves of a channel, or of a head, that they read at once
EPILOGUES = {RELU.kind: "relu", GELU_TANH: "gelu"}  # that cuBLASLt has; its GELU is that of the tangent


@lowers("product")
def _product(low: Lowering, node: Node) -> None:
    need_cublaslt(low)
    attrs = node.attrs
    (rows, depth), columns = attrs["matrix"], attrs["weights"].shape[1]
    parts = [part if scale is None else part * scale for part, scale in matrices(attrs["weights"])]
    weights = low.weights(np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0])
    x, out = low.contiguous(node.inputs[0], low.half), low.new(node.output)
    of_out = low.weights if out.buffer.half else low.constant
    bias = None if attrs["shift"] is None else of_out(np.asarray(attrs["shift"], np.float32).reshape(-1))
    added = None
    if node.residual is not None:
        added = Matrix(low.contiguous(node.residual, out.buffer.half).pointer, columns)
    epilogue = EPILOGUES.get(node.activation.kind, "")
    low.calls.append(
        Product(
            Matrix(x.pointer, depth), Matrix(Pointer(weights), columns), Matrix(out.pointer, columns), rows, depth, columns,
            bias=None if bias is None else Pointer(bias), added=added, epilogue=epilogue,
        )
    )  # fmt: skip
    if not epilogue:
        activate(low, node.output, out, node.activation)


def activate(low: Lowering, value: Value, place: Place, activation: Activation) -> None:
    """Apply an activation in place."""
    if activation != NONE:
        low.elementwise(place, value.shape, lambda src, index: activated(activation, src.at(place, index)))


@lowers("matmul")
def _matmul(low: Lowering, node: Node) -> None:
    x, y = node.inputs
    out = heads_of(low, node, low.new(node.output))
    alpha = products(low, (low.place(x), x.shape), (low.place(y), y.shape), node.attrs["swap_y"], out, node.activation)
    if not alpha:
        activate(low, node.output, low.places[node.output], node.activation)


def heads_of(low: Lowering, node: Node, place: Place) -> Place:
    """The place of a product of matrices, by [outer, inner, rows, columns]; heads may be stored side by side."""
    shape = node.output.shape
    strides = place.strides
    if node.attrs.get("heads_last"):  # [outer, rows, inner, columns] in memory
        strides = (strides[0], strides[2], strides[1], strides[3])
    return Place(place.buffer, (0,) * (4 - len(shape)) + strides, place.offset)


def products(
    low: Lowering, x: tuple[Place, Shape], y: tuple[Place, Shape], swap_y: bool, out: Place, activation: Activation
) -> bool:
    """A product for each matrix of a batch; whether it applies the activation, a factor.

    A call takes matrices that lie at one distance. Where two axes of matrices do not, they are copied, or those of the outer
    axis are a call each if they are few.
    """
    need_cublaslt(low)
    shape = (1,) * (4 - len(x[1])) + tuple(x[1])
    outer, inner, rows, depth = shape
    columns = y[1][-2] if swap_y else y[1][-1]
    left, right = (matrices_of(low, place, own) for place, own in (x, y))
    target = out
    if outer > MOST_CALLS:
        left = left if is_even(left, inner) else matrices_of(low, _factor(low, *x), x[1])
        right = right if is_even(right, inner) else matrices_of(low, _factor(low, *y), y[1])
        if not is_even(out, inner):
            wide = (outer, inner, rows, columns)
            target = Place(low.room(wide, out.buffer.half), row_major(wide))
    factor = factor_of(activation)
    places = [left, right, target]
    count = inner
    if outer > 1 and all(is_even(place, inner) for place in places):
        left, right, target = (evened(place, inner) for place in places)
        outer, count = 1, outer * inner
    for at in range(outer):
        low.calls.append(
            Product(
                matrix_of(left, at, False), matrix_of(right, at, swap_y),
                Matrix(Pointer(target.buffer, target.offset + at * target.strides[0]), target.strides[2], batch=target.strides[1]),
                rows, depth, columns, count, 1.0 if factor is None else factor,
            )
        )  # fmt: skip
    if target.buffer is not out.buffer:
        found = Value("", (shape[0], inner, rows, columns))
        low.places[found] = places[2]
        low.copy(found, out)
    return factor is not None


def is_even(place: Place, inner: int) -> bool:
    """Whether all matrices of two axes lie at one distance from each other."""
    return inner == 1 or place.strides[0] == inner * place.strides[1]


def evened(place: Place, inner: int) -> Place:
    """The same matrices along one axis."""
    return Place(place.buffer, (0, place.strides[int(inner > 1)], *place.strides[2:]), place.offset)


def factor_of(activation: Activation) -> float | None:
    """The factor that an activation is; None if it is more."""
    if activation == NONE:
        return 1.0
    is_factor = activation.kind == AFFINE and activation.constants[1] == 0
    return float(activation.constants[0]) if is_factor else None


def matrices_of(low: Lowering, place: Place, shape: Shape) -> Place:
    """A place whose matrices lie row by row or column by column, by [outer, inner, rows, columns]."""
    fits = [step == 1 or size == 1 for step, size in zip(place.strides[-2:], shape[-2:], strict=True)]
    if not any(fits) or place.buffer.half != low.half:
        place = _factor(low, place, shape)
    steps = [step if size > 1 else 0 for step, size in zip(place.strides, shape, strict=True)]
    by_row, by_column = place.strides[-2:]
    if shape[-1] == 1:
        by_column = 1
    elif by_column != 1:
        by_row = 1
    return Place(place.buffer, (*(0,) * (4 - len(shape)), *steps[:-2], by_row, by_column), place.offset)


def _factor(low: Lowering, place: Place, shape: Shape) -> Place:
    """A copy of matrices as products read them; made once, since nothing that products read changes while they do."""
    if (place, shape) not in low.factors:
        value = Value("", shape)
        low.places[value] = place
        low.factors[place, shape] = low.copy(value, Place(low.room(shape, low.half), row_major(shape)))
    return low.factors[place, shape]


def matrix_of(place: Place, outer: int, swapped: bool) -> Matrix:
    """The matrices of one outer index; `swapped`: as the other factor of a product with the transposed one."""
    by_row, by_column = place.strides[2:]
    turned = by_column != 1
    step = by_column if turned else by_row
    return Matrix(
        Pointer(place.buffer, place.offset + outer * place.strides[0]), step, turned != swapped, place.strides[1]
    )
