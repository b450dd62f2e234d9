"""Volumes [N, C, D, H, W] as frames: a sequence of images [N * D, C, H, W].

A volume computed here keeps its frames beside it; elementwise operators work on the frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.graph.importers.convolution import Windows
from fluidtool.runtime.graph.importers.registry import IMPORTERS, GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Activation, Node, Shape, Value

Pads = tuple[tuple[int, int], ...]
BY_FRAME = frozenset(
    {
        "batch_norm", "elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div", "elementwise_max",
        "elementwise_min", "relu", "relu6", "leaky_relu", "sigmoid", "hard_sigmoid", "tanh", "swish", "hard_swish", "clip",
        "scale", "dropout",
    }
)  # fmt: skip


def read_by_frames(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> bool:
    """Import an operator that works on each frame of volumes; False for any other."""
    names = {name for slot in op.inputs for name in op.inputs[slot] if name in r.values}
    frames = {name: r.frames[value] for name in names if (value := r.values[name]) in r.frames}
    others = [r.values[name] for name in names if name not in frames]
    if op.type not in BY_FRAME or not frames:
        return False
    volumes = {r.values[name].shape for name in frames}
    by_channel = op.type == "batch_norm" or int(attrs.get("axis", -1)) == 1
    if len(volumes) != 1 or any(len(value.shape) != 1 or not by_channel for value in others):
        return False
    kept = {name: r.values[name] for name in frames}
    r.values.update(frames)
    IMPORTERS[op.type](r, op, attrs)
    (shape,) = volumes
    slot = "Y" if op.type == "batch_norm" else "Out"
    made = r.values[op.outputs[slot][0]]
    r.values.update({name: value for name, value in kept.items() if name not in op.outputs[slot]})
    put_volume(r, op, slot, made, shape[0])
    return True


def frames_of(r: GraphBuilder, volume: Value, op: Operator, slot: str) -> Value:
    """The frames of a volume that an operator reads."""
    if volume not in r.frames:
        need(volume.array is None, "a volume that is a parameter")
        (n, c, d, h, w), name = volume.shape, op.outputs[slot][0]
        turned, frames = Value(name, (n, d, c, h, w)), Value(name, (n * d, c, h, w))
        r.nodes.append(Node("transpose", [volume], turned, {"axes": [0, 2, 1, 3, 4]}))
        r.nodes.append(Node("view", [turned], frames))
        r.frames[volume] = frames
    return r.frames[volume]


def put_volume(r: GraphBuilder, op: Operator, slot: str, frames: Value, volumes: int) -> None:
    """The operator's output is the volume of these frames."""
    count, c, h, w = frames.shape
    split = r.add("view", [frames], op, slot, (volumes, count // volumes, c, h, w))
    volume = r.add("transpose", [split], op, slot, (volumes, c, count // volumes, h, w), axes=[0, 2, 1, 3, 4])
    r.frames[volume] = frames


def paddings(
    attrs: Mapping[str, Any], sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], dilated: bool
) -> Pads:
    """(before, after) of depth, rows and columns by Paddle 1.8's `padding_algorithm`."""
    algorithm, pads = attrs.get("padding_algorithm", "EXPLICIT"), [int(pad) for pad in attrs["paddings"]]
    if algorithm == "VALID":
        return ((0, 0),) * 3
    if algorithm == "SAME":
        need(not dilated, "SAME padding of a dilated window")
        sums = [max((-(-n // s) - 1) * s + w - n, 0) for n, w, s in zip(sizes, window, strides, strict=True)]
        return tuple((total // 2, total - total // 2) for total in sums)
    need(algorithm == "EXPLICIT" and len(pads) in (3, 6) and min(pads) >= 0, "unsupported paddings")
    return tuple(zip(pads, pads, strict=True)) if len(pads) == 3 else tuple(zip(pads[::2], pads[1::2], strict=True))


def windows_of_volumes(attrs: Mapping[str, Any], images: Shape, filters: Shape) -> Windows:
    """The windows of filters [count, c of a group, d, h, w] over volumes [n, c, d, h, w].

    Raises UnsupportedError if they do not fit, or lie otherwise.
    """
    need(attrs.get("data_format", "NCDHW") in ("NCDHW", "NCHW", "AnyLayout"), "convolution in NDHWC")
    need(len(images) == len(filters) == 5, "not a volume")
    strides, dilations, groups = tuple(attrs["strides"]), tuple(attrs["dilations"]), int(attrs["groups"])
    count, inner, *window = filters
    need(groups > 0 and inner * groups == images[1] and count % groups == 0, "filters that do not match the channels")
    need(len(strides) == len(dilations) == 3 and min(*strides, *dilations) > 0, "strides that do not match the window")
    pads = paddings(attrs, images[2:], window, strides, max(dilations) > 1)
    sizes = [
        (n + sum(pad) - (d * (w - 1) + 1)) // s + 1
        for n, pad, d, w, s in zip(images[2:], pads, dilations, window, strides, strict=True)
    ]
    need(min(sizes) > 0, "windows that do not fit the image")
    around = (*(before for before, _ in pads), *(after for _, after in pads))
    return Windows(strides, dilations, around, (images[0], count, *sizes))


@imports("conv3d")
def _conv3d(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, weights = r.get(op, "Input"), r.constant(op, "Filter")
    need(not op.inputs.get("ResidualData") and not attrs.get("fuse_activation"), "a convolution that is already fused")
    need(weights.dtype == np.float32, "not a float32 volume")
    windows = windows_of_volumes(attrs, x.shape, weights.shape)
    front, top, left, back, bottom, right = windows.pads
    volumes, count, depth, *sizes = windows.results
    made = r.add(
        "conv3d",
        [bordered(r, frames_of(r, x, op, "Output"), volumes, (front, back))],
        op,
        "Output",
        (volumes * depth, count, *sizes),
        Activation(1) if attrs.get("fuse_relu") else Activation(),
        weights=weights,
        scale=None,
        shift=None,
        volumes=volumes,
        along=(windows.strides[0], windows.dilations[0]),
        strides=windows.strides[1:],
        dilations=windows.dilations[1:],
        pads=(top, left, bottom, right),
        groups=int(attrs["groups"]),
    )
    put_volume(r, op, "Output", made, volumes)


def bordered(r: GraphBuilder, frames: Value, volumes: int, border: tuple[int, int]) -> Value:
    """The frames of each volume with frames of zeros before and after them."""
    if border == (0, 0):
        return frames
    depth = frames.shape[0] // volumes
    at = np.concatenate([np.full(border[0], -1), np.arange(depth), np.full(border[1], -1)])
    places = np.concatenate([np.where(at < 0, -1, at + depth * volume) for volume in range(volumes)])
    out = Value(frames.name, (places.size, *frames.shape[1:]))
    node_attrs = {"sources": [places, None, None, None], "value": 0.0, "zeros": None}
    r.nodes.append(Node("pad", [frames], out, node_attrs))
    return out


@dataclass(frozen=True, slots=True)
class PooledWindows:
    """The windows of a pooling of volumes: by axis their sizes, strides, pads and how many.

    mode: 0 for the maximum, 1 for the mean of what is there, 2 for the mean with pads.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    pads: Pads
    counts: tuple[int, ...]
    mode: int


def pooled_windows(attrs: Mapping[str, Any], shape: Sequence[int]) -> PooledWindows:
    """The windows of pool3d. Raises UnsupportedError for what is no pooling of volumes [N, C, D, H, W], channels first."""
    need(attrs.get("data_format", "NCDHW") in ("NCDHW", "NCHW", "AnyLayout"), "pooling in NDHWC")
    need(len(shape) == 5 and attrs["pooling_type"] in ("max", "avg"), "pooling of something other than a volume")
    size, window, strides = tuple(shape[2:]), tuple(attrs["ksize"]), tuple(attrs["strides"])
    maximum, adaptive = attrs["pooling_type"] == "max", bool(attrs.get("adaptive"))
    need(len(window) == len(strides) == 3, "windows that do not fit the image")
    everywhere = bool(attrs.get("global_pooling"))
    whole = (everywhere and not adaptive) or (adaptive and (size if everywhere else window) == (1, 1, 1))
    need(whole or not adaptive, "adaptive windows of volumes")
    pads: Pads = ((0, 0),) * 3
    if whole:
        window, strides = size, (1, 1, 1)
    else:
        pads = paddings(attrs, size, window, strides, dilated=False)
    need(min(*window, *strides) > 0, "windows that do not fit the image")
    more = [s - 1 if attrs.get("ceil_mode") else 0 for s in strides]
    counts = [
        (n + sum(pad) - w + extra) // s + 1
        for n, pad, w, extra, s in zip(size, pads, window, more, strides, strict=True)
    ]
    exclusive = maximum or attrs.get("exclusive", True)
    need(exclusive or not attrs.get("ceil_mode"), "inclusive mean of a partial window")
    need(exclusive or all(before == after for before, after in pads), "inclusive mean with uneven padding")
    need(min(counts) > 0, "windows that do not fit the image")
    last = [(count - 1) * s - pad[0] for count, s, pad in zip(counts, strides, pads, strict=True)]
    seen = all(at < n and pad[0] < w for at, n, pad, w in zip(last, size, pads, window, strict=True))
    need(seen, "windows that contain only padding")
    return PooledWindows(window, strides, pads, tuple(counts), 0 if maximum else 1 if exclusive else 2)


@imports("pool3d")
def _pool3d(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    found = pooled_windows(attrs, x.shape)
    window, strides, pads, counts = found.sizes, found.strides, found.pads, found.counts
    node_attrs: dict[str, Any] = {"mode": found.mode, "adaptive": False}
    frames = frames_of(r, x, op, "Out")
    if window[1:] != (1, 1) or strides[1:] != (1, 1) or pads[1:] != ((0, 0), (0, 0)):
        border = (pads[1][0], pads[2][0], pads[1][1], pads[2][1])
        shape = (*frames.shape[:2], *counts[1:])
        frames = r.add(
            "pool", [frames], op, "Out", shape, window=window[1:], strides=strides[1:], pads=border, **node_attrs
        )
    if window[0] != 1 or strides[0] != 1 or pads[0] != (0, 0):
        shape = (x.shape[0] * counts[0], *frames.shape[1:])
        node_attrs |= {"volumes": x.shape[0], "window": window[0], "stride": strides[0], "before": pads[0][0]}
        frames = r.add("pool_frames", [frames], op, "Out", shape, **node_attrs)
    put_volume(r, op, "Out", frames, x.shape[0])
