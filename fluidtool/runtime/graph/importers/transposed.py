"""Transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.convolution import Windows, windows_of
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.importers.volumes import frames_of, put_volume, windows_of_volumes
from fluidtool.runtime.graph.ir import Activation, Shape

FORMATS = ("NCHW", "NCDHW", "AnyLayout")


def transposed_windows(attrs: Mapping[str, Any], x: Shape, filters: Shape) -> tuple[Windows, Shape]:
    """(the convolution whose gradient by its images this is, the shape of those images), for filters [c, count of a group, …].

    Raises UnsupportedError for images that are not [n, c, h, w], or [n, c, d, h, w], and for sizes that do not fit.
    """
    need(attrs.get("data_format", "NCHW") in FORMATS, "a transposed convolution with channels last")
    need(len(x) == len(filters) and len(x) in (4, 5), "not an image")
    need(attrs.get("padding_algorithm", "EXPLICIT") == "EXPLICIT", "padding by an algorithm")
    axes, steps, spread = len(x) - 2, tuple(attrs["strides"]), tuple(attrs["dilations"])
    groups, pads = int(attrs["groups"]), [int(pad) for pad in attrs["paddings"]]
    need(groups > 0 and filters[0] == x[1], "filters that do not fit")
    need(len(steps) == len(spread) == axes and len(pads) in (axes, 2 * axes), "strides that do not match the window")
    around = list(zip(pads, pads, strict=True)) if len(pads) == axes else list(zip(pads[::2], pads[1::2], strict=True))
    least = [
        (size - 1) * step + apart * (window - 1) + 1 - sum(pad)
        for size, step, apart, window, pad in zip(x[2:], steps, spread, filters[2:], around, strict=True)
    ]
    more = attrs.get("output_padding") or [0] * axes
    sizes = attrs.get("output_size") or [size + extra for size, extra in zip(least, more, strict=True)]
    need(len(sizes) == axes and min(sizes) > 0, "an output of another size")
    images = (x[0], filters[1] * groups, *(int(size) for size in sizes))
    windows = (windows_of if axes == 2 else windows_of_volumes)(attrs, images, filters)
    need(windows.results == x, "an output of another size")
    return windows, images


@imports("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")
def _conv_transpose(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, weights = r.get(op, "Input"), r.constant(op, "Filter")
    need(weights.dtype == np.float32 and not attrs.get("fuse_activation"), "a convolution that is already fused")
    windows, images = transposed_windows(attrs, x.shape, weights.shape)
    groups, strides = int(attrs["groups"]), windows.strides
    if not r.for_gpus:
        need(groups == 1, "a transposed convolution in groups")
        need(windows.dilations == (1, 1), "a dilated transposed convolution")
        need(all(s <= w for s, w in zip(strides, weights.shape[2:], strict=True)), "strides beyond the window")
    bias = r.constant(op, "Bias").reshape(-1) if op.inputs.get("Bias") else None
    activation = Activation(1) if attrs.get("fuse_relu") else Activation()
    node_attrs = {
        "weights": weights, "scale": None, "shift": bias, "strides": strides, "pads": windows.pads[:2], "groups": groups,
        "windows": windows, "images": images,
    }  # fmt: skip
    if len(images) == 4:
        r.add("conv_transpose", [x], op, "Output", images, activation, **node_attrs)
        return
    volumes, count, depth, *sizes = images
    frames, shape = frames_of(r, x, op, "Output"), (volumes * depth, count, *sizes)
    put_volume(
        r, op, "Output", r.add("conv_transpose", [frames], op, "Output", shape, activation, **node_attrs), volumes
    )
