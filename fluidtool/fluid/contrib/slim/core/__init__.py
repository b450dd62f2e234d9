"""`fluid.contrib.slim.core`: the Compressor, its strategies and their configuration."""

from fluidtool.fluid.contrib.slim.core.compressor import Compressor, Context
from fluidtool.fluid.contrib.slim.core.config import ConfigFactory
from fluidtool.fluid.contrib.slim.strategy import Strategy
from fluidtool.fluid.offers import refuse_other_names

__all__ = ["Compressor", "ConfigFactory", "Context", "Strategy"]

__getattr__ = refuse_other_names("paddle.fluid.contrib.slim.core", __all__)
