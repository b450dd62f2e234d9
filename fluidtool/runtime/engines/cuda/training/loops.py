"""Loops in training steps: their blocks are imported once for each of their steps, which is how they become part of the graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fluidtool.ir import Block, Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.ops.gradient import grad_name
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime.engines.cuda.training.arrays import sum_of_arrays
from fluidtool.runtime.engines.cuda.training.building import Item, Items, Meanings, Rows, StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.operators import import_operator
from fluidtool.runtime.engines.cuda.training.sums_of_steps import Products
from fluidtool.runtime.graph.importers.refusals import every_attribute
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Value

Attrs = Mapping[str, Any]
MOST = (
    1 << 13
)  # operators of loops in a step: each is at least one call of the graph, and is written, compiled and captured


def block_of(op: Operator) -> Block:
    """The block of a loop."""
    return op.block.program.block(op.attr("sub_block"))


def fresh(block: Block) -> set[str]:
    """The variables that each step of a block begins without."""
    return {var.name for var in block.vars.values() if not var.persistable}


def run(b: StepBuilder, ops: Sequence[Operator]) -> None:
    """Import the operators of a step of a loop."""
    b.unrolled += len(ops)
    need(b.unrolled <= MOST, f"its loops have more than {MOST} operators in all of their steps")
    for op in ops:
        import_operator(b, op, every_attribute(op, get_op(op.type)))


def kept_steps(b: StepBuilder, op: Operator, slot: str) -> Sequence[Meanings]:
    """What the steps of the forward loop have left."""
    (name,) = op.inputs[slot]
    need(name in b.loops, "the gradient of a loop that is not in this step")
    return b.loops[name]


# ---------------------------------------------------------------- static RNNs
def steps_of(b: StepBuilder, op: Operator) -> int:
    """The number of steps: the first dimension of every input."""
    counts = {b.item(name).value.shape[:1] for name in op.inputs["inputs"]}
    need(len(counts) == 1 and counts != {()}, "inputs of another number of steps")
    return int(counts.pop()[0])


def row_of(b: StepBuilder, value: Value, step: int) -> Value:
    """What a value has for a step."""
    need(len(value.shape) > 1, "single numbers of a step")
    return b.view(b.part(value, step, 1), value.shape[1:])


def stacked(b: StepBuilder, values: Sequence[Value]) -> Value:
    """Values of the steps along a new axis."""
    return b.joined([b.view(value, (1, *value.shape)) for value in values])


@imports_step("recurrent")
def _recurrent(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    block, count, states = block_of(op), steps_of(b, op), attrs["states"] if attrs["has_states"] else []
    before_states, outputs, inputs = attrs["ex_states"], op.outputs["outputs"], op.inputs["inputs"]
    need(len(states) == len(op.inputs.get("initial_states", [])), "states without initial ones")
    own = fresh(block).union(inputs, before_states, outputs)
    around = b.meanings(own)
    wholes = {name: b.item(name).value for name in inputs}
    handed_on = [b.item(name) for name in op.inputs.get("initial_states", [])] if states else []
    kept: list[Meanings] = []
    for step in reversed(range(count)) if attrs["reverse"] else range(count):
        b.forget(own)
        for name, whole in wholes.items():
            b.let(name, Item(row_of(b, whole, step)))
        for name, item in zip(before_states, handed_on, strict=False):
            b.let(name, item)
        run(b, block.ops)
        handed_on = [b.item(name) for name in states]
        kept.append(b.meanings(own))
    b.forget(own)
    b.recall(around)
    for name in outputs:
        values = [step["values"][name] for step in kept if name in step["values"]]
        need(len(values) == count, f"{name} has no value in its step")
        b.let(name, Item(stacked(b, values[::-1] if attrs["reverse"] else values)))
    for name in op.outputs.get("step_scopes", []):
        b.loops[name] = kept


@imports_step("recurrent_grad")
def _recurrent_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """The steps from the last one that ran to the first. A gradient by the state before a step is one of the step before."""
    block, count, kept = block_of(op), steps_of(b, op), kept_steps(b, op, "step_scopes")
    need(attrs["is_train"] and len(kept) == count, "the gradient of another number of steps")
    states = attrs["states"] if attrs["has_states"] else []
    inputs, parameters, before_states = op.inputs["inputs"], op.inputs.get("parameters", []), attrs["ex_states"]
    arriving = {name: b.values[name] for name in op.inputs.get("outputs@GRAD", []) if name in b.values}
    wanted = [grad_name(name) for name in (*inputs, *parameters, *before_states)]
    own = fresh(block).union(*(by for step in kept for by in step.values()), arriving, map(grad_name, states), wanted)
    around = b.meanings(own)
    products = Products(b, block, kept, set(map(grad_name, parameters)))
    each: list[dict[str, Item]] = []
    rows: dict[str, list[Rows]] = defaultdict(list)
    for number, step in enumerate(reversed(kept)):
        b.forget(own)
        b.recall(step)
        row = number if attrs["reverse"] else count - 1 - number
        for name, whole in arriving.items():
            b.let(name, Item(row_of(b, whole, row)))
        for name, before in zip(states, before_states, strict=False):
            passed = each[-1].get(grad_name(before)) if each else None
            if passed is not None:
                hand_on(b, grad_name(name), passed)
        run(b, products.others)
        products.note(b)
        each.append({name: b.item(name) for name in wanted if name in b.values})
        note_rows(b, wanted, rows)
    b.forget(own)
    b.recall(around)
    put_rows(b, op, each if attrs["reverse"] else each[::-1])
    for name, out in zip(before_states, op.outputs.get("initial_states@GRAD", []), strict=False):
        if out not in ("", EMPTY) and grad_name(name) in each[-1]:
            b.let(out, each[-1][grad_name(name)])
    for name, out in zip(parameters, op.outputs.get("parameters@GRAD", []), strict=False):
        if grad_name(name) in rows:
            b.rows[out] = b.sum_rows(rows[grad_name(name)])
        elif out not in ("", EMPTY):
            found = [step[grad_name(name)] for step in each if grad_name(name) in step]
            b.let(out, products.total(b, grad_name(name)) or b.total(found) or zeros_like(b, b.item(name)))


def hand_on(b: StepBuilder, name: str, item: Item) -> None:
    """Add a gradient to the one that arrives from outside, if there is one."""
    there = b.values.get(name)
    b.let(name, item if there is None else Item(b.added_up([there, item.value]), item.origin))


def put_rows(b: StepBuilder, op: Operator, each: Sequence[Mapping[str, Item]]) -> None:
    """The gradients by the inputs, with zeros for steps without one."""
    for name, out in zip(op.inputs["inputs"], op.outputs.get("inputs@GRAD", []), strict=False):
        found = [step.get(grad_name(name)) for step in each]
        like = next((item for item in found if item is not None), None)
        if like is not None and out not in ("", EMPTY):
            shape = like.value.shape
            b.let(out, Item(stacked(b, [b.zeros(shape) if item is None else item.value for item in found])))


def zeros_like(b: StepBuilder, item: Item) -> Item:
    """Zeros of the same shape."""
    return Item(b.zeros(item.value.shape), item.origin)


# ---------------------------------------------------------------- while
@imports_step("while")
def _while(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Each step keeps what its own variables hold at its end, and what tensors around held before it."""
    block, (condition,) = block_of(op), op.inputs["Condition"]
    own, changed = (
        fresh(block),
        {name for each in block.ops for name in set(each.input_arg_names) & set(each.output_arg_names)},
    )
    remembered = [name for name in op.inputs["X"] if name not in changed]
    around = b.meanings(own)
    kept: list[Meanings] = []
    while True:
        goes_on = b.known_number(condition)
        need(goes_on is not None, f"{condition} is only known when the program runs")
        if not goes_on:
            break
        b.forget(own)
        before = b.meanings(remembered, ("values", "origins", "conditions"))
        run(b, block.ops)
        after = b.meanings(own)
        kept.append({table: {**by, **before.get(table, {})} for table, by in after.items()})
    b.forget(own)
    b.recall(around)
    for name in op.outputs.get("StepScopes", []):
        b.loops[name] = kept


@imports_step("while_grad")
def _while_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """The steps from the last to the first. What they hand on replaces the gradient from outside, all others are sums."""
    block, kept = block_of(op), kept_steps(b, op, "StepScopes")
    need(not attrs["is_test"] and kept, "a loop without steps")
    pairs = zip(op.inputs.get("Out@GRAD", []), attrs["original_output_grad"], strict=True)
    links = {inner: outer for outer, inner in pairs if outer not in ("", EMPTY)}
    for outer in links.values():
        fill_missing(b, op, outer)
    grads = zip(op.inputs["X"], op.outputs["X@GRAD"], strict=True)
    targets = {name: out for name, out in grads if out not in ("", EMPTY)}
    handed = {grad_name(name): out for name, out in targets.items() if out in links.values()}
    summed = {grad_name(name): name for name, out in targets.items() if out not in links.values()}
    own = fresh(block).union(*(by for step in kept for by in step.values()), links, map(grad_name, targets))
    products = Products(b, block, kept, set(summed))
    tensors: dict[str, list[Item]] = {name: [] for name in summed}
    arrays: dict[str, list[Items]] = {name: [] for name in summed}
    rows: dict[str, list[Rows]] = defaultdict(list)
    for step in reversed(kept):
        around, arriving = b.meanings(own), {inner: b.meanings([outer]) for inner, outer in links.items()}
        b.forget(own)
        b.recall(step)
        for inner, meanings in arriving.items():
            rename(b, meanings, inner)
        run(b, products.others)
        products.note(b)
        for name in summed:
            if name in b.values:
                tensors[name].append(b.item(name))
            elif name in b.arrays:
                arrays[name].append(b.arrays[name])
        note_rows(b, summed, rows)
        left = {out: b.meanings([inner]) for inner, out in handed.items()}
        b.forget(own)
        b.recall(around)
        for out, meanings in left.items():
            rename(b, meanings, out)
    for inner, name in summed.items():
        if inner in rows:
            b.rows[targets[name]] = b.sum_rows(rows[inner])
        else:
            put_total(b, targets[name], name, products.total(b, inner) or b.total(tensors[inner]), arrays[inner])


def note_rows(b: StepBuilder, names: Iterable[str], rows: Mapping[str, list[Rows]]) -> None:
    """Note the gradients of a step that are rows of tables."""
    for name in names:
        if name in b.rows:
            rows[name].append(b.rows[name])


def rename(b: StepBuilder, meanings: Meanings, name: str) -> None:
    """Let another name stand for what the only name of some meanings stood for, if that was anything."""
    if any(meanings.values()):
        b.forget([name])
        b.recall({table: dict.fromkeys([name], *by.values()) for table, by in meanings.items() if by})


def put_total(b: StepBuilder, out: str, name: str, tensor: Item | None, arrays: Sequence[Items]) -> None:
    """The gradient by what the loop has read: what the steps add up to, or zeros."""
    if tensor is not None:
        b.let(out, tensor)
    elif name in b.arrays:
        zeros = tuple(None if item is None else zeros_like(b, item) for item in b.arrays[name])
        b.arrays[out] = sum_of_arrays(b, arrays) if arrays else zeros
    elif name in b.values:
        b.let(out, zeros_like(b, b.item(name)))


def fill_missing(b: StepBuilder, op: Operator, name: str) -> None:
    """A gradient that was not computed is 0."""
    var = op.block.find_var_recursive(name)
    if name in b.values or name in b.arrays or var is None:
        return
    if var.type == VarType.LOD_TENSOR_ARRAY:
        b.arrays[name] = ()
    elif (forward := name.split("@GRAD", maxsplit=1)[0]) in b.values:
        b.let(name, zeros_like(b, b.item(forward)))
    elif var.has_shape and all(size > 0 for size in var.shape):
        b.let(name, Item(b.zeros(tuple(var.shape))))
