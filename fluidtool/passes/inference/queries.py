"""What inference passes ask of operators and variables."""

from __future__ import annotations

from collections import Counter

from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.ops.registry import find_op
from fluidtool.proto.enums import VarType

TRAINING = int(OpRole.Backward | OpRole.Optimize)


def is_pure(op: Operator) -> bool:
    """Whether equal inputs in slots always give equal outputs and nothing else happens."""
    info = find_op(op.type)
    unsure = info is None or info.raw or info.random or info.side_effects
    return not (unsure or op.sub_blocks() or op.variable_attrs())


def writers(program: Program) -> Counter[str]:
    """How many operators of the program write each name."""
    return Counter(name for block in program.blocks for op in block.ops for name in op.output_arg_names)


def trains(program: Program) -> bool:
    """Whether the program has operators of the backward or the optimizer role."""
    return any(int(op.get_attr(ROLE_ATTR, 0)) & TRAINING for block in program.blocks for op in block.ops)


def is_tensor(block: Block, name: str) -> bool:
    """Whether a name is declared as a LoDTensor (not an array, a table or selected rows)."""
    var = block.find_var_recursive(name)
    return var is not None and var.type == VarType.LOD_TENSOR


def is_persistable(block: Block, name: str) -> bool:
    """Whether a name is declared and outlives the run."""
    var = block.find_var_recursive(name)
    return var is not None and var.persistable


def rank(block: Block, name: str) -> int:
    """The declared number of dimensions; -1 when it is not declared."""
    var = block.find_var_recursive(name)
    return len(var.shape) if var is not None and var.has_shape else -1
