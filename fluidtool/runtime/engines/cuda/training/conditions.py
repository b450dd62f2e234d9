"""Booleans in training steps, and conditions on single ones, such as those of schedules: both branches are computed, one is
taken.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Block, Operator
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.engines.cuda.training.building import STEP_IMPORTERS, StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.forward import NUMBERS, SHAPED, SHARED
from fluidtool.runtime.graph.importers.comparisons import COMPARISONS, LOGIC
from fluidtool.runtime.graph.importers.elementwise import WHOLE_OPERATIONS
from fluidtool.runtime.graph.importers.refusals import every_attribute
from fluidtool.runtime.graph.importers.registry import IMPORTERS, need
from fluidtool.runtime.graph.ir import Value

Attrs = Mapping[str, Any]
NOW: dict[str, Callable[..., Any]] = {
    "less_than": operator.lt, "less_equal": operator.le, "greater_than": operator.gt, "greater_equal": operator.ge,
    "equal": operator.eq, "not_equal": operator.ne, "logical_not": operator.not_, "logical_and": operator.and_,
    "logical_or": operator.or_, "logical_xor": operator.xor,
}  # fmt: skip
"""The same for whole numbers and booleans that are known when a step is built."""
BRANCH = "conditional_block"
MOVED = ("concat", "expand", "expand_as", "slice", "split", "stack")
BY_IDS = (
    "lookup_table", "lookup_table_grad", "lookup_table_v2", "lookup_table_v2_grad", "gather", "gather_grad",
    "gather_nd", "gather_nd_grad", "one_hot", "one_hot_v2", "cross_entropy", "cross_entropy2", "cross_entropy_grad",
    "cross_entropy_grad2", "softmax_with_cross_entropy", "softmax_with_cross_entropy_grad",
)  # fmt: skip
"""Operators that look up by whole numbers, and their gradients."""
NUMBERS_OF_STEPS = frozenset({VarType.FP32, VarType.INT64})
READING_WHOLES = frozenset(
    {*COMPARISONS, *SHAPED, *WHOLE_OPERATIONS, *MOVED, *BY_IDS, "accuracy", "assign", "cast", "scale"}
)
"""Operators that a step computes on whole numbers."""
WITHIN_BRANCHES = frozenset({*SHARED, *NUMBERS, "elementwise_pow", "cast", "fill_constant", "sum"})
"""Operators that a branch may have: they change nothing but their results, and draw nothing."""


# ---------------------------------------------------------------- which
def is_condition(op: Operator) -> bool:
    """Whether an operator makes booleans that a step can have, or branches by one."""
    return op.type in COMPARISONS or op.type in LOGIC or op.type == BRANCH or _casts_to(op, VarType.BOOL)


def _casts_to(op: Operator, *types: VarType) -> bool:
    return op.type == "cast" and op.has_attr("out_dtype") and op.attr("out_dtype") in types


def is_whole_within(op: Operator) -> bool:
    """Whether an operator casts to whole numbers, and only operators read them that a step computes on whole numbers."""
    names = set(op.output_arg_names)
    readers = [
        each for each in op.block.ops if not names.isdisjoint(names_used(op.block.program, each)) and each is not op
    ]
    return _casts_to(op, VarType.INT64, VarType.INT32) and all(each.type in READING_WHOLES for each in readers)


def may_be_condition(op: Operator) -> bool:
    """Whether an operator of conditions may be in a step: of numbers that it has, and booleans stay within it."""
    found = conditions_of(op.block)
    if op.type == BRANCH:
        return op.input("Cond")[:1] != [] and found.issuperset(op.input("Cond")) and _may_be_branch(op)
    return found.issuperset(op.output_arg_names)


def conditions_of(block: Block) -> frozenset[str]:
    """The booleans of a block that are made of float32 or int64, and read by nothing but branches, casts and each other."""
    users = [op for op in block.ops if is_condition(op)]
    if not users:
        return frozenset()
    made = Counter(name for op in block.ops for name in op.output_arg_names)
    lost = {name for name, count in made.items() if count > 1}
    while True:
        found: set[str] = set()
        for op in users:
            if _compares(block, op) or (op.type in LOGIC and found.issuperset(op.input_arg_names)):
                found.update(name for name in op.output_arg_names if name not in lost and _is_boolean(block, name))
        escaping = {name for op in block.ops for name in found & names_used(block.program, op) if not _keeps(op, found)}
        if not escaping:
            return frozenset(found)
        lost |= escaping


def _keeps(op: Operator, found: set[str]) -> bool:
    """Whether an operator that uses conditions has a place in the step, too."""
    if op.type == BRANCH:
        return found.issuperset(op.input("Cond")) and _may_be_branch(op)
    return found.issuperset(op.output_arg_names) or _casts_to(op, *NUMBERS_OF_STEPS)


def _compares(block: Block, op: Operator) -> bool:
    """Whether an operator makes booleans of numbers of one type that a step has."""
    found = [block.find_var_recursive(name) for name in op.input_arg_names]
    types = {None if var is None or var.type != VarType.LOD_TENSOR else var.dtype for var in found}
    return op.type not in LOGIC and op.type != BRANCH and len(types) == 1 and types <= NUMBERS_OF_STEPS


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
    if all(name in b.numbers for name in names):
        b.numbers[op.outputs["Out"][0]] = _known(b, op, names)
        return
    for name in names:
        if name in b.numbers:
            b.values[name] = Value(name, (1,), np.array([b.numbers[name]]), integer=True)
    IMPORTERS[op.type](b, op, dict(attrs))


@imports_step(*LOGIC)
def _combine(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    names = [op.inputs[slot][0] for slot in ("X", "Y") if op.inputs.get(slot)]
    if any(name in b.numbers for name in names):
        b.numbers[op.outputs["Out"][0]] = _known(b, op, names)
        return
    IMPORTERS[op.type](b, op, dict(attrs))


def _known(b: StepBuilder, op: Operator, names: Sequence[str]) -> int:
    """What an operator makes of whole numbers and booleans that are known now."""
    need(all(name in b.numbers for name in names), "a number from elsewhere")
    return int(NOW[op.type](*(b.numbers[name] for name in names)))


@imports_step(BRANCH)
def _branch(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """Compute what the block computes, and let its results replace what was there where the condition holds."""
    (name,) = op.inputs["Cond"]
    need(name in b.conditions and prod(b.conditions[name].shape) == 1, "a condition from elsewhere")
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
