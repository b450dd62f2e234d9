"""`fluid.contrib.slim`: training that prunes, distills and quantizes models (`Compressor`), and the passes of quantization."""

from fluidtool.fluid.contrib.slim import core as core
from fluidtool.fluid.contrib.slim import distillation as distillation
from fluidtool.fluid.contrib.slim import graph, quantization
from fluidtool.fluid.contrib.slim import nas as nas
from fluidtool.fluid.contrib.slim import prune as prune
from fluidtool.fluid.contrib.slim import searcher as searcher
from fluidtool.fluid.contrib.slim.core import Compressor
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["Compressor", "graph", "quantization"]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim", __all__)
