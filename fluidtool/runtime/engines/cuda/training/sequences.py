"""Sequences in training steps: what depends on a LoD is part of the graph, which holds for that LoD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.sequences import of_sequences
from fluidtool.runtime.engines.cuda.sources import EXPRESSIONS, THREADS, Index, Source, threads_for
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, as_in_inference, imports_step
from fluidtool.runtime.engines.cuda.training.unrolling import READING_LODS
from fluidtool.runtime.graph.importers.registry import IMPORTERS, need
from fluidtool.runtime.graph.importers.sequences import offsets_of, owners
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]
AS_IN_INFERENCE = ("sequence_softmax", "sequence_reverse", "sequence_expand", "sequence_expand_as", "sequence_concat")
OWN_LODS = frozenset({"sequence_pool", "sequence_expand", "sequence_expand_as", "sequence_concat"})
"""Operators whose importers say which LoD results have."""


as_in_inference(*AS_IN_INFERENCE)


def taken(b: StepBuilder, value: Value, rows: Any, divisors: Any = None) -> Value:
    """Rows by number, zeros for -1 if they are floats; each divided by a number, where there are some."""
    rows = np.asarray(rows, np.int64)
    need(not value.integer or rows.min() >= 0, "whole numbers for which others stand")
    return b.rearranged("taken", value, (len(rows), *value.shape[1:]), rows=rows, divisors=divisors)


def sums_of_rows(b: StepBuilder, value: Value, targets: Any, count: int) -> Value:
    """Rows added up, in their order, by the number of the row that each belongs to; those with a number below 0 are left out."""
    targets = np.asarray(targets, np.int64)
    order = np.argsort(targets, kind="stable")
    starts = np.searchsorted(targets[order], np.arange(count + 1))
    return b.node("sums_of_rows", [value], (count, *value.shape[1:]), order=order, starts=starts)


# ---------------------------------------------------------------- pooling
@imports_step("sequence_pool")
def _sequence_pool(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    IMPORTERS["sequence_pool"](b, op, dict(attrs))
    if b.wants(op, "MaxIndex"):
        b.peaks[op.outputs["MaxIndex"][0]] = b.get(op, "X"), b.values[op.outputs["Out"][0]]


@imports_step("sequence_pool_grad")
def _sequence_pool_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, grad, how = b.get(op, "X"), b.get(op, "Out@GRAD"), attrs["pooltype"]
    offsets = np.asarray(offsets_of(b, op, "X", x.shape[0]))
    need(grad.shape == (len(offsets) - 1, *x.shape[1:]), "a gradient that does not fit")
    owner, sizes = owners(tuple(offsets.tolist())), np.maximum(np.diff(offsets), 1)
    if how == "MAX":
        found = b.peaks.get(op.inputs["MaxIndex"][0]) if b.has(op, "MaxIndex") else None
        need(found is not None and found[0] is x, "the gradient of a pooling that is not in this step")
        assert found is not None
        attrs_of_node = {"owner": owner, "offsets": tuple(offsets.tolist())}
        b.put(op, "X@GRAD", b.node("sequence_peak_gradient", [x, found[1], grad], x.shape, **attrs_of_node))
    elif how in ("FIRST", "LAST"):
        filled = np.flatnonzero(np.diff(offsets))
        rows = np.full(x.shape[0], -1)
        rows[(offsets[:-1] if how == "FIRST" else offsets[1:] - 1)[filled]] = filled
        b.put(op, "X@GRAD", taken(b, grad, rows))
    else:
        divisors = {"SUM": None, "AVERAGE": sizes, "SQRT": np.sqrt(sizes)}[how]
        b.put(op, "X@GRAD", taken(b, grad, owner, None if divisors is None else divisors[owner]))


@lowers("sequence_peak_gradient")
def _sequence_peak_gradient(low: Lowering, node: Node) -> None:
    """The gradient of the first of the largest elements of each column of a sequence."""
    x, y, grad = (low.contiguous(value) for value in node.inputs)
    count, width = prod(node.output.shape), prod(node.output.shape[1:])
    out, src = low.new(node.output), Source(low)
    at = src.thread(count)
    row, column = src.whole(f"{at} / {width}"), src.whole(f"{at} % {width}")
    own, peaks, steep = (src.pointer(place.buffer, place.offset) for place in (x, y, grad))
    sequence = src.whole(f"(int){src.table(node.attrs['owner'])}[{row}]")
    begin = src.whole(f"(int){src.pointer(of_sequences(low, node.attrs['offsets']))}[{sequence}]")
    src.lines += [
        f"const float peak = {peaks}[{sequence} * {width} + {column}];",
        f"bool first = {own}[{at}] == peak;",
        f"for (int i = {begin}; i < {row} && first; i++) first = {own}[i * {width} + {column}] != peak;",
        f"out[{at}] = first ? {steep}[{sequence} * {width} + {column}] : 0.0f;",
    ]
    low.calls.append(src.launch(out, -(-count // THREADS), THREADS, "unpool"))


# ---------------------------------------------------------------- softmax
@imports_step("sequence_softmax_grad")
def _sequence_softmax_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    y, grad = b.get(op, "Out"), b.get(op, "Out@GRAD")
    need(prod(y.shape) == y.shape[0] == prod(grad.shape), "more than one element in a row")
    offsets = offsets_of(b, op, "X", y.shape[0])
    b.put(op, "X@GRAD", b.node("sequence_softmax_gradient", [y, grad], y.shape, offsets=offsets))


@lowers("sequence_softmax_gradient")
def _lower_sequence_softmax_gradient(low: Lowering, node: Node) -> None:
    (y, grad), offsets = (low.contiguous(value) for value in node.inputs), node.attrs["offsets"]
    out, src = low.new(node.output), Source(low)
    threads = threads_for(max(int(np.diff(offsets).max()), 1))
    src.row(threads)
    bounds = src.pointer(of_sequences(low, offsets))
    own, steep = (src.pointer(place.buffer, place.offset) for place in (y, grad))
    src.lines.append(f"const int begin = (int){bounds}[row], count = (int){bounds}[row + 1] - begin;")
    value = f"const float v = {own}[begin + i] * {steep}[begin + i];"
    src.reduced("total", "0.0f", value, "({a} + {b})", "count", threads)
    found = f"out[begin + i] = {own}[begin + i] * ({steep}[begin + i] - total);"
    src.lines.append(f"for (int i = me; i < count; i += {threads}) {found}")
    low.calls.append(src.launch(out, len(offsets) - 1, threads, "softmax"))


# ---------------------------------------------------------------- windows
@imports_step("sequence_conv")
def _sequence_conv(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    window, _ = _window(b, op, attrs)
    b.put(op, "Out", b.product(window, b.get(op, "Filter")))


@imports_step("sequence_conv_grad")
def _sequence_conv_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    window, sources = _window(b, op, attrs)
    x, grad = b.get(op, "X"), b.get(op, "Out@GRAD")
    if b.wants(op, "Filter@GRAD"):
        b.put(op, "Filter@GRAD", b.product(b.transposed(window, (1, 0)), grad))
    if b.wants(op, "X@GRAD"):
        steep = b.product(grad, b.get(op, "Filter"), swap_y=True)
        rows = b.view(steep, (len(sources), x.shape[1]))
        b.put(op, "X@GRAD", sums_of_rows(b, rows, sources, x.shape[0]))


def _window(b: StepBuilder, op: Operator, attrs: Attrs) -> tuple[Value, Any]:
    """The rows around every row side by side, and for each of them its number, or -1 outside of its sequence."""
    x, weights, times = b.get(op, "X"), b.get(op, "Filter"), int(attrs["contextLength"])
    need(not attrs["paddingTrainable"] and int(attrs["contextStride"]) == 1, "learned rows around sequences")
    need(times > 0 and len(x.shape) == len(weights.shape) == 2, "a filter that does not match the rows")
    need(weights.shape[0] == times * x.shape[1], "a filter that does not match the rows")
    offsets = np.asarray(offsets_of(b, op, "X", x.shape[0]))
    need(len(b.lods[op.inputs["X"][0]]) == 1, "a window over anything but sequences of one level")
    owner = owners(tuple(offsets.tolist()))
    rows = np.arange(x.shape[0])[:, None] + int(attrs["contextStart"]) + np.arange(times)
    inside = (offsets[owner, None] <= rows) & (rows < offsets[owner + 1, None])
    sources = np.where(inside, rows, -1).reshape(-1)
    return b.view(taken(b, x, sources), (x.shape[0], times * x.shape[1])), sources


# ---------------------------------------------------------------- rows that are repeated, or moved
@imports_step("sequence_expand_grad")
def _sequence_expand_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad, shape = b.get(op, "Out@GRAD"), b.shape_of(op, "X")
    own, lod, level = b.lods.get(op.inputs["X"][0], ()), b.lods.get(op.inputs["Y"][0], ()), int(attrs["ref_level"])
    need(len(own) <= 1 and lod and -1 <= level < len(lod), "sequences that do not match")
    bounds, repeats = np.asarray(own[0] if own else range(shape[0] + 1)), np.diff(lod[level])
    need(len(bounds) - 1 == len(repeats) and bounds[-1] == shape[0], "sequences that do not match")
    rows = [np.arange(bounds[each], bounds[each + 1]) for each in np.repeat(np.arange(len(repeats)), repeats)]
    targets = np.concatenate([np.zeros(0, np.int64), *rows])
    need(grad.shape == (len(targets), *shape[1:]), "a gradient that does not fit")
    b.put(op, "X@GRAD", sums_of_rows(b, grad, targets, shape[0]))


@imports_step("sequence_expand_as_grad")
def _sequence_expand_as_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad, shape, lod = b.get(op, "Out@GRAD"), b.shape_of(op, "X"), b.lods.get(op.inputs["Y"][0], ())
    need(len(lod) == 1 and len(lod[0]) - 1 == shape[0] and lod[0][-1] == grad.shape[0], "sequences that do not match")
    b.put(op, "X@GRAD", sums_of_rows(b, grad, owners(lod[0]), shape[0]))


@imports_step("sequence_concat_grad")
def _sequence_concat_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad, names = b.get(op, "Out@GRAD"), op.inputs["X"]
    lods = [b.lods.get(name, ()) for name in names]
    need(all(len(lod) == 1 for lod in lods) and len({len(lod[0]) for lod in lods}) == 1, "sequences that do not match")
    need(sum(lod[0][-1] for lod in lods) == grad.shape[0], "a gradient that does not fit")
    sizes = np.array([np.diff(lod[0]) for lod in lods])  # [part, sequence]
    ends = np.cumsum(sizes.T.reshape(-1)).reshape(sizes.T.shape)
    for number, name in enumerate(op.outputs["X@GRAD"]):
        if name and not name.startswith(EMPTY):
            pieces = [np.arange(end - size, end) for end, size in zip(ends[:, number], sizes[number], strict=True)]
            b.put(op, "X@GRAD", taken(b, grad, np.concatenate(pieces)), number)


# ---------------------------------------------------------------- kernels of rows
def _taken(src: Source, node: Node, index: Index) -> str:
    row = src.whole(f"(int){src.table(node.attrs['rows'])}[{index[0]}]")
    has_none = np.min(node.attrs["rows"]) < 0
    with src.guarded(*([f"{row} >= 0"] if has_none else [])):
        loaded = src.load(node.inputs[0], [row if node.inputs[0].shape[0] > 1 else "0", *index[1:]])
    divisors = node.attrs["divisors"]
    if divisors is not None:
        loaded = f"{loaded} / {src.table(np.asarray(divisors, np.float32))}[{index[0]}]"
    return f"({row} >= 0 ? {loaded} : 0.0f)" if has_none else f"({loaded})"


EXPRESSIONS["taken"] = _taken


@lowers("taken")
def _lower_taken(low: Lowering, node: Node) -> None:
    low.elementwise(low.new(node.output), node.output.shape, lambda src, index: src.result(node, index))


@lowers("sums_of_rows")
def _sums_of_rows(low: Lowering, node: Node) -> None:
    """A thread for each element of the result, which adds its rows in their order."""
    place = low.contiguous(node.inputs[0])
    count, width = prod(node.output.shape), prod(node.output.shape[1:])
    out, src = low.new(node.output), Source(low)
    at = src.thread(count)
    row, column = src.whole(f"{at} / {width}"), src.whole(f"{at} % {width}")
    starts, order = src.table(node.attrs["starts"]), src.table(node.attrs["order"])
    source = src.pointer(place.buffer, place.offset)
    src.lines += [
        "float total = 0.0f;",
        f"for (int i = (int){starts}[{row}]; i < (int){starts}[{row} + 1]; i++) "
        f"total += {source}[(int){order}[i] * {width} + {column}];",
        f"out[{at}] = total;",
    ]
    low.calls.append(src.launch(out, -(-count // THREADS), THREADS, "rows"))


def reads_lods(type: str) -> bool:
    """Whether an operator of a type computes something else for another LoD of its inputs."""
    return type.removesuffix("_grad") in COMPUTING_BY_LOD or type in READING_LODS


COMPUTING_BY_LOD: Sequence[str] = (
    "fill_constant_batch_size_like",
    "sequence_pool",
    "sequence_conv",
    *AS_IN_INFERENCE,
    "lstm",
    "lstmp",
    "gru",
    "linear_chain_crf",
    "crf_decoding",
    "warpctc",
)
