"""mul: a matrix product of two tensors that are flattened to matrices first."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ir.operator import Operator
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.matrix_common import multiplied
from fluidtool.ops.multiply_adds import Shapes
from fluidtool.ops.quantize.eight_bits import is_8_bits, stored, whole_weights
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta, floats
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text

ATTRS: dict[str, Any] = {
    "x_num_col_dims": 1,
    "y_num_col_dims": 1,
    "scale_x": 1.0,
    "scale_y": floats(1.0),
    "scale_out": 1.0,
    "force_fp32_output": False,
    **USE_MKLDNN,
}


def _multiply_adds(op: Operator, shape: Shapes) -> int:
    """X flattened to [rows, depth] times Y flattened to [depth, columns]."""
    x, y = shape("X"), shape("Y")
    return prod(x) * prod(y[int(op.get_attr("y_num_col_dims", 1)) :])


@op("mul", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X", traits=Traits(weight="Y"), multiply_adds=_multiply_adds)
def mul(ctx: OpContext, X: Any, Y: Any, *, x_num_col_dims: int, y_num_col_dims: int) -> Any:
    """X · Y, X flattened before dimension `x_num_col_dims`, Y before `y_num_col_dims` (Paddle 1.8.5 mul_op.cc).

    Out has X's first x_num_col_dims dimensions followed by Y's from y_num_col_dims on. X may be of 8 bits, behind `quantize`.
    """
    shape = X.shape[:x_num_col_dims] + Y.shape[y_num_col_dims:]
    if is_8_bits(X):
        return _of_8_bits(ctx, X, Y, x_num_col_dims, y_num_col_dims).reshape(shape)
    x, y = _matrices(ctx, X, Y, x_num_col_dims, y_num_col_dims)
    return multiplied(x, y).reshape(shape)


def _of_8_bits(ctx: OpContext, X: Any, Y: Any, x_cols: int, y_cols: int) -> Any:
    """The same in whole numbers: Y times scale_y is rounded, the sums are scaled (Paddle 1.8.5 mkldnn/mul_mkldnn_op.cc)."""
    single = ctx.np.float32
    weights = ctx.array(single(ctx.attr("scale_y")))
    out = None if ctx.attr("force_fp32_output") else single(ctx.attr("scale_out"))
    if weights.size not in (1, prod(Y.shape[y_cols:])) or not ((weights != 0).all() and ctx.attr("scale_x")):
        raise ctx.error(
            f"scale_x must be a number and scale_y one or {prod(Y.shape[y_cols:])} numbers, none of them 0; found "
            f"{ctx.attr('scale_x')} and {ctx.attr('scale_y')}"
        )
    x, y = _matrices(ctx, X.astype("float64"), Y.astype("float64"), x_cols, y_cols)  # exact
    sums = (x @ whole_weights(ctx.xp, y, weights)).astype("float32")
    return stored(ctx.xp, sums * ((1 if out is None else out) / (single(ctx.attr("scale_x")) * weights)), out, False)


@mul.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta, *, x_num_col_dims: int, y_num_col_dims: int) -> TensorMeta:
    _check_ranks(ctx, X.shape, Y.shape, x_num_col_dims, y_num_col_dims)
    inner = (X.shape[x_num_col_dims:], Y.shape[:y_num_col_dims])
    if all(size >= 0 for sizes in inner for size in sizes):
        _check_inner(ctx, X.shape, Y.shape, prod(inner[0]), prod(inner[1]))
    return X.with_shape(X.shape[:x_num_col_dims] + Y.shape[y_num_col_dims:])


@mul.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD")
def mul_grad(
    ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, x_num_col_dims: int, y_num_col_dims: int
) -> dict[str, Any]:
    """dX = dOut · Yᵀ, dY = Xᵀ · dOut; each has the LoD of its variable when running, not when built (mul_op.h)."""
    for slot in ("X", "Y"):
        if ctx.wants(f"{slot}@GRAD"):
            ctx.set_lod(f"{slot}@GRAD", ctx.lod(slot))
    x, y = _matrices(ctx, X, Y, x_num_col_dims, y_num_col_dims)
    grad = Out_grad.reshape(x.shape[0], y.shape[1])
    return {
        "X@GRAD": multiplied(grad, y.T).reshape(X.shape) if ctx.wants("X@GRAD") else None,
        "Y@GRAD": multiplied(x.T, grad).reshape(Y.shape) if ctx.wants("Y@GRAD") else None,
    }


@mul_grad.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """mul_grad -> mul_grad_grad (mul_op.cc): X and Y get gradients by way of each other's, if mul_grad gives these."""
    ddx, ddy = context.output_grad("X@GRAD"), context.output_grad("Y@GRAD")
    inputs = {
        "X": context.input("X"),
        "Y": context.input("Y"),
        "DOut": context.input("Out@GRAD"),
        "DDX": ddx,
        "DDY": ddy,
    }
    outputs = {
        "DDOut": context.input_grad("Out@GRAD") if ddx or ddy else [],
        "DX": context.input_grad("X") if ddy else [],
        "DY": context.input_grad("Y") if ddx else [],
    }
    return [context.describe("mul_grad_grad", inputs, outputs)]


@op("mul_grad_grad", inputs="X Y DOut DDX? DDY?", outputs="DDOut DX DY", attrs=ATTRS)
def mul_grad_grad(
    ctx: OpContext, X: Any, Y: Any, DOut: Any, DDX: Any, DDY: Any, *, x_num_col_dims: int, y_num_col_dims: int
) -> dict[str, Any]:
    """ddOut = ddX · Y + X · ddY, dX = dOut · ddYᵀ, dY = ddXᵀ · dOut.

    An absent second gradient counts as zeros in ddOut; the gradient that is made of it alone is empty (mul_op.h leaves
    it without memory, and sum skips it).
    """
    x, y = _matrices(ctx, X, Y, x_num_col_dims, y_num_col_dims)
    grad = DOut.reshape(x.shape[0], y.shape[1])
    empty = ctx.xp.zeros((0,), X.dtype)
    second = ctx.xp.zeros_like(grad)
    out = {"DX": empty, "DY": empty}
    if DDX is not None:
        second = second + multiplied(DDX.reshape(x.shape), y)
        out["DY"] = multiplied(DDX.reshape(x.shape).T, grad).reshape(Y.shape)
    if DDY is not None:
        second = second + multiplied(x, DDY.reshape(y.shape))
        out["DX"] = multiplied(grad, DDY.reshape(y.shape).T).reshape(X.shape)
    return out | {"DDOut": second.reshape(DOut.shape)}


@mul_grad_grad.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Y: TensorMeta,
    DOut: TensorMeta,
    DDX: TensorMeta | None,
    DDY: TensorMeta | None,
) -> dict[str, TensorMeta]:
    return {"DDOut": DOut, "DX": X, "DY": Y}


def _matrices(ctx: OpContext, X: Any, Y: Any, x_cols: int, y_cols: int) -> tuple[Any, Any]:
    if X.dtype != Y.dtype:
        raise ctx.error(f"X is {X.dtype} and Y is {Y.dtype}; both must be of one data type: insert a cast")
    rows, columns = ctx.settled((X.shape, Y.shape), lambda: _shapes(ctx, X.shape, Y.shape, x_cols, y_cols))
    return X.reshape(rows), Y.reshape(columns)


def _shapes(
    ctx: OpContext, x: tuple[int, ...], y: tuple[int, ...], x_cols: int, y_cols: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    _check_ranks(ctx, x, y, x_cols, y_cols)
    inner = prod(x[x_cols:])
    _check_inner(ctx, x, y, inner, prod(y[:y_cols]))
    return (prod(x[:x_cols]), inner), (inner, prod(y[y_cols:]))


def _check_ranks(
    ctx: OpContext | InferContext, x: tuple[int, ...], y: tuple[int, ...], x_cols: int, y_cols: int
) -> None:
    for slot, shape, cols in (("X", x, x_cols), ("Y", y, y_cols)):
        if not 0 < cols < len(shape):
            raise ctx.error(
                f"{slot} of shape {shape_text(shape)} must have more than {slot.lower()}_num_col_dims = {cols} dimensions"
            )


def _check_inner(ctx: OpContext | InferContext, x: tuple[int, ...], y: tuple[int, ...], inner: int, other: int) -> None:
    if inner != other:
        raise ctx.error(
            f"X of shape {shape_text(x)} flattens to {inner} columns, "
            f"Y of shape {shape_text(y)} to {other} rows; they must be equal"
        )
