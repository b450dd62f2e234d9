"""Averages of parameters over training steps, for testing or saving (Paddle 1.8.5 optimizer.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import numpy as np

from fluidtool.fluid import layers
from fluidtool.fluid.framework import default_main_program, name_scope, program_guard
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.optimizer.base import Accumulator, Optimizer
from fluidtool.ir import Block, Parameter, Program, Variable, unique_name
from fluidtool.proto.enums import VarType

STEP_COUNTER = "@EMA_STEP_COUNTER@"


class Runner(Protocol):
    """Anything that runs a program: fluid.Executor."""

    def run(self, program: Program) -> Any:
        """Run `program` in the current scope."""


class Average:
    """Two small programs: one replaces the parameters by their averages, the other restores the parameters."""

    apply_program: Program
    restore_program: Program

    @contextmanager
    def apply(self, executor: Runner, need_restore: bool = True) -> Iterator[None]:
        """Parameters hold their averages within the block, and are restored afterwards unless need_restore is False."""
        executor.run(self.apply_program)
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Runner) -> None:
        """Restore the parameters, after `apply(executor, need_restore=False)`."""
        executor.run(self.restore_program)


class ModelAverage(Average, Optimizer):
    """The mean of each parameter over a window of steps; built after `minimize`.

    average_window_rate: the window relative to the number of steps, between min_average_window and
    max_average_window steps.
    """

    STATE = tuple(
        Accumulator(name, f"in_{name}", f"out_{name}", scalar=scalar)
        for name, scalar in (
            ("sum_1", False),
            ("sum_2", False),
            ("sum_3", False),
            ("num_accumulates", True),
            ("old_num_accumulates", True),
            ("num_updates", True),
        )
    )

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(0.0, regularization=regularization, name=name)
        self.average_window = average_window_rate
        self.min_average_window, self.max_average_window = min_average_window, max_average_window
        backups = [(param, _backup(param, f"{param.name}.tmp")) for param in _averaged_parameters()]
        for param, backup in backups:
            with param.block.program.optimized_guard([param, backup]), name_scope("move_average"):
                self._append_accumulate_op(param)
        self.apply_program, self.restore_program = Program(), Program()
        with program_guard(self.apply_program):
            for param, backup in backups:
                self._append_apply_ops(self.apply_program.global_block(), param, backup)
        with program_guard(self.restore_program):
            for param, backup in backups:
                _append_restore_op(self.restore_program.global_block(), param, backup, backup_first=False)

    def _append_accumulate_op(self, param: Parameter) -> None:
        self.helper = LayerHelper("average_accumulate")
        inputs: dict[str, Any] = {"param": param}
        outputs: dict[str, Any] = {}
        for entry in self.STATE:
            shape, dtype = ([1], "int64") if entry.scalar else (None, None)
            var = self._add_accumulator(entry.name, param, dtype=dtype, shape=shape)
            inputs[entry.slot], outputs[cast(str, entry.out_slot)] = var, var
        window = {
            "average_window": self.average_window,
            "min_average_window": self.min_average_window,
            "max_average_window": self.max_average_window,
        }
        self.helper.append_op(type="average_accumulates", inputs=inputs, outputs=outputs, attrs=window)

    def _append_apply_ops(self, block: Block, param: Parameter, backup: Variable) -> None:
        param_here, backup_here = block.clone_variable(param), block.clone_variable(backup)
        state = {entry.name: block.clone_variable(self._get_accumulator(entry.name, param)) for entry in self.STATE}
        layers.assign(input=param_here, output=backup_here)
        count = layers.sum(x=[state["num_accumulates"], state["old_num_accumulates"]])
        total = layers.sum(x=[state["sum_1"], state["sum_2"], state["sum_3"]])
        dtype = "float32" if self._dtype is None else self._dtype
        count, total = layers.cast(x=count, dtype=dtype), layers.cast(x=total, dtype=dtype)
        block.append_op(
            type="elementwise_div",
            inputs={"X": [total], "Y": [count]},
            outputs={"Out": [param_here]},
            attrs={"axis": -1},
        )


class ExponentialMovingAverage(Average):
    """ema = decay * ema + (1 - decay) * param, with bias correction when applied.

    thres_steps: a Variable with the number of steps; decay is then at most (1 + steps) / (10 + steps). Call `update()`
    after `minimize`.
    """

    def __init__(self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None) -> None:
        self._name = name or ""
        self._decay_var = _decay_variable(decay, thres_steps)
        self._backups = [
            (param, _backup(param, f"{self._name}{param.name}.ema_tmp")) for param in _averaged_parameters()
        ]
        self._averages = {param.name: self._create_average(param, backup) for param, backup in self._backups}
        self.apply_program, self.restore_program = Program(), Program()
        with program_guard(self.apply_program):
            self._append_apply_ops(self.apply_program.global_block())
        with program_guard(self.restore_program):
            for param, backup in self._backups:
                _append_restore_op(self.restore_program.global_block(), param, backup, backup_first=True)

    def update(self) -> None:
        """Append the update of every average to the main program."""
        layers.autoincreased_step_counter(counter_name=STEP_COUNTER)
        for param, backup in self._backups:
            with param.block.program.optimized_guard([param, backup]), name_scope("moving_average"):
                average = self._averages[param.name]
                decay, value, old = cast(Any, self._decay_var), cast(Any, param), cast(Any, average)
                layers.assign(input=old * decay + value * (1 - decay), output=average)

    def _create_average(self, param: Parameter, backup: Variable) -> Variable:
        with param.block.program.optimized_guard([param, backup]), name_scope("moving_average"):
            return layers.create_global_var(
                name=unique_name.generate(f"{self._name}{param.name}_ema"),
                shape=param.shape,
                value=0.0,
                dtype=param.dtype,
                persistable=True,
            )

    def _append_apply_ops(self, block: Block) -> None:
        counter = layers.create_global_var(name=STEP_COUNTER, shape=[1], value=0, dtype="int64", persistable=True)
        step: Any = layers.cast(counter, "float32")
        forgotten: Any = layers.elementwise_pow(block.clone_variable(self._decay_var), step)
        for original, original_backup in self._backups:
            param, backup = block.clone_variable(original), block.clone_variable(original_backup)
            average: Any = block.clone_variable(self._averages[original.name])
            layers.assign(input=param, output=backup)
            with layers.Switch() as switch, switch.case(step > 0):
                layers.assign(output=average, input=average / (1.0 - forgotten))
            layers.assign(input=average, output=param)


def _averaged_parameters() -> list[Parameter]:
    params = default_main_program().global_block().all_parameters()
    return [param for param in params if getattr(param, "do_model_average", None) is not False]


def _backup(param: Parameter, key: str) -> Variable:
    """The variable that keeps a parameter while its average replaces it."""
    name = unique_name.generate(key)
    return param.block.create_var(name=name, dtype=param.dtype, persistable=False, stop_gradient=True)


def _append_restore_op(block: Block, param: Parameter, backup: Variable, backup_first: bool) -> None:
    """Append param = backup; the order of declarations is Paddle's."""
    first, second = (backup, param) if backup_first else (param, backup)
    here = {var.name: block.clone_variable(var) for var in (first, second)}
    layers.assign(input=here[backup.name], output=here[param.name])


def _decay_variable(decay: float, thres_steps: Variable | None) -> Variable:
    with default_main_program().lr_schedule_guard():
        var = layers.create_global_var(
            shape=[1], value=decay, dtype=VarType.FP32, persistable=True, name="scheduled_ema_decay_rate"
        )
        if thres_steps is not None:
            steps: Any = thres_steps
            limit = (steps + 1.0) / (steps + 10.0)
            with layers.Switch() as switch:
                with switch.case(limit < decay):
                    layers.assign(limit, var)
                with switch.default():
                    layers.assign(np.array([decay], dtype=np.float32), var)
        return var
