"""A server's main program: `listen_and_serv`, and a block of optimizer operators for each shard that lives here."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from fluidtool.distribute import server_table
from fluidtool.distribute.analysis import SCHEDULES, cut_inputs, is_update, role_of, role_vars
from fluidtool.distribute.appending import append, append_copy, copy_distribution_fields, declare_shard
from fluidtool.distribute.counters import sum_counters
from fluidtool.distribute.delay_compensation import compensate, declare_backups
from fluidtool.distribute.plan import DistributePlan, Placement
from fluidtool.distribute.server import Server
from fluidtool.errors import UsageError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.roles import ROLE_VAR_ATTR
from fluidtool.ir.surgery import copy_program
from fluidtool.proto.enums import VarType

BETAS = ("Beta1Tensor", "Beta2Tensor")


def check_server(plan: DistributePlan, endpoint: str) -> None:
    """Raises UsageError for an endpoint that is none of the job's servers."""
    if endpoint not in plan.settings.servers:
        raise UsageError(
            f"{endpoint!r} is not a parameter server of this job; expected one of {', '.join(plan.settings.servers)} (pservers=)"
        )


def build_server_main(plan: DistributePlan, source: Program, transpiled: Program, endpoint: str) -> Program:
    """The main program of one server.

    source: the main program from before it was transpiled. transpiled: the transpiled one, whose notes on the distribution are
    taken over. Raises UsageError for an endpoint that is no server of the job.
    """
    check_server(plan, endpoint)
    server = Server(plan, _with_counters(plan, source), endpoint)
    server.program.random_seed = source.random_seed
    copy_distribution_fields(server.program, transpiled)
    inputs = _declare_placements(server)
    if plan.settings.dc_asgd:
        declare_backups(server.globals, plan, endpoint)
    schedule = _schedule_block(server)
    before = server.program.num_blocks - 1
    for op in _updates_here(server):
        _optimize_block(server, op, before)
    table_attrs = server_table.add_table(server, before) if plan.table else {}
    if not server.blocks:
        warnings.warn(f"pserver {endpoint} has no optimize block: there are more servers than shards", stacklevel=3)
        server.new_block(server.program.num_blocks - 1)
    attrs = {**_attributes(server, schedule), **table_attrs}
    append(server.globals, "listen_and_serv", {"X": inputs}, {}, attrs)
    server.program.current_block_idx = 0
    return server.program


def _with_counters(plan: DistributePlan, source: Program) -> Program:
    if not plan.counters:
        return source
    copy = copy_program(source)
    sum_counters(copy, plan)
    return copy


def _attributes(server: Server, schedule: int) -> dict[str, Any]:
    settings = server.plan.settings
    attrs = {
        "optimize_blocks": server.blocks,
        "endpoint": server.endpoint,
        "pserver_id": server.index,
        "Fanin": settings.trainers,
        "distributed_mode": int(settings.distributed_mode),
        "grad_to_block_id": list(dict.fromkeys(server.gradient_blocks)),
        "sparse_grad_to_param": server.sparse_gradients,
        "lr_decay_block_id": schedule,
        "rpc_get_thread_num": settings.threads.get,
        "rpc_send_thread_num": settings.threads.send,
        "rpc_prefetch_thread_num": settings.threads.prefetch,
    }
    return {**attrs, "dc_asgd": True} if settings.dc_asgd else attrs


# ---------------------------------------------------------------- variables
def _declare_placements(server: Server) -> list[str]:
    """Declare the shards that live here, and what arrives for them; the names of what arrives."""
    block, settings, inputs = server.globals, server.plan.settings, []
    placements = server.plan.placements_on(server.endpoint)
    for placement in placements:
        declare_shard(block, placement.parameter, persistable=True)
    for placement in placements:
        declare_shard(block, placement.gradient.renamed(placement.merged), persistable=True)
        names = trainer_names(server, placement.merged)
        for name in names:
            declare_shard(block, placement.gradient.renamed(name))
        inputs += names if settings.merges else [placement.merged]
    return inputs


def trainer_names(server: Server, merged: str) -> list[str]:
    """A gradient as each trainer sends it; none where gradients are taken as they come."""
    settings = server.plan.settings
    return [f"{merged}.trainer_{trainer}" for trainer in range(settings.trainers)] if settings.merges else []


# ---------------------------------------------------------------- learning rates
def _schedule_block(server: Server) -> int:
    """Clone the operators that compute learning rates into a block; its index, or -1."""
    ops = [op for op in server.source.global_block().ops if role_of(op) in SCHEDULES]
    if not ops:
        return -1
    block = server.new_block(server.program.num_blocks - 1)
    for op in ops:
        changed = _clone_sub_block(server, op, block)
        append_copy(block, op, *renamed_slots(op, server.local_name), changed)
    return block.idx


def _clone_sub_block(server: Server, op: Operator, parent: Block) -> dict[str, Any]:
    """Clone the block of a branch with what it mentions; the attribute that names it."""
    if not op.has_attr("sub_block"):
        return {}
    origin = server.source.block(op.block_attr_id("sub_block"))
    block = server.program.create_block(parent.idx)
    for var in origin.vars.values():
        block.clone_variable(var, False)
    for inner in origin.ops:
        for name in (*inner.input_arg_names, *inner.output_arg_names):
            if name not in block.vars:
                block.clone_variable(origin.var_recursive(name))
        changed = _clone_sub_block(server, inner, block)
        append_copy(block, inner, inner.inputs, inner.outputs, changed)
    return {"sub_block": block}


def renamed_slots(op: Operator, rename: Callable[[str], str]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The inputs and outputs of an operator with other names."""
    inputs, outputs = (
        {slot: [rename(name) for name in names] for slot, names in slots.items()} for slots in (op.inputs, op.outputs)
    )
    return inputs, outputs


# ---------------------------------------------------------------- optimizers
def _updates_here(server: Server) -> list[Operator]:
    ops = server.source.global_block().ops
    updates = [ops[position] for position in server.plan.analysis.optimizers if is_update(ops[position])]
    return [op for op in updates if op.input("Param")[0] in server.placements]


def _optimize_block(server: Server, update: Operator, parent: int) -> None:
    """A block for one parameter: merge the trainers' gradients, then its optimizer operators in their order."""
    name = update.input("Param")[0]
    placement, block = server.placements[name], server.new_block(parent)
    server.gradient_blocks.append(f"{placement.merged}:{block.idx}")
    _merge_gradients(server, block, placement.merged)
    for op in server.work[name]:
        if is_update(op):
            _append_update(server, block, op, placement)
        else:
            slots = renamed_slots(op, lambda each: server.local_name(each, placement))
            append_copy(block, op, *slots, _roles(server, op))


def _merge_gradients(server: Server, block: Block, merged: str) -> None:
    """The mean of what the trainers sent."""
    names = trainer_names(server, merged)
    if names:
        append(block, "sum", {"X": names}, {"Out": [merged]}, {"use_mkldnn": False})
        append(block, "scale", {"X": [merged]}, {"Out": [merged]}, {"scale": 1.0 / server.plan.settings.trainers})


def _roles(server: Server, op: Operator) -> dict[str, Any]:
    """op_role_var with the names that the trainer's program has."""
    return {ROLE_VAR_ATTR: [server.sent_names.get(name, name) for name in role_vars(op)]}


def _append_update(server: Server, block: Block, op: Operator, placement: Placement) -> None:
    """The optimizer operator itself, on the shard; accumulators keep their names."""
    gradient = _gradient_for(server, op, placement)
    if server.plan.settings.dc_asgd:
        gradient = compensate(block, server.plan, placement, gradient)
    inputs = {}
    for slot, names in op.inputs.items():
        if slot == "Param":
            inputs[slot] = [placement.parameter.name]
        elif slot == "Grad":
            inputs[slot] = [gradient]
        elif slot == "LearningRate":
            inputs[slot] = [_declare_plain(server, names[0])]
        elif slot not in BETAS and names:
            inputs[slot] = [_declare_accumulator(server, op, slot, placement)]
    outputs = {**op.outputs, "ParamOut": [placement.parameter.name]}
    append_copy(block, op, inputs, outputs, _roles(server, op))
    if block.var_recursive(gradient).type == VarType.SELECTED_ROWS:
        server.sparse_gradients.append(f"{gradient}:{placement.parameter.name}")


def _gradient_for(server: Server, op: Operator, placement: Placement) -> str:
    """The merged gradient, or what an earlier operator of the block made of it under a name of its own."""
    name = op.input("Grad")[0]
    return name if name not in server.names and name in server.globals.vars else placement.merged


def _declare_plain(server: Server, name: str) -> str:
    if name not in server.globals.vars:
        var = server.origin(name)
        server.globals.create_var(name=name, persistable=var.persistable, dtype=var.dtype, shape=var.shape)
    return name


def _declare_accumulator(server: Server, op: Operator, slot: str, placement: Placement) -> str:
    """Declare an accumulator, cut like the parameter where it has its shape."""
    name = op.input(slot)[0]
    var = server.origin(name)
    shape = placement.parameter.shape if slot in cut_inputs(op) else var.shape
    server.globals.create_var(name=name, persistable=var.persistable, dtype=var.dtype, shape=shape)
    return name
