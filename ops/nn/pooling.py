"""Pooling of any rank as array code: one axis after the other where the reduction allows it.

Arrays are channels first. A pooled axis is described by an AxisBins: where its windows start and end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.windows import Windows, pad, unpad
from fluidtool.records import dataclass

LOWEST = -3.4028234663852886e38
"""What Paddle starts a maximum from, in every data type (-FLT_MAX)."""


@dataclass(frozen=True, slots=True)
class AxisBins:
    """The windows on one axis: how many, their size and step, and the padding before the first cell.

    `bounds` is set where windows differ in size (adaptive pooling): then kernel, stride and before mean nothing.
    """

    size: int
    count: int
    kernel: int
    stride: int
    before: int
    bounds: tuple[tuple[int, int], ...] = ()

    @property
    def edges(self) -> tuple[int, int]:
        """(before, after) paddings that give every window its cells."""
        span = max(self.before + self.size, (self.count - 1) * self.stride + self.kernel)
        return self.before, span - self.before - self.size

    @property
    def whole(self) -> bool:
        """Whether one window spans the axis exactly."""
        return not self.bounds and self.count == 1 and self.before == 0 and self.kernel == self.size

    def cells(self, tap: int) -> slice:
        """The padded cells that the windows meet at kernel position `tap`, one per window."""
        return slice(tap, tap + self.stride * (self.count - 1) + 1, self.stride)

    def clipped(self) -> list[tuple[int, int]]:
        """(start, end) of each window, cut to the input; an empty one has end <= start."""
        if self.bounds:
            return list(self.bounds)
        starts = [index * self.stride - self.before for index in range(self.count)]
        return [(max(start, 0), min(start + self.kernel, self.size)) for start in starts]

    def lengths(self) -> list[int]:
        """How many input cells each window has (Paddle's arithmetic: negative for one far outside)."""
        return [end - start for start, end in self.clipped()]

    def padded_lengths(self) -> list[int]:
        """How many cells each window has, counting paddings but nothing beyond them."""
        starts = [index * self.stride - self.before for index in range(self.count)]
        return [min(start + self.kernel, self.size + self.before) - start for start in starts]


def window_bins(sizes: Sequence[int], windows: Windows, counts: Sequence[int]) -> list[AxisBins]:
    """Bins of windows that all have the same size."""
    return [
        AxisBins(size, count, kernel, stride, before)
        for size, count, kernel, stride, (before, _) in zip(
            sizes, counts, windows.kernel, windows.strides, windows.paddings, strict=True
        )
    ]


def adaptive_bins(sizes: Sequence[int], counts: Sequence[int]) -> list[AxisBins]:
    """Bins of adaptive pooling: window i spans floor(i * size / count) to ceil((i + 1) * size / count)."""
    return [_adaptive_axis(size, count) for size, count in zip(sizes, counts, strict=True)]


def _adaptive_axis(size: int, count: int) -> AxisBins:
    if size % count == 0:
        return AxisBins(size, count, size // count, size // count, 0)
    bounds = tuple((i * size // count, -(-(i + 1) * size // count)) for i in range(count))
    return AxisBins(size, count, 0, 0, 0, bounds)


def sum_bins(xp: Any, x: Any, bins: Sequence[AxisBins]) -> Any:
    """The sum of every window."""
    return _reduce(xp, x, bins, xp.add, xp.sum, 0)


def max_bins(xp: Any, x: Any, bins: Sequence[AxisBins]) -> Any:
    """The maximum of every window; LOWEST for an empty one."""
    return _reduce(xp, x, bins, xp.maximum, xp.max, LOWEST)


def _reduce(xp: Any, x: Any, bins: Sequence[AxisBins], pair: Any, along: Any, start: float) -> Any:
    first = x.ndim - len(bins)
    if all(axis.whole for axis in bins):
        return along(x, axis=tuple(range(first, x.ndim)), keepdims=True)
    for axis, axis_bins in enumerate(bins, first):
        x = _reduce_axis(xp, x, axis, axis_bins, pair, along, start)
    return x


def _reduce_axis(xp: Any, x: Any, axis: int, bins: AxisBins, pair: Any, along: Any, start: float) -> Any:
    lead = (slice(None),) * axis
    if bins.whole:
        return along(x, axis=axis, keepdims=True)
    if bins.bounds:
        rows = [along(x[(*lead, slice(low, high))], axis=axis, keepdims=True) for low, high in bins.bounds]
        return xp.concatenate(rows, axis=axis)
    x = pad(xp, x, [bins.edges, *[(0, 0)] * (x.ndim - 1 - axis)], start)
    out = x[(*lead, bins.cells(0))]
    for tap in range(1, bins.kernel):
        cells = x[(*lead, bins.cells(tap))]
        out = pair(out, cells) if tap == 1 else pair(out, cells, out=out)
    return out


def spread_bins(xp: Any, grad: Any, bins: Sequence[AxisBins]) -> Any:
    """The transpose of `sum_bins`: every cell gets the sum of the values of its windows."""
    first = grad.ndim - len(bins)
    for axis in reversed(range(first, grad.ndim)):
        grad = _spread_axis(xp, grad, axis, bins[axis - first])
    return grad


def _spread_axis(xp: Any, grad: Any, axis: int, bins: AxisBins) -> Any:
    lead, shape = (slice(None),) * axis, list(grad.shape)
    shape[axis] = bins.size if bins.bounds else sum(bins.edges) + bins.size
    out = xp.zeros(shape, dtype=grad.dtype)
    if bins.bounds:
        for index, (low, high) in enumerate(bins.bounds):
            out[(*lead, slice(low, high))] += grad[(*lead, slice(index, index + 1))]
        return out
    for tap in range(bins.kernel):
        out[(*lead, bins.cells(tap))] += grad
    return unpad(xp, out, [bins.edges, *[(0, 0)] * (grad.ndim - 1 - axis)])


def taps(xp: Any, x: Any, bins: Sequence[AxisBins]) -> Iterator[tuple[Any, list[list[int]]]]:
    """For each kernel position, in row-major order: the cells that the windows meet, and their input index by axis.

    Cells outside the input are LOWEST; a window smaller than the others meets its last cell several times.
    """
    if any(axis.bounds for axis in bins):
        tables = [_bounded_cells(axis) for axis in bins]
        for indexes in product(*tables):
            yield x[(Ellipsis, *xp.ix_(*map(xp.asarray, indexes)))], list(indexes)
        return
    padded = pad(xp, x, [axis.edges for axis in bins], LOWEST)
    for tap in product(*(range(axis.kernel) for axis in bins)):
        cells = tuple(axis.cells(t) for axis, t in zip(bins, tap, strict=True))
        starts = [
            [i * axis.stride - axis.before + t for i in range(axis.count)] for axis, t in zip(bins, tap, strict=True)
        ]
        yield padded[(Ellipsis, *cells)], starts


def _bounded_cells(bins: AxisBins) -> list[list[int]]:
    spans = bins.clipped()
    longest = max(end - start for start, end in spans)
    return [[min(start + tap, end - 1) for start, end in spans] for tap in range(longest)]


def first_maximum_grad(xp: Any, x: Any, out: Any, out_grad: Any, bins: Sequence[AxisBins]) -> Any:
    """The first cell of a window that equals `out` gets the window's gradient; windows of one size each."""
    edges = [axis.edges for axis in bins]
    padded = pad(xp, x, edges, LOWEST)
    grad = xp.zeros(padded.shape, dtype=out_grad.dtype)
    waiting = xp.ones(out.shape, dtype=bool)
    for tap in product(*(range(axis.kernel) for axis in bins)):
        cells = (Ellipsis, *(axis.cells(t) for axis, t in zip(bins, tap, strict=True)))
        hit = (padded[cells] == out) & waiting
        grad[cells] += xp.where(hit, out_grad, 0)
        waiting &= ~hit
    return unpad(xp, grad, edges)


def scatter_sum(ctx: OpContext, positions: Any, values: Any, size: int) -> Any:
    """[size]: the sum of the `values` at each flat position; positions repeat. Sums run in float64."""
    sums = ctx.sums_at(positions.reshape(-1), values.reshape(-1).astype("float64"), size)
    return sums.astype(values.dtype, copy=False)


def outer_product(xp: Any, factors: Sequence[Sequence[int]], dtype: Any) -> Any:
    """The product of one number per axis, as an array with one axis per factor."""
    total = xp.ones((1,) * len(factors), dtype=dtype)
    for position, numbers in enumerate(factors):
        shape = [1] * len(factors)
        shape[position] = len(numbers)
        total = total * xp.asarray(numbers, dtype=dtype).reshape(shape)
    return total


def single_share(counts: Any) -> Any:
    """1 / counts, rounded to float32: what Paddle's gradients of averages multiply by, whatever the data type."""
    return (1 / counts).astype("float32").astype(counts.dtype)
