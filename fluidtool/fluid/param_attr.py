"""ParamAttr: how a layer's parameter is named, initialised, regularised and trained."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.initializer import Initializer
from fluidtool.fluid.regularizer import WeightDecayRegularizer
from fluidtool.ir import Variable


@dataclass(slots=True)
class ParamAttr:
    """name (None: made from the layer's), initializer (None: the layer's default), learning_rate (a factor of the
    optimizer's), regularizer, trainable, gradient_clip, do_model_average.
    """

    name: str | None = None
    initializer: Initializer | None = None
    learning_rate: float = 1.0
    regularizer: WeightDecayRegularizer | None = None
    trainable: bool = True
    do_model_average: bool = True
    gradient_clip: Any = None

    def __post_init__(self) -> None:
        for field, kinds in (("name", (str, type(None))), ("learning_rate", (float, int)), ("trainable", bool)):
            if not isinstance(getattr(self, field), kinds):
                raise ArgumentTypeError(f"The type of '{field}' in ParamAttr cannot be {type(getattr(self, field))}")
        if self.name == "":
            raise UsageError("name of ParamAttr can not be empty str")

    @staticmethod
    def from_argument(argument: Any) -> Any:
        """A ParamAttr from what layers take: None, a name, an initializer, a regularizer, True; a list item by item.

        False stays False: no parameter.
        """
        if argument is None or argument is True:
            return ParamAttr()
        if argument is False:
            return False
        if isinstance(argument, (list, tuple)):
            return [ParamAttr.from_argument(item) for item in argument]
        if isinstance(argument, ParamAttr):
            return argument
        if isinstance(argument, str):
            return ParamAttr(name=argument)
        if isinstance(argument, Initializer):
            return ParamAttr(initializer=argument)
        if isinstance(argument, WeightDecayRegularizer):
            return ParamAttr(regularizer=argument)
        raise ArgumentTypeError(f"{type(argument)} cast to ParamAttr")

    def facts(self) -> dict[str, Any]:
        """The arguments of `Block.create_parameter` that this says, without the initializer."""
        return {
            "name": self.name,
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "do_model_average": self.do_model_average,
            "gradient_clip_attr": self.gradient_clip,
        }

    def copy(self) -> ParamAttr:
        """A copy that a layer may name and complete."""
        return copy.copy(self)

    _to_attr = from_argument


class _WeightNormParameters:
    made: ClassVar[list[Variable]] = []


@dataclass(slots=True)
class WeightNormParamAttr(ParamAttr):
    """A parameter as direction and length (Salimans and Kingma 2016): g * v / |v|, the norm over all dimensions but `dim`."""

    do_model_average: bool = False
    dim: int | None = None

    params_with_weight_norm = _WeightNormParameters.made

    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = False,
    ) -> None:
        ParamAttr.__init__(self, name, initializer, learning_rate, regularizer, trainable, do_model_average)
        self.dim = dim
