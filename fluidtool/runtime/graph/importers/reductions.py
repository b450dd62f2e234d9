"""Sums, means and extremes over adjacent dimensions."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need

HOW = {"reduce_sum": 0, "reduce_mean": 1, "reduce_max": 2, "reduce_min": 3, "reduce_prod": 4}  # as in src/reductions.c


@imports(*HOW)
def _reduce(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, rank = r.get(op, "X"), len(r.get(op, "X").shape)
    dims = attrs["dim"] if isinstance(attrs["dim"], list) else [attrs["dim"]]
    whole = attrs.get("reduce_all") or not dims
    need(whole or all(-rank <= d < rank for d in dims), "dimensions out of range")
    axes = list(range(rank)) if whole else sorted({d % rank for d in dims})
    need(axes == list(range(axes[0], axes[-1] + 1)), "dimensions that are not adjacent")
    need(attrs.get("out_dtype", -1) < 0, "a result of another type")
    kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
    shape = kept if attrs["keep_dim"] else [n for i, n in enumerate(x.shape) if i not in axes]
    need(shape, "a result without dimensions")
    sizes = (prod(x.shape[: axes[0]]), prod(x.shape[a] for a in axes), prod(x.shape[axes[-1] + 1 :]))
    r.add("reduce", [x], op, "Out", shape, sizes=sizes, how=HOW[op.type])
