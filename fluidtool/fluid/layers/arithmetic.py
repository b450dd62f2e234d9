"""Arithmetic on whole tensors: elementwise pairs, products, sums, comparisons, clips (Paddle 1.8.5 layers/nn.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.fluid.checks import check_dtype, check_given, check_type, check_variable_and_dtype, convert_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_simple
from fluidtool.fluid.layers.creation import assign
from fluidtool.ir import Variable, unique_name
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

ORDERED = ("float32", "float64", "int32", "int64")


class Elementwise(Protocol):
    """A layer of two inputs; y is broadcast onto x from dimension `axis` on."""

    def __call__(
        self, x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
    ) -> Variable: ...


def _elementwise(op_type: str, formula: str) -> Elementwise:
    def layer(x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
        helper = LayerHelper(op_type, act=act, name=name)
        check_given(x=x, y=y)
        check_variable_and_dtype(x, "x", (*FLOATS, "int32", "int64"), op_type)
        check_variable_and_dtype(y, "y", (*FLOATS, "int32", "int64"), op_type)
        attrs = {"axis": axis, "use_mkldnn": False}
        return helper.append_activation(append_simple(helper, op_type, {"X": x, "Y": y}, attrs, dtype=x.dtype))

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"{formula}; y is broadcast onto x from dimension `axis` on (-1: the last ones)."
    return layer


elementwise_add = _elementwise("elementwise_add", "x + y")
elementwise_sub = _elementwise("elementwise_sub", "x - y")
elementwise_mul = _elementwise("elementwise_mul", "x * y")
elementwise_div = _elementwise("elementwise_div", "x / y")
elementwise_max = _elementwise("elementwise_max", "The larger of x and y")
elementwise_min = _elementwise("elementwise_min", "The smaller of x and y")
elementwise_pow = _elementwise("elementwise_pow", "x to the y")
elementwise_mod = _elementwise("elementwise_mod", "The remainder of x / y")
elementwise_floordiv = _elementwise("elementwise_floordiv", "x / y without its fraction")


def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """x == y, element by element."""
    helper = LayerHelper("elementwise_equal", name=name)
    return append_simple(helper, "equal", {"X": [x], "Y": [y]}, {"force_cpu": False}, dtype="bool", stop_gradient=True)


# ---------------------------------------------------------------- comparison and logic
class Comparison(Protocol):
    """A layer that compares two inputs, stored in `cond` if given."""

    def __call__(self, x: Variable, y: Variable, cond: Variable | None = None) -> Variable: ...


def _compare(op_type: str, sign: str) -> Comparison:
    def layer(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
        return _comparison(op_type, x, y, cond, {})

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"x {sign} y, element by element, into `cond` when given."
    return layer


def _comparison(op_type: str, x: Variable, y: Variable, cond: Variable | None, attrs: dict[str, Any]) -> Variable:
    check_variable_and_dtype(x, "x", ORDERED, op_type)
    check_variable_and_dtype(y, "y", ORDERED, op_type)
    if cond is not None:
        check_type(cond, "cond", Variable, op_type)
    helper = LayerHelper(op_type)
    inputs = {"X": [x], "Y": [y]}
    if cond is not None:
        return append_simple(helper, op_type, inputs, attrs, dtype="bool", out=cond)
    return append_simple(helper, op_type, inputs, attrs, dtype="bool", stop_gradient=True)


less_equal = _compare("less_equal", "<=")
greater_than = _compare("greater_than", ">")
greater_equal = _compare("greater_equal", ">=")
equal = _compare("equal", "==")
not_equal = _compare("not_equal", "!=")


def less_than(x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None) -> Variable:
    """x < y, element by element, into `cond` when given."""
    if force_cpu is not None:
        check_type(force_cpu, "force_cpu", bool, "less_than")
    return _comparison("less_than", x, y, cond, {} if force_cpu is None else {"force_cpu": force_cpu})


def _logical(op_type: str, x: Variable, y: Variable | None, out: Variable | None, name: str | None) -> Variable:
    check_variable_and_dtype(x, "x", ("bool",), op_type)
    if y is not None:
        check_variable_and_dtype(y, "y", ("bool",), op_type)
    if out is not None:
        check_type(out, "out", Variable, op_type)
    return append_simple(LayerHelper(op_type, name=name), op_type, {"X": x, "Y": y}, dtype=x.dtype, out=out)


def logical_and(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """x and y."""
    return _logical("logical_and", x, y, out, name)


def logical_or(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """x or y."""
    return _logical("logical_or", x, y, out, name)


def logical_xor(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Either x or y, not both."""
    return _logical("logical_xor", x, y, out, name)


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Not x."""
    return _logical("logical_not", x, None, out, name)


def allclose(
    input: Variable,
    other: Variable,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Whether |input - other| <= atol + rtol * |other| everywhere."""
    check_type(rtol, "rtol", float, "allclose")
    check_type(atol, "atol", float, "allclose")
    check_type(equal_nan, "equal_nan", bool, "allclose")
    attrs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    inputs = {"Input": input, "Other": other}
    return append_simple(LayerHelper("allclose", name=name), "allclose", inputs, attrs, dtype="bool")


# ---------------------------------------------------------------- sums and products
def mean(x: Variable, name: str | None = None) -> Variable:
    """The mean of all elements, shape [1]."""
    helper = LayerHelper("mean", name=name)
    check_variable_and_dtype(x, "x", FLOATS, "mean")
    return append_simple(helper, "mean", {"X": x}, dtype=x.dtype)


def sums(input: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """The sum of several tensors, stored in `out` if given."""
    _check_terms(input, "input", "sums")
    helper = LayerHelper("sum", input=input)
    if out is not None:
        check_variable_and_dtype(out, "out", ORDERED, "sums")
    dtype = helper.input_dtype() if out is None else out.dtype
    return append_simple(helper, "sum", {"X": input}, {"use_mkldnn": False}, dtype=dtype, out=out)


def sum(x: Variable | Sequence[Variable]) -> Variable:
    """The sum of several tensors."""
    helper = LayerHelper("sum", x=x)
    _check_terms(x, "x", "sum")
    return append_simple(helper, "sum", {"X": x}, {"use_mkldnn": False}, dtype=helper.input_dtype("x"))


def _check_terms(terms: Variable | Sequence[Variable], name: str, op_name: str) -> None:
    check_type(terms, name, (Variable, tuple, list), op_name)
    for term in terms if isinstance(terms, (list, tuple)) else [terms]:
        check_variable_and_dtype(term, name, ORDERED, op_name)


def scale(
    x: Variable,
    scale: float | Variable = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """scale * x + bias, or scale * (x + bias)."""
    kinds = (*FLOATS, "int8", "int16", "int32", "int64", "uint8")
    check_variable_and_dtype(x, "x", kinds, "scale")
    inputs: dict[str, Any] = {"X": [x]}
    attrs: dict[str, Any] = {"bias": float(bias), "bias_after_scale": bias_after_scale}
    if isinstance(scale, Variable):
        inputs["ScaleTensor"] = [scale]
    else:
        attrs["scale"] = float(scale)
    helper = LayerHelper("scale", act=act, name=name)
    return helper.append_activation(append_simple(helper, "scale", inputs, attrs, dtype=x.dtype))


def mul(
    x: Variable, y: Variable, x_num_col_dims: int = 1, y_num_col_dims: int = 1, name: str | None = None
) -> Variable:
    """The product of x and y as matrices, flattened before and after these dimensions."""
    helper = LayerHelper("mul", name=name)
    check_variable_and_dtype(x, "x", FLOATS, "mul")
    check_variable_and_dtype(y, "y", FLOATS, "mul")
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return append_simple(helper, "mul", {"X": x, "Y": y}, attrs, dtype=x.dtype)


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """alpha * x @ y over the last two dimensions; raises UsageError for shapes that do not fit."""
    for label, var in (("x", x), ("y", y)):
        check_variable_and_dtype(var, label, FLOATS, "matmul")
    _check_matrices(list(x.shape), list(y.shape), transpose_x, transpose_y)
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": float(alpha)}
    return append_simple(LayerHelper("matmul", name=name), "matmul", {"X": x, "Y": y}, attrs, dtype=x.dtype)


def _check_matrices(x_shape: list[int], y_shape: list[int], transpose_x: bool, transpose_y: bool) -> None:
    x_shape = [1, *x_shape] if len(x_shape) == 1 else x_shape
    y_shape = [*y_shape, 1] if len(y_shape) == 1 else y_shape
    if transpose_x:
        x_shape[-2], x_shape[-1] = x_shape[-1], x_shape[-2]
    if transpose_y:
        y_shape[-2], y_shape[-1] = y_shape[-1], y_shape[-2]
    if x_shape[-1] != y_shape[-2] and -1 not in (x_shape[-1], y_shape[-2]):
        raise AssertedError(
            "After performing an optional transpose, Input X's width should be equal to Y's width for multiplication "
            f"prerequisites. But received X's shape: {shape_text(x_shape)}, Y's shape: {shape_text(y_shape)}\n"
        )
    if len(x_shape) > 2 and len(y_shape) > 2:
        for axis, (left, right) in enumerate(zip(x_shape[:-2], y_shape, strict=False)):
            if left >= 0 and right >= 0 and left != right:
                raise UsageError(
                    "When the matrix is larger than 2 dimensions, the higher dimensional values of the two matrices need to "
                    f"be equal. But received x_shape[{axis}] != y_shape[{axis}]. "
                    f"X's shape: {shape_text(x_shape)}, Y's shape: {shape_text(y_shape)}.\n"
                )


def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The products of two batches of matrices."""
    return append_simple(LayerHelper("bmm", name=name), "bmm", {"X": x, "Y": y}, dtype=x.dtype)


def addmm(
    input: Variable, x: Variable, y: Variable, alpha: float = 1.0, beta: float = 1.0, name: str | None = None
) -> Variable:
    """alpha * x @ y + beta * input."""
    helper = LayerHelper("addmm", name=name)
    for label, var in (("Input", x), ("X", x), ("Y", y)):
        check_variable_and_dtype(var, label, ("float32", "float64"), "addmm")
    attrs = {"Alpha": alpha, "Beta": beta}
    return append_simple(helper, "addmm", {"Input": input, "X": x, "Y": y}, attrs, dtype=x.dtype)


def addcmul(
    input: Variable,
    tensor1: Variable,
    tensor2: Variable,
    value: float = 1.0,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """input + value * tensor1 * tensor2."""
    for label, var in (("input", input), ("tensor1", tensor1), ("tensor2", tensor2)):
        check_variable_and_dtype(var, label, ORDERED, "addcmul")
    check_type(value, "value", float if convert_dtype(input.dtype).startswith("float") else int, "addcmul")
    product: Any = elementwise_mul(tensor1, tensor2)
    total = elementwise_add(input, product * value)
    return total if out is None else assign(total, out)


def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Scalar products of the rows of x and y."""
    check_given(x=x, y=y)
    check_variable_and_dtype(x, "x", ORDERED, "dot")
    check_variable_and_dtype(y, "y", ORDERED, "dot")
    helper = LayerHelper("dot", name=name)
    out = None if name is None else helper.create_variable(name=name, dtype=x.dtype, persistable=False)
    return append_simple(helper, "dot", {"X": x, "Y": y}, dtype=x.dtype, out=out)


def cross(input: Variable, other: Variable, dim: int | None = None) -> Variable:
    """Cross products along a dimension of size 3 (default: the first of that size)."""
    attrs = {"dim": dim} if dim else {}
    return append_simple(LayerHelper("cross"), "cross", {"X": input, "Y": other}, attrs, dtype=input.dtype)


def dist(x: Variable, y: Variable, p: float = 2) -> Variable:
    """The p-norm of x - y."""
    check_variable_and_dtype(x, "dtype", ("float32", "float64"), "dist")
    check_variable_and_dtype(y, "dtype", ("float32", "float64"), "dist")
    check_type(p, "p", (float, int), "dist")
    return append_simple(LayerHelper("dist"), "dist", {"X": [x], "Y": [y]}, {"p": float(p)}, dtype=x.dtype)


def kron(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """The Kronecker product."""
    helper = LayerHelper("kron", name=name)
    kinds = (*FLOATS, "int32", "int64")
    for label, var in (("x", x), ("y", y), *((("out", out),) if out is not None else ())):
        check_variable_and_dtype(var, label, kinds, "kron")
    return append_simple(helper, "kron", {"X": x, "Y": y}, dtype=x.dtype, out=out)


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """The cosine between the rows of X and Y (Y may have one row)."""
    check_variable_and_dtype(X, "X", ("float32",), "cos_sim")
    check_variable_and_dtype(Y, "Y", ("float32",), "cos_sim")
    helper = LayerHelper("cos_sim")
    out, xnorm, ynorm = (helper.create_variable_for_type_inference(X.dtype) for _ in range(3))
    outputs = {"Out": [out], "XNorm": [xnorm], "YNorm": [ynorm]}
    helper.append_op(type="cos_sim", inputs={"X": [X], "Y": [Y]}, outputs=outputs)
    return out


# ---------------------------------------------------------------- clips and sparse rows
def _named(helper: LayerHelper, x: Variable, name: str | None) -> Variable:
    """An output of the same kind as x, with the given name or a temporary one."""
    key = unique_name.generate(f"{helper.name}.tmp") if name is None else name
    return helper.create_variable(type=x.type, name=key, dtype=x.dtype, persistable=False)


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """x clipped to min and max."""
    helper = LayerHelper("clip", name=name)
    check_variable_and_dtype(x, "x", FLOATS, "clip")
    out = _named(helper, x, name)
    return append_simple(helper, "clip", {"X": x}, {"min": float(min), "max": float(max)}, dtype=x.dtype, out=out)


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """x scaled down to an L2 norm of at most max_norm."""
    helper = LayerHelper("clip_by_norm", name=name)
    check_variable_and_dtype(x, "X", ("float32",), "clip_by_norm")
    check_type(max_norm, "max_norm", float, "clip_by_norm")
    out = _named(helper, x, name)
    return append_simple(helper, "clip_by_norm", {"X": x}, {"max_norm": max_norm}, dtype=x.dtype, out=out)


def clamp(
    input: Variable,
    min: float | Variable | None = None,
    max: float | Variable | None = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """input clipped to bounds that may be tensors; at least one is required.

    As in Paddle 1.8.5, a missing bound is the smallest (largest) positive normal number.
    """
    if min is None and max is None:
        raise AssertedError("either min or max should be defined.")
    inputs: dict[str, Any] = {"X": input}
    attrs = {"min": sys.float_info.min, "max": sys.float_info.max}
    for label, slot, bound in (("min", "Min", min), ("max", "Max", max)):
        if bound is None:
            continue
        check_type(bound, label, (float, Variable), "clamp")
        if isinstance(bound, Variable):
            check_dtype(bound.dtype, label, ("float32", "float64", "int32"), "clamp")
            bound.stop_gradient = True
            inputs[slot] = bound
        else:
            attrs[label] = bound
    return append_simple(LayerHelper("clamp", name=name), "clip", inputs, attrs, dtype=input.dtype, out=output)


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """SelectedRows with duplicate rows summed."""
    helper = LayerHelper("merge_selected_rows", name=name)
    return append_simple(helper, "merge_selected_rows", {"X": x}, dtype=x.dtype)


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """The values of SelectedRows as a tensor."""
    check_type(x, "x", Variable, "get_tensor_from_selected_rows")
    if x.type != VarType.SELECTED_ROWS:
        raise ArgumentTypeError(
            f"The type of 'x' in get_tensor_from_selected_rows must be SELECTED_ROWS, found {VarType(x.type).name}"
        )
    helper = LayerHelper("get_tensor_from_selected_rows", name=name)
    return append_simple(helper, "get_tensor_from_selected_rows", {"X": x}, dtype=x.dtype)
