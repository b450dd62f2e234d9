"""CompiledProgram: a program for one or several devices (Paddle 1.8.5 compiler.py)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool import locks, runtime
from fluidtool.distribute.collective.engines import joins_graphs
from fluidtool.errors import (
    ArgumentTypeError,
    AssertedError,
    FeedError,
    UnsupportedOperatorError,
    UsageError,
    WrongKindError,
)
from fluidtool.fluid.flags import bucket_bytes
from fluidtool.fluid.ir_graph import Graph
from fluidtool.fluid.places import as_place, cpu_places, cuda_places
from fluidtool.fluid.strategies import BuildStrategy, ExecutionStrategy, GradientScaleStrategy, ReduceStrategy
from fluidtool.ir import Program
from fluidtool.ir.collectives import is_collective
from fluidtool.runtime.batches import merge_results
from fluidtool.runtime.data_parallel import ParallelRunner
from fluidtool.runtime.executor import Observer
from fluidtool.runtime.phases import ONCE, role
from fluidtool.runtime.scope import Scope
from fluidtool.runtime.trainers import TrainerSettings
from fluidtool.tensor import CUDAPlace, Place

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]


class CompiledProgram:
    """A program with the settings of its runs; bound to the scope and the place of its first run."""

    def __init__(self, program_or_graph: Program | Graph, build_strategy: BuildStrategy | None = None) -> None:
        if isinstance(program_or_graph, Graph):
            program_or_graph = program_or_graph.to_program()
        if not isinstance(program_or_graph, Program):
            raise ArgumentTypeError(
                "The type of program_to_graph parameter is wrong, expected Graph or Program, but received "
                f"{type(program_or_graph)}"
            )
        self._program = program_or_graph
        self._build_strategy = build_strategy or BuildStrategy()
        self._exec_strategy = ExecutionStrategy()
        self._is_data_parallel = False
        self._loss_name: str | None = None
        self._share_vars_from: CompiledProgram | None = None
        self._places: list[Place] | None = None
        self._runner: ParallelRunner | None = None
        self._first = locks.lock()  # held while the runner is created
        self._scope: Scope | None = None
        self._place: Place | None = None

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Sequence[Place | str] | Place | str | None = None,
    ) -> CompiledProgram:
        """Run on all of `places`, the batch split between them; returns this object.

        places: places or their texts ('cpu', 'gpu:0'); None: all GPUs, or CPU_NUM CPU devices, depending on the executor.
        share_vars_from: use the variables of that program's runs.
        Raises AssertedError if called twice or without the loss of a training program.
        """
        if self._is_data_parallel:
            raise AssertedError("Already compiled with parallel, cannot be recompiled.")
        if loss_name is None and self._trains():
            raise AssertedError(
                "The loss name of CompiledProgram is None. The loss name should be set if CompiledProgram contains "
                "backward part."
            )
        self._is_data_parallel = True
        self._build_strategy = build_strategy or self._build_strategy
        self._exec_strategy = exec_strategy or self._exec_strategy
        self._loss_name, self._share_vars_from = loss_name, share_vars_from
        if places is not None:
            several = places if isinstance(places, Sequence) and not isinstance(places, str) else [places]
            self._places = [as_place(place) for place in several]
        return self

    def with_program(self, program: Program) -> CompiledProgram:
        """The same settings for another program, which has not run yet."""
        other = CompiledProgram(program, self._build_strategy)
        other._exec_strategy, other._is_data_parallel = self._exec_strategy, self._is_data_parallel
        other._loss_name, other._share_vars_from, other._places = self._loss_name, self._share_vars_from, self._places
        return other

    def share_from(self, other: CompiledProgram) -> None:
        """Use the variables of that program's runs."""
        self._share_vars_from = other

    @property
    def program(self) -> Program:
        """The program itself."""
        return self._program

    @property
    def device_count(self) -> int:
        """The number of devices it runs on; raises UsageError before the first run."""
        return len(self._running().executors)

    def drop_local_scopes(self) -> None:
        """Drop temporary scopes of the devices; raises ArgumentTypeError before the first run."""
        for scope in self._running().scopes:
            scope.drop_kids()

    def broadcast(self) -> None:
        """Copy the first device's variables to every device; raises ArgumentTypeError before the first run."""
        self._running().broadcast()

    def generators(self, executor: runtime.Executor, scope: Scope) -> list[np.random.Generator]:
        """The random generators of the devices."""
        return self._compile(executor, scope).generators

    def scopes(self, executor: runtime.Executor, scope: Scope) -> list[Scope]:
        """The scope of each device; all but the first hold only per-device variables."""
        return self._compile(executor, scope).scopes

    def run(
        self,
        executor: runtime.Executor,
        feed: Any,
        fetches: Sequence[str],
        scope: Scope,
        return_merged: bool = True,
        observer: Observer | None = None,
    ) -> list[Any]:
        """Run once; a dict as feed is split over the devices, a list has one dict per device.

        Returns a value for each fetch, or a list of every device's values if return_merged is not set.
        """
        runner = self._compile(executor, scope)
        partial = not self._trains()
        feeds = runner.split(feed, partial) if isinstance(feed, Mapping) else self._own_feeds(feed, partial)
        results = runner.run(feeds, fetches, observer)
        if not return_merged:
            return results
        return [merge_results(name, values) for name, values in zip(fetches, results, strict=True)]

    def _own_feeds(self, feeds: Sequence[Any], partial: bool) -> list[dict[str, Any]]:
        count = self.device_count
        for feed in feeds:
            if not isinstance(feed, Mapping):
                raise WrongKindError(f"Each element of feed list should be a dict, found {type(feed).__name__}")
        if len(feeds) > count or not feeds or (len(feeds) < count and not partial):
            raise FeedError(
                f"The feed data number {len(feeds)} does not match the device number {count}. A training program needs "
                "a batch for every device; for batches of a DataLoader, set drop_last=True when defining it."
            )
        return [dict(feed) for feed in feeds]

    def _trains(self) -> bool:
        return any(op.type.endswith("_grad") for op in self._program.global_block().ops)

    def _running(self) -> ParallelRunner:
        if self._runner is None:
            raise ArgumentTypeError("the CompiledProgram has not run yet: give it to Executor.run first")
        return self._runner

    def _compile(self, executor: runtime.Executor, scope: Scope) -> ParallelRunner:
        if self._runner is None:
            with self._first:
                if self._runner is None:
                    return self._make_runner(executor, scope)
        if scope is not self._scope:
            raise UsageError("Cannot compile program with different scope.")
        if executor.place != self._place:
            raise UsageError("Cannot compile program with different place.")
        return self._runner

    def _make_runner(self, executor: runtime.Executor, scope: Scope) -> ParallelRunner:
        shared = self._shared_scopes()
        places = self.devices(executor.place)
        if shared and len(shared) != len(places):
            raise UsageError(f"share_vars_from runs on {len(shared)} devices, but this program on {len(places)}")
        if len(places) > 1 and self._optimizes_in_branches():
            raise UnsupportedOperatorError(
                "If optimizer is used in control flow, training on multi-places is not supported now."
            )
        if len(places) > 1 and self._exchanges_parameters():
            raise UnsupportedOperatorError(
                "the program exchanges parameters between devices after every step (local_sgd), which several devices of one "
                "process share; run it on one device per process (the environment variable CPU_NUM)"
            )
        trainers = self._trainers()
        several = len(places) > 1 and not isinstance(executor.place, CUDAPlace)
        engine = self._engine_of(executor.place, len(places))
        self._scope, self._place = scope, executor.place
        self._runner = ParallelRunner(
            self._program,
            places,
            scope,
            self._loss_gradient(len(places) * (1 if trainers is None else trainers.number)),
            make_executor=lambda place: runtime.Executor(
                place, policy=executor.policy, seed=executor.seed, engine=engine, servers=executor.servers
            ),
            scopes=shared,
            trainers=trainers,
            shares_variables=several and self._build_strategy.reduce_strategy == ReduceStrategy.Reduce,
        )
        return self._runner

    def _engine_of(self, place: Place, devices: int) -> str:
        """The engine of each device: threads of several processors would each start the engine's own; GPUs wait for a switch."""
        if devices == 1:
            return "auto"
        if isinstance(place, CUDAPlace):
            return "auto" if joins_graphs(os.environ) else "cupy"
        return "numpy"

    def _trainers(self) -> TrainerSettings | None:
        """The other processes, by num_trainers and trainer_id of the BuildStrategy."""
        strategy = self._build_strategy
        if strategy.num_trainers <= 1 or not self._trains():
            return None
        if not 0 <= strategy.trainer_id < strategy.num_trainers:
            raise UsageError(
                f"trainer_id must be between 0 and {strategy.num_trainers - 1} (num_trainers is {strategy.num_trainers}), "
                f"found {strategy.trainer_id}"
            )
        return TrainerSettings(strategy.num_trainers, strategy.trainer_id, bucket_bytes(strategy.fuse_all_reduce_ops))

    def _shared_scopes(self) -> list[Scope]:
        source = self._share_vars_from
        if source is None:
            return []
        sys.stderr.write("share_vars_from is set, scope is ignored.\n")
        if not source._is_data_parallel:
            raise UsageError("The shared Program is not data parallel, cannot share variables from it.")
        if source._runner is None:
            raise UsageError(
                "The shared Program is not compiled and executed, so there is no variables to share: run it first."
            )
        return source._runner.scopes

    def devices(self, place: Place) -> list[Place]:
        """The places of its runs by an executor at `place`; raises UsageError for places of another kind."""
        if not self._is_data_parallel:
            return [place]
        places = self._places
        if places is None:
            places = list(cuda_places() if isinstance(place, CUDAPlace) else cpu_places())
        if any(type(other) is not type(place) for other in places):
            raise UsageError(
                f"Place type not match. You may set wrong type of places: the executor is at {place}, the places are "
                + ", ".join(map(str, places))
            )
        if not places:
            raise UsageError("No places for execution.")
        return places

    def _loss_gradient(self, devices: int) -> float | None:
        strategy = self._build_strategy.gradient_scale_strategy
        if strategy == GradientScaleStrategy.Customized:
            return None if self._is_data_parallel else 1.0
        return 1.0 if strategy == GradientScaleStrategy.One else 1.0 / devices

    def _exchanges_parameters(self) -> bool:
        return any(is_collective(op) and role(op) & ONCE for op in self._program.global_block().ops)

    def _optimizes_in_branches(self) -> bool:
        program = self._program
        return any(
            role(op) & ONCE
            for branch in program.global_block().ops
            if branch.type == "conditional_block_grad"
            for index in branch.sub_blocks()
            for op in program.block(index).ops
        )
