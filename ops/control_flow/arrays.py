"""Arrays of tensors: write_to_array, read_from_array, lod_array_length, tensor_array_to_tensor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.control_flow.scopes import shared, zeros_like
from fluidtool.ops.gradient import GRAD, GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, LoDTensorArray


def index_of(ctx: OpContext, slot: str = "I") -> int:
    """The index in an input with one element; raises OperatorError for any other input."""
    array = ctx.value(slot).array
    if array is None or array.size != 1:
        raise ctx.error(f"{slot} must hold one number, found {'nothing' if array is None else f'shape {array.shape}'}")
    index = int(array.item())
    if index < 0:
        raise ctx.error(f"{slot} must not be negative, found {index}")
    return index


def array_of(ctx: OpContext, slot: str) -> LoDTensorArray:
    """The array of tensors of an input; raises OperatorError for any other kind."""
    value = ctx.value(slot)
    if not isinstance(value, LoDTensorArray):
        raise ctx.error(f"input {slot} must hold an array of tensors, found {type(value).__name__}")
    array: LoDTensorArray = value
    return array


@op("write_to_array", inputs="X I", outputs="Out", raw=True)
def write_to_array(ctx: OpContext) -> dict[str, list[Any]] | None:
    """Out[I] = X; the array grows as needed (Paddle 1.8.5 tensor_array_read_write_op.cc)."""
    source = ctx.inputs["X"][0] if ctx.inputs.get("X") else None
    if source is None:
        return None
    index, old = index_of(ctx), ctx.outputs["Out"][0].value
    items = LoDTensorArray(old if isinstance(old, LoDTensorArray) else ())
    while len(items) <= index:
        items.append(LoDTensor())
    if source.value is not None:
        if not isinstance(source.value, LoDTensor):
            raise ctx.error(f"X must be a tensor, found {type(source.value).__name__}")
        items[index] = shared(source.value)
    return {"Out": [items]}


@write_to_array.infer
def _(ctx: InferContext) -> TensorMeta | None:
    meta = ctx.meta(ctx.op.input("X")[0])
    return None if meta is None else replace(meta, kind=VarType.LOD_TENSOR_ARRAY)


@write_to_array.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"I": context.input("I"), "X": context.output_grad("Out"), "X_W": context.input("X")}
    return [context.describe("read_from_array", inputs, {"Out": context.input_grad("X")})]


@op("read_from_array", inputs="X I X_W?", outputs="Out", raw=True)
def read_from_array(ctx: OpContext) -> dict[str, list[Any]] | None:
    """Out = X[I] (Paddle 1.8.5 tensor_array_read_write_op.cc).

    As the gradient of write_to_array it has X_W, the tensor written: a missing gradient is zeros of its shape
    (programs older than that slot leave it without a value). Any other missing item is an error.
    """
    written = ctx.value("X_W") if ctx.has("X_W") else None
    is_gradient = written is not None or GRAD in ctx.op.input("X")[0]
    items = LoDTensorArray() if is_gradient and not ctx.has("X") else array_of(ctx, "X")
    index = index_of(ctx)
    found = items[index] if index < len(items) else None
    if found is not None and found.array is not None:
        return {"Out": [shared(found)]}
    if not is_gradient:
        raise ctx.error(f"item {index} of the array X was never written; X has {len(items)} items")
    return None if written is None else {"Out": [zeros_like(ctx, written)]}


@read_from_array.infer
def _(ctx: InferContext) -> TensorMeta | None:
    meta = ctx.meta(ctx.op.input("X")[0])
    return None if meta is None else replace(meta, kind=VarType.LOD_TENSOR)


@read_from_array.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"I": context.input("I"), "X": context.output_grad("Out")}
    return [context.describe("write_to_array", inputs, {"Out": context.input_grad("X")})]


@op("lod_array_length", inputs="X", outputs="Out", raw=True)
def lod_array_length(ctx: OpContext) -> Any:
    """The number of items of an array of tensors, [1] int64 (Paddle 1.8.5 lod_array_length_op.cc).

    An array that was declared and never written has none.
    """
    declared = None if ctx.has("X") else ctx.op.block.find_var_recursive(ctx.op.input("X")[0])
    unwritten = declared is not None and declared.type == VarType.LOD_TENSOR_ARRAY
    return ctx.array([0 if unwritten else len(array_of(ctx, "X"))], VarType.INT64)


@lod_array_length.infer
def _(ctx: InferContext) -> TensorMeta:
    return TensorMeta((1,), VarType.INT64)


@op("tensor_array_to_tensor", inputs="X", outputs="Out OutIndex", attrs={"axis": 0, "use_stack": False})
def tensor_array_to_tensor(ctx: OpContext, X: LoDTensorArray, *, axis: int, use_stack: bool) -> dict[str, Any]:
    """The items of X concatenated along `axis`, or stacked; OutIndex int32: their sizes along it.

    (Paddle 1.8.5 tensor_array_to_tensor_op.cc)
    """
    items = _items(ctx, X)
    rank = items[0].ndim
    if not -rank - use_stack <= axis < rank + use_stack:
        raise ctx.error(f"axis {axis} is out of range for items of shape {items[0].shape}")
    join = ctx.xp.stack if use_stack else ctx.xp.concatenate
    sizes = [1 if use_stack and axis in (rank, -rank - 1) else item.shape[axis] for item in items]
    return {"Out": join(items, axis=axis), "OutIndex": ctx.array(sizes, VarType.INT32)}


@tensor_array_to_tensor.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int, use_stack: bool) -> dict[str, TensorMeta] | None:
    if not X.shape:
        return None
    shape = list(X.shape)
    at = axis if axis >= 0 else axis + len(shape) + use_stack
    shape[at : at + (not use_stack)] = [-1]
    return {"Out": replace(X, kind=VarType.LOD_TENSOR, shape=tuple(shape))}


@tensor_array_to_tensor.grad(inputs="X Out@GRAD", outputs="X@GRAD")
def tensor_array_to_tensor_grad(
    ctx: OpContext, X: LoDTensorArray, Out_grad: Any, *, axis: int, use_stack: bool
) -> LoDTensorArray:
    """The gradient split into items with their shapes; its own shape may be any with the same number of elements."""
    items = _items(ctx, X)
    shape = list(items[0].shape)
    if use_stack:
        shape.insert(axis if axis >= 0 else axis + len(shape) + 1, len(items))
        return _like(X, ctx.xp.moveaxis(_shaped(ctx, Out_grad, shape), axis, 0))
    sizes = [item.shape[axis] for item in items]
    shape[axis] = sum(sizes)
    ends = [int(end) for end in ctx.np.cumsum(sizes)[:-1]]
    return _like(X, ctx.xp.split(_shaped(ctx, Out_grad, shape), ends, axis=axis))


def _shaped(ctx: OpContext, gradient: Any, shape: list[int]) -> Any:
    if gradient.size != prod(shape):
        raise ctx.error(
            f"Out@GRAD must have shape {shape_text(shape)}, that of Out, found {shape_text(gradient.shape)}"
        )
    return gradient.reshape(shape)


def _like(X: LoDTensorArray, parts: Iterable[Any]) -> LoDTensorArray:
    return LoDTensorArray(LoDTensor(part, item.offsets) for part, item in zip(parts, X, strict=True))


def _items(ctx: OpContext, X: Any) -> list[Any]:
    if not isinstance(X, LoDTensorArray):
        raise ctx.error(f"input X must hold an array of tensors, found {type(X).__name__}")
    if len(X) <= 0:
        raise ctx.error("the array X has no items")
    empty = [number for number, item in enumerate(X) if item.array is None]
    if empty:
        raise ctx.error(f"items {empty} of the array X were never written")
    return [item.array for item in X]
