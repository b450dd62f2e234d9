"""The kernel calls as they grow, where every value lies, and how the function for a kind of node is found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.bfloat16 import rounded
from fluidtool.runtime.engines.native.binding import bind
from fluidtool.runtime.engines.native.calls import (
    ALIGNMENT,
    LARGE_PAGE,
    Blocked,
    Buffer,
    KernelCall,
    Plain,
    Pointer,
    aligned_floats,
    constant,
    row_major,
)
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.packed import Packed, Packing
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import NONE, Activation, Node, Shape, Value
from fluidtool.runtime.graph.rewrites.joining import SideBySide
from fluidtool.tensor.files import forget

Place = TypeVar("Place", bound=Plain | Blocked)
Halo = tuple[int, int, int, int]
Strided = tuple[Pointer, Shape]  # where numbers lie, with the strides of the axes
NO_HALO: Halo = (0, 0, 0, 0)
SMALL = 20_000  # multiplications below which a step is not cut
PACKED_ROWS = 32  # that are packed together (src/products.c)
CHUNK = 1 << 23  # floats of memory for several constants


class Places(dict[Value, Place]):
    """Where values lie, and which values lie in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.lying = defaultdict[Buffer, dict[Value, None]](dict)

    def __setitem__(self, value: Value, place: Place) -> None:
        old = self.get(value)
        if old is not None:
            self.lying[old.buffer].pop(value, None)
        self.lying[place.buffer][value] = None
        super().__setitem__(value, place)


@dataclass(slots=True)
class Lowering:
    """The kernel calls as they grow, and where every value lies: plain, blocked, or both."""

    library: Library
    left: Counter[Value]
    halos: dict[Value, Halo]
    calls: list[KernelCall] = field(default_factory=list)
    plains: Places[Plain] = field(default_factory=Places)
    blockeds: Places[Blocked] = field(default_factory=Places)
    narrows: Places[Blocked] = field(default_factory=Places)
    whole: dict[Value, tuple[Value, int]] = field(default_factory=dict)
    """Values that are computed as channels of a larger one, from the given channel on."""
    halves: dict[tuple[Value, Shape], Blocked] = field(default_factory=dict)
    half_uses: Counter[tuple[Value, Shape]] = field(default_factory=Counter)
    half_halos: dict[Value, Halo] = field(default_factory=dict)
    offsets: dict[Value, Buffer] = field(default_factory=dict)
    operands: tuple[Value, ...] = ()
    outputs: frozenset[Value] = frozenset()
    chunk: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    kept: Packed | None = None

    @property
    def width(self) -> int:
        """Lanes of a vector."""
        return self.library.width

    @property
    def narrow(self) -> bool:
        """Whether weights are rounded to bfloat16."""
        return self.library.precision == "bf16"

    # ------------------------------------------------------------ where values lie
    def new_plain(self, value: Value) -> Plain:
        """Room for a row-major value; what nobody but the caller reads is written where the caller gets it."""
        role = "output" if value in self.outputs else "arena"
        place = self.plains[value] = Plain(Buffer(value.floats, role), 0, row_major(value.shape))
        return place

    def new_blocked(self, value: Value, lanes: int = 0) -> Blocked:
        """Room for a blocked value, with a halo of zeros if a convolution that reads it needs one."""
        if not lanes and value in self.whole:
            whole, first = self.whole[value]
            place = (self.blockeds.get(whole) or self.new_blocked(whole)).channels(first, value.shape)
            self.blockeds[value] = place
            return place
        halo = self.halos.get(value, NO_HALO)
        place = Blocked(Buffer(0), value.shape, lanes or self.width, halo)
        place.buffer.size = place.size
        self.zero_halo(place)
        (self.narrows if lanes else self.blockeds)[value] = place
        return place

    def zero_halo(self, place: Blocked) -> None:
        """The call that clears a halo."""
        if any(place.halo):
            top, left, bottom, right = place.halo
            columns, lanes = place.shape[3] + left + right, place.lanes // (2 if place.halves else 1)
            planes = place.shape[0] * place.blocks
            arguments = abi.Halo(
                out=(place.buffer, 0), planes=planes, rows=place.rows, columns=columns, top=top, bottom=bottom,
                left=left, right=right, lanes=lanes,
            )  # fmt: skip
            self.add(arguments, self.task_count(place.size - prod(place.shape), planes))

    def plain(self, value: Value) -> Plain:
        """Where the value lies with strides; it is put there when it lies blocked only."""
        found = self.plains.get(value)
        if found is not None:
            return found
        if value.array is not None:
            found = self.plains[value] = Plain(constant(value.array), 0, row_major(value.shape))
            return found
        source = self.blockeds[value]
        n, c, h, w = value.shape
        if h * w == 1 and c % source.lanes == 0 and not any(source.halo):
            found = self.plains[value] = Plain(source.buffer, source.start, (source.image, 1, 1, 1))
            return found
        found = self.new_plain(value)
        arguments = abi.Unblock(
            source=(source.buffer, source.origin), out=(found.buffer, 0), images=n, channels=c, rows=h, columns=w,
            source_image=source.image, source_block=source.block, source_row=source.row, blocks=source.blocks,
        )  # fmt: skip
        self.add(arguments, self.task_count(prod(value.shape), n * h * source.blocks))
        return found

    def contiguous(self, value: Value) -> Plain:
        """Where the value lies row-major."""
        found = self.plain(value)
        if is_contiguous(found.strides, value.shape):
            return found
        copy = self.new_plain(value)
        self.copy(found, copy, value.shape)
        return copy

    def blocked(self, value: Value, narrow: bool = False) -> Blocked:
        """Where the value lies in blocks of channels; `narrow`: one block of as many lanes as there are channels."""
        n, c, h, w = value.shape
        narrow = narrow and c < self.width
        found = self.blockeds.get(value) or (self.narrows.get(value) if narrow else None)
        if found is not None:
            return found
        source = self.contiguous(value)
        if h * w == 1 and c % self.width == 0 and value not in self.whole and value not in self.halos:
            found = self.blockeds[value] = Blocked(source.buffer, value.shape, self.width, NO_HALO, start=source.offset)
            return found
        found = self.new_blocked(value, c if narrow else 0)
        arguments = abi.Block(
            source=(source.buffer, source.offset), out=(found.buffer, found.origin), images=n, channels=c, rows=h,
            columns=w, out_image=found.image, out_block=found.block, out_row=found.row, blocks=found.blocks,
            lanes=found.lanes,
        )  # fmt: skip
        self.add(arguments, self.task_count(prod(value.shape), n * h * found.blocks))
        return found

    def reuse_blocked(self, value: Value, out: Value) -> Blocked | None:
        """The place of a value that dies here, for a result of the same form; None when it cannot be used."""
        place = self.blockeds.get(value)
        if place is None or out in self.whole or not self.free(place.buffer, value):
            return None
        if place.shape != out.shape or any(
            a < b for a, b in zip(place.halo, self.halos.get(out, NO_HALO), strict=True)
        ):
            return None
        self.blockeds[out] = place
        return place

    def reuse_plain(self, value: Value, out: Value) -> Plain | None:
        """The same for a row-major value."""
        place = self.plains.get(value)
        if place is None or out in self.outputs or not self.free(place.buffer, value):
            return None
        if value.shape != out.shape or not is_contiguous(place.strides, value.shape):
            return None
        self.plains[out] = place
        return place

    def free(self, buffer: Buffer, value: Value) -> bool:
        """Whether nobody needs the buffer any more, but for `value`, which the node at hand reads place by place."""
        lying = [places.lying[buffer] for places in (self.plains, self.blockeds, self.narrows)]
        needed = (self.left[v] or (v is not value and v in self.operands) for found in lying for v in found)
        if buffer.role != "arena" or any(needed):
            return False
        for found in lying:
            found.clear()  # nobody will ask for these again
        return True

    # ------------------------------------------------------------ shared calls
    def add(self, arguments: abi.Arguments[Pointer], tasks: int = 1, activation: Activation = NONE) -> None:
        """One more kernel call."""
        self.calls.append(KernelCall(arguments, tasks, activation))

    def task_count(self, work: int, most: int) -> int:
        """How many tasks to cut a kernel call of so many multiplications into."""
        threads = self.library.threads
        return max(1, min(most, 4 * threads)) if threads > 1 and work > SMALL else 1

    def copy(self, source: Plain, target: Plain, shape: Shape) -> None:
        """A call that moves a strided array."""
        sizes, (read, written) = merged(shape, [source.strides, target.strides])
        need(len(sizes) <= 6, "a copy of more than six axes")
        padded = [1] * (6 - len(sizes))
        arguments = abi.Copy(
            source=(source.buffer, source.offset), out=(target.buffer, target.offset), shape=(*padded, *sizes),
            source_strides=(*padded, *read), out_strides=(*padded, *written),
        )  # fmt: skip
        self.add(arguments, self.task_count(prod(shape), prod(sizes[:-1])))

    def elementwise(
        self, operation: int, shape: Shape, source: Strided, other: Strided | None, out: Strided, activation: Activation,
        added: Strided | None = None,
    ) -> None:  # fmt: skip
        """A call over axes `shape`."""
        places = [place for place in (source, out, other, added) if place is not None]
        sizes, strides = merged(shape, [place[1] for place in places])
        need(len(sizes) <= 5 and strides[1][-1] in (0, 1), "an elementwise operation over more than five axes")
        need(all(stride[-1] in (0, 1) for stride in strides), "an elementwise operation over strided rows")
        if strides[1][-1] == 0:
            sizes, strides = [*sizes, 1], [[*stride, 1] for stride in strides]
            need(len(sizes) <= 5, "an elementwise operation over more than five axes")
        need(added is None or (other is not None and strides[-1][-1] == 1), "an addition to rows of single numbers")
        ones, zeros = [1] * (5 - len(sizes)), [0] * (5 - len(sizes))
        outer = [[*zeros, *stride[:-1]] for stride in strides]
        absent = [0] * 4
        arguments = abi.Elementwise(
            source=source[0], other=None if other is None else other[0], added=None if added is None else added[0],
            out=out[0], shape=(*ones, *sizes[:-1]), columns=sizes[-1], operation=operation,
            source_strides=outer[0], source_column=strides[0][-1], out_strides=outer[1],
            other_strides=absent if other is None else outer[2], other_column=0 if other is None else strides[2][-1],
            added_strides=absent if added is None else outer[-1],
        )  # fmt: skip
        work = prod(sizes) * (20 if activation.kind > 2 else 2)
        self.add(arguments, self.task_count(work, max(prod(sizes[:-1]), sizes[-1] // 64)), activation)

    def room(self, size: int) -> NDArray[np.float32]:
        """Memory for a constant that is written next: in chunks that the system can put into large pages as a whole."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        if size > self.chunk.size:
            self.chunk = aligned_floats(max(size, CHUNK), LARGE_PAGE)
        taken: NDArray[np.float32] = self.chunk[:size]
        self.chunk = self.chunk[size:]
        return taken

    def pack(self, weights: Any) -> Buffer:
        """A constant matrix [K][N], or several side by side, as packed weights: of 32 bits each, or of 16."""
        depth, columns = weights.shape
        count = -(-columns // self.width) * self.width * depth
        start, packings = 0, []
        for part in weights.parts if isinstance(weights, SideBySide) else (weights,):
            matrix = part if part.dtype == np.float32 else part.astype(np.float32)
            row, column = (stride // 4 for stride in matrix.strides)
            call = partial(
                abi.Pack, source=matrix, depth=depth, columns=matrix.shape[1], source_row=row, source_column=column,
                bfloat16=int(self.narrow), first_column=start, all_columns=columns,
            )  # fmt: skip
            packings.append(Packing(call, self.task_count(matrix.size, -(-depth // PACKED_ROWS))))
            start += matrix.shape[1]
        return self.materialize(-(-count // 2) if self.narrow else count, packings)

    def materialize(self, size: int, packings: Sequence[Packing]) -> Buffer:
        """A constant of so many floats that these calls write now, unless an earlier specialization has had them do it."""

        def make() -> NDArray[np.float32]:
            room = self.room(size)
            for packing in packings:
                self.run_now(packing, room)
            return room

        return Buffer(size, "constant", make() if self.kept is None else self.kept.get(size, packings, make))

    def filters(self, attrs: Mapping[str, Any]) -> tuple[NDArray[np.float32], Any]:
        """The filters of a convolution, and the factors by channel that they are yet to be multiplied with, or None."""
        weights, scale = np.ascontiguousarray(attrs["weights"], np.float32), attrs["scale"]
        if not self.narrow:
            return weights, None if scale is None else np.ascontiguousarray(scale, np.float32)
        factors = np.float32(1) if scale is None else np.asarray(scale, np.float32).reshape(-1, 1, 1, 1)
        found = rounded(weights * factors)
        forget(weights)
        return found, None

    def run_now(self, packing: Packing, constant: NDArray[np.float32]) -> None:
        """Pack while compiling; what it reads need not stay in memory."""
        kernel_call = packing.kernel_call(constant)
        self.library.run(bind([kernel_call], lambda buffer: int(buffer.array.ctypes.data), self.width))
        for array in packing.arrays.values():
            forget(array)


LOWER: dict[str, Callable[[Lowering, Node], None]] = {}


def lowers(kind: str) -> Callable[[Any], Any]:
    """Register the function for a kind of node."""

    def register(function: Any) -> Any:
        LOWER[kind] = function
        return function

    return register


def joined(a: Halo, b: Halo) -> Halo:
    """The halo that serves both."""
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def is_contiguous(strides: Shape, shape: Shape) -> bool:
    """Whether an array of these strides is row-major (axes of size 1 may have any stride)."""
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, row_major(shape), strict=True))


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The fewest axes that say the same: neighbours that every array walks through as one are one."""
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [stride[axis] for stride in strides]
        if sizes and all(k[-1] == stride * size for k, stride in zip(kept, here, strict=True)):
            sizes[-1] *= size
            for k, stride in zip(kept, here, strict=True):
                k[-1] = stride
        else:
            sizes.append(size)
            for k, stride in zip(kept, here, strict=True):
                k.append(stride)
    return (sizes, kept) if sizes else ([1], [[1] for _ in strides])


def conv_output(low: Lowering, node: Node) -> Blocked:
    """Room for what a convolution makes: that of its residual, where nobody else needs it."""
    if node.residual is not None:
        low.blocked(node.residual)
        reused = low.reuse_blocked(node.residual, node.output)
        if reused is not None:
            return reused
    return low.new_blocked(node.output)


def view_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """The strides of the same numbers in another shape; None where they would have to be moved."""
    sizes, (steps,) = merged(shape, [strides])
    axis, found = len(sizes) - 1, []
    left, step = sizes[axis], steps[axis]
    for size in reversed(new):
        if size > 1 and left == 1 and axis > 0:
            axis -= 1
            left, step = sizes[axis], steps[axis]
        if left % size:
            return None
        found.append(step)
        left, step = left // size, step * size
    return tuple(reversed(found))


def padded_bias(shift: Any, groups: int, each: int) -> Buffer | None:
    """The shift of every channel, each group filled up with zeros to whole vectors."""
    if shift is None:
        return None
    padded = np.zeros((groups, each), np.float32)
    padded[:, : shift.size // groups] = shift.reshape(groups, -1)
    return constant(padded)


def broadcast_strides(strides: Shape, shape: Shape, aligned: Shape) -> Shape:
    """Strides for the shape with ones around it: 0 wherever it is repeated."""
    found = []
    left = list(zip(shape, strides, strict=True))
    for size in aligned:
        while left and left[0][0] == 1 != size:
            left.pop(0)
        if size == 1:
            found.append(0)
            if left and left[0][0] == 1:
                left.pop(0)
        else:
            found.append(left.pop(0)[1])
    return tuple(found)
