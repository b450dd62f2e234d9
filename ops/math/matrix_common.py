"""Batched matrix products and their gradients, as the operators built on them need them."""

from __future__ import annotations

from typing import Any


def transposed(x: Any, flag: bool) -> Any:
    """x with its last two dimensions exchanged if `flag`."""
    return x.swapaxes(-1, -2) if flag else x


def multiplied(a: Any, b: Any) -> Any:
    """a · b in the data type of a; two-byte floats are added up in float32, as Paddle does."""
    if a.dtype.itemsize == 2 and a.dtype.kind not in "iu":
        return (a.astype("float32") @ b.astype("float32")).astype(a.dtype)
    return a @ b


def product(a: Any, b: Any) -> Any:
    """a · b, batches broadcast; a stack of matrices times one matrix is computed as one tall product."""
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous:
        return multiplied(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    return multiplied(a, b)


def product_grads(
    x: Any, y: Any, grad: Any, transpose_x: bool, transpose_y: bool, want_x: bool, want_y: bool
) -> tuple[Any, Any]:
    """Gradients of product(xᵀ or x, yᵀ or y) by x and by y, summed over the batches along which they were repeated."""
    a, b = transposed(x, transpose_x), transposed(y, transpose_y)
    x_grad = y_grad = None
    if want_x:
        x_grad = summed_batches(transposed(product(grad, transposed(b, True)), transpose_x), x.shape)
    if want_y:
        if a.ndim > 2 and b.ndim == 2:
            y_grad = multiplied(a.reshape(-1, a.shape[-1]).T, grad.reshape(-1, grad.shape[-1]))
        else:
            y_grad = multiplied(transposed(a, True), grad)
        y_grad = summed_batches(transposed(y_grad, transpose_y), y.shape)
    return x_grad, y_grad


def summed_batches(grad: Any, shape: tuple[int, ...]) -> Any:
    """`grad` summed to `shape` by the usual rules of broadcasting."""
    if grad.shape == shape:
        return grad
    extra = grad.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        i + extra for i, size in enumerate(shape) if size == 1 and grad.shape[i + extra] != 1
    )
    return grad.sum(axis=axes, keepdims=True, dtype=grad.dtype).reshape(shape)


def broadcast_sizes(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...] | None:
    """The sizes that both spread to by the usual rules of broadcasting, -1 where unknown; None if they do not fit."""
    rank = max(len(x), len(y))
    sizes = []
    for a, b in zip((1,) * (rank - len(x)) + tuple(x), (1,) * (rank - len(y)) + tuple(y), strict=True):
        if a != b and 1 not in (a, b) and -1 not in (a, b):
            return None
        sizes.append(b if a == 1 else a if b in (1, -1) else b)
    return tuple(sizes)
