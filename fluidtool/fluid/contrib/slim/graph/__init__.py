"""`fluid.contrib.slim.graph`: `IrGraph`, which scripts import from here, too."""

from fluidtool.fluid.ir_graph import IrGraph
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["IrGraph"]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim.graph", __all__)
