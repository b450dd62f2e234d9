"""Nodes -> kernel calls: layouts chosen, weights packed, memory assigned. One function per kind of node."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.constants import Packed
from fluidtool.runtime.engines.native.layouts import NO_HALO, Buffer, Halo, Plain, joined, row_major
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering import microbatches
from fluidtool.runtime.engines.native.lowering.channels import parts_of_wholes, share_halos
from fluidtool.runtime.engines.native.lowering.convolution import needs_halo, reach
from fluidtool.runtime.engines.native.lowering.image_sums import join_image_sums
from fluidtool.runtime.engines.native.lowering.int8 import byte_uses
from fluidtool.runtime.engines.native.lowering.packing import ConstantPacking
from fluidtool.runtime.engines.native.lowering.pairs import by_pairs, half_halos, half_uses, in_groups, pairs
from fluidtool.runtime.engines.native.lowering.products import prefetch
from fluidtool.runtime.engines.native.lowering.transposed import join_transposed, needed_halo
from fluidtool.runtime.engines.native.lowering.values import LOWER, Lowering
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Graph, Node, UnsupportedError, Value, operands

PARTS = (
    "convolution", "depthwise", "products", "attention", "elementwise", "rows", "moves", "sequences", "training",
    "transposed", "interpolation", "reductions", "ranking", "padding", "normalization", "detection", "volumes",
)  # fmt: skip
for part in PARTS:
    import_module(f"{__name__}.{part}")


@dataclass(frozen=True, slots=True)
class Lowered:
    """Kernel calls, the buffers of the inputs and of the outputs, those of the offsets of pooled inputs, packed floats."""

    kernel_calls: list[KernelCall]
    inputs: list[Buffer]
    outputs: list[Buffer]
    offsets: dict[Value, Buffer]
    packed_floats: int


def lower(graph: Graph, library: Library, packed: Packed | None = None) -> Lowered:
    """The kernel calls of a graph. Raises UnsupportedError.

    Packed constants are looked up in `packed`, and kept there.
    """
    graph = join_transposed(join_image_sums(graph), library.width)
    whole = parts_of_wholes(graph, library.width)
    halos = needed_halos(graph.nodes, library)
    share_halos(halos, graph, whole, library.width)
    packing = ConstantPacking(library, packed)
    low = Lowering(library, graph.uses().copy(), halos, packing, whole=whole, outputs=frozenset(graph.outputs))
    low.half_uses, low.half_pools = half_uses(graph, library)
    low.half_halos = half_halos(graph.nodes, library)
    low.half_groups = in_groups(graph, library)
    low.bytes_of = byte_uses(graph, library.width)
    inputs = [Buffer(value.floats, "input") for value in graph.inputs]
    for value, buffer in zip(graph.inputs, inputs, strict=True):
        low.plains[value] = Plain(buffer, 0, row_major(value.shape))
    micro = microbatches.plan(graph, library, whole)
    if micro is None:
        lower_nodes(low, graph.nodes)
    else:
        microbatches.begin(low, micro, needed_halos(micro.nodes, library), half_halos(micro.nodes, library))
        lower_nodes(low, micro.nodes)
        microbatches.repeat(low, micro)
        lower_nodes(low, graph.nodes[len(micro.nodes) :])
    prefetch(low.calls.made, library.width)
    outputs: dict[Buffer, None] = {}
    for value in graph.outputs:
        place = low.contiguous(value)
        buffer = place.buffer
        if buffer.role != "output" or place.offset or buffer.size != value.floats or buffer in outputs:
            need(not value.integer, "integers that are moved")
            buffer = Buffer(value.floats, "output")
            low.calls.copy(place, Plain(buffer, 0, row_major(value.shape)), value.shape)
        outputs[buffer] = None
    return Lowered(low.calls.made, inputs, list(outputs), low.offsets, low.packing.floats)


def lower_nodes(low: Lowering, nodes: Sequence[Node]) -> None:
    """Add the calls of nodes, in order. Raises UnsupportedError."""
    library = low.library
    for node in nodes:
        low.operands = tuple(operands(node))
        for value in low.operands:
            low.left[value] -= 1
        before = len(low.calls.made)
        try:
            of_halves = by_pairs(node, library) or node.output in low.half_pools
            (pairs if of_halves else LOWER[node.kind])(low, node)
        except UnsupportedError as error:
            error.result = node.output.name
            raise
        for kernel_call in low.calls.made[before:]:
            kernel_call.node, kernel_call.blocked = node, node.output in low.blockeds


def needed_halos(nodes: Sequence[Node], library: Library) -> dict[Value, Halo]:
    """For each value the halo that the convolutions which read it as floats need."""
    halos: dict[Value, Halo] = {}
    for node in nodes:
        if node.kind == "conv_transpose":
            x = node.inputs[0]
            halos[x] = joined(halos.get(x, NO_HALO), needed_halo(node, library.width))
        gradient = node.kind == "filter_gradient"
        if gradient or (needs_halo(node, library.width) and not by_pairs(node, library)):
            x, windows = node.inputs[0], node.inputs[1].shape if gradient else node.output.shape
            halos[x] = joined(halos.get(x, NO_HALO), reach(node, windows))
    return halos
