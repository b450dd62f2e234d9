"""WeightedAverage: a running mean kept in Python (Paddle 1.8.5 average.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.errors import UsageError
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["WeightedAverage"]


class WeightedAverage:
    """sum(value * weight) / sum(weight) over everything added since the last reset."""

    def __init__(self) -> None:
        self.numerator: Any = None
        self.denominator: Any = None

    def reset(self) -> None:
        """Drop everything added."""
        self.numerator = self.denominator = None

    def add(self, value: Any, weight: Any) -> None:
        """Add a number or an ndarray with its weight, a number; raises UsageError for anything else."""
        if not _is_number(value) and not isinstance(value, np.ndarray):
            raise UsageError(
                "The 'value' must be a number(int, float) or a numpy ndarray, found " + type(value).__name__
            )
        if not _is_number(weight):
            raise UsageError(f"The 'weight' must be a number(int, float), found {type(weight).__name__}")
        self.numerator = value * weight + (0 if self.numerator is None else self.numerator)
        self.denominator = weight + (0 if self.denominator is None else self.denominator)

    def eval(self) -> Any:
        """The mean; raises UsageError before the first add."""
        if self.denominator is None:
            raise UsageError("There is no data to be averaged in WeightedAverage: add a value first")
        return self.numerator / self.denominator


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, np.ndarray) and value.shape == (1,))


__getattr__ = refuse_other_names("paddle.fluid.average", __all__)
