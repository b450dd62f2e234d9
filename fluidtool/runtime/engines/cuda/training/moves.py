"""Moves in training steps beyond reshapes and slices: parts of an axis, borders, channels and numbers in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.sources import Source, threads_for
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, as_in_inference, imports_step
from fluidtool.runtime.engines.cuda.training.images import Readers, readers_of
from fluidtool.runtime.graph.importers.channels import add_shifted
from fluidtool.runtime.graph.importers.padding import (
    NONE,
    Border,
    borders_like,
    borders_of,
    borders_of_images,
    borders_of_volumes,
    places,
)
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]
RANKED = frozenset({"top_k", "order"})
"""Nodes whose results are places, those of a row all different."""


as_in_inference("split", "pad", "pad2d", "pad3d", "pad_constant_like", "temporal_shift")


# ---------------------------------------------------------------- borders
@imports_step("pad_grad")
def _pad_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad = b.get(op, "Out@GRAD")
    b.put(op, "X@GRAD", _without_border(b, grad, borders_of(attrs, len(grad.shape))))


@imports_step("pad_constant_like_grad")
def _pad_like_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad = b.get(op, "Out@GRAD")
    b.put(op, "Y@GRAD", _without_border(b, grad, borders_like(grad.shape, b.shape_of(op, "Y"))))


@imports_step("pad2d_grad", "pad3d_grad")
def _padded_images_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Of mirrored and repeated pixels each gets its own gradient and those of its copies."""
    grad, mode, shape = b.get(op, "Out@GRAD"), attrs["mode"], b.shape_of(op, "X")
    volumes = op.type == "pad3d_grad"
    borders = borders_of_volumes(op, attrs, shape) if volumes else borders_of_images(op, attrs, len(shape))
    padded = tuple(size + sum(border) for size, border in zip(shape, borders, strict=True))
    need(grad.shape == padded, "a gradient that does not fit")
    if mode == "constant" or all(border == NONE for border in borders):
        b.put(op, "X@GRAD", _without_border(b, grad, borders))
        return
    need(attrs["data_format"].startswith("NC"), "copied borders with channels last")
    readers = [_copies(size, border, mode) for size, border in zip(shape[2:], borders[2:], strict=True)]
    b.put(op, "X@GRAD", b.node("interpolate_gradient", [grad], shape, readers=readers))


def _copies(size: int, border: Border, mode: str) -> Readers:
    """Which elements of an axis with a border are copies of each element."""
    return readers_of(size, places(size, border, mode)[None], None)


def _without_border(b: StepBuilder, value: Value, borders: Sequence[Border]) -> Value:
    """What is within a border; zeros where a negative one had cut off."""
    shape = [size - sum(border) for size, border in zip(value.shape, borders, strict=True)]
    if min(min(border) for border in borders) >= 0:
        return b.node("slice", [value], shape, starts=[before for before, _ in borders], sizes=shape)
    sources = []
    for size, wide, (before, _) in zip(shape, value.shape, borders, strict=True):
        at = np.arange(size) + before
        sources.append(np.where((at >= 0) & (at < wide), at, -1))
    return b.node("pad", [value], shape, sources=sources, value=0.0)


# ---------------------------------------------------------------- channels
@imports_step("shuffle_channel")
def _shuffle(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x = b.get(op, "X")
    b.put(op, "Out", _exchanged(b, x, int(attrs["group"])))


@imports_step("shuffle_channel_grad")
def _shuffle_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad, groups = b.get(op, "Out@GRAD"), int(attrs["group"])
    need(groups > 0, "groups of different sizes")
    b.put(op, "X@GRAD", _exchanged(b, grad, grad.shape[1] // groups))


def _exchanged(b: StepBuilder, x: Value, outer: int) -> Value:
    """Channels [outer, inner] as [inner, outer]."""
    need(len(x.shape) == 4 and outer > 0 and x.shape[1] % outer == 0, "groups of different sizes")
    channels = np.arange(x.shape[1])
    return b.node("mix", [x], x.shape, taken=[(channels, channels.reshape(outer, -1).T.reshape(-1))])


@imports_step("temporal_shift_grad")
def _shift_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    add_shifted(b, op, "X@GRAD", b.get(op, "Out@GRAD"), attrs, -1)


# ---------------------------------------------------------------- places
@imports_step("top_k_grad", "top_k_v2_grad", "argsort_grad")
def _ranked_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """The gradient at the places that the numbers came from, zeros elsewhere."""
    shape, grad, places = b.shape_of(op, "X"), b.get(op, "Out@GRAD"), b.get(op, "Indices", integer=True)
    ranked = any(node.output is places and node.kind in RANKED for node in b.nodes)
    need(ranked, "the gradient by places that are not of this step, which may name one twice")
    need(places.shape[:-1] == shape[:-1] and prod(grad.shape) == prod(places.shape), "a gradient that does not fit")
    b.put(op, "X@GRAD", b.node("put_back", [b.view(grad, places.shape), places], shape))


@lowers("put_back")
def _put_back(low: Lowering, node: Node) -> None:
    """A block for each row, whose places are all different: zeros, then what belongs to each place."""
    (grad, places), shape, out = node.inputs, node.output.shape, low.new(node.output)
    rows, count, k = prod(shape[:-1]), shape[-1], places.shape[-1]
    src, threads = Source(low), threads_for(count)
    src.lines.append("const int row = blockIdx.x, me = threadIdx.x;")

    def stored(value: str, place: str) -> str:
        return src.store(out, src.split(src.whole(f"row * {count} + {place}"), shape), value)

    def moved() -> str:
        own = src.split(src.whole(f"row * {k} + i"), places.shape)
        return stored(src.load(grad, own), f"(int){src.load(places, own)}")

    src.lines += [
        f"for (int i = me; i < {count}; i += {threads}) {{ {src.within(lambda: stored('0.0f', 'i'))} }}",
        "__syncthreads();",
        f"for (int i = me; i < {k}; i += {threads}) {{ {src.within(moved)} }}",
    ]
    low.calls.append(src.launch(out, rows, threads, "back"))
