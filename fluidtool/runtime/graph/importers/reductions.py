"""Sums, means and extremes over adjacent dimensions."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.ops.math.versions import saved_by
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Shape

HOW = {"reduce_sum": 0, "reduce_mean": 1, "reduce_max": 2, "reduce_min": 3, "reduce_prod": 4}  # as in src/reductions.c
OF_BOOLEANS = {"reduce_all": HOW["reduce_min"], "reduce_any": HOW["reduce_max"]}
"""On a GPU, where they are 1 or 0."""


@imports(*HOW)
def _reduce(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(attrs.get("out_dtype", -1) < 0, "a result of another type")
    sizes, shape = _reduced(attrs, x.shape)
    need(shape, "a result without dimensions")
    r.add("reduce", [x], op, "Out", shape, sizes=sizes, how=HOW[op.type])


@imports(*OF_BOOLEANS)
def _reduce_booleans(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    (name,) = op.inputs["X"]
    need(name in r.conditions, f"{name} is not a boolean of this graph")
    sizes, shape = _reduced(attrs, r.conditions[name].shape)
    shape = shape or ([] if saved_by(op.block.program, 2, 5) else [1])
    need(shape, "a result without dimensions")
    r.put_condition(op, "Out", r.node("reduce", [r.conditions[name]], shape, sizes=sizes, how=OF_BOOLEANS[op.type]))


def _reduced(attrs: dict[str, Any], of: Shape) -> tuple[Shape, list[int]]:
    """The elements before, within and behind the dimensions that are reduced, and the shape of the result."""
    rank = len(of)
    dims = attrs["dim"] if isinstance(attrs["dim"], list) else [attrs["dim"]]
    whole = attrs.get("reduce_all") or not dims
    need(whole or all(-rank <= d < rank for d in dims), "dimensions out of range")
    axes = list(range(rank)) if whole else sorted({d % rank for d in dims})
    need(axes == list(range(axes[0], axes[-1] + 1)), "dimensions that are not adjacent")
    kept = [1 if i in axes else n for i, n in enumerate(of)]
    shape = kept if attrs["keep_dim"] else [n for i, n in enumerate(of) if i not in axes]
    return (prod(of[: axes[0]]), prod(of[a] for a in axes), prod(of[axes[-1] + 1 :])), shape
