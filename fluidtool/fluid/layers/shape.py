"""Layers that change shapes without changing values, cut and join (Paddle 1.8.5 layers/nn.py and tensor.py).

Sizes and positions may be numbers, tensors, or lists that mix both.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_simple
from fluidtool.fluid.layers.creation import assign, fill_constant
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType

Mixed = Sequence[int | Variable]
MOVABLE = (*FLOATS, "int32", "int64")
PLAIN = ("float32", "float64", "int32", "int64")


def number_tensors(helper: LayerHelper, values: Mixed, dtype: str = "int32") -> list[Variable]:
    """Every number as a tensor with one element, on the CPU; tensors are kept and get no gradient."""
    tensors = []
    for value in values:
        if isinstance(value, Variable):
            value.stop_gradient = True
            tensors.append(value)
        else:
            out = helper.create_variable_for_type_inference(dtype)
            tensors.append(fill_constant([1], dtype, value, force_cpu=True, out=out))
    return tensors


def has_tensors(values: Any) -> bool:
    """Whether a list holds a variable."""
    return isinstance(values, (list, tuple)) and any(isinstance(value, Variable) for value in values)


def known(values: Mixed) -> list[int]:
    """The numbers of a mixed list, -1 for tensors."""
    return [-1 if isinstance(value, Variable) else value for value in values]


# ---------------------------------------------------------------- reshaping
def reshape(
    x: Variable,
    shape: Mixed | Variable,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """x reshaped: one size may be -1 (the remainder), 0 keeps x's; actual_shape sets it at run time."""
    check_variable_and_dtype(x, "x", MOVABLE, "reshape")
    check_type(shape, "shape", (list, tuple, Variable), "reshape")
    check_type(actual_shape, "actual_shape", (Variable, type(None)), "reshape")
    helper = LayerHelper("reshape2", act=act, name=name)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        inputs["Shape"] = shape
    else:
        _check_new_shape(x, shape)
        attrs["shape"] = known(shape)
        if has_tensors(shape):
            inputs["ShapeTensor"] = number_tensors(helper, shape)
        elif isinstance(actual_shape, Variable):
            actual_shape.stop_gradient = True
            inputs["Shape"] = actual_shape
    target = x if inplace else None
    out = append_simple(helper, "reshape2", inputs, attrs, dtype=x.dtype, out=target, extra=("XShape",))
    return helper.append_activation(out)


def _check_new_shape(x: Variable, shape: Mixed) -> None:
    if len(shape) == 0:
        raise AssertedError("The size of 'shape' in reshape can't be zero, but received 0.")
    unknown = None
    for index, size in enumerate(shape):
        if isinstance(size, Variable):
            continue
        if size == -1:
            if unknown is not None:
                raise AssertedError(
                    f"Only one dimension value of 'shape' in reshape can be -1. But received shape[{index}] is also -1."
                )
            unknown = index
        elif size == 0 and index >= len(x.shape):
            raise AssertedError(
                "The index of 0 in `shape` must be less than the input tensor X's dimensions. "
                f"But received shape[{index}] = 0, X's dimensions = {len(x.shape)}."
            )
        elif size < 0:
            raise AssertedError(
                "Each dimension value of 'shape' in reshape must not be negative except one unknown dimension. "
                f"But received shape[{index}] = {size}."
            )


def squeeze(input: Variable, axes: list[int], name: str | None = None) -> Variable:
    """input without these dimensions of size 1 (all of them for [])."""
    helper = LayerHelper("squeeze", name=name)
    check_variable_and_dtype(input, "input", (*FLOATS, "int8", "int32", "int64"), "squeeze")
    check_type(axes, "axes", list, "squeeze")
    return append_simple(helper, "squeeze2", {"X": input}, {"axes": axes}, dtype=input.dtype, extra=("XShape",))


def unsqueeze(input: Variable, axes: int | Mixed | Variable, name: str | None = None) -> Variable:
    """input with dimensions of size 1 inserted."""
    if not isinstance(axes, (int, list, tuple, Variable)):
        raise ArgumentTypeError(
            f"The type of 'axes' in unsqueeze must be int, list, tuple or Variable, but received {type(axes)}."
        )
    helper = LayerHelper("unsqueeze2", name=name)
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {}
    places = [axes] if isinstance(axes, int) else axes
    if isinstance(places, Variable):
        places.stop_gradient = True
        inputs["AxesTensor"] = places
    elif has_tensors(places):
        inputs["AxesTensorList"] = number_tensors(helper, places)
    else:
        attrs["axes"] = list(places)
    return append_simple(helper, "unsqueeze2", inputs, attrs, dtype=input.dtype, extra=("XShape",))


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """x as a matrix: the dimensions before `axis` are rows, the others columns."""
    check_variable_and_dtype(x, "x", ("float32", "float64", "int8", "int32", "int64"), "flatten")
    helper = LayerHelper("flatten", name=name)
    if not isinstance(axis, int) or not 0 <= axis <= len(x.shape):
        raise UsageError(f"The axis should be a int, and in range [0, rank(x)], found {axis!r} for rank {len(x.shape)}")
    return append_simple(helper, "flatten2", {"X": x}, {"axis": axis}, dtype=x.dtype, extra=("XShape",))


def transpose(x: Variable, perm: list[int], name: str | None = None) -> Variable:
    """x with its dimensions in the order `perm`."""
    check_variable_and_dtype(x, "x", MOVABLE, "transpose")
    check_type(perm, "perm", list, "transpose")
    if len(perm) != len(x.shape):
        raise UsageError(
            "Input(perm) is the permutation of dimensions of Input(x), its length should be equal to dimensions of Input(x), "
            f"but received dimension of Input(x) is {len(x.shape)}, the length of Input(perm) is {len(perm)}."
        )
    for index, axis in enumerate(perm):
        if axis >= len(x.shape):
            raise UsageError(
                f"Each element in Input(perm) should be less than Input(x)'s dimension, but {index}-th element in Input(perm) "
                f"is {axis} which exceeds Input(x)'s dimension {len(x.shape)}."
            )
    helper = LayerHelper("transpose", name=name)
    return append_simple(helper, "transpose2", {"X": [x]}, {"axis": perm}, dtype=x.dtype, extra=("XShape",))


def t(input: Variable, name: str | None = None) -> Variable:
    """A matrix transposed; a vector is unchanged."""
    if len(input.shape) > 2:
        raise UsageError(
            "Input(input) only support N-D (N<=2) tensor, but received length of Input(input) is "
            f"{len(input.shape)}. Perhaps you can use paddle.tensor.transpose() instead."
        )
    check_variable_and_dtype(input, "input", MOVABLE, "transpose")
    helper = LayerHelper("t", name=name)
    if len(input.shape) == 1:
        helper.create_variable_for_type_inference(input.dtype)
        helper.create_variable_for_type_inference(input.dtype)
        return input
    return append_simple(helper, "transpose2", {"X": [input]}, {"axis": [1, 0]}, dtype=input.dtype, extra=("XShape",))


# ---------------------------------------------------------------- joining and splitting
def concat(input: Any, axis: int | Variable = 0, name: str | None = None) -> Variable:
    """Tensors concatenated along an axis; a LoDTensorArray joins its items."""
    if not isinstance(input, list):
        warnings.warn(f"The type of input in concat should be list, but received {type(input)}.", stacklevel=2)
        input = [input]
    for index, x in enumerate(input):
        check_variable_and_dtype(x, f"input[{index}]", MOVABLE, "concat")
    check_type(axis, "axis", (int, Variable), "concat")
    helper = LayerHelper("concat", input=input, name=name)
    dtype = helper.input_dtype()
    if input[0].type == VarType.LOD_TENSOR_ARRAY:
        return _join_array(helper, input, axis, use_stack=False)[0]
    inputs: dict[str, Any] = {"X": input}
    if isinstance(axis, Variable):
        axis.stop_gradient = True
        return append_simple(helper, "concat", inputs | {"AxisTensor": axis}, dtype=dtype)
    return append_simple(helper, "concat", inputs, {"axis": axis}, dtype=dtype)


def stack(x: Variable | Sequence[Variable], axis: int = 0) -> Variable:
    """Tensors of one shape along a new axis; a LoDTensorArray stacks its items."""
    helper = LayerHelper("stack")
    items: list[Variable] = [x] if isinstance(x, Variable) else list(x)
    if items[0].type == VarType.LOD_TENSOR_ARRAY:
        return _join_array(helper, items, axis, use_stack=True)[0]
    return append_simple(helper, "stack", {"X": items}, {"axis": axis or 0}, dtype=items[0].dtype, slot="Y")


def _join_array(
    helper: LayerHelper, items: Sequence[Variable], axis: Any, use_stack: bool
) -> tuple[Variable, Variable]:
    if len(items) != 1:
        raise UsageError(
            "If the elements of 'input' are Variable(LoDTensorArray), number of the elements must be 1, "
            f"but received {len(items)}."
        )
    out = helper.create_variable_for_type_inference(items[0].dtype)
    index = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="tensor_array_to_tensor",
        inputs={"X": items[0]},
        outputs={"Out": [out], "OutIndex": [index]},
        attrs={"axis": axis, "use_stack": use_stack},
    )
    return out, index


def tensor_array_to_tensor(
    input: Variable | list[Variable], axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """The items of a LoDTensorArray joined or stacked, and their sizes along the axis (int32)."""
    check_type(input, "input", (list, Variable), "tensor_array_to_tensor")
    items = input if isinstance(input, list) else [input]
    for index, item in enumerate(items):
        check_type(item, f"input[{index}]", Variable, "tensor_array_to_tensor")
    return _join_array(LayerHelper("tensor_array_to_tensor", name=name), items, axis, use_stack)


def split(
    input: Variable, num_or_sections: int | Mixed, dim: int | Variable = -1, name: str | None = None
) -> list[Variable]:
    """input split along a dimension into equal parts, or into sections of these sizes (one may be -1)."""
    if not isinstance(num_or_sections, (int, list, tuple)):
        raise ArgumentTypeError(
            f"The type of 'num_or_sections' in split must be int, list or tuple, but received {type(num_or_sections)}."
        )
    if not isinstance(dim, (int, Variable)):
        raise ArgumentTypeError(f"The type of 'dim' in split must be int or Variable, but received {type(dim)}.")
    helper = LayerHelper("split", name=name)
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"num": num_or_sections if isinstance(num_or_sections, int) else 0}
    size = -1
    if isinstance(dim, Variable):
        dim.stop_gradient = True
        inputs["AxisTensor"] = dim
    else:
        attrs["axis"] = len(input.shape) + dim if dim < 0 else dim
        size = input.shape[dim]
    if isinstance(num_or_sections, int):
        _check_parts(num_or_sections, size)
        count = num_or_sections
    else:
        count = len(num_or_sections)
        if 0 < size < count:
            raise UsageError("len(num_or_sections) must not be more than input.shape[dim].")
        attrs["sections"] = known(num_or_sections)
        if has_tensors(num_or_sections):
            inputs["SectionsTensorList"] = number_tensors(helper, num_or_sections)
    outs = [helper.create_variable_for_type_inference(input.dtype) for _ in range(count)]
    helper.append_op(type="split", inputs=inputs, outputs={"Out": outs}, attrs=attrs)
    return outs


def _check_parts(count: int, size: int) -> None:
    if count <= 1:
        raise AssertedError(f"num_or_sections must be more than 1, found {count}")
    if size > 0 and size % count:
        raise AssertedError(
            "The input's size along the split dimension must be evenly divisible by Attr(num_or_sections). "
            f"But {count} is not evenly divisible by {size}. "
        )


def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """The slices of x along an axis, without it."""
    helper = LayerHelper("unstack")
    if num is None:
        if axis is None or x.shape[axis] <= 0:
            raise UsageError("unknown unstack number")
        num = x.shape[axis]
    outs = [helper.create_variable_for_type_inference(x.dtype) for _ in range(num)]
    helper.append_op(type="unstack", inputs={"X": [x]}, outputs={"Y": outs}, attrs={"axis": axis, "num": num})
    return outs


def slice(input: Variable, axes: Sequence[int], starts: Mixed | Variable, ends: Mixed | Variable) -> Variable:
    """input from starts to before ends along these axes; negative positions count from the end."""
    for label, value in (("starts", starts), ("ends", ends)):
        if not isinstance(value, (list, tuple, Variable)):
            raise UsageError(f"Input {label} must be an Variable, python list or tuple.")
    helper = LayerHelper("slice")
    bounds = {"Starts": starts, "Ends": ends}
    return _append_slice(helper, "slice", input, axes, bounds)


def strided_slice(
    input: Variable,
    axes: Sequence[int],
    starts: Mixed | Variable,
    ends: Mixed | Variable,
    strides: Mixed | Variable,
) -> Variable:
    """slice with steps."""
    helper = LayerHelper("strided_slice")
    check_variable_and_dtype(input, "input", PLAIN, "strided_slice")
    check_type(axes, "axes", (list, tuple), "strided_slice")
    for label, value in (("starts", starts), ("ends", ends), ("strides", strides)):
        check_type(value, label, (list, tuple, Variable), "strided_slice")
    bounds = {"Starts": starts, "Ends": ends, "Strides": strides}
    return _append_slice(helper, "strided_slice", input, axes, bounds)


def _append_slice(
    helper: LayerHelper, op_type: str, input: Variable, axes: Sequence[int], bounds: dict[str, Mixed | Variable]
) -> Variable:
    inputs: dict[str, Any] = {"Input": input}
    attrs: dict[str, Any] = {"axes": list(axes)}
    flags = [1] * len(axes)
    for slot, values in bounds.items():
        if isinstance(values, Variable):
            values.stop_gradient = True
            inputs[f"{slot}Tensor"] = values
            flags = [-1] * len(axes)
            continue
        attrs[slot.lower()] = known(values)
        if has_tensors(values):
            inputs[f"{slot}TensorList"] = number_tensors(helper, values)
            flags = [-1 if isinstance(v, Variable) else f for v, f in zip(values, flags, strict=False)]
    return append_simple(helper, op_type, inputs, attrs | {"infer_flags": flags}, dtype=input.dtype)


def expand(x: Variable, expand_times: Mixed | Variable, name: str | None = None) -> Variable:
    """x repeated this many times along each dimension."""
    check_variable_and_dtype(x, "x", ("bool", *PLAIN), "expand")
    check_type(expand_times, "expand_times", (list, tuple, Variable), "expand")
    if x.dtype == VarType.BOOL and x.stop_gradient:
        raise UsageError("expand op bool date type must set the stop_gradient to be False")
    helper = LayerHelper("expand", name=name)
    inputs: dict[str, Any] = {"X": [x]}
    attrs: dict[str, Any] = {}
    if isinstance(expand_times, Variable):
        expand_times.stop_gradient = True
        inputs["ExpandTimes"] = expand_times
    else:
        if any(not isinstance(times, Variable) and times <= 0 for times in expand_times):
            raise AssertedError("Each element given in expand_times must not be negative.")
        attrs["expand_times"] = known(expand_times)
        if has_tensors(expand_times):
            inputs["expand_times_tensor"] = number_tensors(helper, expand_times)
    return append_simple(helper, "expand", inputs, attrs, dtype=x.dtype)


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """x repeated to the shape of another tensor."""
    kinds = (*PLAIN, "bool")
    check_variable_and_dtype(x, "x", kinds, "expand_as")
    check_variable_and_dtype(target_tensor, "target_tensor", kinds, "expand_as")
    helper = LayerHelper("expand_as", name=name)
    return append_simple(helper, "expand_as", {"X": x, "target_tensor": target_tensor}, dtype=x.dtype)


# ---------------------------------------------------------------- queries of shapes
def shape(input: Variable) -> Variable:
    """The sizes of input, int32."""
    check_variable_and_dtype(input, "input", PLAIN, "shape")
    return append_simple(LayerHelper("shape"), "shape", {"Input": input}, dtype="int32")


def rank(input: Variable) -> Variable:
    """The number of dimensions, int32."""
    return assign(np.array(len(input.shape), "int32"))


def size(input: Variable) -> Variable:
    """The number of elements, int64."""
    return append_simple(LayerHelper("size"), "size", {"Input": input}, dtype="int64")
