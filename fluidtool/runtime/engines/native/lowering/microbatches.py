"""Batches of images whose first layers run for a few images at a time (microbatches), one layer after the other.

What a layer writes for a whole batch is larger than the caches and is read again by the next one; what it writes for an
image stays there, and the memory is used again for the next image. Layers with more weights than pixels run for the whole
batch, so that weights are read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from math import prod

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, Buffer, Halo, joined
from fluidtool.runtime.engines.native.library import TILES, Library
from fluidtool.runtime.engines.native.lowering.values import Lowering
from fluidtool.runtime.graph.ir import Graph, Node, Value

LEAST_BYTES = 300_000  # that a layer reads and writes of an image, where it pays
MOST_COUNT = 32  # calls of a layer


@dataclass(frozen=True, slots=True)
class Microbatches:
    """The first nodes of a graph, for as many images as run together; `count` times they make the batch.

    `values`: what each value of the graph is among them. `end`: the only one that later nodes read.
    """

    nodes: Sequence[Node]
    values: Mapping[Value, Value]
    end: Value
    count: int


def plan(graph: Graph, library: Library, whole: Mapping[Value, object]) -> Microbatches | None:
    """How the first nodes of a graph run; None if the whole batch runs at once. whole: values that are parts of others."""
    batch = _batch(graph)
    images = _images_at_once(batch, library.threads)
    if images == batch or (library.pairs and library.instructions == TILES):  # tiles go on from image to image
        return None
    until = _last(graph, batch, library, whole)
    if not until:
        return None
    nodes, read = [], {node.inputs[0] for node in graph.nodes[:until]}
    values = {value: _of_images(value, images) for value in graph.inputs if value in read}
    for node in graph.nodes[:until]:
        values[node.output] = _of_images(node.output, images)
        residual = None if node.residual is None else values[node.residual]
        nodes.append(
            replace(
                node, inputs=[values[node.inputs[0]]], output=values[node.output], residual=residual,
                multiply_adds=node.multiply_adds * images // batch,
            )
        )  # fmt: skip
    return Microbatches(nodes, values, graph.nodes[until - 1].output, batch // images)


def _batch(graph: Graph) -> int:
    """The images of the first input; 1 where that has none."""
    shape = graph.inputs[0].shape if graph.inputs else ()
    return shape[0] if len(shape) == 4 else 1


def _images_at_once(batch: int, threads: int) -> int:
    """Images that are enough for all threads, as parts of equal size."""
    least = max(1, threads // 2, -(-batch // MOST_COUNT))
    return next((images for images in range(least, batch) if batch % images == 0), batch)


def _of_images(value: Value, images: int) -> Value:
    return Value(value.name, (images, *value.shape[1:]))


def _last(graph: Graph, batch: int, library: Library, whole: Mapping[Value, object]) -> int:
    """How many of the first nodes pay, and leave nothing but the result of the last of them to others."""
    left, alive, found = graph.uses().copy(), set[Value](), 0
    for number, node in enumerate(graph.nodes, 1):
        if not _pays(node, batch, 2 if library.pairs else 4) or node.output in whole:
            break
        for value in (node.inputs[0], *([] if node.residual is None else [node.residual])):
            left[value] -= 1
            alive.add(value)
        alive.add(node.output)
        alive = {value for value in alive if left[value]}
        if alive == {node.output} and node.output not in graph.outputs:
            found = number
    return found


def _pays(node: Node, batch: int, size: int) -> bool:
    """Whether a node computes images from images, and has more of them than weights; size: bytes of a number."""
    if node.kind not in ("conv", "pool") or "frames" in node.attrs or len(node.inputs) != 1:
        return False
    read, written = node.inputs[0].shape, node.output.shape
    if len(read) != 4 or len(written) != 4 or not read[0] == written[0] == batch:
        return False
    moved = size * (prod(read[1:]) + prod(written[1:]))
    weights = prod(node.attrs["weights"].shape) if node.kind == "conv" else 0
    return moved >= max(LEAST_BYTES, size * weights)


# ---------------------------------------------------------------- within a lowering
def begin(low: Lowering, micro: Microbatches, needed: Mapping[Value, Halo], of_halves: Mapping[Value, Halo]) -> None:
    """What a lowering knows of values holds for those of fewer images, too, with the halos that their own readers need."""
    for value, few in micro.values.items():
        low.left[few] = low.left[value]
        for halos, more in ((low.halos, needed), (low.half_halos, of_halves)):
            if value in halos or few in more:
                halos[few] = joined(halos.get(value, NO_HALO), more.get(few, NO_HALO))
        low.half_uses[few, few.shape] = low.half_uses[value, value.shape]
        if value in low.plains:
            low.plains[few] = low.plains[value]
    renamed = micro.values.items()
    low.half_groups |= {few for value, few in renamed if value in low.half_groups}
    low.half_pools |= {few for value, few in renamed if value in low.half_pools}


def repeat(low: Lowering, micro: Microbatches) -> None:
    """After the calls for the first images those for the others, and the places of all images of the last result."""
    few, moves = micro.values[micro.end], dict[Buffer, int]()
    low.left[micro.end] = low.left[few]
    if few in low.blockeds:
        low.blockeds[micro.end] = _of_all(low.blockeds[few], micro, moves)
    if (few, few.shape) in low.halves:
        low.halves[micro.end, micro.end.shape] = _of_all(low.halves[few, few.shape], micro, moves)
    for value, part in micro.values.items():
        if value in low.plains:
            moves[low.plains[value].buffer] = part.floats
    calls = tuple(low.calls.made)
    for number in range(1, micro.count):
        fresh = dict[Buffer, Buffer]()
        low.calls.made += [_moved(call, number, moves, fresh) for call in calls]


def _of_all(place: Blocked, micro: Microbatches, moves: dict[Buffer, int]) -> Blocked:
    """The place of a result for all images; those of the few that it was made for are the first."""
    if place.buffer not in moves:
        moves[place.buffer] = place.buffer.size
        place.buffer.size *= micro.count
    return replace(place, shape=micro.end.shape)


def _moved(call: KernelCall, number: int, moves: Mapping[Buffer, int], fresh: dict[Buffer, Buffer]) -> KernelCall:
    """The call for other images: in arrays of all images further on, else in memory of its own."""
    arguments = copy(call.arguments)
    for name in arguments.pointer_bytes:
        pointer = getattr(arguments, name)
        if pointer is None or pointer[0].role == "constant":
            continue
        buffer, offset = pointer
        if buffer in moves:
            setattr(arguments, name, (buffer, offset + number * moves[buffer]))
        else:
            setattr(arguments, name, (fresh.setdefault(buffer, Buffer(buffer.size)), offset))
    return replace(call, arguments=arguments, repeats=call)
