"""Saving and loading what persists of a job with parameter servers (Paddle 1.8.5 io.py, _save_distributed_persistables)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fluidtool import runtime
from fluidtool.errors import UsageError
from fluidtool.fluid.executor import Executor, global_scope
from fluidtool.ir import Program, Variable
from fluidtool.ir.variable import data_type
from fluidtool.proto.enums import VarType

ON_SERVERS = ("Optimizer", "RemotePrefetch")  # the other parameters come back to the trainers after each step
TABLES = "__lookup_table__"


def variables_of_trainer(program: Program) -> list[Variable]:
    """What persists of a trainer's program and is in its own scope."""
    elsewhere = {*_remote(program), *_tables(program)}
    kinds = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER)
    return [v for v in program.list_vars() if v.persistable and v.name not in elsewhere and v.type not in kinds]


def save_remote_variables(executor: Executor, folder: str, program: Program) -> None:
    """Have the first trainer fetch what only servers have, a file each; tables are written by the servers themselves."""
    if not program._is_chief:
        return
    saving = Program()
    block = saving.global_block()
    for name, parts in _remote(program).items():
        block.append_op(type="recv_save", attrs=_fetching(os.path.join(folder, name), parts))
    for table in _tables(program):
        where = {"epmap": program._endpoints, "dir": os.path.join(folder, TABLES), "lookup_table": table}
        block.append_op(type="checkpoint_notify", attrs=where)
    _run(executor, saving, folder)


def load_variables_of_server(executor: Executor, folder: str, program: Program) -> None:
    """Read a server's parts of all variables from their files; raises UsageError for a program that is not a server's."""
    if not program._ps_endpoint:
        raise UsageError(
            "load_persistables of a distributed program needs the program of a server: give current_endpoint"
        )
    loading = Program()
    block = loading.global_block()
    for part in program._parameters_on_pservers.get_distributed_vars_by_ep(program._ps_endpoint):
        wanted = part.slice if part.is_slice else part.origin
        out = block.create_var(
            name=wanted.name, type=wanted.type, shape=wanted.shape, dtype=wanted.dtype, persistable=True
        )
        piece = {"seek": part.offset, "shape": list(wanted.shape)} if part.is_slice else {}
        attrs = {"file_path": os.path.join(folder, part.origin.name), **piece}
        block.append_op(type="load", outputs={"Out": [out]}, attrs=attrs)
    _run(executor, loading, folder)


def _run(executor: Executor, program: Program, folder: str) -> None:
    """Run a program of ours, which may reach the folder that the caller named."""
    given = executor._runtime
    policy = replace(given.policy, file_roots=(Path(folder),))
    runtime.Executor(given.place, policy=policy, servers=given.servers).run(program, {}, [], global_scope())


def _remote(program: Program) -> dict[str, list[Any]]:
    """The parts of what only servers have, by the name of the whole."""
    found: dict[str, list[Any]] = program._parameters_on_pservers.get_distributed_vars_by_vtypes(
        ON_SERVERS, groupby=True
    )
    return found


def _tables(program: Program) -> list[str]:
    return [program._distributed_lookup_table] if program._distributed_lookup_table else []


def _fetching(path: str, parts: Sequence[Any]) -> dict[str, Any]:
    """The attributes of recv_save for a variable, its parts in order."""
    ordered = sorted(parts, key=lambda part: part.block_id) if parts[0].is_slice else list(parts)
    return {
        "trainer_id": 0,
        "dtype": int(data_type(parts[0].origin.dtype)),
        "shape": list(parts[0].origin.shape),
        "slice_shapes": [",".join(map(str, part.slice.shape)) for part in ordered],
        "slice_varnames": [f"{part.slice.name}.slice.{index}" for index, part in enumerate(ordered)],
        "remote_varnames": [part.slice.name for part in ordered],
        "endpoints": [part.endpoint for part in ordered],
        "file_path": path,
    }
