"""Numbers of 16 bits: bfloat16, the upper half of a float32 (src/bfloat16.h has the same rounding)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def rounded(numbers: Any) -> NDArray[np.float32]:
    """float32 numbers of any shape rounded to bfloat16, to nearest, ties to even.

    Overflow becomes infinity, NaN stays NaN, and subnormals are preserved.
    """
    array = np.ascontiguousarray(numbers, np.float32).reshape(np.shape(numbers))
    bits = array.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    quiet = (bits | np.uint32(0x400000)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(array), quiet, nearest).astype(np.uint32).view(np.float32)
