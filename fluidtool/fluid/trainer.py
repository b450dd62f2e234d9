"""Trainer: the training loop of Fluid 0.12 to 0.15, with events and checkpoints (Paddle 0.14 trainer.py)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, FeedError, UninitializedError, UsageError
from fluidtool.fluid import io
from fluidtool.fluid.compiler import CompiledProgram
from fluidtool.fluid.data_feeder import DataFeeder
from fluidtool.fluid.executor import Executor, scope_guard
from fluidtool.fluid.framework import program_guard
from fluidtool.fluid.optimizer import Optimizer
from fluidtool.fluid.places import is_compiled_with_cuda
from fluidtool.fluid.trainer_roles import trainer_role
from fluidtool.fluid.training_events import (
    BeginEpochEvent,
    BeginStepEvent,
    CheckpointConfig,
    EndEpochEvent,
    EndStepEvent,
)
from fluidtool.io import checkpoints
from fluidtool.io.parameters import Value, open_separate, write_separate
from fluidtool.ir import Program, Variable, unique_name
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace, CUDAPlace, LoDTensor, Place

Reader = Callable[[], Iterable[Any]]
EventHandler = Callable[[Any], None]
POSITION = ["epoch_id", "step_id"]


class Trainer:
    """Trains the network of `train_func`, which returns the loss, or a list of variables that starts with the loss.

    optimizer_func returns the optimizer. param_path: a folder written by `save_params`, to start from. place: None is
    the first GPU, else the CPU. parallel: use all GPUs, or CPU_NUM CPU devices. checkpoint_config: save the state
    while training, and resume from the latest checkpoint.
    Variables live in `scope`; names are generated from scratch, so that an Inferencer finds them.
    If the environment makes this process one of several (PADDLE_TRAINING_ROLE …), `train` serves
    parameters, or trains with the others.
    Raises ArgumentTypeError for functions that return something else, or a place of another type.
    """

    def __init__(
        self,
        train_func: Callable[[], Any],
        optimizer_func: Callable[[], Optimizer],
        param_path: str | None = None,
        place: Place | None = None,
        parallel: bool = False,
        checkpoint_config: CheckpointConfig | None = None,
    ) -> None:
        if checkpoint_config is not None and not isinstance(checkpoint_config, CheckpointConfig):
            raise ArgumentTypeError(
                f"checkpoint_config takes a CheckpointConfig, found {type(checkpoint_config).__name__}"
            )
        self._role = trainer_role(os.environ)
        if self._role is not None and checkpoint_config is not None:
            warnings.warn(
                "CheckpointConfig is not used in a distributed job, whose processes save together: "
                "fluidtool launch --checkpoint DIR",
                stacklevel=2,
            )
            checkpoint_config = None
        self.parallel, self.checkpoint_cfg = parallel, checkpoint_config
        self.trainer_id = 0 if self._role is None else self._role.role.trainer_id
        self.place = check_and_get_place(place)
        self.scope, self.startup_program, self.train_program = Scope(), Program(), Program()
        self._stopped = False
        with program_guard(self.train_program, self.startup_program), unique_name.guard():
            self.train_func_outputs = _variables(train_func())
            self.test_program = self.train_program.clone(for_test=True)
            optimizer = optimizer_func()
            if not isinstance(optimizer, Optimizer):
                raise ArgumentTypeError(
                    f"The optimizer should be an instance of Optimizer, found {type(optimizer).__name__}"
                )
            optimizer.minimize(self.train_func_outputs[0])
            self._saved_by_one = _kept(self.startup_program)  # before the programs are those of one role
            if self._role is not None:
                self.train_program, self.startup_program = self._role.transpile(
                    self.train_program, self.startup_program
                )
        self._executor = Executor(self.place)
        self._compiled: CompiledProgram | None = None
        with self._guard():
            self._executor.run(self.startup_program)
            self._resume()
            self._load(param_path)

    def stop(self) -> None:
        """Stop training before the next step."""
        self._stopped = True

    def train(
        self,
        num_epochs: int,
        event_handler: EventHandler,
        reader: Reader | None = None,
        feed_order: Sequence[str] | Mapping[str, int] | None = None,
    ) -> None:
        """Run `num_epochs` epochs over the mini-batches of `reader`, calling `event_handler` for each epoch and step.

        feed_order: the variables for a sample's fields, or the position of each; None takes the order in which
        the program declares them. Steps before the checkpoint resumed from are skipped. At the end, or
        after `stop`, the checkpoints are removed.
        """
        if self._role is not None and self._role.serves:
            with self._guard():
                self._executor.run(self.train_program)
            return
        if reader is None:
            raise ArgumentTypeError("train takes a reader of mini-batches, found None")
        if self._role is not None:
            self._role.begin()
        self._stopped = False
        with self._guard():
            feeder = DataFeeder(build_feed_var_list(self.train_program, feed_order), self.place)
            feeds = feeder.decorate_reader(reader, multi_devices=self.parallel)
            first = 0 if self.checkpoint_cfg is None else self.checkpoint_cfg.epoch_id
            for epoch_id in range(first, num_epochs):
                event_handler(BeginEpochEvent(epoch_id))
                for step_id, feed in enumerate(feeds()):
                    if self._stopped:
                        break
                    if not self._holds(epoch_id, step_id):
                        self._step(epoch_id, step_id, feed, event_handler)
                if self._stopped:
                    break
                event_handler(EndEpochEvent(epoch_id))
            self._clean_checkpoints()
            self._finish()

    def test(self, reader: Reader, feed_order: Sequence[str] | Mapping[str, int] | None = None) -> list[float]:
        """The mean over the mini-batches of the first element of everything that train_func returned."""
        with self._guard():
            feeder = DataFeeder(build_feed_var_list(self.test_program, feed_order), self.place)
            rows = []
            for batch in reader():
                values = self._executor.run(self.test_program, feeder.feed(batch), self.train_func_outputs)
                rows.append([float(np.ravel(value)[0]) for value in values])
        if not rows:
            raise FeedError("nothing to test: the reader returned no mini-batches")
        return [sum(column) / len(rows) for column in zip(*rows, strict=True)]

    def save_params(self, param_path: str) -> None:
        """Save all persistable variables, optimizer state too, one file each, into the folder `param_path`."""
        with self._guard():
            io.save_persistables(self._executor, param_path)

    def save_inference_model(
        self, param_path: str, feeded_var_names: Sequence[str], target_var_indexes: Sequence[int]
    ) -> None:
        """Save the operators that compute the outputs of train_func with these indexes from the named variables."""
        try:
            targets = [self.train_func_outputs[index] for index in target_var_indexes]
        except IndexError:
            raise UsageError(
                f"target_var_indexes {list(target_var_indexes)}: train_func returned {len(self.train_func_outputs)} "
                "variables, numbered from 0"
            ) from None
        with self._guard(), unique_name.guard():
            program = self.test_program.clone()
            io.save_inference_model(param_path, feeded_var_names, targets, self._executor, program)

    # ------------------------------------------------------------ one step
    def _step(self, epoch_id: int, step_id: int, feed: Any, event_handler: EventHandler) -> None:
        begin = BeginStepEvent(epoch_id, step_id)
        event_handler(begin)
        metrics = self._run(feed, [var.name for var in self.train_func_outputs] if begin.fetch_metrics else [])
        config = self.checkpoint_cfg
        if config is not None and config.is_due(epoch_id, step_id):
            self._save_checkpoint(config, epoch_id, step_id)
        if self._role is not None and self._role.count(metrics):
            kept = self._role.own(_kept(self.train_program))
            values = {var.name: self._value(var.name) for var in kept}
            self._role.save(epoch_id, step_id, values, self._executor.generators(self._runnable()))
        event_handler(EndStepEvent(epoch_id, step_id, metrics))

    def _run(self, feed: Any, fetches: list[str]) -> list[Any]:
        return self._executor.run(self._runnable(), feed, fetches)

    def _runnable(self) -> Program | CompiledProgram:
        strategy = None if self._role is None else self._role.build_strategy
        if not self.parallel and strategy is None:
            return self.train_program
        if self._compiled is None:
            loss, places = self.train_func_outputs[0].name, None if self.parallel else [self.place]
            compiled = CompiledProgram(self.train_program)
            self._compiled = compiled.with_data_parallel(loss, build_strategy=strategy, places=places)
        return self._compiled

    def _holds(self, epoch_id: int, step_id: int) -> bool:
        """Whether the checkpoint that training resumes from includes this step."""
        if self._role is not None:
            return self._role.holds(epoch_id, step_id)
        return self.checkpoint_cfg is not None and self.checkpoint_cfg.holds(epoch_id, step_id)

    def _finish(self) -> None:
        """Tell the others of a distributed job that this trainer has finished; its parameters can still be used."""
        if self._role is not None:
            self._role.finish()
            self._executor.close()
            self._executor = Executor(self.place)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with program_guard(self.train_program, self.startup_program), scope_guard(self.scope):
            yield

    # ------------------------------------------------------------ state
    def _load(self, param_path: str | None) -> None:
        if param_path is None:
            return
        if not os.path.isdir(param_path):
            warnings.warn(
                f"param_path {param_path!r} is not a folder; training starts from new parameters", stacklevel=3
            )
            return
        if self._role is None:
            io.load_vars(self._executor, param_path, vars=_kept(self.startup_program))
            return
        saved = open_separate(Path(param_path), self._role.own(self._saved_by_one))
        for name, value in self._role.shards(saved).items():
            io.put(self.scope, name, value, self._executor)

    def _resume(self) -> None:
        found = None if self._role is None else self._role.resume()
        if found is not None:
            for name, value in found.values.items():
                io.put(self.scope, name, value, self._executor)
            checkpoints.set_random_states(self._executor.generators(self._runnable()), found.state["random"])
        config = self.checkpoint_cfg
        if config is None:
            return
        folder = Path(config.checkpoint_dir)
        serial = checkpoints.latest_serial(folder)
        config.load_serial = serial if serial >= 0 else None
        if config.load_serial is None:
            return
        model = checkpoints.checkpoint_dir(folder, serial) / checkpoints.MODEL_DIR
        checkpoints.tidy_checkpoint(folder, serial)  # a resumed run saves into others
        io.load_vars(self._executor, str(model), vars=_kept(self.train_program))
        position = checkpoints.load_trainer_args(folder, serial, self.trainer_id, POSITION)
        config.epoch_id, config.step_id = (int(number) for number in position)
        state = checkpoints.load_trainer_state(folder, serial, self.trainer_id)
        if "random" in state:
            checkpoints.set_random_states(self._executor.generators(self._runnable()), state["random"])
        for device, names in enumerate(state.get("own", []), start=1):
            self._load_own(checkpoints.device_dir(folder, serial, self.trainer_id, device), device, names)

    def _save_checkpoint(self, config: CheckpointConfig, epoch_id: int, step_id: int) -> None:
        """The position first: the variables' mark of completeness, written last, makes the checkpoint valid."""
        folder = Path(config.checkpoint_dir)
        serial = checkpoints.latest_serial(folder) + 1
        position = dict(zip(POSITION, (epoch_id, step_id), strict=True))
        state = {
            "random": checkpoints.random_states(self._executor.generators(self._runnable())),
            "own": self._save_own(folder, serial),
        }
        checkpoints.save_trainer_args(folder, serial, self.trainer_id, position, state)
        values = {var.name: self._value(var.name) for var in _kept(self.train_program)}
        checkpoints.save(folder, values, serial)
        checkpoints.rotate(folder, config.max_num_checkpoints)

    def _save_own(self, folder: Path, serial: int) -> list[list[str]]:
        """Save the per-device variables of all devices but the first; returns the names for each."""
        kept = {var.name for var in _kept(self.train_program)}
        names = []
        for device, scope in enumerate(self._executor.device_scopes(self._runnable())[1:], start=1):
            values = {name: self._value(name, scope) for name in scope.local_var_names() if name in kept}
            write_separate(checkpoints.device_dir(folder, serial, self.trainer_id, device), values)
            names.append(sorted(values))
        return names

    def _load_own(self, folder: Path, device: int, names: Sequence[str]) -> None:
        scope = self._executor.device_scopes(self._runnable())[device]
        variables = [var for var in _kept(self.train_program) if var.name in names]
        for name, value in open_separate(folder, variables).items():
            io.put(scope, name, value, self._executor)

    def _value(self, name: str, scope: Scope | None = None) -> Value:
        var = (self.scope if scope is None else scope).find_var(name)
        value = None if var is None else var.value
        if value is None:
            raise UninitializedError(f"cannot save {name} in the checkpoint: it has no value in the scope")
        return LoDTensor(value.numpy(), value.lod()) if isinstance(value, LoDTensor) else value

    def _clean_checkpoints(self) -> None:
        config = self.checkpoint_cfg
        if config is not None:
            checkpoints.rotate(Path(config.checkpoint_dir), 0)
            config.load_serial, config.epoch_id, config.step_id = None, 0, 0


def check_and_get_place(place: Place | None) -> CPUPlace | CUDAPlace:
    """The place given; None is the first GPU, else the CPU. Raises ArgumentTypeError."""
    if place is None:
        return CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()
    if not isinstance(place, (CPUPlace, CUDAPlace)):
        raise ArgumentTypeError(f"Place should be either CUDAPlace or CPUPlace, found {type(place).__name__}")
    return place


def build_feed_var_list(
    program: Program, feed_order: Sequence[str] | Mapping[str, int] | None = None
) -> list[Variable]:
    """The variables for the fields of a sample, in order (see `Trainer.train`).

    Raises ArgumentTypeError, and UsageError for positions that are not 0, 1, 2 ….
    """
    block = program.global_block()
    if feed_order is None:
        return [var for var in block.vars.values() if var.is_data]
    if isinstance(feed_order, Mapping):
        if sorted(feed_order.values()) != list(range(len(feed_order))):
            raise UsageError(
                "The values of 'feed_order' should be a permutation of [0, len(feed_order)), found "
                f"{list(feed_order.values())}"
            )
        return [block.var(name) for name in sorted(feed_order, key=lambda name: feed_order[name])]
    if not isinstance(feed_order, (list, tuple)):
        raise ArgumentTypeError(f"'feed_order' should be either None, list or dict, found {type(feed_order).__name__}")
    return [block.var(name) for name in feed_order]


def _variables(outputs: Any) -> list[Variable]:
    variables = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if not variables or not all(isinstance(var, Variable) for var in variables):
        raise ArgumentTypeError(
            f"train_func must return the loss, or a list of variables that starts with it, found {outputs!r}"
        )
    return variables


def _kept(program: Program) -> list[Variable]:
    """The variables of a program that a checkpoint saves."""
    return [var for var in program.list_vars() if checkpoints.is_checkpoint_var(var.name, var.type, var.persistable)]
