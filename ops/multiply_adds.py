"""The number of multiply-adds of an operator, from the shapes of its variables.

Operators that multiply matrices or convolve declare it (`@op(..., multiply_adds=...)`); all others are negligible.
Common cases are here. The caller has the shapes: from inference, from a run, or from a region.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Protocol

from fluidtool.ir.operator import Operator

Shape = tuple[int, ...]


class UnknownShapeError(Exception):
    """A shape is unknown."""


class Shapes(Protocol):
    """The shapes of an operator's variables."""

    def __call__(self, slot: str, index: int = 0, rank: int = 0) -> Shape:
        """The shape of variable `index` in an input slot, or with '>' before it in an output slot.

        Raises UnknownShapeError if it is unknown, or has fewer than `rank` dimensions.
        """


MultiplyAdds = Callable[[Operator, Shapes], int]


def convolution_multiply_adds(op: Operator, shape: Shapes) -> int:
    """Every element of the output takes one product for each element of its filter."""
    filters = shape("Filter")
    return prod(shape(">Output")) * prod(filters[1:])


def transposed_multiply_adds(op: Operator, shape: Shapes) -> int:
    """Every element of the input meets each element of its filter."""
    return prod(shape("Input")) * prod(shape("Filter")[1:])


def matmul_multiply_adds(op: Operator, shape: Shapes) -> int:
    """The elements of the output, each a dot product as long as the last axis of X (or the one before, transposed)."""
    x, y = shape("X", rank=1), shape("Y", rank=1)
    transposed = op.get_attr("transpose_X", False) or op.get_attr("trans_x", False)
    depth = x[-2] if transposed and len(x) > 1 else x[-1]
    y_transposed = op.get_attr("transpose_Y", False) or op.get_attr("trans_y", False)
    columns = 1 if len(y) == 1 else y[-2] if y_transposed else y[-1]
    rows = 1 if len(x) == 1 else x[-1] if transposed else x[-2]
    batch_x, batch_y = x[:-2], y[:-2]
    return max(prod(batch_x), prod(batch_y)) * rows * columns * depth


def rows_multiply_adds(slot: str, *weights: str) -> MultiplyAdds:
    """Every row of an input goes through each of the weights once."""

    def count(op: Operator, shape: Shapes) -> int:
        return shape(slot, rank=1)[0] * sum(prod(shape(weight)) for weight in weights)

    return count


def stacked_multiply_adds(op: Operator, shape: Shapes) -> int:
    """`rnn`, `cudnn_lstm`: input [time, batch, size]; every weight matrix once for each step and row."""
    slot = "WeightList" if op.input("WeightList") else "W"
    shapes = [shape(slot, index) for index in range(len(op.input(slot)))]
    weights = sum(prod(each) for each in shapes if slot == "W" or len(each) == 2)
    return prod(shape("Input")[:2]) * weights


def known_multiply_adds(count: MultiplyAdds | None, op: Operator, shape: Shapes) -> int:
    """The count; 0 if the operator has none, or if shapes are unknown."""
    try:
        return 0 if count is None else count(op, shape)
    except (UnknownShapeError, IndexError):
        return 0
