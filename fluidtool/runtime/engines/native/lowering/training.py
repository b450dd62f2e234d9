"""Gradients of convolutions by their filters, on blocked layouts."""

from __future__ import annotations

from math import lcm

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import Blocked, Buffer, Image
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node

Table = np.ndarray[tuple[int], np.dtype[np.int64]]


@lowers("filter_gradient")
def _filter_gradient(low: Lowering, node: Node) -> None:
    """[x, dy] -> [O, I, kh, kw]; the number of groups is the number of channels in x divided by I."""
    x, grad = node.inputs
    inner = node.output.shape[1]
    groups = x.shape[1] // inner
    source, grads = low.blocked(x, narrow=groups == 1), low.blocked(grad)
    offsets = _offsets(node, source)
    add_filter_gradient(
        low, node, source, grads, low.new_plain(node.output).buffer, (offsets, np.arange(offsets.size)), groups
    )


def add_filter_gradient(
    low: Lowering, node: Node, source: Image, grads: Image, out: Buffer, tables: tuple[Table, Table], groups: int = 1
) -> None:
    """The call. tables: where each number of a window lies, and its place in a filter."""
    (count, inner, *_), (offsets, places) = node.output.shape, tables
    (images, _, rows, columns), (down, right) = grads.shape, node.attrs["strides"]
    pairs = -(-count // (2 * low.width))
    threads, tiles = low.library.threads, -(-offsets.size // low.width)
    by_number = min(tiles, 4 * threads) if threads > 1 else 1
    by_pair = min(pairs, -(-4 * threads // by_number)) if threads > 1 else 1
    start = source.origin - node.attrs["pads"][0] * source.row - node.attrs["pads"][1] * source.pixel
    room = Buffer(pairs * 2 * low.width * tiles * low.width)
    arguments = abi.FilterGradient(
        source=(source.buffer, start), grad=(grads.buffer, grads.origin), out=(out, 0), scratch=(room, 0),
        offsets=(Buffer(offsets.size, "constant", offsets), 0), places=(Buffer(places.size, "constant", places), 0),
        images=images, rows=rows, columns=columns, filters=count,
        numbers=offsets.size, source_image=source.image, source_row=down * source.row, source_pixel=right * source.pixel,
        grad_image=grads.image, grad_row=grads.row, grad_pixel=grads.pixel, grad_block=grads.block,
        whole_blocks=int(isinstance(grads, Blocked) or grads.shape[1] > count), pair_parts=by_pair, number_parts=by_number,
        source_group=inner // low.width * source.block if groups > 1 else 0,
        group_pairs=count // groups // (2 * low.width) if groups > 1 else 0,
    )  # fmt: skip
    low.calls.add(arguments, by_pair * by_number)


def bundled(width: int, groups: int, count: int, inner: int) -> int:
    """How many groups, of `count` filters for `inner` channels each, are computed as one, including the values between.

    A task has the filters of two vectors; those of one vector share their channels, which begin with a vector.
    """
    filters = 2 * width
    together = min(groups, lcm(filters, count) // count)
    need(groups % together == 0, "groups of few channels")
    need(together == groups or together * inner % width == 0, "groups of few channels")
    need(together == groups or together * count % filters == 0, "groups of few filters")
    return together


def _offsets(node: Node, source: Blocked) -> Table:
    """The place of each element of a window: input channel, row, column, in the order of the filters."""
    _, inner, rows, columns = node.output.shape
    down, right = node.attrs["dilations"]
    channel, row, column = np.ogrid[:inner, :rows, :columns]
    block, lane = np.divmod(channel, source.lanes)
    offsets = block * source.block + lane + row * down * source.row + column * right * source.lanes
    return np.ascontiguousarray(offsets.reshape(-1), np.int64)
