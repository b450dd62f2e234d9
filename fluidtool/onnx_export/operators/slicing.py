"""Parts of tensors: slice, strided_slice, crop, set_value; triangles and diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.onnx_export.graph import INT64_MAX, INT64_MIN, Graph, Value
from fluidtool.onnx_export.items import Items
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import need, renders
from fluidtool.ops.tensor.set_value import VALUES
from fluidtool.ops.tensor.strided_slice import strided_range


@renders("slice")
def slice_(g: Graph, op: Operation) -> Any:
    found = op.exporter.find(g, op.names("Input")[0])
    starts = op.int_list("starts", "StartsTensor", "StartsTensorList")
    ends = op.int_list("ends", "EndsTensor", "EndsTensorList")
    if isinstance(found, Items):
        need(
            found.known is not None and isinstance(starts[0], int) and isinstance(ends[0], int),
            "a range of an array of tensors",
        )
        chosen = (found.known or ())[int(starts[0]) : int(ends[0])]  # type: ignore[arg-type]
        return chosen[0] if op.attr("decrease_axis") else Items(chosen)
    axes, dropped = (
        [axis % found.rank for axis in op.attr("axes")],
        [axis % found.rank for axis in op.attr("decrease_axis")],
    )
    for place, axis in enumerate(axes):
        if axis in dropped and isinstance(starts[place], int) and starts[place] == -1:
            ends[place] = INT64_MAX
    out = found.slice(starts, ends, axes)
    return _without(op, out, dropped)


def _without(op: Operation, out: Value, dropped: list[int]) -> Value:
    if not dropped:
        return out
    if out.shape is not None and out.array is None:
        out = out.shaped(tuple(1 if axis in dropped else n for axis, n in enumerate(out.shape)))
    squeezed = out.squeeze(*sorted(set(dropped)))
    return squeezed.reshape([1]) if squeezed.shape == () and op.shape() == (1,) else squeezed


@renders("strided_slice")
def strided_slice(g: Graph, op: Operation) -> Value:
    x = op["Input"]
    axes, dropped = [axis % x.rank for axis in op.attr("axes")], [axis % x.rank for axis in op.attr("decrease_axis")]
    steps = op.known_ints("strides", "StridesTensor", "StridesTensorList")
    starts = op.int_list("starts", "StartsTensor", "StartsTensorList")
    ends = op.int_list("ends", "EndsTensor", "EndsTensorList")
    for place, axis in enumerate(axes):
        low, high, size = starts[place], ends[place], (x.shape or ())[axis]
        if isinstance(low, int) and isinstance(high, int) and size >= 0:
            found = strided_range(op.context, low, high, steps[place], size)
            starts[place] = found.start
            ends[place] = INT64_MIN if found.stop is None else found.stop
            steps[place] = found.step or 1
        elif steps[place] < 0 and isinstance(high, int) and high == -1:
            ends[place] = INT64_MIN
    # Of an axis that is named twice, the later range counts.
    last = sorted({axis: place for place, axis in enumerate(axes)}.values())
    starts, ends, steps = ([starts[place] for place in last], [ends[place] for place in last], [steps[p] for p in last])
    return _without(op, x.slice(starts, ends, [axes[place] for place in last], steps), dropped)


@renders("crop", "crop_tensor")
def crop(g: Graph, op: Operation) -> Value:
    x, like = op["X"], op.get("Y")
    offsets = op.int_list("offsets", "Offsets", "OffsetsTensor")
    offsets = offsets or [0] * x.rank
    if like is not None:
        shape: list[int | Value] = like.sizes()
    else:
        shape = op.int_list("shape", "Shape", "ShapeTensor")
    ends: list[int | Value] = []
    for axis, (low, size) in enumerate(zip(offsets, shape, strict=True)):
        if isinstance(size, int) and size <= 0:
            full = op.type == "crop" and (x.shape or ())[axis] < 0
            ends.append(INT64_MAX if not full else x.dim(axis))
        elif isinstance(low, int) and isinstance(size, int):
            ends.append(low + size)
        else:
            end = g.vector([low]) + g.vector([size])
            ends.append(g.where(g.vector([size]) > 0, end, INT64_MAX))
    return x.slice(offsets, ends, list(range(x.rank)))


@renders("set_value")
def set_value(g: Graph, op: Operation) -> Value:
    """The numbers of every place of the region are scattered to the flattened input."""
    x = op["Input"]
    shape = x.static()
    axes = [axis % x.rank for axis in op.attr("axes")]
    starts, ends, steps = (
        op.known_ints(name, tensors=f"{name.capitalize()}TensorList") for name in ("starts", "ends", "steps")
    )
    cut: list[Any] = [slice(None)] * len(shape)
    for axis, low, high, step in zip(axes, starts, ends, steps, strict=True):
        cut[axis] = slice(low, high, step)
    places = np.arange(int(np.prod(shape))).reshape(shape)[tuple(cut)]
    region = list(places.shape)
    dropped = {axis % len(region) for axis in op.attr("decrease_axes")}
    wanted = [size for axis, size in enumerate(region) if axis not in dropped]
    for axis in op.attr("none_axes"):
        wanted.insert(axis, 1)
    value = op.get("ValueTensor")
    if value is None:
        value = g.constant(_numbers(op).astype(x.dtype))
    while value.rank > len(wanted):
        value = value.squeeze(0)
    if not places.size:
        return x
    numbers = value.cast(x.dtype).expand(wanted).flat()
    flat = g.op("ScatterElements", x.flat(), g.constant(places.reshape(-1), np.int64), numbers, axis=0)
    return flat.reshape(list(shape))


def _numbers(op: Operation) -> Any:
    for name in VALUES:
        found = op.attr(name, [])
        if found is not None and len(found):
            return np.asarray([getattr(n, "value", n) for n in found]).reshape(op.attr("shape"))
    need(False, "it has no value")
    return None


@renders("tril_triu")
def triangle(g: Graph, op: Operation) -> Value:
    x, diagonal, upper = op["X"], op.attr("diagonal"), 0 if op.attr("lower") else 1
    kernel = x.dtype in (np.dtype(n) for n in ("float32", "float64", "int64", "bool"))
    if g.opset >= 14:
        narrowed = x if kernel else x.cast(np.float64)
        return g.same("Trilu", narrowed, g.constant(diagonal, np.int64), upper=upper).cast(x.dtype)
    rows, columns = x.size(-2), x.size(-1)
    keep = (
        np.triu(np.ones((rows, columns), bool), diagonal)
        if upper
        else np.tril(np.ones((rows, columns), bool), diagonal)
    )
    return g.where(g.constant(keep), x, 0)


@renders("diag", "diag_v2", "diag_embed")
def diagonal_matrix(g: Graph, op: Operation) -> Value:
    x = op["X" if op.type == "diag_v2" else "Input" if op.type == "diag_embed" else "Diagonal"]
    offset = 0 if op.type == "diag" else op.attr("offset")
    if op.type == "diag_v2" and x.rank == 2:
        return _diagonal(g, x, offset)
    n = x.size(-1) + abs(offset)
    on = np.eye(n, k=offset, dtype=bool)
    before, after = max(-offset, 0), max(offset, 0)
    rows = x.pad([0] * (x.rank - 1) + [before], [0] * (x.rank - 1) + [after]).unsqueeze(-1)
    out = g.where(g.constant(on), rows, op.attr("padding_value", 0.0) or 0)
    if op.type == "diag_embed":
        rank = x.rank + 1
        one, two = op.attr("dim1") % rank, op.attr("dim2") % rank
        order: list[int] = [0] * rank
        rest = iter(range(rank - 2))
        for axis in range(rank):
            order[axis] = rank - 2 if axis == one else rank - 1 if axis == two else next(rest)
        out = out.transpose(*order)
    return out


def _diagonal(g: Graph, x: Value, offset: int) -> Value:
    """The diagonal of the last two axes."""
    rows, columns = x.size(-2), x.size(-1)
    first_row, first_column = max(-offset, 0), max(offset, 0)
    count = max(min(rows - first_row, columns - first_column), 0)
    places = (np.arange(count) + first_row) * columns + np.arange(count) + first_column
    flat = x.reshape([*x.sizes()[:-2], rows * columns])
    return flat.gather(g.constant(places, np.int64), -1)


@renders("diagonal", "trace")
def diagonal(g: Graph, op: Operation) -> Value:
    x = op["Input"]
    one, two = (op.attr(name) % x.rank for name in (("axis1", "axis2") if op.type == "diagonal" else ("dim1", "dim2")))
    rest = [axis for axis in range(x.rank) if axis not in (one, two)]
    found = _diagonal(g, x.transpose(*rest, one, two), op.attr("offset"))
    if op.type == "diagonal":
        return found
    total = found.sum(-1)
    return total.reshape([1]) if op.shape() == (1,) else total


@renders("fill_diagonal")
def fill_diagonal(g: Graph, op: Operation) -> Value:
    x = op["X"]
    shape = x.static()
    array = np.zeros(shape, bool)
    if len(shape) == 2:
        rows, columns = shape
        places = np.arange(rows)
        for start in range(0, rows, columns + 1) if op.attr("wrap") else [0]:
            across = places - start + op.attr("offset")
            inside = (across >= 0) & (across < columns) & (places >= start) & (places - start < columns)
            array[places[inside], across[inside]] = True
    else:
        n = min(shape)
        array[tuple([np.arange(n)] * len(shape))] = True
    return g.where(g.constant(array), g.like(op.attr("value"), x), x)


@renders("fill_diagonal_tensor")
def fill_diagonal_tensor(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Y"]
    shape = x.static()
    one, two = op.attr("dim1") % len(shape), op.attr("dim2") % len(shape)
    rest = [axis for axis in range(len(shape)) if axis not in (one, two)]
    places = np.arange(int(np.prod(shape))).reshape(shape)
    on = np.diagonal(places.transpose(*rest, one, two), op.attr("offset"), -2, -1)
    need(tuple(y.static()) == on.shape, "Y does not have the shape of the diagonal")
    flat = g.op("ScatterElements", x.flat(), g.constant(on.reshape(-1), np.int64), y.flat(), axis=0)
    return flat.reshape(list(shape))
