"""Strided convolutions on small images, for tiles: pixels sorted by their place in a step, so that rows of results share tiles.

A window that moves by two reads every other pixel. Of the pixels at each place of such a step - a phase - there is an image
of its own here, in which the windows move by one; all phases have the same strides and follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, Buffer, Plain
from fluidtool.runtime.engines.native.lowering.convolution import window_start
from fluidtool.runtime.engines.native.lowering.values import Lowering
from fluidtool.runtime.graph.ir import Node

NARROW = 12  # results in a row, below which sorting pays: wider rows fill most of a tile by themselves


def is_narrow(node: Node) -> bool:
    """Whether a row of results fills too little of a tile, and rows of the source lie too far apart to share one."""
    return node.output.shape[3] < NARROW and node.attrs["dilations"] == (1, 1) and "frames" not in node.attrs


def phases(low: Lowering, node: Node, source: Blocked) -> Blocked:
    """The first phase of the pixels that the windows of a node read; halves. The others follow it."""
    (down, right), window, size = node.attrs["strides"], node.attrs["weights"].shape[2:], node.output.shape[2:]
    shape = (*source.shape[:2], *(n + (w - 1) // s for n, w, s in zip(size, window, (down, right), strict=True)))
    first = replace(source, buffer=Buffer(0), shape=shape, halo=NO_HALO)
    first.buffer.size = first.size // 2 * down * right
    start, planes = window_start(node, source), (source.blocks, shape[0])
    for row, column in product(range(min(down, window[0])), range(min(right, window[1]))):
        rows, columns = size[0] + (window[0] - 1 - row) // down, size[1] + (window[1] - 1 - column) // right
        taken = Plain(
            source.buffer, (start + row * source.row + column * source.pixel) // 2,
            (source.block // 2, source.image // 2, down * source.row // 2, right * source.pixel // 2, 1),
        )  # fmt: skip
        put = Plain(
            first.buffer, (row * right + column) * first.size // 2,
            (first.block // 2, first.image // 2, first.row // 2, first.pixel // 2, 1),
        )  # fmt: skip
        low.calls.copy(taken, put, (*planes, rows, columns, source.lanes // 2))
    return first


def tap_segments(
    attrs: Mapping[str, Any], inner: int, first: Blocked, strides: tuple[int, int]
) -> tuple[list[int], tuple[int, int, int]]:
    """As `segments` of convolution.py: a segment for each tap of each block, in the phase that the tap reads."""
    (lines, columns), (down, right) = attrs["weights"].shape[2:], strides
    taps = [
        (row % down * right + column % right) * first.size + row // down * first.row + column // right * first.pixel
        for row, column in product(range(lines), range(columns))
    ]
    whole, rest = divmod(inner, first.lanes)
    offsets = [block * first.block + tap for block in range(whole + bool(rest)) for tap in taps]
    return offsets, (first.lanes, rest, len(taps) if rest else 0)
