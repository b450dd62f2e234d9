"""Sums, means, norms and extremes over axes; running sums; places of extremes; sorting."""

from __future__ import annotations

import numpy as np

from fluidtool.onnx_export.graph import BOOL, Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import RENDERINGS, Rendering, need, renders
from fluidtool.tensor import numpy_dtype

KINDS = {
    "reduce_sum": "Sum",
    "reduce_mean": "Mean",
    "reduce_max": "Max",
    "reduce_min": "Min",
    "reduce_prod": "Prod",
    "reduce_amax": "Max",
    "reduce_amin": "Min",
    "reduce_all": "Min",
    "reduce_any": "Max",
}


def axes_of(op: Operation, x: Value, attr: str = "dim") -> list[int]:
    """The axes that go; all of them where none is given."""
    axes = [axis % max(x.rank, 1) for axis in op.known_ints(attr)]
    return list(range(x.rank)) if op.attr("reduce_all", False) or not axes else sorted(set(axes))


def reduced(x: Value, kind: str, axes: list[int], keep: bool) -> Value:
    """Reduced in a data type that there is a kernel for."""
    if x.rank == 0:
        return x
    if x.dtype == BOOL or (x.dtype.itemsize < 4 and not x.floating):
        return x.cast(np.int32).reduce(kind, axes, keep).cast(x.dtype)
    if kind == "Mean" and not x.floating:
        return x.cast(np.float64).reduce(kind, axes, keep).cast(x.dtype)
    return x.reduce(kind, axes, keep)


def _reduction(kind: str) -> Rendering:
    def render(g: Graph, op: Operation) -> Value:
        x = op["X"]
        dtype = op.attr("out_dtype", -1)
        if dtype >= 0 and kind in ("Sum", "Prod", "Mean"):
            x = x.cast(numpy_dtype(dtype))
        return finished(op, reduced(x, kind, axes_of(op, x), bool(op.attr("keep_dim"))))

    return render


def finished(op: Operation, x: Value) -> Value:
    """A single number has one dimension in old programs."""
    return x.reshape([1]) if x.shape == () and op.shape() == (1,) else x


for _type, _kind in KINDS.items():
    RENDERINGS[_type] = _reduction(_kind)


@renders("mean")
def mean(g: Graph, op: Operation) -> Value:
    return finished(op, reduced(op["X"], "Mean", [], False))


@renders("logsumexp")
def logsumexp(g: Graph, op: Operation) -> Value:
    x = op["X"]
    return finished(op, x.reduce("LogSumExp", axes_of(op, x, "axis"), bool(op.attr("keepdim"))))


@renders("frobenius_norm")
def frobenius_norm(g: Graph, op: Operation) -> Value:
    x = op["X"]
    return finished(op, x.reduce("L2", axes_of(op, x), bool(op.attr("keep_dim"))))


@renders("l1_norm")
def l1_norm(g: Graph, op: Operation) -> Value:
    return finished(op, op["X"].apply("Abs").sum())


@renders("squared_l2_norm")
def squared_l2_norm(g: Graph, op: Operation) -> Value:
    return finished(op, (op["X"] * op["X"]).sum())


@renders("squared_l2_distance")
def squared_l2_distance(g: Graph, op: Operation) -> dict[str, Value]:
    x, y = (value.reshape([value.dim(0), value.merged(1, value.rank)]) for value in (op["X"], op["Y"]))
    difference = x - y
    return {"sub_result": difference, "Out": (difference * difference).sum(1, keepdims=True)}


def norm_of(x: Value, order: float, axes: list[int], keep: bool) -> Value:
    """The p-norm over axes."""
    size = x.apply("Abs")
    if order == float("inf"):
        return size.reduce("Max", axes, keep)
    if order == float("-inf"):
        return size.reduce("Min", axes, keep)
    if order == 0:
        return (~x.equals(0)).cast(x.dtype).reduce("Sum", axes, keep)
    if order == 1:
        return size.reduce("Sum", axes, keep)
    if order == 2:
        return x.reduce("L2", axes, keep)
    powers = x.graph.binary("Pow", size, order).reduce("Sum", axes, keep)
    return x.graph.binary("Pow", powers, 1 / order)


@renders("p_norm")
def p_norm(g: Graph, op: Operation) -> Value:
    x = op["X"]
    everything = op.attr("asvector", False)
    axes = list(range(x.rank)) if everything else [op.attr("axis") % max(x.rank, 1)]
    return finished(op, norm_of(x, op.attr("porder"), axes, bool(op.attr("keepdim"))))


@renders("dist")
def dist(g: Graph, op: Operation) -> Value:
    return finished(op, norm_of(op["X"] - op["Y"], op.attr("p"), [], False))


@renders("arg_max", "arg_min")
def arg_extreme(g: Graph, op: Operation) -> Value:
    x = op["X"]
    if x.dtype in (np.dtype(np.int16), np.dtype(np.uint8), np.dtype(np.int64), BOOL):
        x = x.cast(np.int32 if x.dtype != np.int64 else np.float64)
    (axis,) = op.known_ints("axis")
    keep = bool(op.attr("keepdims"))
    if op.attr("flatten", False):
        shape = op.shape()
        x, axis = x.flat(), 0
        found = _place(g, op, x, axis, keep=False)
        return found.reshape([1] * len(shape)) if len(shape) else found.scalar()
    if x.rank == 0:
        return g.constant(np.zeros((), op.dtype(default=np.int64)))
    return finished(op, _place(g, op, x, axis, keep)).cast(op.dtype(default=np.int64))


def _place(g: Graph, op: Operation, x: Value, axis: int, keep: bool) -> Value:
    kind = "ArgMax" if op.type == "arg_max" else "ArgMin"
    shape = x.reduce("Max", [axis], keep).shape
    return g.op(kind, x, axis=axis, keepdims=int(keep), dtype=np.int64, shape=shape)


@renders("cumsum")
def cumsum(g: Graph, op: Operation) -> Value:
    x = op["X"]
    if op.attr("flatten", False):
        x, axis = x.flat(), 0
    else:
        (axis,) = op.known_ints("axis")
    if x.rank == 0:
        return x
    exclusive, backward = int(bool(op.attr("exclusive"))), int(bool(op.attr("reverse")))
    return g.same("CumSum", x, g.constant(axis, np.int64), exclusive=exclusive, reverse=backward)


@renders("cumprod")
def cumprod(g: Graph, op: Operation) -> Value:
    """Every place is the product of a triangle of copies."""
    x, axis = op["X"], op.attr("dim") % max(op["X"].rank, 1)
    if x.rank == 0:
        return x
    n = x.size(axis)
    need(n <= 1024, f"a running product of {n} numbers")
    last = x.swap(axis, -1) if axis != x.rank - 1 else x
    seen = np.tril(np.ones((n, n), bool), -1 if op.attr("exclusive") else 0)
    seen = seen[::-1, ::-1] if op.attr("reverse") else seen
    products = reduced(g.where(g.constant(seen), last.unsqueeze(-2), 1), "Prod", [-1], False).shaped(last.shape)
    return products.swap(axis, -1) if axis != x.rank - 1 else products


@renders("cummax", "cummin")
def running_extreme(g: Graph, op: Operation) -> dict[str, Value]:
    x, axis = op["x"], op.attr("axis") % max(op["x"].rank, 1)
    n = x.size(axis)
    need(n <= 1024, f"a running extreme of {n} numbers")
    last = x.swap(axis, -1) if axis != x.rank - 1 else x
    largest = op.type == "cummax"
    dtype = np.float64 if not last.floating else last.dtype
    hidden = g.where(
        g.constant(np.tril(np.ones((n, n), bool))), last.cast(dtype).unsqueeze(-2), -np.inf if largest else np.inf
    )
    values = hidden.reduce("Max" if largest else "Min", [-1]).shaped(last.shape)
    places = g.op(
        "ArgMax" if largest else "ArgMin",
        hidden,
        axis=-1,
        keepdims=0,
        select_last_index=1,
        dtype=np.int64,
        shape=last.shape,
    )
    swap = axis != x.rank - 1
    found = [value.swap(axis, -1) if swap else value for value in (values.cast(x.dtype), places)]
    return {"out": found[0], "indices": found[1].cast(op.dtype("indices", np.int64))}


def sorted_along(g: Graph, x: Value, axis: int, count: int | Value, largest: bool) -> tuple[Value, Value]:
    """The first `count` numbers in order, and their places."""
    many = g.vector([count])
    kernel = (
        x.dtype if x.dtype in (np.dtype(n) for n in ("float32", "float64", "int32", "int64")) else np.dtype(np.float32)
    )
    values, places = g.node(
        "TopK", [x.cast(kernel), many], [kernel, np.int64], axis=axis, largest=int(largest), sorted=1
    )
    shape = None
    if x.shape is not None:
        at = axis % len(x.shape)
        shape = (*x.shape[:at], count if isinstance(count, int) else -1, *x.shape[at + 1 :])
    return values.shaped(shape).cast(x.dtype), places.shaped(shape)


@renders("top_k", "top_k_v2")
def top_k(g: Graph, op: Operation) -> dict[str, Value]:
    x, given = op["X"], op.get("K")
    count: int | Value = op.attr("k")
    if given is not None:
        count = int(given.array.reshape(-1)[0]) if given.array is not None else given.cast(np.int64).reshape([1])
    axis, largest = op.attr("axis", -1), bool(op.attr("largest", True))
    if x.rank == 0:
        return {"Out": x, "Indices": g.constant(np.zeros((), np.int64))}
    values, places = sorted_along(g, x, axis, count, largest)
    return {"Out": values, "Indices": places}


@renders("argsort")
def argsort(g: Graph, op: Operation) -> dict[str, Value]:
    x, axis = op["X"], op.attr("axis")
    if x.rank == 0:
        return {"Out": x, "Indices": g.constant(np.zeros((), np.int64))}
    values, places = sorted_along(g, x, axis, x.dim(axis), bool(op.attr("descending")))
    return {"Out": values.shaped(x.shape), "Indices": places.shaped(x.shape)}


@renders("kthvalue")
def kthvalue(g: Graph, op: Operation) -> dict[str, Value]:
    x, axis, k = op["X"], op.attr("axis"), op.attr("k")
    values, places = sorted_along(g, x, axis, k, False)
    at = [value.part(axis, k - 1, k) for value in (values, places)]
    if not op.attr("keepdim"):
        at = [value.squeeze(axis) for value in at]
    return {"Out": at[0], "Indices": at[1]}


@renders("histogram")
def histogram(g: Graph, op: Operation) -> Value:
    x, bins, low, high = op["X"].flat(), op.attr("bins"), op.attr("min"), op.attr("max")
    need(low != high, "a range that depends on the values")
    place = ((x.cast(np.float64) - low) * (bins / (high - low))).apply("Floor").clip(0, bins - 1).cast(np.int64)
    inside = (x >= g.like(low, x)) & (x <= g.like(high, x))
    hits = place.unsqueeze(1).equals(g.constant(np.arange(bins)[None])) & inside.unsqueeze(1)
    return hits.cast(np.int64).sum(0)


@renders("bincount")
def bincount(g: Graph, op: Operation) -> Value:
    x, weights = op["X"].cast(np.int64), op.get("Weights")
    (least,) = op.known_ints("minlength")
    many = g.maximum(x.reduce("Max", [0], keepdims=True) + 1, g.constant([least], np.int64))
    start = g.full(many, 0, op.dtype(default=np.int64))
    given = g.full(x.dims(), 1, start.dtype) if weights is None else weights.cast(start.dtype)
    need(g.opset >= 16, "adding at indices needs opset 16 or later")
    return g.op("ScatterElements", start, x, given, axis=0, reduction="add")


@renders("is_empty")
def is_empty(g: Graph, op: Operation) -> Value:
    return op["X"].dims().reduce("Prod", [], keepdims=True).equals(0).reshape(list(op.shape()))
