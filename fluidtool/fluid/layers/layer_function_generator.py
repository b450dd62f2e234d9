"""Layers made of an operator's declaration (Paddle 1.8.5 layers/layer_function_generator.py)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.op_protos import OpProtoHolder
from fluidtool.ir import Variable
from fluidtool.ir.variable import data_type
from fluidtool.proto.framework_pb2 import OpProto

__all__ = ["autodoc", "deprecated", "generate_activation_fn", "generate_layer_fn", "templatedoc"]

Function = Callable[..., Any]


def generate_layer_fn(op_type: str) -> Function:
    """The layer of an operator with one output: inputs by position or by name, in small letters; attributes by name.

    Raises UsageError for an operator with other outputs.
    """
    proto = OpProtoHolder.instance().get_op_proto(op_type)
    results = [each.name for each in proto.outputs if not each.intermediate]
    between = [each.name for each in proto.outputs if each.intermediate]
    if len(results) != 1 or any(each.duplicable for each in proto.outputs):
        raise UsageError(f"a layer can be made of an operator with one output of one variable; {op_type} has others")
    (result,) = results

    def function(*args: Any, **kwargs: Any) -> Variable:
        helper = LayerHelper(op_type, **kwargs)
        inputs = _inputs(proto, list(args), kwargs)
        dtype = _common_type(op_type, inputs, kwargs)
        given = _as_list(kwargs.pop(_small(result), None))
        out = given[0] if given else helper.create_variable_for_type_inference(dtype)
        outputs = {name: [helper.create_variable_for_type_inference(dtype)] for name in between} | {result: [out]}
        attrs = {name: value for name, value in kwargs.items() if name != "name"}
        helper.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs)
        return helper.append_activation(out)

    function.__name__, function.__doc__ = op_type, f"The operator {op_type}."
    return function


def _inputs(proto: OpProto, args: list[Any], kwargs: dict[str, Any]) -> dict[str, list[Variable]]:
    """The variables of each slot, which are taken from both; raises UsageError for what is no variable."""
    found = {}
    for slot in proto.inputs:
        value = kwargs.pop(_small(slot.name), None)
        found[slot.name] = _as_list(args.pop(0) if value is None and args else value)
        for each in found[slot.name]:
            if not isinstance(each, Variable):
                raise UsageError(f"input of {proto.type} must be variable, found {each!r} for {slot.name}")
    return found


def _common_type(op_type: str, inputs: dict[str, list[Variable]], kwargs: dict[str, Any]) -> Any:
    """The one data type of all inputs, that of `dtype` without inputs; raises UsageError for several."""
    types = {each.dtype for given in inputs.values() for each in given}
    if len(types) > 1:
        raise UsageError(f"operator {op_type} must input same dtype, found {', '.join(sorted(map(str, types)))}")
    return next(iter(types), None) or data_type(kwargs.get("dtype") or "float32")


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _small(name: str) -> str:
    """GroupName as group_name."""
    parted = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", parted).lower()


def generate_activation_fn(op_type: str) -> Function:
    """The layer of an operator from X to Out, of which `x` and `name` can be said."""
    OpProtoHolder.instance().get_op_proto(op_type)

    def function(x: Variable, name: str | None = None) -> Variable:
        helper = LayerHelper(op_type, x=x, name=name)
        out = helper.create_variable_for_type_inference(x.dtype)
        helper.append_op(type=op_type, inputs={"X": x}, outputs={"Out": out})
        return out

    function.__name__, function.__doc__ = op_type, f"{op_type} of x, elementwise."
    return function


def deprecated(function: Function) -> Function:
    """The function, which warns whenever it is called."""

    @wraps(function)
    def warning(*args: Any, **kwargs: Any) -> Any:
        text = f"Call to deprecated function {function.__name__}."
        warnings.warn(text, category=DeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    return warning


def autodoc(comment: str = "") -> Callable[[Function], Function]:
    """A decorator that ends a function's documentation with a comment."""

    def documented(function: Function) -> Function:
        function.__doc__ = (function.__doc__ or "") + comment
        return function

    return documented


def templatedoc(op_type: str | None = None) -> Callable[[Function], Function]:
    """A decorator that leaves a function as it is: Paddle fills in what the operator's declaration says."""
    return lambda function: function
