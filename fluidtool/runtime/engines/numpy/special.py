"""Special functions that numpy lacks, elementwise on arrays of any shape, in the data type of the argument.

The names are those of scipy.special, which the cupy engine has too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# erf: rational approximations of W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23
# (1969): erf(x) = x P(x²)/Q(x²) for small x, erfc(x) = exp(-x²) P(x)/Q(x) else. Highest power first.
_ERF_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_ERF_FAR = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
# For float32: x P(x²)/Q(x²) on |x| <= 3.95, fitted by weighted least squares to a relative error of 2e-9.
_ERF_SINGLE = (
    (-1.29669178e-08, 4.64040372e-06, 3.77935847e-04, 3.84337546e-03, 5.42747701e-02, 1.85169266e-01, 1.12837917),
    (6.26922105e-05, 1.30406218e-03, 1.54437250e-02, 1.13911064e-01, 4.97435398e-01, 1.0),
)
_STIRLING = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA = (691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
_TRIGAMMA = (-691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)
_BERNOULLI = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
)  # B / (2j)!
_SHIFTED_TO = 10.0
_LEAST_ZETA = -1000.0
_BESSEL_NEAR = 20.0
_BLOCK = 16384
_SINGLE_BLOCK = 32768


def erf(x: Any) -> Any:
    """The error function; to 3 units in the last place in float64, 4e-7 in float32 and narrower types."""
    if x.dtype == np.float64:
        return _by_blocks(_erf_double, x)
    return _erf_single(x.astype(np.float32, copy=False)).astype(x.dtype, copy=False)


def erfinv(x: Any) -> Any:
    """The inverse error function: infinite at ±1, NaN beyond."""
    wide = np.asarray(x, dtype=np.float64)
    inside = np.clip(wide, -1.0, 1.0)
    # A first guess by S. Winitzki's formula, then Halley's steps.
    log = np.log1p(-inside * inside)
    half = 2 / (math.pi * 0.147) + log / 2
    guess = np.sign(inside) * np.sqrt(np.sqrt(half * half - log / 0.147) - half)
    open_interval = np.abs(wide) < 1
    y = np.where(open_interval, guess, 0.0)
    for _ in range(3):
        step = (erf(y) - inside) * (math.sqrt(math.pi) / 2) * np.exp(y * y)
        y = np.where(open_interval, y - step / (1 + y * step), y)
    edge = np.where(np.abs(wide) == 1, np.sign(wide) * np.inf, np.nan)
    return np.where(open_interval, y, edge).astype(x.dtype, copy=False)


def gammaln(x: Any) -> Any:
    """log |Γ(x)|; infinite at 0, -1, -2, …"""
    wide = np.asarray(x, dtype=np.float64)
    mirrored = np.where(wide < 0.5, 1 - wide, wide)
    shifted, factor = mirrored.copy(), np.ones_like(mirrored)
    for _ in range(int(_SHIFTED_TO)):
        small = shifted < _SHIFTED_TO
        factor *= np.where(small, shifted, 1.0)
        shifted += small
    inverse = 1 / shifted
    series = _polynomial(_STIRLING, inverse * inverse) * inverse
    out = (shifted - 0.5) * np.log(shifted) - shifted + 0.5 * math.log(2 * math.pi) + series - np.log(factor)
    reflected = math.log(math.pi) - np.log(np.abs(_sin_pi(wide))) - out
    out = np.where(wide < 0.5, reflected, out)
    return np.where(np.isinf(wide), np.inf, out).astype(x.dtype, copy=False)


def digamma(x: Any) -> Any:
    """Γ'(x) / Γ(x); NaN at 0, -1, -2, …"""
    wide = np.asarray(x, dtype=np.float64)
    shifted, total = _shifted_sum(np.where(wide < 0.5, 1 - wide, wide), lambda z: 1 / z)
    square = 1 / (shifted * shifted)
    out = np.log(shifted) - 0.5 / shifted + _polynomial(_DIGAMMA, square) * square - total
    turn = wide - np.rint(wide)
    reflected = out - math.pi / np.tan(math.pi * np.where(turn == 0, np.nan, turn))
    return np.where(wide < 0.5, reflected, out).astype(x.dtype, copy=False)


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of digamma, n >= 0; infinite or NaN at 0, -1, -2, …, and for n > 1 NaN below -1,000."""
    order = int(n)
    if order < 0:
        raise ValueError(f"polygamma is computed for n >= 0, found n = {order}")
    if order == 0:
        return digamma(x)
    if order > 1:
        wide = np.asarray(x, dtype=np.float64)
        sign = 1.0 if order % 2 else -1.0
        return (sign * math.gamma(order + 1) * _zeta(order + 1, wide)).astype(x.dtype, copy=False)
    wide = np.asarray(x, dtype=np.float64)
    shifted, total = _shifted_sum(np.where(wide < 0.5, 1 - wide, wide), lambda z: 1 / (z * z))
    inverse = 1 / shifted
    square = inverse * inverse
    out = inverse + 0.5 * square + _polynomial(_TRIGAMMA, square) * square * inverse + total
    sine = _sin_pi(wide)
    return np.where(wide < 0.5, (math.pi / sine) ** 2 - out, out).astype(x.dtype, copy=False)


def _zeta(s: int, q: Array) -> Array:
    """Hurwitz's zeta function, sum of (q + k)⁻ˢ over k >= 0 (Euler–Maclaurin's formula)."""
    with np.errstate(all="ignore"):
        start = np.where(q >= _LEAST_ZETA, q, np.nan)
        shifted, total = start.copy(), np.zeros_like(start)
        while (small := shifted < _SHIFTED_TO).any():
            total += np.where(small, shifted ** float(-s), 0.0)
            shifted += small
        power = shifted ** float(-s)
        total += power * shifted / (s - 1) + power / 2
        factor = power / shifted * s
        for index, weight in enumerate(_BERNOULLI):
            total += weight * factor
            factor = factor * (s + 2 * index + 1) * (s + 2 * index + 2) / (shifted * shifted)
    return total


def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 0."""
    return _bessel(0, x, scaled=False)


def i0e(x: Any) -> Any:
    """exp(-|x|) i0(x)."""
    return _bessel(0, x, scaled=True)


def i1(x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 1."""
    return _bessel(1, x, scaled=False)


def i1e(x: Any) -> Any:
    """exp(-|x|) i1(x)."""
    return _bessel(1, x, scaled=True)


def _bessel(order: int, x: Any, scaled: bool) -> Any:
    """By its power series up to 20, whose terms are all positive, and by Hankel's expansion beyond."""
    size = np.abs(np.asarray(x, dtype=np.float64))
    near = np.minimum(size, _BESSEL_NEAR)
    quarter = near * near / 4
    term = np.ones_like(near) if order == 0 else near / 2
    series = term.copy()
    for k in range(1, 64):
        term *= quarter / (k * (k + order))
        series += term
    far = np.maximum(size, _BESSEL_NEAR)
    hankel, total = np.ones_like(far), np.ones_like(far)
    for k in range(1, 24):
        hankel *= -(4 * order * order - (2 * k - 1) ** 2) / (8 * k * far)
        total += hankel
    with np.errstate(over="ignore"):
        growth = 1.0 if scaled else np.exp(size)
        out = np.where(
            size <= _BESSEL_NEAR,
            series * (np.exp(-near) if scaled else 1.0),
            total / np.sqrt(2 * math.pi * far) * growth,
        )
    return (np.copysign(out, x) if order else out).astype(x.dtype, copy=False)


def _erf_double(x: Array) -> Array:
    size = np.abs(x)
    square = np.minimum(size, 0.5) ** 2
    near = x * _polynomial(_ERF_NEAR[0], square) / _polynomial(_ERF_NEAR[1], square)
    cut = np.minimum(size, 6.0)
    far = 1 - np.exp(-cut * cut) * _polynomial(_ERF_FAR[0], cut) / _polynomial(_ERF_FAR[1], cut)
    out: Array = np.where(size < 0.5, near, np.copysign(far, x))
    return out


def _erf_single(x: Array) -> Array:
    """In parts that fit the processor's cache, all in the same scratch memory."""
    flat = np.ascontiguousarray(x).reshape(-1)
    out = np.empty_like(flat)
    scratch = np.empty((3, min(_SINGLE_BLOCK, flat.size)), np.float32)
    for start in range(0, flat.size, _SINGLE_BLOCK):
        piece, result = flat[start : start + _SINGLE_BLOCK], out[start : start + _SINGLE_BLOCK]
        cut, square, below = scratch[:, : piece.size]
        np.clip(piece, np.float32(-3.95), np.float32(3.95), out=cut)
        np.multiply(cut, cut, out=square)
        np.multiply(cut, _polynomial(_ERF_SINGLE[0], square, result), out=result)
        result /= _polynomial(_ERF_SINGLE[1], square, below)
        np.clip(result, np.float32(-1), np.float32(1), out=result)
    return out.reshape(x.shape)


def _polynomial(coefficients: Sequence[float], x: Array, out: Array | None = None) -> Array:
    """Horner's rule, highest power first."""
    out = np.multiply(x, x.dtype.type(coefficients[0]), out=out)
    out += x.dtype.type(coefficients[1])
    for coefficient in coefficients[2:]:
        out *= x
        out += x.dtype.type(coefficient)
    return out


def _shifted_sum(x: Array, term: Callable[[Array], Array]) -> tuple[Array, Array]:
    """x shifted up by whole steps until it is large, and the sum of `term` over the steps."""
    shifted, total = x.copy(), np.zeros_like(x)
    for _ in range(int(_SHIFTED_TO)):
        small = shifted < _SHIFTED_TO
        total += np.where(small, term(shifted), 0.0)
        shifted += small
    return shifted, total


def _sin_pi(x: Array) -> Array:
    """±sin(πx), exact zeros at whole numbers; the sign does not matter to its callers."""
    out: Array = np.sin(math.pi * (x - np.rint(x)))
    return out


def _by_blocks(function: Callable[[Array], Array], x: Array) -> Array:
    """`function` over parts that fit the processor's cache."""
    flat = np.ascontiguousarray(x).reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, flat.size, _BLOCK):
        out[start : start + _BLOCK] = function(flat[start : start + _BLOCK])
    return out.reshape(x.shape)
