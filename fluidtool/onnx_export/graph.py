"""An ONNX graph under construction: values that compute like arrays, and the nodes behind them.

Nothing here imports the package onnx: nodes are plain data until `messages.py` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.errors import FluidError
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

Array = NDArray[Any]
Shape = tuple[int, ...]
INT64, FLOAT, BOOL = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.bool_)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)


class Blocked(FluidError):
    """ONNX has no rendering of an operator as it is used here; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node: names of what it reads ("" for none) and writes; attributes may hold graphs."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(slots=True)
class Shared:
    """What a graph has in common with the graphs inside its nodes: constants, and the names taken."""

    opset: int
    initializers: dict[str, Array] = field(default_factory=dict)
    known: dict[tuple[str, Shape, bytes], str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)


class Graph:
    """Nodes in order. `prefix` begins the names of new values."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.nodes: list[NodeRecord] = []
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.prefix = ""

    @property
    def opset(self) -> int:
        """The version of the operators."""
        return self.shared.opset

    def inner(self) -> Graph:
        """A graph for a node of this one: it sees the values of this one."""
        graph = Graph(self.shared)
        graph.prefix = self.prefix
        return graph

    def name(self, wanted: str) -> str:
        """`wanted`, or a name like it that is free; it is taken from now on."""
        shared, name = self.shared, wanted
        while name in shared.taken or not name:
            shared.counts[wanted] = number = shared.counts.get(wanted, 0) + 1
            name = f"{wanted}.{number}"
        shared.taken.add(name)
        return name

    def input(self, name: str, dtype: Any, shape: Shape | None) -> Value:
        """A value from outside."""
        value = Value(self, self.name(name), np.dtype(dtype), shape)
        self.inputs.append(value)
        return value

    def constant(self, array: Any, dtype: Any = None, name: str = "") -> Value:
        """A value that is known; it is written only if a node reads it."""
        array = np.asarray(array) if dtype is None else np.asarray(array, dtype)
        return Value(self, "", array.dtype, array.shape, array, name)

    def reference(self, value: Value | None) -> str:
        """The name under which nodes read a value."""
        if value is None:
            return ""
        if value.array is None:
            return value.name
        array, shared = value.array, self.shared
        if value.wanted:
            if value.wanted not in shared.initializers:
                shared.taken.add(value.wanted)
                shared.initializers[value.wanted] = array
            return value.wanted
        key = (
            array.dtype.name,
            array.shape,
            array.tobytes() if array.size <= 1024 else id(array).to_bytes(8, "little"),
        )
        if key not in shared.known:
            shared.known[key] = self.name(f"{self.prefix}.constant")
            shared.initializers[shared.known[key]] = array
        return shared.known[key]

    def node(
        self, kind: str, inputs: Sequence[Value | None], dtypes: Sequence[Any], **attributes: Any
    ) -> tuple[Value, ...]:
        """A node with an output for each data type; None leaves an output out."""
        names = [self.reference(value) for value in inputs]
        while names and not names[-1]:
            names.pop()
        outputs = tuple("" if dtype is None else self.name(f"{self.prefix}.{kind}") for dtype in dtypes)
        given = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(NodeRecord(kind, tuple(names), outputs, given))
        return tuple(
            Value(self, name, np.dtype(FLOAT if dtype is None else dtype), None)
            for name, dtype in zip(outputs, dtypes, strict=True)
        )

    def op(
        self, kind: str, *inputs: Value | None, dtype: Any = None, shape: Shape | None = None, **attributes: Any
    ) -> Value:
        """A node with one output, by default of the data type of its first input."""
        if dtype is None:
            dtype = next(value.dtype for value in inputs if value is not None)
        (out,) = self.node(kind, inputs, [dtype], **attributes)
        return out.shaped(shape)

    def same(self, kind: str, x: Value, *others: Value | None, **attributes: Any) -> Value:
        """A node whose output is of the data type and shape of x."""
        return self.op(kind, x, *others, shape=x.shape, **attributes)

    def vector(self, parts: Sequence[int | Value]) -> Value:
        """Whole numbers as a 1-D int64 value; parts that are values hold one or more numbers each."""
        if all(isinstance(part, int) or part.array is not None for part in parts):
            return self.constant([n for part in parts for n in _numbers(part)], np.int64)
        pieces: list[Value] = []
        run: list[int] = []
        for part in parts:
            if isinstance(part, Value) and part.array is None:
                if run:
                    pieces.append(self.constant(run, np.int64))
                    run = []
                pieces.append(part.cast(INT64).flat())
            else:
                run += _numbers(part)
        if run:
            pieces.append(self.constant(run, np.int64))
        return pieces[0] if len(pieces) == 1 else self.op("Concat", *pieces, axis=0, shape=(-1,))

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        shape = parts[0].shape
        if shape is not None:
            sizes = [part.shape[axis] if part.shape is not None else -1 for part in parts]
            at = axis % len(shape)
            shape = (*shape[:at], -1 if min(sizes) < 0 else sum(sizes), *shape[at + 1 :])
        return self.op("Concat", *parts, axis=axis, shape=shape)

    def split(self, x: Value, sizes: Sequence[int], axis: int) -> list[Value]:
        """Parts of these sizes along an axis."""
        if len(sizes) == 1:
            return [x]
        found = self.node("Split", [x, self.constant(list(sizes), np.int64)], [x.dtype] * len(sizes), axis=axis)
        if x.shape is None:
            return list(found)
        at = axis % x.rank
        return [part.shaped((*x.shape[:at], size, *x.shape[at + 1 :])) for part, size in zip(found, sizes, strict=True)]

    def where(self, condition: Value, x: Any, y: Any) -> Value:
        """x where the condition holds, else y; one of them may be a number."""
        like = x if isinstance(x, Value) else y
        x, y = self.like(x, like), self.like(y, like)
        shape = broadcast(broadcast(condition.shape, x.shape), y.shape)
        return self.op("Where", condition, x, y, dtype=x.dtype, shape=shape)

    def like(self, x: Any, other: Value) -> Value:
        """x, or a constant of the data type of another value."""
        return x if isinstance(x, Value) else self.constant(np.asarray(x).astype(other.dtype))

    def full(self, shape: Value, number: Any, dtype: Any) -> Value:
        """A value of this shape that holds one number."""
        array = np.asarray(number).astype(dtype)
        if shape.array is not None and shape.array.size and np.prod(shape.array) <= 4096:
            return self.constant(np.full(tuple(int(n) for n in shape.array), array))
        if array.dtype in (BOOL, np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.int16)):
            return self.full(shape, int(array), np.int32).cast(array.dtype)
        sizes = None if shape.array is None else tuple(int(n) for n in shape.array)
        return self.op("ConstantOfShape", shape, dtype=array.dtype, value=array.reshape(1), shape=sizes)

    def range(self, start: Any, limit: Any, delta: Any = 1, dtype: Any = INT64) -> Value:
        """start, start + delta, … below limit."""
        parts = [part if isinstance(part, Value) else self.constant(part, dtype) for part in (start, limit, delta)]
        if all(part.array is not None for part in parts):
            return self.constant(
                np.arange(*(part.array.item() for part in parts if part.array is not None), dtype=dtype)
            )
        return self.op("Range", *(part.scalar() for part in parts), dtype=dtype, shape=(-1,))

    def stack(self, parts: Sequence[Value], axis: int) -> Value:
        """Side by side along a new axis."""
        return self.concat([part.unsqueeze(axis) for part in parts], axis)

    def maximum(self, x: Value, y: Any) -> Value:
        """The larger of both."""
        return self.binary("Max", x, y)

    def minimum(self, x: Value, y: Any) -> Value:
        """The smaller of both."""
        return self.binary("Min", x, y)

    def binary(self, kind: str, x: Any, y: Any, dtype: Any = None) -> Value:
        """x and y broadcast; one of them may be a number."""
        like = x if isinstance(x, Value) else y
        x, y = self.like(x, like), self.like(y, like)
        if x.array is not None and y.array is not None and max(x.array.size, y.array.size) <= 64 and kind in FOLDED:
            return self.constant(FOLDED[kind](x.array, y.array).astype(dtype or x.dtype))
        return self.op(kind, x, y, dtype=dtype or x.dtype, shape=broadcast(x.shape, y.shape))

    def prune(self) -> None:
        """Drop the nodes that nothing reads, and constants that no node reads."""
        needed = {value.name for value in self.outputs}
        self.nodes = _needed(self.nodes, needed)
        initializers = self.shared.initializers
        self.shared.initializers = {name: array for name, array in initializers.items() if name in needed}

    def rename(self, value: Value, name: str) -> Value:
        """The same value under the name that it has in the program."""
        self.shared.renamed[value.name] = name
        return value


def _needed(nodes: Sequence[NodeRecord], needed: set[str]) -> list[NodeRecord]:
    """The nodes that `needed` depends on; it grows by all that they read."""
    kept = []
    for node in reversed(nodes):
        if needed.isdisjoint(filter(None, node.outputs)):
            continue
        kept.append(node)
        needed.update(filter(None, node.inputs))
        for body in node.attributes.values():
            if isinstance(body, Graph):
                needed.update(value.name for value in body.outputs)
                body.nodes = _needed(body.nodes, needed)
    return kept[::-1]


FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
}


def _numbers(part: int | Value) -> list[int]:
    if isinstance(part, Value):
        assert part.array is not None
        return [int(n) for n in part.array.reshape(-1)]
    return [int(part)]


def broadcast(a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape of both together, -1 where it is not known."""
    if a is None or b is None:
        return None
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    return tuple(
        max(x, y) if x > 1 or y > 1 or x == y else (min(x, y) if 0 in (x, y) or -1 in (x, y) else x) for x, y in pairs
    )


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of a graph: data type, shape (-1 for sizes known only at run time, None for an unknown rank), and the array
    of a constant, with the name that it must have as `wanted`. It computes like an array; numbers take its data type.

    counts: whether it says how many sequences there were, so that the values of several runs are added up.
    levels: of several sequences, how many items each has, level by level (int64, 1-D); () for one sequence, or none.
    """

    graph: Graph
    name: str
    dtype: np.dtype[Any]
    shape: Shape | None
    array: Array | None = None
    wanted: str = ""
    sequence: bool = False
    counts: bool = False
    levels: tuple[Value, ...] = ()

    # -- what is known
    @property
    def rank(self) -> int:
        """The number of dimensions; raises Blocked where it is not known."""
        if self.shape is None:
            raise Blocked("the number of dimensions is known only at run time")
        return len(self.shape)

    @property
    def floating(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.dtype.kind == "f"

    def shaped(self, shape: Sequence[int] | None) -> Value:
        """The same value, of which more is known."""
        if shape is None or self.array is not None:
            return self
        return replace(self, shape=tuple(int(n) for n in shape))

    def within(self, graph: Graph) -> Value:
        """The same value, computed on in another graph that sees it."""
        if graph is self.graph:
            return self
        return replace(self, graph=graph, levels=tuple(level.within(graph) for level in self.levels))

    def leveled(self, levels: Sequence[Value]) -> Value:
        """The same rows as sequences of these lengths."""
        return replace(self, levels=tuple(levels))

    def counting(self) -> Value:
        """Known to say how many sequences there were."""
        return replace(self, counts=True)

    def as_sequence(self) -> Value:
        """Known to be a sequence of tensors of this data type."""
        return replace(self, sequence=True, shape=None)

    def loose(self) -> Value:
        """With no more known of its shape than its rank."""
        return self if self.shape is None else replace(self, shape=(-1,) * len(self.shape))

    def static(self, what: str = "shape") -> Shape:
        """The shape, all of whose sizes are known; raises Blocked otherwise."""
        if self.shape is None or min(self.shape, default=0) < 0:
            raise Blocked(f"its {what} {_shown(self.shape)} is known only at run time")
        return self.shape

    def size(self, axis: int, what: str = "") -> int:
        """The size of an axis; raises Blocked where it is not known."""
        size = -1 if self.shape is None else self.shape[axis]
        if size < 0:
            raise Blocked(f"the size of axis {axis} of {what or _shown(self.shape)} is known only at run time")
        return size

    # -- shapes
    def dims(self) -> Value:
        """The sizes as a 1-D int64 value."""
        if self.shape is not None and min(self.shape, default=0) >= 0:
            return self.graph.constant(list(self.shape), np.int64)
        return self.graph.op("Shape", self, dtype=INT64, shape=None if self.shape is None else (self.rank,))

    def dim(self, axis: int) -> int | Value:
        """A size: a number, or a value of one element."""
        if self.shape is not None and self.shape[axis] >= 0:
            return self.shape[axis]
        return self.dims().gather(self.graph.constant([axis % self.rank if self.shape else axis], np.int64), 0)

    def dim_value(self, axis: int) -> Value:
        """A size as a value of one element."""
        return self.graph.vector([self.dim(axis)])

    def sizes(self) -> list[int | Value]:
        """Every size: a number, or a value of one element."""
        return [self.dim(axis) for axis in range(self.rank)]

    def merged(self, first: int, end: int) -> int | Value:
        """The product of the sizes of the axes from `first` to before `end`."""
        sizes = self.sizes()[first:end]
        known = prod(size for size in sizes if isinstance(size, int))
        unknown = [size for size in sizes if not isinstance(size, int)]
        for size in unknown[1:]:
            unknown[0] = unknown[0] * size
        return known if not unknown else unknown[0] if known == 1 else unknown[0] * known

    def reshape(self, sizes: Sequence[int | Value] | Value, *, zero_keeps: bool = False) -> Value:
        """The same numbers in another shape; one size may be -1. 0 is a size of 0; with `zero_keeps`, that of the input."""
        if not isinstance(sizes, Value):
            sizes = _one_open(list(sizes))
        target = sizes if isinstance(sizes, Value) else self.graph.vector(list(sizes))
        if self.array is not None and target.array is not None:
            return self.graph.constant(self.array.reshape([int(n) for n in target.array]))
        shape: Shape | None = None
        if target.array is not None:
            shape = tuple(int(n) for n in target.array)
            if self.shape == shape and -1 not in shape:
                return self
            if shape.count(-1) == 1 and self.shape is not None and min(self.shape, default=0) >= 0 and 0 not in shape:
                rest = int(np.prod(self.shape)) // -int(np.prod(shape))
                shape = tuple(rest if n == -1 else n for n in shape)
        elif not isinstance(sizes, Value):
            shape = tuple(n if isinstance(n, int) else -1 for n in sizes)
        elif target.shape is not None and target.shape[0] >= 0:
            shape = (-1,) * target.shape[0]
        empty = not zero_keeps and (target.array is None or 0 in target.array)
        zero = 1 if self.graph.opset >= 14 and empty else None
        return self.graph.op("Reshape", self, target, allowzero=zero, shape=shape)

    def flat(self) -> Value:
        """In one dimension."""
        return self if self.shape is not None and len(self.shape) == 1 else self.reshape([-1])

    def scalar(self) -> Value:
        """Its one number without dimensions."""
        return self if self.shape == () else self.reshape([])

    def squeeze(self, *axes: int) -> Value:
        """Without these axes of size 1."""
        if not axes:
            return self
        shape = self.shape
        if shape is not None:
            gone = {axis % len(shape) for axis in axes}
            shape = tuple(n for axis, n in enumerate(shape) if axis not in gone)
        if self.array is not None:
            return self.graph.constant(self.array.squeeze(tuple(axes)))
        return self.graph.op("Squeeze", self, self.graph.constant(list(axes), np.int64), shape=shape)

    def unsqueeze(self, *axes: int) -> Value:
        """With new axes of size 1 at these places of the result."""
        if not axes:
            return self
        if self.array is not None:
            return self.graph.constant(np.expand_dims(self.array, tuple(axes)))
        shape = None
        if self.shape is not None:
            rank = len(self.shape) + len(axes)
            places = {axis % rank for axis in axes}
            rest = iter(self.shape)
            shape = tuple(1 if axis in places else next(rest) for axis in range(rank))
        return self.graph.op("Unsqueeze", self, self.graph.constant(list(axes), np.int64), shape=shape)

    def transpose(self, *axes: int) -> Value:
        """Axes in another order."""
        if list(axes) == sorted(axes):
            return self
        shape = None if self.shape is None else tuple(self.shape[axis] for axis in axes)
        return self.graph.op("Transpose", self, perm=list(axes), shape=shape)

    def swap(self, a: int = -1, b: int = -2) -> Value:
        """Two axes exchanged."""
        order = list(range(self.rank))
        order[a], order[b] = order[b], order[a]
        return self.transpose(*order)

    def expand(self, sizes: Sequence[int | Value] | Value) -> Value:
        """Repeated along axes of size 1, by the usual rules."""
        target = sizes if isinstance(sizes, Value) else self.graph.vector(list(sizes))
        shape = None
        if target.array is not None:
            shape = broadcast(self.shape, tuple(int(n) for n in target.array))
        elif not isinstance(sizes, Value):
            shape = broadcast(self.shape, tuple(n if isinstance(n, int) else -1 for n in sizes))
        return self.graph.op("Expand", self, target, shape=shape)

    def slice(
        self,
        starts: Sequence[int | Value],
        ends: Sequence[int | Value],
        axes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> Value:
        """Ranges of some axes, by ONNX's rules, which are Python's."""
        graph = self.graph
        shape = None
        if self.shape is not None:
            sizes = list(self.shape)
            for place, axis in enumerate(axes):
                low, high = starts[place], ends[place]
                known = isinstance(low, int) and isinstance(high, int) and sizes[axis] >= 0
                step = 1 if steps is None else steps[place]
                sizes[axis] = len(range(*slice(_end(low), _end(high), step).indices(sizes[axis]))) if known else -1
            shape = tuple(sizes)
            if self.array is not None and all(isinstance(n, int) for n in (*starts, *ends)):
                cut: list[Any] = [slice(None)] * len(shape)
                for place, axis in enumerate(axes):
                    cut[axis] = slice(_end(starts[place]), _end(ends[place]), 1 if steps is None else steps[place])
                return graph.constant(np.ascontiguousarray(self.array[tuple(cut)]))
        by = None if steps is None else graph.constant(list(steps), np.int64)
        where = graph.constant(list(axes), np.int64)
        return graph.op("Slice", self, graph.vector(list(starts)), graph.vector(list(ends)), where, by, shape=shape)

    def part(self, axis: int, start: int | Value, end: int | Value = INT64_MAX) -> Value:
        """A range of one axis."""
        return self.slice([start], [end], [axis])

    def pick(self, axis: int, index: int) -> Value:
        """One place of an axis, which is gone."""
        return self.gather(self.graph.constant(index, np.int64), axis)

    def gather(self, indices: Value, axis: int = 0) -> Value:
        """The places of an axis that `indices` name."""
        if self.array is not None and indices.array is not None and self.array.size <= 4096:
            return self.graph.constant(np.take(self.array, indices.array, axis))
        shape = None
        if self.shape is not None and indices.shape is not None:
            at = axis % len(self.shape)
            shape = (*self.shape[:at], *indices.shape, *self.shape[at + 1 :])
        return self.graph.op("Gather", self, indices, axis=axis, shape=shape)

    def tile(self, counts: Sequence[int | Value] | Value) -> Value:
        """Repeated as a whole along every axis."""
        times = counts if isinstance(counts, Value) else self.graph.vector(list(counts))
        shape = None
        if self.shape is not None and times.array is not None:
            shape = tuple(-1 if n < 0 else n * int(t) for n, t in zip(self.shape, times.array, strict=True))
        return self.graph.op("Tile", self, times, shape=shape)

    def pad(
        self, before: Sequence[int | Value], after: Sequence[int | Value], mode: str = "constant", number: Any = 0
    ) -> Value:
        """With more at both ends of every axis."""
        if all(isinstance(n, int) and n == 0 for n in (*before, *after)):
            return self
        shape = None
        if self.shape is not None:
            shape = tuple(
                n + a + b if n >= 0 and isinstance(a, int) and isinstance(b, int) else -1
                for n, a, b in zip(self.shape, before, after, strict=True)
            )
        fill = self.graph.like(number, self) if mode == "constant" else None
        return self.graph.op("Pad", self, self.graph.vector([*before, *after]), fill, mode=mode, shape=shape)

    # -- numbers
    def cast(self, dtype: Any) -> Value:
        """In another data type."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        if self.array is not None and self.array.size <= 4096:
            return self.graph.constant(self.array.astype(dtype))
        return self.graph.op("Cast", self, dtype=dtype, to=dtype, shape=self.shape)

    def reduce(self, kind: str, axes: Sequence[int], keepdims: bool = False) -> Value:
        """Sum, Mean, Max, Min, Prod, L2, … over some axes; none means all."""
        graph = self.graph
        shape = None
        if self.shape is not None:
            gone = {axis % len(self.shape) for axis in axes} or set(range(len(self.shape)))
            shape = tuple(1 if axis in gone else n for axis, n in enumerate(self.shape) if keepdims or axis not in gone)
        if self.shape == ():
            return self
        if kind == "Sum" or graph.opset >= 18:
            where = graph.constant(list(axes), np.int64) if axes else None
            return graph.op(f"Reduce{kind}", self, where, keepdims=int(keepdims), shape=shape)
        return graph.op(f"Reduce{kind}", self, axes=list(axes) or None, keepdims=int(keepdims), shape=shape)

    def sum(self, *axes: int, keepdims: bool = False) -> Value:
        """The sum over some axes."""
        return self.reduce("Sum", axes, keepdims)

    def clip(self, low: Any = None, high: Any = None) -> Value:
        """min(max(x, low), high)."""
        ends = [None if end is None else self.graph.like(end, self) for end in (low, high)]
        return self.graph.same("Clip", self, *ends)

    def apply(self, kind: str, **attributes: Any) -> Value:
        """A function of each number."""
        return self.graph.same(kind, self, **attributes)

    def __add__(self, other: Any) -> Value:
        return self.graph.binary("Add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.graph.binary("Add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.graph.binary("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.graph.binary("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.graph.binary("Mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self.graph.binary("Mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self.graph.binary("Div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.graph.binary("Div", other, self)

    def __neg__(self) -> Value:
        return self.apply("Neg")

    def __matmul__(self, other: Value) -> Value:
        shape = None
        if self.shape is not None and other.shape is not None and self.rank >= 2 and other.rank >= 2:
            stacks = broadcast(self.shape[:-2], other.shape[:-2])
            shape = None if stacks is None else (*stacks, self.shape[-2], other.shape[-1])
        return self.graph.op("MatMul", self, other, shape=shape)

    def __gt__(self, other: Any) -> Value:
        return self.graph.binary("Greater", self, other, BOOL)

    def __ge__(self, other: Any) -> Value:
        return self.graph.binary("GreaterOrEqual", self, other, BOOL)

    def __lt__(self, other: Any) -> Value:
        return self.graph.binary("Less", self, other, BOOL)

    def __le__(self, other: Any) -> Value:
        return self.graph.binary("LessOrEqual", self, other, BOOL)

    def equals(self, other: Any) -> Value:
        """Where both are equal."""
        return self.graph.binary("Equal", self, other, BOOL)

    def __and__(self, other: Value) -> Value:
        return self.graph.binary("And", self, other)

    def __or__(self, other: Value) -> Value:
        return self.graph.binary("Or", self, other)

    def __invert__(self) -> Value:
        return self.apply("Not")


def _one_open(sizes: list[int | Value]) -> list[int | Value]:
    """-1 in place of the only size that is computed: it follows from the others."""
    computed = [place for place, size in enumerate(sizes) if isinstance(size, Value)]
    plain = all(size > 0 for size in sizes if isinstance(size, int))
    if len(computed) == 1 and plain:
        sizes[computed[0]] = -1
    return sizes


def _end(number: Any) -> int:
    return max(min(int(number), INT64_MAX), INT64_MIN)


def _shown(shape: Shape | None) -> str:
    return "shape" if shape is None else f"shape {shape_text(shape)}"
