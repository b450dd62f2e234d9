"""The average of all numbers, and how many samples are right, in regions on a GPU; training steps read `accuracy` alike."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.reductions import HOW
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need

MOST_SAMPLES = 1 << 24  # that a float counts
MOST_PLACES = 64  # of a row, which are compared one by one


@imports("mean")
def _mean(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    r.add("reduce", [x], op, "Out", (1,), sizes=(1, prod(x.shape), 1), how=HOW["reduce_mean"])


@imports("accuracy", results=("Accuracy",))
def _accuracy(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    """The share of rows of places that have their label among them. How many those are has no place in a graph."""
    places, labels = (r.get(op, slot, integer=True) for slot in ("Indices", "Label"))
    need(len(places.shape) == 2 and prod(labels.shape) == places.shape[0], "labels that are not one for each row")
    need(places.shape[0] <= MOST_SAMPLES, f"more than {MOST_SAMPLES} samples")
    need(places.shape[1] <= MOST_PLACES, f"more than {MOST_PLACES} places")
    counts = (op.block.find_var_recursive(name) for slot in ("Correct", "Total") for name in op.outputs.get(slot, ()))
    need(not any(var is not None and var.persistable for var in counts), "counts that stay in the scope")
    hits = r.node("hits", [places, labels], places.shape[:1])
    r.add("reduce", [hits], op, "Accuracy", (1,), sizes=(1, places.shape[0], 1), how=HOW["reduce_mean"])
