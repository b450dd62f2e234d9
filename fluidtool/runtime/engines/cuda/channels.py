"""Images and filters of 16 bits with zeros for further channels: cuDNN's kernels of tensor cores read channels by eights."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.cuda.calls import Place, channels_last
from fluidtool.runtime.engines.cuda.lowering import TENSOR_CORES, Lowering
from fluidtool.runtime.engines.cuda.sources import THREADS, Source
from fluidtool.runtime.graph.ir import Shape, Value

Sizes = tuple[Shape, Shape, Shape]
"""Of the images, the filters and the results of a convolution: [n, c, h, w], [count, c of a group, h, w], [n, count, h, w].

Volumes have a depth before h.
"""


def takes_halves(sizes: Sizes) -> bool:
    """Whether a convolution without groups is computed in halves, by eights: cuDNN certainly has kernels of tensor cores for those.

    Channels are filled up where halves of all that are no larger than floats of the real ones: else float32 moves fewer bytes.
    Eight halves for one float multiply more, at fifteen times the rate of float32.
    """
    images, filters, results = sizes
    wide_images, _, wide_results = by_eights(sizes)
    floats, halves = prod(images) + prod(results), prod(wide_images) + prod(wide_results)
    return images[1] == filters[1] and halves < 2 * floats


def by_eights(sizes: Sizes) -> Sizes:
    """The sizes of a convolution without groups, with channels by eights."""
    images, filters, results = sizes
    return _filled_up(images, (1,)), _filled_up(filters, (0, 1)), _filled_up(results, (1,))


def _filled_up(shape: Shape, axes: Collection[int]) -> Shape:
    return tuple(-(-size // TENSOR_CORES) * TENSOR_CORES if axis in axes else size for axis, size in enumerate(shape))


def filled(numbers: NDArray[np.float32], shape: Shape) -> NDArray[np.float32]:
    """Numbers of the host in a larger shape, with zeros behind them."""
    return np.pad(numbers, [(0, whole - size) for size, whole in zip(numbers.shape, shape, strict=True)])


def padded(low: Lowering, value: Value, shape: Shape) -> Place:
    """A value channels last in halves, in a larger shape with zeros behind it; made once for all that read it.

    A thread writes the eight halves of a pixel, which are converted here anyway: threads side by side read pixels side by side.
    """
    if shape == value.shape:
        return low.laid(value, channels_last(shape), low.half)
    key = low.place(value), value.shape, shape
    if key not in low.padded:
        low.padded[key] = _padded(low, value, shape)
    return low.padded[key]


def _padded(low: Lowering, value: Value, shape: Shape) -> Place:
    out = Place(low.room(shape, low.half), channels_last(shape))
    axes = [axis for axis, size in enumerate(value.shape) if size < shape[axis]]

    def element(src: Source, index: list[str]) -> str:
        inside = [f"{index[axis]} < {value.shape[axis]}" for axis in axes]
        with src.guarded(*inside):
            loaded = src.load(value, index)
        return f"({' && '.join(inside)} ? {loaded} : 0.0f)"

    src = low.each(out, shape, element, TENSOR_CORES)
    low.calls.append(src.launch(out, -(-prod(shape) // (TENSOR_CORES * THREADS)), THREADS, "pad"))
    return out


def keep_padded(low: Lowering, out: Place, shape: Shape, wide: Shape) -> None:
    """Note that a result of this shape lies within one with further channels, which are finite numbers: zeros multiply them."""
    if shape != wide:
        low.padded[out, shape, wide] = out
