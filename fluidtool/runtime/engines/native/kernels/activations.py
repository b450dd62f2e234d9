"""Gradients of activations from their outputs."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.backward import in_memory, place_for
from fluidtool.runtime.engines.native.kernels.direct import are_floats, run_call, task_count
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.graph.ir import Activation

RELU, RELU6, SIGMOID, TANH, LEAKY_RELU = (
    abi.ActivationKind.RELU,
    abi.ActivationKind.RELU6,
    abi.ActivationKind.SIGMOID,
    abi.ActivationKind.TANH,
    abi.ActivationKind.LEAKY_RELU,
)


def relu_gradient(library: Library, ctx: OpContext, Out: Any, Out_grad: Any, *, over: Any = None) -> Any:
    """The gradient of fluidtool.ops.activation's relu, for float32."""
    return gradient(library, RELU, Out, Out_grad, over)


def relu6_gradient(
    library: Library, ctx: OpContext, Out: Any, Out_grad: Any, *, threshold: float, over: Any = None
) -> Any:
    """The gradient of relu6."""
    return gradient(library, RELU6, Out, Out_grad, over, threshold)


def leaky_relu_gradient(
    library: Library, ctx: OpContext, Out: Any, Out_grad: Any, *, alpha: float, over: Any = None
) -> Any:
    """The gradient of leaky_relu."""
    return gradient(library, LEAKY_RELU, Out, Out_grad, over, alpha)


def sigmoid_gradient(library: Library, ctx: OpContext, Out: Any, Out_grad: Any, *, over: Any = None) -> Any:
    """The gradient of sigmoid."""
    return gradient(library, SIGMOID, Out, Out_grad, over)


def tanh_gradient(library: Library, ctx: OpContext, Out: Any, Out_grad: Any, *, over: Any = None) -> Any:
    """The gradient of tanh."""
    return gradient(library, TANH, Out, Out_grad, over)


def gradient(library: Library, kind: int, made: Any, grad: Any, over: Any = None, constant: float = 0.0) -> Any:
    """The incoming gradient times the activation's slope, derived from its output."""
    if made is None or grad is None or not are_floats(made, grad) or made.shape != grad.shape or not made.size:
        return NotImplemented
    found = place_for(made, over)
    out, out_grad, source_grad = (in_memory(made, array) for array in (made, grad, found))
    arguments = abi.ActivationGradient(out=out, out_grad=out_grad, source_grad=source_grad, count=made.size)
    run_call(library, arguments, task_count(library, made.size), Activation(kind, (constant,)))
    return found
