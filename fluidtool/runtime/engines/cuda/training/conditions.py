"""Conditions on single numbers in training steps, such as those of schedules: both branches are computed, one is taken."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from fluidtool.ir import Block, Operator
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.engines.cuda.training.building import STEP_IMPORTERS, StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.forward import NUMBERS, SHARED
from fluidtool.runtime.graph.importers.refusals import every_attribute
from fluidtool.runtime.graph.importers.registry import need

Attrs = Mapping[str, Any]
COMPARISONS = {
    "less_than": "a < b", "less_equal": "a <= b", "greater_than": "a > b", "greater_equal": "a >= b",
    "equal": "a == b", "not_equal": "a != b",
}  # fmt: skip
LOGIC = {
    "logical_not": "a == 0.0f", "logical_and": "a != 0.0f && b != 0.0f", "logical_or": "a != 0.0f || b != 0.0f",
    "logical_xor": "(a != 0.0f) != (b != 0.0f)",
}  # fmt: skip
NOW: dict[str, Callable[..., Any]] = {
    "less_than": operator.lt, "less_equal": operator.le, "greater_than": operator.gt, "greater_equal": operator.ge,
    "equal": operator.eq, "not_equal": operator.ne, "logical_not": operator.not_, "logical_and": operator.and_,
    "logical_or": operator.or_, "logical_xor": operator.xor,
}  # fmt: skip
"""The same for whole numbers and booleans that are known when a step is built."""
BRANCH = "conditional_block"
WITHIN_BRANCHES = frozenset({*SHARED, *NUMBERS, "elementwise_pow", "cast", "fill_constant", "sum"})
"""Operators that a branch may have: they change nothing but their results, and draw nothing."""


# ---------------------------------------------------------------- which
def is_condition(op: Operator) -> bool:
    """Whether an operator makes, or reads, conditions that a step can have."""
    return op.type in COMPARISONS or op.type in LOGIC or op.type == BRANCH


def may_be_condition(op: Operator) -> bool:
    """Whether an operator of conditions may be in a step: numbers are float32, and booleans stay within it."""
    found = conditions_of(op.block)
    if op.type == BRANCH:
        return op.input("Cond")[:1] != [] and found.issuperset(op.input("Cond")) and _may_be_branch(op)
    return found.issuperset(op.output_arg_names)


def conditions_of(block: Block) -> frozenset[str]:
    """The booleans of a block that are made of single float32 numbers, and read by nothing but branches and each other."""
    users = [op for op in block.ops if is_condition(op)]
    if not users:
        return frozenset()
    made = Counter(name for op in block.ops for name in op.output_arg_names)
    lost = {name for name, count in made.items() if count > 1}
    while True:
        found: set[str] = set()
        for op in users:
            of_numbers = op.type in COMPARISONS and all(_is_number(block, name) for name in op.input_arg_names)
            if of_numbers or (op.type in LOGIC and found.issuperset(op.input_arg_names)):
                found.update(name for name in op.output_arg_names if name not in lost and _is_boolean(block, name))
        escaping = {name for op in block.ops for name in found & names_used(block.program, op) if not _keeps(op, found)}
        if not escaping:
            return frozenset(found)
        lost |= escaping


def _keeps(op: Operator, found: set[str]) -> bool:
    """Whether an operator that uses conditions has a place in the step, too."""
    if op.type == BRANCH:
        return found.issuperset(op.input("Cond")) and _may_be_branch(op)
    return found.issuperset(op.output_arg_names)


def _may_be_branch(op: Operator) -> bool:
    """Whether a branch computes single float32 numbers from numbers that it names, and has no gradient."""
    if not (op.has_attr("is_scalar_condition") and op.attr("is_scalar_condition")) or len(op.input("Cond")) != 1:
        return False
    block = op.block.program.block(op.attr("sub_block"))
    scopes = set(op.output("Scope"))
    if any(not scopes.isdisjoint(other.input_arg_names) for other in op.block.ops):
        return False
    known = {*op.input("Input")}
    for inner in block.ops:
        names = (*inner.input_arg_names, *inner.output_arg_names)
        if inner.type not in WITHIN_BRANCHES or not all(_is_number(block, name) for name in names):
            return False
        if inner.type not in STEP_IMPORTERS or inner.variable_attrs() or not known.issuperset(inner.input_arg_names):
            return False
        known.update(inner.output_arg_names)
    written = {name for inner in block.ops for name in inner.output_arg_names}
    return {name for name in written if name not in block.vars} == set(op.output("Out"))


def _is_number(block: Block, name: str) -> bool:
    var = block.find_var_recursive(name)
    return var is not None and var.type == VarType.LOD_TENSOR and var.dtype == VarType.FP32 and tuple(var.shape) == (1,)


def _is_boolean(block: Block, name: str) -> bool:
    var = block.find_var_recursive(name)
    return var is not None and var.type == VarType.LOD_TENSOR and var.dtype == VarType.BOOL and not var.persistable


# ---------------------------------------------------------------- importing
@imports_step(*COMPARISONS)
def _compare(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    names = [op.inputs[slot][0] for slot in ("X", "Y")]
    if any(name in b.numbers for name in names):
        b.numbers[op.outputs["Out"][0]] = _known(b, op, names)
        return
    x, y = b.number(op, "X"), b.number(op, "Y")
    b.conditions[op.outputs["Out"][0]] = b.formula(f"({COMPARISONS[op.type]} ? 1.0f : 0.0f)", x, y, shape=(1,))


@imports_step(*LOGIC)
def _combine(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    names = [op.inputs[slot][0] for slot in ("X", "Y") if op.inputs.get(slot)]
    if any(name in b.numbers for name in names):
        b.numbers[op.outputs["Out"][0]] = _known(b, op, names)
        return
    need(all(name in b.conditions for name in names), "booleans from elsewhere")
    text = f"({LOGIC[op.type]} ? 1.0f : 0.0f)"
    b.conditions[op.outputs["Out"][0]] = b.formula(text, *(b.conditions[name] for name in names))


def _known(b: StepBuilder, op: Operator, names: Sequence[str]) -> int:
    """What an operator makes of whole numbers and booleans that are known now."""
    need(all(name in b.numbers for name in names), "a number from elsewhere")
    return int(NOW[op.type](*(b.numbers[name] for name in names)))


@imports_step(BRANCH)
def _branch(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Compute what the block computes, and let its results replace what was there where the condition holds."""
    (name,) = op.inputs["Cond"]
    need(name in b.conditions, "a condition from elsewhere")
    outside, changed = dict(b.values), op.outputs["Out"]
    for each in changed:
        need(each in outside and prod(outside[each].shape) == 1, f"{each} has no value unless the condition holds")
    for inner in op.block.program.block(op.attr("sub_block")).ops:
        STEP_IMPORTERS[inner.type](b, inner, every_attribute(inner, get_op(inner.type)))
    inside = dict(b.values)
    b.values.clear()
    b.values.update(outside)
    for each in changed:
        b.values[each] = b.formula("(a != 0.0f ? b : c)", b.conditions[name], inside[each], outside[each])
