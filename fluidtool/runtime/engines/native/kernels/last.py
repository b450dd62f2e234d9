"""Arrays of images whose memory has the channels last: [N, C, H, W] as everywhere, each pixel's channels side by side."""

from __future__ import annotations

import numpy as np

from fluidtool.runtime.engines.native.kernels.direct import Array
from fluidtool.runtime.graph.ir import Shape


def is_last(array: Array) -> bool:
    """Whether the memory of an array [N, C, H, W] has its channels last."""
    return array.ndim == 4 and array.transpose(0, 2, 3, 1).flags.c_contiguous


def is_only_last(array: Array) -> bool:
    """The same, where a contiguous array [N, C, H, W] does not lie in the same way."""
    return array.ndim == 4 and not array.flags.c_contiguous and is_last(array)


def memory_of(array: Array) -> Array:
    """The array as [N, H, W, C], contiguous: a view where its channels are last."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))


def empty_last(shape: Shape) -> Array:
    """An array [N, C, H, W] without values, channels last."""
    count, channels, *size = shape
    return np.empty((count, *size, channels), np.float32).transpose(0, 3, 1, 2)
