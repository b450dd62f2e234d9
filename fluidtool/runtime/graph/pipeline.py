"""From operators to a graph ready for lowering: import, then named rewrites in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.graph.bounds import COMPUTED, Bound, check_bounds
from fluidtool.runtime.graph.importers import read_graph
from fluidtool.runtime.graph.ir import Graph, UnsupportedError, Value
from fluidtool.runtime.graph.rewrites.attention import join_attention
from fluidtool.runtime.graph.rewrites.fusion import (
    fold_activation,
    fold_affine,
    fold_affine_of_products,
    fold_border,
    fold_factor,
    fold_heads,
    fold_mask,
    fold_norm_residual,
    fold_residual,
    fold_scale,
    fold_scale_before,
)
from fluidtool.runtime.graph.rewrites.joining import join_products, merge_products
from fluidtool.runtime.graph.rewrites.mixing import mix_channels, spread_activations
from fluidtool.runtime.graph.rewrites.ordering import delay
from fluidtool.runtime.graph.rewrites.pooling import pool_lookups
from fluidtool.runtime.graph.rewrites.rewriting import Outcome, Rule, sweep
from fluidtool.runtime.graph.spec import RegionSpec
from fluidtool.runtime.graph.verify import is_wanted, verify

OF_CONSTANTS = (np.int8, np.int32)  # data types that only constants may have


@dataclass(frozen=True, slots=True)
class ImportedRegion:
    """A region as a graph; the bounds of inputs, such as ids; the LoD of each output.

    looks_up_computed: whether it looks up rows by ids that it computes. types: of outputs that have another one outside: booleans
    are 1 or 0 here, and whole numbers of 32 bits have 64.
    """

    graph: Graph
    bounds: list[Bound]
    lods: dict[str, list[list[int]]]
    looks_up_computed: bool = False
    types: Mapping[str, Any] = field(default_factory=dict)

    def check_bounds(self, given: Mapping[str, Any]) -> None:
        """Raise OperatorError if an input in `given` holds an id out of range for its table."""
        check_bounds(self.bounds, given)


def bounds_of(graph: Graph) -> list[Bound]:
    """The bounds of the inputs of a graph: ids of constant tables, and what importers have noted."""
    tables = (
        Bound(n.attrs["ids"], n.attrs["table"].shape[0], of_table=True) for n in graph.nodes if n.kind == "gather"
    )
    return [*tables, *(bound for node in graph.nodes for bound in node.attrs.get("checks", ()))]


def import_region(spec: RegionSpec) -> ImportedRegion:
    """The graph of a region; raises UnsupportedError if it cannot be imported."""
    given, constants = spec.inputs, spec.constants
    booleans = frozenset(name for name, array in given.items() if spec.for_gpus and array.dtype == np.bool_)
    kinds = {
        name: (array.dtype != np.float32 and name not in booleans, array.dtype == np.int32)
        for name, array in (*given.items(), *constants.items())
    }
    values = {name: Value(name, tuple(array.shape), None, *kinds[name]) for name, array in given.items()}
    for name, array in (*given.items(), *constants.items()):
        widened = array.dtype == np.int32 and name in given
        readable = array.dtype in (np.float32, np.int64) or (array.dtype in OF_CONSTANTS and name in constants)
        if not (readable or widened or name in booleans) or array.size == 0:
            raise UnsupportedError(f"{name} is {array.dtype} {array.shape}", operand=name)
    values |= {name: Value(name, tuple(array.shape), array, *kinds[name]) for name, array in constants.items()}
    graph, lods, made = read_graph(
        spec.operators, values, spec.outputs, spec.lods, spec.rounded, spec.for_gpus, booleans
    )
    every = bounds_of(graph)
    bounds = [bound for bound in every if bound.name != COMPUTED]
    if any(bound.name not in given for bound in bounds):
        raise UnsupportedError("ids are computed within the region")
    for name, value in zip(spec.outputs, graph.outputs, strict=True):
        if value.short and not spec.for_gpus:
            raise UnsupportedError("whole numbers of 32 bits that leave the region", result=name)
    types = {
        name: np.bool_ if name in made else np.int32
        for name, value in zip(spec.outputs, graph.outputs, strict=True)
        if name in made or value.short
    }
    of_outputs = {name: [list(level) for level in lods.get(name, ())] for name in spec.outputs}
    return ImportedRegion(graph, bounds, of_outputs, len(bounds) < len(every), types)


@dataclass(frozen=True, slots=True)
class NamedRewrite:
    """A rewrite and its displayed name."""

    name: str
    apply: Callable[[Graph], Outcome]

    @property
    def purpose(self) -> str:
        """One line: the first line of its rule's docstring."""
        rule = self.apply.keywords["rule"] if isinstance(self.apply, partial) else self.apply
        return str(rule.__doc__).partition("\n")[0]


def by_rule(name: str, rule: Rule) -> NamedRewrite:
    """A rewrite that applies a rule at every node."""
    return NamedRewrite(name, partial(sweep, rule=rule))


REWRITES = (
    by_rule("spread activations", spread_activations),
    by_rule("fold border", fold_border),
    by_rule("fold affine", fold_affine),
    by_rule("fold affine of products", fold_affine_of_products),
    by_rule("fold scale", fold_scale),
    by_rule("fold scale before", fold_scale_before),
    by_rule("fold mask", fold_mask),
    by_rule("fold factor", fold_factor),
    by_rule("fold heads", fold_heads),
    by_rule("fold residual", fold_residual),
    by_rule("fold norm residual", fold_norm_residual),
    by_rule("fold activation", fold_activation),
    NamedRewrite("merge products", merge_products),
    by_rule("join attention", join_attention),
    NamedRewrite("join products", join_products),
    NamedRewrite("mix channels", mix_channels),
    NamedRewrite("delay", delay),
)


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of a rewrite on a graph."""

    rewrite: NamedRewrite
    outcome: Outcome


def rewrites(graph: Graph, pooled: Collection[str]) -> Iterator[Applied]:
    """Run all rewrites in order; lookups of `pooled` inputs are fused with their pooling."""
    checked = is_wanted()
    if checked:
        verify(graph, "import")
    for named in (by_rule("pool lookups", pool_lookups(pooled)), *REWRITES):
        outcome = named.apply(graph)
        graph = outcome.graph
        if checked:
            verify(graph, named.name)
        yield Applied(named, outcome)


def rewritten(graph: Graph, pooled: Collection[str]) -> Graph:
    """The graph after all rewrites."""
    for applied in rewrites(graph, pooled):
        graph = applied.outcome.graph
    return graph
