"""Weight decay that leaves the gradients alone (Loshchilov and Hutter 2017; Paddle 1.8.5 contrib/extend_optimizer)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid.framework import name_scope
from fluidtool.fluid.layers import assign, elementwise_sub
from fluidtool.fluid.optimizer.base import Optimizer, ParamGrad
from fluidtool.ir import Operator, Program, Variable

__all__ = ["extend_with_decoupled_weight_decay"]


def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """A class of optimizers like `base_optimizer` with the keyword `weight_decay`, a float or a Variable.

    Before its update a parameter is reduced by weight_decay times its value. apply_decay_param_fun(name) selects parameters
    (default: all trained ones). Raises ArgumentTypeError unless base_optimizer is a class of optimizers.
    """
    if not (isinstance(base_optimizer, type) and issubclass(base_optimizer, Optimizer)):
        raise ArgumentTypeError(
            f"The input(base_optimizer) should be a derived class of Optimizer, found {base_optimizer!r}"
        )

    class OptimizerWithDecoupledWeightDecay(base_optimizer):  # type: ignore[misc, valid-type]
        __doc__ = f"{base_optimizer.__name__} with decoupled weight decay."

        def __init__(
            self,
            weight_decay: float | Variable,
            apply_decay_param_fun: Callable[[str], bool] | None = None,
            **kwargs: Any,
        ) -> None:
            if not isinstance(weight_decay, (float, Variable)):
                raise ArgumentTypeError(f"coeff should be float or Variable, found {weight_decay!r}")
            self._coeff, self._applies = weight_decay, apply_decay_param_fun
            super().__init__(**kwargs)

        def minimize(
            self,
            loss: Variable,
            startup_program: Program | None = None,
            parameter_list: Iterable[Variable | str] | None = None,
            no_grad_set: Iterable[Variable | str] | None = None,
        ) -> tuple[list[Operator], list[ParamGrad]]:
            """Append gradients, decays and updates for `loss`."""
            pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
            _append_decays(pairs, self._coeff, self._applies)
            return self.apply_optimize(loss, startup_program, pairs), pairs

    return OptimizerWithDecoupledWeightDecay


def _append_decays(pairs: Sequence[ParamGrad], coeff: float | Variable, applies: Callable[[str], bool] | None) -> None:
    if coeff == 0.0 and isinstance(coeff, float):
        return
    scaled: list[tuple[Variable, Variable, Any]] = []
    for param, grad in pairs:
        if grad is None or (applies is not None and not applies(param.name)):
            continue
        with param.block.program.optimized_guard([param, grad]), name_scope("weight decay"):
            weight: Any = param
            scaled.append((param, grad, weight * coeff))
    for param, grad, decay in scaled:
        with param.block.program.optimized_guard([param, grad]), name_scope("weight decay"):
            assign(input=elementwise_sub(x=param, y=decay), output=param)
