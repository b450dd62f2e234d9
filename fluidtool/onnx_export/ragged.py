"""Several sequences in one run: their rows lie one after another, and a 1-D int64 value says how many each has."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.onnx_export.graph import INT64, Graph, Value


def starts(g: Graph, lengths: Value) -> Value:
    """The first row of each sequence."""
    return g.same("CumSum", lengths, g.constant(0, INT64), exclusive=1)


def owners(g: Graph, lengths: Value) -> Value:
    """For each row the number of its sequence."""
    ends = g.same("CumSum", lengths, g.constant(0, INT64))
    return (_rows(g, lengths).unsqueeze(1) >= ends.unsqueeze(0)).cast(INT64).sum(1)


def places(g: Graph, lengths: Value) -> Value:
    """For each row its place within its sequence."""
    return _rows(g, lengths) - starts(g, lengths).gather(owners(g, lengths), 0)


def _rows(g: Graph, lengths: Value) -> Value:
    return g.range(0, lengths.sum(0).scalar())


def taken(g: Graph, x: Value, begins: Value, lengths: Value) -> Value:
    """lengths[i] rows of x from begins[i] on, for each i, one after another."""
    rows = begins.gather(owners(g, lengths), 0) + places(g, lengths)
    return open_rows(x.gather(rows, 0))


def padded(g: Graph, x: Value, lengths: Value, fill: Any = 0, steps: Value | None = None) -> tuple[Value, Value]:
    """[N, T, …] with `fill` behind the end of each sequence, and [N, T]: which places belong to a sequence."""
    longest = lengths.reduce("Max", [0], keepdims=True) if steps is None else steps
    at = g.range(0, longest.scalar()).unsqueeze(0)
    inside = at < lengths.unsqueeze(1)
    behind = x.dim_value(0)
    rows = g.where(inside, starts(g, lengths).unsqueeze(1) + at, behind)
    rest = x.sizes()[1:]
    one = g.full(g.vector([1, *rest]), fill, x.dtype)
    return g.op("Concat", x, one, axis=0).gather(rows, 0).shaped((-1, -1, *(x.shape or ())[1:])), inside


def packed(g: Graph, x: Value, inside: Value) -> Value:
    """The rows of [N, T, …] that belong to sequences."""
    rows = x.reshape([-1, *x.sizes()[2:]])
    return g.op("Compress", rows, inside.flat(), axis=0, shape=(-1, *(x.shape or ())[2:]))


def open_rows(x: Value) -> Value:
    """The same value, whose first size is not known."""
    return x.shaped((-1, *(x.shape or ())[1:]))


def beside(lengths: Value, x: Value) -> Value:
    """[N] as [N, 1, …], so that it broadcasts over the rows of x."""
    return lengths.unsqueeze(*range(1, x.rank)) if x.rank > 1 else lengths


def lowest(dtype: Any) -> Any:
    """The least number of a data type."""
    kind = np.dtype(dtype)
    return -np.inf if kind.kind == "f" else np.iinfo(kind).min
