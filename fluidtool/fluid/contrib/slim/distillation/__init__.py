"""`fluid.contrib.slim.distillation`: students that learn from teachers."""

from fluidtool.fluid.contrib.slim.distillation.distillation_strategy import DistillationStrategy
from fluidtool.fluid.contrib.slim.distillation.distiller import FSPDistiller, L2Distiller, SoftLabelDistiller
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["DistillationStrategy", "FSPDistiller", "L2Distiller", "SoftLabelDistiller"]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim.distillation", __all__)
