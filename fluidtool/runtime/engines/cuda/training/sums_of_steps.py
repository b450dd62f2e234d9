"""Gradients by what all steps of a loop read, such as weights: computed once, behind the loop, from the rows of all steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from fluidtool.ir import Block, Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.ir.surgery import copy_operator
from fluidtool.ops.registry import get_op
from fluidtool.runtime.engines.cuda.training.building import Item, Meanings, StepBuilder
from fluidtool.runtime.engines.cuda.training.operators import import_operator
from fluidtool.runtime.graph.importers.refusals import every_attribute
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Value

SUMS: Mapping[str, Mapping[str, str]] = {
    "elementwise_add_grad": {"Y@GRAD": "Y"},
    "gru_unit_grad": {"Weight@GRAD": "Weight", "Bias@GRAD": "Bias"},
    "lookup_table_grad": {"W@GRAD": "W"},
    "lookup_table_v2_grad": {"W@GRAD": "W"},
    "mul_grad": {"Y@GRAD": "Y"},
}
"""By operator: outputs that are sums over rows, where the input that each is the gradient of is the same in all steps."""


class Products:
    """What the operators of a gradient block leave to be computed behind all steps.

    others: the operators of each step, without these results.
    """

    def __init__(self, b: StepBuilder, block: Block, kept: Sequence[Meanings], wanted: Collection[str]) -> None:
        used = Counter(name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names))
        last = {name: used[name] == 1 for name in wanted}
        self._own = {name for step in kept for name, value in step["values"].items() if value is not b.values.get(name)}
        self._own.update(name for op in block.ops for name in op.output_arg_names)
        self._rows: dict[str, list[Value]] = {}
        self._totals: dict[str, Item] = {}
        self._sums: list[Operator] = []
        self.others: list[Operator] = []
        for op in block.ops:
            slots = [slot for slot in self._sums_of(op, b, kept[0]) if last.get(op.outputs[slot][0])]
            left = {slot: names for slot, names in op.outputs.items() if slot not in slots}
            if slots:
                self._sums.append(_with_outputs(op, {slot: op.outputs[slot] for slot in slots}))
            if not slots or any(name not in ("", EMPTY) for names in left.values() for name in names):
                self.others.append(_with_outputs(op, left) if slots else op)

    def _sums_of(self, op: Operator, b: StepBuilder, step: Meanings) -> list[str]:
        """The output slots that are sums over the rows of all steps."""
        same = {} if op.get_attr("is_sparse", False) else SUMS.get(op.type, {})
        others = [name for slot, names in op.inputs.items() if slot not in same.values() for name in names]
        if not same or not self._own.issuperset(others) or not self._own.isdisjoint(_names(op, same.values())):
            return []
        if op.type == "elementwise_add_grad" and not _is_added_to_rows(op, b, step):
            return []
        return [slot for slot in same if op.outputs.get(slot)]

    def note(self, b: StepBuilder) -> None:
        """Note what a step has of rows."""
        for name in {name for op in self._sums for name in op.input_arg_names if name in self._own}:
            need(name in b.values, f"{name} has no value in a step")
            self._rows.setdefault(name, []).append(b.values[name])

    def total(self, b: StepBuilder, name: str) -> Item | None:
        """A gradient that is computed of the rows of all steps; None if it is not such a one."""
        op = next((op for op in self._sums if name in op.output_arg_names), None)
        if op is not None and name not in self._totals:
            self._import(b, op)
        return self._totals.get(name)

    def _import(self, b: StepBuilder, op: Operator) -> None:
        """The operator once more, for the rows of all steps, the first step first."""
        names = {*op.input_arg_names, *op.output_arg_names}
        around = b.meanings(names)
        for name in names & self._rows.keys():
            b.let(name, Item(b.joined(self._rows[name][::-1])))
        import_operator(b, op, every_attribute(op, get_op(op.type)))
        self._totals.update({name: b.item(name) for name in op.output_arg_names})
        b.forget(names)
        b.recall(around)


def _names(op: Operator, slots: Iterable[str]) -> list[str]:
    return [name for slot in slots for name in op.inputs.get(slot, [])]


def _is_added_to_rows(op: Operator, b: StepBuilder, step: Meanings) -> bool:
    """Whether the same Y was added to every row of X."""
    x, y = step["values"].get(op.inputs["X"][0]), b.values.get(op.inputs["Y"][0])
    if x is None or y is None or len(y.shape) >= len(x.shape):
        return False
    return int(op.get_attr("axis", -1)) in (-1, len(x.shape) - len(y.shape))


def _with_outputs(op: Operator, outputs: Mapping[str, list[str]]) -> Operator:
    """The operator without its other results."""
    copy = copy_operator(op, op.block)
    copy._outputs = dict(outputs)
    return copy
