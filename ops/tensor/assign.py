"""assign, cast, shape, size and other operators that move values without changing them."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.ops.tensor.arguments import dims
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows


def copied(value: Any) -> Any:
    """The same value in a new container; arrays are shared, as they are never written."""
    if isinstance(value, SelectedRows):
        return SelectedRows(value.row_ids, value.table_height, value.tensor.array)
    if isinstance(value, LoDTensorArray):
        return LoDTensorArray(copied(item) for item in value)
    if isinstance(value, LoDTensor):
        tensor = LoDTensor(value.array, value.lod())
        if value.array is None:
            tensor.set_dims(value.shape())
        return tensor
    return value


@op("assign", inputs="X?", outputs="Out", lod="X", traits=Traits(gradient_scope=False))
def assign(ctx: OpContext, X: Any) -> Any:
    """X: a LoDTensor, SelectedRows or LoDTensorArray (Paddle 1.8.5 assign_op.h); nothing when X holds nothing."""
    return copied(X)


@assign.infer
def _(ctx: InferContext, X: TensorMeta | None) -> TensorMeta | None:
    return X


assign.grad_maker(wired("assign", "X=Out@GRAD", "Out=X@GRAD"))


@op(
    "cast",
    inputs="X",
    outputs="Out",
    attrs={"out_dtype": required(INT), "in_dtype": required(INT)},
    lod="X",
    traits=Traits(gradient_scope=False),
)
def cast(ctx: OpContext, X: Any, *, out_dtype: int) -> Any:
    """X as `out_dtype`: floats to the nearest, whole numbers cut towards zero, all but 0 true (Paddle 1.8.5 cast_op.h)."""
    return X.astype(ctx.dtype(out_dtype), copy=False)


@cast.infer
def _(ctx: InferContext, X: TensorMeta, *, out_dtype: int) -> TensorMeta:
    return X.with_dtype(VarType(out_dtype))


@cast.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs, outputs = {"X": context.output_grad("Out")}, {"Out": context.input_grad("X")}
    swapped = {"out_dtype": context.op.attr("in_dtype"), "in_dtype": context.op.attr("out_dtype")}
    return [context.describe("cast", inputs, outputs, **swapped)]


@op("shape", inputs="Input", outputs="Out")
def shape(ctx: OpContext, Input: Any) -> Any:
    """The sizes of Input as int32, shape [rank] (Paddle 1.8.5 shape_op.h)."""
    return ctx.array(dims(Input), VarType.INT32)


@shape.infer
def _(ctx: InferContext, Input: TensorMeta) -> TensorMeta:
    return TensorMeta((Input.rank,), ctx.declared_dtype("Out", VarType.INT32))


@op("size", inputs="Input", outputs="Out")
def size(ctx: OpContext, Input: Any) -> Any:
    """The number of elements of Input as int64 (Paddle 1.8.5 size_op.h)."""
    return ctx.array([prod(dims(Input))], VarType.INT64).reshape(scalar_shape(ctx))


@size.infer
def _(ctx: InferContext, Input: TensorMeta) -> TensorMeta:
    return TensorMeta(scalar_shape(ctx), VarType.INT64)


@op("share_data", inputs="X", outputs="Out", lod="X")
def share_data(ctx: OpContext, X: Any) -> Any:
    """X under another name (Paddle 2.6.2 share_data_op.cc)."""
    return copied(X)


@op("memcpy", inputs="X", outputs="Out", attrs={"dst_place_type": required(INT)}, lod="X")
def memcpy(ctx: OpContext, X: Any) -> Any:
    """X; every value lives where the run computes, so that there is nothing to copy (Paddle 2.6.2 memcpy_op.cc)."""
    return copied(X)


@op("memcpy_h2d", inputs="X", outputs="Out", attrs={"dst_place_type": required(INT)}, lod="X")
def memcpy_h2d(ctx: OpContext, X: Any) -> Any:
    """X (see memcpy)."""
    return copied(X)


@op("memcpy_d2h", inputs="X", outputs="Out", attrs={"dst_place_type": required(INT)}, lod="X")
def memcpy_d2h(ctx: OpContext, X: Any) -> Any:
    """X (see memcpy)."""
    return copied(X)


@op("share_buffer", inputs="X*", outputs="Out* XOut*")
def share_buffer(ctx: OpContext, X: list[Any]) -> Any:
    """Every X under other names (Paddle 2.6.2 share_buffer_op.cc)."""
    for i in range(len(X)):
        ctx.set_lod("Out", ctx.lod("X", i), i)
        ctx.set_lod("XOut", ctx.lod("X", i), i)
    return {"Out": [copied(x) for x in X], "XOut": [copied(x) for x in X]}


def _same(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


for _info in (share_data, memcpy, memcpy_h2d, memcpy_d2h):
    _info.infer(_same)
