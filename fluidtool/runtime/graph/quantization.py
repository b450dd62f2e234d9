"""Whole numbers of 8 bits in a graph: how activations become them, and weights that are them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.records import dataclass

MOST = 128  # the largest size of a number of 8 bits


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Floats to whole numbers and back, in float32: clipped to -limit…limit, times factor, clipped to low…high, rounded (ties
    to even, or away from zero), times multiplier, by divisor.
    """

    factor: float
    limit: float
    low: int
    high: int
    away: bool
    multiplier: float = 1.0
    divisor: float = 1.0

    @property
    def step(self) -> float:
        """The float between two whole numbers."""
        return self.multiplier / self.divisor

    @property
    def has_8_bits(self) -> bool:
        """Whether the whole numbers fit in 8 bits."""
        return self.low >= -MOST and self.high < MOST


@dataclass(frozen=True, slots=True)
class WholeWeights:
    """Weights as whole numbers of 8 bits times steps: one, or one for each place along `axis`."""

    numbers: NDArray[np.int8]
    steps: NDArray[np.float64]
    axis: int | None = None

    def by(self, axis: int) -> NDArray[np.float64] | None:
        """The step of each place along an axis; None if the steps do not run along it."""
        if self.axis not in (None, axis):
            return None
        return np.broadcast_to(self.steps.reshape(-1), (self.numbers.shape[axis],))


@dataclass(frozen=True, slots=True)
class RoundedWeights:
    """What an operator has made of a parameter: its scale, and whole numbers, None where they have no 8 bits."""

    scale: Any
    whole: WholeWeights | None


def whole_numbers(values: Any) -> NDArray[np.int8] | None:
    """The same numbers in 8 bits; None if they are no whole numbers of 8 bits."""
    if values.dtype == np.int8:
        return np.ascontiguousarray(values)
    if not np.isfinite(values).all() or np.abs(values).max(initial=0) > MOST:
        return None
    rounded = np.rint(values)
    if (rounded != values).any() or rounded.max(initial=0) >= MOST:
        return None
    whole: NDArray[np.int8] = rounded.astype(np.int8)
    return whole
