"""Models whose embedding is spread over servers (`is_distributed=True`), in one process (Paddle 1.8.5 lookup_table_utils.py).

In Paddle 1.8.5 `load_persistables_for_inference` always fails: it needs an operator that was removed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid import io
from fluidtool.fluid.distributed_saving import TABLES, load_variables_of_server
from fluidtool.fluid.executor import Executor, global_scope, scope_guard
from fluidtool.ir import Program, Variable
from fluidtool.proto.enums import VarType
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import SelectedRows

__all__ = [
    "convert_dist_to_sparse_program",
    "load_persistables_for_increment",
    "load_persistables_for_inference",
]

LOOKUP = ("split_ids", "prefetch", "merge_ids")  # how a trainer asks servers for rows
OF_A_JOB = ("@GRAD", ".trainer_", ".block", "tmp_")  # in names of variables that no checkpoint has


def convert_dist_to_sparse_program(program: Program) -> Program | None:
    """The trainer's program, which looks rows up in a table of its own scope instead of asking servers; it is changed.

    None for a program without such a table. The table is declared as SelectedRows, the parameter as `<name>.origin`.
    """
    table = program._distributed_lookup_table
    if not table:
        return None
    block = program.global_block()
    types = [op.type for op in block.ops]
    at = next((i for i in range(len(types)) if tuple(types[i : i + len(LOOKUP)]) == LOOKUP), None)
    if at is None:
        raise UsageError(
            f"the program does not ask servers for rows of {table!r}: it has no {', '.join(LOOKUP)} in sequence; give the "
            "program that get_trainer_program returned"
        )
    asked = list(zip(block.ops[at].input("Ids"), block.ops[at + 2].output("Out"), strict=True))
    for _ in LOOKUP:
        block.remove_op(at)
    block.rename_var(table, f"{table}.origin")
    parameter = block.var(f"{table}.origin")
    kind = VarType.SELECTED_ROWS
    held = block.create_var(name=table, shape=parameter.shape, dtype=parameter.dtype, type=kind, persistable=True)
    for ids, rows in asked:
        attrs = {"is_distributed": False, "is_sparse": True, "grad_inplace": False}
        inputs, outputs = {"Ids": [block.var(ids)], "W": [held]}, {"Out": [block.var(rows)]}
        block.insert_op(at, type="lookup_sparse_table", inputs=inputs, outputs=outputs, attrs=attrs)
    return program


def load_persistables_for_increment(
    dirname: str, executor: Executor, program: Program, lookup_table_var: str, lookup_table_var_path: str
) -> None:
    """Load what a server needs to continue: its parts of all variables, and its part of the table from a file of its own.

    program: that of the server.
    """
    _need_folder(dirname)
    if not os.path.exists(lookup_table_var_path):
        raise UsageError(f"There is no file named {lookup_table_var_path!r}")
    _need_program(program)
    load_variables_of_server(executor, dirname, program)
    table = program.global_block().var(lookup_table_var)
    folder, name = os.path.split(lookup_table_var_path)
    loaded = _load(executor, folder, [(name, table)])
    global_scope().var(lookup_table_var).value = loaded[0]


def load_persistables_for_inference(
    dirname: str, executor: Executor, program: Program | None, lookup_table_var_name: str
) -> Program:
    """Load a model from a folder, its table from the servers' files <dirname>/__lookup_table__/<table>_<number>.

    The table becomes one SelectedRows of all rows, which is saved beside them as <table>. program: None reads
    <dirname>/__model__. Returns the program.
    """
    _need_folder(dirname)
    if program is None:
        program = Program.parse_from_string(Path(dirname, "__model__").read_bytes())
    _need_program(program)

    def is_loaded(var: Variable) -> bool:
        kinds = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.RAW)
        foreign = var.name == lookup_table_var_name or any(part in var.name for part in OF_A_JOB)
        return bool(var.persistable) and var.type not in kinds and not foreign

    io.load_vars(executor, dirname, program, predicate=is_loaded)
    folder, table = os.path.join(dirname, TABLES), program.global_block().var(lookup_table_var_name)
    _need_folder(folder)
    count = sum(lookup_table_var_name in name for name in os.listdir(folder))
    parts = _load(executor, folder, [(f"{table.name}_{number}", table) for number in range(count)])
    if not parts:
        raise UsageError(f"{folder} has no file {table.name}_0: expected a part of the table of each server")
    global_scope().var(table.name).value = _merged(parts)
    saving = Program()
    held = saving.global_block().create_var(
        name=table.name, shape=table.shape, dtype=table.dtype, type=VarType.SELECTED_ROWS, persistable=True
    )
    io.save_vars(executor, folder, saving, vars=[held])
    return program


def _merged(parts: list[Any]) -> SelectedRows:
    """One table of the rows of all parts."""
    rows = np.concatenate([part.row_ids for part in parts])
    values = np.concatenate([part.value[: len(part.row_ids)] for part in parts])
    return SelectedRows(rows, max(part.table_height for part in parts), values)


def _load(executor: Executor, folder: str, wanted: list[tuple[str, Variable]]) -> list[Any]:
    """SelectedRows from files of a folder; table: what declares their shape."""
    reading, scope = Program(), Scope()
    for name, table in wanted:
        reading.global_block().create_var(
            name=name, shape=table.shape, dtype=table.dtype, type=VarType.SELECTED_ROWS, persistable=True
        )
    with scope_guard(scope):
        io.load_vars(executor, folder, reading, vars=list(reading.list_vars()))
    return [scope.var(name).value for name, _ in wanted]


def _need_folder(folder: str) -> None:
    if not os.path.isdir(folder):
        raise UsageError(f"There is no directory named {folder!r}")


def _need_program(program: Program) -> None:
    if not isinstance(program, Program):
        raise ArgumentTypeError(f"program must be an instance of fluid.Program, found {type(program).__name__}")
