"""Windows: how a kernel is laid on the spatial axes of an array, for convolution, pooling and their relatives.

Arrays here are channels first: [N, C, D1, ..., Dk] with k spatial axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import product
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.records import dataclass

CHANNELS_LAST = frozenset({"NHWC", "NDHWC", "NWC"})
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Windows:
    """A kernel on k axes: its sizes, steps, (before, after) paddings and dilations; one entry per axis.

    What follows from them: how many input cells a window spans on each axis, whether any axis has padding, whether windows
    move by one cell on every axis.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    paddings: tuple[tuple[int, int], ...]
    dilations: tuple[int, ...]
    extents: tuple[int, ...] = field(init=False, compare=False)
    padded: bool = field(init=False, compare=False)
    unit_strides: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        extents = (d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        object.__setattr__(self, "extents", tuple(extents))
        object.__setattr__(self, "padded", any(before or after for before, after in self.paddings))
        object.__setattr__(self, "unit_strides", all(stride == 1 for stride in self.strides))

    def output_sizes(self, sizes: Sequence[int], ceil_mode: bool = False) -> tuple[int, ...]:
        """How many windows fit on each axis of an input of these sizes (-1 stays -1).

        Paddle divides as C does, towards zero: a first window that sticks out by less than a stride still counts.
        """
        counts = []
        for size, extent, stride, (before, after) in zip(sizes, self.extents, self.strides, self.paddings, strict=True):
            if size == UNKNOWN or extent < 1:
                counts.append(UNKNOWN)
            else:
                room = size + before + after - extent + (stride - 1 if ceil_mode else 0)
                counts.append((room // stride if room >= 0 else -(-room // stride)) + 1)
        return tuple(counts)

    def reach(self, sizes: Sequence[int], counts: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The paddings, longer behind where the last of `counts` windows needs cells beyond them."""
        return tuple(
            (before, max(after, (count - 1) * stride + extent - before - size))
            for size, count, extent, stride, (before, after) in zip(
                sizes, counts, self.extents, self.strides, self.paddings, strict=True
            )
        )

    def taps(self, outputs: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """For each kernel position: its index, and the index of the padded input cells that it meets, one per output."""
        for tap in product(*map(range, self.kernel)):
            cells = (
                slice(start := t * dilation, start + stride * (count - 1) + 1, stride)
                for t, dilation, stride, count in zip(tap, self.dilations, self.strides, outputs, strict=True)
            )
            yield tap, (Ellipsis, *cells)


def lay_windows(
    ctx: OpContext | InferContext,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    padding_algorithm: str = "EXPLICIT",
    dilations: Sequence[int] | None = None,
) -> Windows:
    """Windows from an operator's attributes, as Paddle's UpdatePaddingAndDilation reads them (conv_op.h, pool_op.h).

    `paddings` has one entry per axis or a (before, after) pair per axis; SAME and VALID replace them, SAME also the
    dilations. A size of -1 keeps the paddings of SAME open: then the strides alone say how many windows there are.
    """
    rank = len(sizes)
    if len(kernel) != rank:
        raise ctx.error(f"the kernel {list(kernel)} must have {rank} sizes, as the input has spatial axes")
    if not (len(strides) == rank and all(stride > 0 for stride in strides)):
        raise ctx.error(f"attribute strides must be {rank} positive numbers, found {list(strides)}")
    steps = [1] * rank if dilations is None else list(dilations)
    if not (len(steps) == rank and all(step > 0 for step in steps)):
        raise ctx.error(f"attribute dilations must be {rank} positive numbers, found {steps}")
    if len(paddings) not in (rank, 2 * rank):
        raise ctx.error(
            f"attribute paddings must have {rank} numbers or {2 * rank} (a pair per axis), found {list(paddings)}"
        )
    pairs = _pairs(paddings, rank)
    if padding_algorithm == "SAME":
        steps = [1] * rank
        pairs = [_same(*axis) for axis in zip(sizes, kernel, strides, strict=True)]
    elif padding_algorithm == "VALID":
        pairs = [(0, 0)] * rank
    return Windows(tuple(kernel), tuple(strides), tuple(pairs), tuple(steps))


def _pairs(paddings: Sequence[int], rank: int) -> list[tuple[int, int]]:
    if len(paddings) == rank:
        return [(padding, padding) for padding in paddings]
    return list(zip(paddings[::2], paddings[1::2], strict=True))


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def require_outputs(
    ctx: OpContext | InferContext, sizes: Sequence[int], windows: Windows, counts: Sequence[int]
) -> None:
    """Refuse windows that do not fit: every known count must be positive."""
    if not (
        all(count > 0 or count == UNKNOWN for count in counts)
        and not any(size != UNKNOWN and count == UNKNOWN for size, count in zip(sizes, counts, strict=True))
    ):
        raise ctx.error(
            f"no window fits: input sizes {tuple(sizes)}, kernel {windows.kernel}, strides {windows.strides}, paddings "
            f"{windows.paddings}, dilations {windows.dilations} give {tuple(counts)} outputs; each must be positive"
        )


def pad(xp: Any, x: Any, paddings: Sequence[tuple[int, int]], value: Any = 0) -> Any:
    """`x` with its last axes padded by `value`; negative paddings crop. Returns `x` itself when there is nothing to do."""
    if not any(before or after for before, after in paddings):
        return x
    inner = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for size, (before, after) in zip(x.shape[-len(paddings) :], paddings, strict=True)
    )
    x = x[(Ellipsis, *inner)]
    grown = [(max(before, 0), max(after, 0)) for before, after in paddings]
    if not any(before or after for before, after in grown):
        return x
    lead = x.ndim - len(paddings)
    sizes = [size + sum(pair) for size, pair in zip(x.shape[lead:], grown, strict=True)]
    out = xp.full((*x.shape[:lead], *sizes), value, dtype=x.dtype)
    cells = [slice(before, before + size) for (before, _), size in zip(grown, x.shape[lead:], strict=True)]
    out[(Ellipsis, *cells)] = x
    return out


def unpad(xp: Any, x: Any, paddings: Sequence[tuple[int, int]]) -> Any:
    """The inverse of `pad`: cut the paddings off, zeros where they were negative."""
    return pad(xp, x, [(-before, -after) for before, after in paddings])


def channels_first(x: Any, data_format: str) -> Any:
    """A view [N, C, spatial...] of an array in `data_format`."""
    if data_format not in CHANNELS_LAST:
        return x
    return x.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


def channels_back(x: Any, data_format: str) -> Any:
    """The inverse of `channels_first`."""
    if data_format not in CHANNELS_LAST:
        return x
    return x.transpose(0, *range(2, x.ndim), 1)


def split_shape(shape: Sequence[int], data_format: str) -> tuple[int, int, tuple[int, ...]]:
    """(batch, channels, spatial sizes) of a shape in `data_format`."""
    if data_format in CHANNELS_LAST:
        return shape[0], shape[-1], tuple(shape[1:-1])
    return shape[0], shape[1], tuple(shape[2:])


def join_shape(batch: int, channels: int, sizes: Sequence[int], data_format: str) -> tuple[int, ...]:
    """The inverse of `split_shape`."""
    if data_format in CHANNELS_LAST:
        return (batch, *sizes, channels)
    return (batch, channels, *sizes)
