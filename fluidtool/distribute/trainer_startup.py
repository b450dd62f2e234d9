"""The trainer's startup program: own values for what is local, parameters from the servers."""

from __future__ import annotations

from fluidtool.distribute.analysis import SCHEDULES, role_of
from fluidtool.distribute.appending import RPC, append, control_variable, declare_shard
from fluidtool.distribute.counters import start_counters
from fluidtool.distribute.plan import DistributePlan
from fluidtool.distribute.trainer_main import join_shards
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.roles import OpRole


def build_trainer_startup(startup: Program, plan: DistributePlan) -> None:
    """Extend the startup program in place: fetch every parameter that the trainer holds whole."""
    start_counters(startup, plan)
    fetch_parameters(startup, plan)


def fetch_parameters(startup: Program, plan: DistributePlan) -> None:
    """Append `recv` for every parameter that the trainer holds whole, a barrier, and what joins shards."""
    block, settings = startup.global_block(), plan.settings
    held = [parameter for parameter in plan.parameters if parameter.name not in plan.sparse_tables]
    for parameter in held:
        for placement in parameter.placements:
            if placement.parameter.name not in block.vars:
                declare_shard(block, placement.parameter)
        shards = [placement.parameter.name for placement in parameter.placements]
        attrs = {"epmap": parameter.endpoints, "trainer_id": settings.trainer_id}
        append(block, "recv", {"X": []}, {"Out": shards}, attrs, role=RPC)
    attrs = {"endpoints": list(settings.servers), "trainer_id": settings.trainer_id}
    append(block, "fetch_barrier", {}, {"Out": [control_variable(block)]}, attrs, role=RPC)
    join_shards(block, held, role=int(OpRole.Forward))


def finish_trainer(main: Program, startup: Program, plan: DistributePlan) -> None:
    """Take out what servers do: optimizers, learning rates, the values of accumulators and of sparse tables.

    Doing it twice changes nothing more.
    """
    _forget(startup.global_block(), plan.server_only)
    _fake_values(startup.global_block(), plan.sparse_tables)
    block, taken = main.global_block(), (*SCHEDULES, int(OpRole.Optimize))
    block.ops[:] = [op for op in block.ops if role_of(op) not in taken]
    for name in plan.server_only:
        block.remove_var(name)


def _forget(block: Block, names: tuple[str, ...]) -> None:
    gone = set(names)
    block.ops[:] = [op for op in block.ops if not gone & set(op.output_arg_names)]
    for name in names:
        block.remove_var(name)


def _fake_values(block: Block, tables: tuple[str, ...]) -> None:
    """Sparse tables get their dimensions and no memory."""
    initializers: dict[str, Operator] = {}
    for op in block.ops:
        for name in op.output_arg_names if op.type != "fake_init" else ():
            initializers.setdefault(name, op)
    replaced = {table: initializers[table] for table in tables if table in initializers}
    for table, op in replaced.items():
        append(block, "fake_init", {}, {"Out": [table]}, {"shape": op.attr("shape")})
    gone = set(map(id, replaced.values()))
    block.ops[:] = [op for op in block.ops if id(op) not in gone]
