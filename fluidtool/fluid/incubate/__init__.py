"""`fluid.incubate`: `data_generator` writes what data sets read."""

from fluidtool.fluid.incubate import data_generator
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["data_generator"]
__getattr__ = refuse_other_names("paddle.fluid.incubate", __all__)
