"""`fluid.contrib.slim.prune`: models with fewer filters."""

from fluidtool.fluid.contrib.slim.prune.auto_prune_strategy import AutoPruneStrategy
from fluidtool.fluid.contrib.slim.prune.prune_strategy import (
    PruneStrategy,
    SensitivePruneStrategy,
    UniformPruneStrategy,
)
from fluidtool.fluid.contrib.slim.prune.pruner import Pruner, StructurePruner
from fluidtool.fluid.offers import refuse_other_names

__all__ = [
    "AutoPruneStrategy",
    "PruneStrategy",
    "Pruner",
    "SensitivePruneStrategy",
    "StructurePruner",
    "UniformPruneStrategy",
]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim.prune", __all__)
