"""Operators that move values between channels, space and time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Node, Value


@imports("shuffle_channel", "channel_shuffle")
def _shuffle(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, groups = r.get(op, "X"), int(attrs["group" if op.type == "shuffle_channel" else "groups"])
    need(len(x.shape) == 4 and attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "not an NCHW image")
    need(groups > 0 and x.shape[1] % groups == 0, "groups of different sizes")
    n, c, h, w = x.shape
    split = r.add("view", [x], op, "Out", (n, groups, c // groups, h, w))
    turned = r.add("transpose", [split], op, "Out", (n, c // groups, groups, h, w), axes=[0, 2, 1, 3, 4])
    r.add("view", [turned], op, "Out", x.shape)


@imports("pixel_shuffle")
def _pixel_shuffle(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, factor = r.get(op, "X"), int(attrs["upscale_factor"])
    need(len(x.shape) == 4 and attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "not an NCHW image")
    need(factor > 0 and x.shape[1] % factor**2 == 0, "an unexpected number of channels")
    n, c, h, w = x.shape
    r.add("pixel_shuffle", [x], op, "Out", (n, c // factor**2, h * factor, w * factor), factor=factor)


@imports("temporal_shift")
def _temporal_shift(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    """Channels split in three: the first two parts come from the previous and the next image; concatenated again."""
    add_shifted(r, op, "Out", r.get(op, "X"), attrs, 1)


def add_shifted(r: GraphBuilder, op: Operator, slot: str, x: Value, attrs: Mapping[str, Any], direction: int) -> None:
    """The same as an output. direction: 1, or -1 for its gradient, where both parts come from the other side."""
    segments, share = int(attrs["seg_num"]), float(attrs["shift_ratio"])
    need(len(x.shape) == 4 and attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "not an NCHW image")
    images, channels, *size = x.shape
    need(
        segments > 0 and images % segments == 0 and 0 < share < 0.5,
        "segments that do not divide the images or channels",
    )
    first, second = int(channels * share), int(channels * 2 * share)
    need(0 < first < second < channels, "segments that do not divide the images or channels")
    at, name = np.arange(images), op.outputs[slot][0]
    parts = []
    for start, end, step in ((0, first, -direction), (first, second, direction), (second, channels, 0)):
        shape = (images, end - start, *size)
        part = Value(name, shape)
        r.nodes.append(Node("slice", [x], part, {"starts": [0, start, 0, 0], "sizes": shape}))
        if step:
            inside = (at % segments + step >= 0) & (at % segments + step < segments)
            node_attrs = {"sources": [np.where(inside, at + step, -1), None, None, None], "value": 0.0, "zeros": None}
            shifted = Value(name, shape)
            r.nodes.append(Node("pad", [part], shifted, node_attrs))
            part = shifted
        parts.append(part)
    r.add("concat", parts, op, slot, x.shape, axis=1)


@imports("im2sequence")
def _im2sequence(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(len(x.shape) == 4 and not op.inputs.get("Y"), "images of several sizes")
    n, c, h, w = x.shape
    need(tuple(attrs["kernels"]) == (h, 1) and attrs["strides"][1] == 1, "windows that are not columns of the image")
    need(not any(attrs["paddings"]), "windows that are not columns of the image")
    turned = r.add("transpose", [x], op, "Out", (n, w, c, h), axes=[0, 3, 1, 2])
    r.add("view", [turned], op, "Out", (n * w, c * h))
    r.lods[op.outputs["Out"][0]] = (tuple(range(0, n * w + 1, w)),)
