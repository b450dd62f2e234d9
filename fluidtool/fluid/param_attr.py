"""ParamAttr: how a layer's parameter is named, initialized, regularized and trained."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.initializer import Constant, Initializer, Xavier
from fluidtool.fluid.regularizer import WeightDecayRegularizer
from fluidtool.ir import Variable
from fluidtool.records import dataclass


@dataclass(slots=True)
class ParamAttr:
    """name (None: derived from the layer's), initializer (None: the layer's default), learning_rate (a factor of the
    optimizer's), regularizer, trainable, do_model_average, gradient_clip. By position the last two may also be in
    the order that they had before Paddle 1.6.
    """

    name: str | None = None
    initializer: Initializer | None = None
    learning_rate: float = 1.0
    regularizer: WeightDecayRegularizer | None = None
    trainable: bool = True
    do_model_average: bool = True
    gradient_clip: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.do_model_average, bool):
            self.gradient_clip, self.do_model_average = self.do_model_average, bool(self.gradient_clip)
        if self.gradient_clip is not None and not is_gradient_clip(self.gradient_clip):
            raise ArgumentTypeError(f"The type of 'gradient_clip' in ParamAttr cannot be {type(self.gradient_clip)}")
        for field in ("initializer", "regularizer"):
            if getattr(self, field) is not None and not callable(getattr(self, field)):
                raise ArgumentTypeError(f"The type of '{field}' in ParamAttr cannot be {type(getattr(self, field))}")
        for field, kinds in (("name", (str, type(None))), ("learning_rate", (float, int)), ("trainable", bool)):
            if not isinstance(getattr(self, field), kinds):
                raise ArgumentTypeError(f"The type of '{field}' in ParamAttr cannot be {type(getattr(self, field))}")
        if self.name == "":
            raise UsageError("name of ParamAttr can not be empty str")

    @staticmethod
    def to_attr(arg: Any) -> Any:
        """A ParamAttr from an argument of a layer: None, a name, an initializer, a regularizer, a learning rate, a gradient
        clip, True; a list item by item. False stays False: no parameter. Raises ArgumentTypeError.
        """
        if arg is None or arg is True:
            return ParamAttr()
        if arg is False:
            return False
        if isinstance(arg, (list, tuple)):
            return [ParamAttr.to_attr(item) for item in arg]
        if isinstance(arg, ParamAttr):
            return arg
        if isinstance(arg, str):
            return ParamAttr(name=arg)
        if isinstance(arg, Initializer):
            return ParamAttr(initializer=arg)
        if isinstance(arg, WeightDecayRegularizer):
            return ParamAttr(regularizer=arg)
        if isinstance(arg, (int, float)):
            return ParamAttr(learning_rate=arg)
        if is_gradient_clip(arg):
            return ParamAttr(gradient_clip=arg)
        raise ArgumentTypeError(f"{type(arg)} cast to ParamAttr")

    def set_default_initializer(self, initializer: Initializer | None) -> None:
        """Set the initializer unless there is one; raises UsageError if both are missing."""
        if initializer is None and self.initializer is None:
            raise UsageError("ParamAttr.initializer is not set")
        self.initializer = self.initializer or initializer

    def set_default_param_initializer(self) -> None:
        """Set the default initializer of weights, Xavier, unless there is one."""
        self.set_default_initializer(Xavier())

    def set_default_bias_initializer(self) -> None:
        """Set the default initializer of biases, 0, unless there is one."""
        self.set_default_initializer(Constant(0.0))

    def to_kwargs(self, with_initializer: bool = False) -> dict[str, Any]:
        """The arguments for `Block.create_parameter`."""
        initializer = {"initializer": self.initializer} if with_initializer else {}
        return {
            **initializer,
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

    _to_attr = to_attr
    _to_kwargs = to_kwargs
    _set_default_initializer = set_default_initializer
    _set_default_param_initializer = set_default_param_initializer
    _set_default_bias_initializer = set_default_bias_initializer


def is_gradient_clip(value: Any) -> bool:
    """Whether this clips gradients (`fluid.clip` itself builds on layers, which take ParamAttr)."""
    return callable(getattr(value, "create_operators", None))


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
        gradient_clip: Any = None,
    ) -> None:
        ParamAttr.__init__(
            self, name, initializer, learning_rate, regularizer, trainable, do_model_average, gradient_clip
        )
        self.dim = dim
