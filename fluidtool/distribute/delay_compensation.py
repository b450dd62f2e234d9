"""Asynchronous training with delay compensation (DC-ASGD): g + g * g * (parameter now - parameter that the trainer had)."""

from __future__ import annotations

from collections.abc import Iterator

from fluidtool.distribute.appending import append
from fluidtool.distribute.plan import DistributePlan, Placement
from fluidtool.distribute.sharding import Shard
from fluidtool.ir import Block, Program, unique_name
from fluidtool.proto.enums import VarType

TRAINER_ID = "@TRAINER_ID@"


def backup_names(plan: DistributePlan, shard: Shard) -> list[str]:
    """What each trainer was last given of a shard, as the server keeps it."""
    return [f"{shard.name}.trainer_{trainer}_bak" for trainer in range(plan.settings.trainers)]


def backups(plan: DistributePlan, endpoint: str) -> Iterator[tuple[Shard, str]]:
    """Every (shard, backup) of a server."""
    for placement in plan.placements_on(endpoint):
        yield from ((placement.parameter, name) for name in backup_names(plan, placement.parameter))


def declare_backups(block: Block, plan: DistributePlan, endpoint: str) -> None:
    """Declare the backups of a server."""
    for shard, name in backups(plan, endpoint):
        block.create_var(name=name, type=shard.type, shape=shard.shape, dtype=shard.dtype)


def fill_backups(startup: Program, plan: DistributePlan, endpoint: str) -> None:
    """In a server's startup program: backups start as copies."""
    for shard, name in backups(plan, endpoint):
        append(startup.global_block(), "assign", {"X": [shard.name]}, {"Out": [name]})


def compensate(block: Block, plan: DistributePlan, placement: Placement, gradient: str) -> str:
    """Append the compensation of a gradient; the name of the result."""
    shard = placement.parameter
    backup = f"{shard.name}.local_bak"
    block.create_var(name=backup, shape=shard.shape, type=shard.type, dtype=shard.dtype)
    block.create_var(name=TRAINER_ID, type=VarType.LOD_TENSOR, dtype=VarType.INT64, shape=[1])
    inputs = {"X": backup_names(plan, shard), "TrainerId": [TRAINER_ID]}
    append(block, "ref_by_trainer_id", inputs, {"Out": [backup]})
    drift = _binary(block, shard, "elementwise_sub", shard.name, backup)
    scaled = _binary(block, shard, "elementwise_mul", drift, gradient)
    correction = _binary(block, shard, "elementwise_mul", scaled, gradient)
    return _binary(block, shard, "elementwise_add", gradient, correction)


def _binary(block: Block, shard: Shard, kind: str, x: str, y: str) -> str:
    name = unique_name.generate("tmp_dc_output")
    block.create_var(name=name, shape=shard.shape, type=shard.type, dtype=shard.dtype)
    append(block, kind, {"X": [x], "Y": [y]}, {"Out": [name]})
    return name
