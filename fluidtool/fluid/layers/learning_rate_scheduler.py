"""Learning rates that depend on the step: a Variable for an optimizer (Paddle 1.8.5 layers/learning_rate_scheduler.py).

The steps are counted in the persistable variable @LR_DECAY_COUNTER@, which all schedules of a program share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.fluid.checks import check_type
from fluidtool.fluid.framework import default_main_program
from fluidtool.fluid.layers.arithmetic import elementwise_min
from fluidtool.fluid.layers.control_flow.branches import Switch
from fluidtool.fluid.layers.creation import assign, cast, create_global_var, fill_constant
from fluidtool.fluid.layers.elementary import ceil, cos, exp, floor
from fluidtool.fluid.layers.indexing import autoincreased_step_counter
from fluidtool.ir import Variable

COUNTER = "@LR_DECAY_COUNTER@"


def _decay_step_counter(begin: int = 0) -> Any:
    """The number of the step, float32 [1]; the first one is `begin`."""
    return cast(autoincreased_step_counter(COUNTER, begin, 1), "float32")


def _constant(value: float, force_cpu: bool = False) -> Any:
    return fill_constant([1], "float32", float(value), force_cpu=force_cpu)


def noam_decay(d_model: float | Variable, warmup_steps: float | Variable, learning_rate: float | Variable = 1.0) -> Any:
    """learning_rate * d_model^-0.5 * min(step^-0.5, warmup_steps^-1.5 * step), steps from 1 (Vaswani et al. 2017)."""
    with default_main_program().lr_schedule_guard():
        step = _decay_step_counter(1)
        falling = step**-0.5
        rising = warmup_steps**-1.5 * step  # type: ignore[operator]
        return learning_rate * d_model**-0.5 * elementwise_min(falling, rising)  # type: ignore[operator]


def _progress(decay_steps: int, staircase: bool) -> Any:
    """Steps in units of decay_steps; staircase: whole ones."""
    ratio = _decay_step_counter() / decay_steps
    return floor(ratio) if staircase else ratio


def exponential_decay(
    learning_rate: float | Variable, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Any:
    """learning_rate * decay_rate^(step / decay_steps)."""
    with default_main_program().lr_schedule_guard():
        return learning_rate * decay_rate ** _progress(decay_steps, staircase)


def natural_exp_decay(
    learning_rate: float | Variable, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Any:
    """learning_rate * exp(-decay_rate * step / decay_steps)."""
    with default_main_program().lr_schedule_guard():
        return learning_rate * exp(-1 * decay_rate * _progress(decay_steps, staircase))  # type: ignore[operator]


def inverse_time_decay(
    learning_rate: float | Variable, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Any:
    """learning_rate / (1 + decay_rate * step / decay_steps)."""
    with default_main_program().lr_schedule_guard():
        return learning_rate / (1 + decay_rate * _progress(decay_steps, staircase))


def polynomial_decay(
    learning_rate: float | Variable,
    decay_steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Any:
    """From learning_rate to end_learning_rate as (1 - step / decay_steps)^power; cycle: repeated, each time longer."""
    with default_main_program().lr_schedule_guard():
        step, whole = _decay_step_counter(), decay_steps
        if cycle:
            rounds = ceil(step / decay_steps)
            zero, one = _constant(0.0), _constant(1.0)
            with Switch() as switch, switch.case(step == zero):
                assign(one, rounds)
            whole = decay_steps * rounds  # type: ignore[operator]
        else:
            step = elementwise_min(step, _constant(decay_steps))
        left = (learning_rate - end_learning_rate) * ((1 - step / whole) ** power)  # type: ignore[operator]
        return left + end_learning_rate


def piecewise_decay(boundaries: Sequence[float], values: Sequence[float]) -> Variable:
    """values[i] before step boundaries[i], the last value from the last boundary on."""
    with default_main_program().lr_schedule_guard():
        if len(values) - len(boundaries) != 1:
            raise UsageError(f"len(values) - len(boundaries) should be 1, found {len(values)} and {len(boundaries)}")
        step = _decay_step_counter()
        rate = create_global_var([1], 0.0, "float32", persistable=True, name="learning_rate")
        with Switch() as switch:
            for boundary, value in zip(boundaries, values, strict=False):
                limit, wanted = _constant(boundary, force_cpu=True), _constant(value)
                with switch.case(step < limit):
                    assign(wanted, rate)
            last = _constant(values[-1])
            with switch.default():
                assign(last, rate)
        return rate


def cosine_decay(learning_rate: float | Variable, step_each_epoch: int, epochs: int) -> Any:
    """learning_rate * (cos(epoch * pi / epochs) + 1) / 2, the same throughout an epoch."""
    check_type(learning_rate, "learning_rate", (float, Variable), "cosine_decay")
    with default_main_program().lr_schedule_guard():
        epoch: Any = floor(_decay_step_counter() / step_each_epoch)
        return learning_rate * 0.5 * (cos(epoch * math.pi / epochs) + 1)  # type: ignore[operator]


def linear_lr_warmup(learning_rate: float | Variable, warmup_steps: int, start_lr: float, end_lr: float) -> Variable:
    """From start_lr to end_lr in warmup_steps steps, then learning_rate (a number or another schedule)."""
    dtype = learning_rate.dtype if isinstance(learning_rate, Variable) else "float32"
    difference = float(end_lr) - float(start_lr)
    with default_main_program().lr_schedule_guard():
        rate = create_global_var([1], 0.0, dtype, persistable=True, name="learning_rate_warmup")
        step = _decay_step_counter()
        with Switch() as switch:
            with switch.case(step < warmup_steps):
                assign(start_lr + difference * (step / float(warmup_steps)), rate)
            with switch.default():
                if not isinstance(learning_rate, Variable):
                    learning_rate = fill_constant([1], dtype, float(learning_rate))
                assign(learning_rate, rate)
        return rate
