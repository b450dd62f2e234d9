"""Booleans in training steps, and conditions on single ones, such as those of schedules: both branches are computed, one is
taken.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from fluidtool.ir import Block, Operator
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.engines.cuda.training.building import STEP_IMPORTERS, StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.forward import NUMBERS, SHARED
from fluidtool.runtime.graph.importers.comparisons import COMPARISONS, LOGIC
from fluidtool.runtime.graph.importers.refusals import every_attribute
from fluidtool.runtime.graph.importers.registry import IMPORTERS, need

Attrs = Mapping[str, Any]
NOW: dict[str, Callable[..., Any]] = {
    "less_than": operator.lt, "less_equal": operator.le, "greater_than": operator.gt, "greater_equal": operator.ge,
    "equal": operator.eq, "not_equal": operator.ne, "logical_not": operator.not_, "logical_and": operator.and_,
    "logical_or": operator.or_, "logical_xor": operator.xor,
}  # fmt: skip
"""The same for whole numbers and booleans that are known when a step is built."""
BRANCH = "conditional_block"
NUMBERS_OF_STEPS = frozenset({VarType.FP32, VarType.INT64, VarType.INT32})
WITHIN_BRANCHES = frozenset({*SHARED, *NUMBERS, "elementwise_pow", "cast", "fill_constant", "sum"})
"""Operators that a branch may have: they change nothing but their results, and draw nothing."""


# ---------------------------------------------------------------- which
def is_condition(op: Operator) -> bool:
    """Whether an operator makes booleans that a step can have, or branches by one."""
    return op.type in COMPARISONS or op.type in LOGIC or op.type == BRANCH or _casts_to(op, VarType.BOOL)


def _casts_to(op: Operator, *types: VarType) -> bool:
    return op.type == "cast" and op.has_attr("out_dtype") and op.attr("out_dtype") in types


def may_be_condition(op: Operator) -> bool:
    """Whether an operator of conditions may be in a step: a branch by a boolean, or what makes one of what a step has.

    The boolean may leave the step, but not for an operator with a block, for which the host would wait.
    """
    if op.type == BRANCH:
        return _may_be_branch(op) and all(_is_boolean(op.block, name) for name in op.input("Cond"))
    if not (_combines(op) if op.type in LOGIC else _compares(op)):
        return False
    (name,) = op.output_arg_names
    users = [each for each in op.block.ops if name in names_used(op.block.program, each) and each is not op]
    is_own = _is_boolean(op.block, name) and not any(name in each.output_arg_names for each in users)
    return is_own and all(_keeps(each, name) for each in users)


def _keeps(op: Operator, name: str) -> bool:
    """Whether an operator reads a boolean without a block, or is a branch by it that a step has."""
    return not op.sub_blocks() or (op.type == BRANCH and name in op.input("Cond") and _may_be_branch(op))


def _compares(op: Operator) -> bool:
    """Whether an operator makes booleans of numbers of one type that a step has."""
    found = [op.block.find_var_recursive(name) for name in op.input_arg_names]
    types = {None if var is None or var.type != VarType.LOD_TENSOR else var.dtype for var in found}
    return len(types) == 1 and types <= NUMBERS_OF_STEPS


def _combines(op: Operator) -> bool:
    """Whether an operator makes booleans of others."""
    found = [op.block.find_var_recursive(name) for name in op.input_arg_names]
    return all(var is not None and var.type == VarType.LOD_TENSOR and var.dtype == VarType.BOOL for var in found)


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
    if not _put_known(b, op):
        IMPORTERS[op.type](b, op, dict(attrs))


@imports_step(*LOGIC)
def _combine(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    if not _put_known(b, op):
        IMPORTERS[op.type](b, op, dict(attrs))


def _put_known(b: StepBuilder, op: Operator) -> bool:
    """Put what an operator makes of single numbers and booleans that are known now; False if one is not."""
    found = [b.known_number(op.inputs[slot][0]) for slot in ("X", "Y") if op.inputs.get(slot)]
    if None in found:
        return False
    b.let_boolean(op.outputs["Out"][0], bool(NOW[op.type](*found)))
    return True


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
