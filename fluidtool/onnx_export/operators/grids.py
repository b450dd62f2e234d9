"""Samples of images and volumes at the places of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operators.activation import away_from_zero
from fluidtool.onnx_export.operators.elementwise import added
from fluidtool.onnx_export.operators.narrowed import narrow
from fluidtool.onnx_export.registry import need

FROM_OPSET = {4: 16, 5: 20}  # by the rank of what is sampled
OF_OPSET_20 = {"bilinear": "linear", "bicubic": "cubic"}


def grid_samples(g: Graph, x: Value, grid: Value, mode: str, padding: str, corners: bool) -> Value:
    """x [N, C, D1, ...] at grid [N, ..., k], whose last axis goes from the last axis of x to its first and from -1 to 1.

    GridSample where ONNX has it, else gathered cell by cell: GridSample rounds halves to even, Paddle away from zero.
    """
    if g.opset < FROM_OPSET[x.rank] or mode == "nearest":
        return _gathered(g, x, grid, mode, padding, corners)
    mode = OF_OPSET_20.get(mode, mode) if g.opset >= 20 else mode
    return narrow(g, "GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=int(corners))


def _gathered(g: Graph, x: Value, grid: Value, mode: str, padding: str, corners: bool) -> Value:
    need(mode in ("bilinear", "nearest"), f"the mode {mode} needs opset {FROM_OPSET[x.rank]}")
    sizes = [x.size(axis) for axis in range(2, x.rank)]
    points = [grid.pick(grid.rank - 1, len(sizes) - 1 - axis).cast(x.dtype) for axis in range(len(sizes))]
    places = [_place(g, at, size, padding, corners) for at, size in zip(points, sizes, strict=True)]
    cells = x.reshape([x.dim(0), x.dim(1), prod(sizes)])
    if mode == "nearest":
        nearest = _cell(g, cells, [away_from_zero(place) for place in places], sizes)
        return nearest if x.rank == 4 else g.where(_inside(places, sizes).unsqueeze(1), nearest, 0)
    below = [place.apply("Floor") for place in places]
    shares = [place - low for place, low in zip(places, below, strict=True)]
    corners_of = list(product((0, 1), repeat=len(sizes)))
    return added(g, [_corner(g, cells, below, shares, sizes, corner) for corner in corners_of])


def _corner(
    g: Graph, cells: Value, below: list[Value], shares: list[Value], sizes: list[int], corner: Sequence[int]
) -> Value:
    """What one of the cells around each place contributes."""
    at = [low + step if step else low for low, step in zip(below, corner, strict=True)]
    weight, *others = [part if step else 1 - part for step, part in zip(corner, shares, strict=True)]
    for other in others:
        weight = weight * other
    return _cell(g, cells, at, sizes) * weight.unsqueeze(1)


def _place(g: Graph, at: Value, size: int, padding: str, corners: bool) -> Value:
    """From -1 to 1 to cells of an axis, brought inside as the padding says."""
    place = (at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) * 0.5
    if padding == "reflection":
        low, span = (0.0, 2.0 * (size - 1)) if corners else (-0.5, 2.0 * size)
        if not span:
            return place * 0
        away = (place - low).apply("Abs")
        away = away - (away / span).apply("Floor") * span
        place = g.minimum(away, span - away) + low
    return place if padding == "zeros" else place.clip(0, size - 1)


def _cell(g: Graph, cells: Value, places: list[Value], sizes: list[int]) -> Value:
    """[N, C, ...]: the cells at whole places; 0 outside."""
    index, *others = [place.clip(0, size - 1).cast(np.int64) for place, size in zip(places, sizes, strict=True)]
    for whole, size in zip(others, sizes[1:], strict=True):
        index = index * size + whole
    n, channels = cells.dim(0), cells.dim(1)
    flat = index.reshape([n, 1, index.merged(1, index.rank)])
    spread = flat.expand(g.vector([n, channels, 1]))
    found = g.op("GatherElements", cells, spread, axis=2)
    shaped = found.reshape([n, channels, *index.sizes()[1:]])
    return g.where(_inside(places, sizes).unsqueeze(1), shaped, 0)


def _inside(places: list[Value], sizes: list[int]) -> Value:
    """Whether places are cells on every axis; in a volume Paddle asks that before it rounds."""
    found, *others = [(place >= 0) & (place <= size - 1) for place, size in zip(places, sizes, strict=True)]
    for there in others:
        found = found & there
    return found
