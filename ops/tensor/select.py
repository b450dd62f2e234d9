"""index_select, index_sample, multiplex and the 2.x operators that pick and put along an axis or by a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.tensor.arguments import (
    Context,
    axis_in,
    in_range,
    index_grid,
    lod_of_same_rows,
    may_be_same,
    meta_of_same_rows,
    same_dtype,
)
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text, shapes_text


def _check_vector(ctx: Context, index: Sequence[int]) -> None:
    column = len(index) == 2 and index[1] in (1, -1)
    if not (len(index) == 1 or column):
        raise ctx.error(f"Index must have the shape (n,), found {shape_text(index)}")


def _select_where(ctx: OpContext, Index: Any, shape: tuple[int, ...], dim: int) -> tuple[Any, ...]:
    axis = axis_in(ctx, dim, len(shape), "dim")
    _check_vector(ctx, Index.shape)
    in_range(ctx, Index, shape[axis], "Index", f"the size of axis {axis} of X")
    return (*(slice(None),) * axis, Index.reshape(-1))


@op("index_select", inputs="X Index", outputs="Out", attrs={"dim": 0})
def index_select(ctx: OpContext, X: Any, Index: Any, *, dim: int) -> Any:
    """The slices of X at Index along `dim` (Paddle 1.8.5 index_select_op.h)."""
    out = X[_select_where(ctx, Index, X.shape, dim)]
    lod_of_same_rows(ctx, X, out)
    return out


@index_select.infer
def _(ctx: InferContext, X: TensorMeta, Index: TensorMeta, *, dim: int) -> TensorMeta:
    axis = axis_in(ctx, dim, X.rank, "dim")
    _check_vector(ctx, Index.shape)
    return meta_of_same_rows(X, (*X.shape[:axis], Index.shape[0], *X.shape[axis + 1 :]))


@index_select.grad(inputs="X Index Out@GRAD", outputs="X@GRAD", lod="X")
def index_select_grad(ctx: OpContext, X: Any, Index: Any, Out_grad: Any, *, dim: int) -> Any:
    """dOut added up at Index among zeros."""
    out = ctx.xp.zeros(X.shape, Out_grad.dtype)
    ctx.add_at(out, _select_where(ctx, Index, X.shape, dim), Out_grad)
    return out


def _check_matrices(ctx: Context, x: Sequence[int], index: Sequence[int]) -> None:
    fits = len(x) == len(index) == 2 and may_be_same(x[:1], index[:1])
    if not fits:
        raise ctx.error(
            f"X and Index must be matrices with the same number of rows, found {shape_text(x)} and {shape_text(index)}"
        )


def _sampled(ctx: OpContext, X: Any, Index: Any) -> tuple[Any, ...]:
    _check_matrices(ctx, X.shape, Index.shape)
    in_range(ctx, Index, X.shape[1], "Index", "the row length of X")
    return index_grid(ctx, Index.shape, 1, Index)


@op("index_sample", inputs="X Index", outputs="Out", traits=Traits(gradient_scope=False))
def index_sample(ctx: OpContext, X: Any, Index: Any) -> Any:
    """From every row of X the elements at the places in the same row of Index (Paddle 1.8.5 index_sample_op.h)."""
    return X[_sampled(ctx, X, Index)]


@index_sample.infer
def _(ctx: InferContext, X: TensorMeta, Index: TensorMeta) -> TensorMeta:
    _check_matrices(ctx, X.shape, Index.shape)
    return X.with_shape(Index.shape).with_lod_level(0)


@index_sample.grad(inputs="X Index Out@GRAD", outputs="X@GRAD")
def index_sample_grad(ctx: OpContext, X: Any, Index: Any, Out_grad: Any) -> Any:
    """dOut added up at Index among zeros."""
    out = ctx.xp.zeros(X.shape, Out_grad.dtype)
    ctx.add_at(out, _sampled(ctx, X, Index), Out_grad)
    return out


def _chosen(ctx: OpContext, Ids: Any, count: int, rows: int) -> Any:
    ids = Ids.reshape(-1)
    in_range(ctx, ids, count, "Ids", "the number of tensors in X")
    if len(ids) != rows:
        raise ctx.error(f"Ids must choose for each of the {rows} rows of X, found shape {Ids.shape}")
    return ids


def _check_candidates(ctx: Context, shapes: list[Sequence[int]]) -> None:
    """Fail unless there are tensors, which may be of one shape."""
    if not shapes:
        raise ctx.error("X must have at least one tensor")
    if not all(may_be_same(shape, shapes[0]) for shape in shapes):
        raise ctx.error(f"the tensors of X must have one shape, found {shapes_text(shapes)}")


@op("multiplex", inputs="Ids X*", outputs="Out")
def multiplex(ctx: OpContext, Ids: Any, X: list[Any]) -> Any:
    """Row i of the tensor X[Ids[i]], for every i (Paddle 1.8.5 multiplex_op.h)."""
    _check_candidates(ctx, [x.shape for x in X])
    same_dtype(ctx, X[0], X, "the tensors of X")
    ids = _chosen(ctx, Ids, len(X), len(X[0]))
    return ctx.xp.stack(X)[ids, ctx.xp.arange(len(ids))]


@multiplex.infer
def _(ctx: InferContext, Ids: TensorMeta, X: list[TensorMeta]) -> TensorMeta | None:
    _check_candidates(ctx, [x.shape for x in X])
    if not may_be_same(Ids.shape, (X[0].shape[0] if X[0].rank else 1, 1)):
        raise ctx.error(f"Ids must have the shape (rows of X, 1), found {shape_text(Ids.shape)}")
    return X[0].with_lod_level(0)


@op("multiplex_grad", inputs="Ids Out@GRAD", outputs="X@GRAD*")
def multiplex_grad(ctx: OpContext, Ids: Any, Out_grad: Any) -> Any:
    """dOut goes to the tensors that its rows came from."""
    count = len(ctx.op.output("X@GRAD"))
    ids = _chosen(ctx, Ids, count, len(Out_grad)).reshape((-1,) + (1,) * (Out_grad.ndim - 1))
    zero = Out_grad.dtype.type(0)
    return {"X@GRAD": [ctx.xp.where(ids == i, Out_grad, zero) for i in range(count)]}


@multiplex.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"Ids": context.input("Ids"), "Out@GRAD": context.output_grad("Out")}
    return [context.describe("multiplex_grad", inputs, {"X@GRAD": context.input_grad("X", drop_empty=False)})]


def _along(ctx: OpContext, Input: Any, Index: Any, Axis: int) -> tuple[Any, ...]:
    axis = axis_in(ctx, Axis, Input.ndim, "Axis")
    fits = Input.ndim == Index.ndim and all(
        small <= large for i, (small, large) in enumerate(zip(Index.shape, Input.shape, strict=True)) if i != axis
    )
    if not fits:
        raise ctx.error(
            f"Index of shape {Index.shape} must not exceed Input of shape {Input.shape} outside of axis {axis}"
        )
    in_range(ctx, Index, Input.shape[axis], "Index", f"the size of axis {axis} of Input")
    return index_grid(ctx, Index.shape, axis, Index)


@op("take_along_axis", inputs="Input Index", outputs="Result", attrs={"Axis": 0})
def take_along_axis(ctx: OpContext, Input: Any, Index: Any, *, Axis: int) -> Any:
    """For every place of Index the element of Input there, moved along Axis to the index (Paddle 2.6.2)."""
    return Input[_along(ctx, Input, Index, Axis)]


@take_along_axis.infer
def _(ctx: InferContext, Input: TensorMeta, Index: TensorMeta) -> TensorMeta:
    return Input.with_shape(Index.shape).with_lod_level(0)


@take_along_axis.grad(inputs="Input Index Result@GRAD", outputs="Input@GRAD")
def take_along_axis_grad(ctx: OpContext, Input: Any, Index: Any, Result_grad: Any, *, Axis: int) -> Any:
    """dResult added up at its places among zeros."""
    out = ctx.xp.zeros(Input.shape, Result_grad.dtype)
    ctx.add_at(out, _along(ctx, Input, Index, Axis), Result_grad)
    return out


REDUCE = ("assign", "add", "mul", "multiply", "mean", "amax", "amin")


@op(
    "put_along_axis",
    inputs="Input Index Value",
    outputs="Result",
    attrs={"Axis": 0, "Reduce": "assign", "Include_self": True},
)
def put_along_axis(
    ctx: OpContext, Input: Any, Index: Any, Value: Any, *, Axis: int, Reduce: str, Include_self: bool
) -> Any:
    """Input with Value put in, added, multiplied ... at the places that take_along_axis would read (Paddle 2.6.2)."""
    if Reduce not in REDUCE:
        raise ctx.error(f"Reduce must be one of {', '.join(REDUCE)}, found {Reduce!r}")
    where = tuple(ctx.host(place) for place in _along(ctx, Input, Index, Axis))
    out = ctx.host(Input).copy()
    fits = Value.ndim <= Index.ndim and all(
        have in (1, want) for have, want in zip(Value.shape[::-1], Index.shape[::-1], strict=False)
    )
    if not fits:
        raise ctx.error(f"Value of shape {Value.shape} must broadcast to the shape of Index, {Index.shape}")
    values = ctx.np.broadcast_to(ctx.host(Value), Index.shape)
    if Reduce == "assign":
        out[where] = values
        return ctx.array(out)
    neutral = {"mul": 1, "multiply": 1, "amax": ctx.np.min, "amin": ctx.np.max}.get(Reduce, 0)
    if not Include_self:
        out[where] = neutral(values) if callable(neutral) else neutral
    gather = {"mul": "multiply", "amax": "maximum", "amin": "minimum", "mean": "add"}.get(Reduce, Reduce)
    getattr(ctx.np, gather).at(out, where, values)
    if Reduce == "mean":
        counts = ctx.np.zeros(out.shape, "int64")
        ctx.np.add.at(counts, where, 1)
        counts += 1 if Include_self else 0
        hit = counts > (1 if Include_self else 0)
        out[hit] = (out[hit] / counts[hit]).astype(out.dtype)
    return ctx.array(out)


@put_along_axis.infer
def _(ctx: InferContext, Input: TensorMeta, Index: TensorMeta, Value: TensorMeta) -> TensorMeta:
    return Input.with_lod_level(0)


@op("masked_select", inputs="X Mask", outputs="Y")
def masked_select(ctx: OpContext, X: Any, Mask: Any) -> Any:
    """The elements of X where Mask holds, in order, one dimension (Paddle 2.6.2 masked_select_kernel.cc)."""
    if Mask.dtype.kind != "b":
        raise ctx.error(f"Mask must be bool, found {Mask.dtype}")
    shape = ctx.np.broadcast_shapes(X.shape, Mask.shape)
    return ctx.xp.broadcast_to(X, shape)[ctx.xp.broadcast_to(Mask, shape)]


@masked_select.infer
def _(ctx: InferContext, X: TensorMeta, Mask: TensorMeta) -> TensorMeta:
    return X.with_shape((-1,)).with_lod_level(0)


@masked_select.grad(inputs="X Mask Y@GRAD", outputs="X@GRAD")
def masked_select_grad(ctx: OpContext, X: Any, Mask: Any, Y_grad: Any) -> Any:
    """dY put back where Mask holds, zeros elsewhere."""
    out = ctx.xp.zeros(X.shape, Y_grad.dtype)
    out[ctx.xp.broadcast_to(Mask, X.shape)] = Y_grad
    return out


@op("index_add", inputs="X Index AddValue", outputs="Out", attrs={"axis": 0})
def index_add(ctx: OpContext, X: Any, Index: Any, AddValue: Any, *, axis: int) -> Any:
    """X plus the slices of AddValue at Index along `axis` (Paddle 2.6.2 index_add_kernel.cc)."""
    out = X.copy()
    where = _select_where(ctx, Index, X.shape, axis)
    if tuple(AddValue.shape) != tuple(out[where].shape):
        raise ctx.error(f"AddValue must have the shape {out[where].shape}, found {AddValue.shape}")
    ctx.add_at(out, where, AddValue)
    return out


@index_add.infer
def _(ctx: InferContext, X: TensorMeta, Index: TensorMeta, AddValue: TensorMeta) -> TensorMeta:
    return X.with_lod_level(0)


@op("index_put", inputs="x indices* value", outputs="out", attrs={"accumulate": False})
def index_put(ctx: OpContext, x: Any, indices: list[Any], value: Any, *, accumulate: bool) -> Any:
    """x with `value` put in, or added with `accumulate`, at the index tensors (Paddle 2.6.2 index_put_kernel.cc)."""
    if len(indices) > x.ndim:
        raise ctx.error(f"{len(indices)} index tensors for x of {x.ndim} dimensions")
    where: list[Any] = []
    for index in indices:
        if index.dtype.kind == "b":
            where += list(ctx.xp.nonzero(index))
            continue
        size = x.shape[len(where)]
        wrapped = ctx.xp.where(index < 0, index + size, index)
        in_range(ctx, wrapped, size, f"index tensor {len(where)}", f"the size of axis {len(where)} of x")
        where.append(wrapped)
    out = x.copy()
    if accumulate:
        ctx.add_at(out, tuple(where), value)
    else:
        out[tuple(where)] = value
    return out


@index_put.infer
def _(ctx: InferContext, x: TensorMeta, indices: list[TensorMeta], value: TensorMeta) -> TensorMeta:
    return x.with_lod_level(0)
