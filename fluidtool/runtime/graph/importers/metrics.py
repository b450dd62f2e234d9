"""The average of all numbers, and how many samples are right, in regions on a GPU; training steps read `accuracy` alike."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.reductions import HOW
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Value

MOST_SAMPLES = 1 << 24  # that a float counts
MOST_PLACES = 64  # of a row, which are compared one by one


@imports("mean")
def _mean(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    r.add("reduce", [x], op, "Out", (1,), sizes=(1, prod(x.shape), 1), how=HOW["reduce_mean"])


@imports("accuracy", results=("Accuracy", "Correct", "Total"))
def _accuracy(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    """The share of rows of places that have their label among them, how many those are, and all."""
    places, labels = (r.get(op, slot, integer=True) for slot in ("Indices", "Label"))
    need(len(places.shape) == 2 and prod(labels.shape) == places.shape[0], "labels that are not one for each row")
    need(places.shape[0] <= MOST_SAMPLES, f"more than {MOST_SAMPLES} samples")
    need(places.shape[1] <= MOST_PLACES, f"more than {MOST_PLACES} places")
    hits = r.node("hits", [places, labels], places.shape[:1])
    rows, sizes = places.shape[0], (1, places.shape[0], 1)
    r.add("reduce", [hits], op, "Accuracy", (1,), sizes=sizes, how=HOW["reduce_mean"])
    if op.outputs.get("Correct"):
        right = r.node("reduce", [hits], (1,), sizes=sizes, how=HOW["reduce_sum"])
        r.add("converted", [right], op, "Correct", (1,), integer=True, short=True, text="(whole)(a)")
    if op.outputs.get("Total"):
        name = op.outputs["Total"][0]
        r.alias(Value(name, (1,), np.array([rows], np.int64), True, True), op, "Total")
