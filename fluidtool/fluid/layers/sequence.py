"""Layers of sequences: variables of LoD level 1 and more, whose rows belong to sequences of any length
(Paddle 1.8.5 layers/sequence_lod.py, lod_reset and lod_append of nn.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.fluid.checks import check_dtype, check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_several, append_simple
from fluidtool.ir import Variable
from fluidtool.ir.variable import data_type
from fluidtool.proto.enums import VarType

WIDE = ("float32", "float64")
PLAIN = (*WIDE, "int32", "int64")


# ---------------------------------------------------------------- within sequences
def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """A convolution over the steps of each sequence [total, n] -> [total, num_filters].

    padding_start: the start of the window relative to a step (default -filter_size // 2). As in Paddle, filter_stride is 1
    and steps outside of a sequence are zeros, whatever `padding` is.
    """
    check_variable_and_dtype(input, "input", WIDE, "sequence_conv")
    helper = LayerHelper("sequence_conv", bias_attr=bias_attr, param_attr=param_attr, act=act, name=name)
    weight = helper.create_parameter(helper.param_attr, [filter_size * input.shape[1], num_filters], input.dtype)
    attrs = {
        "contextStride": filter_stride,
        "contextStart": -(filter_size // 2) if padding_start is None else padding_start,
        "contextLength": filter_size,
    }
    inputs = {"X": [input], "Filter": [weight]}
    out = append_simple(helper, "sequence_conv", inputs, attrs, dtype=input.dtype)
    return helper.append_activation(helper.append_bias_op(out))


def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """softmax over the steps of each sequence [total, 1]."""
    helper = LayerHelper("sequence_softmax", name=name)
    check_variable_and_dtype(input, "input", WIDE, "sequence_softmax")
    return append_simple(helper, "sequence_softmax", {"X": input}, {"use_cudnn": use_cudnn}, dtype=input.dtype)


def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """The steps of each sequence in reverse order."""
    helper = LayerHelper("sequence_reverse", name=name)
    check_variable_and_dtype(x, "x", (*WIDE, "int8", "int32", "int64"), "fluid.layers.sequence_reverse")
    return append_simple(helper, "sequence_reverse", {"X": x}, dtype=x.dtype, slot="Y")


def sequence_enumerate(input: Variable, win_size: int, pad_value: int = 0, name: str | None = None) -> Variable:
    """For each step the win_size ids from it on, pad_value after the end: [total, 1] -> [total, win_size]."""
    check_variable_and_dtype(input, "input", ["int32", "int64"], "sequence_enumerate")
    helper = LayerHelper("sequence_enumerate", name=name)
    attrs = {"win_size": win_size, "pad_value": pad_value}
    return append_simple(helper, "sequence_enumerate", {"X": input}, attrs, dtype=input.dtype, stop_gradient=True)


def sequence_slice(input: Variable, offset: Variable, length: Variable, name: str | None = None) -> Variable:
    """Of each sequence `length` steps from `offset` on; both [sequences, 1]."""
    helper = LayerHelper("sequence_slice", name=name)
    check_variable_and_dtype(input, "input", PLAIN, "sequence_slice")
    check_variable_and_dtype(offset, "offset", ["int32", "int64"], "sequence_slice")
    check_variable_and_dtype(length, "length", ["int32", "int64"], "sequence_slice")
    offset.stop_gradient = length.stop_gradient = True
    inputs = {"X": input, "Offset": offset, "Length": length}
    return append_simple(helper, "sequence_slice", inputs, dtype=input.dtype)


def sequence_scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """input with updates added: row i at the columns that sequence i of `index` names."""
    helper = LayerHelper("sequence_scatter", name=name)
    check_variable_and_dtype(input, "input", PLAIN, "sequence_scatter")
    check_variable_and_dtype(index, "index", ["int32", "int64"], "sequence_scatter")
    check_variable_and_dtype(updates, "updates", PLAIN, "sequence_scatter")
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return append_simple(helper, "sequence_scatter", inputs, dtype=input.dtype)


# ---------------------------------------------------------------- sequences into rows
def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """One row per sequence: average, sum, sqrt, max, last or first of its steps; pad_value for an empty one."""
    check_variable_and_dtype(input, "input", ["float32"], "sequence_pool")
    helper = LayerHelper("sequence_pool")
    attrs = {"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value}
    kinds = {"Out": input.dtype, "MaxIndex": input.dtype}
    results = append_several(helper, "sequence_pool", {"X": input}, kinds, attrs)
    if pool_type == "max":
        results["MaxIndex"].stop_gradient = True
    return results["Out"]


def sequence_first_step(input: Variable) -> Variable:
    """The first step of each sequence."""
    check_variable_and_dtype(input, "input", WIDE, "sequence_first_step")
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Variable:
    """The last step of each sequence."""
    check_variable_and_dtype(input, "input", WIDE, "sequence_last_step")
    return sequence_pool(input, "last")


# ---------------------------------------------------------------- expanding and joining
def sequence_concat(input: list[Variable], name: str | None = None) -> Variable:
    """The sequences i of all inputs, concatenated."""
    helper = LayerHelper("sequence_concat", input=input, name=name)
    check_type(input, "input", list, "fluid.layers.sequence_concat")
    for index, var in enumerate(input):
        check_type(var, f"input[{index}]", Variable, "fluid.layers.sequence_concat")
        check_dtype(var.dtype, f"input[{index}]", ("int64", *WIDE), "fluid.layers.sequence_concat")
    return append_simple(helper, "sequence_concat", {"X": input}, dtype=helper.input_dtype())


def sequence_expand(x: Variable, y: Variable, ref_level: int = -1, name: str | None = None) -> Variable:
    """Each sequence (or row) of x, repeated once per entry of sequence i of y at level ref_level."""
    check_variable_and_dtype(x, "x", PLAIN, "sequence_expand")
    helper = LayerHelper("sequence_expand", name=name)
    return append_simple(helper, "sequence_expand", {"X": x, "Y": y}, {"ref_level": ref_level}, dtype=x.dtype)


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Row i of x repeated for every step of sequence i of y."""
    check_variable_and_dtype(x, "x", PLAIN, "sequence_expand_as")
    check_type(y, "y", Variable, "sequence_expand_as")
    helper = LayerHelper("sequence_expand_as", name=name)
    return append_simple(helper, "sequence_expand_as", {"X": x, "Y": y}, dtype=x.dtype)


def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Each sequence in rows of new_dim elements."""
    helper = LayerHelper("sequence_reshape")
    check_variable_and_dtype(input, "input", PLAIN, "fluid.layers.sequence_reshape")
    return append_simple(helper, "sequence_reshape", {"X": [input]}, {"new_dim": new_dim}, dtype=input.dtype)


# ---------------------------------------------------------------- padding and masks
def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Sequences as a tensor [sequences, maxlen or the longest, ...] filled up with pad_value, and their lengths (int64)."""
    helper = LayerHelper("sequence_pad", name=name)
    check_variable_and_dtype(x, "x", PLAIN, "fluid.layers.sequence_pad")
    check_variable_and_dtype(pad_value, "pad_value", PLAIN, "fluid.layers.sequence_pad")
    out = helper.create_variable_for_type_inference(x.dtype)
    length = helper.create_variable_for_type_inference(VarType.INT64)
    pad_value.stop_gradient = length.stop_gradient = True
    inputs = {"X": x, "PadValue": pad_value}
    attrs = {"padded_length": -1 if maxlen is None else maxlen}
    append_several(helper, "sequence_pad", inputs, {"Out": out, "Length": length}, attrs)
    return out, length


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """The first length[i] steps of row i, as sequences."""
    helper = LayerHelper("sequence_unpad", name=name)
    check_variable_and_dtype(x, "x", PLAIN, "fluid.layers.sequence_unpad")
    check_variable_and_dtype(length, "length", ["int64"], "fluid.layers.sequence_unpad")
    length.stop_gradient = True
    return append_simple(helper, "sequence_unpad", {"X": x, "Length": length}, dtype=x.dtype)


def sequence_mask(
    x: Variable, maxlen: int | Variable | None = None, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """For each length in x a row of maxlen (or the longest length) numbers: ones up to the length, then zeros."""
    helper = LayerHelper("sequence_mask", name=name)
    inputs: dict[str, Any] = {"X": [x]}
    attrs: dict[str, Any] = {"out_dtype": int(data_type(dtype))}
    if isinstance(maxlen, Variable):
        inputs["MaxLenTensor"] = maxlen
    elif maxlen is not None:
        attrs["maxlen"] = maxlen
    out = append_simple(helper, "sequence_mask", inputs, attrs, dtype=dtype, slot="Y")
    out.stop_gradient = True
    return out


# ---------------------------------------------------------------- levels of detail
def lod_reset(x: Variable, y: Variable | None = None, target_lod: list[int] | None = None) -> Variable:
    """x with a new LoD: that of y (or the offsets in y), or the offsets target_lod."""
    check_variable_and_dtype(x, "x", PLAIN, "lod_reset")
    helper = LayerHelper("lod_reset")
    out = helper.create_variable_for_type_inference(x.dtype)
    if y is not None:
        check_type(y, "y", Variable, "lod_reset")
        return append_simple(helper, "lod_reset", {"X": x, "Y": y}, dtype=x.dtype, out=out)
    if target_lod is None:
        raise UsageError("y and target_lod should not be both none.")
    return append_simple(helper, "lod_reset", {"X": x}, {"target_lod": target_lod}, dtype=x.dtype, out=out)


def lod_append(x: Variable, level: list[int] | tuple[int, ...] | Variable) -> Variable:
    """x with one more level of sequences within its sequences: offsets, or those of a variable."""
    if x is None:
        raise UsageError("Input(x) can't be None.")
    if not isinstance(level, (Iterable, Variable)):
        raise UsageError(f"Input(level) must be list, tuple or Variable, found {type(level).__name__}")
    check_variable_and_dtype(x, "x", PLAIN, "lod_append")
    inputs = {"X": x}
    attrs: dict[str, Any] = {"append": True}
    if isinstance(level, Variable):
        inputs["Y"] = level
    else:
        attrs["target_lod"] = list(level)
    return append_simple(LayerHelper("lod_append"), "lod_reset", inputs, attrs, dtype=x.dtype)
