"""The fleet whose workers sum gradients among themselves (Paddle 1.8.5 fleet/collective)."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluidtool.errors import ArgumentTypeError, ModelNotFoundError, UnsupportedOperatorError, UsageError
from fluidtool.fluid import io
from fluidtool.fluid.compiler import CompiledProgram
from fluidtool.fluid.contrib.mixed_precision import OptimizerWithMixedPrecision, decorate
from fluidtool.fluid.executor import Executor
from fluidtool.fluid.framework import default_startup_program
from fluidtool.fluid.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet, Mode, check_executor
from fluidtool.fluid.optimizer.base import Optimizer, ParamGrad
from fluidtool.fluid.optimizer.compressed import DGCMomentumOptimizer
from fluidtool.fluid.optimizer.wrapping import RecomputeOptimizer
from fluidtool.fluid.strategies import BuildStrategy, ExecutionStrategy
from fluidtool.fluid.transpiler.distribute_config import DistributeTranspilerConfig
from fluidtool.fluid.transpiler.distribute_transpiler import DistributeTranspiler
from fluidtool.ir import Operator, Program, Variable

__all__ = ["Collective", "CollectiveOptimizer", "DistributedStrategy", "TrainStatus", "fleet"]

CHECKPOINT = "__paddle_fleet_checkpoint__"
PARAMETERS = "_paddle_fleet_param__"
STATUS = "fleet_train_status"


@dataclass(unsafe_hash=True)
class TrainStatus:
    """How far training has come: the epoch that was completed last."""

    _epoch_no: int = -1

    def next(self) -> int:
        """The epoch to train next."""
        return self._epoch_no + 1


class DistributedStrategy(BuildStrategy):
    """How workers train together.

    mode: "nccl2" (gradients are summed when the program is built) or "collective" (by operators of collective_mode,
    "grad_allreduce" or "local_sgd"; use_local_sgd means both). forward_recompute with recompute_checkpoints, and use_amp with
    amp_loss_scaling, wrap the optimizer. use_dist_fc is not offered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.use_local_sgd = False
        self.use_dist_fc = False
        self.dist_fc_config = None
        self.mode = "nccl2"
        self.collective_mode: str | None = None
        self.nccl_comm_num = 1
        self.forward_recompute = False
        self.recompute_checkpoints: list[Any] = []
        self.use_amp = False
        self.amp_loss_scaling = 2**15
        self.exec_strategy = ExecutionStrategy()


class Collective(Fleet):
    """A job without servers. After `distributed_optimizer(…).minimize(loss)`, main_program is what workers run."""

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)
        self._transpiled_program: Program | None = None

    def init_worker(self) -> None:
        """Nothing, with a warning: there are no servers to wait for."""
        _warn("init_worker")

    def run_worker(self, main_programs: Any = None, scopes: Any = None) -> None:
        """Nothing, with a warning."""
        _warn("run_worker")

    def init_server(self, model_dir: str | None = None) -> None:
        """Nothing, with a warning."""
        _warn("init_server")

    def run_server(self) -> None:
        """Nothing, with a warning."""
        _warn("run_server")

    def stop_worker(self) -> None:
        """Nothing, with a warning."""
        _warn("stop_worker")

    def distributed_optimizer(self, optimizer: Optimizer, strategy: Any = None) -> CollectiveOptimizer:
        """The optimizer; raises ArgumentTypeError for what is no optimizer."""
        self._optimizer = found = CollectiveOptimizer(optimizer, strategy)
        return found

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str] = (),
        target_vars: Sequence[Variable] = (),
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save the program for inference (default: as it was before gradients were summed) with its parameters."""
        check_executor(executor, "save_inference_model")
        program = self._program(main_program, self._origin_program)
        io.save_inference_model(
            dirname, feeded_var_names, target_vars, executor, program, None, None, export_for_deployment
        )

    def save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None = None, filename: str | None = None
    ) -> None:
        """Save all persistable variables, a file each or all in `filename`."""
        check_executor(executor, "save_persistables")
        io.save_persistables(executor, dirname, self._program(main_program, self._origin_program), filename=filename)

    def save_check_point(
        self,
        executor: Executor,
        path: str,
        train_status: TrainStatus,
        main_program: Program | None = None,
        fs: None = None,
        local_cache_path: str = ".cache",
        remain_all_checkpoint: bool = True,
    ) -> None:
        """Save a checkpoint below `path`, numbered after the last one; only a folder of this machine can be named."""
        _only_local(fs)
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        number = self._get_last_checkpoint_no(path) + 1
        made, final = folder / f"{CHECKPOINT}.{number}.tmp", folder / f"{CHECKPOINT}.{number}"
        program = self._program(main_program, self._transpiled_program)
        self.save_persistables(executor, str(made), program, PARAMETERS)
        (made / STATUS).write_text(json.dumps({"epoch_no": train_status._epoch_no}))
        made.rename(final)
        if not remain_all_checkpoint:
            self.clean_redundant_check_points(path)

    def load_check_point(
        self,
        executor: Executor,
        path: str,
        trainer_id: int,
        main_program: Program | None = None,
        fs: None = None,
        local_cache_path: str = ".cache",
        ignore_empty: bool = True,
    ) -> TrainStatus | None:
        """Load the last checkpoint below `path`; None when there is none, or ModelNotFoundError without ignore_empty."""
        _only_local(fs)
        numbers = _checkpoints(Path(path))
        if not numbers:
            if not ignore_empty:
                raise ModelNotFoundError(f"Can't find checkpoint in {path}")
            return None
        folder = Path(path) / f"{CHECKPOINT}.{max(numbers)}"
        program = self._program(main_program, self._transpiled_program)
        io.load_persistables(executor, str(folder), program, PARAMETERS)
        status = folder / STATUS
        return TrainStatus(json.loads(status.read_text())["epoch_no"]) if status.is_file() else TrainStatus()

    def _get_last_checkpoint_no(self, root_path: str, fs: None = None) -> int:
        """The number of the last checkpoint below `root_path`; -1 if there is none."""
        _only_local(fs)
        return max(_checkpoints(Path(root_path)), default=-1)

    def clean_redundant_check_points(self, root_path: str, fs: None = None, checkpoint_num: int = 1) -> None:
        """Remove all checkpoints below `root_path` but the last `checkpoint_num`, of which there is at least one."""
        _only_local(fs)
        for number in sorted(_checkpoints(Path(root_path)))[: -max(checkpoint_num, 1)]:
            shutil.rmtree(Path(root_path) / f"{CHECKPOINT}.{number}")

    def _program(self, given: Any, default: Program | None) -> Program:
        program = default if given is None else given
        if not isinstance(program, Program):
            raise ArgumentTypeError(
                f"main_program must be as Program type, found {type(program).__name__}; without one, call "
                "fleet.distributed_optimizer(…).minimize(loss) first"
            )
        return program


fleet = Collective()


class CollectiveOptimizer(DistributedOptimizer):
    """The optimizer of the fleet: `minimize` appends gradients and updates, and makes the program that workers run."""

    def __init__(self, optimizer: Any, strategy: DistributedStrategy | None = None) -> None:
        super().__init__(optimizer, DistributedStrategy() if strategy is None else strategy)
        if not isinstance(self._strategy, DistributedStrategy):
            raise ArgumentTypeError(f"strategy must be DistributedStrategy, found {type(strategy).__name__}")
        if not isinstance(self._strategy.recompute_checkpoints, list):
            raise UsageError(
                f"DistStrategy.recompute_checkpoints should be a List, found {type(self._strategy.recompute_checkpoints).__name__}"
            )
        self.print_config = False

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append to the program of `loss`; raises UsageError for settings that contradict each other."""
        self._wrap()
        strategy, main = self._strategy, loss.block.program
        startup = default_startup_program() if startup_program is None else startup_program
        _check(strategy)
        made: tuple[list[Operator], list[ParamGrad]]
        made = self._optimizer.minimize(
            loss, startup_program=startup, parameter_list=parameter_list, no_grad_set=no_grad_set
        )
        fleet.startup_program = startup
        fleet._origin_program, fleet._transpiled_program = main.clone(for_test=False), main
        fleet.main_program = self._distributed(main, startup, loss.name)
        return made

    def _wrap(self) -> None:
        """Recompute, or compute partly in float16, as the strategy says."""
        strategy = self._strategy
        if strategy.forward_recompute:
            if not strategy.recompute_checkpoints:
                raise UsageError(
                    "please set strategy.recompute_checkpoints when set strategy.forward_recompute as True"
                )
            self._refuse("forward_recompute", RecomputeOptimizer, OptimizerWithMixedPrecision)
            self._optimizer = RecomputeOptimizer(self._optimizer)
            self._optimizer._set_checkpoints(strategy.recompute_checkpoints)
        if strategy.use_amp:
            self._refuse("mixed_precision", OptimizerWithMixedPrecision, DGCMomentumOptimizer)
            self._optimizer = decorate(
                self._optimizer, init_loss_scaling=strategy.amp_loss_scaling, use_dynamic_loss_scaling=True
            )

    def _refuse(self, setting: str, *kinds: type) -> None:
        if isinstance(self._optimizer, kinds):
            name = type(self._optimizer).__name__
            raise UsageError(f"can not use {name} when you set DistStrategy.{setting} as True")

    def _distributed(self, main: Program, startup: Program, loss: str) -> Program | CompiledProgram:
        """The program that workers run; both programs are changed in place."""
        strategy, endpoints = self._strategy, list(fleet.worker_endpoints())
        if len({endpoint.partition(":")[0] for endpoint in endpoints}) == 1:  # one machine: as in Paddle
            strategy.nccl_comm_num, strategy.use_hierarchical_allreduce = 1, False
        index = fleet.worker_index()
        transpiler = DistributeTranspiler(_config(strategy))
        transpiler.transpile(
            trainer_id=index,
            trainers=",".join(endpoints),
            startup_program=startup,
            program=main,
            current_endpoint=endpoints[index],
        )
        if strategy.mode == "collective":
            return main
        strategy.num_trainers, strategy.trainer_id, strategy.trainers_endpoints = len(endpoints), index, endpoints
        strategy.enable_backward_optimizer_op_deps = True
        return CompiledProgram(main).with_data_parallel(
            loss_name=loss, build_strategy=strategy, exec_strategy=strategy.exec_strategy
        )


def _check(strategy: DistributedStrategy) -> None:
    if strategy.use_dist_fc:
        raise UnsupportedOperatorError(
            "DistributedStrategy.use_dist_fc: fluidtool does not cut a last layer over workers; set it to False"
        )
    if strategy.use_local_sgd:
        strategy.mode, strategy.collective_mode = "collective", "local_sgd"
    if strategy.collective_mode in ("local_sgd", "grad_allreduce") and strategy.mode != "collective":
        raise UsageError(
            f"collective_mode {strategy.collective_mode!r} needs mode 'collective', found {strategy.mode!r}"
        )


def _config(strategy: DistributedStrategy) -> DistributeTranspilerConfig:
    config = DistributeTranspilerConfig()
    for name in (
        "mode",
        "collective_mode",
        "nccl_comm_num",
        "use_hierarchical_allreduce",
        "hierarchical_allreduce_inter_nranks",
    ):
        setattr(config, name, getattr(strategy, name))
    return config


def _checkpoints(folder: Path) -> list[int]:
    """The numbers of the checkpoints in a folder."""
    if not folder.is_dir():
        return []
    named = [entry.name.partition(f"{CHECKPOINT}.")[2] for entry in folder.iterdir() if entry.is_dir()]
    return [int(number) for number in named if number.isdecimal()]


def _only_local(fs: Any) -> None:
    if fs is not None and fs.need_upload_download():
        raise UnsupportedOperatorError(
            f"checkpoints are saved to folders of this machine, found a file system {type(fs).__name__}; leave fs out"
        )


def _warn(method: str) -> None:
    warnings.warn(f"You should not call '{method}' method for collective mode.", stacklevel=3)
