"""From operators to a graph that is ready to be lowered: imported, then rewritten, one named rewrite after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluidtool.errors import OperatorError
from fluidtool.runtime.graph.importers import read_graph
from fluidtool.runtime.graph.ir import Graph, UnsupportedError, Value
from fluidtool.runtime.graph.rewrites.attention import join_attention
from fluidtool.runtime.graph.rewrites.fusion import fuse
from fluidtool.runtime.graph.rewrites.joining import join_products, merge_products
from fluidtool.runtime.graph.rewrites.mixing import mix_channels, spread_activations
from fluidtool.runtime.graph.rewrites.ordering import delay
from fluidtool.runtime.graph.rewrites.pooling import pool_lookups
from fluidtool.runtime.graph.spec import RegionSpec


@dataclass(frozen=True, slots=True)
class ImportedRegion:
    """A region as a graph; inputs that are ids with the rows of their tables; the LoD of each output."""

    graph: Graph
    bounds: list[tuple[str, int]]
    lods: dict[str, list[list[int]]]

    def check_bounds(self, given: Mapping[str, Any]) -> None:
        """Raise OperatorError for an id among the inputs `given` that is no row of its table."""
        check_bounds(self.bounds, given)


def check_bounds(bounds: Iterable[tuple[str, int]], given: Mapping[str, Any]) -> None:
    """Raise OperatorError for an id that is no row of its table."""
    for name, rows in bounds:
        ids = given[name]
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= rows):
            raise OperatorError(
                f"{name} holds an id of {int(ids.min())} to {int(ids.max())}, the table has {rows} rows"
            )


def import_region(spec: RegionSpec) -> ImportedRegion:
    """The graph of a region; raises UnsupportedError for what cannot be imported."""
    given, constants = spec.inputs, spec.constants
    values = {name: Value(name, tuple(array.shape), integer=array.dtype != np.float32) for name, array in given.items()}
    for name, array in (*given.items(), *constants.items()):
        widened = array.dtype == np.int32 and name in given
        if (array.dtype not in (np.float32, np.int64) and not widened) or array.size == 0:
            raise UnsupportedError(f"{name} is {array.dtype} {array.shape}", operand=name)
    values |= {
        name: Value(name, tuple(array.shape), array, array.dtype != np.float32) for name, array in constants.items()
    }
    graph, found = read_graph(spec.operators, values, spec.outputs, spec.lods)
    bounds = [(n.inputs[0].name, n.attrs["table"].shape[0]) for n in graph.nodes if n.kind == "gather"]
    if any(name not in given for name, _ in bounds):
        raise UnsupportedError("ids are computed within the region")
    return ImportedRegion(
        graph, bounds, {name: [list(level) for level in found.get(name, ())] for name in spec.outputs}
    )


REWRITES: tuple[Callable[[Graph], None], ...] = (
    spread_activations,
    fuse,
    merge_products,
    join_attention,
    join_products,
    mix_channels,
    delay,
)


def rewrite(graph: Graph, pooled: Iterable[str]) -> None:
    """Run every rewrite, in order; `pooled` inputs are looked up and pooled in one."""
    pool_lookups(graph, frozenset(pooled))
    for apply in REWRITES:
        apply(graph)
