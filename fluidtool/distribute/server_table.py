"""A server's part of a distributed lookup table: blocks that train its rows, look rows up, and save them."""

from __future__ import annotations

import warnings
from typing import Any

from fluidtool.distribute.analysis import is_lookup, table_of
from fluidtool.distribute.appending import append, declare_like
from fluidtool.distribute.plan import TablePlan
from fluidtool.distribute.server import Server
from fluidtool.distribute.trainer_table import declare_prefetch
from fluidtool.ir import Block, Operator
from fluidtool.proto.enums import VarType

TABLE_PATH = "kLookupTablePath"


def add_table(server: Server, parent: int) -> dict[str, Any]:
    """Add the three blocks; what `listen_and_serv` says of them."""
    table = server.plan.table
    assert table is not None
    block = _optimize_block(server, table, parent)
    prefetched = _prefetch_block(server, table, block)
    saving = _saving_block(server, table, block)
    server.program._distributed_lookup_table = table.name
    return {"checkpint_block_id": saving.idx, "prefetch_var_name_to_block_id": [prefetched]}


def _optimize_block(server: Server, table: TablePlan, parent: int) -> Block:
    """Sum the trainers' gradients and take a step of plain SGD, the one optimizer that tables have."""
    update = _update_of(server, table)
    if update.type != "sgd":
        warnings.warn(
            f"a distributed lookup table is trained by sgd only: {table.name} gets sgd instead of {update.type}",
            stacklevel=4,
        )
    block, names = server.new_block(parent), server.globals
    origin, gradient = server.origin(table.name), server.origin(table.gradient)
    rows = -(-origin.shape[0] // len(server.plan.settings.servers))
    kind = VarType.SELECTED_ROWS
    names.create_var(name=table.name, shape=(rows, *origin.shape[1:]), dtype=origin.dtype, type=kind, persistable=True)
    rate = update.input("LearningRate")[0]
    if server.plan.settings.sync:
        merged = names.clone_variable(gradient).name
        names_of_trainers = [
            f"{table.gradient}.trainer_{trainer}.pserver_{server.index}"
            for trainer in range(server.plan.settings.trainers)
        ]
        for name in names_of_trainers:
            declare_like(names, gradient, name)
        append(block, "sum", {"X": names_of_trainers}, {"Out": [merged]}, {"use_mkldnn": False})
    else:
        merged = table.sends[server.index]
        declare_like(names, gradient, merged, persistable=True)
    if rate not in names.vars:
        names.clone_variable(server.origin(rate))
    inputs = {"Param": [table.name], "Grad": [merged], "LearningRate": [rate]}
    append(block, "sgd", inputs, {"ParamOut": [table.name]})
    server.gradient_blocks.append(f"{merged}:{block.idx}")
    return block


def _update_of(server: Server, table: TablePlan) -> Operator:
    ops = server.source.global_block().ops
    return next(ops[p] for p in server.plan.analysis.optimizers if ops[p].input("Param") == [table.name])


def _prefetch_block(server: Server, table: TablePlan, parent: Block) -> str:
    """Look up the rows that a trainer asks for; "ids:block" for `listen_and_serv`."""
    block, source = server.program.create_block(parent.idx), server.source.global_block()
    first = next(op for op in source.ops if is_lookup(op) and table_of(op) == table.name)
    (ids,), (rows,) = declare_prefetch(
        server.globals, source, first.input("Ids")[0], first.output("Out")[0], [server.index]
    )
    attrs = {"is_sparse": True, "is_distributed": True, "padding_idx": -1}
    append(block, "lookup_sparse_table", {"Ids": [ids], "W": [table.name]}, {"Out": [rows]}, attrs)
    _declare_rows(server.globals, ids, rows)
    return f"{ids}:{block.idx}"


def _declare_rows(block: Block, ids: str, rows: str) -> None:
    """As Paddle 1.8.5 declares them: as many as ids have dimensions."""
    block.var(rows).shape = (len(block.var(ids).shape), *block.var(rows).shape[1:])


def _saving_block(server: Server, table: TablePlan, parent: Block) -> Block:
    """Save the rows when `checkpoint_notify` asks for it; the path comes with that request."""
    server.globals.create_var(name=TABLE_PATH, persistable=True, type=VarType.RAW)
    block = server.program.create_block(parent.idx)
    append(block, "save", {"X": [table.name]}, {}, {"file_path": "none"})
    return block
