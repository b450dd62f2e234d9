"""Constants: fill_constant and related operators, assign_value, fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, TensorMeta, longs, or_variable, required
from fluidtool.ops.tensor.arguments import Context, allocatable, as_declared, inferred_integers, integers
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, LoDTensorArray, as_data_type


def concrete_shape(ctx: OpContext, shape: list[int]) -> tuple[int, ...]:
    """The shape, when every size is known and not negative."""
    _require_sizes(ctx, shape)
    return allocatable(ctx, shape)


def _require_sizes(ctx: Context, shape: Sequence[int]) -> None:
    if not all(size >= 0 for size in shape):
        raise ctx.error(f"shape must have no negative size, found {shape_text(shape)}")


def height(sizes: tuple[int, ...], tensor: Any, tensors: list[Any]) -> int:
    """The height of a SelectedRows of this shape: Paddle 1.8.5 gives -1 when an input told the shape."""
    return sizes[0] if sizes and tensor is None and not tensors else -1


def shape_meta(
    tensor: TensorMeta | None, tensors: list[TensorMeta], shape: list[int], dtype: int, kind: VarType
) -> TensorMeta | None:
    """The metadata of an output of a shape that inputs may stand in for."""
    sizes = inferred_integers(tensor, tensors, shape)
    if tensor is not None or tensors:
        given = inferred_integers(tensor, tensors, [])
        sizes = given if given is not None and len(given) != len(shape) else sizes  # the attribute is another shape's
    return None if sizes is None else TensorMeta(tuple(sizes), VarType(dtype), 0, kind)


def output_kind(ctx: InferContext) -> VarType:
    """What the program declares `Out` to be: a SelectedRows stays one."""
    block = ctx.op.block
    var = block.find_var_recursive(ctx.op.output("Out")[0]) if ctx.op.output("Out") else None
    return VarType.SELECTED_ROWS if var is not None and var.type == VarType.SELECTED_ROWS else VarType.LOD_TENSOR


def cast_number(ctx: OpContext, value: Any, dtype: Any) -> Any:
    """A Python number as a scalar of this dtype, as C++ casts it: towards zero, wrapping around."""
    scalar = ctx.np.asarray(value)
    return (scalar.astype("int64").astype(dtype) if dtype.kind in "iu" else scalar.astype(dtype))[()]


def _constant(ctx: OpContext, value: float, text: str, dtype: Any) -> Any:
    if not text:
        return cast_number(ctx, ctx.np.float32(value), dtype)
    try:
        whole = dtype.kind in "iu" and text.lstrip("+-").isdigit()
        return cast_number(ctx, int(text) if whole else float(text), dtype)
    except (ValueError, OverflowError) as error:
        raise ctx.error(f"str_value {text!r} is not a number of type {dtype}") from error


def _filled(ctx: OpContext, shape: Sequence[int], number: Any, dtype: Any) -> Any:
    """An array of one number. Zeros (the moments of an optimizer) take no memory until they are written or read."""
    zero = not number and not ctx.np.signbit(number)
    return ctx.xp.zeros(shape, dtype) if zero else ctx.xp.full(shape, number, dtype)


@op(
    "fill_constant",
    inputs="ValueTensor? ShapeTensor? ShapeTensorList*?",
    outputs="Out",
    attrs={"dtype": 5, "shape": longs(), "value": 0.0, "str_value": "", "force_cpu": False},
)
def fill_constant(
    ctx: OpContext,
    ValueTensor: Any,
    ShapeTensor: Any,
    ShapeTensorList: list[Any],
    *,
    dtype: int,
    shape: list[int],
    value: float,
    str_value: str,
) -> Any:
    """A tensor of `shape` filled with str_value, or value, or the one number in ValueTensor.

    The shape comes from ShapeTensor or ShapeTensorList when these are given (Paddle 1.8.5 fill_constant_op.h).
    """
    sizes = concrete_shape(ctx, integers(ctx, ShapeTensor, ShapeTensorList, shape))
    wanted = ctx.dtype(dtype)
    if ValueTensor is None:
        array = _filled(ctx, sizes, _constant(ctx, value, str_value, wanted), wanted)
    else:
        if ValueTensor.size != 1:
            raise ctx.error(f"ValueTensor must hold one number, found shape {ValueTensor.shape}")
        array = ctx.xp.full(sizes, ValueTensor.reshape(()), wanted)
    return as_declared(ctx, array, height(sizes, ShapeTensor, ShapeTensorList))


@fill_constant.infer
def _(
    ctx: InferContext,
    ValueTensor: TensorMeta | None,
    ShapeTensor: TensorMeta | None,
    ShapeTensorList: list[TensorMeta],
    *,
    dtype: int,
    shape: list[int],
) -> TensorMeta | None:
    if ShapeTensor is None and not ShapeTensorList:
        _require_sizes(ctx, shape)
    return shape_meta(ShapeTensor, ShapeTensorList, shape, dtype, output_kind(ctx))


def batch_size_like_shape(
    ctx: Context, shape: list[int], rows: int, in_axis: int, out_axis: int, rank: int
) -> list[int]:
    """`shape` with `rows` at out_axis; in_axis must be an axis of an input of this rank."""
    if not 0 <= in_axis < rank:
        raise ctx.error(f"input_dim_idx must be in [0, {rank}), found {in_axis}")
    if not 0 <= out_axis < len(shape):
        raise ctx.error(f"output_dim_idx must be in [0, {len(shape)}), found {out_axis}")
    return [rows if i == out_axis else size for i, size in enumerate(shape)]


BATCH_SIZE_LIKE: dict[str, Any] = {"shape": required(INTS), "input_dim_idx": 0, "output_dim_idx": 0}


@op(
    "fill_constant_batch_size_like",
    inputs="Input",
    outputs="Out",
    attrs={**BATCH_SIZE_LIKE, "dtype": 5, "value": 0.0, "str_value": "", "force_cpu": False},
)
def fill_constant_batch_size_like(
    ctx: OpContext,
    Input: Any,
    *,
    shape: list[int],
    input_dim_idx: int,
    output_dim_idx: int,
    dtype: int,
    value: float,
    str_value: str,
) -> Any:
    """A constant of `shape`, but as large at output_dim_idx as Input is at input_dim_idx.

    Of an Input with LoD, axis 0 counts its sequences (Paddle 1.8.5 fill_constant_batch_size_like_op.h).
    """
    sizes = batch_size_like_shape(ctx, shape, 0, input_dim_idx, output_dim_idx, Input.ndim)
    lod = ctx.lod("Input")
    sizes[output_dim_idx] = len(lod[-1]) - 1 if lod and input_dim_idx == 0 else Input.shape[input_dim_idx]
    wanted = ctx.dtype(dtype)
    return _filled(ctx, concrete_shape(ctx, sizes), _constant(ctx, value, str_value, wanted), wanted)


@fill_constant_batch_size_like.infer
def _(
    ctx: InferContext, Input: TensorMeta, *, shape: list[int], input_dim_idx: int, output_dim_idx: int, dtype: int
) -> TensorMeta:
    rows = Input.shape[input_dim_idx] if input_dim_idx < Input.rank else -1
    sizes = batch_size_like_shape(ctx, shape, rows, input_dim_idx, output_dim_idx, Input.rank)
    return TensorMeta(tuple(sizes), VarType(dtype))


@op("fill_any_like", inputs="X", outputs="Out", attrs={"value": or_variable(0.0), "dtype": -1}, lod="X")
def fill_any_like(ctx: OpContext, X: Any, *, value: float, dtype: int) -> Any:
    """A tensor like X, of data type `dtype` if that is not -1, filled with `value` (Paddle 1.8.5 fill_any_like_op.h)."""
    if isinstance(X, LoDTensorArray):
        return LoDTensorArray(LoDTensor(_filled_like(ctx, item.array, value, dtype), item.lod()) for item in X)
    return _filled_like(ctx, X, value, dtype)


def _filled_like(ctx: OpContext, X: Any, value: float, dtype: int) -> Any:
    wanted = X.dtype if dtype < 0 else ctx.dtype(dtype)
    if value != value:
        raise ctx.error(f"value must be a number, found {value}")
    if wanted.kind in "iu":
        limits = ctx.np.iinfo(wanted)
        fits = limits.min <= value <= limits.max
        if not fits:
            raise ctx.error(f"value {value} is out of the range of {wanted}, {limits.min} to {limits.max}")
    return _filled(ctx, X.shape, cast_number(ctx, value, wanted), wanted)


@fill_any_like.infer
def _(ctx: InferContext, X: TensorMeta, *, dtype: int) -> TensorMeta:
    return X if dtype < 0 else X.with_dtype(VarType(dtype))


@op("fill_zeros_like", inputs="X", outputs="Out", lod="X")
def fill_zeros_like(ctx: OpContext, X: Any) -> Any:
    """Zeros like X, a tensor or a LoDTensorArray of them (Paddle 1.8.5 fill_zeros_like_op.h)."""
    if isinstance(X, LoDTensorArray):
        return LoDTensorArray(LoDTensor(ctx.xp.zeros_like(item.array), item.lod()) for item in X)
    return ctx.xp.zeros_like(X)


@fill_zeros_like.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@op("fill_zeros_like2", inputs="X", outputs="Out", attrs={"dtype": 5}, lod="X")
def fill_zeros_like2(ctx: OpContext, X: Any, *, dtype: int) -> Any:
    """Zeros of the shape of X and data type `dtype`."""
    wanted = ctx.dtype(dtype)
    if isinstance(X, LoDTensorArray):
        return LoDTensorArray(LoDTensor(ctx.xp.zeros(item.array.shape, wanted), item.lod()) for item in X)
    return ctx.xp.zeros(X.shape, wanted)


@fill_zeros_like2.infer
def _(ctx: InferContext, X: TensorMeta, *, dtype: int) -> TensorMeta:
    return X.with_dtype(VarType(dtype))


@op("fill_any", inputs="X", outputs="Out", attrs={"value_float": 0.0, "value_int": 0})
def fill_any(ctx: OpContext, X: Any, *, value_float: float, value_int: int) -> Any:
    """A tensor like X filled with value_float, or value_int for integers (Paddle 2.6.2: `value` for both)."""
    value = later_attr(ctx, "value", value_float if X.dtype.kind not in "iu" else value_int)
    return ctx.xp.full(X.shape, cast_number(ctx, value, X.dtype), X.dtype)


@fill_any.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@op("empty", inputs="ShapeTensor? ShapeTensorList*?", outputs="Out", attrs={"shape": longs(), "dtype": 5})
def empty(ctx: OpContext, ShapeTensor: Any, ShapeTensorList: list[Any], *, shape: list[int], dtype: int) -> Any:
    """A tensor of `shape` whose values do not matter; zeros here (Paddle 2.6.2 empty_kernel.cc)."""
    return ctx.xp.zeros(concrete_shape(ctx, integers(ctx, ShapeTensor, ShapeTensorList, shape)), ctx.dtype(dtype))


@empty.infer
def _(
    ctx: InferContext,
    ShapeTensor: TensorMeta | None,
    ShapeTensorList: list[TensorMeta],
    *,
    shape: list[int],
    dtype: int,
) -> TensorMeta | None:
    return shape_meta(ShapeTensor, ShapeTensorList, shape, as_data_type(dtype), VarType.LOD_TENSOR)
