"""`paddle.static.nn`: layers in Paddle 2's spelling."""

from __future__ import annotations

from typing import Any

from fluidtool.fluid import layers
from fluidtool.fluid.input import embedding
from fluidtool.fluid.layers import batch_norm, conv2d, conv2d_transpose, group_norm, layer_norm

__all__ = ["batch_norm", "conv2d", "conv2d_transpose", "embedding", "fc", "group_norm", "layer_norm"]


def fc(
    x: Any,
    size: int,
    num_flatten_dims: int = 1,
    weight_attr: Any = None,
    bias_attr: Any = None,
    activation: str | None = None,
    name: str | None = None,
) -> Any:
    """`fluid.layers.fc`."""
    return layers.fc(x, size, num_flatten_dims, weight_attr, bias_attr, activation, name)
