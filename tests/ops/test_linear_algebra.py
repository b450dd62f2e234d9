"""Linear algebra of Paddle 2 programs: numbers of Paddle 2.6.2, gradients against central differences, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.arrays import f32, i32
from tests.support.later import run_later
from tests.support.operators import check_gradient, run_op

A = f32([[4, 1, 2], [1, 3, 0.5], [2, 0.5, 5]])  # positive definite
B = f32([[1, 2], [3, 4], [5, 6]])
C = f32([[1, 2], [3, 4], [5, 7]])
RNG = np.random.default_rng(11)
Case = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]

CASES: list[Case] = [
    ("cholesky", {"X": A}, {}, {"Out": [[2, 0, 0], [0.5, 1.6583124, 0], [1, 0, 2]]}),
    ("cholesky", {"X": A}, {"upper": True}, {"Out": [[2, 0.5, 1], [0, 1.6583124, 0], [0, 0, 2]]}),
    (
        "qr",
        {"X": C},
        {},
        {
            "Q": [[-0.16903079, 0.94868338], [-0.50709248, -0.31622732], [-0.84515423, 0]],
            "R": [[-5.91608, -8.28251076], [0, 0.63245487]],
        },
    ),
    ("qr", {"X": C}, {"mode": "complete"}, {"R": [[-5.91608, -8.28251076], [0, 0.63245487], [0, 0]]}),
    (
        "svd",
        {"X": C},
        {},
        {
            "U": [[-0.21678397, 0.93892294], [-0.49045417, -0.34146363], [-0.84407318, -0.04273451]],
            "S": [10.19142818, 0.36713788],
            "VH": [[-0.57975304, -0.81479222], [-0.81479222, 0.57975304]],
        },
    ),
    (
        "lu",
        {"X": C},
        {},
        {"Out": [[5, 7], [0.2, 0.6], [0.6, -0.33333379]], "Pivots": [3, 3], "Infos": [0]},
    ),
    ("lu", {"X": C.T}, {}, {"Out": [[2, 4, 7], [0.5, 1, 1.5]], "Pivots": [2, 2], "Infos": [0]}),
    (
        "lu_unpack",
        {"X": f32([[5, 7], [0.2, 0.6], [0.6, -1 / 3]]), "Pivots": i32([3, 3])},
        {},
        {
            "Pmat": [[0, 1, 0], [0, 0, 1], [1, 0, 0]],
            "L": [[1, 0], [0.2, 1], [0.6, -0.33333333]],
            "U": [[5, 7], [0, 0.6]],
        },
    ),
    (
        "eigh",
        {"X": A},
        {},
        {
            "Eigenvalues": [2.09652209, 3.0722239, 6.83125401],
            "Eigenvectors": [
                [-0.71674311, -0.32576722, -0.61656719],
                [0.57487261, -0.77650189, -0.25800449],
                [0.39471623, 0.53937042, -0.7438271],
            ],
        },
    ),
    ("eigvals", {"X": A}, {}, {"Out": [6.8312573, 2.0965221, 3.0722241]}),
    ("determinant", {"Input": A}, {}, {"Out": 44}),
    ("determinant", {"Input": np.stack([A, A + 1])}, {}, {"Out": [44, 66.75]}),
    ("slogdeterminant", {"Input": A}, {}, {"Out": [1, 3.7841897]}),
    ("slogdeterminant", {"Input": np.stack([A, -A])}, {}, {"Out": [[1, -1], [3.7841897, 3.7841897]]}),
    ("solve", {"X": A, "Y": B}, {}, {"Out": [[-0.5625, -0.4431818], [1, 1.2727273], [1.125, 1.25]]}),
    ("solve", {"X": A, "Y": B[:, 0]}, {}, {"Out": [-0.5625, 1, 1.125]}),
    (
        "solve",
        {"X": np.stack([A, A]), "Y": B.T},
        {},
        {"Out": [[-0.5625, 1, 1.125], [-0.4431818, 1.2727273, 1.25]]},
    ),
    ("triangular_solve", {"X": A, "Y": B}, {}, {"Out": [[-0.4583333, -0.3833334], [0.8333333, 1.1333334], [1, 1.2]]}),
    (
        "triangular_solve",
        {"X": A, "Y": B},
        {"upper": False},
        {"Out": [[0.25, 0.5], [0.9166667, 1.1666667], [0.8083333, 0.8833333]]},
    ),
    (
        "triangular_solve",
        {"X": A, "Y": B},
        {"transpose": True},
        {"Out": [[0.25, 0.5], [0.9166667, 1.1666667], [0.8083333, 0.8833333]]},
    ),
    ("triangular_solve", {"X": A, "Y": B}, {"unitriangular": True}, {"Out": [[-9.5, -11], [0.5, 1], [5, 6]]}),
    (
        "cholesky_solve",
        {"X": B, "Y": np.linalg.cholesky(A)},
        {},
        {"Out": [[-0.5625, -0.4431818], [1, 1.2727271], [1.125, 1.25]]},
    ),
    (
        "cholesky_solve",
        {"X": B, "Y": np.linalg.cholesky(A).T},
        {"upper": True},
        {"Out": [[-0.5625, -0.4431818], [1, 1.2727271], [1.125, 1.25]]},
    ),
    ("matrix_rank", {"X": C}, {}, {"Out": 2}),
    ("matrix_rank", {"X": A}, {"tol": 3.0, "use_default_tol": False}, {"Out": 2}),
    ("matrix_rank", {"X": A}, {"tol": 3.0, "use_default_tol": False, "hermitian": True}, {"Out": 2}),
    (
        "matrix_rank",
        {"X": np.stack([A, A]), "TolTensor": f32([1, 3])},
        {"use_default_tol": False},
        {"Out": [3, 2]},
    ),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "expected"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_numbers_of_paddle(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = run_later(op_type, inputs, attrs)
    for slot, numbers in expected.items():
        assert found[slot].shape == np.shape(numbers)
        np.testing.assert_allclose(found[slot], numbers, rtol=2e-6, atol=2e-6, err_msg=slot)


def test_eigenvalues_alone_need_no_vectors() -> None:
    found = run_later("eigvalsh", {"X": A}, {"is_test": True}, {"Eigenvalues": 1, "Eigenvectors": 0})
    np.testing.assert_allclose(found["Eigenvalues"], [2.09652209, 3.0722239, 6.83125401], rtol=1e-6)


def test_complex_eigenvalues_come_with_vectors() -> None:
    x = f32([[0, -1], [1, 0]])
    found = run_later("eig", {"X": x})
    values, vectors = found["Eigenvalues"], found["Eigenvectors"]
    assert (values.dtype, vectors.dtype) == (np.complex64, np.complex64)
    np.testing.assert_allclose(sorted(values.imag), [-1, 1], atol=1e-6)
    np.testing.assert_allclose(x @ vectors, vectors * values, atol=1e-6)


@pytest.mark.parametrize(
    ("driver", "rank", "values"),
    [("gelsy", 2, []), ("gels", [], []), ("gelsd", 2, [10.1914282, 0.3671379]), ("gelss", 2, [10.1914282, 0.3671379])],
)
def test_least_squares(driver: str, rank: Any, values: list[float]) -> None:
    found = run_later("lstsq", {"X": C, "Y": B[:, :1]}, {"driver": driver, "rcond": 1e-6})
    np.testing.assert_allclose(found["Solution"], [[1], [0]], atol=2e-5)
    np.testing.assert_allclose(found["Residuals"], [0], atol=1e-9)
    assert found["Rank"].tolist() == rank
    np.testing.assert_allclose(found["SingularValues"], values, rtol=1e-5)


def test_least_squares_without_residuals() -> None:
    found = run_later("lstsq", {"X": C.T, "Y": B[:2, :1]}, {"rcond": 1e-6})
    np.testing.assert_allclose(found["Solution"], [[2.4285724], [-0.7142839], [0.1428559]], rtol=1e-4)
    assert found["Residuals"].shape == (0,)


def test_a_triangle_without_a_pivot_names_its_column() -> None:
    assert run_later("lu", {"X": f32([[1, 2], [1, 2]])})["Infos"].tolist() == [2]


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def definite(*batch: int) -> Any:
    x = normal(*batch, 3, 3)
    return x @ x.swapaxes(-1, -2) + np.eye(3)


GRADIENTS: list[tuple[str, dict[str, Any], list[str], dict[str, Any], list[str] | None]] = [
    ("determinant", {"Input": normal(2, 3, 3)}, ["Input"], {}, None),
    ("slogdeterminant", {"Input": normal(2, 3, 3)}, ["Input"], {}, None),
    ("solve", {"X": definite(2), "Y": normal(2, 3, 2)}, ["X", "Y"], {}, None),
    ("solve", {"X": definite(), "Y": normal(3)}, ["X", "Y"], {}, None),
    ("solve", {"X": definite(), "Y": normal(2, 3, 2)}, ["X", "Y"], {}, None),
    ("triangular_solve", {"X": definite(2), "Y": normal(2, 3, 2)}, ["X", "Y"], {}, None),
    (
        "triangular_solve",
        {"X": definite(), "Y": normal(2, 3, 2)},
        ["X", "Y"],
        {"upper": False, "transpose": True},
        None,
    ),
    ("triangular_solve", {"X": definite(), "Y": normal(3, 2)}, ["X", "Y"], {"unitriangular": True}, None),
]


@pytest.mark.parametrize(("op_type", "inputs", "wrt", "attrs", "loss"), GRADIENTS)
def test_gradients(
    op_type: str, inputs: dict[str, Any], wrt: list[str], attrs: dict[str, Any], loss: list[str] | None
) -> None:
    check_gradient(op_type, inputs, wrt, attrs, loss=loss)


@pytest.mark.parametrize("upper", [False, True])
def test_the_gradient_of_a_triangle_is_symmetric(upper: bool) -> None:
    """Central differences of single elements leave the symmetric matrices, so both sides are moved."""
    x, weight, step = definite(), normal(3, 3), 1e-6
    factor = np.linalg.cholesky(x)
    out = factor.T if upper else factor
    grad = run_op("cholesky_grad", {"Out": out, "Out@GRAD": weight}, {"upper": upper})["X@GRAD"].numpy()
    np.testing.assert_allclose(grad, grad.T, rtol=1e-12)
    for i in range(3):
        for j in range(3):
            move = np.zeros((3, 3))
            move[i, j] += step
            move[j, i] += step
            sides = [np.linalg.cholesky(x + sign * move) for sign in (1, -1)]
            moved = sides[0] - sides[1]
            slope = ((moved.T if upper else moved) * weight).sum() / (2 * step)
            np.testing.assert_allclose((grad * move).sum() / step, slope, rtol=1e-5, atol=1e-7)


def test_the_gradient_of_eigenvalues_and_vectors() -> None:
    """Against the same difference, of both sides of the diagonal; eigenvectors keep their sign in small steps."""
    x, step = definite(), 1e-6
    by_values, by_vectors = normal(3), normal(3, 3)
    values, vectors = np.linalg.eigh(x)
    inputs = {"Eigenvalues": values, "Eigenvectors": vectors}
    grad = run_op("eigh_grad", {**inputs, "Eigenvalues@GRAD": by_values, "Eigenvectors@GRAD": by_vectors})[
        "X@GRAD"
    ].numpy()
    for i in range(3):
        for j in range(3):
            move = np.zeros((3, 3))
            move[i, j] += step
            move[j, i] += step
            (a, u), (b, v) = (np.linalg.eigh(x + sign * move) for sign in (1, -1))
            slope = (((a - b) * by_values).sum() + ((u - v) * by_vectors).sum()) / (2 * step)
            np.testing.assert_allclose((grad * move).sum() / step, slope, rtol=1e-4, atol=1e-6)


REFUSALS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("cholesky", {"X": C}, {}, "X must hold square matrices"),
    ("cholesky", {"X": -A}, {}, "it has no result for these numbers: .*positive definite"),
    ("solve", {"X": A, "Y": C[:2]}, {}, "needs Y with 3 rows, found shape .2, 2."),
    ("solve", {"X": np.ones((2, 2), np.float32), "Y": C[:2]}, {}, "it has no result for these numbers: .*[Ss]ingular"),
    ("triangular_solve", {"X": A, "Y": C[:2]}, {}, "needs Y with 3 rows"),
    ("cholesky_solve", {"X": C[:2], "Y": A}, {}, "needs X with 3 rows"),
    ("qr", {"X": C}, {"mode": "full"}, "mode must be 'reduced', 'complete' or 'r', found 'full'"),
    ("svd", {"X": C[0]}, {}, "X must hold matrices in its last two dimensions"),
    ("svd", {"X": np.full((2, 2), np.nan, np.float32)}, {}, "it has no result for these numbers"),
    ("lu", {"X": C}, {"pivots": False}, "pivots must be True"),
    ("lu_unpack", {"X": C, "Pivots": i32([1])}, {}, "Pivots must have shape .2."),
    ("lu_unpack", {"X": C, "Pivots": i32([1, 9])}, {}, "Pivots must lie in 1 to 3, found 9"),
    ("eigh", {"X": A}, {"UPLO": "R"}, "UPLO must be 'L' or 'U', found 'R'"),
    ("determinant", {"Input": C}, {}, "Input must hold square matrices"),
    ("lstsq", {"X": C, "Y": C[:2]}, {}, "must agree in all sizes but the last"),
    ("lstsq", {"X": C, "Y": B}, {"driver": "gelsx"}, "driver must be"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "message"), REFUSALS)
def test_refusals(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"{op_type}: .*{message}"):
        run_op(op_type, inputs, attrs)
