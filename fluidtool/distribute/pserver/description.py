"""What `listen_and_serv` says of a server, in any version's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluidtool.distribute.settings import DistributedMode
from fluidtool.errors import ProgramError
from fluidtool.ir import Operator
from fluidtool.records import dataclass

NONE = -1


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """The attributes of `listen_and_serv`; blocks by their index, -1 where there is none.

    gradient_blocks: which block a gradient is for. prefetch_blocks: which block looks the ids of this name up.
    tables: the parameter of each sparse gradient. inputs: what arrives in a synchronous job.
    """

    endpoint: str
    trainers: int
    mode: DistributedMode
    index: int
    optimize_blocks: tuple[int, ...]
    gradient_blocks: Mapping[str, int]
    prefetch_blocks: Mapping[str, int]
    tables: Mapping[str, str]
    schedule_block: int
    checkpoint_block: int
    dc_asgd: bool
    inputs: tuple[str, ...]

    @property
    def is_sync(self) -> bool:
        """Whether a round ends when all trainers have sent."""
        return self.mode == DistributedMode.SYNC


def describe_server(op: Operator) -> ServerDescription:
    """Read the operator; raises ProgramError for what cannot work."""
    blocks = op.get_attr("optimize_blocks") or [op.attr("OptimizeBlock")]  # the latter in Fluid 0.13
    trainers = int(op.get_attr("Fanin", 1))
    if trainers < 1:
        raise ProgramError(f"Fanin of listen_and_serv, its number of trainers, must be at least 1, found {trainers}")
    count = op.block.program.num_blocks
    description = ServerDescription(
        endpoint=str(op.attr("endpoint")),
        trainers=trainers,
        mode=_mode(op),
        index=int(op.get_attr("pserver_id", NONE)),
        optimize_blocks=tuple(int(index) for index in blocks),
        gradient_blocks=_numbers(op, "grad_to_block_id"),
        prefetch_blocks=_numbers(op, "prefetch_var_name_to_block_id"),
        tables=dict(_pairs(op, "sparse_grad_to_param")),
        schedule_block=int(op.get_attr("lr_decay_block_id", NONE)),
        checkpoint_block=int(op.get_attr("checkpint_block_id", NONE)),
        dc_asgd=bool(op.get_attr("dc_asgd", False)),
        inputs=tuple(op.input("X")),
    )
    named = (*description.optimize_blocks, *description.gradient_blocks.values(), *description.prefetch_blocks.values())
    for index in (*named, description.schedule_block, description.checkpoint_block):
        if not (index == NONE or 0 < index < count):
            raise ProgramError(f"listen_and_serv names block {index}; the program has blocks 0 to {count - 1}")
    return description


def _mode(op: Operator) -> DistributedMode:
    """Up to Fluid 1.6 there is only sync_mode."""
    mode = int(op.get_attr("distributed_mode", DistributedMode.SYNC))
    if mode == DistributedMode.SYNC and not op.get_attr("sync_mode", True):
        return DistributedMode.ASYNC
    try:
        return DistributedMode(mode)
    except ValueError:
        raise ProgramError(
            f"distributed_mode of listen_and_serv must be 0 (sync), 1 (async), 2 (half-async) or 3 (geo), found {mode}"
        ) from None


def _numbers(op: Operator, attribute: str) -> dict[str, int]:
    return {name: int(number) for name, number in _pairs(op, attribute)}


def _pairs(op: Operator, attribute: str) -> Iterable[tuple[str, str]]:
    """The entries "name:value" of an attribute."""
    for entry in op.get_attr(attribute, []):
        name, colon, value = entry.rpartition(":")
        if not (colon and name and value and (value.isdecimal() or attribute == "sparse_grad_to_param")):
            raise ProgramError(f"{attribute} of listen_and_serv must list name:value, found {entry!r}")
        yield name, value
