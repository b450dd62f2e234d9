"""Tensors split by a condition and merged again, and inspection of tensors at run time."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.fluid.checks import check_dtype, check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.ir import Variable

SEVERAL = (Variable, list, tuple, type(None))


def select_output(input: Variable, outputs: Sequence[Variable], mask: Variable) -> Sequence[Variable]:
    """outputs[mask] = input; mask: one int32."""
    helper = LayerHelper("select_output")
    check_type(input, "input", Variable, "select_output")
    check_variable_and_dtype(mask, "mask", ("int32",), "select_output")
    check_type(outputs, "outputs", (list, tuple), "select_output")
    helper.append_op(type="select_output", inputs={"X": input, "Mask": mask}, outputs={"Out": list(outputs)})
    return outputs


def select_input(inputs: Sequence[Variable], mask: Variable) -> Variable:
    """inputs[mask]; mask: one int32."""
    helper = LayerHelper("select_input")
    check_type(inputs, "inputs", (list, tuple), "select_input")
    check_variable_and_dtype(mask, "mask", ("int32",), "select_input")
    like = inputs[0]
    out = helper.create_variable(dtype=like.dtype, shape=like.shape, type=like.type)
    return append_simple(helper, "select_input", {"X": list(inputs), "Mask": mask}, dtype=like.dtype, out=out)


def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """The sequences (rows without LoD) of input where mask [n, 1] is true, and the others."""
    check_type(input, "input", SEVERAL, "fluid.layers.split_lod_tensor")
    check_type(mask, "mask", (Variable, list), "fluid.layers.split_lod_tensor")
    check_type(level, "level", int, "fluid.layers.split_lod_tensor")
    helper = LayerHelper("split_lod_tensor")
    out_true = helper.create_variable_for_type_inference(input.dtype)
    out_false = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        type="split_lod_tensor",
        inputs={"X": input, "Mask": mask},
        outputs={"OutTrue": out_true, "OutFalse": out_false},
        attrs={"level": level},
    )
    return out_true, out_false


def merge_lod_tensor(in_true: Variable, in_false: Variable, x: Variable, mask: Variable, level: int = 0) -> Variable:
    """The inverse of split_lod_tensor, in the order of mask; x gives the LoD levels above `level`."""
    helper = LayerHelper("merge_lod_tensor")
    check_type(x, "x", SEVERAL, "fluid.layers.merge_lod_tensor")
    check_type(mask, "mask", (Variable, list), "fluid.layers.merge_lod_tensor")
    check_type(in_true, "in_true", SEVERAL, "fluid.layers.merge_lod_tensor")
    check_type(in_false, "in_false", SEVERAL, "fluid.layers.merge_lod_tensor")
    inputs = {"X": x, "Mask": mask, "InTrue": in_true, "InFalse": in_false}
    return append_simple(helper, "merge_lod_tensor", inputs, {"level": level}, dtype=in_true.dtype)


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Whether x has no elements, [1] bool, stored in `cond` if given."""
    check_variable_and_dtype(x, "x", ("float32", "float64", "int32", "int64"), "is_empty")
    check_type(cond, "cond", (Variable, type(None)), "is_empty")
    helper = LayerHelper("is_empty")
    if cond is not None:
        check_dtype(cond.dtype, "cond", ("bool",), "is_empty")
    return append_simple(helper, "is_empty", {"X": [x]}, dtype="bool", out=cond, stop_gradient=cond is None)


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """input itself, printed whenever it is computed (print_phase: 'forward', 'backward' or 'both').

    first_n: print at most this many times (-1: always); summarize: at most this many elements (-1: all).
    """
    kinds = ("float32", "float64", "int32", "int64", "bool")
    check_variable_and_dtype(input, "input", kinds, "fluid.layers.Print")
    attrs = {
        "first_n": first_n,
        "summarize": summarize,
        "message": message or "",
        "print_tensor_name": print_tensor_name,
        "print_tensor_type": print_tensor_type,
        "print_tensor_shape": print_tensor_shape,
        "print_tensor_lod": print_tensor_lod,
        "print_phase": print_phase.upper(),
    }
    return append_simple(LayerHelper(f"print_{input.name}"), "print", {"In": input}, attrs, dtype=input.dtype)
