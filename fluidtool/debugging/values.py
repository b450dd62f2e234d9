"""Two values beside each other: how far they are apart, and what is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fluidtool.errors import UsageError
from fluidtool.passes.comparison import absolute_tolerance
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows
from fluidtool.tensor.compare import Comparison, compare
from fluidtool.tensor.statistics import not_finite as count_not_finite

RTOL = 1e-4


@dataclass(frozen=True, slots=True)
class Allowed:
    """How far elements may be apart: `atol` plus `rtol` times the element of A. Raises UsageError.

    atol: None for `rtol` times the largest element of the tensor, plus a few last bits of 1, which is what rounding in another
    order makes of sums that cancel.
    """

    rtol: float = RTOL
    atol: float | None = None

    def __post_init__(self) -> None:
        if not (self.rtol >= 0 and (self.atol is None or self.atol >= 0)):
            raise UsageError("--rtol and --atol must not be negative")


@dataclass(frozen=True, slots=True)
class NotFinite:
    """How many elements are NaN, and how many infinite."""

    nan: int = 0
    inf: int = 0


def compare_values(name: str, left: Any, right: Any, allowed: Allowed) -> Comparison:
    """The value of B, `right`, beside that of A: tensors, SelectedRows and arrays of tensors."""
    if isinstance(left, LoDTensorArray) and isinstance(right, LoDTensorArray):
        return _compare_arrays(name, left, right, allowed)
    if isinstance(left, SelectedRows) and isinstance(right, SelectedRows):
        if list(left.rows()) != list(right.rows()):
            return Comparison(name, "has other rows in B")
        left, right = left.tensor, right.tensor
    if not (isinstance(left, LoDTensor) and isinstance(right, LoDTensor)):
        same = type(left) is type(right)
        return Comparison(name, None if same else f"is a {type(left).__name__} in A, but a {type(right).__name__} in B")
    expected = left.numpy()
    atol = absolute_tolerance(expected, allowed.rtol) if allowed.atol is None else allowed.atol
    return compare(name, right, left, allowed.rtol, atol)


def _compare_arrays(name: str, left: LoDTensorArray, right: LoDTensorArray, allowed: Allowed) -> Comparison:
    if len(left) != len(right):
        return Comparison(name, f"has {len(right)} tensors, expected {len(left)}")
    items = [compare_values(name, a, b, allowed) for a, b in zip(left, right, strict=True)]
    faults = [f"tensor {index} {item.fault}" for index, item in enumerate(items) if item.fault]
    worst = [replace(each, index=(index, *each.index)) for index, item in enumerate(items) for each in item.worst]
    return Comparison(
        name,
        faults[0] if faults else None,
        sum(item.elements for item in items),
        sum(item.differing for item in items),
        max((item.largest_error for item in items), default=0.0),
        tuple(sorted(worst, key=lambda each: -each.error)[:3]),
    )


def arrays_in(value: Any) -> Sequence[np.ndarray[Any, Any]]:
    """The arrays that a value consists of."""
    if isinstance(value, LoDTensorArray):
        return [array for item in value for array in arrays_in(item)]
    if isinstance(value, SelectedRows):
        return arrays_in(value.tensor)
    return [value.numpy()] if isinstance(value, LoDTensor) and value.is_initialized() else []


def not_finite(value: Any) -> NotFinite:
    """What of a value is not finite."""
    counts = [count_not_finite(array) for array in arrays_in(value)]
    return NotFinite(sum(nan for nan, _ in counts), sum(inf for _, inf in counts))


def largest(value: Any) -> float:
    """The largest finite magnitude of a value; 0 without any."""
    most = 0.0
    for array in arrays_in(value):
        if array.dtype.kind != "b" and array.size:
            wide = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
            most = max(most, float(np.max(wide, where=np.isfinite(wide), initial=0.0)))
    return most
