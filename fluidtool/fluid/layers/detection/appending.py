"""Common code of detection layers: append one operator that writes several temporaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidtool.fluid.checks import check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.ir import Variable

REAL = ("float32", "float64")


def append_op(
    helper: LayerHelper,
    op_type: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    *,
    stop_gradient: bool = True,
) -> list[Variable]:
    """Append an operator and return its outputs: a temporary of the given data type for every output slot.

    Inputs and attributes that are None are left out.
    """
    made = {slot: helper.create_variable_for_type_inference(dtype, stop_gradient) for slot, dtype in outputs.items()}
    given = {slot: value for slot, value in inputs.items() if value is not None}
    helper.append_op(type=op_type, inputs=given, outputs=made, attrs=dict(attrs))
    return list(made.values())


def check_reals(op_name: str, **variables: Any) -> None:
    """Raise ArgumentTypeError unless these arguments are Variables of float32 or float64."""
    for name, value in variables.items():
        check_variable_and_dtype(value, name, REAL, op_name)


def check_int32(op_name: str, **variables: Any) -> None:
    """Raise ArgumentTypeError unless these arguments are Variables of int32."""
    for name, value in variables.items():
        check_variable_and_dtype(value, name, ("int32",), op_name)


def as_list(value: Any) -> list[Any]:
    """A list of one or of several."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def floats(value: Any) -> list[float]:
    """One number or several as floats."""
    return [float(item) for item in as_list(value)]
