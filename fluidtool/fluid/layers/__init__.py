"""`fluid.layers`: functions that append operators to the default main program (Paddle 1.8.5)."""

from fluidtool.fluid.layers.dense import embedding, fc
from fluidtool.fluid.layers.io import data

__all__ = ["data", "embedding", "fc"]
