"""The fleet with parameter servers: DistributeTranspiler and Communicator under one interface (Paddle 1.8.5)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from fluidtool.distribute.appending import copy_distribution_fields
from fluidtool.errors import ArgumentTypeError, ModelNotFoundError, UsageError
from fluidtool.fluid import io
from fluidtool.fluid.communicator import Communicator
from fluidtool.fluid.compiler import CompiledProgram
from fluidtool.fluid.executor import Executor
from fluidtool.fluid.framework import default_main_program, default_startup_program
from fluidtool.fluid.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet, Mode, check_executor
from fluidtool.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    AsyncStrategy,
    DistributedStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    StrategyFactory,
    SyncStrategy,
    TrainerRuntimeConfig,
)
from fluidtool.fluid.optimizer.base import Optimizer, ParamGrad
from fluidtool.fluid.transpiler.distribute_config import DistributeTranspilerConfig, ServerRuntimeConfig
from fluidtool.fluid.transpiler.distribute_transpiler import ENDPOINT, DistributeTranspiler
from fluidtool.fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler
from fluidtool.ir import Operator, Program, Variable

__all__ = [
    "AsyncStrategy",
    "DistributeTranspilerConfig",
    "DistributedStrategy",
    "DistributedTranspiler",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "ServerRuntimeConfig",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
    "TranspilerOptimizer",
    "fleet",
]


T = TypeVar("T")


class DistributedTranspiler(Fleet):
    """A job whose parameters live on servers.

    After `distributed_optimizer(…).minimize(loss)`, main_program and startup_program are those of this role.
    """

    def __init__(self) -> None:
        super().__init__(Mode.TRANSPILER)
        self._transpile_config: DistributedStrategy | None = None
        self._communicator: Communicator | None = None
        self.vars_info: dict[str, Any] = {}

    def init_worker(self) -> None:
        """Begin to exchange gradients and parameters; call it before the startup program runs."""
        strategy = self._minimized(self._transpile_config)
        assert strategy.mode is not None  # DistributedStrategy itself cannot be made
        if self._communicator is None or not self._communicator.is_running():
            flags = strategy.get_trainer_runtime_config().get_communicator_flags()
            given = self._of_communicator(strategy)
            assert strategy.mode is not None  # its program was transpiled, which the base class refuses
            self._communicator = Communicator(self.main_program, strategy.mode, given, flags)
            self._communicator.start()

    def init_server(self, model_dir: str | None = None) -> None:
        """Make this server's parameters, or load them from what `save_persistables` wrote."""
        executor = self._running()
        executor.run(self._minimized(self.startup_program))
        if model_dir:
            if not os.path.isdir(model_dir):
                raise ModelNotFoundError(f"There is no directory named '{model_dir}'")
            io.load_persistables(executor, model_dir, self.main_program)

    def run_server(self) -> None:
        """Serve until all workers are done."""
        self._running().run(self._minimized(self.main_program))

    def stop_worker(self) -> None:
        """Send what is left, and tell the servers that this worker is done."""
        if self._communicator is not None:
            self._communicator.stop()
        self._running().close()

    def distributed_optimizer(self, optimizer: Optimizer, strategy: Any = None) -> TranspilerOptimizer:
        """The optimizer; strategy: of StrategyFactory (default: sync), or a DistributeTranspilerConfig.

        Raises ArgumentTypeError, and UsageError before `init`.
        """
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(f"optimizer must be an instance of Optimizer, found {type(optimizer).__name__}")
        self._running()
        self._optimizer = found = TranspilerOptimizer(optimizer, strategy)
        return found

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str],
        target_vars: Sequence[Variable],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save the program for inference, with the parameters of the servers; with main_program, from this scope alone."""
        executor = check_executor(executor, "save_inference_model")
        if main_program is not None:
            program = _program(main_program, "save_inference_model")
            io.save_inference_model(
                dirname, feeded_var_names, target_vars, executor, program, None, None, export_for_deployment
            )
            return
        origin = self._minimized(self._origin_program)
        io.save_inference_model(
            dirname, feeded_var_names, target_vars, executor, origin, None, None, export_for_deployment, True
        )
        with open(os.path.join(dirname, "__model__"), "rb") as file:
            saved = Program.parse_from_string(file.read())
        copy_distribution_fields(saved, self.main_program)
        self.save_persistables(executor, dirname, saved)

    def save_persistables(self, executor: Executor, dirname: str, main_program: Program | None = None) -> None:
        """Save all persistable variables, those of the servers included; raises UsageError for a program of no job."""
        executor = check_executor(executor, "save_persistables")
        program = _program(self.main_program if main_program is None else main_program, "save_persistables")
        if not program._is_distributed:
            raise UsageError("main_program is for local, may not use fleet.save_persistables")
        io.save_persistables(executor, dirname, program, None)

    def transpile(self, config: DistributedStrategy | DistributeTranspilerConfig) -> None:
        """Make the programs of this role of the default programs (`minimize` calls it)."""
        strategy = self._transpile_config = config if isinstance(config, DistributedStrategy) else _strategy_of(config)
        program_config = strategy.get_program_config()
        self._origin_program = default_main_program().clone(for_test=False)
        kind = GeoSgdTranspiler if program_config.geo_sgd_mode else DistributeTranspiler
        transpiler = kind(program_config)
        transpiler.server_config = strategy.get_server_runtime_config()
        endpoints = list(self.server_endpoints())
        server = self.is_server()
        own = endpoints[self.server_index()] if server else ENDPOINT
        transpiler.transpile(
            trainer_id=self.worker_index(),
            pservers=endpoints,
            trainers=self.worker_num(),
            sync_mode=program_config.sync_mode,
            current_endpoint=own,
        )
        if server:
            self.main_program, self.startup_program = transpiler.get_pserver_programs(own)
            return
        self.main_program = transpiler.get_trainer_program(wait_port=program_config.wait_port)
        self.startup_program = default_startup_program()
        if isinstance(transpiler, GeoSgdTranspiler):
            self.vars_info = transpiler._get_vars_info()

    _transpile = transpile

    def _of_communicator(self, strategy: DistributedStrategy) -> dict[str, Any] | None:
        if isinstance(strategy, GeoStrategy):
            every = strategy.get_program_config().geo_sgd_need_push_nums
            return {"push_vars": self.vars_info, "trainers": self.worker_num(), "push_nums": every}
        if isinstance(strategy, SyncStrategy):
            return {"pserver_endpoints": list(self.server_endpoints()), "trainer_id": self.worker_index()}
        return None

    def _running(self) -> Executor:
        if self._executor is None:
            raise UsageError(
                "use fleet.init(role) to initialize the role of current node before optimizer.minimize(loss)"
            )
        return self._executor

    def _minimized(self, made: T | None) -> T:
        if made is None:
            raise UsageError("there are no programs of this role yet, need invoke DistributedOptimizer.minimize first")
        return made


fleet = DistributedTranspiler()


class TranspilerOptimizer(DistributedOptimizer):
    """The optimizer of the fleet: `minimize` appends gradients and updates, and makes the programs of this role."""

    def __init__(self, optimizer: Optimizer, strategy: Any = None) -> None:
        super().__init__(optimizer, strategy or StrategyFactory.create_sync_strategy())
        if not isinstance(self._strategy, (DistributedStrategy, DistributeTranspilerConfig)):
            raise ArgumentTypeError(
                "strategy must be an instance of DistributeTranspilerConfig, SyncStrategy, HalfAsyncStrategy, AsyncStrategy "
                f"or GeoStrategy, found {type(strategy).__name__}"
            )

    def minimize(
        self,
        loss: Variable,
        scopes: Any = None,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append to the program of `loss`; raises ArgumentTypeError for lists of losses or programs. scopes: not used."""
        for what, given in (("loss", loss), ("startup_program", startup_program)):
            if isinstance(given, list):
                raise ArgumentTypeError(f"DistributedTranspiler's minimize can not accept {what} with list")
        made: tuple[list[Operator], list[ParamGrad]]
        made = self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        fleet.transpile(self._strategy)
        return made


def _strategy_of(config: DistributeTranspilerConfig) -> DistributedStrategy:
    """The strategy that a config means (before there were strategies)."""
    strategy: DistributedStrategy
    if config.sync_mode:
        strategy = SyncStrategy()
    elif config.runtime_split_send_recv and config.geo_sgd_mode:
        strategy = GeoStrategy(config.geo_sgd_need_push_nums)
    elif config.runtime_split_send_recv and not config.half_async:
        strategy = AsyncStrategy()
    else:
        strategy = HalfAsyncStrategy()
    strategy.set_program_config(config)
    return strategy


def _program(program: Any, method: str) -> Program:
    if isinstance(program, CompiledProgram) or not isinstance(program, Program):
        raise ArgumentTypeError(
            f"in fleet.{method}() function, main_program must be as Program type, found {type(program).__name__}"
        )
    return program
