"""The MPI engine: every process of an MPI job (mpiexec, Slurm's srun) plays the role of its rank.

Servers have the first ranks, trainers the others; without servers rank and trainer are the same. MPI starts the processes,
places them and ends all when one fails, so there is no supervisor: a job that failed is started again with --resume.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fluidtool.distribute.collective.mpi import load_mpi
from fluidtool.distribute.launch.blueprint import Blueprint
from fluidtool.distribute.launch.contract import RESUME_STEP
from fluidtool.distribute.launch.hosts import own_address, own_endpoint, token_for
from fluidtool.distribute.launch.plans import Role, take_role
from fluidtool.distribute.launch.recovery import Recovery
from fluidtool.errors import Hint, UsageError

Play = Callable[[list[str]], int]


def run(blueprint: Blueprint, play: Play, folder: Path, *, recovery: Recovery, resume: bool) -> int:
    """Play the role of this rank; its exit code. A failure ends the whole MPI job with that code.

    play: runs words of fluidtool's command line in this process. folder: this rank's own, for programs that are moved.
    Raises UsageError where the job has another number of roles than MPI has processes.
    """
    processes = load_mpi().COMM_WORLD
    _check_size(blueprint, processes.Get_size())
    rank = processes.Get_rank()
    endpoints = _endpoints(blueprint, processes)
    token = processes.bcast(token_for(endpoints, os.environ) if rank == 0 else None)
    roles = blueprint.roles(endpoints, folder)
    steps = processes.bcast(recovery.newest(roles) if rank == 0 and resume else {})
    code = _play(roles[rank], play, steps.get(roles[rank].name), token)
    if code:
        processes.Abort(code)
    processes.Barrier()
    return code


def _check_size(blueprint: Blueprint, size: int) -> None:
    wanted = blueprint.servers + blueprint.trainers
    if wanted != size:
        raise UsageError(
            f"the job has {blueprint.servers} servers and {blueprint.trainers} trainers, but MPI has started {size} "
            f"process{'es' if size != 1 else ''}",
            hint=Hint(
                f"start it with: mpiexec -n {wanted}",
                f"start it with: mpiexec -n {wanted} fluidtool launch --engine mpi …",
            ),
        )


def _endpoints(blueprint: Blueprint, processes: Any) -> tuple[str, ...]:
    """Those of the ranks that listen, each at its own machine. Without servers MPI connects the ranks by itself, and the
    endpoints that the programs name are as good as any.
    """
    if not blueprint.servers and blueprint.endpoints:
        return blueprint.endpoints
    own = own_address()
    addresses: Sequence[str] = processes.allgather(own)
    found: Sequence[str] = processes.allgather(own_endpoint(addresses, own))
    return tuple(found[: blueprint.listeners])


def _play(role: Role, play: Play, step: int | None, token: dict[str, str]) -> int:
    resumed = {} if step is None else {RESUME_STEP: str(step)}
    take_role(role, token | resumed)
    try:
        return play(list(role.words))
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
