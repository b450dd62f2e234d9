"""`fluid.distribute_lookup_table`: the table that servers share row by row (Paddle 1.8.5 distribute_lookup_table.py)."""

from __future__ import annotations

from fluidtool.errors import AssertedError, ProgramError
from fluidtool.ir import Operator, Program, Variable

__all__ = [
    "find_distributed_lookup_table",
    "find_distributed_lookup_table_inputs",
    "find_distributed_lookup_table_outputs",
]


def find_distributed_lookup_table_inputs(program: Program, table_name: str) -> list[Variable]:
    """The ids that are looked up in a table."""
    declared = program.current_block().vars
    return [declared[name] for op in _lookups(program) if op.input("W")[0] == table_name for name in op.input("Ids")]


def find_distributed_lookup_table_outputs(program: Program, table_name: str) -> list[Variable]:
    """The rows that are looked up in a table."""
    declared = program.current_block().vars
    return [declared[name] for op in _lookups(program) if op.input("W")[0] == table_name for name in op.output("Out")]


def find_distributed_lookup_table(program: Program) -> str | None:
    """The table of `embedding(is_distributed=True)`, or None; raises ProgramError for several.

    Raises AssertedError when another embedding of the same table comes after it without `is_distributed`.
    """
    found: str | None = None
    for op in _lookups(program):
        name = op.input("W")[0]
        if op.get_attr("is_distributed", False) is True:
            if found not in (None, name):
                raise ProgramError(
                    f"all distributed lookup_table_ops should have only one table, found {found} and {name}"
                )
            found = name
        elif found == name:
            raise AssertedError(f"table {name} is looked up with and without is_distributed=True; set it everywhere")
    return found


def _lookups(program: Program) -> list[Operator]:
    return [op for op in program.global_block().ops if op.type == "lookup_table"]
