"""Asynchronous training with delay compensation (DC-ASGD): g + g * g * (parameter now - parameter that the trainer had)."""

from __future__ import annotations

from collections.abc import Iterator

from fluidtool.distribute.appending import append
from fluidtool.distribute.plan import DistributePlan, Share
from fluidtool.distribute.slicing import Piece
from fluidtool.ir import Block, Program, unique_name
from fluidtool.proto.enums import VarType

TRAINER_ID = "@TRAINER_ID@"


def backup_names(plan: DistributePlan, piece: Piece) -> list[str]:
    """What each trainer was last given of a piece, as the server keeps it."""
    return [f"{piece.name}.trainer_{trainer}_bak" for trainer in range(plan.settings.trainers)]


def backups(plan: DistributePlan, endpoint: str) -> Iterator[tuple[Piece, str]]:
    """Every (piece, backup) of a server."""
    for share in plan.shares_on(endpoint):
        yield from ((share.parameter, name) for name in backup_names(plan, share.parameter))


def declare_backups(block: Block, plan: DistributePlan, endpoint: str) -> None:
    """Declare the backups of a server."""
    for piece, name in backups(plan, endpoint):
        block.create_var(name=name, type=piece.type, shape=piece.shape, dtype=piece.dtype)


def fill_backups(startup: Program, plan: DistributePlan, endpoint: str) -> None:
    """In a server's startup program: backups start as copies."""
    for piece, name in backups(plan, endpoint):
        append(startup.global_block(), "assign", {"X": [piece.name]}, {"Out": [name]})


def compensate(block: Block, plan: DistributePlan, share: Share, gradient: str) -> str:
    """Append the compensation of a gradient; the name of the result."""
    piece = share.parameter
    backup = f"{piece.name}.local_bak"
    block.create_var(name=backup, shape=piece.shape, type=piece.type, dtype=piece.dtype)
    block.create_var(name=TRAINER_ID, type=VarType.LOD_TENSOR, dtype=VarType.INT64, shape=[1])
    inputs = {"X": backup_names(plan, piece), "TrainerId": [TRAINER_ID]}
    append(block, "ref_by_trainer_id", inputs, {"Out": [backup]})
    drift = _binary(block, piece, "elementwise_sub", piece.name, backup)
    scaled = _binary(block, piece, "elementwise_mul", drift, gradient)
    correction = _binary(block, piece, "elementwise_mul", scaled, gradient)
    return _binary(block, piece, "elementwise_add", gradient, correction)


def _binary(block: Block, piece: Piece, kind: str, x: str, y: str) -> str:
    name = unique_name.generate("tmp_dc_output")
    block.create_var(name=name, shape=piece.shape, type=piece.type, dtype=piece.dtype)
    append(block, kind, {"X": [x], "Y": [y]}, {"Out": [name]})
    return name
