"""Products of vectors and matrices other than matmul: dot, addmm, kron, cross, bilinear forms, fsp."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.matrix_common import multiplied, summed_batches
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.multiply_adds import rows_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.shapes import shape_text

Shape = tuple[int, ...]


@op("dot", inputs="X Y", outputs="Out")
def dot(ctx: OpContext, X: Any, Y: Any) -> Any:
    """sum(X * Y) over the last dimension of vectors or stacks of them, which stays with size 1 (dot_op.h).

    From Paddle 2.5 on the last dimension goes.
    """
    _check_dot(ctx, X.shape, Y.shape)
    return (X * Y).sum(axis=-1, keepdims=not saved_since(ctx, 2, 5), dtype=X.dtype)


@dot.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    _check_dot(ctx, X.shape, Y.shape)
    return TensorMeta(X.shape[:-1] + (() if saved_since(ctx, 2, 5) else (1,)), X.dtype)


@dot.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod="X->X@GRAD Y->Y@GRAD")
def dot_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any) -> dict[str, Any]:
    """dX = dOut * Y, dY = dOut * X."""
    grad = Out_grad.reshape(*X.shape[:-1], 1)
    return {"X@GRAD": grad * Y, "Y@GRAD": grad * X}


def _check_dot(ctx: OpContext | InferContext, x: Shape, y: Shape) -> None:
    fits = len(x) == len(y) and 1 <= len(x) <= 2 and all(a == b or -1 in (a, b) for a, b in zip(x, y, strict=True))
    if not fits:
        raise ctx.error(
            f"X and Y must be vectors, or stacks of them, of one shape; found {shape_text(x)} and {shape_text(y)}"
        )


@op("addmm", inputs="Input X Y", outputs="Out", attrs={"Alpha": 1.0, "Beta": 1.0, **USE_MKLDNN})
def addmm(ctx: OpContext, Input: Any, X: Any, Y: Any, *, Alpha: float, Beta: float) -> Any:
    """Beta * Input + Alpha * X · Y of matrices; Input broadcasts to the product (addmm_op.h)."""
    shape = _addmm_shape(ctx, Input.shape, X.shape, Y.shape)
    if not Input.dtype == X.dtype == Y.dtype:
        raise ctx.error(f"dtypes must agree, found {Input.dtype}, {X.dtype}, {Y.dtype}")
    return (multiplied(X, Y) * X.dtype.type(Alpha) + Input * X.dtype.type(Beta)).reshape(shape)


@addmm.infer
def _(ctx: InferContext, Input: TensorMeta, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return Input.with_shape(_addmm_shape(ctx, Input.shape, X.shape, Y.shape))


@addmm.grad(
    inputs="Input X Y Out@GRAD", outputs="Input@GRAD X@GRAD Y@GRAD", lod="Out@GRAD->Input@GRAD X->X@GRAD Y->Y@GRAD"
)
def addmm_grad(
    ctx: OpContext, Input: Any, X: Any, Y: Any, Out_grad: Any, *, Alpha: float, Beta: float
) -> dict[str, Any]:
    """dInput = Beta * dOut, summed where Input was repeated; dX = Alpha * dOut · Yᵀ, dY = Alpha * Xᵀ · dOut."""
    grad = Out_grad * X.dtype.type(Alpha)
    return {
        "Input@GRAD": summed_batches(Out_grad * X.dtype.type(Beta), Input.shape),
        "X@GRAD": multiplied(grad, Y.T),
        "Y@GRAD": multiplied(X.T, grad),
    }


def _addmm_shape(ctx: OpContext | InferContext, given: Shape, x: Shape, y: Shape) -> Shape:
    matrices = len(x) == len(y) == 2 and 1 <= len(given) <= 2 and (x[1] == y[0] or -1 in (x[1], y[0]))
    out = (x[0], y[1]) if matrices else ()
    fits = matrices and all(a in (1, -1, b) or b == -1 for a, b in zip(given[::-1], out[::-1], strict=False))
    if not fits:
        raise ctx.error(
            f"Input {shape_text(given)} must broadcast to the product of matrices X {shape_text(x)} and Y {shape_text(y)}"
        )
    return out


@op("kron", inputs="X Y", outputs="Out")
def kron(ctx: OpContext, X: Any, Y: Any) -> Any:
    """The Kronecker product: every element of X times the whole of Y, dimension by dimension (kron_op.h)."""
    if X.dtype != Y.dtype:
        raise ctx.error(f"X is {X.dtype} and Y is {Y.dtype}; both must be of one data type")
    x, y = _same_rank(X.shape, Y.shape)
    out = X.reshape(_interleaved(x, (1,) * len(y))) * Y.reshape(_interleaved((1,) * len(x), y))
    return out.reshape([a * b for a, b in zip(x, y, strict=True)])


@kron.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    x, y = _same_rank(X.shape, Y.shape)
    return X.with_shape([-1 if -1 in (a, b) else a * b for a, b in zip(x, y, strict=True)])


@kron.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD")
def kron_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any) -> dict[str, Any]:
    """dX = the sum of dOut * Y over Y's positions, dY = the sum of dOut * X over X's positions."""
    x, y = _same_rank(X.shape, Y.shape)
    rank = len(x)
    grad = Out_grad.reshape(_interleaved(x, y))
    of_x = grad * Y.reshape(_interleaved((1,) * rank, y))
    of_y = grad * X.reshape(_interleaved(x, (1,) * rank))
    return {
        "X@GRAD": of_x.sum(axis=tuple(range(1, 2 * rank, 2)), dtype=X.dtype).reshape(X.shape),
        "Y@GRAD": of_y.sum(axis=tuple(range(0, 2 * rank, 2)), dtype=X.dtype).reshape(Y.shape),
    }


def _same_rank(x: Shape, y: Shape) -> tuple[Shape, Shape]:
    rank = max(len(x), len(y))
    return (1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y


def _interleaved(x: Shape, y: Shape) -> list[int]:
    return [size for pair in zip(x, y, strict=True) for size in pair]


@op("cross", inputs="X Y", outputs="Out", attrs={"dim": 9}, lod="X")
def cross(ctx: OpContext, X: Any, Y: Any, *, dim: int) -> Any:
    """The cross product along dimension `dim` of size 3; 9 means the first one of that size (cross_op.h)."""
    return _crossed(ctx, X, Y, _cross_dim(ctx, X.shape, Y.shape, dim))


@cross.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta, *, dim: int) -> TensorMeta:
    _check_cross(ctx, X.shape, Y.shape, dim)
    return X


@cross.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD")
def cross_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, dim: int) -> dict[str, Any]:
    """dX = Y × dOut, dY = dOut × X."""
    axis = _cross_dim(ctx, X.shape, Y.shape, dim)
    return {"X@GRAD": _crossed(ctx, Y, Out_grad, axis), "Y@GRAD": _crossed(ctx, Out_grad, X, axis)}


def _crossed(ctx: OpContext, a: Any, b: Any, axis: int) -> Any:
    a0, a1, a2 = ctx.xp.moveaxis(a, axis, 0)
    b0, b1, b2 = ctx.xp.moveaxis(b, axis, 0)
    return ctx.xp.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=axis)


def _cross_dim(ctx: OpContext, x: Shape, y: Shape, dim: int) -> int:
    _check_cross(ctx, x, y, dim)
    if dim == 9:
        return x.index(3)
    return dim % len(x)


def _check_cross(ctx: OpContext | InferContext, x: Shape, y: Shape, dim: int) -> None:
    """Fail unless X and Y may be of one shape with a dimension `dim` of size 3."""
    if not may_be_same(x, y):
        raise ctx.error(f"X and Y must have one shape, found {shape_text(x)} and {shape_text(y)}")
    if dim == 9:
        if not {3, -1} & set(x):
            raise ctx.error(f"X of shape {shape_text(x)} has no dimension of size 3 for a cross product")
        return
    if not -len(x) <= dim < len(x):
        raise ctx.error(f"dim {dim} is out of range for X of shape {shape_text(x)}")
    if x[dim] not in (3, -1):
        raise ctx.error(f"dimension {dim} of X {shape_text(x)} must be of size 3 for a cross product")


@op(
    "bilinear_tensor_product",
    inputs="X Y Weight Bias?",
    outputs="Out",
    lod="X",
    multiply_adds=rows_multiply_adds("X", "Weight"),
)
def bilinear_tensor_product(ctx: OpContext, X: Any, Y: Any, Weight: Any, Bias: Any) -> Any:
    """Out[n, k] = X[n] · Weight[k] · Y[n] + Bias[k] (bilinear_tensor_product_op.h).

    X [rows, m], Y [rows, n], Weight [size, m, n], Bias [1, size]; Out [rows, size].
    """
    _check_bilinear(ctx, X.shape, Y.shape, Weight.shape)
    size, m, n = Weight.shape
    left = (X @ Weight.transpose(1, 0, 2).reshape(m, size * n)).reshape(-1, size, n)
    out = (left @ Y[:, :, None])[:, :, 0]
    return out if Bias is None else out + Bias.reshape(1, size)


@bilinear_tensor_product.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta, Weight: TensorMeta, Bias: TensorMeta | None) -> TensorMeta:
    _check_bilinear(ctx, X.shape, Y.shape, Weight.shape)
    return X.with_shape((X.shape[0], Weight.shape[0]))


@bilinear_tensor_product.grad(inputs="X Y Weight Out@GRAD", outputs="X@GRAD Y@GRAD Weight@GRAD Bias@GRAD?")
def bilinear_tensor_product_grad(ctx: OpContext, X: Any, Y: Any, Weight: Any, Out_grad: Any) -> dict[str, Any]:
    """dX[n] = Σ dOut[n, k] Weight[k] · Y[n], dY and dWeight likewise, dBias = the sum of dOut over the rows."""
    size, m, n = Weight.shape
    of_weight = (Out_grad @ Weight.reshape(size, m * n)).reshape(-1, m, n)
    scaled = (Out_grad[:, :, None] * X[:, None, :]).reshape(X.shape[0], size * m)
    return {
        "X@GRAD": (of_weight @ Y[:, :, None])[:, :, 0],
        "Y@GRAD": (X[:, None, :] @ of_weight)[:, 0, :],
        "Weight@GRAD": (scaled.T @ Y).reshape(Weight.shape),
        "Bias@GRAD": Out_grad.sum(axis=0, keepdims=True, dtype=Out_grad.dtype),
    }


def _check_bilinear(ctx: OpContext | InferContext, x: Shape, y: Shape, weight: Shape) -> None:
    fits = len(x) == len(y) == 2 and len(weight) == 3 and (x[0] == y[0] or -1 in (x[0], y[0]))
    if not (fits and x[1] in (-1, weight[1]) and y[1] in (-1, weight[2])):
        raise ctx.error(
            f"X (rows, m), Y (rows, n) and Weight (size, m, n) must fit, "
            f"found {shape_text(x)}, {shape_text(y)}, {shape_text(weight)}"
        )


@op("fsp", inputs="X Y", outputs="Out")
def fsp(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Out[n, i, j] = the mean over pixels of X[n, i] * Y[n, j], for distillation (fsp_op.h).

    X [batch, i, height, width], Y [batch, j, height, width]; Out [batch, i, j].
    """
    _check_fsp(ctx, X.shape, Y.shape)
    x, y = X.reshape(*X.shape[:2], -1), Y.reshape(*Y.shape[:2], -1)
    return x @ y.swapaxes(1, 2) / X.dtype.type(x.shape[2])


@fsp.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    _check_fsp(ctx, X.shape, Y.shape)
    return X.with_shape((X.shape[0], X.shape[1], Y.shape[1]))


@fsp.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD")
def fsp_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any) -> dict[str, Any]:
    """dX = dOut · Y / pixels, dY = dOutᵀ · X / pixels."""
    x, y = X.reshape(*X.shape[:2], -1), Y.reshape(*Y.shape[:2], -1)
    grad = Out_grad / X.dtype.type(x.shape[2])
    return {"X@GRAD": (grad @ y).reshape(X.shape), "Y@GRAD": (grad.swapaxes(1, 2) @ x).reshape(Y.shape)}


def _check_fsp(ctx: OpContext | InferContext, x: Shape, y: Shape) -> None:
    fits = len(x) == len(y) == 4 and x[2:] == y[2:] and (x[0] == y[0] or -1 in (x[0], y[0]))
    if not fits:
        raise ctx.error(
            f"X and Y must both be (batch, channels, height, width), found {shape_text(x)} and {shape_text(y)}"
        )
