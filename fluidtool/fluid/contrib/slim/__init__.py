"""`fluid.contrib.slim`: quantization. `Compressor` and its strategies are not offered."""

from fluidtool.fluid.contrib.slim import graph, quantization
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["graph", "quantization"]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim", __all__)
