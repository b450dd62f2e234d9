"""Optimizers with one operator: their arguments, accumulators and attributes (Paddle 1.8.5 optimizer.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidtool.fluid.checks import check_given, check_set
from fluidtool.fluid.framework import name_scope
from fluidtool.fluid.optimizer.base import Accumulator, Optimizer, ParamGrad
from fluidtool.ir import Block, Operator, Variable


class SGDOptimizer(Optimizer):
    """param -= learning_rate * grad."""

    type = "sgd"


class MomentumOptimizer(Optimizer):
    """velocity = momentum * velocity + grad; param -= learning_rate * velocity, or Nesterov's form."""

    type = "momentum"
    state = (Accumulator("velocity", "Velocity", "VelocityOut"),)

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        parameter_list: Any = None,
        use_nesterov: bool = False,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        check_given(momentum=momentum)
        self._momentum, self._use_nesterov = momentum, bool(use_nesterov)

    def attrs(self, param: Variable) -> dict[str, Any]:
        """mu, use_nesterov."""
        return {"mu": self._momentum, "use_nesterov": self._use_nesterov}


class LarsMomentumOptimizer(Optimizer):
    """Momentum with a learning rate per layer from the norms of parameter and gradient (You et al. 2017)."""

    type = "lars_momentum"
    state = (Accumulator("velocity", "Velocity", "VelocityOut"),)

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        check_given(momentum=momentum)
        self._momentum, self._lars_coeff, self._lars_weight_decay = momentum, lars_coeff, lars_weight_decay

    def attrs(self, param: Variable) -> dict[str, Any]:
        """mu, lars_coeff, lars_weight_decay."""
        return {
            "mu": self._momentum,
            "lars_coeff": float(self._lars_coeff),
            "lars_weight_decay": float(self._lars_weight_decay),
        }


class AdagradOptimizer(Optimizer):
    """moment += grad²; param -= learning_rate * grad / (sqrt(moment) + epsilon)."""

    type = "adagrad"

    def __init__(
        self,
        learning_rate: float | Variable,
        epsilon: float = 1e-6,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        check_given(epsilon=epsilon)
        self._epsilon, self.initial_accumulator_value = epsilon, initial_accumulator_value

    def accumulators(self) -> tuple[Accumulator, ...]:
        """The sum of squares."""
        return (Accumulator("moment", "Moment", "MomentOut", fill=self.initial_accumulator_value),)

    def attrs(self, param: Variable) -> dict[str, Any]:
        """epsilon."""
        return {"epsilon": self._epsilon}


class AdamOptimizer(Optimizer):
    """Kingma and Ba 2014. lazy_mode: sparse gradients update only the rows they contain.

    beta1 and beta2 may be Variables.
    """

    type = "adam"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        check_given(beta1=beta1, beta2=beta2, epsilon=epsilon)
        self._beta1, self._beta2, self._epsilon, self._lazy_mode = beta1, beta2, epsilon, lazy_mode

    def accumulators(self) -> tuple[Accumulator, ...]:
        """First and second moment, and the powers of the betas (on the CPU)."""
        first = 0.9 if isinstance(self._beta1, Variable) else self._beta1
        second = 0.999 if isinstance(self._beta2, Variable) else self._beta2
        return (
            Accumulator("moment1", "Moment1", "Moment1Out"),
            Accumulator("moment2", "Moment2", "Moment2Out"),
            Accumulator("beta1_pow_acc", "Beta1Pow", "Beta1PowOut", fill=first, scalar=True, device="cpu"),
            Accumulator("beta2_pow_acc", "Beta2Pow", "Beta2PowOut", fill=second, scalar=True, device="cpu"),
        )

    def attrs(self, param: Variable) -> dict[str, Any]:
        """epsilon, lazy_mode, and the betas that are numbers."""
        attrs = {"epsilon": self._epsilon, "lazy_mode": self._lazy_mode, "min_row_size_to_use_multithread": 1000}
        for name, beta in (("beta1", self._beta1), ("beta2", self._beta2)):
            if not isinstance(beta, Variable):
                attrs[name] = beta
        return attrs

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        op = super()._append_optimize_op(block, param_and_grad)
        for slot, beta in (("Beta1Tensor", self._beta1), ("Beta2Tensor", self._beta2)):
            if isinstance(beta, Variable):
                op.set_input(slot, [beta])
        return op


class AdamaxOptimizer(Optimizer):
    """Adam with the infinity norm (Kingma and Ba 2014, section 7)."""

    type = "adamax"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        check_given(beta1=beta1, beta2=beta2, epsilon=epsilon)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon

    def accumulators(self) -> tuple[Accumulator, ...]:
        """Moment, infinity norm, and the power of beta1 (advanced after all updates)."""
        return (
            Accumulator("moment", "Moment", "MomentOut"),
            Accumulator("inf_norm", "InfNorm", "InfNormOut"),
            Accumulator("beta1_pow_acc", "Beta1Pow", None, fill=self._beta1, scalar=True),
        )

    def attrs(self, param: Variable) -> dict[str, Any]:
        """beta1, beta2, epsilon."""
        return {"beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon}

    def _finish_update(self, block: Block, parameters_and_grads: Sequence[ParamGrad]) -> None:
        for param, grad in parameters_and_grads:
            if grad is None or not getattr(param, "trainable", True):
                continue
            with param.block.program.optimized_guard([param, grad]), name_scope("adamx"):
                power = self._get_accumulator("beta1_pow_acc", param)
                block.append_op(
                    type="scale", inputs={"X": power}, outputs={"Out": power}, attrs={"scale": float(self._beta1)}
                )


class DpsgdOptimizer(Optimizer):
    """Differentially private sgd (Abadi et al. 2016): clipped gradients with gaussian noise."""

    type = "dpsgd"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        clip: float = 0.9,
        batch_size: float = 0.999,
        sigma: float = 1e-8,
        parameter_list: Any = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list)
        check_given(clip=clip, batch_size=batch_size, sigma=sigma)
        self._clip, self._batch_size, self._sigma = clip, batch_size, sigma
        self._seed: int | None = None

    def attrs(self, param: Variable) -> dict[str, Any]:
        """clip, batch_size, sigma, seed."""
        return {"clip": self._clip, "batch_size": self._batch_size, "sigma": self._sigma, "seed": self._seed or 0}


class DecayedAdagradOptimizer(Optimizer):
    """moment = decay * moment + (1 - decay) * grad²; param -= learning_rate * grad / (sqrt(moment) + epsilon)."""

    type = "decayed_adagrad"
    state = (Accumulator("moment", "Moment", "MomentOut"),)

    def __init__(
        self,
        learning_rate: float | Variable,
        decay: float = 0.95,
        epsilon: float = 1e-6,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        check_given(decay=decay, epsilon=epsilon)
        self._decay, self._epsilon = decay, epsilon

    def attrs(self, param: Variable) -> dict[str, Any]:
        """epsilon, decay."""
        return {"epsilon": self._epsilon, "decay": self._decay}


class AdadeltaOptimizer(Optimizer):
    """Zeiler 2012."""

    type = "adadelta"
    state = (
        Accumulator("_avg_squared_grad", "AvgSquaredGrad", "AvgSquaredGradOut"),
        Accumulator("_avg_squared_update", "AvgSquaredUpdate", "AvgSquaredUpdateOut"),
    )

    def __init__(
        self,
        learning_rate: float | Variable,
        epsilon: float = 1e-6,
        rho: float = 0.95,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        check_set(epsilon=epsilon, rho=rho)
        self._epsilon, self._rho = epsilon, rho

    def attrs(self, param: Variable) -> dict[str, Any]:
        """epsilon, rho."""
        return {"epsilon": self._epsilon, "rho": self._rho}

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        """Without a learning rate: the method has none."""
        return self._append_update(block, param_and_grad, {})


class RMSPropOptimizer(Optimizer):
    """Hinton 2012; centered subtracts the squared mean of the gradient (Graves 2013)."""

    type = "rmsprop"
    state = (
        Accumulator("momentum", "Moment", "MomentOut"),
        Accumulator("mean_square", "MeanSquare", "MeanSquareOut"),
        Accumulator("mean_grad", "MeanGrad", "MeanGradOut"),
    )

    def __init__(
        self,
        learning_rate: float | Variable,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        check_set(rho=rho, epsilon=epsilon, momentum=momentum)
        self._rho, self._epsilon, self._momentum, self._centered = rho, epsilon, momentum, centered

    def attrs(self, param: Variable) -> dict[str, Any]:
        """epsilon, decay, momentum, centered."""
        return {
            "epsilon": self._epsilon,
            "decay": self._rho,
            "momentum": self._momentum,
            "centered": self._centered,
        }


class FtrlOptimizer(Optimizer):
    """Follow the regularized leader (McMahan et al. 2013). As in Paddle 1.8.5, `l1` also stands for l2 in the operator."""

    type = "ftrl"
    state = (
        Accumulator("squared", "SquaredAccumulator", "SquaredAccumOut"),
        Accumulator("linear", "LinearAccumulator", "LinearAccumOut"),
    )

    def __init__(
        self,
        learning_rate: float | Variable,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._l1, self._l2, self._lr_power = l1, l2, lr_power

    def attrs(self, param: Variable) -> dict[str, Any]:
        """l1, l2, lr_power."""
        return {"l1": self._l1, "l2": self._l1, "lr_power": self._lr_power}


class LambOptimizer(AdamOptimizer):
    """Adam scaled by layer (You et al. 2019). exclude_from_weight_decay_fn(param): which have no weight decay."""

    type = "lamb"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        exclude_from_weight_decay_fn: Callable[[Variable], bool] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, parameter_list, regularization, grad_clip, name)
        check_given(lamb_weight_decay=lamb_weight_decay)
        self._weight_decay, self._exclude = lamb_weight_decay, exclude_from_weight_decay_fn

    def attrs(self, param: Variable) -> dict[str, Any]:
        """beta1, beta2, epsilon, weight_decay."""
        excluded = self._exclude is not None and self._exclude(param)
        return {
            "beta1": self._beta1,
            "beta2": self._beta2,
            "epsilon": self._epsilon,
            "weight_decay": 0.0 if excluded else self._weight_decay,
        }

    def accumulators(self) -> tuple[Accumulator, ...]:
        """Adam's; the operator reads the powers of the betas and does not advance them (as in Paddle 1.8.5)."""
        moments = super().accumulators()
        powers = [Accumulator(a.name, a.slot, None, a.fill, a.scalar, a.device) for a in moments[2:]]
        return (*moments[:2], *powers)


SGD = SGDOptimizer
Momentum = MomentumOptimizer
LarsMomentum = LarsMomentumOptimizer
Adagrad = AdagradOptimizer
Adam = AdamOptimizer
Adamax = AdamaxOptimizer
Dpsgd = DpsgdOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
Adadelta = AdadeltaOptimizer
RMSProp = RMSPropOptimizer
Ftrl = FtrlOptimizer
Lamb = LambOptimizer
