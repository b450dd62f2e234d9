"""Pictures of three channels as halves side by side, without a fourth of zeros: for first convolutions by pairs.

A row of a window is one segment: the channels of its pixels, of which a pair may belong to two. Where their number is odd,
the weight of the half behind them is zero; there is a column of zeros at the end of each row, so that it is a number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, Buffer
from fluidtool.runtime.engines.native.library import PAIRS
from fluidtool.runtime.engines.native.lowering.convolution import window_start
from fluidtool.runtime.engines.native.lowering.values import Lowering
from fluidtool.runtime.graph.ir import Node, Value

CHANNELS = 3
Table = tuple[list[int], tuple[int, int, int]]  # as that of `segments` in convolution.py


def reads_picture(low: Lowering, node: Node) -> bool:
    """Whether a convolution by pairs reads a picture so: nothing but its floats, row by row, is there yet."""
    x, weights = node.inputs[0], node.attrs["weights"]
    return (
        low.library.instructions == PAIRS  # tiles read whole pairs of each pixel
        and weights.shape[1] == CHANNELS == x.shape[1]
        and weights.shape[3] > 1
        and node.attrs["dilations"][1] == 1
        and "frames" not in node.attrs
        and x in low.plains
        and x not in low.blockeds
    )


def place_of_picture(low: Lowering, value: Value) -> Blocked:
    """Memory for a picture, whose halo is cleared. Rows, and the first pixel, begin with a whole word of two halves."""
    top, left, bottom, right = low.half_halos.get(value, NO_HALO)
    left, right = left + left % 2, right + 1
    right += (value.shape[3] + left + right) % 2
    place = Blocked(Buffer(0), value.shape, CHANNELS, (top, left, bottom, right), halves=True)
    place.buffer.size = place.size // 2
    arguments = abi.Halo(
        out=(place.buffer, 0), planes=value.shape[0], rows=place.rows, columns=place.row // 2, top=top, bottom=bottom,
        left=left * CHANNELS // 2, right=-(-right * CHANNELS // 2), lanes=1,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(place.size // 2 - value.floats // 2, value.shape[0]))
    return place


def by_rows(node: Node, source: Blocked) -> tuple[Node, Table]:
    """A convolution with rows of its windows as channels, and the table of its segments."""
    weights = node.attrs["weights"]
    count, channels, lines, columns = weights.shape
    length = channels * columns
    turned = np.ascontiguousarray(weights.transpose(0, 3, 1, 2), np.float32).reshape(count, length, lines, 1)
    start, down = window_start(node, source) % 2, node.attrs["dilations"][0]
    offsets = [start + line * down * source.row for line in range(lines)]
    return replace(node, attrs={**node.attrs, "weights": turned}), (offsets, (length + length % 2, 0, 0))
