"""Geo-SGD: trainers optimize by themselves; every few steps they send servers how parameters changed, and fetch the sum.

Paddle 1.8.5 transpiler/geo_sgd_transpiler.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fluidtool.distribute.analysis import distributed_table
from fluidtool.distribute.appending import append, control_variable, copy_distribution_fields, declare_shard
from fluidtool.distribute.job import note_distribution
from fluidtool.distribute.plan import DistributePlan, ParameterPlan, Placement
from fluidtool.distribute.planning import make_plan
from fluidtool.distribute.remote_variables import VarsDistributed, remote_parameters
from fluidtool.distribute.server_main import check_server
from fluidtool.distribute.server_startup import build_server_startup
from fluidtool.distribute.settings import Settings
from fluidtool.distribute.trainer_main import keep_clips
from fluidtool.distribute.trainer_startup import fetch_parameters
from fluidtool.ir import Block, Program, Variable
from fluidtool.ir.surgery import copy_program
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

INITIAL = "param_init"


@dataclass(frozen=True, slots=True)
class GeoJob:
    """A job in Geo-SGD mode. main and startup are rewritten in place; copies of both are kept as they were."""

    plan: DistributePlan
    main: Program
    startup: Program
    source_main: Program
    source_startup: Program

    def finish_trainer(self) -> Program:
        """The trainer's main program, which keeps its optimizer."""
        return self.main

    def server_main(self, endpoint: str) -> Program:
        """The main program of a server; raises UsageError for an endpoint that is none."""
        return _server_main(self.plan, self.main, endpoint)

    def server_startup(self, endpoint: str, server_main: Program | None = None) -> Program:
        """The startup program of a server."""
        check_server(self.plan, endpoint)
        main = server_main or self.server_main(endpoint)
        return build_server_startup(self.plan, self.source_startup, main, endpoint)

    def variables(self) -> dict[str, dict[str, list[str]]]:
        """What the communicator of a trainer has to know, by parameter (Paddle's `_get_vars_info`)."""
        return {
            parameter.name: {
                "var_names": [placement.parameter.name for placement in parameter.placements],
                "sections": [str(placement.parameter.shape[0]) for placement in parameter.placements],
                "epmap": parameter.endpoints,
                "is_sparse": [str(is_sparse(parameter))],
            }
            for parameter in self.plan.parameters
        }


def transpile_for_geo(main: Program, startup: Program, settings: Settings) -> GeoJob:
    """Plan, and rewrite both programs for the trainer. Raises what `make_plan` raises, before anything is changed."""
    plan, table = make_plan(main, startup, settings), distributed_table(main)
    job = GeoJob(plan, main, startup, copy_program(main), copy_program(startup))
    note_distribution(main, settings, table)
    main._parameters_on_pservers = VarsDistributed(list(remote_parameters(plan, job.source_main)))
    _build_main(main, plan)
    fetch_parameters(startup, plan)
    _build_startup(startup.global_block(), plan, main.global_block())
    return job


def is_sparse(parameter: ParameterPlan) -> bool:
    """Whether only single rows of a parameter change in a step."""
    return parameter.placements[0].gradient.type == VarType.SELECTED_ROWS


def delta_name(name: str) -> str:
    """How much a parameter, or a shard of one, changed since the servers were last told."""
    return f"{name}.delta"


# ---------------------------------------------------------------- trainer
def _build_main(program: Program, plan: DistributePlan) -> None:
    keep_clips(program, plan)
    block = program.global_block()
    for parameter in plan.parameters:
        _declare_deltas(block, parameter)
    looked_up = list(_look_ups(block, plan))
    ids, tables = [pair[0] for pair in looked_up], [pair[1] for pair in looked_up]
    append(block, "send", {"X": ids}, {"Out": [control_variable(block)]}, {"send_varnames": tables})


def _declare_deltas(block: Block, parameter: ParameterPlan) -> None:
    whole = block.var(parameter.name)
    _declare_delta(block, whole, parameter.name, whole.shape, parameter)
    for placement in parameter.placements if parameter.is_cut else ():
        declare_shard(block, placement.parameter)
        _declare_delta(block, whole, placement.parameter.name, placement.parameter.shape, parameter)


def _declare_delta(block: Block, whole: Variable, name: str, shape: tuple[int, ...], parameter: ParameterPlan) -> None:
    kind = VarType.SELECTED_ROWS if is_sparse(parameter) else whole.type
    block.create_var(name=delta_name(name), persistable=False, dtype=whole.dtype, type=kind, shape=shape)


def _look_ups(block: Block, plan: DistributePlan) -> Iterator[tuple[str, str]]:
    """(ids, table) of every lookup in a sparse table and of its gradient, where the table is not the one that these ids
    were last used for, as Paddle tells its communicator; the lookups stay local.
    """
    tables = {parameter.name for parameter in plan.parameters if is_sparse(parameter)}
    last: dict[str, str] = {}
    for op in block.ops:
        if not op.has_attr("is_sparse"):
            continue
        if op.type == "lookup_table":
            op.set_attr("remote_prefetch", False)
        for ids, table in zip(op.input("Ids"), op.input("W"), strict=False):
            if table in tables and last.get(ids) != table:
                last[ids] = table
                yield ids, table


def _build_startup(block: Block, plan: DistributePlan, main: Block) -> None:
    for parameter in plan.parameters:
        delta = main.var(delta_name(parameter.name))
        block.create_var(name=delta.name, persistable=False, dtype=delta.dtype, type=delta.type, shape=delta.shape)
    control = control_variable(block)
    block.create_var(name=INITIAL)
    append(block, "send", {"X": [INITIAL]}, {"Out": [control]}, {"send_varnames": [INITIAL]})


# ---------------------------------------------------------------- server
def _server_main(plan: DistributePlan, trainer: Program, endpoint: str) -> Program:
    check_server(plan, endpoint)
    program = Program()
    program.random_seed = trainer.random_seed
    copy_distribution_fields(program, trainer)
    placements = plan.placements_on(endpoint)
    for placement in placements:
        declare_shard(program.global_block(), placement.parameter, persistable=True)
    blocks = [_add_block(program, placement) for placement in placements]
    append(program.global_block(), "listen_and_serv", {"X": []}, {}, _attributes(plan, endpoint, blocks, placements))
    program.current_block_idx = 0
    return program


def _add_block(program: Program, placement: Placement) -> Block:
    """parameter += delta."""
    block, shard = program.create_block(0), placement.parameter
    sparse = placement.gradient.type == VarType.SELECTED_ROWS
    kind, delta = VarType.SELECTED_ROWS if sparse else shard.type, delta_name(shard.name)
    program.global_block().create_var(name=delta, persistable=False, type=kind, dtype=shard.dtype, shape=shard.shape)
    append(block, "sum", {"X": [shard.name, delta]}, {"Out": [shard.name]})
    return block


def _attributes(
    plan: DistributePlan, endpoint: str, blocks: list[Block], placements: list[Placement]
) -> dict[str, Any]:
    settings = plan.settings
    deltas = [(placement, delta_name(placement.parameter.name)) for placement in placements]
    sparse = [pair for pair in deltas if pair[0].gradient.type == VarType.SELECTED_ROWS]
    return {
        "optimize_blocks": blocks,
        "endpoint": endpoint,
        "Fanin": settings.trainers,
        "distributed_mode": int(settings.distributed_mode),
        "grad_to_block_id": [f"{delta}:{block.idx}" for (_, delta), block in zip(deltas, blocks, strict=True)],
        "sparse_grad_to_param": [f"{delta}:{placement.parameter.name}" for placement, delta in sparse],
        "rpc_get_thread_num": settings.threads.get,
        "rpc_send_thread_num": settings.threads.send,
        "rpc_prefetch_thread_num": settings.threads.prefetch,
    }
