"""mul, matmul and their gradients by one kernel that packs both factors as it goes, with the threads of all other kernels.

numpy's products have threads of their own, which go on waiting for work where the other kernels want to compute.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import GRAIN, Array, are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.kernels.extents import LONGEST_SHARE, PANELS_TOGETHER, TILED_ROWS, group_columns
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.graph.ir import NONE, Activation

LEAST_ROWS, MOST_ROWS = 2, 3  # by a matrix that is not worth packing; with one, BLAS is quicker
LEAST_SIZE = 1 << 18  # matrix elements that are worth that call
MOST_DEPTH = 2048  # summed up at once there: errors grow with it
LEAST_WORK = 1 << 18  # multiply-adds that are worth a call
LEAST_PACKED = 8  # rows that are worth packing the other factor
LINE = 16  # floats in a line of the cache


@dataclass(frozen=True, slots=True)
class Matrices:
    """Equal matrices in one array, by two axes in front of rows and columns: the array as it lies, sizes and strides."""

    memory: Array
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]

    def turned(self) -> Matrices:
        """Their transposes."""
        (outer, inner, rows, columns), (of_outer, of_inner, row, column) = self.shape, self.strides
        return Matrices(self.memory, (outer, inner, columns, rows), (of_outer, of_inner, column, row))


def matrices(x: Array, transposed: bool = False) -> Matrices:
    """The last two axes of x, or their transposes; x is copied if there are other axes than these can be, or gaps in memory."""
    found = _as_they_lie(x)
    found = _as_they_lie(np.ascontiguousarray(x)) if found is None else found
    assert found is not None
    return found.turned() if transposed else found


def _as_they_lie(x: Array) -> Matrices | None:
    memory = x.transpose(sorted(range(x.ndim), key=lambda axis: -x.strides[axis]))
    if not memory.flags.c_contiguous or 4 not in x.strides[-2:]:
        return None
    shape, strides = [1, 1, *x.shape[-2:]], [0, 0, *(stride // 4 for stride in x.strides[-2:])]
    before = [(size, stride // 4) for size, stride in zip(x.shape[:-2], x.strides[:-2], strict=True) if size > 1]
    while len(before) > 2 and before[0][1] == before[1][0] * before[1][1]:
        before[:2] = [(before[0][0] * before[1][0], before[1][1])]
    if len(before) > 2:
        return None
    for axis, (size, stride) in enumerate(before, 2 - len(before)):
        shape[axis], strides[axis] = size, stride
    (outer, inner, rows, columns), (of_outer, of_inner, row, column) = shape, strides
    return Matrices(memory, (outer, inner, rows, columns), (of_outer, of_inner, row, column))


def multiply(library: Library, x: Matrices, y: Matrices, out: Matrices, activation: Activation = NONE) -> None:
    """out = activation(x · y)."""
    outer, inner, rows, depth = x.shape
    columns = y.shape[-1]
    column_parts, row_parts = cut(library, rows, columns, outer * inner)
    parts = outer * inner * column_parts * row_parts
    share, group = min(depth, LONGEST_SHARE), group_columns(library.width)
    turned = 0 if x.strides[-1] == 1 else -(-share * min(rows, TILED_ROWS) // LINE) * LINE
    panels = min(-(-columns // group), PANELS_TOGETHER) * group
    room = turned + share * panels
    tasks = max(1, min(parts, 2 * library.threads, outer * inner * rows * depth * columns // LEAST_WORK))
    arguments = abi.Multiply(
        source=x.memory, other=y.memory, out=out.memory, scratch=library.memory.of(tasks * room),
        rows=rows, depth=depth, columns=columns,
        source_row=x.strides[2], source_column=x.strides[3], other_row=y.strides[2], other_column=y.strides[3],
        out_row=out.strides[2], outer=outer, inner=inner, source_outer=x.strides[0], source_inner=x.strides[1],
        other_outer=y.strides[0], other_inner=y.strides[1], out_outer=out.strides[0], out_inner=out.strides[1],
        column_parts=column_parts, row_parts=row_parts, turned=turned, task_scratch=room,
    )  # fmt: skip
    run_call(library, arguments, tasks, activation)


def cut(library: Library, rows: int, columns: int, count: int) -> tuple[int, int]:
    """The parts of each of some products by columns and by rows: where less is packed more than once."""
    wanted = -(-2 * library.threads // count)
    if library.threads == 1 or wanted < 2:
        return 1, 1
    groups = -(-columns // group_columns(library.width))
    if columns > rows or rows < LEAST_PACKED * wanted:
        by_column = min(groups, wanted)
        return by_column, max(1, min(wanted // by_column, rows // LEAST_PACKED))
    return 1, min(wanted, library.threads)  # each packs all of the other factor


def product(library: Library, x: Matrices, y: Matrices, shape: tuple[int, ...], activation: Activation = NONE) -> Array:
    """x · y as a new array of this shape."""
    out = np.empty(shape, np.float32)
    (outer, inner, rows, _), columns = x.shape, y.shape[-1]
    sizes = outer, inner, rows, columns
    multiply(library, x, y, Matrices(out, sizes, (inner * rows * columns, rows * columns, columns, 1)), activation)
    return out


def is_worth_it(*sizes: int) -> bool:
    """Whether a product of rows by depth by columns is worth a call, and its rows the packing of columns."""
    rows, _, columns = sizes[-3:]
    return rows >= LEAST_PACKED and columns > 1 and prod(sizes) >= LEAST_WORK


def mul(library: Library, ctx: OpContext, X: Any, Y: Any, *, x_num_col_dims: int, y_num_col_dims: int) -> Any:
    """fluidtool.ops.math.mul, to the rounding of float32."""
    sizes = sizes_of(X, Y, x_num_col_dims, y_num_col_dims)
    if sizes is None:
        return NotImplemented
    rows, depth, columns = sizes
    shape = X.shape[:x_num_col_dims] + Y.shape[y_num_col_dims:]
    if is_worth_it(*sizes):
        return product(library, matrices(X.reshape(rows, depth)), matrices(Y.reshape(depth, columns)), shape)
    if not LEAST_ROWS <= rows <= MOST_ROWS:
        return NotImplemented
    if depth > MOST_DEPTH or Y.size < LEAST_SIZE or not Y.flags.c_contiguous:
        return NotImplemented
    out = np.empty(shape, np.float32)
    tasks = max(1, min(2 * library.threads, columns // (4 * library.width), Y.size // GRAIN))
    arguments = abi.FewRows(source=in_rows(X), weights=Y, out=out, rows=rows, depth=depth, columns=columns)
    run_call(library, arguments, tasks)
    return out


def mul_gradient(
    library: Library, ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, x_num_col_dims: int, y_num_col_dims: int
) -> Any:
    """Its gradients, to the rounding of float32."""
    sizes = sizes_of(X, Y, x_num_col_dims, y_num_col_dims)
    if sizes is None or not are_floats(Out_grad) or Out_grad is None or not is_worth_it(*sizes):
        return NotImplemented
    rows, depth, columns = sizes
    if Out_grad.size != rows * columns:
        return NotImplemented
    grad, found = matrices(Out_grad.reshape(rows, columns)), {}
    if ctx.wants("X@GRAD"):
        ctx.set_lod("X@GRAD", ctx.lod("X"))
        found["X@GRAD"] = product(library, grad, matrices(Y.reshape(depth, columns), True), X.shape)
    if ctx.wants("Y@GRAD"):
        ctx.set_lod("Y@GRAD", ctx.lod("Y"))
        found["Y@GRAD"] = product(library, matrices(X.reshape(rows, depth), True), grad, Y.shape)
    return found


def sizes_of(x: Any, y: Any, x_columns: int, y_columns: int) -> tuple[int, int, int] | None:
    """Rows, depth and columns of a product of flattened arrays of float32; None if they do not fit."""
    if x is None or y is None or not are_floats(x, y) or not (0 < x_columns < x.ndim and 0 < y_columns < y.ndim):
        return None
    depth = prod(x.shape[x_columns:])
    if depth != prod(y.shape[:y_columns]):
        return None
    return prod(x.shape[:x_columns]), depth, prod(y.shape[y_columns:])


def matmul(
    library: Library, ctx: OpContext, X: Any, Y: Any, *, transpose_X: bool, transpose_Y: bool, alpha: float
) -> Any:
    """fluidtool.ops.math.matmul of as many matrices on both sides, to the rounding of float32."""
    if not are_stacks(X, Y) or any(ctx.attr(name) for name in ("fused_reshape_Out", "fused_transpose_Out")):
        return NotImplemented
    if ctx.attr("head_number") > 1:
        return NotImplemented
    x, y = matrices(X, transpose_X), matrices(Y, transpose_Y)
    if x.shape[3] != y.shape[2] or not is_worth_it(*x.shape, y.shape[3]):
        return NotImplemented
    return product(library, x, y, (*X.shape[:-2], x.shape[2], y.shape[3]), scaled(alpha))


def matmul_gradient(
    library: Library,
    ctx: OpContext,
    X: Any,
    Y: Any,
    Out_grad: Any,
    *,
    transpose_X: bool,
    transpose_Y: bool,
    alpha: float,
) -> Any:
    """Its gradients, for the same."""
    if not are_stacks(X, Y) or not are_floats(Out_grad) or Out_grad is None or ctx.attr("head_number") > 1:
        return NotImplemented
    x, y = matrices(X, transpose_X), matrices(Y, transpose_Y)
    rows, columns = x.shape[2], y.shape[3]
    if x.shape[3] != y.shape[2] or Out_grad.shape != (*X.shape[:-2], rows, columns):
        return NotImplemented
    if not is_worth_it(*x.shape, columns):
        return NotImplemented
    grad, found, times = matrices(Out_grad), {}, scaled(alpha)
    if ctx.wants("X@GRAD"):
        factors = (y, grad.turned()) if transpose_X else (grad, y.turned())
        found["X@GRAD"] = product(library, *factors, X.shape, times)
    if ctx.wants("Y@GRAD"):
        factors = (grad.turned(), x) if transpose_Y else (x.turned(), grad)
        found["Y@GRAD"] = product(library, *factors, Y.shape, times)
    return found


def are_stacks(x: Any, y: Any) -> bool:
    """Whether both are float32 matrices with elements, as many on either side."""
    if x is None or y is None or not are_floats(x, y) or not (x.size and y.size):
        return False
    return bool(x.ndim == y.ndim > 1 and x.shape[:-2] == y.shape[:-2])


def scaled(alpha: float) -> Activation:
    """Multiplied by this."""
    return NONE if alpha == 1 else Activation(abi.ActivationKind.AFFINE, (alpha, 0.0))
