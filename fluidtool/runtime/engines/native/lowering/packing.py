"""Constants packed for their kernels at compile time, or found among those of an earlier specialization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.bfloat16 import rounded
from fluidtool.runtime.engines.native.binding import bind
from fluidtool.runtime.engines.native.constants import Packed, Packing
from fluidtool.runtime.engines.native.layouts import Buffer, constant
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering.builder import task_count
from fluidtool.runtime.engines.native.memory import ALIGNMENT, LARGE_PAGE, aligned_floats
from fluidtool.runtime.graph.ir import Shape
from fluidtool.runtime.graph.weights import matrices
from fluidtool.tensor.files import forget

PACKED_ROWS = 32  # that are packed together (src/products.c)
CHUNK = 1 << 23  # floats of memory for several constants, at most


@dataclass(frozen=True, slots=True)
class Fed:
    """Filters [O, C, kh, kw] that are no constant, but lie in a buffer when the calls run."""

    shape: Shape
    buffer: Buffer
    turned: bool = False  # there with O and C swapped and their taps reversed


@dataclass(slots=True)
class ConstantPacking:
    """Memory for packed constants; `kept` has those of other specializations."""

    library: Library
    kept: Packed | None = None
    chunk: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    floats: int = 0  # of all packed constants

    @property
    def narrow(self) -> bool:
        """Whether weights are rounded to bfloat16."""
        return self.library.precision == "bf16"

    def room(self, size: int) -> NDArray[np.float32]:
        """Memory for a constant that is written next: in chunks that the system can put into large pages.

        Each is as large as all constants until then, as there may be very many regions with few constants.
        """
        size = -(-size // ALIGNMENT) * ALIGNMENT
        if size > self.chunk.size:
            chunk = max(size, min(self.floats, CHUNK))
            self.chunk = aligned_floats(chunk, LARGE_PAGE if chunk > LARGE_PAGE else ALIGNMENT)
        taken: NDArray[np.float32] = self.chunk[:size]
        self.chunk = self.chunk[size:]
        return taken

    def pack(self, weights: Any) -> Buffer:
        """A constant matrix [K][N], or several side by side, as packed weights: of 32 bits each, or of 16."""
        depth, columns = weights.shape
        count = -(-columns // self.library.width) * self.library.width * depth
        start, packings = 0, []
        for matrix, scale in matrices(weights):
            row, column = (stride // 4 for stride in matrix.strides)
            call = partial(
                abi.Pack, source=matrix, scale=scale, depth=depth, columns=matrix.shape[1], source_row=row, source_column=column,
                bfloat16=int(self.narrow), first_column=start, all_columns=columns,
            )  # fmt: skip
            packings.append(Packing(call, task_count(self.library, matrix.size, -(-depth // PACKED_ROWS))))
            start += matrix.shape[1]
        return self.materialize(-(-count // 2) if self.narrow else count, packings)

    def materialize(self, size: int, packings: Sequence[Packing]) -> Buffer:
        """A constant of this many floats that these calls write now, unless an earlier specialization has it."""
        self.floats += size

        def make() -> NDArray[np.float32]:
            room = self.room(size)
            for packing in packings:
                self.run_now(packing, room)
            return room

        return Buffer(size, "constant", make() if self.kept is None else self.kept.get(size, packings, make))

    def filters(self, attrs: Mapping[str, Any]) -> tuple[NDArray[np.float32], Any]:
        """The filters of a convolution, and the channel scales still to be applied to them, or None."""
        weights, scale = np.ascontiguousarray(attrs["weights"], np.float32), attrs["scale"]
        if not self.narrow:
            return weights, None if scale is None else np.ascontiguousarray(scale, np.float32)
        factors = np.float32(1) if scale is None else np.asarray(scale, np.float32).reshape(-1, 1, 1, 1)
        found = rounded(weights * factors)
        forget(weights)
        return found, None

    def run_now(self, packing: Packing, constant: NDArray[np.float32]) -> None:
        """Pack at compile time; the source need not stay in memory."""
        kernel_call = packing.kernel_call(constant)
        self.library.run(bind([kernel_call], lambda buffer: int(buffer.array.ctypes.data), self.library.width))
        for array in packing.arrays.values():
            forget(array)


def padded_bias(shift: Any, groups: int, each: int) -> Buffer | None:
    """The shift of every channel, each group padded with zeros to whole vectors."""
    if shift is None:
        return None
    padded = np.zeros((groups, each), np.float32)
    padded[:, : shift.size // groups] = shift.reshape(groups, -1)
    return constant(padded)
