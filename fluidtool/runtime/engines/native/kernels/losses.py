"""softmax_with_cross_entropy and its gradient, row by row."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.loss.labels import check_classes
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.library import Library

GRAIN = 1 << 12  # elements worth a thread


def softmax_with_cross_entropy(
    library: Library, ctx: OpContext, Logits: Any, Label: Any, *, soft_label: bool, ignore_index: int, axis: int
) -> Any:
    """fluidtool.ops.loss.softmax_with_cross_entropy for float32 along the last axis, to its rounding."""
    if not fits(ctx, Logits, Label, soft_label, axis):
        return NotImplemented
    labels = None
    if not soft_label:
        counted = check_classes(ctx, Label, Logits.shape[-1], ignore_index)
        labels = numbers(Label, counted)
    softmax, loss = np.empty(Logits.shape, np.float32), np.empty((*Logits.shape[:-1], 1), np.float32)
    rows, columns = rows_and_columns(Logits)
    arguments = abi.CrossEntropy(
        logits=in_rows(Logits), labels=labels, probabilities=in_rows(Label) if soft_label else None, softmax=softmax,
        loss=loss, rows=rows, columns=columns,
    )  # fmt: skip
    run_call(library, arguments, tasks(library, Logits))
    return {"Softmax": softmax, "Loss": loss}


def softmax_with_cross_entropy_gradient(
    library: Library,
    ctx: OpContext,
    Label: Any,
    Softmax: Any,
    Loss_grad: Any,
    *,
    soft_label: bool,
    ignore_index: int,
    axis: int,
) -> Any:
    """The gradient of fluidtool.ops.loss.softmax_with_cross_entropy for float32 along the last axis."""
    if not fits(ctx, Softmax, Label, soft_label, axis) or not are_floats(Loss_grad):
        return NotImplemented
    classes = Softmax.shape[-1]
    if Loss_grad.shape != (*Softmax.shape[:-1], 1):
        return NotImplemented
    labels = None
    if not soft_label:
        check_classes(ctx, Label, classes, ignore_index)
        labels = numbers(Label, (Label >= 0) & (Label < classes))
    found = np.empty(Softmax.shape, np.float32)
    rows, columns = rows_and_columns(Softmax)
    arguments = abi.CrossEntropyGradient(
        softmax=in_rows(Softmax), labels=labels, probabilities=in_rows(Label) if soft_label else None, logits_grad=found,
        loss_grad=in_rows(Loss_grad), rows=rows, columns=columns,
    )  # fmt: skip
    run_call(library, arguments, tasks(library, Softmax))
    return found


def fits(ctx: OpContext, x: Any, label: Any, soft_label: bool, axis: int) -> bool:
    """Whether x is float32 along its last axis with labels of its shape, in a program of Paddle 1.x."""
    if x is None or not are_floats(x) or not x.size or axis not in (-1, x.ndim - 1) or ctx.op.has_attr("use_softmax"):
        return False
    if soft_label:
        return are_floats(label) and label.shape == x.shape
    return type(label) is np.ndarray and label.dtype.kind in "iu" and label.shape == (*x.shape[:-1], 1)


def numbers(labels: Array, counted: Array) -> Array:
    """Labels in the library's format: -1 for ignored ones. (Unsigned bytes have no -1.)"""
    return np.ascontiguousarray(np.where(counted, labels.astype(np.int64), np.int64(-1)))


def rows_and_columns(x: Array) -> tuple[int, int]:
    """The number of elements."""
    return prod(x.shape[:-1]), x.shape[-1]


def tasks(library: Library, x: Array) -> int:
    """The number of tasks for the rows."""
    return max(1, min(prod(x.shape[:-1]), 4 * library.threads, x.size // GRAIN))
