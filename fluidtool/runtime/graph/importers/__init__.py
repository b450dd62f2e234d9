"""Operators -> nodes, by one function per operator; operators without a kernel raise UnsupportedError and run on numpy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from importlib import import_module

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.counting import multiply_adds_of, with_multiply_adds
from fluidtool.runtime.graph.importers.formats import channels_first
from fluidtool.runtime.graph.importers.grids import fold
from fluidtool.runtime.graph.importers.refusals import Attributes, Refusals, require_agreement
from fluidtool.runtime.graph.importers.registry import IMPORTERS, GraphBuilder, Lod
from fluidtool.runtime.graph.importers.sequences import passing_lod_on
from fluidtool.runtime.graph.importers.volumes import read_by_frames
from fluidtool.runtime.graph.ir import Graph, UnsupportedError, Value
from fluidtool.runtime.graph.quantization import RoundedWeights

PARTS = (
    "convolution", "products", "elementwise", "rows", "moves", "sequences",
    "transposed", "interpolation", "reductions", "ranking", "padding", "normalization", "detection", "grids", "volumes", "channels",
    "quantization", "structured", "comparisons", "metrics", "losses", "stacked",
)  # fmt: skip
for part in PARTS:
    import_module(f"{__name__}.{part}")


def read_graph(
    ops: Sequence[tuple[Operator, Attributes]],
    given: Mapping[str, Value],
    wanted: Sequence[str],
    lods: Mapping[str, Lod],
    rounded: MutableMapping[Operator, RoundedWeights],
    for_gpus: bool = False,
    booleans: Collection[str] = (),
) -> tuple[Graph, dict[str, Lod], frozenset[str]]:
    """The graph of operators (each with its parsed attributes) from these inputs and constants to these outputs,
    the LoDs of all values that have one, and which outputs are booleans. rounded, for_gpus: as in RegionSpec. booleans: which
    inputs are.

    Before its importer, each operator's inference and checks run on the actual shapes; the importer must agree. Raises
    UnsupportedError for operators left to numpy; any other exception is a bug of an importer.
    """
    builder, refusals = GraphBuilder(rounded, for_gpus), Refusals()
    builder.values.update({name: value for name, value in given.items() if name not in booleans})
    builder.conditions.update({name: given[name] for name in booleans})
    builder.lods.update({name: lod for name, lod in lods.items() if lod})
    for op, attrs in ops:
        try:
            results = refusals.results(builder, op, attrs)
            multiply_adds, before = multiply_adds_of(builder, op, results), len(builder.nodes)
            passing = passing_lod_on(builder, op) if builder.lods else nullcontext()
            with passing, channels_first(builder, op, attrs) as settled:
                if not fold(builder, op, settled) and not read_by_frames(builder, op, settled):
                    IMPORTERS[op.type](builder, op, settled)
            require_agreement(builder, op, results)
            builder.nodes[before:] = with_multiply_adds(builder.nodes[before:], multiply_adds)
        except UnsupportedError as error:
            error.result = op.output_arg_names[0]
            raise
    known = builder.values | builder.conditions
    missing = [name for name in wanted if name not in known]
    if missing:
        raise UnsupportedError(f"{missing[0]} is not known outside of the region", result=missing[0])
    outputs = [known[name] for name in wanted]
    inputs = [value for value in given.values() if value.array is None]
    found = frozenset(name for name in wanted if name in builder.conditions)
    return Graph(inputs, outputs, builder.nodes).without_unread(), builder.lods, found
