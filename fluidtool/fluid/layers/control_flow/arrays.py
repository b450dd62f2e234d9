"""Arrays of tensors, and the counter that indexes them."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType


def _is_array(value: Any) -> bool:
    return isinstance(value, Variable) and value.type == VarType.LOD_TENSOR_ARRAY


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """x + value, in place unless in_place is False; x has one element."""
    check_variable_and_dtype(x, "x", ("float32", "float64", "int32", "int64"), "increment")
    helper = LayerHelper("increment")
    out = x if in_place else None
    return append_simple(helper, "increment", {"X": [x]}, {"step": float(value)}, dtype=x.dtype, out=out)


def create_array(dtype: Any) -> Variable:
    """An empty array of tensors of this data type."""
    return _new_array(LayerHelper("array"), dtype)


def _new_array(helper: LayerHelper, dtype: Any) -> Variable:
    return helper.create_variable(name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=dtype)


def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """array[i] = x; a new array without one. i: one int64. Returns the array."""
    check_variable_and_dtype(i, "i", ("int64",), "array_write")
    check_type(x, "x", Variable, "array_write")
    helper = LayerHelper("array_write")
    if array is not None and not _is_array(array):
        raise ArgumentTypeError(
            f"array should be tensor array vairable in array_write Op, found {type(array).__name__}"
        )
    if array is None:
        array = _new_array(helper, x.dtype)
    helper.append_op(type="write_to_array", inputs={"X": [x], "I": [i]}, outputs={"Out": [array]})
    return array


def array_read(array: Variable, i: Variable) -> Variable:
    """array[i]; i: one int64."""
    check_variable_and_dtype(i, "i", ("int64",), "array_read")
    helper = LayerHelper("array_read")
    if not _is_array(array):
        raise ArgumentTypeError(f"array should be tensor array vairable, found {type(array).__name__}")
    return append_simple(helper, "read_from_array", {"X": [array], "I": [i]}, dtype=array.dtype)


def array_length(array: Variable) -> Variable:
    """The number of items of an array, [1] int64."""
    if not _is_array(array):
        raise ArgumentTypeError(
            f"array should be tensor array vairable in array_length Op, found {type(array).__name__}"
        )
    helper = LayerHelper("array_length")
    return append_simple(helper, "lod_array_length", {"X": [array]}, dtype="int64", stop_gradient=True)
