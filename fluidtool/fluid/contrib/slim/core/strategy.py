"""`fluid.contrib.slim.core.strategy`."""

from fluidtool.fluid.contrib.slim.strategy import Strategy

__all__ = ["Strategy"]
