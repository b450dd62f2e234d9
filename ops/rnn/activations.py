"""The activations of recurrent cells: sigmoid, tanh, relu and identity, with gradients in terms of the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.records import dataclass

SIGMOID_LOW, SIGMOID_HIGH = -40.0, 13.0


@dataclass(frozen=True, slots=True)
class Activation:
    """`forward(xp, x)` gives y; `backward(y, dy)` gives dx."""

    name: str
    forward: Callable[[Any, Any], Any]
    backward: Callable[[Any, Any], Any]


def sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)) with x held within [-40, 13], as Paddle's LSTM and GRU kernels do."""
    out = xp.minimum(xp.maximum(x, SIGMOID_LOW), SIGMOID_HIGH)
    xp.negative(out, out=out)
    xp.exp(out, out=out)
    out += 1
    return xp.reciprocal(out, out=out)


def full_sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)) over the whole range; the exponential of floats of two bytes must not overflow."""
    if x.dtype.itemsize > 2:
        out = xp.negative(x)
        xp.exp(out, out=out)
        out += 1
        return xp.reciprocal(out, out=out)
    decay = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1 / (1 + decay), decay / (1 + decay))


IDENTITY = Activation("identity", lambda xp, x: x, lambda y, dy: dy)
SIGMOID = Activation("sigmoid", sigmoid, lambda y, dy: dy * y * (1 - y))
FULL_SIGMOID = Activation("sigmoid", full_sigmoid, SIGMOID.backward)
TANH = Activation("tanh", lambda xp, x: xp.tanh(x), lambda y, dy: dy * (1 - y * y))
RELU = Activation("relu", lambda xp, x: xp.maximum(x, 0), lambda y, dy: dy * (y > 0))

BY_NAME = {activation.name: activation for activation in (SIGMOID, TANH, RELU, IDENTITY)}


def activation(ctx: OpContext | InferContext, attr: str, name: str) -> Activation:
    """The activation that attribute `attr` names; raises OperatorError for a name outside the four."""
    found = BY_NAME.get(name)
    if found is None:
        raise ctx.error(f"attribute {attr} must be one of {', '.join(BY_NAME)}, found {name!r}")
    assert found is not None
    return found
