"""Operators that all ranks of a ring run together, and the order in which a program has them."""

from __future__ import annotations

from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program
from fluidtool.shapes import shape_text

REDUCTIONS = ("sum", "max", "min", "prod")
COLLECTIVES = frozenset(
    {
        *(f"c_allreduce_{reduction}" for reduction in REDUCTIONS),
        *(f"c_reduce_{reduction}" for reduction in REDUCTIONS),
        "allreduce",
        "barrier",
        "broadcast",
        "c_allgather",
        "c_broadcast",
        "c_reducescatter",
    }
)
SYNC = "c_sync_comm_stream"
TOLD = ("root", "root_id", "nranks", "reduce_type")


def is_collective(op: Operator) -> bool:
    """Whether every rank of a ring must run the operator."""
    return op.type in COLLECTIVES


def ring_number(op: Operator) -> int:
    """The ring that an operator works with: 0 where it does not say."""
    return int(op.get_attr("ring_id", 0))


def collective_lines(program: Program) -> list[tuple[int, str]]:
    """(ring, description) of what ranks must do in one order: type, ring, variable, declared shape and data type."""
    return [
        (ring_number(op), _line(op))
        for block in program.blocks
        for op in block.ops
        if (is_collective(op) or op.type == SYNC) and op.input_arg_names
    ]


def uses_rings(program: Program) -> bool:
    """Whether the program itself exchanges values with other ranks."""
    return any(is_collective(op) for block in program.blocks for op in block.ops)


def may_wait(op: Operator) -> bool:
    """Whether a reduction may wait for the next c_sync_comm_stream of its ring, to go together with others.

    So it is where the program says that it runs beside other work, and nothing before that one uses its variable.
    """
    if op.get_attr("use_calc_stream", False):
        return False
    ops, names = op.block.ops, {*op.input_arg_names, *op.output_arg_names}
    for later in ops[next(index for index, other in enumerate(ops) if other is op) + 1 :]:
        if later.type == SYNC and ring_number(later) == ring_number(op):
            return True
        if later.sub_blocks() or not names.isdisjoint({*later.input_arg_names, *later.output_arg_names}):
            return False
    return False


def _line(op: Operator) -> str:
    name = op.input_arg_names[0]
    var = op.block.find_var_recursive(name)
    dtype = var.dtype.name.lower() if var is not None and var.dtype is not None else "of unknown data type"
    told = "".join(f" {attribute} {op.attr(attribute)}" for attribute in TOLD if op.has_attr(attribute))
    return (
        f"{op.type} of {name} {shape_text(None if var is None else var.shape)} {dtype} on ring {ring_number(op)}{told}"
    )
