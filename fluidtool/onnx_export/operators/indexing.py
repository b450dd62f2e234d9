"""Numbers picked and put by index or condition: gather, scatter, tables, one_hot, where, unique."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.onnx_export.graph import BOOL, Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import need, renders
from fluidtool.tensor import numpy_dtype


def whole(indices: Value) -> Value:
    """Indices as int64."""
    return indices.cast(np.int64)


@renders("lookup_table", "lookup_table_v2")
def lookup_table(g: Graph, op: Operation) -> Value:
    table, ids = op["W"], whole(op["Ids"])
    if op.type == "lookup_table":
        ids = ids.squeeze(-1)
    rows = table.gather(ids, 0)
    padding = op.attr("padding_idx")
    if padding == -1:
        return rows
    padding = padding if padding >= 0 else padding + table.size(0)
    return g.where(ids.equals(padding).unsqueeze(-1), 0, rows)


@renders("gather")
def gather(g: Graph, op: Operation) -> Value:
    x, index = op["X"], whole(op["Index"])
    given = op.get("Axis")
    index = index if index.rank <= 1 else index.flat()
    if given is None:
        return x.gather(index, op.attr("axis", 0))
    if given.array is not None:
        return x.gather(index, int(given.array.reshape(-1)[0]))
    axis = g.binary("Mod", given.cast(np.int64).scalar(), x.rank)
    return _gathered_along(g, x, index, axis, 0)


def _gathered_along(g: Graph, x: Value, index: Value, axis: Value, number: int) -> Value:
    """x gathered along an axis that is computed: one of those from `number` on."""
    if number == x.rank - 1:
        return x.gather(index, number)
    here, others = g.inner(), g.inner()
    here.outputs = [x.within(here).gather(index.within(here), number).loose()]
    x_there, index_there, axis_there = (value.within(others) for value in (x, index, axis))
    others.outputs = [_gathered_along(others, x_there, index_there, axis_there, number + 1).loose()]
    shape = (-1,) * (x.rank - 1 + index.rank)
    return g.op("If", axis.equals(number), dtype=x.dtype, then_branch=here, else_branch=others, shape=shape)


@renders("lookup_table_dequant")
def lookup_table_dequant(g: Graph, op: Operation) -> Value:
    """The rows of the table as floats, which is how they are written."""
    table, ids, padding = op["W"], whole(op["Ids"]).squeeze(-1), op.attr("padding_idx")
    need(table.array is not None, "a table that is computed: ONNX cannot reinterpret floats as bytes")
    packed = np.ascontiguousarray(table.array, np.float32)
    low, high = packed[:, :1], packed[:, 1:2]
    rows = np.ascontiguousarray(packed[:, 2:]).view(np.uint8) * ((high - low) / np.float32(256)) + low
    found = g.constant(rows).gather(g.where(ids.equals(padding), 0, ids) if padding != -1 else ids, 0)
    return found if padding == -1 else g.where(ids.equals(padding).unsqueeze(-1), 0, found)


@renders("gather_nd")
def gather_nd(g: Graph, op: Operation) -> Value:
    x, index = op["X"], whole(op["Index"])
    depth = index.size(-1, "Index")
    if depth == 0:
        sizes = g.concat([index.dims().part(0, 0, -1), x.dims()], 0)
        return x.expand(sizes)
    shape = (*(index.shape or ())[:-1], *(x.shape or ())[depth:])
    narrowed = x
    return g.op("GatherND", narrowed, index, shape=shape)


@renders("index_select")
def index_select(g: Graph, op: Operation) -> Value:
    return op["X"].gather(whole(op["Index"]).flat(), op.attr("dim"))


def elements(x: Value, index: Value, axis: int) -> Value:
    """The element at every index along an axis."""
    return x.graph.op("GatherElements", x, index, axis=axis, shape=index.shape)


@renders("index_sample")
def index_sample(g: Graph, op: Operation) -> Value:
    return elements(op["X"], whole(op["Index"]), 1)


@renders("take_along_axis")
def take_along_axis(g: Graph, op: Operation) -> Value:
    x, index, axis = op["Input"], whole(op["Index"]), op.attr("Axis") % op["Input"].rank
    return elements(x, index, axis)


@renders("put_along_axis")
def put_along_axis(g: Graph, op: Operation) -> Value:
    x, index, value = op["Input"], whole(op["Index"]), op["Value"]
    axis, how = op.attr("Axis") % x.rank, op.attr("Reduce")
    value = value.expand(index.dims()) if value.shape != index.shape else value
    need(op.attr("Include_self", True) or how == "assign", "a reduction that ignores the existing values")
    if how == "assign":
        return g.same("ScatterElements", x, index, value, axis=axis)
    reduction = {"add": "add", "mul": "mul", "multiply": "mul", "amax": "max", "amin": "min"}.get(how)
    need(reduction, f"the reduction {how}")
    need(g.opset >= (18 if reduction in ("max", "min") else 16), f"the reduction {how} needs a later opset")
    return g.same("ScatterElements", x, index, value, axis=axis, reduction=reduction)


@renders("scatter")
def scatter(g: Graph, op: Operation) -> Value:
    x, ids, updates = op["X"], whole(op["Ids"]), op["Updates"]
    rows = ids.reshape([-1, 1])
    updates = updates.reshape([-1, *x.sizes()[1:]]) if updates.rank != x.rank else updates
    if op.attr("overwrite"):
        return g.same("ScatterND", x, rows, updates)
    need(g.opset >= 16, "adding at indices needs opset 16 or later")
    cleared = g.same("ScatterND", x, rows, updates * 0)
    return g.same("ScatterND", cleared, rows, updates, reduction="add")


@renders("scatter_nd_add")
def scatter_nd_add(g: Graph, op: Operation) -> Value:
    x, index, updates = op["X"], whole(op["Index"]), op["Updates"]
    if index.size(-1, "Index") == 0:
        places = len(index.shape or ()) - 1
        return x + (updates.sum(*range(places)) if places else updates)
    need(g.opset >= 16, "adding at indices needs opset 16 or later")
    return g.same("ScatterND", x, index, updates, reduction="add")


@renders("index_add")
def index_add(g: Graph, op: Operation) -> Value:
    x, index, added, axis = op["X"], whole(op["Index"]).flat(), op["AddValue"], op.attr("axis") % op["X"].rank
    need(g.opset >= 16, "adding at indices needs opset 16 or later")
    places = index.reshape([1] * axis + [-1] + [1] * (x.rank - axis - 1)).expand(added.dims())
    return g.same("ScatterElements", x, places, added, axis=axis, reduction="add")


@renders("index_put")
def index_put(g: Graph, op: Operation) -> Value:
    x, value = op["x"], op["value"]
    indices = op.all("indices")
    reduction = "add" if op.attr("accumulate") else None
    need(reduction is None or g.opset >= 16, "adding at indices needs opset 16 or later")
    if len(indices) == 1 and indices[0].dtype == BOOL:
        places = g.op("NonZero", indices[0], dtype=np.int64, shape=(indices[0].rank, -1)).swap()
    else:
        need(all(index.dtype != BOOL for index in indices), "masks beside indices")
        common = indices[0].dims()
        for index in indices[1:]:
            common = (
                g.op("Shape", g.binary("Add", whole(indices[0]), whole(index)), dtype=np.int64)
                if len(indices) > 1
                else common
            )
        places = g.stack([whole(index).expand(common).flat() for index in indices], 1)
    rest = x.sizes()[places.size(1) :]
    many = places.dim_value(0)
    if value.rank > len(rest) + 1:
        value = value.reshape([-1, *rest])
    return g.same("ScatterND", x, places, value.expand([many, *rest]), reduction=reduction)


@renders("multiplex")
def multiplex(g: Graph, op: Operation) -> Value:
    ids, parts = whole(op["Ids"]).flat(), g.stack(op.all("X"), 0)
    rows = g.range(0, ids.dim_value(0).scalar() if not isinstance(ids.dim(0), int) else ids.size(0))
    return g.op("GatherND", parts, g.stack([ids, rows], 1), shape=op.all("X")[0].shape)


@renders("one_hot", "one_hot_v2")
def one_hot(g: Graph, op: Operation) -> Value:
    x, given = op["X"], op.get("depth_tensor")
    if op.type == "one_hot" and x.rank > 1:
        x = x.squeeze(-1)
    depth = g.constant([op.attr("depth")], np.int64) if given is None else whole(given).reshape([1])
    dtype = numpy_dtype(op.attr("dtype"))
    kernel = np.dtype(np.float32) if dtype not in (np.dtype(np.int64),) else dtype
    if depth.array is not None:
        places = g.constant(np.arange(int(depth.array[0])), np.int64)
    else:
        places = g.range(0, depth)
    hits = whole(x).unsqueeze(-1).equals(places)
    return hits.cast(kernel).cast(dtype)


@renders("where")
def where(g: Graph, op: Operation) -> Value:
    return g.where(op["Condition"].cast(BOOL), op["X"], op["Y"])


@renders("where_index")
def where_index(g: Graph, op: Operation) -> Value:
    condition = op["Condition"]
    return g.op("NonZero", condition.cast(BOOL), dtype=np.int64, shape=(condition.rank, -1)).swap()


@renders("masked_select")
def masked_select(g: Graph, op: Operation) -> Value:
    x, mask = op["X"], op["Mask"]
    mask = mask.expand(x.dims()) if mask.shape != x.shape else mask
    return g.op("Compress", x.flat(), mask.flat(), axis=0, shape=(-1,))


@renders("unique", "unique_with_counts")
def unique(g: Graph, op: Operation) -> dict[str, Any]:
    x = op["X"]
    ordered = bool(op.attr("is_sorted", False))
    axes = list(op.attr("axis", []) or [])
    kernel = x.dtype in (np.dtype(n) for n in ("float32", "float64", "int64", "int8"))
    values = x if kernel else x.cast(np.int64 if not x.floating else np.float32)
    axis = axes[0] % x.rank if axes else None
    if axis is None:
        values = values.flat()
    dtypes = [values.dtype, np.int64, np.int64, np.int64]
    out, first, inverse, counts = g.node("Unique", [values], dtypes, axis=axis, sorted=int(ordered))
    index = np.dtype(np.int64) if op.attr("dtype") in (None, 3) else numpy_dtype(op.attr("dtype"))
    found = {"Out": out.cast(x.dtype), "Index": inverse.cast(index)}
    if op.type == "unique_with_counts":
        return found | {"Count": counts.cast(index)}
    if ordered:
        return {
            "Out": out.cast(x.dtype),
            "Indices": first.cast(index),
            "Index": inverse.cast(index),
            "Counts": counts.cast(index),
        }
    return found


@renders("unique_consecutive")
def unique_consecutive(g: Graph, op: Operation) -> dict[str, Value]:
    x = op["X"]
    need(not op.attr("axis"), "slices along an axis")
    flat = x.flat()
    changes = ~flat.part(0, 1).equals(flat.part(0, 0, -1))
    starts = g.concat([g.constant([True]), changes], 0)
    out = g.op("Compress", flat, starts, axis=0, shape=(-1,))
    index = numpy_dtype(op.attr("dtype"))
    numbers = g.op("CumSum", starts.cast(np.int64), g.constant(0, np.int64)) - 1
    places = g.op("NonZero", starts, dtype=np.int64, shape=(1, -1)).flat()
    ends = g.concat([places.part(0, 1), flat.dim_value(0)], 0)
    return {"Out": out, "Index": numbers.cast(index), "Counts": (ends - places).cast(index)}


@renders("searchsorted")
def searchsorted(g: Graph, op: Operation) -> Value:
    line, values = op["SortedSequence"], op["Values"]
    cells, wanted = line.unsqueeze(-2), values.unsqueeze(-1)
    before = wanted >= cells if op.attr("right") else wanted > cells
    return before.cast(np.int64).sum(-1).cast(op.dtype(default=np.int64))


@renders("gather_tree")
def gather_tree(g: Graph, op: Operation) -> Value:
    ids, parents = op["Ids"], whole(op["Parents"])
    steps = ids.size(0)
    rows = [ids.pick(0, steps - 1)]
    place = parents.pick(0, steps - 1)
    for step in range(steps - 2, -1, -1):
        rows.append(elements(ids.pick(0, step), place, 1))
        place = elements(parents.pick(0, step), place, 1)
    return g.stack(rows[::-1], 0)


@renders("shard_index")
def shard_index(g: Graph, op: Operation) -> Value:
    x = op["X"]
    size = -(-op.attr("index_num") // op.attr("nshards"))
    low = op.attr("shard_id") * size
    return g.where((x >= low) & (x < low + size), x - low, op.attr("ignore_value"))
