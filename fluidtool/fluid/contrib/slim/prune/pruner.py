"""Which filters go, and parameters without them (Paddle 1.8.5 contrib/slim/prune/pruner.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError, UsageError

__all__ = ["Pruner", "StructurePruner"]


class Pruner:
    """What prunes a parameter."""

    def prune(self, param: Any) -> Any:
        """Override it."""


class StructurePruner(Pruner):
    """Takes whole slices of parameters along an axis, those with the smallest sums of absolute values.

    pruning_axis: the axis by the name of a parameter, '*' for all others; criterions: 'l1_norm' in the same way.
    """

    def __init__(self, pruning_axis: Mapping[str, int] | None, criterions: Mapping[str, str]) -> None:
        self.pruning_axis, self.criterions = pruning_axis, criterions

    def cal_pruned_idx(self, name: str, param: Any, ratio: float, axis: int | None = None) -> Any:
        """The numbers of the slices to take, ratio times as many as there are, the smallest first."""
        criterion = self.criterions.get(name) or self.criterions["*"]
        if criterion != "l1_norm":
            raise UsageError(f"the criterion of {name} must be 'l1_norm', found {criterion!r}")
        if axis is None:
            if self.pruning_axis is None:
                raise AssertedError("pruning_axis should set if axis is None.")
            axis = self.pruning_axis[name] if name in self.pruning_axis else self.pruning_axis["*"]
        others = tuple(each for each in range(param.ndim) if each != axis)
        count = round(param.shape[axis] * ratio)
        return np.sum(np.abs(param), axis=others).argsort()[:count]

    def prune_tensor(self, tensor: Any, pruned_idx: Sequence[int] | Any, pruned_axis: int, lazy: bool = False) -> Any:
        """A copy of the tensor without these slices; lazy: with zeros in them."""
        gone = np.zeros(tensor.shape[pruned_axis], dtype=bool)
        gone[np.asarray(pruned_idx, dtype=np.int64)] = True
        if not lazy:
            return np.compress(~gone, tensor, axis=pruned_axis)
        found = np.moveaxis(tensor.copy(), pruned_axis, 0)
        found[gone] = 0
        return np.ascontiguousarray(np.moveaxis(found, 0, pruned_axis))
