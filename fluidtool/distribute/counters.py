"""Step counters of learning rates in asynchronous mode: every trainer counts, servers compute with the sum."""

from __future__ import annotations

from fluidtool.distribute.analysis import SCHEDULES, role_of
from fluidtool.distribute.appending import declare_like, insert, make
from fluidtool.distribute.plan import DistributePlan, counter_name
from fluidtool.ir import Operator, Program
from fluidtool.ir.roles import OpRole


def sum_counters(program: Program, plan: DistributePlan) -> None:
    """In a main program: the sum of all trainers' counters takes the place of the increment."""
    block = program.global_block()
    for position, op in enumerate(list(block.ops)):
        if op.type == "increment" and role_of(op) in SCHEDULES and op.output("Out")[0] in plan.counters:
            counter = op.output("Out")[0]
            names = _declare(program, plan, counter)
            del block.ops[position]
            added = make(block, "sum", {"X": names}, {"Out": [counter]}, role=int(OpRole.LRSched))
            insert(block, position, added)


def start_counters(program: Program, plan: DistributePlan) -> None:
    """In a startup program: each trainer's counter starts at 1, their sum at minus their number."""
    block = program.global_block()
    for counter in plan.counters:
        for op in block.ops:
            if op.type == "fill_constant" and op.output("Out") == [counter]:
                op.set_attr("value", -float(plan.settings.trainers))
        for name in _declare(program, plan, counter):
            insert(block, 0, _one(program, name))


def _declare(program: Program, plan: DistributePlan, counter: str) -> list[str]:
    block = program.global_block()
    var = block.var(counter)
    names = [counter_name(counter, trainer) for trainer in range(plan.settings.trainers)]
    for name in names:
        declare_like(block, var, name, persistable=var.persistable)
    return names


def _one(program: Program, name: str) -> Operator:
    block = program.global_block()
    var = block.var(name)
    attrs = {"shape": list(var.shape), "dtype": var.dtype, "value": 1.0, "force_cpu": False}
    return make(block, "fill_constant", {}, {"Out": [name]}, attrs)
