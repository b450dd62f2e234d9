"""matmul: the batched matrix product of Paddle 1.x."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.matrix_common import multiplied, product, product_grads, transposed
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.multiply_adds import matmul_multiply_adds
from fluidtool.ops.quantize.eight_bits import is_8_bits, stored
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta, ints
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text

Shape = tuple[int, ...]


@op(
    "matmul",
    inputs="X Y",
    outputs="Out",
    attrs={
        "transpose_X": False,
        "transpose_Y": False,
        "alpha": 1.0,
        "fused_reshape_Out": ints(),
        "fused_transpose_Out": ints(),
        "use_quantizer": False,
        "Scale_x": 1.0,
        "Scale_y": 1.0,
        "Scale_out": 1.0,
        "force_fp32_output": False,
        "head_number": 1,
        **USE_MKLDNN,
    },
    lod="X",
    traits=Traits(weight="Y"),
    multiply_adds=matmul_multiply_adds,
)
def matmul(ctx: OpContext, X: Any, Y: Any, *, transpose_X: bool, transpose_Y: bool, alpha: float) -> Any:
    """alpha * X · Y over the last two dimensions, either one transposed on demand (Paddle 1.8.5 matmul_op.cc).

    A vector X counts as a row, a vector Y as a column. Batches must be equal, or one side a single matrix. By heads, X is cut
    into columns, and Y into rows, or into columns where it has only as many rows as a head of X has columns.
    """
    heads = ctx.attr("head_number")
    shape = ctx.settled((X.shape, Y.shape), lambda: _out_shape(ctx, X.shape, Y.shape, transpose_X, transpose_Y, heads))
    x, y = _matrices(ctx, X, Y)
    if is_8_bits(X):
        x, y = x.astype("float64"), y.astype("float64")  # exact
    multiply = product if heads <= 1 else partial(_by_heads, ctx, heads)
    out = multiply(transposed(x, transpose_X), transposed(y, transpose_Y))
    if is_8_bits(X):
        out = _scaled(ctx, out, alpha)
    elif alpha != 1:
        out = out * out.dtype.type(alpha)
    out = out.reshape(shape)
    if ctx.attr("fused_transpose_Out"):
        out = out.transpose(ctx.attr("fused_transpose_Out"))
    if ctx.attr("fused_reshape_Out"):
        out = out.reshape([out.shape[i] if size == 0 else size for i, size in enumerate(ctx.attr("fused_reshape_Out"))])
    return out


def _scaled(ctx: OpContext, sums: Any, alpha: float) -> Any:
    """Sums of products of 8 bits as the operator stores them (Paddle 1.8.5 mkldnn/matmul_mkldnn_op.cc)."""
    single = ctx.np.float32
    out = None if ctx.attr("force_fp32_output") else single(ctx.attr("Scale_out"))
    factor = single(alpha) * (1 if out is None else out) / (single(ctx.attr("Scale_x")) * single(ctx.attr("Scale_y")))
    return stored(ctx.xp, sums.astype("float32") * factor, out, False)


def _by_heads(ctx: OpContext, heads: int, x: Any, y: Any) -> Any:
    """Columns of X and rows or columns of Y cut into `heads` parts; the products of the parts side by side."""
    axis = -2 if y.shape[-2] == x.shape[-1] else -1
    parts = zip(ctx.xp.split(x, heads, axis=-1), ctx.xp.split(y, heads, axis=axis), strict=True)
    return ctx.xp.concatenate([multiplied(a, b) for a, b in parts], axis=-1)


@matmul.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta, *, transpose_X: bool, transpose_Y: bool) -> TensorMeta:
    return X.with_shape(_out_shape(ctx, X.shape, Y.shape, transpose_X, transpose_Y, ctx.attr("head_number")))


@matmul.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD")
def matmul_grad(
    ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, transpose_X: bool, transpose_Y: bool, alpha: float
) -> dict[str, Any]:
    """dX = alpha * dOut · Yᵀ, dY = alpha * Xᵀ · dOut, each turned back if it was transposed."""
    if ctx.attr("head_number") > 1:
        raise ctx.error("the gradient by heads (head_number > 1) is not supported")
    _out_shape(ctx, X.shape, Y.shape, transpose_X, transpose_Y)
    x, y = _matrices(ctx, X, Y)
    batch = x.shape[:-2] or y.shape[:-2]
    rows, columns = transposed(x, transpose_X).shape[-2], transposed(y, transpose_Y).shape[-1]
    grad = Out_grad.reshape(*batch, rows, columns)
    if alpha != 1:
        grad = grad * grad.dtype.type(alpha)
    wants_x, wants_y = ctx.wants("X@GRAD"), ctx.wants("Y@GRAD")
    x_grad, y_grad = product_grads(x, y, grad, transpose_X, transpose_Y, wants_x, wants_y)
    return {
        "X@GRAD": x_grad.reshape(X.shape) if wants_x else None,
        "Y@GRAD": y_grad.reshape(Y.shape) if wants_y else None,
    }


def _matrices(ctx: OpContext, X: Any, Y: Any) -> tuple[Any, Any]:
    """X and Y, whose shapes fit, as stacks of matrices with compatible batches."""
    if X.dtype != Y.dtype:
        raise ctx.error(f"X is {X.dtype} and Y is {Y.dtype}; both must be of one data type: insert a cast")
    x = X.reshape(1, -1) if X.ndim == 1 else X
    y = Y.reshape(-1, 1) if Y.ndim == 1 else Y
    if x.ndim > 2 and y.ndim > 2 and x.shape[:-2] != y.shape[:-2]:
        y = y.reshape(*x.shape[:-2], *y.shape[-2:])
    return x, y


def _out_shape(
    ctx: OpContext | InferContext, x: Shape, y: Shape, transpose_x: bool, transpose_y: bool, heads: int = 1
) -> Shape:
    if not (x and y):
        raise ctx.error(f"X and Y must have at least 1 dimension, found shapes {shape_text(x)} and {shape_text(y)}")
    rows = (1, x[0]) if len(x) == 1 else x
    columns = (y[0], 1) if len(y) == 1 else y
    height, inner = (rows[-1], rows[-2]) if transpose_x else (rows[-2], rows[-1])
    other, width = (columns[-1], columns[-2]) if transpose_y else (columns[-2], columns[-1])
    if heads > 1:
        other, width = _for_heads(ctx, inner, other, width, heads)
    if inner != other and -1 not in (inner, other):
        raise ctx.error(
            f"the columns of X {shape_text(x)} ({inner}) and the rows of Y {shape_text(y)} ({other}) must be equal in number; "
            f"transpose_X is {transpose_x}, transpose_Y is {transpose_y}"
        )
    x_batch, y_batch = rows[:-2], columns[:-2]
    unknown = any(size < 0 for size in x_batch + y_batch)
    if not (not x_batch or not y_batch or unknown or prod(x_batch) == prod(y_batch)):
        raise ctx.error(
            f"the batches of X {shape_text(x)} and of Y {shape_text(y)} must be equal, or one of them a single matrix"
        )
    out = [*(x_batch or y_batch), height, width]
    if len(x) == 1 and out[-2] == 1:
        out.pop(-2)
    if len(y) == 1 and out[-1] == 1:
        out.pop(-1)
    return tuple(out) or scalar_shape(ctx)


def _for_heads(ctx: OpContext | InferContext, inner: int, other: int, width: int, heads: int) -> tuple[int, int]:
    """The rows that Y has for all heads, and the columns of Out; from the columns of X and the rows and columns of Y."""
    if inner != -1 and inner % heads:
        raise ctx.error(f"head_number {heads} must divide the {inner} columns of X")
    if -1 in (inner, other, width):
        return other, -1
    if inner == other * heads and width % heads == 0:
        return inner, width
    return other, width * heads
