"""Dependencies between the operators of a block: which are needed, and which values are dead after each."""

from __future__ import annotations

from collections import Counter

from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.hidden_names import hidden_reads, hidden_writes
from fluidtool.ir.reuse import original_names
from fluidtool.ir.roles import NAMESCOPE_ATTR, ROLE_ATTR, SUPERSEDED, OpRole
from fluidtool.ir.surgery import copy_operator
from fluidtool.ops.registry import get_op, traits_of
from fluidtool.proto.enums import VarType

DELETE = "delete_var"
FEED_FETCH = frozenset({"feed", "fetch"})
LOOP_VARIABLES = frozenset({VarType.STEP_SCOPES, VarType.LOD_RANK_TABLE, VarType.LOD_TENSOR_ARRAY})
"""The types of variables that only exist for loops."""
OWN = LOOP_VARIABLES | {VarType.RAW}
TRAINS = int(OpRole.Backward | OpRole.Optimize)


def trains(op: Operator) -> bool:
    """Whether the operator belongs to training, which needs the values of all operators before it."""
    return op.type.endswith("_grad") or bool(int(op.get_attr(ROLE_ATTR, 0)) & TRAINS)


def is_own(op: Operator, name: str) -> bool:
    """Whether a variable is for operators' own use, such as the cache of a `cudnn_lstm`, or the arrays of a loop."""
    var = op.block.find_var_recursive(name)
    return var is not None and var.type in OWN


def without_fetched(deletion: Operator, fetched: set[str]) -> Operator:
    """A `delete_var` operator that spares fetched variables."""
    return _deletion_of(deletion, [name for name in deletion.input("X") if name not in fetched])


def _deletion_of(deletion: Operator, names: list[str]) -> Operator:
    """The operator if it deletes exactly these, else a copy that does."""
    if names == deletion.input("X"):
        return deletion
    copy = copy_operator(deletion, deletion.block)
    copy._inputs = {"X": names}
    return copy


def without_spent_deletions(program: Program, ops: list[Operator], released: set[str]) -> list[Operator]:
    """The operators without deletions of values that a run releases (`released`) after their last use anyway.

    A deletion between operators would keep an engine from computing them in one region.
    """
    kept: list[Operator] = []
    used: set[str] = set()
    for op in reversed(ops):
        if op.type == DELETE:
            used_later = [name for name in op.input("X") if name not in released or name in used]
            op = _deletion_of(op, used_later)
        if op.type != DELETE or op.input("X"):
            kept.append(op)
            used |= names_used(program, op)
    return kept[::-1]


def names_used(program: Program, op: Operator) -> set[str]:
    """Every name that an operator, or any block below it, reads or writes."""
    names = {*op.input_arg_names, *op.output_arg_names, *hidden_reads(op), *hidden_writes(op)}
    for index in op.sub_blocks():
        for inner in program.block(index).ops:
            names |= names_used(program, inner)
    return names


def needed_operators(program: Program, ops: list[Operator], fetched: set[str]) -> list[Operator]:
    """The operators that the fetches depend on, and those with side effects.

    Deletions are left out: they would make what they delete needed.
    """
    wanted, kept = set(fetched), []
    for op in reversed(ops):
        if op.type == DELETE:
            continue
        info = get_op(op.type)
        if info.side_effects or wanted.intersection(op.output_arg_names):
            kept.append(op)
            wanted |= names_used(program, op)
    return kept[::-1]


def is_superseded(op: Operator) -> bool:
    """Whether a rewrite replaced this operator by others."""
    return bool(op.get_attr(NAMESCOPE_ATTR, "") == SUPERSEDED)


def without_superseded(block: Block, ops: list[Operator], fetched: set[str]) -> list[Operator]:
    """The operators without those that a rewrite replaced, if their results are never read or fetched."""
    if not any(is_superseded(op) for op in ops):
        return ops
    kept: list[Operator] = []
    wanted = set(fetched)
    for op in reversed(ops):
        if not is_superseded(op) or wanted.intersection(op.output_arg_names):
            kept.append(op)
            wanted |= names_used(block.program, op)
    return kept[::-1]


def dead_after(program: Program, ops: list[Operator], releasable: set[str]) -> list[tuple[str, ...]]:
    """For each operator, the names whose last use it is; if variables share a name, the last use before the next value."""
    seen: set[str] = set()
    dead: list[tuple[str, ...]] = []
    for op in reversed(ops):
        names = (names_used(program, op) & releasable) - seen
        seen |= names
        seen -= (original_names(op).keys() & set(op.output_arg_names)) - set(op.input_arg_names)
        dead.append(tuple(sorted(names)))
    return dead[::-1]


def hollow_after(program: Program, ops: list[Operator], releasable: set[str]) -> list[tuple[str, ...]]:
    """For each operator, the inputs whose numbers nobody reads afterwards, although someone reads their shapes.

    Only of names that are written once.
    """
    written = Counter(name for op in ops for name in op.output_arg_names)
    read: set[str] = set()  # by operators behind this one
    shown: set[str] = set()  # only their shapes
    hollow: list[tuple[str, ...]] = []
    for op in reversed(ops):
        shapes = {name for slot in traits_of(op.type).shapes for name in op.input(slot)}
        others = Counter(op.input_arg_names) - Counter(
            name for slot in traits_of(op.type).shapes for name in op.input(slot)
        )
        shapes -= others.keys()
        numbers = names_used(program, op) - shapes
        ending = (numbers & shown & releasable & set(op.input_arg_names)) - read - set(op.output_arg_names)
        hollow.append(tuple(sorted(name for name in ending if written[name] == 1)))
        read |= numbers
        shown |= shapes
    return hollow[::-1]
