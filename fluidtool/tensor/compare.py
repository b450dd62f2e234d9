"""Comparing values with expected ones: which elements differ, and the worst of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor.lod_tensor import LoDTensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One element that differs by more than allowed."""

    index: tuple[int, ...]
    found: Any
    expected: Any
    error: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One value against its expectation. `fault` says why elements cannot be compared; else `differing` of `elements`
    lie beyond the tolerance, the worst of them first in `worst`; `largest_error` is over all finite elements.
    """

    name: str
    fault: str | None = None
    elements: int = 0
    differing: int = 0
    largest_error: float = 0.0
    worst: tuple[Difference, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether everything lies within the tolerance."""
        return self.fault is None and self.differing == 0


def compare(name: str, found: Any, expected: Any, rtol: float, atol: float, worst: int = 3) -> Comparison:
    """Compare a LoDTensor or array with an expected one: |found - expected| <= atol + rtol * |expected|.

    Integers and booleans must be equal. NaN equals NaN, infinities of one sign are equal. Shapes, LoD (where the
    expectation has one) and the kind of data type (float, integer, bool, complex) must be the same.
    """
    fault = _fault(found, expected)
    if fault:
        return Comparison(name, fault)
    got, want = np.asarray(found), np.asarray(expected)
    if not want.size:
        return Comparison(name)
    error, excess = _errors(got, want, rtol, atol)
    differing = int(np.count_nonzero(excess > 0))
    finite = error[np.isfinite(error)]
    order = np.argsort(-excess, axis=None, kind="stable")[: min(worst, differing)] if differing else ()
    places = [tuple(int(i) for i in np.unravel_index(flat, want.shape)) for flat in order]
    rows = tuple(Difference(at, got[at].item(), want[at].item(), float(error[at])) for at in places)
    return Comparison(name, None, want.size, differing, float(finite.max()) if finite.size else 0.0, rows)


def _fault(found: Any, expected: Any) -> str | None:
    got, want = np.asarray(found), np.asarray(expected)
    if got.shape != want.shape:
        return f"has shape {shape_text(got.shape)}, expected {shape_text(want.shape)}"
    if _kind(got) != _kind(want):
        return f"is {got.dtype}, expected {want.dtype}"
    lod = expected.recursive_sequence_lengths() if isinstance(expected, LoDTensor) else []
    mine = found.recursive_sequence_lengths() if isinstance(found, LoDTensor) else []
    return f"has LoD {mine}, expected {lod}" if lod and mine != lod else None


def _kind(array: Array) -> str:
    """'f', 'i', 'b' or 'c'; bfloat16, which numpy does not know as a float, is one."""
    if array.dtype.name == "bfloat16":
        return "f"
    return "i" if array.dtype.kind == "u" else array.dtype.kind


def _errors(got: Array, want: Array, rtol: float, atol: float) -> tuple[Array, Array]:
    """(absolute errors, by how much each is beyond what is allowed); what cannot be subtracted is infinitely wrong."""
    kind = _kind(want)
    exact = kind in "ib"
    wide = np.complex128 if kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    same = (got == want) | ((a != a) & (b != b))
    with np.errstate(all="ignore"):
        error = np.abs(a - b)
        excess = error - (0.0 if exact else atol + rtol * np.abs(b))
    error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    excess = np.where(same, 0.0, np.where(np.isnan(excess), np.inf, excess))
    if exact:
        excess = np.where(same, 0.0, np.maximum(excess, 1.0))
    return error, excess
