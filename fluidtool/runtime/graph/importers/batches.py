"""Products of two computed values, in regions and training steps on a GPU: both become batches of equally many matrices."""

from __future__ import annotations

from itertools import zip_longest
from math import prod

from fluidtool.runtime.graph.importers.registry import GraphBuilder, need
from fluidtool.runtime.graph.ir import Shape, Value


def as_one_matrix(r: GraphBuilder, x: Value, y: Value, swap_x: bool) -> Value:
    """X with all rows of its matrices one below the other, if Y is a single matrix and so one product does."""
    if len(y.shape) > 2 or len(x.shape) == 2 or swap_x:
        return x
    return viewed(r, x, (prod(x.shape[:-1]), x.shape[-1]))


def batch_of(type: str, x: Shape, y: Shape) -> Shape:
    """The sizes of the batch of a product: of `matmul` (Paddle 1.8.5), X and Y have equally many matrices, or one of them is
    a single matrix; batches of `matmul_v2` are broadcast.
    """
    need(len(x) >= 2 and len(y) >= 2, "matmul of a vector")
    left, right = x[:-2], y[:-2]
    if type == "matmul":
        need(not left or not right or prod(left) == prod(right), "batches that do not match")
        return left or right
    pairs = list(zip_longest(left[::-1], right[::-1], fillvalue=1))
    need(all(1 in pair or pair[0] == pair[1] for pair in pairs), "batches that do not broadcast")
    return tuple(max(pair) for pair in reversed(pairs))


def wide_shape(value: Shape, batch: Shape) -> Shape:
    """The shape of matrices as they are broadcast to a batch, which may have as many in another shape."""
    own = value[:-2]
    if own and prod(own) == prod(batch):
        return (*batch, *value[-2:])
    return (*(1,) * (len(batch) - len(own)), *value)


def repeated(r: GraphBuilder, value: Value, batch: Shape) -> Value:
    """Matrices for each of a batch, without a copy; [matrices, rows, columns] if the batch has more than two axes."""
    matrix = value.shape[-2:]
    found = viewed(r, value, wide_shape(value.shape, batch))
    if found.shape[:-2] != batch:
        found = r.node("tile", [found], (*batch, *matrix))
    return viewed(r, found, (*merged(batch), *matrix))


def merged(batch: Shape) -> Shape:
    """A batch of at most two axes."""
    return batch if len(batch) <= 2 else (prod(batch),)


def viewed(r: GraphBuilder, value: Value, shape: Shape) -> Value:
    """The same elements in another shape."""
    return value if value.shape == shape else r.node("view", [value], shape)


def turned(r: GraphBuilder, value: Value) -> Value:
    """Matrices with rows for columns."""
    rank = len(value.shape)
    axes = [*range(rank - 2), rank - 1, rank - 2]
    return r.node("transpose", [value], [value.shape[axis] for axis in axes], axes=axes)
