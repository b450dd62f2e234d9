"""py_func: an operator that calls a Python function registered in this process (Paddle 1.8.5 py_func_op.cc).

A program names a function by its number. Only functions registered in this process are ever called: an unknown number
from a file is an error.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from fluidtool.errors import FluidError, OperatorError
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GRAD, GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, strings
from fluidtool.ops.traits import Traits
from fluidtool.tensor import LoDTensor

PythonFunction = Callable[..., Any]
FRAMEWORK = ("op_device",)


class _Registered:
    functions: list[PythonFunction] = []  # noqa: RUF012 (numbers are places in this list, for the whole process)


def register_function(function: PythonFunction) -> int:
    """Register a function in this process; returns its number."""
    _Registered.functions.append(function)
    return len(_Registered.functions) - 1


def registered_function(number: int) -> PythonFunction:
    """The function with a number; raises OperatorError if this process has not registered it."""
    if not 0 <= number < len(_Registered.functions):
        raise OperatorError(
            f"py_func calls the Python function number {number}, but this process has registered "
            f"{len(_Registered.functions)}: a file contains numbers, not functions. Build the program with "
            "fluid.layers.py_func in the process that runs it"
        )
    return _Registered.functions[number]


def registered_function_count() -> int:
    """How many functions this process has registered."""
    return len(_Registered.functions)


@op(
    "py_func",
    inputs="X*",
    outputs="Out*",
    attrs={"forward_callable_id": 0, "backward_callable_id": -1, "backward_skip_vars": strings()},
    raw=True,
    side_effects=True,
    traits=Traits(gradient_scope=False),
)
def py_func(ctx: OpContext, *, forward_callable_id: int) -> dict[str, list[Any]]:
    """Out = function(*X): LoDTensors on the host in, arrays or LoDTensors (one, or a list of them, or None) out.

    An input without value is an empty tensor. Raises OperatorError if the number of results is wrong.
    """
    function = registered_function(forward_callable_id)
    given = [_on_host(ctx, None if holder is None else holder.value) for holder in ctx.inputs.get("X", ())]
    results = _as_list(_call(function, given))
    wanted = ctx.outputs.get("Out", ())
    if not wanted and results == [None]:
        return {}
    if len(results) != len(wanted):
        raise ctx.error(f"Output number not match. Expected {len(wanted)}, but the function returned {len(results)}")
    return {"Out": [None if holder is None else _result(ctx, i, results[i]) for i, holder in enumerate(wanted)]}


def _on_host(ctx: OpContext, value: Any) -> LoDTensor:
    """A read-only tensor for the function, as its memory may be shared."""
    if not isinstance(value, LoDTensor) or not value.is_initialized():
        return LoDTensor()
    array = ctx.host(value.array).view()
    array.flags.writeable = False
    return LoDTensor(array, value.lod())


def _result(ctx: OpContext, index: int, value: Any) -> LoDTensor:
    if value is None:
        raise ctx.error(f"Output tensor {index} should not be nullptr: the function returned None for it")
    tensor = value
    if not isinstance(value, LoDTensor):
        tensor = LoDTensor()
        tensor.set(value)
    return LoDTensor(ctx.array(tensor.array), tensor.lod())


def _as_list(values: Any) -> Sequence[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _call(function: PythonFunction, given: list[LoDTensor]) -> Any:
    """The function's results; its exception becomes an OperatorError that names the line that raised it."""
    try:
        return function(*given) if inspect.signature(function).parameters else function()
    except FluidError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        name = getattr(function, "__name__", "function")
        raise OperatorError(
            f"the Python function {name} raised {type(error).__name__}: {error}, in {last.filename}, line {last.lineno}: "
            f"{last.line}"
        ) from error


@py_func.infer
def _(ctx: InferContext) -> list[TensorMeta | None]:
    """A gradient has the metadata of its variable; other outputs keep the caller's declaration."""
    names = ctx.op.output("Out")
    return [ctx.meta(name.removesuffix(GRAD) if name.endswith(GRAD) else name) for name in names]


@py_func.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """The backward function gets the inputs, outputs and gradients of outputs, except those it skips; None: no gradient."""
    backward = int(context.op.attr("backward_callable_id"))
    if backward < 0:
        return []
    skipped = set(context.op.attr("backward_skip_vars"))
    given = [name for name in (*context.input("X"), *context.output("Out")) if name not in skipped]
    attrs = {"forward_callable_id": backward, "backward_callable_id": -1}
    attrs |= {name: context.op.attr(name) for name in FRAMEWORK if context.op.has_attr(name)}
    inputs, outputs = [*given, *context.output_grad("Out")], context.input_grad("X", drop_empty=False)
    return [OpDescription("py_func", {"X": inputs}, {"Out": outputs}, attrs)]
