"""The common shape of layer functions: create a temporary, append one operator, return the temporary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.ir import Variable

FLOATS = ("float16", "float32", "float64")


def append_simple(
    helper: LayerHelper,
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    dtype: Any,
    out: Variable | None = None,
    slot: str = "Out",
    extra: tuple[str, ...] = (),
    stop_gradient: bool = False,
) -> Variable:
    """Append one operator that writes one variable, and return it.

    inputs: variables by slot, None left out. out: written instead of a temporary. extra: further output slots
    that only the gradient reads; each gets a temporary of the same data type, created after the first.
    """
    result = helper.create_variable_for_type_inference(dtype, stop_gradient) if out is None else out
    outputs = {slot: [result]}
    for name in extra:
        outputs[name] = [helper.create_variable_for_type_inference(dtype, stop_gradient=True)]
    given = {name: value for name, value in inputs.items() if value is not None}
    helper.append_op(type=op_type, inputs=given, outputs=outputs, attrs=dict(attrs or {}))
    return result


def append_several(
    helper: LayerHelper,
    op_type: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
) -> dict[str, Variable]:
    """Append one operator that writes several variables, and return them by slot.

    inputs: variables by slot, None left out. outputs: by slot a data type (a temporary is made, in this order) or the
    variable to write to.
    """
    results = {
        slot: kind if isinstance(kind, Variable) else helper.create_variable_for_type_inference(kind)
        for slot, kind in outputs.items()
    }
    given = {name: value for name, value in inputs.items() if value is not None}
    helper.append_op(type=op_type, inputs=given, outputs=results, attrs=dict(attrs or {}))
    return results
