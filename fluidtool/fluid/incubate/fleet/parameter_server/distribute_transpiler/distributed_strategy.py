"""How trainers and servers work together (Paddle 1.8.5 distributed_strategy.py)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.strategies import BuildStrategy, ExecutionStrategy, ReduceStrategy
from fluidtool.fluid.transpiler.distribute_config import DistributeTranspilerConfig, ServerRuntimeConfig
from fluidtool.fluid.transpiler.distribute_transpiler import DistributedMode

__all__ = [
    "AsyncStrategy",
    "DistributedStrategy",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
]

T = TypeVar("T")

CPU_NUM = "CPU_NUM"
FLAGS = {  # by name: what Paddle takes without an environment variable FLAGS_<name>
    "communicator_max_merge_var_num": CPU_NUM,
    "communicator_send_queue_size": CPU_NUM,
    "communicator_independent_recv_thread": "1",
    "communicator_min_send_grad_num_before_recv": CPU_NUM,
    "communicator_thread_pool_size": "5",
    "communicator_send_wait_times": "5",
    "communicator_is_sgd_optimizer": "1",
    "rpc_deadline": "180000",
    "rpc_retry_times": "3",
}
BARRIERED = (
    "communicator_max_merge_var_num",
    "communicator_send_wait_times",
    "communicator_thread_pool_size",
    "communicator_send_queue_size",
)
FLAGS_OF = {
    DistributedMode.SYNC: BARRIERED,
    DistributedMode.HALF_ASYNC: BARRIERED,
    DistributedMode.ASYNC: tuple(FLAGS),
    DistributedMode.GEO: ("communicator_thread_pool_size", "communicator_send_wait_times"),
}


def _threads() -> str:
    return os.environ.get(CPU_NUM, "1")


class TrainerRuntimeConfig:
    """Settings of Paddle's communicator, from the environment; fluidtool's keeps them and needs none of them."""

    def __init__(self) -> None:
        self.mode: DistributedMode | None = None
        defaults = {name: _threads() if value == CPU_NUM else value for name, value in FLAGS.items()}
        self.runtime_configs = {name: os.environ.get(f"FLAGS_{name}", value) for name, value in defaults.items()}

    def get_communicator_flags(self) -> dict[str, str]:
        """Those that the mode reads; with barriers two of them are CPU_NUM whatever was set."""
        mode = DistributedMode.ASYNC if self.mode is None else self.mode
        if mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC):
            for name in ("communicator_max_merge_var_num", "communicator_send_queue_size"):
                self.runtime_configs[name] = _threads()
        return {name: str(self.runtime_configs[name]) for name in FLAGS_OF[mode]}

    def __repr__(self) -> str:
        return "\n".join(f"{name} {value}" for name, value in self.get_communicator_flags().items())


class DistributedStrategy:
    """What the strategies share. `mode` and `program` of a derived class say how it works; StrategyFactory makes them."""

    mode: DistributedMode | None = None
    program: ClassVar[Mapping[str, Any]] = {}
    barrier = False

    def __init__(self) -> None:
        self._program_config = DistributeTranspilerConfig()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        self._execute_strategy = ExecutionStrategy()
        self._build_strategy = BuildStrategy()
        self._execute_strategy.num_threads = int(_threads())
        if int(_threads()) > 1:
            self._build_strategy.reduce_strategy = ReduceStrategy.Reduce
        self.debug_opt: Mapping[str, Any] | None = None
        self._check()

    def set_debug_opt(self, opt_info: Mapping[str, Any]) -> None:
        """Settings of Paddle's dumps, kept for `get_debug_opt`."""
        self.debug_opt = opt_info

    def get_debug_opt(self) -> dict[str, Any]:
        """What `set_debug_opt` was given, with defaults; empty without it."""
        if not isinstance(self.debug_opt, dict):
            return {}
        defaults = {
            "dump_slot": False,
            "dump_converter": "",
            "dump_fields": [],
            "dump_file_num": 16,
            "dump_fields_path": "",
            "dump_param": [],
        }
        return {name: self.debug_opt.get(name, value) for name, value in defaults.items()}

    def get_program_config(self) -> DistributeTranspilerConfig:
        """How programs are transpiled."""
        return self._program_config

    def set_program_config(self, config: DistributeTranspilerConfig | Mapping[str, Any]) -> None:
        """Another config, or changes of this one; what makes the mode stays. Raises ArgumentTypeError, UsageError."""
        self._program_config = _changed("program_config", self._program_config, config)
        self._check()

    def get_trainer_runtime_config(self) -> TrainerRuntimeConfig:
        """Settings of trainers."""
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config: TrainerRuntimeConfig | Mapping[str, Any]) -> None:
        """Another config, or changes of this one. Raises ArgumentTypeError, UsageError."""
        if isinstance(config, dict):
            unknown = [name for name in config if name not in self._trainer_runtime_config.runtime_configs]
            if unknown:
                raise UsageError(f"TrainerRuntimeConfig doesn't have key: {unknown[0]}")
            self._trainer_runtime_config.runtime_configs.update(config)
        else:
            self._trainer_runtime_config = _changed("trainer_runtime_config", self._trainer_runtime_config, config)
        self._check()

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """Settings of servers."""
        return self._server_runtime_config

    def set_server_runtime_config(self, config: ServerRuntimeConfig | Mapping[str, Any]) -> None:
        """Another config, or changes of this one. Raises ArgumentTypeError, UsageError."""
        self._server_runtime_config = _changed("server_runtime_config", self._server_runtime_config, config)

    def get_execute_strategy(self) -> ExecutionStrategy:
        """How trainers run their program."""
        return self._execute_strategy

    def set_execute_strategy(self, config: ExecutionStrategy | Mapping[str, Any]) -> None:
        """Another strategy, or changes of this one. Raises ArgumentTypeError, UsageError."""
        self._execute_strategy = _changed("execute_strategy", self._execute_strategy, config)
        self._check()

    def get_build_strategy(self) -> BuildStrategy:
        """How trainers build their program."""
        return self._build_strategy

    def set_build_strategy(self, config: BuildStrategy | Mapping[str, Any]) -> None:
        """Another strategy, or changes of this one. Raises ArgumentTypeError, UsageError."""
        self._build_strategy = _changed("build_strategy", self._build_strategy, config)
        self._check()

    def _check(self) -> None:
        """Set what makes the mode; raises NotImplementedError for this class itself."""
        if self.mode is None:
            raise NotImplementedError("DistributedStrategy has no mode; use StrategyFactory to create one")
        self._program_config.sync_mode = False
        self._program_config.runtime_split_send_recv = True
        for name, value in self.program.items():
            setattr(self._program_config, name, value)
        self._trainer_runtime_config.mode = self.mode
        self._build_strategy.async_mode = True
        if self.barrier:
            self._execute_strategy.use_thread_barrier = True


class SyncStrategy(DistributedStrategy):
    """All trainers wait for each other in every step."""

    mode = DistributedMode.SYNC
    program: ClassVar[Mapping[str, Any]] = {"half_async": True, "completely_not_async": True}
    barrier = True


class AsyncStrategy(DistributedStrategy):
    """Nobody waits."""

    mode = DistributedMode.ASYNC


class HalfAsyncStrategy(DistributedStrategy):
    """Trainers wait for the servers to have what they sent, not for each other."""

    mode = DistributedMode.HALF_ASYNC
    program: ClassVar[Mapping[str, Any]] = {"half_async": True}
    barrier = True


class GeoStrategy(DistributedStrategy):
    """Trainers optimize by themselves and exchange changes after every `update_frequency` steps."""

    mode = DistributedMode.GEO
    program: ClassVar[Mapping[str, Any]] = {"geo_sgd_mode": True}

    def __init__(self, update_frequency: int = 100) -> None:
        super().__init__()
        self._program_config.geo_sgd_need_push_nums = update_frequency


class StrategyFactory:
    """Makes the strategies."""

    @staticmethod
    def create_sync_strategy() -> SyncStrategy:
        """A SyncStrategy."""
        return SyncStrategy()

    @staticmethod
    def create_half_async_strategy() -> HalfAsyncStrategy:
        """A HalfAsyncStrategy."""
        return HalfAsyncStrategy()

    @staticmethod
    def create_async_strategy() -> AsyncStrategy:
        """An AsyncStrategy."""
        return AsyncStrategy()

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> GeoStrategy:
        """A GeoStrategy."""
        return GeoStrategy(update_frequency)


def _changed(what: str, old: T, given: T | Mapping[str, Any]) -> T:
    """The config given, or the old one with the values of a dict."""
    if isinstance(given, type(old)):
        return given
    if not isinstance(given, dict):
        raise ArgumentTypeError(f"{what} takes a dict or {type(old).__name__}, found {type(given).__name__}")
    for name, value in given.items():
        if not hasattr(old, name):
            raise UsageError(f"{type(old).__name__} doesn't have key: {name}")
        setattr(old, name, value)
    return old
