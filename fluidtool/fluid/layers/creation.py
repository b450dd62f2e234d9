"""Layers that make tensors: constants, ranges, copies, parameters and global variables (Paddle 1.8.5 layers/tensor.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.fluid.checks import check_dtype, check_type, check_variable_and_dtype, convert_dtype
from fluidtool.fluid.framework import device_guard
from fluidtool.fluid.initializer import Constant, Initializer
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.param_attr import ParamAttr
from fluidtool.ir import Variable
from fluidtool.ir.variable import data_type
from fluidtool.proto.enums import VarType

NUMBERS = ("bool", "float16", "float32", "float64", "int32", "int64")
STORABLE = ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
Shape = Variable | Sequence[int | Variable]


# ---------------------------------------------------------------- variables
def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """An empty variable of the current block."""
    check_dtype(dtype, "dtype", ("bool", "float16", "float32", "float64", "int8", "int32", "int64"), "create_tensor")
    helper = LayerHelper("create_tensor", name=name)
    return helper.create_variable(name=helper.name, dtype=dtype, persistable=persistable)


def create_parameter(
    shape: Sequence[int],
    dtype: Any,
    name: str | None = None,
    attr: ParamAttr | None = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Variable:
    """A parameter that does not belong to a layer."""
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_parameter")
    for item in shape:
        check_type(item, "item of shape", (int, np.integer), "create_parameter")
    check_dtype(dtype, "dtype", STORABLE, "create_parameter")
    check_type(attr, "attr", (type(None), ParamAttr), "create_parameter")
    check_type(default_initializer, "default_initializer", (type(None), Initializer), "create_parameter")
    helper = LayerHelper("create_parameter", name=name)
    created: Variable = helper.create_parameter(
        ParamAttr(name=name) if attr is None else attr, [int(s) for s in shape], dtype, is_bias, default_initializer
    )
    return created


def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """A variable of block 0 that the startup program fills with `value`."""
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_global_var")
    for item in shape:
        check_type(item, "item of shape", (int, np.integer), "create_global_var")
    check_dtype(dtype, "dtype", STORABLE, "create_global_var")
    helper = LayerHelper("global_var", name=name)
    sizes = [int(size) for size in shape]
    var = helper.create_global_variable(
        dtype=dtype, shape=sizes, persistable=persistable, name=name, stop_gradient=True
    )
    helper.set_variable_initializer(var, Constant(float(np.asarray(value).item()), force_cpu))
    return var


# ---------------------------------------------------------------- constants
def shape_inputs(
    helper: LayerHelper, shape: Shape, inputs: dict[str, Any], attrs: dict[str, Any], op_type: str
) -> None:
    """A shape that is a tensor, or contains tensors, goes into ShapeTensor or ShapeTensorList; known sizes into `shape`."""
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        check_dtype(
            shape.dtype, "shape", ("int32", "int64"), "fill_constant", f"(When type of shape in{op_type} is Variable.)"
        )
        inputs["ShapeTensor"] = cast(shape, "int32") if shape.dtype == VarType.INT64 else shape
        return
    if len(shape) == 0:
        raise AssertedError(f"The size of 'shape' in{op_type} can't be zero, but received 0.")
    attrs["shape"] = [-1 if isinstance(size, Variable) else int(size) for size in shape]
    if any(isinstance(size, Variable) for size in shape):
        inputs["ShapeTensorList"] = [_size_tensor(size, index, op_type) for index, size in enumerate(shape)]


def _size_tensor(size: int | Variable, index: int, op_type: str) -> Variable:
    if not isinstance(size, Variable):
        return fill_constant([1], "int32", size, force_cpu=True)
    size.stop_gradient = True
    check_dtype(size.dtype, f"shape[{index}]", ("int32", "int64"), op_type)
    return cast(size, "int32") if size.dtype == VarType.INT64 else size


def fill_constant(
    shape: Shape, dtype: Any, value: float | Variable, force_cpu: bool = False, out: Variable | None = None
) -> Variable:
    """A tensor of `shape` filled with `value`; both may be tensors."""
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"force_cpu": force_cpu}
    if isinstance(value, Variable):
        inputs["ValueTensor"] = value
    else:
        attrs |= {"value": float(value), "str_value": _exact_text(value, dtype)}
    check_dtype(dtype, "dtype", NUMBERS, "fill_constant")
    check_type(shape, "shape", (Variable, list, tuple), "fill_constant")
    if isinstance(shape, Variable):
        check_variable_and_dtype(shape, "shape", ("int32", "int64"), "fill_constant")
    if out is not None:
        check_variable_and_dtype(out, "out", [convert_dtype(dtype)], "fill_constant")
    helper = LayerHelper("fill_constant")
    shape_inputs(helper, shape, inputs, attrs, "fill_constant")
    out = helper.create_variable_for_type_inference(dtype) if out is None else out
    attrs["dtype"] = int(data_type(out.dtype))
    append_simple(helper, "fill_constant", inputs, attrs, dtype=dtype, out=out)
    out.stop_gradient = True
    return out


def _exact_text(value: float, dtype: Any) -> str:
    """A number as text, for values that a float attribute cannot represent exactly."""
    return str(int(value)) if convert_dtype(dtype) in ("int32", "int64") else str(float(value))


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """A constant whose dimension output_dim_idx has the size of dimension input_dim_idx of `input`."""
    helper = LayerHelper("fill_constant_batch_size_like")
    attrs = {
        "shape": list(shape),
        "dtype": int(data_type(dtype)),
        "value": float(value),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "force_cpu": force_cpu,
        "str_value": _exact_text(value, dtype),
    }
    out = append_simple(helper, "fill_constant_batch_size_like", {"Input": input}, attrs, dtype=dtype)
    out.stop_gradient = True
    return out


def ones(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of ones."""
    return _full_checked(shape, dtype, 1.0, force_cpu, "ones")


def zeros(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of zeros."""
    return _full_checked(shape, dtype, 0.0, force_cpu, "zeros")


def _full_checked(shape: Sequence[int], dtype: Any, value: float, force_cpu: bool, op_name: str) -> Variable:
    check_type(shape, "shape", (list, tuple), op_name)
    check_dtype(dtype, "create data type", NUMBERS, op_name)
    if op_name == "ones" and math.prod(shape) <= 0:
        raise AssertedError(f"The shape is invalid: {shape!r}.")
    return fill_constant(shape, dtype, value, force_cpu)


def full(
    shape: Shape,
    fill_value: float | Variable,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """fill_constant with float32 as default data type, on `device`."""
    helper = LayerHelper("full", name=name)
    dtype = "float32" if dtype is None else dtype
    check_dtype(dtype, "create data type", NUMBERS, "full")
    check_type(shape, "shape", (Variable, list, tuple), "full")
    out = helper.create_variable_for_type_inference(dtype) if out is None else out
    with device_guard(device):
        filled = fill_constant(shape, dtype, fill_value, out=out)
    filled.stop_gradient = stop_gradient
    return filled


def full_like(
    input: Variable,
    fill_value: float,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A constant of the shape of `input`."""
    helper = LayerHelper("full_like", name=name)
    if dtype is not None:
        check_dtype(dtype, "dtype", NUMBERS, "full_like")
    kind = data_type(input.dtype if dtype is None else dtype)
    attrs = {"value": float(fill_value), "dtype": int(kind)}
    result = append_simple(helper, "fill_any_like", {"X": [input]}, attrs, dtype=kind, out=out)
    result.stop_gradient = stop_gradient
    return result


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Zeros of the shape of x."""
    _check_like(x, out)
    result = append_simple(LayerHelper("zeros_like"), "fill_zeros_like", {"X": [x]}, dtype=x.dtype, out=out)
    result.stop_gradient = True
    return result


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Ones of the shape of x."""
    _check_like(x, out)
    return append_simple(LayerHelper("ones_like"), "fill_any_like", {"X": [x]}, {"value": 1.0}, dtype=x.dtype, out=out)


def _check_like(x: Variable, out: Variable | None) -> None:
    kinds = ("bool", "float32", "float64", "int32", "int64")
    check_variable_and_dtype(x, "x", kinds, "ones_like")
    if out is not None:
        check_variable_and_dtype(out, "out", kinds, "ones_like")


def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: list[int] | None = None, dtype: Any = "float32"
) -> Variable:
    """An identity matrix, repeated along leading dimensions batch_shape."""
    helper = LayerHelper("eye")
    if not isinstance(num_rows, int) or num_rows < 0:
        raise ArgumentTypeError(f"num_rows should be a non-negative int, found {num_rows!r}")
    if num_columns is not None and (not isinstance(num_columns, int) or num_columns < 0):
        raise ArgumentTypeError(f"num_columns should be a non-negative int, found {num_columns!r}")
    columns = num_rows if num_columns is None else num_columns
    attrs = {"num_rows": num_rows, "num_columns": columns, "dtype": int(data_type(dtype))}
    out = append_simple(helper, "eye", {}, attrs, dtype=dtype)
    out.stop_gradient = True
    if batch_shape is not None:
        if not isinstance(batch_shape, list) or any(size <= 0 for size in batch_shape):
            raise ArgumentTypeError(f"batch_shape should be a positive int list, found {batch_shape!r}")
        for size in reversed(batch_shape):
            stacked = LayerHelper("stack")
            out = append_simple(stacked, "stack", {"X": [out] * size}, {"axis": 0}, dtype=out.dtype, slot="Y")
    return out


# ---------------------------------------------------------------- ranges
def range(start: float | Variable, end: float | Variable, step: float | Variable, dtype: Any) -> Variable:
    """Numbers from start to before end, in steps of step."""
    for name, value in (("start", start), ("end", end), ("step", step)):
        check_type(value, name, (float, int, Variable), "range")
    helper = LayerHelper("range")
    check_dtype(dtype, "create data type", ("float32", "float64", "int32", "int64"), "range")
    bounds = [_bound(value, convert_dtype(dtype)) for value in (start, end, step)]
    return _append_range(helper, bounds)


def arange(
    start: float | Variable,
    end: float | Variable,
    step: float | Variable = 1,
    dtype: Any = None,
    name: str | None = None,
) -> Variable:
    """Numbers from start to before end, in steps of step; float32 by default."""
    helper = LayerHelper("range", name=name)
    kind = "float32" if dtype is None else convert_dtype(dtype)
    check_dtype(kind, "create data type", ("float32", "float64", "int32", "int64"), "range")
    bounds = [v if isinstance(v, Variable) else fill_constant([1], kind, v) for v in (start, end, step)]
    return _append_range(helper, bounds)


def _bound(value: float | Variable, dtype: str) -> Variable:
    if not isinstance(value, Variable):
        return fill_constant([1], dtype, value)
    return value if convert_dtype(value.dtype) == dtype else cast(value, dtype)


def _append_range(helper: LayerHelper, bounds: Sequence[Variable]) -> Variable:
    inputs = dict(zip(("Start", "End", "Step"), bounds, strict=True))
    out = append_simple(helper, "range", inputs, dtype=bounds[0].dtype)
    out.stop_gradient = True
    return out


def linspace(start: float | Variable, stop: float | Variable, num: int | Variable, dtype: Any) -> Variable:
    """`num` numbers from start to stop, evenly spaced."""
    helper = LayerHelper("linspace")
    for name, value in (("start", start), ("stop", stop), ("num", num)):
        check_type(value, name, (Variable, float, int), "linspace")
    ends = []
    for name, value in (("start", start), ("stop", stop)):
        if isinstance(value, Variable):
            check_variable_and_dtype(value, name, ("float32", "float64"), "linspace")
        ends.append(value if isinstance(value, Variable) else fill_constant([1], dtype, value))
    if isinstance(num, Variable):
        check_variable_and_dtype(num, "num", ("int32",), "linspace")
    else:
        num = fill_constant([1], "int32", num)
    inputs = {"Start": ends[0], "Stop": ends[1], "Num": num}
    return append_simple(helper, "linspace", inputs, dtype=ends[0].dtype)


# ---------------------------------------------------------------- copies
def cast(x: Variable, dtype: Any) -> Variable:
    """x converted to another data type."""
    check_variable_and_dtype(x, "x", ("bool", "float16", "float32", "float64", "int32", "int64", "uint8"), "cast")
    check_dtype(dtype, "dtype", ("bool", "float16", "float32", "float64", "int8", "int32", "int64", "uint8"), "cast")
    attrs = {"in_dtype": int(data_type(x.dtype)), "out_dtype": int(data_type(dtype))}
    return append_simple(LayerHelper("cast"), "cast", {"X": [x]}, attrs, dtype=dtype)


_VALUE_ATTRS = {
    VarType.BOOL: ("bool_values", bool),
    VarType.FP32: ("fp32_values", float),
    VarType.INT32: ("int32_values", int),
    VarType.INT64: ("int64_values", int),
}


def assign(input: Variable | np.ndarray[Any, Any], output: Variable | None = None) -> Variable:
    """A copy of a variable, or the values of an array stored in the program (at most 1,048,576)."""
    helper = LayerHelper("assign")
    check_type(input, "input", (Variable, np.ndarray), "assign")
    if isinstance(input, Variable):
        check_dtype(input.dtype, "input", NUMBERS, "assign", "(When the type of input in assign is Variable.)")
        return append_simple(helper, "assign", {"X": [input]}, dtype=input.dtype, out=output)
    kind = data_type(input.dtype)
    if kind not in _VALUE_ATTRS:
        raise ArgumentTypeError(
            "When the type of 'input' in assign is numpy.ndarray, the data type of 'input' must be bool, float32, int32 or "
            f"int64, but received {convert_dtype(kind)}."
        )
    if input.size > 1024 * 1024:
        raise UsageError("The size of input is too big. Please consider saving it to file and 'load_op' to load it")
    name, convert = _VALUE_ATTRS[kind]
    attrs = {"dtype": int(kind), "shape": list(input.shape), name: [convert(v) for v in input.flat]}
    return append_simple(helper, "assign_value", {}, attrs, dtype=kind, out=output)
