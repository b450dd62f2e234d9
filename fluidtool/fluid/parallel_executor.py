"""ParallelExecutor: a program on all devices at once (Paddle 1.8.5 parallel_executor.py; bcast_params as in 0.14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidtool.errors import AssertedError, UsageError
from fluidtool.fluid.compiler import CompiledProgram
from fluidtool.fluid.executor import Executor, global_scope
from fluidtool.fluid.framework import default_main_program
from fluidtool.fluid.places import cpu_places, cuda_places
from fluidtool.fluid.strategies import BuildStrategy, ExecutionStrategy
from fluidtool.ir import Program
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace, CUDAPlace, Place


class ParallelExecutor:
    """Runs one program on every GPU, or on CPU_NUM CPU devices; built on CompiledProgram.

    share_vars_from: a ParallelExecutor that has run; its variables are used. num_trainers, trainer_id: how many processes
    train this program, and which this is; first run the startup program that was transpiled with the mode nccl2 (or set
    PADDLE_TRAINER_ENDPOINTS, or start with mpiexec). They start with the parameters of trainer 0 and sum their gradients.
    """

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise UsageError(
                f"Setting {', '.join(kwargs)} by constructor is deprecated. Use BuildStrategy and ExecutionStrategy."
            )
        if share_vars_from is not None and not isinstance(share_vars_from, ParallelExecutor):
            raise AssertedError(
                f"The share_vars_from should be ParallelExecutor, found {type(share_vars_from).__name__}."
            )
        build_strategy = build_strategy or BuildStrategy()
        if num_trainers != 1:
            build_strategy.num_trainers = num_trainers
        if trainer_id != 0:
            build_strategy.trainer_id = trainer_id
        places: list[Place] = list(cuda_places() if use_cuda else cpu_places())
        self._places = places
        self._scope = global_scope() if scope is None else scope
        self._compiled = CompiledProgram(default_main_program() if main_program is None else main_program)
        self._compiled.with_data_parallel(
            loss_name=loss_name,
            build_strategy=build_strategy,
            exec_strategy=exec_strategy,
            share_vars_from=share_vars_from._compiled if share_vars_from is not None else None,
            places=places,
        )
        self._executor = Executor(CUDAPlace(0) if use_cuda else CPUPlace())

    def run(
        self,
        fetch_list: Sequence[Any],
        feed: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        feed_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        return_numpy: bool = True,
    ) -> list[Any]:
        """Run once: a dict is split over the devices, a list has one dict per device; results are concatenated on axis 0.

        feed_dict is the former name of feed. Raises FeedError, FetchError, OperatorError.
        """
        return self._executor.run(
            self._compiled,
            feed=feed_dict if feed is None else feed,
            fetch_list=fetch_list,
            scope=self._scope,
            return_numpy=return_numpy,
        )

    @property
    def device_count(self) -> int:
        """The number of devices."""
        return len(self._places)

    def drop_local_exe_scopes(self) -> None:
        """Drop temporary scopes of the devices; raises ArgumentTypeError before the first run."""
        self._compiled.drop_local_scopes()

    def bcast_params(self) -> None:
        """Copy the first device's persistable variables to every device; raises ArgumentTypeError before the first run."""
        self._compiled.broadcast()
