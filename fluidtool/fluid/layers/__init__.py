"""`fluid.layers`: functions that append operators to the default main program (Paddle 1.8.5)."""

from fluidtool.fluid.layers.creation import (
    arange,
    assign,
    cast,
    create_global_var,
    create_parameter,
    create_tensor,
    eye,
    fill_constant,
    fill_constant_batch_size_like,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    range,
    zeros,
    zeros_like,
)
from fluidtool.fluid.layers.dense import embedding, fc
from fluidtool.fluid.layers.io import data

__all__ = [
    "arange",
    "assign",
    "cast",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "data",
    "embedding",
    "eye",
    "fc",
    "fill_constant",
    "fill_constant_batch_size_like",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "range",
    "zeros",
    "zeros_like",
]
