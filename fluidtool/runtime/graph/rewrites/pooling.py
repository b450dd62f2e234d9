"""Rows of tables that are pooled as they are looked up: one specialization serves any ids and any lengths of sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from math import prod

from fluidtool.ir import Operator
from fluidtool.runtime.graph.ir import Graph, Node

LOOKUPS = ("lookup_table", "lookup_table_v2")


def pooled_inputs(ops: Iterable[Operator], inputs: Iterable[str], outputs: Collection[str]) -> frozenset[str]:
    """The inputs of a region that are ids of lookups only, each of which a `sequence_pool`, and nobody else, reads."""
    ops = list(ops)
    writes = Counter(name for op in ops for name in op.output_arg_names)
    importers: dict[str, list[Operator]] = {}
    for op in ops:
        for name in op.input_arg_names:
            importers.setdefault(name, []).append(op)

    def pooled(name: str) -> bool:
        kinds = [op.type for op in importers.get(name, ())]
        return kinds == ["sequence_pool"] and writes[name] == 1 and name not in outputs

    def only_ids(name: str) -> bool:
        found = importers.get(name, ())
        is_ids = (op.type in LOOKUPS and op.inputs["Ids"] == [name] and name not in op.inputs["W"] for op in found)
        return bool(found) and all(is_ids) and all(pooled(op.outputs["Out"][0]) for op in found)

    return frozenset(name for name in inputs if not writes[name] and only_ids(name))


def takes_any(lookup: Node, pooled: Collection[str]) -> bool:
    """Whether a row of the ids is one id."""
    ids = lookup.inputs[0]
    return ids.name in pooled and prod(ids.shape) == ids.shape[0]


def pool_lookups(graph: Graph, pooled: Collection[str]) -> None:
    """Make lookups of these ids and the pooling of what they give one node each, in place."""
    lookups = {node.output: node for node in graph.nodes if node.kind == "gather" and takes_any(node, pooled)}
    for node in graph.nodes:
        lookup = lookups.get(node.inputs[0]) if node.kind == "sequence_pool" else None
        if lookup is not None:
            node.kind, node.inputs, node.attrs = "gather_pool", lookup.inputs, lookup.attrs | node.attrs
    taken = {lookup.output for lookup in lookups.values()}
    graph.nodes = [node for node in graph.nodes if node.output not in taken]
