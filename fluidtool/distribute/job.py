"""One transpilation for parameter servers: the plan, the programs given, and the programs made."""

from __future__ import annotations

from typing import Protocol

from fluidtool.distribute.plan import DistributePlan
from fluidtool.distribute.planning import make_plan
from fluidtool.distribute.remote_variables import remote_variables
from fluidtool.distribute.server_main import build_server_main, check_server
from fluidtool.distribute.server_startup import build_server_startup
from fluidtool.distribute.settings import Settings
from fluidtool.distribute.trainer_main import build_trainer_main
from fluidtool.distribute.trainer_startup import build_trainer_startup, finish_trainer
from fluidtool.ir import Program
from fluidtool.ir.surgery import copy_program
from fluidtool.records import dataclass


class Job(Protocol):
    """What a transpilation for parameter servers offers, whatever its mode."""

    def finish_trainer(self) -> Program:
        """The trainer's main program, complete; the startup program is then complete as well."""

    def server_main(self, endpoint: str) -> Program:
        """The main program of a server; raises UsageError for an endpoint that is none."""

    def server_startup(self, endpoint: str, server_main: Program | None = None) -> Program:
        """The startup program of a server."""


@dataclass(frozen=True, slots=True)
class ServerJob:
    """A job whose servers optimize. main and startup are rewritten in place; copies of both are kept as they were."""

    plan: DistributePlan
    main: Program
    startup: Program
    source_main: Program
    source_startup: Program

    def finish_trainer(self) -> Program:
        """The trainer's main program, complete; the startup program is then complete as well."""
        finish_trainer(self.main, self.startup, self.plan)
        return self.main

    def server_main(self, endpoint: str) -> Program:
        """The main program of a server; raises UsageError for an endpoint that is none."""
        return build_server_main(self.plan, self.source_main, self.main, endpoint)

    def server_startup(self, endpoint: str, server_main: Program | None = None) -> Program:
        """The startup program of a server, for its main program if that is given."""
        check_server(self.plan, endpoint)
        main = server_main or self.server_main(endpoint)
        return build_server_startup(self.plan, self.source_startup, main, endpoint)


def transpile_for_servers(main: Program, startup: Program, settings: Settings) -> ServerJob:
    """Plan, and rewrite both programs for the trainer. Raises what `make_plan` raises, before anything is changed."""
    plan = make_plan(main, startup, settings)
    job = ServerJob(plan, main, startup, copy_program(main), copy_program(startup))
    build_trainer_main(main, plan)
    build_trainer_startup(startup, plan)
    note_distribution(main, settings, plan.table.name if plan.table else None)
    main._parameters_on_pservers = remote_variables(plan, job.source_main)
    return job


def note_distribution(main: Program, settings: Settings, table: str | None) -> None:
    """What a program says of its own distribution; saving and loading read it."""
    main._is_distributed = True
    main._endpoints = list(settings.servers)
    main._ps_endpoint = settings.current_endpoint
    main._is_chief = settings.trainer_id == 0
    main._distributed_lookup_table = table
