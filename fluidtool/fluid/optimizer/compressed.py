"""DGCMomentum: momentum that sends only large gradients to other processes (Lin et al. 2017; Paddle 1.8.5 optimizer.py)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.clip import GradientClipByNorm
from fluidtool.fluid.optimizer.base import Accumulator
from fluidtool.fluid.optimizer.simple import MomentumOptimizer
from fluidtool.ir import Variable

COMPRESSED_FROM = 16384  # elements of a parameter


class DGCMomentumOptimizer(MomentumOptimizer):
    """Momentum in one process: nothing is sent, so nothing is compressed.

    rampup_begin_step, rampup_step, sparsity: when and how much processes would omit; checked and kept.
    grad_clip: a GradientClipByNorm; gradients of large parameters are clipped to clip_norm / sqrt(num_trainers).
    Raises ArgumentTypeError, UsageError.
    """

    state = (Accumulator("_dgc_u_", "Velocity", "VelocityOut"),)  # its name with compression

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = (0.999,),
        parameter_list: Any = None,
        use_nesterov: bool = False,
        num_trainers: int | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        if rampup_begin_step < 0:
            raise UsageError(f"rampup_begin_step must >= 0, found {rampup_begin_step}")
        if grad_clip is not None:
            grad_clip = _PartOfNorm.of(grad_clip, num_trainers)
        super().__init__(learning_rate, momentum, parameter_list, use_nesterov, regularization, grad_clip, name)
        self._rampup_begin_step, self._rampup_step, self._sparsity = rampup_begin_step, rampup_step, list(sparsity)


class _PartOfNorm(GradientClipByNorm):
    """Clips one trainer's contribution to a large gradient."""

    def __init__(self, clip_norm: float, num_trainers: int) -> None:
        super().__init__(clip_norm)
        self.num_trainers = num_trainers

    @classmethod
    def of(cls, grad_clip: Any, num_trainers: Any) -> _PartOfNorm:
        """The clip of one trainer; raises ArgumentTypeError, UsageError."""
        if not isinstance(grad_clip, GradientClipByNorm):
            raise ArgumentTypeError(
                "The type of grad_clip should be 'GradientClipByNorm', because DGCMomentumOptimizer only support "
                f"GradientClipByNorm, found {type(grad_clip).__name__}"
            )
        if not isinstance(num_trainers, int):
            raise ArgumentTypeError(f"The type of num_trainers should be 'int', but received {type(num_trainers)}")
        if num_trainers <= 0:
            raise UsageError(f"The value of num_trainers should be greater than 0, found {num_trainers}")
        return cls(grad_clip.clip_norm, num_trainers)

    def clip(self, grad: Variable, context: Any) -> Variable:
        """Append the clip of one gradient."""
        large = prod(abs(size) for size in grad.shape) >= COMPRESSED_FROM
        norm = self.clip_norm / self.num_trainers**0.5 if large else self.clip_norm
        return GradientClipByNorm(norm).clip(grad, context)
