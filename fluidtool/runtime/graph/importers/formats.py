"""Images and volumes whose channels lie last (NHWC, NDHWC), in regions on a GPU and training steps: turned, then as any others.

Turning moves nothing: kernels for GPUs read and write with strides, and their images have channels last anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.interpolation import RESAMPLING
from fluidtool.runtime.graph.importers.registry import GraphBuilder
from fluidtool.runtime.graph.ir import Node, Value

OF_IMAGES = frozenset(
    {
        "conv2d", "depthwise_conv2d", "conv3d", "conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose", "pool2d",
        "pool3d", "batch_norm", "affine_channel", "group_norm", "lrn", "pixel_shuffle", *RESAMPLING,
    }
)  # fmt: skip
SLOTS = frozenset({"X", "Y", "Out", "Input", "Output", "MidOut"})
"""Those with images, and with `@GRAD` their gradients."""
ATTRS = ("data_format", "data_layout")
LAST = ("NHWC", "NDHWC")
GRAD = "@GRAD"


@contextmanager
def channels_first(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The attributes by which an operator is imported; meanwhile images whose channels lie last are turned, then its results."""
    asked = [name for name in ATTRS if attrs.get(name) in LAST]
    if not asked or not r.for_gpus or op.type.removesuffix("_grad") not in OF_IMAGES:
        yield attrs
        return
    read, made = (_images(slots) for slots in (op.inputs, op.outputs))
    kept = {name: r.values[name] for name in read if name in r.values}
    r.values.update({name: turned(r, value, name, True) for name, value in kept.items()})
    before = dict(r.values)
    yield {**attrs, **dict.fromkeys(asked, "NCHW")}
    new = {name: r.values[name] for name in made if name in r.values and r.values[name] is not before.get(name)}
    r.values.update(kept)
    r.values.update({name: turned(r, value, name, False) for name, value in new.items()})


def _images(slots: Mapping[str, list[str]]) -> list[str]:
    """The names in slots with images."""
    return [name for slot, names in slots.items() if slot.removesuffix(GRAD) in SLOTS for name in names]


def turned(r: GraphBuilder, value: Value, name: str, first: bool) -> Value:
    """The same image with its channels first, or last; turned once, and back without a node."""
    rank = len(value.shape)
    if rank < 3:
        return value
    if value not in r.turned:
        axes = [0, rank - 1, *range(1, rank - 1)] if first else [0, *range(2, rank), 1]
        found = Value(name, tuple(value.shape[axis] for axis in axes))
        r.nodes.append(Node("transpose", [value], found, {"axes": axes}))
        r.turned[value], r.turned[found] = found, value
    return r.turned[value]
