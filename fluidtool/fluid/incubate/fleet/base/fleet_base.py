"""What every fleet offers (Paddle 1.8.5 fleet_base.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.contrib.mixed_precision import OptimizerWithMixedPrecision
from fluidtool.fluid.executor import Executor
from fluidtool.fluid.incubate.fleet.base.mode import Mode
from fluidtool.fluid.incubate.fleet.base.role_maker import RoleMakerBase
from fluidtool.fluid.optimizer.base import Optimizer, ParamGrad
from fluidtool.ir import Operator, Program, Variable
from fluidtool.tensor import CPUPlace

__all__ = ["DistributedOptimizer", "Fleet", "Mode"]


class Fleet(ABC):
    """The job that this process belongs to: call `init` first. Raises UsageError before it."""

    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._is_initialized = False
        self._role_maker: RoleMakerBase | None = None
        self._executor: Executor | None = None
        self._optimizer: DistributedOptimizer | None = None
        self.main_program: Any = None
        self.startup_program: Program | None = None
        self._origin_program: Program | None = None

    def init(self, role_maker: RoleMakerBase | None = None) -> None:
        """Take this process's role; raises ArgumentTypeError for what is no role maker."""
        if not isinstance(role_maker, RoleMakerBase):
            raise ArgumentTypeError(
                f"role_maker must be an instance of RoleMakerBase, found {type(role_maker).__name__}"
            )
        role_maker.generate_role()
        self._executor, self._role_maker, self._is_initialized = Executor(CPUPlace()), role_maker, True

    def is_first_worker(self) -> bool:
        """Whether this process is worker 0."""
        return self._roles.is_first_worker()

    def is_worker(self) -> bool:
        """Whether this process trains."""
        return self._roles.is_worker()

    def is_server(self) -> bool:
        """Whether this process is a parameter server."""
        return self._roles.is_server()

    def worker_index(self) -> int:
        """The number of this worker."""
        return self._roles.worker_index()

    def worker_num(self) -> int:
        """The number of workers."""
        return self._roles.worker_num()

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """The endpoints of the workers, as a list or separated by commas."""
        endpoints = self._roles.get_trainer_endpoints()
        return ",".join(endpoints) if to_string else endpoints

    def server_index(self) -> int:
        """The number of this server."""
        return self._roles.server_index()

    def server_num(self) -> int:
        """The number of servers."""
        return len(self._roles.get_pserver_endpoints())

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """The endpoints of the servers, as a list or separated by commas."""
        endpoints = self._roles.get_pserver_endpoints()
        return ",".join(endpoints) if to_string else endpoints

    def split_files(self, files: list[str]) -> list[str]:
        """This worker's share of the files: neighbors, shares as equal as they can be, the larger ones first."""
        if not isinstance(files, list):
            raise ArgumentTypeError(f"files should be a list of file need to be read, found {type(files).__name__}")
        size, more = divmod(len(files), self.worker_num())
        index = self.worker_index()
        start = index * size + min(index, more)
        return files[start : start + size + (index < more)]

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Write the sum over all workers to `output`, as the role maker can."""
        self._roles.all_reduce_worker(input, output)

    def barrier_worker(self) -> None:
        """Wait for the other workers, as the role maker can."""
        self._roles.barrier_worker()

    @property
    def _roles(self) -> RoleMakerBase:
        if self._role_maker is None:
            raise UsageError("use fleet.init(role) to initialize the role of current node")
        return self._role_maker

    @abstractmethod
    def init_worker(self) -> None:
        """Begin to train."""

    @abstractmethod
    def init_server(self, model_dir: str | None = None) -> None:
        """Make a server's parameters, or load them."""

    @abstractmethod
    def run_server(self) -> None:
        """Serve until all workers are done."""

    @abstractmethod
    def stop_worker(self) -> None:
        """End training."""

    @abstractmethod
    def distributed_optimizer(self, optimizer: Optimizer, strategy: Any = None) -> DistributedOptimizer:
        """The optimizer, whose `minimize` makes the programs of this role."""

    @abstractmethod
    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str],
        target_vars: Sequence[Variable],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save a program for inference with its parameters."""

    @abstractmethod
    def save_persistables(self, executor: Executor, dirname: str, main_program: Program | None = None) -> None:
        """Save all persistable variables."""


class DistributedOptimizer(ABC):
    """An optimizer whose `minimize` makes the programs of this role."""

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        if not isinstance(optimizer, (Optimizer, OptimizerWithMixedPrecision)):
            raise ArgumentTypeError(f"optimizer must be an instance of Optimizer, found {type(optimizer).__name__}")
        self._optimizer: Any = optimizer
        self._strategy = strategy

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Any = None,
    ) -> list[ParamGrad]:
        """Append the gradients of `loss`, as the optimizer itself does."""
        pairs: list[ParamGrad] = self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)
        return pairs

    def apply_gradients(self, params_grads: Sequence[ParamGrad]) -> list[Operator]:
        """Append the updates, as the optimizer itself does."""
        ops: list[Operator] = self._optimizer.apply_gradients(params_grads)
        return ops

    @abstractmethod
    def minimize(self, losses: Any, *args: Any, **named: Any) -> tuple[list[Operator], list[ParamGrad]]:
        """Append gradients and updates, and make the programs of this role."""


def check_executor(executor: object, method: str) -> Executor:
    """The executor; raises ArgumentTypeError for anything else."""
    if not isinstance(executor, Executor):
        raise ArgumentTypeError(
            f"in fleet.{method}() function, executor must be as Executor type, found {type(executor).__name__}"
        )
    return executor
