"""Operators of startup programs that create rings of processes (Paddle 1.8.5 c_comm_init_op.cc, c_gen_nccl_id_op.cc)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, STRING, STRINGS, ints, required, strings
from fluidtool.ops.traits import Traits


@op(
    "c_gen_nccl_id",
    inputs="",
    outputs="Out",
    attrs={"endpoint": required(STRING), "other_endpoints": required(STRINGS), "rank": required(INT)},
    side_effects=True,
    traits=Traits(transpiled=True),
)
def c_gen_nccl_id(ctx: OpContext, *, endpoint: str, other_endpoints: list[str], rank: int) -> Any:
    """Out = the identifier of a new ring: rank 0 makes it and sends it to the others, which listen at their endpoints.

    other_endpoints: of the other ranks, in order (Paddle 1.8.5 c_gen_nccl_id_op.cc).
    """
    if not 0 <= rank <= len(other_endpoints):
        raise ctx.error(
            f"rank must be between 0 and {len(other_endpoints)} for {len(other_endpoints) + 1} endpoints, found {rank}"
        )
    endpoints = [*other_endpoints[:rank], endpoint, *other_endpoints[rank:]]
    return ctx.runtime.communicators.identify(ctx.op, ctx.op.output("Out")[0], endpoints, rank)


@op(
    "gen_nccl_id",
    inputs="",
    outputs="NCCLID",
    attrs={
        "trainers": strings(),
        "trainer_id": required(INT),
        "nccl_comm_num": 1,
        "use_hierarchical_allreduce": False,
        "hierarchical_allreduce_inter_nranks": 1,
    },
    side_effects=True,
    traits=Traits(transpiled=True),
)
def gen_nccl_id(ctx: OpContext, *, trainers: list[str], trainer_id: int) -> Any:
    """NCCLID = the identifier of the ring of all trainers, which a ParallelExecutor joins (Paddle 1.8.5 gen_nccl_id_op.cc).

    Further communicators, and groups for hierarchical sums, are not created: one ring is used for everything.
    """
    if not 0 <= trainer_id < len(trainers):
        raise ctx.error(
            f"trainer_id must be between 0 and {len(trainers) - 1} for {len(trainers)} trainers, found {trainer_id}"
        )
    return ctx.runtime.communicators.identify(ctx.op, ctx.op.output("NCCLID")[0], trainers, trainer_id)


@op(
    "c_comm_init",
    inputs="X",
    outputs="",
    attrs={"nranks": required(INT), "rank": required(INT), "ring_id": 0},
    side_effects=True,
    traits=Traits(transpiled=True),
)
def c_comm_init(ctx: OpContext, X: Any, *, nranks: int, rank: int) -> None:
    """Join ring `ring_id`, which the identifier X names, as `rank` of `nranks` (Paddle 1.8.5 c_comm_init_op.cc)."""
    if not 0 <= rank < nranks:
        raise ctx.error(f"rank must be between 0 and {nranks - 1} for {nranks} ranks, found {rank}")
    ctx.runtime.communicators.join(ctx.op, X, rank, nranks)


@op(
    "c_comm_init_all",
    inputs="",
    outputs="",
    attrs={"devices": ints(), "ring_id": 0},
    side_effects=True,
    traits=Traits(transpiled=True),
)
def c_comm_init_all(ctx: OpContext) -> None:
    """Make ring `ring_id` of all devices of this process (Paddle 1.8.5 c_comm_init_all_op.cc)."""
    ctx.runtime.communicators.join_devices(ctx.op)
