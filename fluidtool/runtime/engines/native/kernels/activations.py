"""Gradients of activations from their outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import are_floats, in_rows, run_call, task_count
from fluidtool.runtime.engines.native.kernels.last import empty_last, is_only_last, memory_of
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.graph.ir import Activation

RELU, RELU6, SIGMOID, TANH, LEAKY_RELU = (
    abi.ActivationKind.RELU,
    abi.ActivationKind.RELU6,
    abi.ActivationKind.SIGMOID,
    abi.ActivationKind.TANH,
    abi.ActivationKind.LEAKY_RELU,
)


def relu_gradient(library: Library, ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """The gradient of fluidtool.ops.activation's relu, for float32."""
    return gradient(library, RELU, Out, Out_grad)


def relu6_gradient(library: Library, ctx: OpContext, Out: Any, Out_grad: Any, *, threshold: float) -> Any:
    """The gradient of relu6."""
    return gradient(library, RELU6, Out, Out_grad, threshold)


def leaky_relu_gradient(library: Library, ctx: OpContext, Out: Any, Out_grad: Any, *, alpha: float) -> Any:
    """The gradient of leaky_relu."""
    return gradient(library, LEAKY_RELU, Out, Out_grad, alpha)


def sigmoid_gradient(library: Library, ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """The gradient of sigmoid."""
    return gradient(library, SIGMOID, Out, Out_grad)


def tanh_gradient(library: Library, ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """The gradient of tanh."""
    return gradient(library, TANH, Out, Out_grad)


def gradient(library: Library, kind: int, made: Any, grad: Any, constant: float = 0.0) -> Any:
    """The incoming gradient times the activation's slope, derived from its output."""
    if made is None or grad is None or not are_floats(made, grad) or made.shape != grad.shape or not made.size:
        return NotImplemented
    if is_only_last(made):
        found, (out, out_grad) = empty_last(made.shape), map(memory_of, (made, grad))
        arguments = abi.ActivationGradient(out=out, out_grad=out_grad, source_grad=memory_of(found), count=made.size)
    else:
        found = np.empty(made.shape, np.float32)
        arguments = abi.ActivationGradient(
            out=in_rows(made), out_grad=in_rows(grad), source_grad=found, count=made.size
        )
    run_call(library, arguments, task_count(library, made.size), Activation(kind, (constant,)))
    return found
