"""Padding of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Value

Border = tuple[int, int]
NONE: Border = (0, 0)


@imports("pad")
def _pad(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    add_border(r, op, x, borders_of(attrs, len(x.shape)), "constant", float(attrs["pad_value"]))


def borders_of(attrs: Mapping[str, Any], rank: int) -> list[Border]:
    """What `pad` adds before and after each axis. Raises UnsupportedError for what does not fit."""
    pads = [int(pad) for pad in attrs["paddings"]]
    need(len(pads) == 2 * rank and min(pads) >= 0, "unsupported paddings")
    return list(zip(pads[::2], pads[1::2], strict=True))


@imports("pad2d")
def _pad2d(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    add_border(r, op, x, borders_of_images(op, attrs, len(x.shape)), attrs["mode"], float(attrs["pad_value"]))


def borders_of_images(op: Operator, attrs: Mapping[str, Any], rank: int) -> list[Border]:
    """What `pad2d` adds before and after each axis. Raises UnsupportedError for what does not fit, and what is computed."""
    pads, mode = [int(pad) for pad in attrs["paddings"]], attrs["mode"]
    need(not op.inputs.get("Paddings"), "computed paddings")
    need(rank == 4 and len(pads) == 4 and mode in ("constant", "reflect", "edge"), "unsupported paddings")
    space = [(pads[0], pads[1]), (pads[2], pads[3])]
    return [NONE, *space, NONE] if attrs["data_format"] == "NHWC" else [NONE, NONE, *space]


@imports("pad3d")
def _pad3d(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    add_border(r, op, x, borders_of_volumes(op, attrs, x.shape), attrs["mode"], float(attrs["value"]))


def borders_of_volumes(op: Operator, attrs: Mapping[str, Any], shape: Sequence[int]) -> list[Border]:
    """What `pad3d` adds before and after each axis. Raises UnsupportedError for what does not fit, and what is computed."""
    pads, mode = [int(pad) for pad in attrs["paddings"]], attrs["mode"]
    need(not op.inputs.get("Paddings"), "computed paddings")
    need(len(shape) == 5 and len(pads) == 6, "unsupported paddings")
    need(mode in ("constant", "reflect", "replicate", "circular"), "unsupported paddings")
    space = [(pads[4], pads[5]), (pads[2], pads[3]), (pads[0], pads[1])]
    borders = [NONE, *space, NONE] if attrs["data_format"] == "NDHWC" else [NONE, NONE, *space]
    fits = all(max(border) < size for size, border in zip(shape, borders, strict=True) if border != NONE)
    need(fits or mode != "reflect", "unsupported paddings")
    return borders


@imports("pad_constant_like")
def _pad_like(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    y = r.get(op, "Y")
    add_border(r, op, y, borders_like(r.get(op, "X").shape, y.shape), "constant", float(attrs["pad_value"]))


def borders_like(whole: Sequence[int], shape: Sequence[int]) -> list[Border]:
    """What `pad_constant_like` adds behind each axis. Raises UnsupportedError for a shape that does not fit into the whole."""
    fits = len(whole) == len(shape) and all(wide >= size for wide, size in zip(whole, shape, strict=True))
    need(fits, "a shape that does not fit into that of X")
    return [(0, wide - size) for wide, size in zip(whole, shape, strict=True)]


def add_border(r: GraphBuilder, op: Operator, x: Value, borders: Sequence[Border], mode: str, value: float) -> None:
    """The node: for every padded axis, the index that each element is read from, -1 for `value`."""
    shape = [size + before + after for size, (before, after) in zip(x.shape, borders, strict=True)]
    need(min(shape) > 0, "unsupported paddings")
    if all(border == NONE for border in borders):
        r.alias(x, op, "Out")
        return
    sources = [
        None if border == NONE else places(size, border, mode)
        for size, border in zip(x.shape, borders, strict=True)
    ]  # fmt: skip
    zeros = mode == "constant" and value == 0 and min(min(border) for border in borders) >= 0
    image = len(shape) == 4 and borders[0] == borders[1] == NONE
    more = [before for before, _ in borders[2:]] + [after for _, after in borders[2:]] if zeros and image else None
    r.add("pad", [x], op, "Out", shape, sources=sources, value=value, zeros=more)


def places(size: int, border: Border, mode: str) -> Any:
    """The index that each element of a padded axis is read from (`_sources` of fluidtool/ops/tensor/pad.py), or -1."""
    at = np.arange(-border[0], size + border[1])
    if mode == "constant":
        return np.where((at >= 0) & (at < size), at, -1)
    if mode in ("edge", "replicate"):
        return np.clip(at, 0, size - 1)
    if mode == "circular":
        return at % size
    mirrored = np.minimum(abs(at), 2 * size - 2 - abs(at))
    need(mirrored.min() >= 0, "a reflection larger than the axis")
    return mirrored
