"""Arrays of tensors, rank tables and whole numbers in training steps: known when a step is built, they compute nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ops.context import OpContext
from fluidtool.ops.gradient import GRAD
from fluidtool.ops.sequence.picking import join_lods, offsets_of, take_sequences
from fluidtool.runtime.engines.cuda.training.building import Item, Items, StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.forward import add_tensors
from fluidtool.runtime.engines.cuda.training.sequences import taken
from fluidtool.runtime.graph.importers.registry import Lod, need
from fluidtool.runtime.graph.ir import Value
from fluidtool.tensor import LoDRankTable

Attrs = Mapping[str, Any]
HOST = cast("OpContext", SimpleNamespace(np=np))  # what arithmetic on LoDs asks of a context


def number_of(b: StepBuilder, op: Operator, slot: str) -> int:
    """A whole number that is known now."""
    (name,) = op.inputs[slot]
    found = b.known_number(name)
    need(found is not None, f"{name} is only known when the program runs")
    assert found is not None
    return found


def array_of(b: StepBuilder, op: Operator, slot: str = "X") -> Items:
    """An array of tensors."""
    (name,) = op.inputs[slot]
    need(name in b.arrays, f"the array {name} is made elsewhere")
    return b.arrays[name]


def with_item(items: Items, index: int, item: Item) -> Items:
    """An array with another tensor at an index; it grows as needed."""
    longer = [*items, *(None for _ in range(index + 1 - len(items)))]
    longer[index] = item
    return tuple(longer)


def as_lod(levels: Sequence[Sequence[int]]) -> Lod:
    """A LoD that does not change."""
    return tuple(tuple(int(offset) for offset in level) for level in levels)


def picked(b: StepBuilder, value: Value, rows: Any) -> Value:
    """Rows by number, in that order."""
    same = len(rows) == value.shape[0] and bool((np.asarray(rows) == np.arange(value.shape[0])).all())
    return value if same else taken(b, value, rows)


# ---------------------------------------------------------------- arrays
@imports_step("write_to_array")
def _write(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """A gradient that is not there is not written."""
    (name,), (out,), index = op.inputs["X"], op.outputs["Out"], number_of(b, op, "I")
    need(index >= 0, "an index below 0")
    if name in b.values or GRAD not in name:
        b.arrays[out] = with_item(b.arrays.get(out, ()), index, b.item(name))


@imports_step("read_from_array")
def _read(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """The gradient of a write reads zeros where nothing was written."""
    (name,), (out,), index = op.inputs["X"], op.outputs["Out"], number_of(b, op, "I")
    is_gradient = GRAD in name and b.has(op, "X_W")
    items = b.arrays.get(name, ()) if is_gradient else array_of(b, op)
    found = items[index] if 0 <= index < len(items) else None
    if found is None:
        need(is_gradient, f"item {index} of {name} was never written")
        like = b.item(op.inputs["X_W"][0])
        found = Item(b.zeros(like.value.shape), like.origin)
    b.let(out, found)


@imports_step("sum")
def _sum(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Arrays are added item by item."""
    names, (out,) = op.inputs["X"], op.outputs["Out"]
    if names[0] not in b.arrays:
        add_tensors(b, op, attrs)
        return
    need(all(name in b.arrays for name in names), "a sum of arrays and tensors")
    b.arrays[out] = sum_of_arrays(b, [b.arrays[name] for name in names])


def sum_of_arrays(b: StepBuilder, arrays: Sequence[Items]) -> Items:
    """The sums of the items at each place."""
    longest = max((len(items) for items in arrays), default=0)
    places = [[items[place] for items in arrays if place < len(items)] for place in range(longest)]
    return tuple(b.total([item for item in items if item is not None]) for items in places)


@imports_step("lod_array_length")
def _length(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    b.let_number(op.outputs["Out"][0], len(array_of(b, op)))


# ---------------------------------------------------------------- rank tables
@imports_step("lod_rank_table")
def _rank_table(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    lod, level = b.lod(op.inputs["X"][0]), int(attrs["level"])
    need(0 <= level < len(lod) and len(lod[level]) > 1, "X has no sequences")
    b.tables[op.outputs["Out"][0]] = LoDRankTable.from_lod(lod, level)


def table_of(b: StepBuilder, op: Operator) -> LoDRankTable:
    """The rank table that an operator reads."""
    (name,) = op.inputs["RankTable"]
    need(name in b.tables, f"the rank table {name} is made elsewhere")
    return b.tables[name]


@imports_step("max_sequence_len")
def _longest(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    b.let_number(op.outputs["Out"][0], table_of(b, op).ranked[0][1])


@imports_step("reorder_lod_tensor_by_rank", "reorder_lod_tensor_by_rank_grad")
def _reorder(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    (name,), items = op.inputs["X"], table_of(b, op).ranked
    order = [index for index, _ in items]
    if op.type.endswith("_grad"):
        order = sorted(range(len(items)), key=lambda rank: items[rank][0])
    x, lod = b.item(name).value, b.lod(name)
    need(max(order) < (len(lod[0]) - 1 if lod else x.shape[0]), "sequences that do not match")
    need(not lod or lod[-1][-1] == x.shape[0], "sequences that do not match")
    levels, rows = take_sequences(HOST, lod, order)
    b.let(op.outputs["Out"][0], Item(picked(b, x, rows), as_lod(levels)))


@imports_step("lod_tensor_to_array")
def _to_array(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Rows in the order of the steps; each step is some of them."""
    (name,), table = op.inputs["X"], table_of(b, op)
    x, lod = b.item(name).value, b.lod(name)
    need(table.level < len(lod) and lod[-1][-1] == x.shape[0], "X has no sequences")
    offsets = lod[table.level]
    need(max(index for index, _ in table.ranked) < len(offsets) - 1, "sequences that do not match")
    starts = np.asarray([offsets[index] for index, _ in table.ranked])
    lengths = np.asarray([length for _, length in table.ranked])
    deeper = lod[table.level + 1 :]
    steps = [take_sequences(HOST, deeper, starts[lengths > step] + step) for step in range(table.ranked[0][1])]
    rows = np.concatenate([rows for _, rows in steps])
    need(rows.max() < x.shape[0] and all(len(own) for _, own in steps), "sequences that do not match")
    whole, begin, items = picked(b, x, rows), 0, []
    for levels, own in steps:
        items.append(Item(b.part(whole, begin, len(own)), as_lod(levels)))
        begin += len(own)
    b.arrays[op.outputs["Out"][0]] = tuple(items)


@imports_step("array_to_lod_tensor")
def _to_tensor(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    found, table = array_of(b, op), table_of(b, op)
    items = [item for item in found if item is not None]
    need(len(items) == len(found) >= table.ranked[0][1] and items, "steps that were never written")
    lods = [b.lod_from(item.origin) for item in items]
    need(len({len(lod) for lod in lods}) == 1, "steps that do not match")
    counts = [len(lod[0]) - 1 if lod else item.value.shape[0] for lod, item in zip(lods, items, strict=True)]
    bases = np.asarray(offsets_of(counts))
    ranks = sorted(range(len(table.ranked)), key=lambda rank: table.ranked[rank][0])
    lengths = [table.ranked[rank][1] for rank in ranks]
    running = (np.asarray(lengths)[:, None] > np.arange(len(items))).sum(axis=0)
    need(all(need_ <= count for need_, count in zip(running.tolist(), counts, strict=True)), "steps that do not match")
    picks = np.concatenate([bases[:length] + rank for rank, length in zip(ranks, lengths, strict=True)])
    deeper, rows = take_sequences(HOST, join_lods(lods), picks)
    whole = b.joined([item.value for item in items])
    lod = as_lod([*table.coarse_lod, offsets_of(lengths), *deeper])
    b.let(op.outputs["Out"][0], Item(picked(b, whole, rows), lod))


@imports_step("shrink_rnn_memory")
def _shrink(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    (name,), step = op.inputs["X"], number_of(b, op, "I")
    x, lod, levels = b.item(name).value, b.lod(name), []
    rows = sum(length > step for _, length in table_of(b, op).ranked)
    need(0 < rows <= (len(lod[0]) - 1 if lod else x.shape[0]), "sequences that do not match")
    for level in lod:
        levels.append(level[: rows + 1])
        rows = level[rows]
    need(0 < rows <= x.shape[0], "steps without rows")
    b.let(op.outputs["Out"][0], Item(b.part(x, 0, rows), as_lod(levels)))


@imports_step("shrink_rnn_memory_grad")
def _shrink_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Zeros below the rows that there are."""
    (name,), grads = op.inputs["X"], op.inputs.get("Out@GRAD", [])
    x = b.item(name)
    count, found = x.value.shape[0], b.zeros(x.value.shape)
    if grads and grads[0] in b.values:
        grad = b.values[grads[0]]
        need(grad.shape[1:] == x.value.shape[1:] and grad.shape[0] <= count, "a gradient that does not fit")
        rows = np.arange(count)
        found = picked(b, grad, np.where(rows < grad.shape[0], rows, -1))
    b.let(op.outputs["X@GRAD"][0], Item(found, x.origin))


# ---------------------------------------------------------------- memories of static RNNs
@imports_step("rnn_memory_helper")
def _memory(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    b.let(op.outputs["Out"][0], b.item(op.inputs["X"][0]))


@imports_step("rnn_memory_helper_grad")
def _memory_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Zeros where there is no gradient."""
    x, grads = b.item(op.inputs["X"][0]), op.inputs.get("Out@GRAD", [])
    found = b.values.get(grads[0]) if grads else None
    b.let(op.outputs["X@GRAD"][0], Item(b.zeros(x.value.shape) if found is None else found, x.origin))
