"""py_func: Python functions as operators (Paddle 1.8.5 layers/nn.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.checks import check_type
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.ir import Variable
from fluidtool.ops.control_flow.python_functions import (
    register_function,
    registered_function,
    registered_function_count,
)

Variables = Variable | Sequence[Variable] | None


def py_func(
    func: Callable[..., Any],
    x: Variables,
    out: Variables,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Variables = None,
) -> Variables:
    """Call `func` with the LoDTensors of `x` whenever the program runs; its results go to `out`, which is returned.

    out: variables created by the caller, with their shapes and data types. backward_func: gets x, out and the gradients
    of out, except skip_vars_in_backward_input, and returns the gradients of x; by default x gets none.
    The program runs only in this process: files do not contain functions.
    Raises ArgumentTypeError and UsageError.
    """
    helper = LayerHelper("py_func")
    inputs, outputs = _listed(x, "X"), _listed(out, "Out")
    for function in (func, backward_func):
        if not callable(function) and (function is func or function is not None):
            raise ArgumentTypeError(f"func must be a Python function, found {function!r}")
    shapeless = [var.name for var in outputs if not var.shape]
    if shapeless:
        raise UsageError(
            f"Output shapes of py_func op should be provided by users manually, found none for {shapeless[0]}"
        )
    skipped = _skipped(inputs, outputs, skip_vars_in_backward_input) if backward_func is not None else []
    helper.append_op(
        type="py_func",
        inputs={"X": inputs},
        outputs={"Out": outputs},
        attrs={
            "forward_callable_id": register_function(func),
            "backward_callable_id": -1 if backward_func is None else register_function(backward_func),
            "backward_skip_vars": skipped,
        },
    )
    return out


py_func.registered_func = registered_function  # type: ignore[attr-defined]
py_func.registered_func_num = registered_function_count  # type: ignore[attr-defined]


def _listed(variables: Variables, slot: str) -> list[Variable]:
    check_type(variables, slot, (list, tuple, Variable, type(None)), "py_func")
    items = [variables] if isinstance(variables, Variable) else list(variables or ())
    for item in items:
        check_type(item, slot, Variable, "py_func")
    return items


def _skipped(inputs: list[Variable], outputs: list[Variable], variables: Variables) -> list[str]:
    known = {var.name for var in (*inputs, *outputs)}
    names = [var.name for var in _listed(variables, "skip_vars_in_backward_input")]
    for name in names:
        if name not in known:
            raise UsageError(f"Variable {name} is not found in forward inputs and outputs")
    return list(dict.fromkeys(names))
