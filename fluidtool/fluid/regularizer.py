"""Regularizers: operators that add a penalty's gradient to a parameter's gradient (Paddle 1.8.5 regularizer.py)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from fluidtool.errors import UnsupportedOperatorError
from fluidtool.fluid.checks import check_given
from fluidtool.fluid.framework import name_scope
from fluidtool.fluid.offers import defined_in, refuse_other_names
from fluidtool.ir import Block, Parameter, Variable, unique_name
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

NEW_GRAD = "@NEWGRAD@"


class WeightDecayRegularizer:
    """The base of regularizers, for isinstance checks."""

    def __call__(self, param: Variable, grad: Variable, block: Block) -> Variable:
        """Append the gradient of the penalty on `param` and return its variable."""
        raise UnsupportedOperatorError(f"{type(self).__name__} has no rule for {getattr(grad, 'name', grad)}")


def _temporary(block: Block, param: Variable) -> Variable:
    return block.create_var(
        name=unique_name.generate("_generated_var"), dtype=param.dtype, shape=param.shape, lod_level=param.lod_level
    )


@dataclass(slots=True)
class L2DecayRegularizer(WeightDecayRegularizer):
    """Adds coefficient * parameter."""

    regularization_coeff: float = 0.0

    def __post_init__(self) -> None:
        check_given(regularization_coeff=self.regularization_coeff)

    def __call__(self, param: Variable, grad: Variable, block: Block) -> Variable:
        decay = _temporary(block, param)
        block.append_op(
            type="scale", inputs={"X": param}, outputs={"Out": decay}, attrs={"scale": self.regularization_coeff}
        )
        return decay

    def __str__(self) -> str:
        return f"L2Decay, regularization_coeff={self.regularization_coeff:f}"


@dataclass(slots=True)
class L1DecayRegularizer(WeightDecayRegularizer):
    """Adds coefficient * sign(parameter)."""

    regularization_coeff: float = 0.0

    def __post_init__(self) -> None:
        check_given(regularization_coeff=self.regularization_coeff)

    def __call__(self, param: Variable, grad: Variable, block: Block) -> Variable:
        decay = _temporary(block, param)
        block.append_op(type="sign", inputs={"X": param}, outputs={"Out": decay})
        block.append_op(
            type="scale", inputs={"X": decay}, outputs={"Out": decay}, attrs={"scale": self.regularization_coeff}
        )
        return decay

    def __str__(self) -> str:
        return f"L1Decay, regularization_coeff={self.regularization_coeff:f}"


def append_regularization_ops(
    parameters_and_grads: Sequence[tuple[Variable, Variable | None]],
    regularization: WeightDecayRegularizer | None = None,
) -> list[tuple[Variable, Variable | None]]:
    """Gradients with the penalties added; a parameter's regularizer takes precedence over the optimizer's."""
    own = [p for p, g in parameters_and_grads if g is not None and _own(p) is not None]
    if own and regularization is not None:
        warnings.warn(
            f"Regularization of {', '.join(p.name for p in own)} has already been set by ParamAttr; "
            "the regularization of the optimizer does not apply to them",
            stacklevel=3,
        )
    with name_scope("regularization"):
        result: list[tuple[Variable, Variable | None]] = []
        for param, grad in parameters_and_grads:
            if grad is None:
                result.append((param, None))
                continue
            with param.block.program.optimized_guard([param, grad]):
                result.append((param, _regularized(param, grad, regularization)))
    return result


def _own(param: Variable) -> Any:
    return param.regularizer if isinstance(param, Parameter) else None


def _regularized(param: Variable, grad: Variable, regularization: WeightDecayRegularizer | None) -> Variable:
    regularizer = _own(param) or regularization
    if regularizer is None:
        return grad
    block = grad.block
    penalty = regularizer(param, grad, block)
    out = grad
    if grad.type == VarType.SELECTED_ROWS:
        # The penalty is dense, and so is its sum with sparse rows.
        out = block.create_var(
            name=grad.name + NEW_GRAD, dtype=param.dtype, shape=param.shape, lod_level=param.lod_level
        )
    block.append_op(type="sum", inputs={"X": [grad, penalty]}, outputs={"Out": [out]})
    return out


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer

__getattr__ = refuse_other_names("paddle.fluid.regularizer", defined_in(globals()))
