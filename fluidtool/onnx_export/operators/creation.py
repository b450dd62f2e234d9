"""Values that come from nowhere: constants, ranges, sizes, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.items import Items
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import need, renders
from fluidtool.tensor import numpy_dtype


def _shape(g: Graph, op: Operation, name: str = "shape") -> Value:
    sizes = op.ints(name, "ShapeTensor", "ShapeTensorList")
    return sizes if isinstance(sizes, Value) else g.vector(sizes)


@renders("fill_constant")
def fill_constant(g: Graph, op: Operation) -> Value:
    dtype, given = numpy_dtype(op.attr("dtype")), op.get("ValueTensor")
    shape = _shape(g, op)
    if given is not None:
        return given.cast(dtype).reshape([]).expand(shape)
    return g.full(shape, _number(op, dtype), dtype)


def _number(op: Operation, dtype: Any) -> Any:
    text = op.attr("str_value", "")
    if not text:
        return op.attr("value")
    return int(text) if dtype.kind in "iu" and text.lstrip("-").isdigit() else float(text)


@renders("fill_constant_batch_size_like", "uniform_random_batch_size_like", "gaussian_random_batch_size_like")
def batch_size_like(g: Graph, op: Operation) -> Value:
    like = op["Input"]
    sizes: list[int | Value] = [int(n) for n in op.attr("shape")]
    sizes[op.attr("output_dim_idx")] = like.dim(op.attr("input_dim_idx"))
    dtype = numpy_dtype(op.attr("dtype"))
    if op.type == "fill_constant_batch_size_like":
        if op.attr("input_dim_idx") == 0 and like.levels:
            sizes[op.attr("output_dim_idx")] = like.levels[-1].dim(0)
        elif op.lod_level("Input") and not like.levels:
            op.single()
            if op.attr("input_dim_idx") == 0:
                sizes[op.attr("output_dim_idx")] = 1
        return g.full(g.vector(sizes), _number(op, dtype), dtype).shaped(
            [n if isinstance(n, int) else -1 for n in sizes]
        )
    return _random(g, op, g.vector(sizes), dtype)


@renders("fill_zeros_like", "fill_zeros_like2", "fill_any_like")
def fill_like(g: Graph, op: Operation) -> Value:
    x = op["X"]
    dtype = op.dtype(default=x.dtype)
    number = op.attr("value") if op.type == "fill_any_like" else 0
    return g.full(x.dims(), number, dtype).shaped(x.shape)


@renders("fill_any")
def fill_any(g: Graph, op: Operation) -> Value:
    x = op["X"]
    return g.full(x.dims(), op.attr("value_float") if x.floating else op.attr("value_int"), x.dtype).shaped(x.shape)


@renders("empty")
def empty(g: Graph, op: Operation) -> Value:
    return g.full(_shape(g, op), 0, numpy_dtype(op.attr("dtype")))


@renders("shape")
def shape(g: Graph, op: Operation) -> Value:
    return op["Input"].dims().cast(np.int32)


@renders("size")
def size(g: Graph, op: Operation) -> Value:
    x = op["Input"]
    count = x.dims().reduce("Prod", [], keepdims=True)
    return count.reshape(list(op.shape()))


@renders("range")
def range_(g: Graph, op: Operation) -> Value:
    start, end, step = (op[slot] for slot in ("Start", "End", "Step"))
    return g.range(start, end, step, start.dtype)


@renders("linspace")
def linspace(g: Graph, op: Operation) -> Value:
    start, stop, count = op["Start"], op["Stop"], op["Num"]
    dtype = op.dtype(default=start.dtype)
    given = ((start, dtype), (stop, dtype), (count, np.int64))
    low, high, n = (value.cast(kind).cast(np.float64).scalar() for value, kind in given)
    steps = g.range(0, count.cast(np.int64)).cast(np.float64)
    return (low + steps * ((high - low) / g.maximum(n - 1, 1))).cast(dtype)


@renders("logspace")
def logspace(g: Graph, op: Operation) -> Value:
    exponents = linspace(g, op)
    assert isinstance(exponents, Value)
    base = op["Base"].cast(np.float64).scalar()
    return g.binary("Pow", base, exponents.cast(np.float64)).cast(op.dtype())


@renders("increment")
def increment(g: Graph, op: Operation) -> Value:
    return op["X"] + op.attr("step")


@renders("eye")
def eye(g: Graph, op: Operation) -> Value:
    rows, columns = (op.number(name) for name in ("num_rows", "num_columns"))
    columns = rows if isinstance(columns, int) and columns < 0 else columns
    down, across = (g.range(0, size).unsqueeze(axis) for size, axis in ((rows, 1), (columns, 0)))
    return down.equals(across).cast(numpy_dtype(op.attr("dtype")))


@renders("assign_value", "fill", "tril_indices", "triu_indices")
def known(g: Graph, op: Operation) -> Value:
    need(False, "its result is too large for a constant")
    raise AssertionError


@renders("lod_array_length")
def array_length(g: Graph, op: Operation) -> Value:
    items = op.exporter.find(g, op.names("X")[0])
    need(isinstance(items, Items), "it is not an array of tensors")
    assert isinstance(items, Items)
    if items.known is not None:
        return g.constant([len(items.known)], np.int64)
    assert items.sequence is not None
    return g.op("SequenceLength", items.sequence, dtype=np.int64, shape=()).reshape([1])


# ---------------------------------------------------------------- random numbers
@renders("uniform_random", "gaussian_random", "truncated_gaussian_random", "randint")
def drawn(g: Graph, op: Operation) -> Value:
    return _random(g, op, _shape(g, op), numpy_dtype(op.attr("dtype")))


def _random(g: Graph, op: Operation, shape: Value, dtype: Any) -> Value:
    need("truncated" not in op.type, "ONNX has no truncated normal distribution")
    op.exporter.notes[f"{op.type}: ONNX draws different random numbers from Paddle's"] = None
    seed = float(op.attr("seed")) or None
    like = g.full(shape, 0, np.float32)
    if "gaussian" in op.type:
        mean, spread = float(op.attr("mean")), abs(float(op.attr("std")))
        if not spread:  # ONNX Runtime aborts the process where nothing is left to draw
            return g.full(shape, mean, dtype)
        return g.op("RandomNormalLike", like, mean=mean, scale=spread, seed=seed, shape=like.shape).cast(dtype)
    names = ("low", "high") if op.type == "randint" else ("min", "max")
    low, high = (float(op.attr(name)) for name in names)
    need(low <= high, f"its range goes from {low} to {high}")
    out = g.op("RandomUniformLike", like, low=low, high=high, seed=seed, shape=like.shape)
    return out.apply("Floor").cast(dtype) if op.type == "randint" else out.cast(dtype)


@renders("bernoulli")
def bernoulli(g: Graph, op: Operation) -> Value:
    x = op["X"]
    op.exporter.notes["bernoulli: ONNX draws different random numbers from Paddle's"] = None
    return (g.op("RandomUniformLike", x.cast(np.float32), low=0.0, high=1.0, shape=x.shape) < x.cast(np.float32)).cast(
        x.dtype
    )
