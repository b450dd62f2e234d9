"""Reductions over dimensions, and their relatives: arg_max, sorting, top-k (Paddle 1.8.5 layers/nn.py and tensor.py)."""

from __future__ import annotations

from typing import Any, Protocol

from fluidtool.fluid.checks import check_given, check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.arithmetic import ORDERED
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.layers.elementary import exp, log
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType


class Reduction(Protocol):
    """A layer that reduces dimensions (all, when dim is None)."""

    def __call__(
        self, input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
    ) -> Variable: ...


def _reduction(op_type: str, meaning: str, kinds: tuple[str, ...] | None) -> Reduction:
    def layer(
        input: Variable, dim: int | list[int] | None = None, keep_dim: bool = False, name: str | None = None
    ) -> Variable:
        check_type(input, "input", Variable, op_type)
        if kinds is not None:
            check_variable_and_dtype(input, "input", kinds, op_type)
        dims = [] if dim is None else dim if isinstance(dim, list) else [dim]
        attrs = {"dim": dims or [0], "keep_dim": keep_dim, "reduce_all": not dims}
        return append_simple(LayerHelper(op_type, name=name), op_type, {"X": input}, attrs, dtype=input.dtype)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"{meaning} over `dim` (all dimensions when None); keep_dim leaves sizes of 1."
    return layer


reduce_sum = _reduction("reduce_sum", "The sum", ORDERED)
reduce_mean = _reduction("reduce_mean", "The mean", ORDERED)
reduce_max = _reduction("reduce_max", "The largest element", None)
reduce_min = _reduction("reduce_min", "The smallest element", None)
reduce_prod = _reduction("reduce_prod", "The product", None)
reduce_all = _reduction("reduce_all", "Whether all are true", ("bool",))
reduce_any = _reduction("reduce_any", "Whether any is true", ("bool",))


def logsumexp(
    x: Variable,
    dim: int | list[int] | None = None,
    keepdim: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """log(sum(exp(x))) over `dim`."""
    check_given(x=x)
    check_variable_and_dtype(x, "x", ("float32", "float64"), "logsumexp")
    if out is not None:
        check_type(out, "out", Variable, "logsumexp")
    total = reduce_sum(exp(x), dim, keepdim)
    if out is not None:
        return append_simple(LayerHelper("logsumexp", name=name), "log", {"X": total}, dtype=x.dtype, out=out)
    return log(total, name)


def _index_of(op_type: str, layer: str, x: Variable, axis: int) -> Variable:
    check_variable_and_dtype(x, "x", ("float32", "float64", "uint8", "int16", "int32", "int64"), layer)
    out = append_simple(LayerHelper(op_type), op_type, {"X": x}, {"axis": axis}, dtype=VarType.INT64)
    out.stop_gradient = True
    return out


def argmin(x: Variable, axis: int = 0) -> Variable:
    """The position of the smallest element along an axis, int64."""
    return _index_of("arg_min", "argmin", x, axis)


def argmax(x: Variable, axis: int = 0) -> Variable:
    """The position of the largest element along an axis, int64."""
    return _index_of("arg_max", "argmax", x, axis)


def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """The elements in order along an axis, and where each came from (int64)."""
    check_variable_and_dtype(input, "input", ("float32", "float64", "int16", "int32", "int64", "uint8"), "argsort")
    helper = LayerHelper("argsort", name=name)
    out = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    ids = helper.create_variable_for_type_inference(VarType.INT64, stop_gradient=True)
    helper.append_op(
        type="argsort",
        inputs={"X": input},
        outputs={"Out": out, "Indices": ids},
        attrs={"axis": axis, "descending": descending},
    )
    return out, ids


def topk(input: Variable, k: int | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """The k largest elements of each row, and their positions (int64)."""
    inputs: dict[str, Any] = {"X": [input]}
    attrs: dict[str, Any] = {}
    if isinstance(k, Variable):
        inputs["K"] = [k]
    else:
        attrs["k"] = k
    helper = LayerHelper("top_k", name=name)
    values = helper.create_variable_for_type_inference(input.dtype)
    indices = helper.create_variable_for_type_inference(VarType.INT64)
    helper.append_op(type="top_k", inputs=inputs, outputs={"Out": [values], "Indices": [indices]}, attrs=attrs)
    values.stop_gradient = indices.stop_gradient = True
    return values, indices


def has_inf(x: Variable) -> Variable:
    """Whether any element is infinite."""
    check_type(x, "x", Variable, "has_inf")
    return append_simple(LayerHelper("isinf"), "isinf", {"X": x}, dtype=x.dtype)


def has_nan(x: Variable) -> Variable:
    """Whether any element is NaN."""
    check_type(x, "x", Variable, "has_nan")
    return append_simple(LayerHelper("isnan"), "isnan", {"X": x}, dtype=x.dtype)


def isfinite(x: Variable) -> Variable:
    """Whether every element is finite."""
    check_variable_and_dtype(x, "x", ORDERED, "isfinite")
    return append_simple(LayerHelper("isfinite"), "isfinite", {"X": x}, dtype="bool")
