"""Factors of matrices: Cholesky's, orthogonal and triangular (QR, LU), singular values."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.linalg.common import check_matrices, check_square, smaller, solved, turned
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


@op("cholesky", inputs="X", outputs="Out", attrs={"upper": False})
def cholesky(ctx: OpContext, X: Any, *, upper: bool) -> Any:
    """The triangle L with X = L Lᵀ of each positive definite matrix, or Lᵀ if `upper` (Paddle 2.6.2 cholesky_kernel.cc)."""
    check_square(ctx, X.shape, "X")
    lower = solved(ctx, ctx.xp.linalg.cholesky, X)
    return turned(lower) if upper else lower


@cholesky.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    check_square(ctx, X.shape, "X")
    return X


@cholesky.grad(inputs="Out Out@GRAD", outputs="X@GRAD")
def cholesky_grad(ctx: OpContext, Out: Any, Out_grad: Any, *, upper: bool) -> Any:
    """dX = L⁻ᵀ Φ(Lᵀ dL) L⁻¹, symmetric; Φ takes the lower triangle with half of its diagonal (Murray, 2016)."""
    xp = ctx.xp
    lower, grad = (turned(Out), turned(Out_grad)) if upper else (Out, Out_grad)
    product = xp.tril(turned(lower) @ grad)
    product = product - 0.5 * product * xp.eye(lower.shape[-1], dtype=lower.dtype)
    left = solved(ctx, xp.linalg.solve, turned(lower), product)
    inner = turned(solved(ctx, xp.linalg.solve, turned(lower), turned(left)))
    return (0.5 * (inner + turned(inner))).astype(Out.dtype, copy=False)


@op("qr", inputs="X", outputs="Q R", attrs={"mode": "reduced"})
def qr(ctx: OpContext, X: Any, *, mode: str) -> dict[str, Any]:
    """X [..., m, n] = Q R; `mode`: 'reduced', 'complete' (Q is square), 'r' (R alone) (Paddle 2.6.2 qr_kernel.cc)."""
    _check_qr(ctx, X.shape, mode)
    if mode == "r":
        return {"R": solved(ctx, ctx.xp.linalg.qr, X, mode="r")}
    q, r = solved(ctx, ctx.xp.linalg.qr, X, mode=mode)
    return {"Q": q, "R": r}


@qr.infer
def _(ctx: InferContext, X: TensorMeta, *, mode: str) -> dict[str, TensorMeta]:
    _check_qr(ctx, X.shape, mode)
    *batch, m, n = X.shape
    k = m if mode == "complete" else smaller(X.shape)
    found = {"Q": X.with_shape((*batch, m, k)), "R": X.with_shape((*batch, k, n))}
    return {"R": found["R"]} if mode == "r" else found


def _check_qr(ctx: OpContext | InferContext, shape: tuple[int, ...], mode: str) -> None:
    check_matrices(ctx, shape, "X")
    if mode not in ("reduced", "complete", "r"):
        raise ctx.error(f"mode must be 'reduced', 'complete' or 'r', found {mode!r}")


@op("svd", inputs="X", outputs="U S VH", attrs={"full_matrices": False})
def svd(ctx: OpContext, X: Any, *, full_matrices: bool) -> dict[str, Any]:
    """X [..., m, n] = U diag(S) VH, S falling; U and VH are square if `full_matrices` (Paddle 2.6.2 svd_kernel.cc)."""
    check_matrices(ctx, X.shape, "X")
    u, s, vh = solved(ctx, ctx.xp.linalg.svd, X, full_matrices=full_matrices)
    return {"U": u, "S": s, "VH": vh}


@svd.infer
def _(ctx: InferContext, X: TensorMeta, *, full_matrices: bool) -> dict[str, TensorMeta]:
    check_matrices(ctx, X.shape, "X")
    *batch, m, n = X.shape
    k = smaller(X.shape)
    rows, columns = (m, n) if full_matrices else (k, k)
    return {
        "U": X.with_shape((*batch, m, rows)),
        "S": X.with_shape((*batch, k)),
        "VH": X.with_shape((*batch, columns, n)),
    }


@op("lu", inputs="X", outputs="Out Pivots Infos", attrs={"pivots": True})
def lu(ctx: OpContext, X: Any, *, pivots: bool) -> dict[str, Any]:
    """Both triangles of each matrix [..., m, n] in one, with the rows exchanged, counted from 1 (Paddle 2.6.2 lu_kernel.cc).

    Infos: for each matrix 0, or the number of the first column without a pivot.
    """
    check_matrices(ctx, X.shape, "X")
    if not pivots:
        raise ctx.error("pivots must be True, as in Paddle on a CPU, found False")
    packed = ctx.host(X).copy()
    *batch, m, n = packed.shape
    stack = packed.reshape(prod(batch), m, n)
    exchanged = ctx.np.zeros((len(stack), min(m, n)), ctx.np.int32)
    infos = ctx.np.zeros(tuple(batch) or (1,), ctx.np.int32)
    for number, matrix in enumerate(stack):
        exchanged[number], infos.reshape(-1)[number] = _eliminated(ctx, matrix)
    return {
        "Out": ctx.array(packed),
        "Pivots": ctx.array(exchanged.reshape((*batch, min(m, n)))),
        "Infos": ctx.array(infos),
    }


def _eliminated(ctx: OpContext, matrix: Any) -> tuple[list[int], int]:
    """Eliminate with partial pivoting, in place; the rows exchanged, and the first column without a pivot or 0."""
    exchanged, missing = [], 0
    for k in range(min(matrix.shape)):
        pivot = k + int(ctx.np.abs(matrix[k:, k]).argmax())
        exchanged.append(pivot + 1)
        if pivot != k:
            matrix[[k, pivot]] = matrix[[pivot, k]]
        if matrix[k, k] == 0:
            missing = missing or k + 1
            continue
        matrix[k + 1 :, k] /= matrix[k, k]
        matrix[k + 1 :, k + 1 :] -= ctx.np.multiply.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    return exchanged, missing


@lu.infer
def _(ctx: InferContext, X: TensorMeta) -> dict[str, TensorMeta]:
    check_matrices(ctx, X.shape, "X")
    pivots = X.with_shape((*X.shape[:-2], smaller(X.shape))).with_dtype(VarType.INT32)
    return {"Out": X, "Pivots": pivots}  # Paddle declares another shape for Infos than it gives


@op("lu_unpack", inputs="X Pivots", outputs="Pmat L U", attrs={"unpack_ludata": True, "unpack_pivots": True})
def lu_unpack(ctx: OpContext, X: Any, Pivots: Any, *, unpack_ludata: bool, unpack_pivots: bool) -> dict[str, Any]:
    """What `lu` gave as matrices: Pmat L U is the matrix that it was given (Paddle 2.6.2 lu_unpack_kernel.cc)."""
    _check_unpack(ctx, X, Pivots)
    xp, found = ctx.xp, {}
    *batch, m, n = X.shape
    k = min(m, n)
    if unpack_ludata:
        found["L"] = xp.tril(X[..., :, :k], -1) + xp.eye(m, k, dtype=X.dtype)
        found["U"] = xp.triu(X[..., :k, :])
    if unpack_pivots:
        rows = ctx.np.tile(ctx.np.arange(m), (prod(batch), 1))
        for order, exchanged in zip(rows, ctx.host(Pivots).reshape(prod(batch), k), strict=True):
            for place, other in enumerate(exchanged.tolist()):
                if not 1 <= other <= m:
                    raise ctx.error(f"Pivots must lie in 1 to {m}, found {other}")
                order[[place, other - 1]] = order[[other - 1, place]]
        ones = ctx.np.zeros((prod(batch), m, m), X.dtype)
        ctx.np.put_along_axis(ones, rows[:, None, :], 1, axis=1)
        found["Pmat"] = ctx.array(ones.reshape((*batch, m, m)))
    return found


@lu_unpack.infer
def _(
    ctx: InferContext, X: TensorMeta, Pivots: TensorMeta, *, unpack_ludata: bool, unpack_pivots: bool
) -> dict[str, TensorMeta]:
    _check_unpack(ctx, X, Pivots)
    *batch, m, n = X.shape
    k = smaller(X.shape)
    triangles = {"L": X.with_shape((*batch, m, k)), "U": X.with_shape((*batch, k, n))}
    order = {"Pmat": X.with_shape((*batch, m, m))}
    return (triangles if unpack_ludata else {}) | (order if unpack_pivots else {})


def _check_unpack(ctx: OpContext | InferContext, X: Any, Pivots: Any) -> None:
    check_matrices(ctx, X.shape, "X")
    expected = (*X.shape[:-2], smaller(X.shape))
    if tuple(Pivots.shape) != expected and -1 not in (*expected, *Pivots.shape):
        raise ctx.error(
            f"Pivots must have shape {shape_text(expected)} for X of shape {shape_text(X.shape)}, found {shape_text(Pivots.shape)}"
        )
