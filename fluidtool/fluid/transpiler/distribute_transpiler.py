"""DistributeTranspiler (Paddle 0.12 to 2.1, their arguments together): the programs of a distributed job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.distribute.collective.mpi import is_started_by_mpi
from fluidtool.distribute.collective.programs import THREADS, CollectivePlan, shared_parameters, transpile_collective
from fluidtool.distribute.dispatchers import PSDispatcher, RoundRobin
from fluidtool.distribute.endpoints import parse_endpoints
from fluidtool.distribute.geo import GeoJob, transpile_for_geo
from fluidtool.distribute.job import ServerJob, transpile_for_servers
from fluidtool.distribute.nccl import NcclPlan, transpile_for_nccl
from fluidtool.distribute.plan import DistributePlan
from fluidtool.distribute.settings import DistributedMode, Settings, check_dispatcher, check_min_block_size
from fluidtool.distribute.sharding import row_counts
from fluidtool.distribute.waiting import wait_until_ready
from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.framework import default_main_program, default_startup_program
from fluidtool.fluid.places import cuda_device_count
from fluidtool.fluid.transpiler.distribute_config import (
    DistributeTranspilerConfig,
    ServerRuntimeConfig,
    check_config,
)
from fluidtool.ir import Program, Variable

MODES = ("pserver", "nccl2", "collective")
ENDPOINT = "127.0.0.1:6174"


def slice_variable(var_list: Sequence[Variable], slice_count: int, min_block_size: int) -> list[str]:
    """The shards of variables as texts "name:number:elements": whole rows, at least min_block_size elements each."""
    return [
        f"{var.name}:{number}:{rows * prod(var.shape[1:])}"
        for var in var_list
        for number, rows in enumerate(row_counts(var.shape, slice_count, min_block_size))
    ]


class DistributeTranspiler:
    """Converts a training program into the programs of a job with parameter servers, or of one that sums gradients.

    config: a DistributeTranspilerConfig, whose mode is "pserver" (default), "nccl2" or "collective". `transpile` rewrites
    the given programs in place for a trainer; the other methods return the programs of each role. `plan` is which shard
    of which parameter lives where. Raises ArgumentTypeError or UsageError for an invalid config.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        self.config = DistributeTranspilerConfig() if config is None else check_config(config)
        if self.config.split_method is None:
            self.config.split_method = RoundRobin
        check_min_block_size(self.config.min_block_size)
        check_dispatcher(self.config.split_method)
        self.server_config = ServerRuntimeConfig()
        self._job: ServerJob | GeoJob | None = None

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str | Sequence[str] = ENDPOINT,
        trainers: int | str | Sequence[str] | None = None,
        sync_mode: bool | None = None,
        startup_program: Program | type[PSDispatcher] | None = None,
        current_endpoint: str | bool = ENDPOINT,
        *,
        workers: int | str | Sequence[str] | None = None,
        slice_var_up: bool | None = None,
        split_method: type[PSDispatcher] | None = None,
    ) -> None:
        """Rewrite `program` and `startup_program` (default: the default programs) in place.

        pservers: endpoints, "host:port,host:port". trainers (or workers): their number (default 1); in the modes nccl2 and
        collective their endpoints, of which `current_endpoint` is this one. sync_mode, slice_var_up, split_method: by
        default the config's; by position, after trainers, these three may also come in this order, as before
        Paddle 0.15. Raises UsageError, ProgramError or ArgumentTypeError before any change.
        """
        if isinstance(startup_program, type):
            slice_var_up, split_method, startup_program = sync_mode, startup_program, None
            sync_mode = current_endpoint if isinstance(current_endpoint, bool) else True
            current_endpoint = ENDPOINT
        if not isinstance(current_endpoint, str):
            raise ArgumentTypeError(f"current_endpoint takes text, found {type(current_endpoint).__name__}")
        main = default_main_program() if program is None else program
        startup = default_startup_program() if startup_program is None else startup_program
        for what, given in (("program", main), ("startup_program", startup)):
            if not isinstance(given, Program):
                raise ArgumentTypeError(f"{what} takes a Program, found {type(given).__name__}")
        count = _one_of(trainers, workers)
        if self.config.mode == "nccl2":
            self._transpile_nccl2(main, startup, trainer_id, count, current_endpoint)
        elif self.config.mode == "collective":
            self._transpile_collective(main, startup, trainer_id, count, current_endpoint)
        elif self.config.mode == "pserver":
            settings = self._settings(
                trainer_id, pservers, count, sync_mode, current_endpoint, slice_var_up, split_method
            )
            self._job = (transpile_for_geo if settings.geo else transpile_for_servers)(main, startup, settings)
        else:
            raise UsageError(f"config.mode must be one of {', '.join(MODES)}, found {self.config.mode!r}")

    @property
    def plan(self) -> DistributePlan:
        """Which shard of which parameter lives where (pserver mode); raises UsageError before `transpile`."""
        return self._transpiled().plan

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """The trainer's main program (the object that was transpiled); the startup program is then complete too.

        wait_port: wait until every server listens.
        """
        job = self._transpiled()
        program = job.finish_trainer()
        if wait_port:
            wait_until_ready(job.plan.settings.servers)
        return program

    def get_pserver_program(self, endpoint: str) -> Program:
        """The main program of the server at this endpoint; raises UsageError if there is none."""
        return self._transpiled().server_main(endpoint)

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """The main and the startup program of a server."""
        main = self.get_pserver_program(endpoint)
        return main, self.get_startup_program(endpoint, main)

    def get_startup_program(
        self, endpoint: str, pserver_program: Program | None = None, startup_program: Program | None = None
    ) -> Program:
        """The startup program of a server. startup_program is ignored, kept for old scripts: the transpiled one is used."""
        return self._transpiled().server_startup(endpoint, pserver_program)

    # -- inside
    def _transpiled(self) -> ServerJob | GeoJob:
        if self._job is None:
            raise UsageError("call transpile() first, in pserver mode: the other modes only rewrite the programs given")
        return self._job

    def _settings(
        self,
        trainer_id: int,
        pservers: str | Sequence[str],
        trainers: Any,
        sync_mode: bool | None,
        current_endpoint: str,
        slice_var_up: bool | None,
        split_method: type[PSDispatcher] | None,
    ) -> Settings:
        config = self.config
        sync = config.sync_mode if sync_mode is None else bool(sync_mode)
        return Settings(
            trainer_id=trainer_id,
            trainers=1 if trainers is None else trainers,
            servers=parse_endpoints(pservers, "pservers"),
            sync=sync and not config.geo_sgd_mode,
            slice_variables=bool(config.slice_var_up if slice_var_up is None else slice_var_up),
            min_block_size=config.min_block_size,
            dispatcher=split_method or config.split_method or RoundRobin,
            runtime_split=bool(config.runtime_split_send_recv),
            half_async=bool(config.half_async),
            completely_not_async=bool(config.completely_not_async),
            dc_asgd=bool(config.enable_dc_asgd),
            geo=bool(config.geo_sgd_mode),
            current_endpoint=current_endpoint,
            threads=self.server_config.threads(),
        )

    def _transpile_nccl2(self, main: Program, startup: Program, trainer_id: int, trainers: Any, endpoint: str) -> None:
        config = self.config
        inner = config.hierarchical_allreduce_inter_nranks
        if config.use_hierarchical_allreduce and inner <= 1:
            inner = config.hierarchical_allreduce_inter_nranks = cuda_device_count()
        plan = NcclPlan(
            trainer_id,
            parse_endpoints(_endpoints(trainers, "nccl2"), "trainers"),
            endpoint,
            config.nccl_comm_num,
            bool(config.use_hierarchical_allreduce),
            inner,
        )
        transpile_for_nccl(main, startup, plan)
        if trainer_id == 0 and config.wait_port and not is_started_by_mpi(os.environ):
            wait_until_ready(plan.others)

    def _transpile_collective(self, main: Program, startup: Program, rank: int, trainers: Any, endpoint: str) -> None:
        config = self.config
        endpoints = parse_endpoints(_endpoints(trainers, "collective"), "trainers")
        plan = CollectivePlan(
            str(config.collective_mode),
            rank,
            endpoints,
            endpoint,
            1 if config.collective_mode == THREADS else config.nccl_comm_num,
            shared_parameters(main, startup),
        )
        transpile_collective(main, startup, plan)
        if rank == 0 and config.wait_port and not is_started_by_mpi(os.environ):
            wait_until_ready(plan.others)


def _one_of(trainers: Any, workers: Any) -> Any:
    if trainers is not None and workers is not None and trainers != workers:
        raise UsageError(f"trainers={trainers!r} and workers={workers!r} are the same argument; pass only one of them")
    return workers if trainers is None else trainers


def _endpoints(trainers: Any, mode: str) -> Any:
    if trainers is None or isinstance(trainers, int):
        raise ArgumentTypeError(
            f"in {mode} mode trainers takes the endpoints of all trainers, such as 10.0.0.1:6174,10.0.0.2:6174; "
            f"found {trainers!r}"
        )
    return trainers


__all__ = ["DistributeTranspiler", "DistributeTranspilerConfig", "DistributedMode", "ServerRuntimeConfig"]
