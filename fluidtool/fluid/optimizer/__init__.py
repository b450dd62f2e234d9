"""`fluid.optimizer`: optimizers append the operators that train a program (Paddle 1.8.5 optimizer.py)."""

from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.optimizer.averaging import ExponentialMovingAverage, ModelAverage
from fluidtool.fluid.optimizer.base import Optimizer
from fluidtool.fluid.optimizer.compressed import DGCMomentumOptimizer
from fluidtool.fluid.optimizer.pipeline import PipelineOptimizer
from fluidtool.fluid.optimizer.simple import (
    SGD,
    Adadelta,
    AdadeltaOptimizer,
    Adagrad,
    AdagradOptimizer,
    Adam,
    Adamax,
    AdamaxOptimizer,
    AdamOptimizer,
    DecayedAdagrad,
    DecayedAdagradOptimizer,
    Dpsgd,
    DpsgdOptimizer,
    Ftrl,
    FtrlOptimizer,
    Lamb,
    LambOptimizer,
    LarsMomentum,
    LarsMomentumOptimizer,
    Momentum,
    MomentumOptimizer,
    RMSProp,
    RMSPropOptimizer,
    SGDOptimizer,
)
from fluidtool.fluid.optimizer.wrapping import LookaheadOptimizer, RecomputeOptimizer

__all__ = [
    "SGD",
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "Adamax",
    "AdamaxOptimizer",
    "DGCMomentumOptimizer",
    "DecayedAdagrad",
    "DecayedAdagradOptimizer",
    "Dpsgd",
    "DpsgdOptimizer",
    "ExponentialMovingAverage",
    "Ftrl",
    "FtrlOptimizer",
    "Lamb",
    "LambOptimizer",
    "LarsMomentum",
    "LarsMomentumOptimizer",
    "LookaheadOptimizer",
    "ModelAverage",
    "Momentum",
    "MomentumOptimizer",
    "Optimizer",
    "PipelineOptimizer",
    "RMSProp",
    "RMSPropOptimizer",
    "RecomputeOptimizer",
    "SGDOptimizer",
]

__getattr__ = refuse_other_names("paddle.fluid.optimizer", __all__)
