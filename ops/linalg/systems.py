"""Systems of equations: solved exactly, by a triangle, by Cholesky's factor, or by least squares; and the rank."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GRAD
from fluidtool.ops.linalg.common import check_matrices, check_square, smaller, solved, turned
from fluidtool.ops.math.matrix_common import broadcast_sizes, summed_batches
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

TRIANGLE = {"upper": True, "transpose": False, "unitriangular": False}


@op("solve", inputs="X Y", outputs="Out")
def solve(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Out with X Out = Y: X [..., n, n], Y [..., n, k] or vectors [..., n] (Paddle 2.6.2 solve_kernel.cc).

    Y holds vectors if it has one dimension, or the shape of X without its last one.
    """
    _check_system(ctx, X.shape, Y.shape, vector=_is_vector(X.shape, Y.shape))
    if _is_vector(X.shape, Y.shape):
        return solved(ctx, ctx.xp.linalg.solve, X, _columns(X, Y))[..., 0]
    return solved(ctx, ctx.xp.linalg.solve, X, Y)


@solve.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    vector = _is_vector(X.shape, Y.shape)
    _check_system(ctx, X.shape, Y.shape, vector=vector)
    return X.with_shape(X.shape[:-1] if vector else (*_batch(ctx, X.shape, Y.shape), *Y.shape[-2:])).with_lod_level(0)


@solve.grad(inputs="X Y Out Out@GRAD", outputs="X@GRAD Y@GRAD")
def solve_grad(ctx: OpContext, X: Any, Y: Any, Out: Any, Out_grad: Any) -> dict[str, Any]:
    """dY = X⁻ᵀ dOut, dX = -dY Outᵀ."""
    out, grad = (_columns(X, Out), _columns(X, Out_grad)) if _is_vector(X.shape, Y.shape) else (Out, Out_grad)
    right = solved(ctx, ctx.xp.linalg.solve, turned(X), grad)
    left = -right @ turned(out)
    if _is_vector(X.shape, Y.shape):
        right = right[..., 0]
    return {"X" + GRAD: summed_batches(left, X.shape), "Y" + GRAD: summed_batches(right, Y.shape)}


def _is_vector(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    return len(y) == 1 or (len(y) == len(x) - 1 and tuple(y) == tuple(x[:-1]))


def _columns(X: Any, y: Any) -> Any:
    """Vectors as matrices of one column."""
    return y[..., None] if y.ndim == X.ndim - 1 else y.reshape((1,) * (X.ndim - 2) + (-1, 1))


def _check_system(ctx: OpContext | InferContext, x: tuple[int, ...], y: tuple[int, ...], vector: bool = False) -> None:
    check_square(ctx, x, "X")
    rows = y[-1] if vector else y[-2] if len(y) > 1 else None
    if rows is None or (rows != x[-1] and -1 not in (rows, x[-1])):
        raise ctx.error(f"X of shape {shape_text(x)} needs Y with {x[-1]} rows, found shape {shape_text(y)}")


def _batch(ctx: OpContext | InferContext, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes before the matrices, spread as numpy spreads them."""
    sizes = broadcast_sizes(x[:-2], y[:-2])
    if sizes is None:
        raise ctx.error(
            f"X of shape {shape_text(x)} and Y of shape {shape_text(y)} must agree in the sizes before the matrices"
        )
    return sizes


@op("triangular_solve", inputs="X Y", outputs="Out", attrs=TRIANGLE)
def triangular_solve(ctx: OpContext, X: Any, Y: Any, *, upper: bool, transpose: bool, unitriangular: bool) -> Any:
    """Out with X Out = Y, or Xᵀ Out = Y; of X [..., n, n] one triangle is read (Paddle 2.6.2 triangular_solve_kernel.cc).

    unitriangular: the diagonal is not read, and is 1.
    """
    _check_system(ctx, X.shape, Y.shape)
    _batch(ctx, X.shape, Y.shape)
    triangle = _triangle(ctx, X, upper, unitriangular)
    return solved(ctx, ctx.xp.linalg.solve, turned(triangle) if transpose else triangle, Y)


@triangular_solve.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    _check_system(ctx, X.shape, Y.shape)
    return Y.with_shape((*_batch(ctx, X.shape, Y.shape), *Y.shape[-2:])).with_lod_level(0)


@triangular_solve.grad(inputs="X Out Out@GRAD Y", outputs="X@GRAD Y@GRAD")
def triangular_solve_grad(
    ctx: OpContext, X: Any, Out: Any, Out_grad: Any, Y: Any, *, upper: bool, transpose: bool, unitriangular: bool
) -> dict[str, Any]:
    """dY = X⁻ᵀ dOut, dX = -dY Outᵀ within the triangle; transposed for Xᵀ."""
    triangle = _triangle(ctx, X, upper, unitriangular)
    right = solved(ctx, ctx.xp.linalg.solve, triangle if transpose else turned(triangle), Out_grad)
    left = -(Out @ turned(right)) if transpose else -(right @ turned(Out))
    inside = (ctx.xp.triu if upper else ctx.xp.tril)(left, int(unitriangular) * (1 if upper else -1))
    return {"X" + GRAD: summed_batches(inside, X.shape), "Y" + GRAD: summed_batches(right, Y.shape)}


def _triangle(ctx: OpContext, x: Any, upper: bool, unitriangular: bool) -> Any:
    offset = int(unitriangular) * (1 if upper else -1)
    triangle = (ctx.xp.triu if upper else ctx.xp.tril)(x, offset)
    return triangle + ctx.xp.eye(x.shape[-1], dtype=x.dtype) if unitriangular else triangle


@op("cholesky_solve", inputs="X Y", outputs="Out", attrs={"upper": False})
def cholesky_solve(ctx: OpContext, X: Any, Y: Any, *, upper: bool) -> Any:
    """Out with Y Yᵀ Out = X, or Yᵀ Y Out = X if `upper`: Y is Cholesky's factor (Paddle 2.6.2 cholesky_solve_kernel.cc)."""
    _check_factor(ctx, X.shape, Y.shape)
    factor = _triangle(ctx, Y, upper, False)
    first, second = (turned(factor), factor) if upper else (factor, turned(factor))
    return solved(ctx, ctx.xp.linalg.solve, second, solved(ctx, ctx.xp.linalg.solve, first, X))


@cholesky_solve.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    _check_factor(ctx, X.shape, Y.shape)
    return X.with_shape((*_batch(ctx, Y.shape, X.shape), *X.shape[-2:])).with_lod_level(0)


def _check_factor(ctx: OpContext | InferContext, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    check_square(ctx, y, "Y")
    check_matrices(ctx, x, "X")
    if x[-2] != y[-1] and -1 not in (x[-2], y[-1]):
        raise ctx.error(f"Y of shape {shape_text(y)} needs X with {y[-1]} rows, found shape {shape_text(x)}")


@op("lstsq", inputs="X Y", outputs="Solution Residuals? Rank SingularValues", attrs={"rcond": 0.0, "driver": "gelsy"})
def lstsq(ctx: OpContext, X: Any, Y: Any, *, rcond: float, driver: str) -> dict[str, Any]:
    """Solution with the least sum of squares of X Solution - Y: X [..., m, n], Y [..., m, k] (Paddle 2.6.2 lstsq_kernel.cc).

    Residuals are these sums if m > n and every rank is n, else empty. `gels` gives no Rank; only `gelsd` and `gelss` give
    SingularValues.
    """
    _check_least_squares(ctx, X, Y, driver)
    np = ctx.np
    x, y = ctx.host(X), ctx.host(Y)
    *batch, m, n = x.shape
    answers = [
        solved(ctx, np.linalg.lstsq, a, b, rcond=rcond)
        for a, b in zip(x.reshape(prod(batch), m, n), y.reshape(prod(batch), *y.shape[-2:]), strict=True)
    ]
    ranks = np.array([rank for _, _, rank, _ in answers], np.int32)
    solution = np.array([found for found, _, _, _ in answers], x.dtype).reshape((*batch, n, y.shape[-1]))
    summed = m > n and bool((ranks == n).all())
    residuals = ((x @ solution - y) ** 2).sum(axis=-2) if summed else np.zeros(0, x.dtype)
    values = np.array([found for _, _, _, found in answers], x.dtype).reshape((*batch, min(m, n)))
    return {
        "Solution": ctx.array(solution),
        "Residuals": ctx.array(residuals),
        "Rank": ctx.array(np.zeros(0, np.int32) if driver == "gels" else ranks.reshape(tuple(batch))),
        "SingularValues": ctx.array(values if driver in ("gelsd", "gelss") else np.zeros(0, x.dtype)),
    }


@lstsq.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta, *, driver: str) -> dict[str, TensorMeta]:
    _check_least_squares(ctx, X, Y, driver)
    batch = X.shape[:-2]
    found = {"Solution": X.with_shape((*batch, X.shape[-1], Y.shape[-1]))}
    if driver != "gels":
        found["Rank"] = X.with_shape(batch).with_dtype(VarType.INT32)
    if driver in ("gelsd", "gelss"):
        found["SingularValues"] = X.with_shape((*batch, smaller(X.shape)))
    return found  # Paddle declares sizes for what a driver leaves empty


def _check_least_squares(ctx: OpContext | InferContext, X: Any, Y: Any, driver: str) -> None:
    x, y = tuple(X.shape), tuple(Y.shape)
    check_matrices(ctx, x, "X")
    check_matrices(ctx, y, "Y")
    if len(x) != len(y) or any(a != b and -1 not in (a, b) for a, b in zip(x[:-1], y[:-1], strict=True)):
        raise ctx.error(f"X {shape_text(x)} and Y {shape_text(y)} must agree in all sizes but the last")
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise ctx.error(f"driver must be 'gels', 'gelsy', 'gelsd' or 'gelss', found {driver!r}")


@op(
    "matrix_rank",
    inputs="X TolTensor?",
    outputs="Out",
    attrs={"tol": 0.0, "hermitian": False, "use_default_tol": True},
)
def matrix_rank(ctx: OpContext, X: Any, TolTensor: Any, *, tol: float, hermitian: bool, use_default_tol: bool) -> Any:
    """How many singular values of each matrix are above a tolerance, int32 (Paddle 2.6.2 matrix_rank_kernel.cc).

    The default is the largest of them times the larger size times the data type's epsilon. `hermitian` takes the sizes
    of eigenvalues instead.
    """
    check_matrices(ctx, X.shape, "X")
    xp = ctx.xp
    if hermitian:
        check_square(ctx, X.shape, "X")
        values = xp.abs(solved(ctx, xp.linalg.eigvalsh, X))
    else:
        values = solved(ctx, xp.linalg.svd, X, compute_uv=False)
    if TolTensor is not None:
        least = TolTensor[..., None]
    elif use_default_tol:
        largest = values.max(axis=-1, keepdims=True, initial=0)
        least = largest * (max(X.shape[-2:]) * float(ctx.np.finfo(X.dtype).eps))
    else:
        least = X.dtype.type(tol)
    return (values > least).sum(axis=-1).astype("int32")


@matrix_rank.infer
def _(ctx: InferContext, X: TensorMeta, TolTensor: TensorMeta | None) -> TensorMeta:
    check_matrices(ctx, X.shape, "X")
    batch = X.shape[:-2] if TolTensor is None or not TolTensor.rank else _batch(ctx, X.shape, (*TolTensor.shape, 1, 1))
    return X.with_shape(batch).with_dtype(VarType.INT32).with_lod_level(0)
