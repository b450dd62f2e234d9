"""Guards, decorators, schedules and containers of dynamic graphs."""

from fluidtool.compat.dygraph.outside import outside_class, outside_decorator, outside_function
from fluidtool.compat.dygraph.parallel import Env, ParallelEnv
from fluidtool.fluid.versions import disable_dygraph, enable_dygraph

__all__ = [
    "BackwardStrategy",
    "CosineDecay",
    "DataParallel",
    "Env",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LambdaDecay",
    "LayerList",
    "LinearLrWarmup",
    "MultiStepDecay",
    "NaturalExpDecay",
    "NoamDecay",
    "ParallelEnv",
    "ParameterList",
    "PiecewiseDecay",
    "PolynomialDecay",
    "ProgramTranslator",
    "ReduceLROnPlateau",
    "Sequential",
    "StepDecay",
    "TracedLayer",
    "declarative",
    "disable_dygraph",
    "disable_imperative",
    "dygraph_to_static_func",
    "enable_dygraph",
    "enable_imperative",
    "enabled",
    "grad",
    "guard",
    "no_grad",
    "prepare_context",
    "to_variable",
]

disable_imperative, enable_imperative = disable_dygraph, enable_dygraph

LayerList, ParameterList, Sequential = (outside_class(name) for name in ("LayerList", "ParameterList", "Sequential"))
BackwardStrategy, DataParallel = outside_class("BackwardStrategy"), outside_class("DataParallel")
ProgramTranslator, TracedLayer = outside_class("ProgramTranslator"), outside_class("TracedLayer")
CosineDecay, ExponentialDecay = outside_class("CosineDecay"), outside_class("ExponentialDecay")
InverseTimeDecay, LambdaDecay = outside_class("InverseTimeDecay"), outside_class("LambdaDecay")
LearningRateDecay, LinearLrWarmup = outside_class("LearningRateDecay"), outside_class("LinearLrWarmup")
MultiStepDecay, NaturalExpDecay = outside_class("MultiStepDecay"), outside_class("NaturalExpDecay")
NoamDecay, PiecewiseDecay = outside_class("NoamDecay"), outside_class("PiecewiseDecay")
PolynomialDecay, ReduceLROnPlateau = outside_class("PolynomialDecay"), outside_class("ReduceLROnPlateau")
StepDecay = outside_class("StepDecay")

grad, guard = outside_function("grad"), outside_function("guard")
prepare_context, to_variable = outside_function("prepare_context"), outside_function("to_variable")
declarative, dygraph_to_static_func = outside_decorator("declarative"), outside_decorator("dygraph_to_static_func")
no_grad = outside_decorator("no_grad")


def enabled() -> bool:
    """False."""
    return False
