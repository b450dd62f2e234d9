"""Gradients of some rows of tables, between lookups and updates: sums, clips, factors, and their squares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fluidtool.ir import Block, Operator
from fluidtool.runtime.engines.cuda.training.building import STEP_IMPORTERS, Rows, StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.forward import PLACES, literal
from fluidtool.runtime.engines.cuda.training.updates import BY_ROWS
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Value

Attrs = Mapping[str, Any]
Change = Callable[[StepBuilder, Operator, Attrs, Rows], Rows]
LOOKUPS = ("lookup_table_grad", "lookup_table_v2_grad")
CHANGES = frozenset({"clip", "clip_by_norm", "merge_selected_rows", "elementwise_mul", "scale"})
"""Operators that make rows of rows."""
VALUES = "get_tensor_from_selected_rows"
TAKING_ROWS = frozenset({"sum", VALUES, *CHANGES, *BY_ROWS})
"""Operators that read a gradient of rows as such."""


# ---------------------------------------------------------------- which
def stay_within(op: Operator, name: str) -> bool:
    """Whether rows are made by lookups, sums and changes of them, and read by what takes them."""
    makers = [each for each in op.block.ops if name in each.output_arg_names]
    readers = [each for each in op.block.ops if name in each.input_arg_names]
    if len(makers) != 1 or not all(_takes(each, name) for each in readers):
        return False
    (maker,) = makers
    if maker.type == "sum" or maker.type in CHANGES:
        return all(each != name and stay_within(op, each) for each in maker.inputs["X"])
    return maker.type in LOOKUPS and bool(maker.attr("is_sparse"))


def _takes(op: Operator, name: str) -> bool:
    """Whether an operator takes these rows: the factor of a product is a number, and of values only the squares are summed."""
    if op.type == "elementwise_mul":
        return name not in op.inputs["Y"]
    if op.type != VALUES:
        return op.type in TAKING_ROWS
    return all(_is_squared(each, op.outputs["Out"][0]) for each in _readers(op.block, op.outputs["Out"][0]))


def _is_squared(op: Operator, name: str) -> bool:
    if op.type != "square":
        return op.type == "squared_l2_norm"
    sums = _readers(op.block, op.outputs["Out"][0])
    return all(each.type == "reduce_sum" and each.has_attr("reduce_all") and each.attr("reduce_all") for each in sums)


def _readers(block: Block, name: str) -> list[Operator]:
    return [op for op in block.ops if name in op.input_arg_names]


# ---------------------------------------------------------------- importing
def merged(b: StepBuilder, rows: Rows) -> Rows:
    """Rows added up: the sum of an id stands where the id stands first, and zeros elsewhere."""
    total, width = sum(each.shape[0] for each in rows.grads), rows.grads[0].shape[1]
    need(total < 1 << PLACES, "more ids than keys can tell")
    found = b.node("merged_rows", [*rows.ids, *rows.grads], (total, width))
    if len(rows.ids) == 1:
        return Rows(rows.ids, (found,))
    parts, start = [], 0
    for each in rows.grads:
        parts.append(b.node("slice", [found], each.shape, starts=[start, 0], sizes=each.shape))
        start += each.shape[0]
    return Rows(rows.ids, tuple(parts))


def each_part(b: StepBuilder, rows: Rows, text: str, *others: Value) -> Rows:
    """A formula of every element, and of single numbers."""
    return Rows(rows.ids, tuple(b.formula(text, grad, *others) for grad in rows.grads))


def _values(b: StepBuilder, rows: Rows) -> Value:
    shape = (sum(each.shape[0] for each in rows.grads), rows.grads[0].shape[1])
    return rows.grads[0] if len(rows.grads) == 1 else b.node("concat", rows.grads, shape, axis=0)


def _clipped(b: StepBuilder, op: Operator, attrs: Attrs, rows: Rows) -> Rows:
    need(not op.inputs.get("Min") and not op.inputs.get("Max"), "computed bounds")
    low, high = float(attrs["min"]), float(attrs["max"])
    need(low <= 0 <= high, "bounds that leave out 0, for rows")
    return each_part(b, merged(b, rows), f"ft_clip(a, {literal(low)}, {literal(high)})")


def _shortened(b: StepBuilder, op: Operator, attrs: Attrs, rows: Rows) -> Rows:
    found = merged(b, rows)
    return each_part(b, found, f"a * {_share(attrs)}", squares(b, _values(b, found)))


def _share(attrs: Attrs) -> str:
    """The factor of what is longer than a norm, from the sum of squares `b`."""
    need(attrs["max_norm"] > 0, "a norm that is not above 0")
    longest = literal(attrs["max_norm"])
    return f"({longest} / ft_larger(sqrtf(b), {longest}))"


def squares(b: StepBuilder, value: Value) -> Value:
    """The sum of squares, as a single number."""
    return b.view(b.sums(b.formula("a * a", value), ()), (1,))


def _multiplied(b: StepBuilder, op: Operator, attrs: Attrs, rows: Rows) -> Rows:
    return each_part(b, rows, "a * b", b.number(op, "Y"))


def _scaled(b: StepBuilder, op: Operator, attrs: Attrs, rows: Rows) -> Rows:
    need(not op.inputs.get("ScaleTensor") and not attrs["bias"], "rows to which a number is added")
    return each_part(b, rows, f"a * {literal(attrs['scale'])}")


@imports_step("clip_by_norm")
def _clip_by_norm(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x = b.get(op, "X")
    b.put(op, "Out", b.formula(f"a * {_share(attrs)}", x, squares(b, x)))


@imports_step("squared_l2_norm")
def _squared_norm(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    b.put(op, "Out", squares(b, b.get(op, "X")))


@imports_step("merge_selected_rows")
def _merge(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    need(False, "rows that are made elsewhere")


@imports_step(VALUES)
def _values_of(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Zeros stand for the rows that are not there: the value is for sums of squares alone."""
    rows = b.rows.get(op.inputs["X"][0])
    need(rows is not None, "rows that are made elsewhere")
    assert rows is not None
    b.put(op, "Out", _values(b, rows))
    b.padded.add(op.outputs["Out"][0])
    b.padded.update(
        each.outputs["Out"][0] for each in _readers(op.block, op.outputs["Out"][0]) if each.type == "square"
    )


def _of_rows(type: str, change: Change) -> None:
    """Let the importer of an operator take rows, too."""
    of_arrays = STEP_IMPORTERS[type]

    def importer(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
        rows = b.rows.get(op.inputs["X"][0])
        if rows is None:
            of_arrays(b, op, attrs)
        else:
            b.rows[op.outputs["Out"][0]] = change(b, op, attrs, rows)

    STEP_IMPORTERS[type] = importer


for _type, _change in {
    "clip": _clipped,
    "clip_by_norm": _shortened,
    "merge_selected_rows": lambda b, op, attrs, rows: merged(b, rows),
    "elementwise_mul": _multiplied,
    "scale": _scaled,
}.items():
    _of_rows(_type, _change)
