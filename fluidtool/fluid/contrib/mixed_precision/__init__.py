"""Training in float16 and float32 with a scaled loss (Micikevicius et al. 2018; Paddle 1.8.5 contrib/mixed_precision)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid import layers
from fluidtool.fluid.contrib.mixed_precision.lists import AutoMixedPrecisionLists
from fluidtool.fluid.contrib.mixed_precision.rewriting import move_casts_of_gradients, rewrite_program
from fluidtool.fluid.framework import default_main_program
from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.optimizer.base import Optimizer, ParamGrad
from fluidtool.ir import Operator, Program, Variable, unique_name
from fluidtool.records import dataclass

__all__ = ["AutoMixedPrecisionLists", "decorate"]

ScaledPairs = list[list[Any]]


def _variable(key: str, value: float, dtype: str) -> Any:
    name = unique_name.generate(key)
    return layers.create_global_var(name=name, shape=[1], value=value, dtype=dtype, persistable=True)


@dataclass(slots=True)
class _DynamicScaling:
    """The scale grows after steps whose gradients are finite, and shrinks after steps whose gradients are not."""

    incr_every_n_steps: Any
    decr_every_n_nan_or_inf: Any
    incr_ratio: float
    decr_ratio: float
    good_steps: Any
    bad_steps: Any

    def append(self, scale: Any, finite: Variable) -> None:
        """Append the update of the scale."""
        zero = layers.fill_constant(shape=[1], dtype="int32", value=0)
        with layers.Switch() as switch:
            with switch.case(finite):
                self._append_growth(scale, zero)
            with switch.default():
                self._append_shrinking(scale, zero)

    def _append_growth(self, scale: Any, zero: Variable) -> None:
        grows = layers.less_than(self.incr_every_n_steps, self.good_steps + 1)
        with layers.Switch() as switch:
            with switch.case(grows):
                grown = scale * self.incr_ratio
                with layers.Switch() as inner:
                    with inner.case(layers.isfinite(grown)):
                        layers.assign(grown, scale)
                    with inner.default():
                        pass
                layers.assign(zero, self.good_steps)
                layers.assign(zero, self.bad_steps)
            with switch.default():
                layers.increment(self.good_steps)
                layers.assign(zero, self.bad_steps)

    def _append_shrinking(self, scale: Any, zero: Variable) -> None:
        shrinks = layers.less_than(self.decr_every_n_nan_or_inf, self.bad_steps + 1)
        with layers.Switch() as switch:
            with switch.case(shrinks):
                shrunk = scale * self.decr_ratio
                one = layers.fill_constant(shape=[1], dtype="float32", value=1.0)
                below_one = layers.less_than(shrunk, one)
                with layers.Switch() as inner:
                    with inner.case(below_one):
                        layers.assign(one, scale)
                    with inner.default():
                        layers.assign(shrunk, scale)
                layers.assign(zero, self.good_steps)
                layers.assign(zero, self.bad_steps)
            with switch.default():
                layers.assign(zero, self.good_steps)
                layers.increment(self.bad_steps)


class OptimizerWithMixedPrecision:
    """The result of `decorate`: an optimizer whose programs compute partly in float16."""

    def __init__(
        self,
        optimizer: Optimizer,
        amp_lists: AutoMixedPrecisionLists,
        init_loss_scaling: float,
        use_dynamic_loss_scaling: bool,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int,
        incr_ratio: float,
        decr_ratio: float,
    ) -> None:
        self._optimizer, self._amp_lists = optimizer, amp_lists
        self._program = default_main_program()
        self._scaled_loss: Variable | None = None
        self._loss_scaling = _variable("loss_scaling", init_loss_scaling, "float32")
        self._dynamic: _DynamicScaling | None = None
        if use_dynamic_loss_scaling:
            self._dynamic = _DynamicScaling(
                layers.fill_constant(shape=[1], dtype="int32", value=incr_every_n_steps),
                layers.fill_constant(shape=[1], dtype="int32", value=decr_every_n_nan_or_inf),
                incr_ratio,
                decr_ratio,
                _variable("num_good_steps", 0, "int32"),
                _variable("num_bad_steps", 0, "int32"),
            )
        if isinstance(optimizer._learning_rate, float):
            rate = _variable("learning_rate", optimizer._learning_rate, "float32")
            optimizer._learning_rate_map[default_main_program()] = rate

    def get_loss_scaling(self) -> Variable:
        """The variable that the loss is multiplied by."""
        scaling: Variable = self._loss_scaling
        return scaling

    def get_scaled_loss(self) -> Variable | None:
        """The scaled loss; None before `backward`."""
        return self._scaled_loss

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Sequence[Callable[..., None]] | None = None,
    ) -> ScaledPairs:
        """Rewrite the program and append the gradients of the scaled loss; returns them divided by the scale."""
        rewrite_program(self._program, self._amp_lists)
        self._scaled_loss = loss * self._loss_scaling
        pairs: list[ParamGrad] = self._optimizer.backward(
            self._scaled_loss, startup_program, parameter_list, no_grad_set, callbacks
        )
        move_casts_of_gradients(self._program, pairs)
        scaled: ScaledPairs = []
        for param, grad in pairs:
            gradient: Any = grad
            with self._program.optimized_guard([param, grad]):
                scaled.append([param, gradient / self._loss_scaling])
        return scaled

    def apply_gradients(self, scaled_params_grads: ScaledPairs) -> list[Operator]:
        """Append the update of the scale and of the parameters; gradients that are not finite count as zeros."""
        if self._dynamic is not None:
            sums = [layers.reduce_sum(grad) for _, grad in scaled_params_grads]
            finite = layers.isfinite(layers.reduce_sum(layers.concat(sums)))
            self._dynamic.append(self._loss_scaling, finite)
            with layers.Switch() as switch:
                with switch.case(finite):
                    pass
                with switch.default():
                    for _, grad in scaled_params_grads:
                        layers.assign(layers.zeros_like(grad), grad)
        return self._optimizer.apply_gradients([(param, grad) for param, grad in scaled_params_grads])

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], ScaledPairs]:
        """`backward` and `apply_gradients`."""
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_gradients(pairs), pairs


def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 2**15,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = True,
) -> OptimizerWithMixedPrecision:
    """The optimizer for programs that compute in float16 by amp_lists; call it while the program is the default one.

    The loss is multiplied by a scale: init_loss_scaling, times incr_ratio after incr_every_n_steps steps with finite
    gradients, times decr_ratio after decr_every_n_nan_or_inf without. Raises ArgumentTypeError unless given an optimizer.
    """
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"decorate takes an optimizer, found {type(optimizer).__name__}")
    return OptimizerWithMixedPrecision(
        optimizer,
        AutoMixedPrecisionLists() if amp_lists is None else amp_lists,
        init_loss_scaling,
        use_dynamic_loss_scaling,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
    )


__getattr__ = refuse_other_names("paddle.fluid.contrib.mixed_precision", __all__)
