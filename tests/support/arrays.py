"""Arrays of numbers, by data type."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def f32(numbers: Any) -> Array:
    """float32."""
    return np.array(numbers, np.float32)


def i32(numbers: Any) -> Array:
    """int32."""
    return np.array(numbers, np.int32)


def i64(numbers: Any) -> Array:
    """int64."""
    return np.array(numbers, np.int64)
