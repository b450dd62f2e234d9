"""Special functions of the numpy engine against Python's own and against known values."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from fluidtool.runtime.engines.numpy import special


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Poles divide by zero; the executor keeps numpy quiet about it, and so do these tests."""
    with np.errstate(all="ignore"):
        yield


def test_erf_is_exact_to_three_units_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-300, 0, 301)])
    expected = np.array([math.erf(v) for v in x])
    assert (np.abs(special.erf(x) - expected) <= 3 * np.spacing(np.abs(expected))).all()


def test_erf_of_single_precision() -> None:
    x = np.linspace(-5, 5, 20001, dtype=np.float32)
    got = special.erf(x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, [math.erf(float(v)) for v in x], rtol=4e-7, atol=0)
    assert np.abs(got).max() == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_erf_at_the_ends(dtype: type) -> None:
    got = special.erf(np.array([np.inf, -np.inf, np.nan, 0.0], dtype))
    assert got.dtype == dtype
    assert got[:2].tolist() == [1, -1]
    assert np.isnan(got[2])
    assert got[3] == 0


def test_erf_keeps_the_shape() -> None:
    assert special.erf(np.zeros((2, 0, 3))).shape == (2, 0, 3)
    assert special.erf(np.array(0.5)).shape == ()


def test_erfinv_turns_erf_back() -> None:
    x = np.linspace(-0.999, 0.999, 401)
    np.testing.assert_allclose(special.erf(special.erfinv(x)), x, rtol=0, atol=5e-16)


def test_erfinv_at_and_beyond_the_ends() -> None:
    got = special.erfinv(np.array([1.0, -1.0, 1.5]))
    assert got[:2].tolist() == [np.inf, -np.inf]
    assert np.isnan(got[2])


def test_gammaln_agrees_with_the_standard_library() -> None:
    x = np.concatenate([np.linspace(0.05, 40, 2001), -np.linspace(0.05, 9.95, 301), [1e5, 1e10]])
    np.testing.assert_allclose(special.gammaln(x), [math.lgamma(v) for v in x], rtol=2e-13, atol=4e-15)


def test_gammaln_is_infinite_at_whole_numbers_below_one() -> None:
    assert np.isposinf(special.gammaln(np.array([0.0, -1.0, np.inf]))).all()


def test_digamma_of_one_is_less_eulers_constant() -> None:
    np.testing.assert_allclose(
        special.digamma(np.array([1.0, 0.5])), [-np.euler_gamma, -np.euler_gamma - 2 * math.log(2)]
    )


def test_digamma_mirrors_negative_numbers() -> None:
    x = np.array([0.3, 1.7, 2.25])
    mirrored = special.digamma(1 - x) - special.digamma(x)
    np.testing.assert_allclose(mirrored, math.pi / np.tan(math.pi * x), rtol=1e-12)


def test_trigamma_of_one_and_of_one_half() -> None:
    got = special.polygamma(1, np.array([1.0, 0.5]))
    np.testing.assert_allclose(got, [math.pi**2 / 6, math.pi**2 / 2], rtol=1e-14)


def test_higher_polygammas_of_one() -> None:
    zeta_of_3 = 1.2020569031595942
    got = [float(special.polygamma(n, np.array(1.0))) for n in (2, 3, 5)]
    np.testing.assert_allclose(got, [-2 * zeta_of_3, math.pi**4 / 15, 8 * math.pi**6 / 63], rtol=1e-14)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_higher_polygammas_from_one_number_to_the_next(n: int) -> None:
    x = np.array([-40.3, -2.5, 0.01, 0.7, 5.0, 11.0])
    step = (-1.0) ** n * math.factorial(n) * x ** -(n + 1)
    np.testing.assert_allclose(special.polygamma(n, x), special.polygamma(n, x + 1) - step, rtol=1e-11, atol=5e-11)


def test_higher_polygammas_at_and_beyond_the_ends() -> None:
    got = special.polygamma(3, np.array([0.0, -1e9, np.nan]))
    assert got[0] == np.inf
    assert np.isnan(got[1:]).all()


def test_negative_polygammas_are_refused() -> None:
    with pytest.raises(ValueError, match="n >= 0, found n = -1"):
        special.polygamma(-1, np.ones(1))


@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions_are_their_integrals(order: int) -> None:
    """I(x) = mean of exp(x cos t) cos(order t) over the circle, exact for enough points."""
    x = np.concatenate([np.linspace(-60, 60, 241), [1e-3, 19.999, 20.0, 20.001]])
    t = np.linspace(0, 2 * math.pi, 512, endpoint=False)
    scaled = (np.exp(np.outer(x, np.cos(t)) - np.abs(x)[:, None]) * np.cos(order * t)).mean(axis=1)
    plain, small = ((special.i0, special.i0e), (special.i1, special.i1e))[order]
    np.testing.assert_allclose(small(x), scaled, rtol=2e-14, atol=1e-16)
    np.testing.assert_allclose(plain(x), scaled * np.exp(np.abs(x)), rtol=2e-14, atol=1e-16)


def test_bessel_functions_of_large_numbers() -> None:
    assert special.i0(np.array([1e4])).tolist() == [np.inf]
    assert special.i1(np.array([-1e4])).tolist() == [-np.inf]
    expected = [1 / math.sqrt(2 * math.pi * 1e4)] * 2
    np.testing.assert_allclose([special.i0e(np.array(1e4)), -special.i1e(np.array(-1e4))], expected, rtol=1e-4)
