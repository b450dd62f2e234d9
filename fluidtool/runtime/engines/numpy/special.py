"""Special functions that numpy does not have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# erf on |x| < 1: x * P(x^2) from its Taylor series to 30 terms, exact to rounding in float64.
_SERIES = np.array([(-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(24)]) * (2 / math.sqrt(math.pi))


def erf(x: Any) -> Any:
    """The error function, elementwise, in the data type of x; exact to a few units in the last place of float64."""
    wide = np.asarray(x, dtype=np.float64)
    out: Any = np.vectorize(math.erf, otypes=[np.float64])(wide) if wide.size else wide.copy()
    return out.astype(x.dtype, copy=False)
