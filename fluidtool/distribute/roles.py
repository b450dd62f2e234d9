"""The programs of every role of a job, from copies: nothing that is given is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fluidtool.distribute.collective.programs import CollectivePlan, transpile_collective
from fluidtool.distribute.geo import transpile_for_geo
from fluidtool.distribute.job import transpile_for_servers
from fluidtool.distribute.nccl import NcclPlan, transpile_for_nccl
from fluidtool.distribute.settings import Settings
from fluidtool.ir import Program, unique_name
from fluidtool.ir.surgery import copy_program
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class RolePrograms:
    """What one process runs: role "trainer" or "pserver", its number, its endpoint ("" for trainers of servers)."""

    role: str
    index: int
    endpoint: str
    main: Program
    startup: Program

    @property
    def name(self) -> str:
        """ "trainer_0", "pserver_1" …"""
        return f"{self.role}_{self.index}"


def trainer_programs(
    main: Program, startup: Program, settings: Settings, trainers: Sequence[int]
) -> Iterator[RolePrograms]:
    """Of a job with parameter servers: the programs of these trainers."""
    for trainer in trainers:
        own = copy_program(main), copy_program(startup)
        transpile = transpile_for_geo if settings.geo else transpile_for_servers
        with unique_name.guard():
            job = transpile(*own, replace(settings, trainer_id=trainer))
            yield RolePrograms("trainer", trainer, "", job.finish_trainer(), own[1])


def server_programs(
    main: Program, startup: Program, settings: Settings, servers: Sequence[str]
) -> Iterator[RolePrograms]:
    """Of a job with parameter servers: the programs of the servers with these endpoints."""
    for endpoint in servers:
        own = copy_program(main), copy_program(startup)
        transpile = transpile_for_geo if settings.geo else transpile_for_servers
        with unique_name.guard():
            job = transpile(*own, replace(settings, trainer_id=0, current_endpoint=endpoint))
            made = job.server_main(endpoint)
            index = settings.servers.index(endpoint)
            yield RolePrograms("pserver", index, endpoint, made, job.server_startup(endpoint, made))


def peer_programs(main: Program, startup: Program, plan: NcclPlan | CollectivePlan) -> RolePrograms:
    """Of a job without servers: the programs of the trainer that the plan is for."""
    own = copy_program(main), copy_program(startup)
    with unique_name.guard():
        if isinstance(plan, NcclPlan):
            transpile_for_nccl(*own, plan)
            return RolePrograms("trainer", plan.trainer_id, plan.current_endpoint, *own)
        transpile_collective(*own, plan)
    return RolePrograms("trainer", plan.rank, plan.current_endpoint, *own)
