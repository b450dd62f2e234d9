"""Gradients of what a loop reads in every step: sums over the steps, without a new array for each."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.joining import joined
from fluidtool.ops.control_flow.scopes import added, shared
from fluidtool.ops.rnn.gru_cell import GruWeights
from fluidtool.tensor import LoDTensor, LoDTensorArray

Value = Callable[[str], Any]  # the value of a variable, by its name
Rows = Callable[[Operator, Value], list[Any]]
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
        if self._own and isinstance(before, LoDTensorArray) and isinstance(value, LoDTensorArray):
            self._add_items(before, value)
            return
        if self._own and is_like(before, value):
            before.array += value.array
            before.offsets = before.offsets or value.offsets
            return
        self.value = added(self._ctx, before, value)
        self._own = isinstance(self.value, LoDTensorArray) or (is_like(before, value) and is_like(self.value, before))

    def _add_items(self, total: LoDTensorArray, items: LoDTensorArray) -> None:
        """Add an array of tensors, of which most steps have few items."""
        for place, item in enumerate(items):
            if place == len(total):
                total.append(shared(item))
            elif item.array is not None and item.array.size:
                total[place] = added(self._ctx, total[place], item)


def is_like(left: Any, right: Any) -> bool:
    """Whether both are tensors of one shape and data type, with elements."""
    if type(left) is not LoDTensor or type(right) is not LoDTensor or left.array is None or right.array is None:
        return False
    same = left.array.shape == right.array.shape and left.array.dtype == right.array.dtype
    return bool(same and left.array.size)


class Products:
    """A gradient that is a product of rows in each step: one product of the rows of many steps.

    X_1^T dOut_1 + X_2^T dOut_2 + … is X^T dOut of what lies one below the other. reads: the names of the rows.
    """

    __slots__ = ("_count", "_ctx", "_multiply", "_parts", "_rows", "_sum", "op")

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of what `take` reads."""
        return READ[self._rows](self.op)

    def __init__(self, ctx: OpContext, op: Operator, rows: Rows, multiply: Callable[..., Any]) -> None:
        self.op, self._ctx, self._rows, self._multiply, self._sum = op, ctx, rows, multiply, Total(ctx)
        self._parts: list[list[Any]] = []
        self._count = 0

    def take(self, value: Value) -> None:
        """Keep what the product of a step consists of; `value` finds it by name."""
        self._parts.append(self._rows(self.op, value))
        self._count += sum(part.size for part in self._parts[-1])
        if self._count > MOST or self._parts[-1][0].dtype.itemsize < 4:
            self._add_up()

    def _add_up(self) -> None:
        xp, kind = self._ctx.xp, self._parts[-1][0].dtype
        wide = "float32" if kind.itemsize < 4 else kind
        parts = zip(*self._parts[::-1], strict=True)  # in the order of the steps, so that neighbors meet
        factors = [joined(self._ctx, arrays).astype(wide, copy=False) for arrays in parts]
        self._sum.add(LoDTensor(self._multiply(xp, *factors).astype(kind, copy=False)))
        self._parts, self._count = [], 0

    def add(self, total: Any) -> None:
        """Add a sum over steps that somebody else has computed."""
        self._sum.add(LoDTensor(total))

    def total(self, like: Any) -> Any:
        """The gradient in the form of the factor; None if there was no step."""
        if self._parts:
            self._add_up()
        value = self._sum.value
        return None if value is None else LoDTensor(value.array.reshape(like.array.shape), like.offsets)


class FirstRows:
    """The gradient by what `shrink_rnn_memory` takes the first rows of, in each step: theirs are added up."""

    __slots__ = ("_ctx", "_sum", "op")

    def __init__(self, ctx: OpContext, op: Operator) -> None:
        self.op, self._ctx = op, ctx
        self._sum: Any = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of what `take` reads."""
        return self.op.input("Out@GRAD")[0], self.op.input("X")[0]

    def add(self, total: Any) -> None:
        """Add a sum over steps that somebody else has computed."""
        self._sum = total if self._sum is None else self._sum + total

    def take(self, value: Value) -> None:
        """Add the rows of a step."""
        grad = value(self.op.input("Out@GRAD")[0])
        if grad is None or grad.array is None:
            return
        if self._sum is None:
            self._sum = self._ctx.xp.zeros_like(value(self.op.input("X")[0]).array)
        self._sum[: len(grad.array)] += grad.array

    def total(self, like: Any) -> Any:
        """The gradient in the form of what was shrunk; None if no step had one."""
        return None if self._sum is None else LoDTensor(self._sum, like.offsets)


def sums_of_steps(ctx: OpContext, op: Operator) -> dict[str, Products | FirstRows]:
    """What computes the outputs of an operator of a gradient block, as sums over all steps, without running it in each."""
    if op.variable_attrs():
        return {}
    if op.type == "mul_grad":
        return {name: Products(ctx, op, _factors, _product) for name in op.output("Y@GRAD")}
    if op.type == "shrink_rnn_memory_grad" and op.input("Out@GRAD"):
        return {name: FirstRows(ctx, op) for name in op.output("X@GRAD")}
    if op.type == "gru_unit_grad" and op.output("Input@GRAD"):
        weights = {name: Products(ctx, op, _gru_factors, _gru_product) for name in op.output("Weight@GRAD")}
        return {**weights, **{name: Products(ctx, op, _gru_sums, _column_sums) for name in op.output("Bias@GRAD")}}
    return {}


def _factors(op: Operator, value: Value) -> list[Any]:
    x, grad = (value(op.input(slot)[0]).array for slot in ("X", "Out@GRAD"))
    rows = prod(x.shape[: int(op.get_attr("x_num_col_dims", 1))])
    return [x.reshape(rows, -1), grad.reshape(rows, -1)]


def _product(xp: Any, x: Any, grad: Any) -> Any:
    return x.T @ grad


def _gru_factors(op: Operator, value: Value) -> list[Any]:
    return [value(op.input(slot)[0]).array for slot in ("HiddenPrev", "ResetHiddenPrev")] + _gru_sums(op, value)


def _gru_product(xp: Any, before: Any, reset: Any, grads: Any) -> Any:
    size = before.shape[1]
    return GruWeights.join(xp, before.T @ grads[:, : 2 * size], reset.T @ grads[:, 2 * size :])


def _gru_sums(op: Operator, value: Value) -> list[Any]:
    return [value(op.output("Input@GRAD")[0]).array]


def _column_sums(xp: Any, grads: Any) -> Any:
    return grads.sum(axis=0)[None]


def _names(*slots: str) -> Callable[[Operator], tuple[str, ...]]:
    """What an operator has in these slots."""
    return lambda op: tuple((op.inputs.get(slot) or op.outputs[slot])[0] for slot in slots)


READ: dict[Rows, Callable[[Operator], tuple[str, ...]]] = {
    _factors: _names("X", "Out@GRAD"),
    _gru_factors: _names("HiddenPrev", "ResetHiddenPrev", "Input@GRAD"),
    _gru_sums: _names("Input@GRAD"),
}
"""The variables whose values the functions look up."""
