"""The layout of every value of a region during lowering, and the registry of functions by kind of node."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import field
from math import prod
from typing import Any, TypeVar

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import (
    NO_HALO,
    Blocked,
    Buffer,
    Bytes,
    Halo,
    Plain,
    constant,
    is_contiguous,
    row_major,
)
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering.builder import CallBuilder
from fluidtool.runtime.engines.native.lowering.packing import ConstantPacking
from fluidtool.runtime.graph.ir import Node, Shape, Value

Place = TypeVar("Place", bound=Plain | Blocked)


class Places(dict[Value, Place]):
    """The places of values, and which values share a buffer."""

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
    """The place of every value, plain, blocked, or both; the calls so far, and the constants packed for them."""

    library: Library
    left: Counter[Value]
    halos: dict[Value, Halo]
    packing: ConstantPacking
    plains: Places[Plain] = field(default_factory=Places)
    blockeds: Places[Blocked] = field(default_factory=Places)
    narrows: Places[Blocked] = field(default_factory=Places)
    whole: dict[Value, tuple[Value, int]] = field(default_factory=dict)
    """Values that are computed as channels of a larger one, starting at the given channel."""
    halves: dict[tuple[Value, Shape], Blocked] = field(default_factory=dict)
    half_uses: Counter[tuple[Value, Shape]] = field(default_factory=Counter)
    half_halos: dict[Value, Halo] = field(default_factory=dict)
    pictures: dict[Value, Blocked] = field(default_factory=dict)
    half_groups: frozenset[Value] = frozenset()
    half_pools: frozenset[Value] = frozenset()
    bytes: dict[tuple[Value, Shape], Bytes] = field(default_factory=dict)
    bytes_of: Any = None
    """What lies as bytes (lowering/int8.py)."""
    offsets: dict[Value, Buffer] = field(default_factory=dict)
    operands: tuple[Value, ...] = ()
    outputs: frozenset[Value] = frozenset()
    calls: CallBuilder = field(init=False)

    def __post_init__(self) -> None:
        self.calls = CallBuilder(self.library)

    @property
    def width(self) -> int:
        """Lanes of a vector."""
        return self.library.width

    # ------------------------------------------------------------ places of values
    def new_plain(self, value: Value) -> Plain:
        """Memory for a row-major value; a value that only the caller reads is written to the output directly."""
        role = "output" if value in self.outputs else "arena"
        place = self.plains[value] = Plain(Buffer(value.floats, role), 0, row_major(value.shape))
        return place

    def new_blocked(self, value: Value, lanes: int = 0) -> Blocked:
        """Memory for a blocked value, with a halo if a convolution that reads it needs one."""
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
            self.calls.add(arguments, self.calls.task_count(place.size - prod(place.shape), planes))

    def plain(self, value: Value) -> Plain:
        """The strided place of a value; converted if it is only blocked."""
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
        self.calls.add(arguments, self.calls.task_count(prod(value.shape), n * h * source.blocks))
        return found

    def contiguous(self, value: Value) -> Plain:
        """The row-major place of a value."""
        found = self.plain(value)
        if is_contiguous(found.strides, value.shape):
            return found
        copy = self.new_plain(value)
        self.calls.copy(found, copy, value.shape)
        return copy

    def blocked(self, value: Value, narrow: bool = False) -> Blocked:
        """The blocked place of a value; `narrow`: one block with as many lanes as there are channels."""
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
        self.calls.add(arguments, self.calls.task_count(prod(value.shape), n * h * found.blocks))
        return found

    def reuse_blocked(self, value: Value, out: Value) -> Blocked | None:
        """The place of a value that dies here, for a result of the same layout; None if it cannot be reused."""
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
        """Whether the buffer is no longer needed, except for `value`, which the current node reads element by element."""
        lying = [places.lying[buffer] for places in (self.plains, self.blockeds, self.narrows)]
        needed = (self.left[v] or (v is not value and v in self.operands) for found in lying for v in found)
        if buffer.role != "arena" or any(needed):
            return False
        for found in lying:
            found.clear()  # these are not needed again
        return True


LOWER: dict[str, Callable[[Lowering, Node], None]] = {}


def lowers(kind: str) -> Callable[[Any], Any]:
    """Register the function for a kind of node."""

    def register(function: Any) -> Any:
        LOWER[kind] = function
        return function

    return register


def conv_output(low: Lowering, node: Node) -> Blocked:
    """Memory for the result of a convolution: its residual's, if not needed otherwise."""
    if node.residual is not None:
        low.blocked(node.residual)
        reused = low.reuse_blocked(node.residual, node.output)
        if reused is not None:
            return reused
    return low.new_blocked(node.output)
