"""Optimizers around another optimizer: recomputation and lookahead (Paddle 1.8.5 optimizer.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fluidtool.errors import AssertedError, UnsupportedOperatorError
from fluidtool.fluid import layers
from fluidtool.fluid.framework import default_startup_program, program_guard
from fluidtool.fluid.optimizer.base import Optimizer, ParamGrad
from fluidtool.ir import Operator, Program, Variable
from fluidtool.passes.backward import append_backward


class RecomputeOptimizer(Optimizer):
    """Keeps only the checkpoints of the forward pass, and recomputes the rest for the gradients.

    optimizer: makes the updates. `_set_checkpoints` sets the variables to keep.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(optimizer._learning_rate)
        self._optimizer = optimizer
        self._checkpoints: Sequence[Variable | str] | None = None
        self._learning_rate_map = optimizer._learning_rate_map

    def _set_checkpoints(self, checkpoints: Sequence[Variable | str]) -> None:
        self._checkpoints = checkpoints

    def load(self, stat_dict: Any) -> None:
        """Nothing: raises UnsupportedOperatorError (a NotImplementedError), as in Paddle."""
        raise UnsupportedOperatorError("load function is not supported by Recompute Optimizer for now")

    def apply_gradients(self, params_grads: Sequence[ParamGrad]) -> list[Operator]:
        """Append the updates of the inner optimizer."""
        return self._optimizer.apply_gradients(params_grads)

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[ParamGrad]
    ) -> list[Operator]:
        """Append the updates of the inner optimizer to the program of `loss`."""
        return self._optimizer.apply_optimize(loss, startup_program, params_grads)

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Sequence[Callable[..., None]] | None = None,
    ) -> list[ParamGrad]:
        """Append the gradients of `loss`, with recomputation between the checkpoints."""
        self._dtype = loss.dtype
        with program_guard(loss.block.program, startup_program):
            pairs = append_backward(loss, parameter_list, no_grad_set, checkpoints=self._checkpoints)
            self._optimizer._append_dgc_ops(pairs)
        return pairs

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append gradients and updates for `loss`; raises UsageError before `_set_checkpoints`."""
        if not isinstance(loss, Variable):
            raise AssertedError(f"The loss should be an Variable, found {type(loss).__name__}")
        if self._checkpoints is None:
            raise AssertedError("You should call _set_checkpoints first")
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs


class LookaheadOptimizer:
    """Slow weights follow the fast ones every k steps: slow += alpha * (fast - slow), fast = slow (Zhang et al. 2019).

    inner_optimizer: moves the fast weights. alpha: in 0 … 1. k: a positive integer.
    """

    def __init__(self, inner_optimizer: Optimizer, alpha: float = 0.5, k: int = 5) -> None:
        if inner_optimizer is None:
            raise AssertedError("inner optimizer can not be None")
        if not 0.0 <= alpha <= 1.0:
            raise AssertedError(f"alpha should be larger or equal to 0.0, and less or equal than 1.0; found {alpha}")
        if not isinstance(k, int) or k <= 0:
            raise AssertedError(f"k should be a positive integer; found {k!r}")
        self.inner_optimizer, self.alpha, self.k, self.type = inner_optimizer, alpha, k, "lookahead"

    def minimize(
        self, loss: Variable, startup_program: Program | None = None
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append the inner optimizer's operators and the slow weights; returns what the inner optimizer returned."""
        result = self.inner_optimizer.minimize(loss, startup_program=startup_program)
        startup = (default_startup_program() if startup_program is None else startup_program).global_block()
        block = loss.block
        names = [param.name for param in block.all_parameters()]
        slow = {
            name: block.create_var(name=f"{name}@SLOW", persistable=True, **_like(block.var(name))) for name in names
        }
        for name in names:
            start = startup.create_var(name=f"{name}@SLOW", persistable=True, **_like(startup.var(name)))
            startup.append_op(type="assign", inputs={"X": startup.var(name)}, outputs={"Out": start})
        every: Any = _constant("lookahead_k", self.k, "int32")
        alpha = _constant("lookahead_alpha", float(self.alpha), "float32")
        step = _constant("lookahead_step", 0, "int32")
        layers.increment(x=step, value=1.0, in_place=True)
        zero = layers.fill_constant(shape=[1], dtype="float32", value=0.0)
        one = layers.fill_constant(shape=[1], dtype="float32", value=1.0)
        rest: Any = layers.elementwise_mod(step, every)
        with layers.Switch() as switch:
            with switch.case(rest == zero):
                for name in names:
                    fast = block.var(name)
                    near = layers.elementwise_mul(fast, alpha)
                    far = layers.elementwise_mul(slow[name], layers.elementwise_sub(one, alpha))
                    mixed = layers.elementwise_add(near, far)
                    layers.assign(input=mixed, output=slow[name])
                    layers.assign(input=mixed, output=fast)
            with switch.default():
                pass
        return result


def _like(var: Variable) -> dict[str, Any]:
    return {"shape": var.shape, "dtype": var.dtype}


def _constant(name: str, value: float, dtype: str) -> Variable:
    return layers.create_global_var(name=name, shape=[1], value=value, dtype=dtype, persistable=True)
