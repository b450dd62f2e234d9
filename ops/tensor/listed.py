"""assign_value and fill: tensors whose values are attributes."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOATS, INT, INTS, TensorMeta, floats, ints, longs, required
from fluidtool.ops.tensor.fill import concrete_shape
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


def _values(ctx: OpContext, values: list[Any], shape: list[int], dtype: Any) -> Any:
    sizes = concrete_shape(ctx, shape)
    if len(values) != prod(sizes):
        raise ctx.error(f"{len(values)} values do not fill the shape {shape_text(shape)} of {prod(sizes)} elements")
    host = ctx.np.asarray(values, "float64" if dtype.kind == "f" else None)
    return ctx.array(host.astype(dtype).reshape(sizes))


@op(
    "assign_value",
    inputs="",
    outputs="Out",
    attrs={
        "shape": required(INTS),
        "dtype": required(INT),
        "bool_values": ints(),
        "fp32_values": floats(),
        "int32_values": ints(),
        "int64_values": longs(),
    },
)
def assign_value(
    ctx: OpContext,
    *,
    shape: list[int],
    dtype: int,
    bool_values: list[int],
    fp32_values: list[float],
    int32_values: list[int],
    int64_values: list[int],
) -> Any:
    """The values of the attribute for `dtype`, in `shape` (Paddle 1.8.5 assign_value_op.h; fp64_values from 2.3 on)."""
    by_type: dict[int, list[Any]] = {
        VarType.BOOL: bool_values,
        VarType.FP32: fp32_values,
        VarType.FP64: later_attr(ctx, "fp64_values", []),
        VarType.INT32: int32_values,
        VarType.INT64: int64_values,
    }
    if dtype not in by_type:
        raise ctx.error(f"dtype must be one of {', '.join(VarType(t).name for t in by_type)}, found {dtype}")
    return _values(ctx, by_type[dtype] or later_attr(ctx, "values", []), shape, ctx.dtype(dtype))


@assign_value.infer
def _(ctx: InferContext, *, shape: list[int], dtype: int) -> TensorMeta:
    return TensorMeta(tuple(shape), VarType(dtype))


@op(
    "fill",
    inputs="",
    outputs="Out",
    attrs={"value": required(FLOATS), "shape": required(INTS), "dtype": 5, "force_cpu": False},
)
def fill(ctx: OpContext, *, value: list[float], shape: list[int], dtype: int) -> Any:
    """The list `value`, cast to `dtype`, in `shape` (Paddle 1.8.5 fill_op.h)."""
    return _values(ctx, value, shape, ctx.dtype(dtype))


@fill.infer
def _(ctx: InferContext, *, shape: list[int], dtype: int) -> TensorMeta:
    return TensorMeta(tuple(shape), VarType(dtype))
