"""Nodes -> steps: layouts chosen, weights packed, memory named. One function a kind of node."""

from __future__ import annotations

from importlib import import_module
from math import prod

from fluidtool.runtime.engines.native.graph import Graph, NotNativeError, Value, reads
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering.convolution import needs_halo
from fluidtool.runtime.engines.native.lowering.memory import LOWER, NO_HALO, Halo, Lowering
from fluidtool.runtime.engines.native.lowering.transposed import needed_halo
from fluidtool.runtime.engines.native.reading.registry import need
from fluidtool.runtime.engines.native.steps import Buffer, Draft, Plain, row_major

PARTS = (
    "convolution", "products", "elementwise", "rows", "moves", "sequences", "training",
    "transposed", "interpolation", "reductions", "ranking", "padding", "normalization", "detection",
)  # fmt: skip
for part in PARTS:
    import_module(f"{__name__}.{part}")


def lower(graph: Graph, library: Library) -> tuple[list[Draft], list[Buffer], list[Buffer]]:
    """The steps of a graph, and the buffers of its inputs and of its outputs. Raises NotNativeError."""
    low = Lowering(library, graph.uses(), needed_halos(graph, library.width), outputs=frozenset(graph.outputs))
    inputs = [Buffer(prod(value.shape), "input") for value in graph.inputs]
    for value, buffer in zip(graph.inputs, inputs, strict=True):
        low.plains[value] = Plain(buffer, 0, row_major(value.shape))
    for node in graph.nodes:
        low.reading = tuple(reads(node))
        for value in low.reading:
            low.left[value] -= 1
        before = len(low.steps.steps)
        try:
            LOWER[node.kind](low, node)
        except NotNativeError as error:
            error.result = node.output.name
            raise
        for draft in low.steps.steps[before:]:
            draft.node, draft.blocked = node, node.output in low.blockeds
    outputs: list[Buffer] = []
    for value in graph.outputs:
        place = low.contiguous(value)
        buffer = place.buffer
        if buffer.role != "output" or place.offset or buffer.size != value.floats or buffer in outputs:
            need(not value.integer, "integers that are moved")
            buffer = Buffer(prod(value.shape), "output")
            low.copy(place, Plain(buffer, 0, row_major(value.shape)), value.shape)
        outputs.append(buffer)
    return low.steps.steps, inputs, outputs


def needed_halos(graph: Graph, width: int) -> dict[Value, Halo]:
    """For each value the zeros that the convolutions which read it need around it."""
    halos: dict[Value, Halo] = {}
    for node in graph.nodes:
        if node.kind == "conv_transpose":
            x = node.inputs[0]
            halos[x] = joined(halos.get(x, NO_HALO), needed_halo(node))
        gradient = node.kind == "filter_gradient"
        if gradient or needs_halo(node, width):
            x, (top, left, _, _) = node.inputs[0], node.facts["pads"]
            windows = node.inputs[1].shape if gradient else node.output.shape
            reach = [
                (out - 1) * s + (w - 1) * d + 1 - before - size
                for out, s, w, d, before, size in zip(
                    windows[2:], node.facts["strides"], node.facts["weights"].shape[2:],
                    node.facts["dilations"], (top, left), x.shape[2:], strict=True,
                )
            ]  # fmt: skip
            wanted = (top, left, max(reach[0], 0), max(reach[1], 0))
            halos[x] = joined(halos.get(x, NO_HALO), wanted)
    return halos


def joined(a: Halo, b: Halo) -> Halo:
    """The halo that serves both."""
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])
