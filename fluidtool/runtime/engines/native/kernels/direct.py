"""One kernel call on arrays in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.binding import empty_calls, write
from fluidtool.runtime.engines.native.kernels.extents import check_call
from fluidtool.runtime.engines.native.library import Library, first_byte
from fluidtool.runtime.graph.ir import NONE, Activation

Array = NDArray[Any]
Pending = list[tuple[abi.Arguments[Array], int]]  # calls and their tasks
GRAIN = 1 << 14  # floats worth a thread


def are_floats(*values: Any) -> bool:
    """Whether all are arrays of float32 on the host; None counts as one."""
    return all(value is None or (type(value) is np.ndarray and value.dtype == np.float32) for value in values)


def have_shape(shape: tuple[int, ...], *values: Any) -> bool:
    """Whether all have this shape; None counts as one."""
    return all(value is None or value.shape == shape for value in values)


def in_rows(array: Any) -> Any:
    """The array contiguous, row-major; None stays None."""
    return None if array is None else np.ascontiguousarray(array)


def address(array: Array | None) -> int:
    """The first byte, 0 for None."""
    return 0 if array is None else first_byte(array)


def task_count(library: Library, count: int) -> int:
    """The number of tasks for a pass over `count` floats."""
    return max(1, min(4 * library.threads, count // GRAIN))


def run_call(library: Library, arguments: abi.Arguments[Array], tasks: int, activation: Activation = NONE) -> None:
    """Call a kernel whose pointers are contiguous arrays, split into `tasks`.

    Raises ExtentError, a bug of fluidtool, if the kernel would access memory outside an array.
    """
    check_call(arguments, library.width, tasks)
    calls = empty_calls(1)
    write(calls, 0, arguments, [address(array) for array in arguments.pointers()], tasks, activation)
    library.run(calls)


def run_calls(library: Library, pending: Pending) -> None:
    """Several such kernels, one after the other, by one call of the library."""
    calls = empty_calls(len(pending))
    for number, (arguments, tasks) in enumerate(pending):
        check_call(arguments, library.width, tasks)
        write(calls, number, arguments, [address(array) for array in arguments.pointers()], tasks)
    library.run(calls)


def pack_matrix(library: Library, matrix: Array, transposed: bool = False) -> NDArray[np.float32]:
    """A contiguous matrix, or its transpose, as the second factor of the library's products."""
    depth, columns = matrix.shape[::-1] if transposed else matrix.shape
    strides = (1, depth) if transposed else (columns, 1)
    blocks = -(-columns // library.width)
    packed = np.empty(depth * blocks * library.width, np.float32)
    row, column = strides
    sizes = {"depth": depth, "columns": columns, "source_row": row, "source_column": column, "all_columns": columns}
    run_call(library, abi.Pack(source=matrix, out=packed, **sizes), min(blocks, 4 * library.threads))
    return packed
