"""partial_concat, partial_sum: the same columns of several matrices; coalesce_tensor: tensors side by side."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, USE_MKLDNN, TensorMeta, required
from fluidtool.ops.tensor.arguments import Context, axis_in, same_dtype
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shapes_text

COLUMNS = {"start_index": 0, "length": -1}
CHUNK_BYTES = 4096


def _columns(ctx: Context, shapes: list[tuple[int, ...]], start_index: int, length: int) -> slice:
    """The range of columns that is taken from every matrix."""
    if not shapes:
        raise ctx.error("X must have at least one tensor")
    if not all(len(shape) == 2 for shape in shapes):
        raise ctx.error(f"X must be matrices, found shapes {shapes_text(shapes)}")
    known = {shape for shape in shapes if min(shape) >= 0}
    if len(known) > 1:
        raise ctx.error(f"the matrices of X must have one shape, found {shapes_text(sorted(known))}")
    width = shapes[0][1]
    start = axis_in(ctx, start_index, width, "start_index")
    stop = width if length < 0 else start + length
    if stop > width:
        raise ctx.error(f"columns {start} to {stop} are requested, but X has {width} columns")
    return slice(start, stop)


def _shapes(X: list[Any]) -> list[tuple[int, ...]]:
    return [tuple(x.shape) for x in X]


@op("partial_concat", inputs="X*", outputs="Out", attrs=COLUMNS, lod="X", traits=Traits(gradient_scope=False))
def partial_concat(ctx: OpContext, X: list[Any], *, start_index: int, length: int) -> Any:
    """`length` columns (-1: the rest) from start_index on of every matrix X, side by side (1.8.5 partial_concat_op.h)."""
    columns = _columns(ctx, _shapes(X), start_index, length)
    same_dtype(ctx, X[0], X, "the matrices of X")
    return ctx.xp.concatenate([x[:, columns] for x in X], axis=1)


@partial_concat.infer
def _(ctx: InferContext, X: list[TensorMeta], *, start_index: int, length: int) -> TensorMeta:
    columns = _columns(ctx, _shapes(X), start_index, length)
    return X[0].with_shape((X[0].shape[0], (columns.stop - columns.start) * len(X)))


@op("partial_concat_grad", inputs="X* Out@GRAD", outputs="X@GRAD*", attrs=COLUMNS)
def partial_concat_grad(ctx: OpContext, X: list[Any], Out_grad: Any, *, start_index: int, length: int) -> Any:
    """Each matrix gets its columns of dOut, zeros elsewhere."""
    columns = _columns(ctx, _shapes(X), start_index, length)
    width = columns.stop - columns.start
    return {"X@GRAD": [_widened(ctx, x, Out_grad[:, i * width : (i + 1) * width], columns) for i, x in enumerate(X)]}


def _widened(ctx: OpContext, x: Any, grad: Any, columns: slice) -> Any:
    out = ctx.xp.zeros(x.shape, grad.dtype)
    out[:, columns] = grad
    return out


@partial_concat.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.input("X"), "Out@GRAD": context.output_grad("Out")}
    return [context.describe("partial_concat_grad", inputs, {"X@GRAD": context.input_grad("X", drop_empty=False)})]


@op(
    "partial_sum",
    inputs="X*",
    outputs="Out",
    attrs={**COLUMNS, **USE_MKLDNN},
    lod="X",
    traits=Traits(gradient_scope=False),
)
def partial_sum(ctx: OpContext, X: list[Any], *, start_index: int, length: int) -> Any:
    """The sum of `length` columns (-1: the rest) from start_index on of every matrix X (1.8.5 partial_sum_op.h)."""
    columns = _columns(ctx, _shapes(X), start_index, length)
    same_dtype(ctx, X[0], X, "the matrices of X")
    out = X[0][:, columns]
    for x in X[1:]:
        out = out + x[:, columns]
    return out


@partial_sum.infer
def _(ctx: InferContext, X: list[TensorMeta], *, start_index: int, length: int) -> TensorMeta:
    columns = _columns(ctx, _shapes(X), start_index, length)
    return X[0].with_shape((X[0].shape[0], columns.stop - columns.start))


@op("partial_sum_grad", inputs="X* Out@GRAD", outputs="X@GRAD*", attrs=COLUMNS)
def partial_sum_grad(ctx: OpContext, X: list[Any], Out_grad: Any, *, start_index: int, length: int) -> Any:
    """Each matrix gets dOut in its columns, zeros elsewhere."""
    columns = _columns(ctx, _shapes(X), start_index, length)
    return {"X@GRAD": [_widened(ctx, x, Out_grad, columns) for x in X]}


@partial_sum.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.input("X"), "Out@GRAD": context.output_grad("Out")}
    grads = {"X@GRAD": context.input_grad("X", drop_empty=False)}
    described = context.describe("partial_sum_grad", inputs, grads)
    described.attrs.pop("use_mkldnn", None)
    return [described]


@op(
    "coalesce_tensor",
    inputs="Input*",
    outputs="Output* FusedOutput",
    attrs={"dtype": required(INT), "copy_data": False, "set_constant": False, "constant": 0.0, "check_name": False},
    traits=Traits(memory="view"),
)
def coalesce_tensor(
    ctx: OpContext,
    Input: list[Any],
    *,
    dtype: int,
    copy_data: bool,
    set_constant: bool,
    constant: float,
    check_name: bool,
) -> Any:
    """The tensors Input side by side in FusedOutput, each from a multiple of 4096 bytes on; Output are its pieces.

    copy_data keeps the values, set_constant fills with `constant`; with neither they are zeros (Paddle leaves them as they
    come). Output and FusedOutput do not share memory here. Paddle 1.8.5 coalesce_tensor_op.cc, on the CPU.
    """
    names = ctx.op.input("Input"), ctx.op.output("Output")
    if not len(names[0]) == len(names[1]) > 0:
        raise ctx.error(
            f"Input and Output must have the same number of variables, found {len(names[0])}, {len(names[1])}"
        )
    if check_name and names[0] != names[1]:
        raise ctx.error("check_name requires the same names in Input and Output")
    wanted = ctx.dtype(dtype)
    for x in Input:
        if x.dtype != wanted:
            raise ctx.error(f"Input must be of the data type {wanted} of the attribute dtype, found {x.dtype}")
    chunk = CHUNK_BYTES // wanted.itemsize
    starts, total = [], 0
    for x in Input:
        starts.append(total)
        total += -(-x.size // chunk) * chunk
    fused = ctx.xp.full(total, constant if set_constant else 0, wanted)
    if copy_data:
        for start, x in zip(starts, Input, strict=True):
            fused[start : start + x.size] = x.reshape(-1)
    pieces = [fused[start : start + x.size].reshape(x.shape) for start, x in zip(starts, Input, strict=True)]
    return {"Output": pieces, "FusedOutput": fused}


@coalesce_tensor.infer
def _(ctx: InferContext, Input: list[TensorMeta], *, dtype: int) -> dict[str, Any]:
    return {"Output": Input, "FusedOutput": TensorMeta((-1,), VarType(dtype))}
