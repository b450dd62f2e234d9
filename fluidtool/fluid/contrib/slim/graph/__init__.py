"""`fluid.contrib.slim.graph`: programs as the strategies see them, and `IrGraph`, which scripts import from here, too."""

from fluidtool.fluid.contrib.slim.graph.executor import SlimGraphExecutor
from fluidtool.fluid.contrib.slim.graph.graph_wrapper import GraphWrapper, OpWrapper, VarWrapper
from fluidtool.fluid.ir_graph import IrGraph
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["GraphWrapper", "IrGraph", "OpWrapper", "SlimGraphExecutor", "VarWrapper"]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim.graph", __all__)
