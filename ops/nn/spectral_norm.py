"""spectral_norm: a weight divided by its largest singular value, found by power iteration."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.precision import require_floating, require_rank, require_shape, widened
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, limited
from fluidtool.shapes import shape_text


def _matrix(ctx: OpContext, Weight: Any, U: Any, V: Any, dim: int) -> Any:
    """Weight as a matrix with `dim` as rows, once U and V fit."""
    require_floating(ctx, "Weight", Weight)
    require_rank(ctx, "Weight", Weight, 2, 3, 4, 5)
    if dim not in (0, 1):
        raise ctx.error(f"attribute dim must be 0 or 1, found {dim}")
    rows = Weight.shape[dim]
    require_shape(ctx, "U", U, (rows,), f"the size of axis {dim} of Weight {Weight.shape}")
    require_shape(
        ctx, "V", V, (Weight.size // max(rows, 1),), f"the product of the other sizes of Weight {Weight.shape}"
    )
    return ctx.xp.moveaxis(widened(Weight), dim, 0).reshape(rows, -1)


def _singular(ctx: OpContext, matrix: Any, u: Any, v: Any, power_iters: int, eps: float) -> tuple[Any, Any, Any]:
    """(largest singular value, left vector, right vector) after `power_iters` steps from u and v."""
    xp, u, v = ctx.xp, widened(u), widened(v)
    for _ in range(power_iters):
        v = matrix.T @ u
        v = v / (xp.sqrt((v * v).sum()) + v.dtype.type(eps))
        u = matrix @ v
        u = u / (xp.sqrt((u * u).sum()) + u.dtype.type(eps))
    return (u * (matrix @ v)).sum(), u, v


@op(
    "spectral_norm",
    inputs="Weight U V",
    outputs="Out",
    attrs={"dim": limited(0, 0, 1), "power_iters": limited(1, 0), "eps": 1e-12},
    lod="Weight",
)
def spectral_norm(ctx: OpContext, Weight: Any, U: Any, V: Any, *, dim: int, power_iters: int, eps: float) -> Any:
    """Out = Weight / sigma; U and V are the initial vectors and do not change (Paddle 1.8.5 spectral_norm_op.h)."""
    sigma = _singular(ctx, _matrix(ctx, Weight, U, V, dim), U, V, power_iters, eps)[0]
    return (Weight / sigma).astype(Weight.dtype, copy=False)


@spectral_norm.infer
def _(ctx: InferContext, Weight: TensorMeta, U: TensorMeta, V: TensorMeta) -> TensorMeta:
    if Weight.rank < 2:
        raise ctx.error(f"input Weight must have at least 2 dimensions, found shape {shape_text(Weight.shape)}")
    return Weight


@spectral_norm.grad(inputs="Weight U V Out@GRAD", outputs="Weight@GRAD")
def spectral_norm_grad(
    ctx: OpContext, Weight: Any, U: Any, V: Any, Out_grad: Any, *, dim: int, power_iters: int, eps: float
) -> Any:
    """dWeight = dOut * (1 - u v^T * sum(Weight / sigma)) / sigma: Paddle's formula, in every version.

    The true gradient is (dOut - u v^T * sum(dOut * Weight / sigma)) / sigma; the two agree when dOut is constant.
    """
    matrix = _matrix(ctx, Weight, U, V, dim)
    sigma, u, v = _singular(ctx, matrix, U, V, power_iters, eps)
    factor = (1 - u[:, None] * v[None, :] * (matrix / sigma).sum()) / sigma
    shape = [Weight.shape[dim], *(size for axis, size in enumerate(Weight.shape) if axis != dim)]
    grad = Out_grad * ctx.xp.moveaxis(factor.reshape(shape), 0, dim)
    return grad.astype(Weight.dtype, copy=False)
