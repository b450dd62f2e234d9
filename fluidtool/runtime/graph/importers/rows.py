"""Softmax, layer normalization, tables."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.bounds import COMPUTED
from fluidtool.runtime.graph.importers.registry import GraphBuilder, axis_within, imports, need


@imports("softmax")
def _softmax(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    axis = axis_within(attrs.get("axis", -1), len(x.shape))
    if axis < len(x.shape) - 1:
        sizes = (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
        r.add("softmax_axis", [x], op, "Out", x.shape, sizes=sizes)
        return
    r.add("softmax", [x], op, "Out", x.shape, factor=1.0, mask_shape=None)


@imports("layer_norm")
def _layer_norm(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, start = r.get(op, "X"), int(attrs["begin_norm_axis"])
    scale, bias = (r.constant(op, slot).reshape(-1) if op.inputs.get(slot) else None for slot in ("Scale", "Bias"))
    matrix = (prod(x.shape[:start]), prod(x.shape[start:]))
    r.add("layer_norm", [x], op, "Y", x.shape, matrix=matrix, scale=scale, shift=bias, epsilon=float(attrs["epsilon"]))


@imports("lookup_table", "lookup_table_v2")
def _lookup(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    table = r.constant(op, "W")
    ids = r.get(op, "Ids", integer=True) if r.computes_wholes else r.from_outside(op, "Ids")
    need(table.dtype == np.float32, "a table of a type other than float32")
    if op.type == "lookup_table":
        need(ids.shape[-1:] == (1,), "ids whose last size is not 1")
        shape = (*ids.shape[:-1], table.shape[1])
    else:
        shape = (*ids.shape, table.shape[1])
    given = {
        "table": table,
        "zero": int(attrs.get("padding_idx", -1)),
        "ids": r.given_name(ids) if r.is_from_outside(ids) else COMPUTED,
    }
    r.add("gather", [ids], op, "Out", shape, **given)
