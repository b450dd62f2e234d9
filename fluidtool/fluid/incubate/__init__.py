"""`fluid.incubate`: `data_generator` writes what data sets read, `fleet` trains in distributed jobs."""

from fluidtool.fluid.incubate import data_generator, fleet
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["data_generator", "fleet"]
__getattr__ = refuse_other_names("paddle.fluid.incubate", __all__)
