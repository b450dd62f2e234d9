"""One step of the library on arrays as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native.calls import TASKS, Kind
from fluidtool.runtime.engines.native.kernels.extents import BEHIND, check_call
from fluidtool.runtime.engines.native.library import STEP, Library, first_byte
from fluidtool.runtime.graph.ir import NONE, Activation

Array = NDArray[Any]
GRAIN = 1 << 14  # floats that are worth a thread
NO_POINTERS = (None,) * BEHIND


def are_floats(*values: Any) -> bool:
    """Whether all are arrays of float32 on the host; None counts as one."""
    return all(value is None or (type(value) is np.ndarray and value.dtype == np.float32) for value in values)


def have_shape(shape: tuple[int, ...], *values: Any) -> bool:
    """Whether all have this shape; None counts as having it."""
    return all(value is None or value.shape == shape for value in values)


def in_rows(array: Any) -> Any:
    """The array contiguous, row-major; None stays None."""
    return None if array is None else np.ascontiguousarray(array)


def address(array: Array | None) -> int:
    """The first byte, 0 for None."""
    return 0 if array is None else first_byte(array)


def task_count(library: Library, count: int) -> int:
    """How many tasks a pass over `count` floats is cut into."""
    return max(1, min(4 * library.threads, count // GRAIN))


def run_step(
    library: Library,
    kind: Kind,
    arrays: Sequence[Array | None],
    sizes: Mapping[int, int],
    tasks: int,
    numbers: Sequence[float] = (),
    activation: Activation = NONE,
    behind: Sequence[Array | None] = (),
) -> None:
    """Run one step whose pointers are contiguous arrays, cut into `tasks` parts; the arrays `behind` lie behind pointer 0.

    Raises ExtentError, a fault of fluidtool, where the kernel would leave one of the arrays.
    """
    if behind:
        arrays = (np.array([address(array) for array in behind], np.uint64), *arrays[1:])
        check_call(kind, library.width, tasks, sizes, [*arrays, *NO_POINTERS[len(arrays) :], *behind])
    else:
        check_call(kind, library.width, tasks, sizes, arrays)
    step = np.zeros(1, STEP)
    step["kind"], step["activation"] = kind, activation.kind
    step["p"][0, : len(arrays)] = [address(array) for array in arrays]
    n = step["n"][0]
    for slot, size in sizes.items():
        n[slot] = size
    n[TASKS] = tasks
    step["f"][0, : len(numbers)] = numbers
    library.run(step)


def pack_matrix(library: Library, matrix: Array, transposed: bool = False) -> NDArray[np.float32]:
    """A contiguous matrix, or its transpose, as the library's products take their second factor."""
    depth, columns = matrix.shape[::-1] if transposed else matrix.shape
    strides = (1, depth) if transposed else (columns, 1)
    blocks = -(-columns // library.width)
    packed = np.empty(depth * blocks * library.width, np.float32)
    sizes = {0: depth, 1: columns, 2: strides[0], 3: strides[1], 4: 1, 5: 1, 12: columns}
    run_step(library, Kind.PACK, (matrix, None, None, packed), sizes, min(blocks, 4 * library.threads))
    return packed
