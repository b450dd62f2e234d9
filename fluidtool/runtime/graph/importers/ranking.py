"""Indices of the largest elements along an axis, and of all in order."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.proto.enums import VarType
from fluidtool.runtime.graph.importers.registry import GraphBuilder, axis_within, imports, need

MOST = 1 << 31  # indices that fit a lane


@imports("arg_max", "arg_min")
def _extreme_place(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(attrs["dtype"] in (-1, VarType.INT64), "indices of a type other than int64")
    need(not attrs.get("flatten"), "the index in a flattened tensor")
    axis = axis_within(attrs["axis"], len(x.shape))
    need(x.shape[axis] < MOST, "an axis that is too long")
    shape = [*x.shape[:axis], *([1] if attrs["keepdims"] else []), *x.shape[axis + 1 :]]
    need(shape, "a result without dimensions")
    sizes = (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
    node_attrs: dict[str, Any] = {"sizes": sizes, "smallest": op.type == "arg_min"}
    r.add("extreme_place", [x], op, "Out", shape, integer=True, **node_attrs)


@imports("top_k", "top_k_v2", results=("Out", "Indices"))
def _top_k(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, count = r.get(op, "X"), int(attrs["k"])
    need(not op.inputs.get("K"), "a computed k")
    need(axis_within(attrs.get("axis", -1), len(x.shape)) == len(x.shape) - 1, "an axis other than the last")
    need(attrs.get("largest", True), "the smallest elements")
    need(0 < count <= x.shape[-1], "a k out of range")
    shape = (*x.shape[:-1], count)
    places = r.add("top_k", [x], op, "Indices", shape, integer=True)
    r.add("pick", [x, places], op, "Out", shape)


@imports("argsort", results=("Out", "Indices"))
def _argsort(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(x.shape and axis_within(attrs["axis"], len(x.shape)) == len(x.shape) - 1, "an axis other than the last")
    places = r.add("order", [x], op, "Indices", x.shape, integer=True, descending=bool(attrs["descending"]))
    r.add("pick", [x, places], op, "Out", x.shape)
