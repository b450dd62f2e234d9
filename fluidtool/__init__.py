"""fluidtool: load, inspect, transpile, prune, train and run PaddlePaddle Fluid programs without Paddle."""

from fluidtool._version import __version__ as __version__
