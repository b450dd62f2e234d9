"""Gradients of what a loop reads in every step: sums over the steps, without a new array for each."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.scopes import added
from fluidtool.tensor import LoDTensor

MOST = 1 << 23  # numbers that products wait with


class Total:
    """A sum of gradients: tensors, arrays of tensors, or SelectedRows. Its own array takes up what comes."""

    __slots__ = ("_ctx", "_own", "value")

    def __init__(self, ctx: OpContext) -> None:
        self._ctx, self._own = ctx, False
        self.value: Any = None

    def add(self, value: Any) -> None:
        """Add a gradient, or nothing."""
        before = self.value
        if self._own and is_like(before, value):
            before.array += value.array
            before.offsets = before.offsets or value.offsets
            return
        self.value = added(self._ctx, before, value)
        self._own = is_like(before, value) and is_like(self.value, before)


def is_like(left: Any, right: Any) -> bool:
    """Whether both are tensors of one shape and data type, with elements."""
    if type(left) is not LoDTensor or type(right) is not LoDTensor or left.array is None or right.array is None:
        return False
    same = left.array.shape == right.array.shape and left.array.dtype == right.array.dtype
    return bool(same and left.array.size)


class Weight:
    """The gradient by the second factor of a `mul` that every step runs: one product of the rows of many steps.

    X_1^T dOut_1 + X_2^T dOut_2 + … is X^T dOut of what lies one below the other.
    """

    __slots__ = ("_count", "_ctx", "_grads", "_op", "_rows", "_sum")

    def __init__(self, ctx: OpContext, op: Operator) -> None:
        self._ctx, self._op, self._sum = ctx, op, Total(ctx)
        self._rows: list[Any] = []
        self._grads: list[Any] = []
        self._count = 0

    def take(self, scope: Any) -> None:
        """Keep what the product of a step consists of."""
        x, grad = (scope.find_var(self._op.input(slot)[0]).value.array for slot in ("X", "Out@GRAD"))
        rows = prod(x.shape[: int(self._op.get_attr("x_num_col_dims", 1))])
        self._rows.append(x.reshape(rows, -1))
        self._grads.append(grad.reshape(rows, -1))
        self._count += grad.size
        if self._count > MOST or x.dtype.itemsize < 4:
            self._multiply()

    def _multiply(self) -> None:
        xp, wide = self._ctx.xp, "float32" if self._rows[0].dtype.itemsize < 4 else self._rows[0].dtype
        rows, grads = (xp.concatenate(parts).astype(wide, copy=False) for parts in (self._rows, self._grads))
        self._sum.add(LoDTensor((rows.T @ grads).astype(self._rows[0].dtype, copy=False)))
        self._rows, self._grads, self._count = [], [], 0

    def total(self, like: Any) -> Any:
        """The gradient in the form of the factor; None if there was no step."""
        if self._rows:
            self._multiply()
        value = self._sum.value
        return None if value is None else LoDTensor(value.array.reshape(like.array.shape), like.offsets)
