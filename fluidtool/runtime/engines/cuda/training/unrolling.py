"""Which loops may be part of a training step: those whose number of steps is known once shapes and LoDs are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakKeyDictionary

from fluidtool.ir import Operator, Program
from fluidtool.ir.operator import EMPTY
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.runtime.dependencies import LOOP_VARIABLES
from fluidtool.runtime.graph.importers.comparisons import COMPARISONS, LOGIC

LOOPS = frozenset({"recurrent", "recurrent_grad", "while", "while_grad"})
READING_LODS = frozenset(
    {
        "array_to_lod_tensor", "lod_rank_table", "lod_tensor_to_array", "reorder_lod_tensor_by_rank",
        "reorder_lod_tensor_by_rank_grad", "shrink_rnn_memory", "shrink_rnn_memory_grad",
    }
)  # fmt: skip
COUNTS = frozenset({"lod_array_length", "max_sequence_len"})
OF_LOOPS = (
    LOOPS | READING_LODS | COUNTS | {"read_from_array", "rnn_memory_helper", "rnn_memory_helper_grad", "write_to_array"}
)
"""Operators that have a place in a step because of loops."""
COMPARING = frozenset({*COMPARISONS, *LOGIC})
NUMBERS = COMPARING | {"fill_constant", "increment"}
"""Operators that make whole numbers and booleans which are known beforehand, if those that they read are."""
WHOLE = frozenset({VarType.INT64, VarType.BOOL})
Test = Callable[[Operator], bool]


@dataclass(frozen=True, slots=True)
class Unrolled:
    """The operators of a program, by id, that have a place in a step because of loops; why a loop has none."""

    operators: frozenset[int]
    reasons: Mapping[int, str]


_known: WeakKeyDictionary[Program, tuple[int, Unrolled]] = WeakKeyDictionary()
"""By program, with its number of changes."""


def unrolled(program: Program, has_place: Test) -> Unrolled:
    """What a program has of loops that may be part of a step. has_place: whether any other operator may be."""
    found = _known.get(program)
    if found is None or found[0] != program.mutation:
        found = _known[program] = (program.mutation, _find(program, has_place))
    return found[1]


def _find(program: Program, has_place: Test) -> Unrolled:
    """Operators of loops, less those that share arrays, tables, scopes or whole numbers with operators that have no place."""
    ops = [op for block in program.blocks for op in block.ops]
    taken = {id(op): op for op in ops if op.type in OF_LOOPS or _makes_number(op) or _adds_arrays(op)}
    reasons: dict[int, str] = {}
    if not any(op.type in OF_LOOPS for op in taken.values()):
        return Unrolled(frozenset(), reasons)
    users: dict[str, list[Operator]] = defaultdict(list)
    for op in ops:
        for name in _names(op):
            users[name].append(op)
    own = {name for op in taken.values() for name in _names(op) if _is_own(op, name)}
    own.update(name for op in taken.values() if op.type in COUNTS | NUMBERS for name in op.output_arg_names)
    while True:
        lost: dict[int, str] = {}
        known = {name for op in taken.values() if op.type in COUNTS | NUMBERS for name in op.output_arg_names}
        for op in taken.values():
            why = _why_not(op, taken, users, own, known, has_place)
            if why:
                lost[id(op)] = why
        if not lost:
            return Unrolled(frozenset(taken), reasons)
        reasons |= {key: why for key, why in lost.items() if taken[key].type in LOOPS}
        taken = {key: op for key, op in taken.items() if key not in lost}


def _why_not(
    op: Operator,
    taken: Mapping[int, Operator],
    users: Mapping[str, list[Operator]],
    own: set[str],
    known: set[str],
    has_place: Test,
) -> str:
    """Why an operator has no place, given those that have one; '' if it has one."""
    numbers = op.input_arg_names if op.type in NUMBERS else [*op.inputs.get("Condition", []), *op.inputs.get("I", [])]
    unknown = [name for name in numbers if name not in known]
    if unknown:
        return f"{unknown[0]} is only known when the program runs"
    if op.type in LOOPS:
        for inner in op.block.program.block(op.attr("sub_block")).ops:
            if inner.sub_blocks():
                return f"{inner.type} within its steps has a block of its own"
            if id(inner) not in taken and not has_place(inner):
                return f"{inner.type} within its steps has no place in a graph"
    for name in own.intersection(_names(op)):
        other = next((user for user in users[name] if id(user) not in taken), None)
        if other is not None:
            return f"{name} is used by {other.type}, which has no place in a graph"
    return ""


def _makes_number(op: Operator) -> bool:
    """Whether an operator makes one whole number, or boolean, that does not stay in the scope."""
    if op.type not in NUMBERS or op.variable_attrs():
        return False
    if op.type == "fill_constant" and (op.input_arg_names or list(op.attr("shape")) != [1]):
        return False
    found = [op.block.find_var_recursive(name) for name in op.output_arg_names]
    return all(
        var is not None and var.type == VarType.LOD_TENSOR and var.dtype in WHOLE and not var.persistable
        for var in found
    )


def _adds_arrays(op: Operator) -> bool:
    """Whether an operator adds arrays of tensors."""
    found = [op.block.find_var_recursive(name) for name in op.output_arg_names] if op.type == "sum" else []
    return any(var is not None and var.type == VarType.LOD_TENSOR_ARRAY for var in found)


def _is_own(op: Operator, name: str) -> bool:
    var = op.block.find_var_recursive(name)
    return var is not None and var.type in LOOP_VARIABLES


def _names(op: Operator) -> Iterable[str]:
    return {*op.input_arg_names, *op.output_arg_names}.difference(("", EMPTY))
