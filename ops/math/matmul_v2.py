"""The matrix products of Paddle 2.x: matmul_v2, mv; and bmm, which 1.8 has too."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.matrix_common import multiplied, product, product_grads, transposed
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.multiply_adds import matmul_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text

Shape = tuple[int, ...]


@op(
    "matmul_v2",
    inputs="X Y",
    outputs="Out",
    attrs={"trans_x": False, "trans_y": False},
    lod="X",
    traits=Traits(weight="Y"),
    multiply_adds=matmul_multiply_adds,
)
def matmul_v2(ctx: OpContext, X: Any, Y: Any, *, trans_x: bool, trans_y: bool) -> Any:
    """X · Y over the last two dimensions, batches broadcast; vectors are rows on the left and columns on the right."""
    x, y = _matrices(ctx, X, Y)
    shape = _out_shape(ctx, X.shape, Y.shape, trans_x, trans_y)
    return product(transposed(x, trans_x and X.ndim > 1), transposed(y, trans_y and Y.ndim > 1)).reshape(shape)


@matmul_v2.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta, *, trans_x: bool, trans_y: bool) -> TensorMeta:
    return X.with_shape(_out_shape(ctx, X.shape, Y.shape, trans_x, trans_y))


@matmul_v2.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD")
def matmul_v2_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, trans_x: bool, trans_y: bool) -> dict[str, Any]:
    """dX = dOut · Yᵀ, dY = Xᵀ · dOut, summed over the batches along which they were repeated."""
    x, y = _matrices(ctx, X, Y)
    flip_x, flip_y = trans_x and X.ndim > 1, trans_y and Y.ndim > 1
    a, b = transposed(x, flip_x), transposed(y, flip_y)
    batch = _broadcast_batch(ctx, a.shape, b.shape)
    grad = Out_grad.reshape(*batch, a.shape[-2], b.shape[-1])
    wants_x, wants_y = ctx.wants("X@GRAD"), ctx.wants("Y@GRAD")
    x_grad, y_grad = product_grads(x, y, grad, flip_x, flip_y, wants_x, wants_y)
    return {
        "X@GRAD": x_grad.reshape(X.shape) if wants_x else None,
        "Y@GRAD": y_grad.reshape(Y.shape) if wants_y else None,
    }


def _matrices(ctx: OpContext, X: Any, Y: Any) -> tuple[Any, Any]:
    if X.dtype != Y.dtype:
        raise ctx.error(f"X is {X.dtype} and Y is {Y.dtype}; both must be of one data type: insert a cast")
    if not (X.ndim and Y.ndim):
        raise ctx.error(f"X and Y must have dimensions, found shapes {shape_text(X.shape)} and {shape_text(Y.shape)}")
    return X.reshape(1, -1) if X.ndim == 1 else X, Y.reshape(-1, 1) if Y.ndim == 1 else Y


def _out_shape(ctx: OpContext | InferContext, x: Shape, y: Shape, trans_x: bool, trans_y: bool) -> Shape:
    rows = (1, *x) if len(x) == 1 else (*x[:-2], x[-1], x[-2]) if trans_x else x
    columns = (*y, 1) if len(y) == 1 else (*y[:-2], y[-1], y[-2]) if trans_y else y
    inner, other = rows[-1], columns[-2]
    if inner != other and -1 not in (inner, other):
        raise ctx.error(
            f"the columns of X {shape_text(x)} ({inner}) and the rows of Y {shape_text(y)} ({other}) must be equal in number; "
            f"trans_x is {trans_x}, trans_y is {trans_y}"
        )
    out = _broadcast_batch(ctx, rows, columns)
    out += (rows[-2],) if len(x) > 1 else ()
    out += (columns[-1],) if len(y) > 1 else ()
    return out or scalar_shape(ctx)


def _broadcast_batch(ctx: OpContext | InferContext, x: Shape, y: Shape) -> Shape:
    """The batch dimensions of the product of two stacks of matrices."""
    rank = max(len(x), len(y)) - 2
    a, b = (1,) * (rank + 2 - len(x)) + x[:-2], (1,) * (rank + 2 - len(y)) + y[:-2]
    fits = all(p == q or 1 in (p, q) or -1 in (p, q) for p, q in zip(a, b, strict=True))
    if not fits:
        raise ctx.error(
            f"the batches of matrices of shapes {shape_text(x)} and {shape_text(y)} do not broadcast together"
        )
    return tuple(q if p == 1 else p if q == 1 else max(p, q) for p, q in zip(a, b, strict=True))


@op("mv", inputs="X Vec", outputs="Out")
def mv(ctx: OpContext, X: Any, Vec: Any) -> Any:
    """The matrix X [rows, n] times the vector Vec [n] (Paddle 2.x)."""
    _check_vector(ctx, X.shape, Vec.shape)
    return multiplied(X, Vec)


@mv.infer
def _(ctx: InferContext, X: TensorMeta, Vec: TensorMeta) -> TensorMeta:
    _check_vector(ctx, X.shape, Vec.shape)
    return X.with_shape(X.shape[:1])


@mv.grad(inputs="X Vec Out@GRAD", outputs="X@GRAD Vec@GRAD")
def mv_grad(ctx: OpContext, X: Any, Vec: Any, Out_grad: Any) -> dict[str, Any]:
    """dX = dOut outer Vec, dVec = Xᵀ · dOut."""
    return {"X@GRAD": Out_grad[:, None] * Vec, "Vec@GRAD": multiplied(X.T, Out_grad)}


def _check_vector(ctx: OpContext | InferContext, x: Shape, vec: Shape) -> None:
    fits = len(x) == 2 and len(vec) == 1 and (x[1] == vec[0] or -1 in (x[1], vec[0]))
    if not fits:
        raise ctx.error(
            f"X must be a matrix and Vec as long as its rows, found shapes {shape_text(x)} and {shape_text(vec)}"
        )


@op(
    "bmm", inputs="X Y", outputs="Out", lod="X", traits=Traits(gradient_scope=False), multiply_adds=matmul_multiply_adds
)
def bmm(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Each X [batch, rows, inner] times its Y [batch, inner, columns] (bmm_op.cc)."""
    _check_batches(ctx, X.shape, Y.shape)
    return multiplied(X, Y)


@bmm.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    _check_batches(ctx, X.shape, Y.shape)
    return X.with_shape((X.shape[0], X.shape[1], Y.shape[2]))


@bmm.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD")
def bmm_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any) -> dict[str, Any]:
    """dX = dOut · Yᵀ, dY = Xᵀ · dOut."""
    return {"X@GRAD": multiplied(Out_grad, Y.swapaxes(1, 2)), "Y@GRAD": multiplied(X.swapaxes(1, 2), Out_grad)}


def _check_batches(ctx: OpContext | InferContext, x: Shape, y: Shape) -> None:
    fits = len(x) == len(y) == 3 and all(p == q or -1 in (p, q) for p, q in ((x[0], y[0]), (x[2], y[1])))
    if not fits:
        raise ctx.error(
            f"X must be (batch, rows, inner) and Y (batch, inner, columns), found shapes {shape_text(x)} and {shape_text(y)}"
        )
