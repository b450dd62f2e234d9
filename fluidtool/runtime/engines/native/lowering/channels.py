"""Channels of images in blocks: concatenated, sliced, and mixed without converting the layout.

Parts of a concatenation that fill whole blocks are computed in place within the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, Buffer, Halo, joined
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.ir import Graph, Node, Value

BLOCKS = frozenset(
    {
        "conv",
        "conv_int8",
        "conv_transpose",
        "affine",
        "pool",
        "interpolate",
        "mix",
        "pixel_shuffle",
        "local_response",
        "image_sums",
    }
)
"""Nodes with a blocked result."""
AS_GIVEN = frozenset({"unary", "binary", "group_norm", "pad", "slice"})
"""Nodes whose result has the layout of their operand."""
MOST = 4  # images that a call reads


def parts_of_wholes(graph: Graph, width: int) -> dict[Value, tuple[Value, int]]:
    """The values that are computed as channels of a concatenation, with that and their first channel in it."""
    outside = {*graph.inputs, *graph.outputs}
    found: dict[Value, tuple[Value, int]] = {}
    for node in of_channels(graph, width):
        first = 0
        for value in node.inputs:
            if value not in found and value not in outside and value.array is None:
                found[value] = (node.output, first)
            first += value.shape[1]
    return found


def of_channels(graph: Graph, width: int) -> Iterator[Node]:
    """Concatenations of blocked images whose parts fill whole blocks."""
    blocked: set[Value] = set()
    for node in graph.nodes:
        if node.kind in BLOCKS or (node.kind in AS_GIVEN and node.inputs[0] in blocked):
            blocked.add(node.output)
        if node.kind == "concat" and is_of_channels(node) and not blocked.isdisjoint(node.inputs):
            blocked.add(node.output)
            if all(value.shape[1] % width == 0 for value in node.inputs[:-1]):
                yield node


def share_halos(halos: dict[Value, Halo], graph: Graph, whole: dict[Value, tuple[Value, int]], width: int) -> None:
    """Give parts and their whole the same zeros around, and what lies as its result does those that this needs; in place."""
    for node in reversed(graph.nodes):
        if node.kind == "pool_frames" or (node.kind == "slice" and starts_at_block(node, width)):
            widen(halos, node.inputs[0], halos.get(node.output, NO_HALO))
    roots = {value: root_of(value, whole) for value in whole}
    for value, root in roots.items():
        widen(halos, root, halos.get(value, NO_HALO))
    for value, root in roots.items():
        while value is not root:
            widen(halos, value, halos.get(root, NO_HALO))
            value = whole[value][0]


def widen(halos: dict[Value, Halo], value: Value, halo: Halo) -> None:
    """Ensure at least this halo around a value."""
    if halo != NO_HALO:
        halos[value] = joined(halos.get(value, NO_HALO), halo)


def root_of(value: Value, whole: dict[Value, tuple[Value, int]]) -> Value:
    """The largest image that a value is a part of."""
    while value in whole:
        value = whole[value][0]
    return value


def is_of_channels(node: Node) -> bool:
    """Whether a concatenation or a slice is one of the channels of images."""
    if len(node.inputs[0].shape) != 4 or len(node.output.shape) != 4:
        return False
    if node.kind == "concat":
        return bool(node.attrs["axis"] == 1)
    size = node.inputs[0].shape
    return all(node.attrs["sizes"][axis] == size[axis] for axis in (0, 2, 3))


def starts_at_block(node: Node, width: int) -> bool:
    """Whether a slice has whole blocks of channels, except the last."""
    return is_of_channels(node) and node.attrs["starts"][1] % width == 0


def concat_blocked(low: Lowering, node: Node) -> bool:
    """Concatenate channels in blocks; False if that is no gain."""
    in_blocks = sum(value.shape[1] for value in node.inputs if lies_blocked(low, value))
    if not is_of_channels(node) or (node.output not in low.blockeds and 2 * in_blocks < node.output.shape[1]):
        return False
    places = [low.blocked(value) for value in node.inputs]
    out = low.blockeds.get(node.output) or low.new_blocked(node.output)
    first, strangers, taken = 0, [], []
    for place in places:
        count = place.shape[1]
        if first % low.width or place != out.channels(first, place.shape):
            strangers.append(place)
            taken.append((first + np.arange(count), np.arange(count)))
        first += count
    regroup(low, strangers, out, taken)
    return True


def slice_blocked(low: Lowering, node: Node) -> bool:
    """Slice channels of a blocked image; False if that is no gain."""
    x = node.inputs[0]
    if not is_of_channels(node) or not lies_blocked(low, x):
        return False
    place, start, count = low.blocked(x), node.attrs["starts"][1], node.output.shape[1]
    fits = all(has >= wanted for has, wanted in zip(place.halo, low.halos.get(node.output, NO_HALO), strict=True))
    if start % low.width == 0 and fits and node.output not in low.whole:
        low.blockeds[node.output] = place.channels(start, node.output.shape)
        return True
    regroup(low, [place], low.new_blocked(node.output), [(np.arange(count), start + np.arange(count))])
    return True


@lowers("mix")
def _mix(low: Lowering, node: Node) -> None:
    places = [low.blocked(value) for value in node.inputs]
    regroup(low, places, low.new_blocked(node.output), node.attrs["taken"])


@lowers("pixel_shuffle")
def _pixel_shuffle(low: Lowering, node: Node) -> None:
    spread_pixels(low, low.blocked(node.inputs[0]), low.new_blocked(node.output), node.attrs["factor"])


def spread_pixels(low: Lowering, source: Blocked, out: Blocked, factor: int) -> None:
    """One call for each position in the block of pixels that a pixel becomes."""
    count = out.shape[1]
    for number in range(factor**2):
        down, right = divmod(number, factor)
        channels = number + factor**2 * np.arange(count)
        regroup(low, [source], out, [(np.arange(count), channels)], (down, right, factor))


def lies_blocked(low: Lowering, value: Value) -> bool:
    """Whether a value is only blocked."""
    return value in low.blockeds and value not in low.plains


def regroup(
    low: Lowering, places: Sequence[Blocked], out: Blocked, taken: Sequence[tuple[Any, Any]],
    spread: tuple[int, int, int] = (0, 0, 1),
) -> None:  # fmt: skip
    """Calls that write channels of images: for each image the channels written, and the source channels in it.

    spread: the row and the column that the first pixel is written to, and the distance of pixels.
    """
    begun: set[int] = set()
    for start in range(0, len(places), MOST):
        some = places[start : start + MOST]
        entries = recipes(low.width, some, taken[start : start + MOST])
        longest = max(len(made) for made in entries.values())
        words = 3 + longest * (2 + low.width // 2)
        table = np.zeros((len(entries), words), np.int64)
        for line, (block, made) in zip(table, sorted(entries.items()), strict=True):
            line[:3] = block, block in begun, len(made)
            for number, ((image, offset), lanes) in enumerate(made.items()):
                at = 3 + number * (2 + low.width // 2)
                line[at : at + 2] = image, offset
                line[at + 2 : at + 2 + low.width // 2] = lanes.view(np.int64)
        begun |= set(entries)
        images, _, rows, columns = some[0].shape
        down, right, apart = spread
        target = out.origin + down * out.row + right * out.lanes
        sources = [(place.buffer, place.origin) for place in some]
        second, third, fourth = [*sources[1:], None, None, None][: MOST - 1]
        strides = [stride for place in some for stride in (place.image, place.row)]
        arguments = abi.Regroup(
            first=sources[0], second=second, third=third, fourth=fourth, out=(out.buffer, target),
            table=(Buffer(table.size, "constant", table), 0), images=images, rows=rows, columns=columns,
            blocks=len(entries), out_image=out.image, out_block=out.block, out_row=apart * out.row,
            out_pixel=apart * out.lanes, source_strides=strides + [0] * (2 * MOST - len(strides)), words=words,
        )  # fmt: skip
        work = images * len(entries) * longest * rows * columns * low.width
        low.calls.add(arguments, low.calls.task_count(work, images * rows * len(entries)))


def recipes(
    width: int, places: Sequence[Blocked], taken: Sequence[tuple[Any, Any]]
) -> dict[int, dict[tuple[int, int], Any]]:
    """For each written block: (image, offset of a block in it) -> by lane the source index."""
    found: dict[int, dict[tuple[int, int], Any]] = {}
    for image, (place, (targets, channels)) in enumerate(zip(places, taken, strict=True)):
        for target, channel in zip(targets.tolist(), channels.tolist(), strict=True):
            made = found.setdefault(target // width, {})
            source = (image, channel // width * place.block)
            lanes = made.setdefault(source, np.arange(width, dtype=np.int32))
            lanes[target % width] = width + channel % width
    return found
