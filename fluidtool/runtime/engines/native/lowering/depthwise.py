"""Convolutions with a filter for each channel. Where convolutions are computed by pairs of halves, they write halves for those, and
read what those have written.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.bfloat16 import rounded
from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, constant
from fluidtool.runtime.engines.native.lowering.convolution import (
    convolution,
    image_pixels,
    is_depthwise,
    residual_block,
    residual_of,
)
from fluidtool.runtime.engines.native.lowering.packing import padded_bias
from fluidtool.runtime.engines.native.lowering.pairs import (
    floats_wanted,
    halves_written,
    only_halves,
    written_half,
)
from fluidtool.runtime.engines.native.lowering.values import Lowering, conv_output, lowers
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node

WHOLE_BYTES = 450_000  # of an image, up to which it is shared out by channels if it has many


@lowers("conv")
def _conv(low: Lowering, node: Node) -> None:
    (_depthwise if is_depthwise(node) else convolution)(low, node)


def _depthwise(low: Lowering, node: Node) -> None:
    attrs, width, x = node.attrs, low.width, node.inputs[0]
    halves = only_halves(low, x, x.shape) if low.library.pairs else None
    source = halves or low.blocked(x)
    if node.residual is not None:
        low.blocked(node.residual)
    place = written_half(low, node) if low.library.pairs else None
    out = conv_output(low, node) if place is None or floats_wanted(low, node) else None
    count, _, rows, columns = attrs["weights"].shape
    blocks = -(-count // width)
    weights: NDArray[Any] = np.zeros((blocks * width, rows, columns), np.float64)
    weights[:count] = attrs["weights"][:, 0]
    if attrs["scale"] is not None:
        weights[:count] *= attrs["scale"].reshape(-1, 1, 1)
    if low.packing.narrow:
        weights = rounded(weights)
    of_blocks = weights.reshape(blocks, width, rows, columns).transpose(0, 2, 3, 1)
    packed = constant(of_blocks if halves is None else _by_pairs(of_blocks))
    bias = padded_bias(attrs["shift"], 1, blocks * width)
    images, _, *size = node.output.shape
    top, left, *_ = attrs["pads"]
    pixels = image_pixels(low, node, source, out or source)
    parts = _row_parts(low, node, blocks)
    arguments = abi.Depthwise(
        source=(source.buffer, source.origin) if halves is None else None,
        source_halves=None if halves is None else (halves.buffer, halves.origin // 2),
        weights=(packed, 0), bias=None if bias is None else (bias, 0),
        out=None if out is None else (out.buffer, out.origin), residual=residual_of(low, node),
        out_halves=None if place is None else (place.buffer, place.origin // 2), images=images, rows=size[0], columns=size[1],
        blocks=blocks, window_h=rows, window_w=columns, pad_top=top, pad_left=left,
        source_image=source.image, source_row=source.row, source_block=source.block,
        source_height=source.shape[2], source_width=source.shape[3],
        **({} if out is None else floats_written(out)), **halves_written(low, place),
        residual_image=pixels.residual_image, residual_row=pixels.residual_row, residual_pixel=pixels.residual_pixel,
        residual_block=residual_block(low, node), stride_h=attrs["strides"][0], stride_w=attrs["strides"][1],
        dilation_h=attrs["dilations"][0], dilation_w=attrs["dilations"][1], row_parts=parts,
    )  # fmt: skip
    tasks = low.calls.task_count(prod(node.output.shape) * rows * columns, images * blocks * parts)
    low.calls.add(arguments, tasks, node.activation)


def _by_pairs(weights: NDArray[Any]) -> NDArray[np.float32]:
    """Rounded weights (block, row, column, lane) for pairs of rows (src/depthwise_pairs.c): of a window whose first row
    is the upper one of a pair, then of one where it is the lower; (block, which, pair, column, lane), words of two halves.
    """
    blocks, rows, columns, lanes = weights.shape
    pairs = (rows + 1) // 2
    lines = np.zeros((blocks, 2, 2 * pairs, columns, lanes), np.float32)
    lines[:, 0, :rows], lines[:, 1, 1 : 1 + rows] = weights, weights
    halves = (lines.view(np.uint32) >> 16).astype(np.uint16).reshape(blocks, 2, pairs, 2, columns, lanes)
    return np.ascontiguousarray(halves.transpose(0, 1, 2, 4, 5, 3)).view(np.float32)


def _row_parts(low: Lowering, node: Node, blocks: int) -> int:
    """Into how many parts the rows of an image are cut: none, where threads rather have channels of their own, as those of the
    convolutions beside it (NEAR_BYTES).
    """
    images, _, *size = node.output.shape
    threads = low.library.threads
    small = blocks >= 8 * threads and 4 * prod(node.inputs[0].shape[1:]) <= WHOLE_BYTES
    return 1 if images >= threads or small else min(size[0], threads)


@lowers("affine")
def _affine(low: Lowering, node: Node) -> None:
    """A scale and shift by channel: a depthwise convolution of one tap."""
    need(len(node.output.shape) == 4, "batch_norm of something other than an image")
    ones = np.ones((node.output.shape[1], 1, 1, 1), np.float32)
    taps = {"weights": ones, "strides": (1, 1), "dilations": (1, 1), "pads": NO_HALO, "groups": node.output.shape[1]}
    _depthwise(low, replace(node, attrs={**node.attrs, **taps}))


def floats_written(place: Blocked) -> dict[str, int]:
    """How the kernel goes through the floats that it writes."""
    return {
        "out_image": place.image, "out_row": place.row, "out_pixel": place.lanes, "out_block": place.block,
    }  # fmt: skip
