"""Sparse gradients: sums of rows."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.distributed.tables import NO_PADDING
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.backward import sum_of_arrays
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows, run_call, task_count
from fluidtool.runtime.engines.native.library import Library
from fluidtool.tensor import SelectedRows

SPARSE = 16  # rows of a table for each that is named, up to which marking them is quicker than sorting


def sum(library: Library, ctx: OpContext, X: list[Any], *, over: Any = None) -> Any:
    """fluidtool.ops.math.sum for SelectedRows of float32 only, or for arrays of float32 of one shape only."""
    return sum_of_rows(library, X) if isinstance(X[0], SelectedRows) else sum_of_arrays(library, X, over)


def sum_of_rows(library: Library, X: list[Any]) -> Any:
    """The sums of rows that are named several times."""
    if not all(are_rows(x) for x in X):
        return NotImplemented
    first = X[0]
    if any(x.table_height != first.table_height or x.value.shape[1:] != first.value.shape[1:] for x in X):
        return NotImplemented
    ids, values = np.concatenate([x.row_ids for x in X]), np.concatenate([x.value for x in X])
    rows, sums = merged(library, ids, values, first.table_height)
    return SelectedRows(rows, first.table_height, sums)


def lookup_table_gradient(
    library: Library, ctx: OpContext, W: Any, Ids: Any, Out_grad: Any, *, is_sparse: bool, padding_idx: int
) -> Any:
    """The dense gradient of fluidtool.ops.embedding.lookup_table for a table of float32 on the host."""
    if is_sparse or padding_idx != NO_PADDING or not are_floats(W, Out_grad) or W is None or W.ndim != 2:
        return NotImplemented
    if type(Ids) is not np.ndarray or Ids.dtype.kind not in "iu" or Ids.size * W.shape[1] != Out_grad.size:
        return NotImplemented
    ids = Ids.reshape(-1)
    if not ids.size or not Out_grad.size or ids.min() < 0 or ids.max() >= len(W):
        return NotImplemented
    grad = np.zeros(W.shape, np.float32)
    add_rows(library, grad, ids, Out_grad)
    return grad


def ours(in_place: bool, *arrays: Array) -> tuple[Array, ...]:
    """The arrays, row-major and writable: themselves, or copies."""
    return arrays if in_place else tuple(np.array(array, order="C") for array in arrays)


def merged(library: Library, ids: Array, values: Array, height: int) -> tuple[Array, Array]:
    """Rows of a table of this height, ascending and unique, and the sums of the values of equal ones; returned unchanged if they
    are already so.
    """
    if (ids[1:] > ids[:-1]).all():
        return ids, values
    rows, places = unique(ids, height)
    sums = np.zeros((len(rows), *values.shape[1:]), np.float32)
    add_rows(library, sums, places, values)
    return rows, sums


def unique(ids: Array, height: int) -> tuple[Array, Array]:
    """The ids ascending, each once, and where each of `ids` is among them: looked up in a table, unless sorting is quicker."""
    if height > SPARSE * ids.size or ids.min() < 0 or ids.max() >= height:
        return np.unique(ids, return_inverse=True)
    seen, places = np.zeros(height, bool), np.empty(height, np.int64)
    seen[ids] = True
    rows = np.flatnonzero(seen).astype(ids.dtype, copy=False)
    places[rows] = np.arange(len(rows))
    return rows, places[ids]


def add_rows(library: Library, y: Array, places: Array, values: Array, factor: float = 1.0) -> None:
    """y[places[i]] += factor * values[i], in this order; y is contiguous, and the places are rows of it."""
    arguments = abi.ScatterRows(
        source=in_rows(values), places=np.ascontiguousarray(places, np.int64), out=y, count=len(places),
        columns=prod(y.shape[1:]), rows=len(y), factor=factor,
    )  # fmt: skip
    run_call(library, arguments, min(task_count(library, values.size), library.threads))


def are_places(y: Any, places: Any, values: Any) -> bool:
    """Whether these are arrays on the host: y of float32, rows within it, and a value of its width for each."""
    if not are_floats(y, values) or type(places) is not np.ndarray or places.dtype.kind not in "iu":
        return False
    if places.ndim != 1 or values.shape != (*places.shape, *y.shape[1:]) or not values.size:
        return False
    return y.flags.c_contiguous and bool(places.min() >= 0 and places.max() < len(y))


def are_rows(grad: Any) -> bool:
    """Whether these are SelectedRows of float32 on the host: at least one, and a value for each."""
    if not isinstance(grad, SelectedRows) or not len(grad.row_ids) or not are_floats(grad.tensor.array):
        return False
    return grad.tensor.array is not None and len(grad.value) == len(grad.row_ids) and grad.value.size > 0
