"""Table rows that are pooled as they are looked up: one specialization serves any ids and sequence lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from math import prod

from fluidtool.ir import Operator
from fluidtool.ops.registry import traits_of
from fluidtool.runtime.graph.ir import Node
from fluidtool.runtime.graph.rewrites.rewriting import ELSEWHERE, NoMatch, Producer, Rewrite, Rule, merged


def pooled_inputs(ops: Iterable[Operator], inputs: Iterable[str], outputs: Collection[str]) -> frozenset[str]:
    """The inputs of a region that are only ids of lookups, each read only by a `sequence_pool`."""
    ops = list(ops)
    writes = Counter(name for op in ops for name in op.output_arg_names)
    readers: dict[str, list[Operator]] = {}
    for op in ops:
        for name in op.input_arg_names:
            readers.setdefault(name, []).append(op)

    def pooled(name: str) -> bool:
        kinds = [op.type for op in readers.get(name, ())]
        return kinds == ["sequence_pool"] and writes[name] == 1 and name not in outputs

    def looks_up(op: Operator, name: str) -> bool:
        return traits_of(op.type).plain_lookup and op.inputs["Ids"] == [name] and name not in op.inputs["W"]

    def only_ids(name: str) -> bool:
        found = readers.get(name, ())
        return bool(found) and all(looks_up(op, name) and pooled(op.outputs["Out"][0]) for op in found)

    return frozenset(name for name in inputs if not writes[name] and only_ids(name))


def takes_any(lookup: Node, pooled: Collection[str]) -> bool:
    """Whether a row of the ids is one id."""
    ids = lookup.inputs[0]
    return ids.name in pooled and prod(ids.shape) == ids.shape[0]


def pool_lookups(pooled: Collection[str]) -> Rule:
    """The rule for lookups with these ids."""

    def rule(node: Node, alone: Producer) -> Rewrite | NoMatch:
        """A lookup whose rows are only pooled is fused with the pooling."""
        lookup = alone(node.inputs[0]) if node.kind == "sequence_pool" else None
        if lookup is None or lookup.kind != "gather":
            return ELSEWHERE
        if not takes_any(lookup, pooled):
            return NoMatch("the ids have other readers, or a row has several ids")
        attrs = {**lookup.attrs, **node.attrs}
        return merged(lookup, node, replace(node, kind="gather_pool", inputs=lookup.inputs, attrs=attrs))

    return rule
