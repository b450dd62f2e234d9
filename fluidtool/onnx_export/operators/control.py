"""Loops, branches and arrays of tensors: Loop, If, Scan and sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Block
from fluidtool.ir.dataflow import operator_effects
from fluidtool.onnx_export.graph import BOOL, INT64, Graph, Shape, Value
from fluidtool.onnx_export.items import Items
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import need, renders
from fluidtool.tensor import numpy_dtype

ATTEMPTS = 4
State = Value | Items


# ---------------------------------------------------------------- arrays
def sequence_of(g: Graph, items: Items, dtype: Any) -> Value:
    """An array as an ONNX sequence."""
    if items.sequence is not None:
        return items.sequence.within(g)
    return constructed(g, items.known or (), dtype)


def levels_of(g: Graph, items: Items) -> list[Value]:
    """For each level of the items' sequences, an ONNX sequence of the lengths."""
    if items.known is None:
        return [level.within(g) for level in items.levels]
    need(len({len(item.levels) for item in items.known}) <= 1, "an array of items with different levels of sequences")
    return [constructed(g, [item.levels[k] for item in items.known], INT64) for k in range(items.depth)]


def constructed(g: Graph, items: Sequence[Value], dtype: Any) -> Value:
    """An ONNX sequence of these values."""
    kind = np.dtype(dtype)
    if items:
        (found,) = g.node("SequenceConstruct", [item.within(g) for item in items], [items[0].dtype])
    else:
        (found,) = g.node("SequenceEmpty", [], [kind], dtype=kind)
    return found.as_sequence()


def _same(g: Graph, sequence: Value) -> Value:
    """The sequence, as an output of a graph."""
    need(g.opset >= 14, "passing sequences to the next step needs opset 14 or later")
    (found,) = g.node("Identity", [sequence.within(g)], [sequence.dtype])
    return found.as_sequence()


def _dtype_of(op: Operation, name: str) -> Any:
    var = op.op.block.find_var_recursive(name)
    meta = op.metas.get(name)
    found = meta.dtype if meta is not None else var.dtype if var is not None else None
    need(found is not None, f"the data type of {name} is not declared")
    return numpy_dtype(int(found or 0))


def _place(index: Value) -> int | None:
    return int(index.array.reshape(-1)[0]) if index.array is not None else None


@renders("write_to_array")
def write_to_array(g: Graph, op: Operation) -> dict[str, Any]:
    name, x, index = op.op.output("Out")[0], op["X"], op["I"]
    held = op.values.get(name)
    items = held if isinstance(held, Items) else Items()
    place = _place(index)
    if items.known is not None and place is not None:
        need(place <= len(items.known), "an array with gaps")
        return {"Out": Items((*items.known[:place], x, *items.known[place + 1 :]))}
    at = index.cast(INT64).scalar()
    levels = levels_of(g, items)
    if items.known == ():
        levels = [constructed(g, (), INT64) for _ in x.levels]
    need(len(levels) == len(x.levels), "an array of items with different levels of sequences")
    written = [_written(g, held, at, level) for held, level in zip(levels, x.levels, strict=True)]
    return {"Out": Items(None, _written(g, sequence_of(g, items, x.dtype), at, x), tuple(written))}


def _written(g: Graph, sequence: Value, at: Value, x: Value) -> Value:
    """An ONNX sequence with x at a place: in place of the item there, or behind the last one."""
    length = g.op("SequenceLength", sequence, dtype=np.int64, shape=())
    replaced, kept = g.inner(), g.inner()
    (shorter,) = replaced.node("SequenceErase", [sequence.within(replaced), at.within(replaced)], [x.dtype])
    replaced.outputs = [shorter.as_sequence()]
    kept.outputs = [_same(kept, sequence)]
    (room,) = g.node("If", [at < length], [x.dtype], then_branch=replaced, else_branch=kept)
    (out,) = g.node("SequenceInsert", [room.as_sequence(), x, at], [x.dtype])
    return out.as_sequence()


@renders("read_from_array")
def read_from_array(g: Graph, op: Operation) -> Value:
    name, index = op.names("X")[0], op["I"]
    items = op.exporter.find(g, name)
    need(isinstance(items, Items), f"{name} is not an array of tensors")
    assert isinstance(items, Items)
    place = _place(index)
    if items.known is not None and place is not None:
        need(place < len(items.known), f"the array {name} has no item {place}")
        item = items.known[place].within(g)
        op.tell("Out", item.levels)
        return item
    dtype = _dtype_of(op, name)
    meta = op.metas.get(name)
    shape = None if meta is None or not meta.shape else (-1, *meta.shape[1:])
    at = index.cast(INT64).scalar()
    op.tell("Out", [g.op("SequenceAt", held, at, shape=(-1,)) for held in levels_of(g, items)])
    return g.op("SequenceAt", sequence_of(g, items, dtype), at, dtype=dtype, shape=shape)


@renders("lod_tensor_to_array")
def lod_tensor_to_array(g: Graph, op: Operation) -> Any:
    """One sequence: its rows."""
    x = op.single()["X"]
    (rows,) = g.node("SplitToSequence", [x, g.constant(1, np.int64)], [x.dtype], axis=0, keepdims=1)
    return Items(None, rows.as_sequence())


@renders("array_to_lod_tensor")
def array_to_lod_tensor(g: Graph, op: Operation) -> Value:
    op.single()
    name = op.names("X")[0]
    items = op.exporter.find(g, name)
    need(isinstance(items, Items), f"{name} is not an array of tensors")
    assert isinstance(items, Items)
    dtype, meta = _dtype_of(op, name), op.metas.get(name)
    shape = None if meta is None or not meta.shape else (-1, *meta.shape[1:])
    return g.op("ConcatFromSequence", sequence_of(g, items, dtype), axis=0, dtype=dtype, shape=shape)


# ---------------------------------------------------------------- branches
@renders("conditional_block", "conditional_block_infer")
def conditional_block(g: Graph, op: Operation) -> dict[str, list[Any]]:
    need(op.attr("is_scalar_condition"), "a condition on whether inputs are empty")
    condition = op.all("Cond")[0].cast(BOOL).scalar()
    block = op.op.block.program.block(op.attr("sub_block"))
    names = op.op.output("Out")
    if condition.array is not None:
        if not bool(condition.array):
            return {"Out": [None for _ in names]}
        found = op.exporter.nested(g, block, names, {})
        for name, value in found.items():
            op.exporter.tell(name, value.levels if isinstance(value, Value) else ())
        return {"Out": [found.get(name) for name in names]}
    inner = g.inner()
    written = op.exporter.nested(inner, block, names, {})
    kept = [name for name in names if name in written]
    other = g.inner()
    results, others = [], []
    for name in kept:
        value = written[name]
        need(isinstance(value, Value), f"{name} is an array of tensors")
        assert isinstance(value, Value)
        need(not value.levels, f"{name} has several sequences")
        before = op.values.get(name)
        results.append(inner.same("Identity", value))
        others.append(
            other.same("Identity", before.within(other) if isinstance(before, Value) else _nothing(other, value))
        )
    inner.outputs, other.outputs = [v.loose() for v in results], [v.loose() for v in others]
    if not kept:
        return {}
    outputs = g.node("If", [condition], [value.dtype for value in results], then_branch=inner, else_branch=other)
    by_name = {name: out.shaped(value.shape) for name, out, value in zip(kept, outputs, results, strict=True)}
    return {"Out": [by_name.get(name) for name in names]}


def _nothing(g: Graph, like: Value) -> Value:
    """Stands for a value that no operator makes when the block does not run."""
    return g.constant(np.zeros([0] * len(like.shape or ()), like.dtype))


@renders("select_input")
def select_input(g: Graph, op: Operation) -> Value:
    mask = op["Mask"].cast(INT64).scalar()
    return _selected(g, op.all("X"), mask, 0)


def _selected(g: Graph, choices: Sequence[Value], mask: Value, number: int) -> Value:
    """The choice that the mask numbers, of those from `number` on."""
    here, *others = [choice.within(g) for choice in choices]
    if not others:
        return here
    first, rest = g.inner(), g.inner()
    first.outputs = [first.same("Identity", here.within(first)).loose()]
    rest.outputs = [rest.same("Identity", _selected(rest, others, mask.within(rest), number + 1)).loose()]
    shape: Shape | None = here.shape
    for other in others:
        shape = _merged(shape, other.shape)
    chosen = mask.equals(number)
    return g.op("If", chosen, dtype=here.dtype, then_branch=first, else_branch=rest, shape=shape)


@renders("split_lod_tensor")
def split_lod_tensor(g: Graph, op: Operation) -> dict[str, Value]:
    need(not op.lod_level("X"), "sequences that a mask splits")
    x, chosen = op["X"], op["Mask"].cast(BOOL).flat()
    shape = (-1, *(x.shape or ())[1:])
    return {
        slot: g.op("Compress", x, mask, axis=0, shape=shape)
        for slot, mask in (("OutTrue", chosen), ("OutFalse", ~chosen))
    }


@renders("merge_lod_tensor", "merge_lod_tensor_infer")
def merge_lod_tensor(g: Graph, op: Operation) -> Value:
    """Rows of both branches in the order of the mask; rows that it does not ask for become zeros at the end."""
    need(not op.lod_level("X") and not op.lod_level("InTrue"), "sequences that a mask merges")
    chosen, (yes, no) = op["Mask"].cast(BOOL).flat(), (op["InTrue"], op["InFalse"])
    rows = g.concat([yes, no], 0)
    places = [_counted(g, mask) for mask in (chosen, ~chosen)]
    named = rows.gather(g.where(chosen, places[0], places[1] + yes.dim_value(0)), 0)
    left = rows.dim_value(0) - named.dim_value(0)
    return named.pad([0] * rows.rank, [left, *[0] * (rows.rank - 1)]).shaped((-1, *(rows.shape or ())[1:]))


def _counted(g: Graph, mask: Value) -> Value:
    """For each place the number of the earlier ones where the mask holds."""
    return g.same("CumSum", mask.cast(INT64), g.constant(0, INT64), exclusive=1)


def _merged(a: Shape | None, b: Shape | None) -> Shape | None:
    """What two shapes have in common; None where their ranks differ."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else -1 for x, y in zip(a, b, strict=True))


# ---------------------------------------------------------------- loops
@renders("while")
def while_loop(g: Graph, op: Operation) -> None:
    """A Loop over all that its block writes. A state is a value, or the ONNX sequence of an array, and after it the lengths of
    its sequences, level by level.
    """
    block = op.op.block.program.block(op.attr("sub_block"))
    condition = op.names("Condition")[0]
    before = _states_before(op, block, condition)
    dtypes = {name: _state_dtype(op, name, value) for name, value in before.items()}
    starts = {name: _flat(g, value, dtypes[name]) for name, value in before.items()}
    names = [condition, *(name for name in before if name != condition)]
    shapes: dict[str, Shape | None] = {name: starts[name][0].shape for name in names}
    for _ in range(ATTEMPTS):
        body, outs = _loop_body(g, op, block, names, before, starts, shapes, condition)
        grown = [name for name in names if len(outs[name]) > len(starts[name]) and before[name] == Items()]
        for name in grown:
            starts[name] += [constructed(g, (), INT64) for _ in outs[name][1:]]
        found = {name: _merged(shapes[name], outs[name][0].shape) for name in names}
        if found == shapes and not grown:
            break
        shapes = found
    for name in names:
        need(len(outs[name]) == len(starts[name]), f"{name} has other levels of sequences after a step than before")
    flat = [value for name in names for value in starts[name]]
    given = [None, starts[condition][0].cast(BOOL).scalar(), *flat]
    results = iter(g.node("Loop", given, [value.dtype for value in flat], body=body))
    for name in names:
        held, *levels = (next(results) for _ in starts[name])
        op.exporter.assign(g, op.op.block, name, _state(held, levels, before[name], shapes[name]))


def _states_before(op: Operation, block: Block, condition: str) -> dict[str, State]:
    """What the names that a loop writes have before it; those that have nothing do not matter after it."""
    effects = operator_effects(op.op.block.program, op.op)
    before: dict[str, State] = {}
    for name in sorted((effects.writes & _outer_writes(block)) | {condition}):
        held = op.values.get(name)
        if held is None and name in op.exporter.parameters and op.op.block.find_var_recursive(name) is not None:
            held = op.exporter.find(op.graph, name)
        if held is None and _is_array(op, name):
            held = Items()
        if held is not None:
            before[name] = held
    return before


def _flat(g: Graph, state: State, dtype: Any) -> list[Value]:
    """The values of a state."""
    if isinstance(state, Items):
        return [sequence_of(g, state, dtype), *levels_of(g, state)]
    return [state, *state.levels]


def _state(held: Value, levels: Sequence[Value], like: State, shape: Shape | None) -> State:
    """The state that values stand for."""
    if isinstance(like, Items):
        return Items(None, held.as_sequence(), tuple(level.as_sequence() for level in levels))
    return held.shaped(shape).leveled([level.shaped((-1,)) for level in levels])


def _outer_writes(block: Block) -> frozenset[str]:
    names = {name for op in block.ops for name in operator_effects(block.program, op).writes}
    return frozenset(name for name in names if name not in block.vars)


def _is_array(op: Operation, name: str) -> bool:
    from fluidtool.proto.enums import VarType

    var = op.op.block.find_var_recursive(name)
    return var is not None and var.type == VarType.LOD_TENSOR_ARRAY


def _state_dtype(op: Operation, name: str, value: State) -> Any:
    return value.dtype if isinstance(value, Value) else _dtype_of(op, name)


def _loop_body(
    g: Graph,
    op: Operation,
    block: Block,
    names: Sequence[str],
    before: Mapping[str, State],
    starts: Mapping[str, Sequence[Value]],
    shapes: Mapping[str, Shape | None],
    condition: str,
) -> tuple[Graph, dict[str, list[Value]]]:
    body = g.inner()
    body.input(body.name(f"{g.prefix}.number"), np.int64, ())
    body.input(body.name(f"{g.prefix}.goes_on"), BOOL, ())
    given: dict[str, State] = {}
    for name in names:
        inputs: list[Value] = []
        for start in starts[name]:
            shape = (-1,) if inputs else shapes[name]
            value = body.input(body.name(f"{name[:64]}.before"), start.dtype, shape)
            if start.sequence:
                body.inputs[-1] = value.as_sequence()
            inputs.append(body.inputs[-1])
        given[name] = _state(inputs[0], inputs[1:], before[name], shapes[name])
    found = op.exporter.nested(body, block, names, given)
    outs: dict[str, list[Value]] = {}
    for name in names:
        state = found.get(name, given[name])
        dtype = starts[name][0].dtype
        outs[name] = [_kept(body, value, dtype, k) for k, value in enumerate(_flat(body, state, dtype))]
    go_on = outs[condition][0].cast(BOOL).scalar()
    body.outputs = [body.same("Identity", go_on), *(value.loose() for name in names for value in outs[name])]
    return body, outs


def _kept(body: Graph, value: Value, dtype: Any, number: int) -> Value:
    """A value of a state as an output of the body."""
    if value.sequence:
        return _same(body, value)
    return body.same("Identity", value.within(body).cast(INT64 if number else dtype))


@renders("recurrent")
def recurrent(g: Graph, op: Operation) -> dict[str, list[Value]]:
    """A Scan over the first dimension."""
    block = op.op.block.program.block(op.attr("sub_block"))
    rows, starts = op.all("inputs"), op.all("initial_states")
    earlier, states = list(op.attr("ex_states")), list(op.attr("states"))
    backward = int(bool(op.attr("reverse")))
    body = g.inner()
    given: dict[str, State] = {}
    for name, start in zip(earlier, starts, strict=True):
        given[name] = body.input(body.name(f"{name[:64]}.before"), start.dtype, start.shape)
    for name, row in zip(op.names("inputs"), rows, strict=True):
        given[name] = body.input(body.name(f"{name[:64]}.row"), row.dtype, None if row.shape is None else row.shape[1:])
    wanted = op.op.output("outputs")
    found = op.exporter.nested(body, block, [*states, *wanted], given)

    def kept(name: str) -> Value:
        value = found.get(name)
        need(isinstance(value, Value), f"{name} has no value after a step")
        assert isinstance(value, Value)
        return body.same("Identity", value.within(body))

    ends, outs = [kept(name) for name in states], [kept(name) for name in wanted]
    body.outputs = [*ends, *outs]
    results = g.node(
        "Scan", [*starts, *rows], [value.dtype for value in body.outputs], body=body, num_scan_inputs=len(rows),
        scan_input_directions=[backward] * len(rows), scan_output_directions=[backward] * len(outs),
    )  # fmt: skip
    steps = rows[0].shape[0] if rows[0].shape else -1
    return {
        "outputs": [
            value.shaped(None if out.shape is None else (steps, *out.shape))
            for value, out in zip(results[len(ends) :], outs, strict=True)
        ]
    }
