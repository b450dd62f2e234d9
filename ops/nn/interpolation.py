"""Resampling of spatial axes: which input cells an output cell reads on each axis, with which weights.

Arrays are channels first. Positions are computed in float32 as Paddle does (interpolate_op.h), so that the same cells are
read; an axis is resampled on its own, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from fluidtool.records import dataclass

METHODS = {3: ("linear",), 4: ("bilinear", "nearest", "bicubic"), 5: ("trilinear", "nearest")}
CUBIC = -0.75


@dataclass(frozen=True, slots=True)
class AxisTaps:
    """For one axis: host arrays [taps, outputs] of the cells to read and their weights (None: one cell, weight 1)."""

    size: int
    cells: Any
    weights: Any


def axis_taps(
    np: Any, method: str, size: int, count: int, ratio: Any, align_corners: bool, align_mode: int
) -> AxisTaps:
    """The taps of one axis; `ratio` is input cells per output cell (float32)."""
    steps = np.arange(count)
    if method == "nearest":
        return _nearest(np, size, steps, ratio, align_corners)
    if method == "bicubic":
        return _cubic(np, size, steps, ratio, align_corners)
    return _linear(np, size, steps, ratio, align_mode == 0 and not align_corners)


def axis_ratio(np: Any, size: int, count: int, scale: float, align_corners: bool) -> Any:
    """Input cells per output cell: by corners, by `scale` when it is positive, else by the sizes."""
    if count <= 1:
        return np.float32(0)
    if align_corners:
        return np.float32(size - 1) / np.float32(count - 1)
    return np.float32(1.0 / scale) if scale > 0 else np.float32(size) / np.float32(count)


def _nearest(np: Any, size: int, steps: Any, ratio: Any, align_corners: bool) -> AxisTaps:
    positions = ratio * steps.astype("float32")
    if align_corners:
        positions = positions.astype("float64") + 0.5
    return AxisTaps(size, np.minimum(positions.astype("int64"), size - 1)[None], None)


def _linear(np: Any, size: int, steps: Any, ratio: Any, half_pixel: bool) -> AxisTaps:
    if half_pixel:
        centers = float(ratio) * (steps + 0.5) - 0.5
        low = np.maximum(centers.astype("int64"), 0)
        after = np.maximum(centers.astype("float32"), 0) - low.astype("float32")
    else:
        positions = ratio * steps.astype("float32")
        low = positions.astype("int64")
        after = positions - low.astype("float32")
    cells = np.minimum(np.stack([low, low + 1]), size - 1)
    return AxisTaps(size, cells, np.stack([1 - after, after]))


def _cubic(np: Any, size: int, steps: Any, ratio: Any, align_corners: bool) -> AxisTaps:
    if align_corners:
        positions = (ratio * steps.astype("float32")).astype("float64")
    else:
        positions = float(ratio) * (steps + 0.5) - 0.5
    base = np.floor(positions).astype("int64")
    after = positions - base
    weights = np.stack([_outer(after + 1), _inner(after), _inner(1 - after), _outer(2 - after)])
    return AxisTaps(size, np.clip(base + np.arange(-1, 3)[:, None], 0, size - 1), weights)


def _inner(t: Any) -> Any:
    """The cubic convolution kernel for distances below 1."""
    return ((CUBIC + 2) * t - (CUBIC + 3)) * t * t + 1


def _outer(t: Any) -> Any:
    """The cubic convolution kernel for distances from 1 to 2."""
    return ((CUBIC * t - 5 * CUBIC) * t + 8 * CUBIC) * t - 4 * CUBIC


def resample(xp: Any, x: Any, taps: Sequence[AxisTaps]) -> Any:
    """`x` with its last axes resampled; integers are weighted in float32 and cut to the integer below."""
    if x.dtype.kind in "iu" and any(axis.weights is not None for axis in taps):
        return _resample_whole(xp, x, taps).astype(x.dtype)
    for position, axis_tap in enumerate(taps):
        x = _resample_axis(xp, x, x.ndim - len(taps) + position, axis_tap)
    return x


def _resample_axis(xp: Any, x: Any, axis: int, taps: AxisTaps) -> Any:
    if taps.weights is None:
        return xp.take(x, xp.asarray(taps.cells[0]), axis=axis)
    shape = [1] * x.ndim
    shape[axis] = -1
    out = None
    for cells, weights in zip(taps.cells, taps.weights, strict=True):
        part = xp.take(x, xp.asarray(cells), axis=axis)
        part *= xp.asarray(weights, dtype=x.dtype).reshape(shape)
        out = part if out is None else xp.add(out, part, out=out)
    return out


def _resample_whole(xp: Any, x: Any, taps: Sequence[AxisTaps]) -> Any:
    """All axes at once, in Paddle's order of operations: the last bit decides which integer is below."""
    choices = list(product(*(range(len(axis.cells)) for axis in taps)))
    if len(taps) == 2:
        choices.sort(key=lambda choice: choice[::-1])
    out = 0.0
    for choice in choices:
        part = x
        for position, (axis, tap) in enumerate(zip(taps, choice, strict=True)):
            part = xp.take(part, xp.asarray(axis.cells[tap]), axis=x.ndim - len(taps) + position)
        part = part.astype("float32")
        for position, (axis, tap) in enumerate(zip(taps, choice, strict=True)):
            weights = xp.asarray(axis.weights[tap], dtype="float32")
            part = part * weights.reshape(-1, *[1] * (len(taps) - 1 - position))
        out = out + part
    return out


def resample_grad(np: Any, xp: Any, grad: Any, taps: Sequence[AxisTaps]) -> Any:
    """The transpose of `resample`: one matrix product per axis."""
    for position, axis in enumerate(taps):
        place = grad.ndim - len(taps) + position
        matrix = xp.asarray(_matrix(np, axis), dtype=grad.dtype)
        grad = xp.moveaxis(xp.matmul(xp.moveaxis(grad, place, -1), matrix), -1, place)
    return grad


def _matrix(np: Any, taps: AxisTaps) -> Any:
    """[outputs, inputs]: the weight of every input cell in every output cell."""
    count = taps.cells.shape[1]
    matrix = np.zeros((count, taps.size))
    weights = np.ones(taps.cells.shape) if taps.weights is None else taps.weights
    np.add.at(matrix, (np.broadcast_to(np.arange(count), taps.cells.shape), taps.cells), weights)
    return matrix
