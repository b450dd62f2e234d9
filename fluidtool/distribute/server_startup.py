"""A server's startup program: first values for what lives there."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.distribute.appending import append_copy
from fluidtool.distribute.counters import start_counters
from fluidtool.distribute.delay_compensation import fill_backups
from fluidtool.distribute.plan import DistributePlan
from fluidtool.distribute.sharding import Shard
from fluidtool.errors import ProgramError
from fluidtool.ir import Operator, Program
from fluidtool.ir.surgery import copy_program

SHAPED = ("gaussian_random", "fill_constant", "uniform_random", "truncated_gaussian_random")
VALUES = ("fp32_values", "int32_values", "int64_values", "bool_values")


def build_server_startup(plan: DistributePlan, source: Program, server_main: Program, endpoint: str) -> Program:
    """The startup program of one server. source: the startup program from before it was transpiled.

    Raises ProgramError where a first value is computed from something that the server does not have.
    """
    source = copy_program(source)
    start_counters(source, plan)
    program = Program()
    program.random_seed = source.random_seed
    block = program.global_block()
    for var in server_main.global_block().vars.values():
        block.clone_variable(var)
    shards = {
        placement.parameter.parameter: placement.parameter for placement in reversed(plan.placements_on(endpoint))
    }
    cut = {name: shard for name, shard in shards.items() if shard.cut}
    for op in source.global_block().ops:
        outputs = {slot: _here(names, cut, program) for slot, names in op.outputs.items()}
        outputs = {slot: names for slot, names in outputs.items() if names}
        if outputs:
            _check_inputs(op, program)
            append_copy(block, op, op.inputs, outputs, _attributes(op, cut, outputs, program))
    if plan.settings.dc_asgd:
        fill_backups(program, plan, endpoint)
    return program


def _here(names: list[str], cut: dict[str, Shard], program: Program) -> list[str]:
    """What an output is called on this server; [] when it does not live here."""
    if names and names[0] in cut:
        return [cut[names[0]].name]
    return list(names) if names and names[0] in program.global_block().vars else []


def _attributes(op: Operator, cut: dict[str, Shard], outputs: dict[str, list[str]], program: Program) -> dict[str, Any]:
    """The attributes that give a shard its own shape and, where they are listed, its own values."""
    if op.type in SHAPED:
        return {"shape": list(program.global_block().var(outputs["Out"][0]).shape)}
    shard = next((cut[name] for name in op.output_arg_names if name in cut), None)
    if op.type != "assign_value" or shard is None:
        return {}
    first, last = shard.offset, shard.offset + prod(shard.shape)
    values = {name: op.attr(name)[first:last] for name in VALUES if op.get_attr(name)}
    return {"shape": list(shard.shape), **values}


def _check_inputs(op: Operator, program: Program) -> None:
    for name in op.input_arg_names:
        if name not in program.global_block().vars:
            raise ProgramError(
                f"{op.type} computes the first value of {op.output_arg_names[0]} from {name}, which is not on the "
                f"server; give the parameter a plain initializer"
            )
