"""mul of few rows, without packing the matrix, for programs that run operator by operator (mostly loops)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import GRAIN, are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.library import Library

LEAST_ROWS, MOST_ROWS = 2, 3  # BLAS is quicker with one, and with so many that the matrix is worth packing
LEAST_SIZE = 1 << 18  # matrix elements that are worth the call
MOST_DEPTH = 2048  # summed up at once: errors grow with it


def mul(library: Library, ctx: OpContext, X: Any, Y: Any, *, x_num_col_dims: int, y_num_col_dims: int) -> Any:
    """fluidtool.ops.math.mul, to the rounding of float32."""
    if not are_floats(X, Y) or not (0 < x_num_col_dims < X.ndim and 0 < y_num_col_dims < Y.ndim):
        return NotImplemented
    rows, depth = prod(X.shape[:x_num_col_dims]), prod(X.shape[x_num_col_dims:])
    columns = prod(Y.shape[y_num_col_dims:])
    if depth != prod(Y.shape[:y_num_col_dims]) or not LEAST_ROWS <= rows <= MOST_ROWS:
        return NotImplemented
    if depth > MOST_DEPTH or Y.size < LEAST_SIZE or not Y.flags.c_contiguous:
        return NotImplemented
    out = np.empty(X.shape[:x_num_col_dims] + Y.shape[y_num_col_dims:], np.float32)
    tasks = max(1, min(2 * library.threads, columns // (4 * library.width), Y.size // GRAIN))
    arguments = abi.FewRows(source=in_rows(X), weights=Y, out=out, rows=rows, depth=depth, columns=columns)
    run_call(library, arguments, tasks)
    return out
