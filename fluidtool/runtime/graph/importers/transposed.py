"""Transposed convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Activation


@imports("conv2d_transpose")
def _conv_transpose(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, weights = r.get(op, "Input"), r.constant(op, "Filter")
    need(len(x.shape) == 4 and attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "not an NCHW image")
    need(weights.dtype == np.float32 and not attrs.get("fuse_activation"), "a convolution that is already fused")
    channels, count, *window = weights.shape
    need(int(attrs["groups"]) == 1 and channels == x.shape[1], "a transposed convolution in groups")
    need(attrs.get("padding_algorithm", "EXPLICIT") == "EXPLICIT", "padding by an algorithm")
    strides, pads = tuple(attrs["strides"]), [int(pad) for pad in attrs["paddings"]]
    need(tuple(attrs["dilations"]) == (1, 1) and len(strides) == len(window) == 2, "a dilated transposed convolution")
    need(all(0 < s <= w for s, w in zip(strides, window, strict=True)), "strides beyond the window")
    top, bottom, left, right = pads if len(pads) == 4 else (pads[0], pads[0], pads[1], pads[1])
    need(min(top, bottom, left, right) >= 0, "negative padding")
    least = [
        (size - 1) * stride - before - after + taps
        for size, stride, before, after, taps in zip(
            x.shape[2:], strides, (top, left), (bottom, right), window, strict=True
        )
    ]
    more = attrs.get("output_padding") or [0, 0]
    sizes = attrs.get("output_size") or [size + extra for size, extra in zip(least, more, strict=True)]
    fits = all(low <= size < low + stride for low, size, stride in zip(least, sizes, strides, strict=True))
    need(len(sizes) == 2 and fits and min(sizes) > 0, "an output of another size")
    bias = r.constant(op, "Bias").reshape(-1) if op.inputs.get("Bias") else None
    activation = Activation(1) if attrs.get("fuse_relu") else Activation()
    node_attrs = {"weights": weights, "scale": None, "shift": bias, "strides": strides, "pads": (top, left)}
    r.add("conv_transpose", [x], op, "Output", (x.shape[0], count, *sizes), activation, **node_attrs)
