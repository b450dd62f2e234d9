"""Softmax, layer normalization, tables."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from string import ascii_lowercase
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.bounds import COMPUTED, Bound
from fluidtool.runtime.graph.importers.registry import GraphBuilder, axis_within, imports, need
from fluidtool.runtime.graph.importers.whole_numbers import Ids, Marked
from fluidtool.runtime.graph.ir import Node, Shape, Value


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
    ids = r.get(op, "Ids", integer=True) if r.for_gpus else r.from_outside(op, "Ids")
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


@imports("gather")
def _gather(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    bounds: list[Bound] = []
    add_gather(r, op, attrs, Marked(r, bounds), bounds)


def add_gather(r: GraphBuilder, op: Operator, attrs: Mapping[str, Any], ids: Ids, bounds: list[Bound]) -> None:
    """Rows by number. bounds: of numbers that kernels mark, noted by `ids`."""
    x = r.either(op, "X")
    need(not op.inputs.get("Axis") and not int(attrs.get("axis") or 0), "another axis than the first")
    need(len(x.shape) > 0, "a number alone")
    places = ids(op, "Index", x.shape[0])
    need(places.shape in ((prod(places.shape),), (prod(places.shape), 1)), "places of another shape")
    shape = (prod(places.shape), *x.shape[1:])
    kind: dict[str, Any] = {"integer": x.integer, "short": x.short}
    wide = Value(op.outputs["Out"][0], (x.shape[0], prod(x.shape[1:])), None, **kind)
    r.nodes.append(Node("view", [x], wide))
    flat = Value(wide.name, (shape[0], wide.shape[1]), None, **kind)
    r.nodes.append(Node("rows", [wide, places], flat, {"zero": -1, "checks": tuple(bounds)}))
    r.add("view", [flat], op, "Out", shape, **kind)


@imports("gather_nd")
def _gather_nd(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    bounds: list[Bound] = []
    add_gather_nd(r, op, Marked(r, bounds), bounds)


def add_gather_nd(r: GraphBuilder, op: Operator, ids: Ids, bounds: list[Bound], nowhere: int = -1) -> None:
    """Slices by the numbers of their places along the first axes. bounds: as of `add_gather`. nowhere: as of `named_rows`."""
    x = r.either(op, "X")
    places = named_rows(r, op, x.shape, ids, nowhere)
    depth = r.get(op, "Index", integer=True).shape[-1]
    kind: dict[str, Any] = {"integer": x.integer, "short": x.short}
    wide = Value(op.outputs["Out"][0], (prod(x.shape[:depth]), prod(x.shape[depth:])), None, **kind)
    r.nodes.append(Node("view", [x], wide))
    flat = Value(wide.name, (places.shape[0], wide.shape[1]), None, **kind)
    r.nodes.append(Node("rows", [wide, places], flat, {"zero": -1, "checks": tuple(bounds)}))
    shape = (*r.get(op, "Index", integer=True).shape[:-1], *x.shape[depth:])
    r.add("view", [flat], op, "Out", shape, **kind)


def named_rows(r: GraphBuilder, op: Operator, whole: Shape, ids: Ids, nowhere: int) -> Value:
    """The numbers of the rows that `Index` names along the first axes of something, [count]; `nowhere` for those out of range."""
    index = r.get(op, "Index", integer=True)
    depth = index.shape[-1] if index.shape else 0
    need(0 < depth <= len(whole), "an index of no axes, or of more than there are")
    sizes, count = whole[:depth], prod(index.shape[:-1])
    for number, size in enumerate(sizes):
        ids(op, "Index", size, column=(number, depth))
    if (index, sizes) not in r.places:
        lines = r.whole_node("view", [index], (count, depth))
        columns = [
            r.whole_node("slice", [lines], (count,), starts=[0, number], sizes=[count, 1]) for number in range(depth)
        ]
        names = ascii_lowercase[:depth]
        outside = " || ".join(f"{name} < 0 || {name} >= {size}" for name, size in zip(names, sizes, strict=True))
        row = names[0]
        for name, size in zip(names[1:], sizes[1:], strict=True):
            row = f"({row}) * {size} + {name}"
        text = f"({outside} ? {nowhere} : {row})"
        r.places[index, sizes] = r.whole_node("whole", columns, (count,), text=text, shapes=((count,),) * depth)
    return r.places[index, sizes]
