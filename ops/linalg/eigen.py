"""Eigenvalues and eigenvectors."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.linalg.common import check_square, solved, turned
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType

COMPLEX = {VarType.FP32: VarType.COMPLEX64, VarType.FP64: VarType.COMPLEX128}


@op("eigh", inputs="X", outputs="Eigenvalues Eigenvectors", attrs={"UPLO": "L"})
def eigh(ctx: OpContext, X: Any, *, UPLO: str) -> dict[str, Any]:
    """Rising eigenvalues of symmetric matrices, of which one triangle is read, and vectors (Paddle 2.6.2 eigh_kernel.cc)."""
    _check_triangle(ctx, X.shape, UPLO)
    values, vectors = solved(ctx, ctx.xp.linalg.eigh, X, UPLO)
    return {"Eigenvalues": values, "Eigenvectors": vectors}


@eigh.infer
def _(ctx: InferContext, X: TensorMeta, *, UPLO: str) -> dict[str, TensorMeta]:
    _check_triangle(ctx, X.shape, UPLO)
    return {"Eigenvalues": X.with_shape(X.shape[:-1]), "Eigenvectors": X}


@eigh.grad(inputs="Eigenvalues Eigenvectors Eigenvalues@GRAD Eigenvectors@GRAD", outputs="X@GRAD")
def eigh_grad(
    ctx: OpContext, Eigenvalues: Any, Eigenvectors: Any, Eigenvalues_grad: Any, Eigenvectors_grad: Any
) -> Any:
    """dX = V (diag(dλ) + Vᵀ dV ∘ F) Vᵀ with F = 1 / (λj - λi) off the diagonal (Giles, 2008)."""
    xp, vectors = ctx.xp, Eigenvectors
    between = Eigenvalues[..., None, :] - Eigenvalues[..., :, None]
    identity = xp.eye(vectors.shape[-1], dtype=vectors.dtype)
    inner = identity * Eigenvalues_grad[..., None, :]
    inner = inner + turned(vectors) @ Eigenvectors_grad * xp.where(identity > 0, 0, 1 / (between + identity))
    return vectors @ inner @ turned(vectors)


@op("eigvalsh", inputs="X", outputs="Eigenvalues Eigenvectors~", attrs={"UPLO": "L", "is_test": False})
def eigvalsh(ctx: OpContext, X: Any, *, UPLO: str, is_test: bool) -> dict[str, Any]:
    """The eigenvalues of `eigh`; its vectors, too, for the gradient unless `is_test` (Paddle 2.6.2)."""
    _check_triangle(ctx, X.shape, UPLO)
    if is_test:
        return {"Eigenvalues": solved(ctx, ctx.xp.linalg.eigvalsh, X, UPLO)}
    values, vectors = solved(ctx, ctx.xp.linalg.eigh, X, UPLO)
    return {"Eigenvalues": values, "Eigenvectors": vectors}


@eigvalsh.infer
def _(ctx: InferContext, X: TensorMeta, *, UPLO: str, is_test: bool) -> dict[str, TensorMeta]:
    _check_triangle(ctx, X.shape, UPLO)
    found = {"Eigenvalues": X.with_shape(X.shape[:-1])}
    return found if is_test else {**found, "Eigenvectors": X}


@eigvalsh.grad(inputs="Eigenvectors Eigenvalues@GRAD", outputs="X@GRAD")
def eigvalsh_grad(ctx: OpContext, Eigenvectors: Any, Eigenvalues_grad: Any) -> Any:
    """dX = V diag(dλ) Vᵀ."""
    return Eigenvectors * Eigenvalues_grad[..., None, :] @ turned(Eigenvectors)


def _check_triangle(ctx: OpContext | InferContext, shape: tuple[int, ...], UPLO: str) -> None:
    check_square(ctx, shape, "X")
    if UPLO not in ("L", "U"):
        raise ctx.error(f"UPLO must be 'L' or 'U', found {UPLO!r}")


@op("eig", inputs="X", outputs="Eigenvalues Eigenvectors")
def eig(ctx: OpContext, X: Any) -> dict[str, Any]:
    """Complex eigenvalues and vectors of square matrices, in LAPACK's order (Paddle 2.6.2 cpu/eig_kernel.cc)."""
    check_square(ctx, X.shape, "X")
    values, vectors = solved(ctx, ctx.np.linalg.eig, ctx.host(X))
    wanted = _complex(ctx, X)
    return {"Eigenvalues": ctx.array(values.astype(wanted)), "Eigenvectors": ctx.array(vectors.astype(wanted))}


@eig.infer
def _(ctx: InferContext, X: TensorMeta) -> dict[str, TensorMeta]:
    check_square(ctx, X.shape, "X")
    wide = X.with_dtype(COMPLEX.get(X.dtype, X.dtype))
    return {"Eigenvalues": wide.with_shape(X.shape[:-1]), "Eigenvectors": wide}


@op("eigvals", inputs="X", outputs="Out")
def eigvals(ctx: OpContext, X: Any) -> Any:
    """Complex eigenvalues of square matrices (Paddle 2.6.2 cpu/eigvals_kernel.cc).

    In the order in which LAPACK finds those of the transpose, as Paddle hands it rows for columns.
    """
    check_square(ctx, X.shape, "X")
    return ctx.array(solved(ctx, ctx.np.linalg.eigvals, turned(ctx.host(X))).astype(_complex(ctx, X)))


@eigvals.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    check_square(ctx, X.shape, "X")
    return X.with_dtype(COMPLEX.get(X.dtype, X.dtype)).with_shape(X.shape[:-1])


def _complex(ctx: OpContext, x: Any) -> Any:
    return ctx.np.result_type(x.dtype, ctx.np.complex64)
