"""`paddle.optimizer`: the optimizers in Paddle 2's spelling (`parameters`, `weight_decay`, a default learning rate)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid import optimizer as fluid_optimizer
from fluidtool.fluid.regularizer import L2DecayRegularizer

SPELLING = {"parameters": "parameter_list", "weight_decay": "regularization"}
LAST = "weight_decay grad_clip name"


def respelled(kind: str, arguments: str, **defaults: Any) -> Callable[..., Any]:
    """A function with Paddle 2's arguments, in their order, that creates the optimizer of this kind."""
    names = arguments.split()

    def make(*values: Any, **named: Any) -> Any:
        unknown = sorted(set(named) - set(names))
        if unknown or len(values) > len(names):
            raise ArgumentTypeError(f"paddle.optimizer.{kind} takes {', '.join(names)}; found {unknown or values}")
        twice = sorted(set(named) & set(names[: len(values)]))
        if twice:
            raise ArgumentTypeError(f"paddle.optimizer.{kind} got several values for {', '.join(twice)}")
        given = {**defaults, **dict(zip(names, values, strict=False)), **named}
        if isinstance(given.get("weight_decay"), (int, float)):
            given["weight_decay"] = L2DecayRegularizer(float(given["weight_decay"]))
        given["learning_rate"] = as_rate(given["learning_rate"])
        return getattr(fluid_optimizer, kind)(**{SPELLING.get(name, name): value for name, value in given.items()})

    make.__name__ = make.__qualname__ = kind
    make.__doc__ = f"`fluid.optimizer.{kind}` with the arguments {', '.join(names)}."
    return make


def as_rate(rate: Any) -> Any:
    """An integer as float, which is what `fluid` takes."""
    return float(rate) if isinstance(rate, int) and not isinstance(rate, bool) else rate


SGD = respelled("SGD", f"learning_rate parameters {LAST}", learning_rate=0.001)
Momentum = respelled(
    "Momentum", f"learning_rate momentum parameters use_nesterov {LAST}", learning_rate=0.001, momentum=0.9
)
Adam = respelled(
    "Adam", "learning_rate beta1 beta2 epsilon parameters weight_decay grad_clip lazy_mode name", learning_rate=0.001
)
Adamax = respelled("Adamax", f"learning_rate beta1 beta2 epsilon parameters {LAST}", learning_rate=0.001)
Adagrad = respelled(
    "Adagrad", f"learning_rate epsilon parameters {LAST} initial_accumulator_value", learning_rate=0.001
)
Adadelta = respelled("Adadelta", f"learning_rate epsilon rho parameters {LAST}", learning_rate=0.001)
RMSProp = respelled("RMSProp", f"learning_rate rho epsilon momentum centered parameters {LAST}", learning_rate=0.001)

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "Adamax", "Momentum", "RMSProp"]
