"""`fluid.install_check.run_check()`: a first program, trained for one step."""

from __future__ import annotations

import sys

import numpy as np

from fluidtool.fluid import layers
from fluidtool.fluid.executor import Executor, scope_guard
from fluidtool.fluid.framework import program_guard
from fluidtool.fluid.optimizer import SGD
from fluidtool.ir import Program, unique_name
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace

__all__ = ["run_check"]


def run_check() -> None:
    """Train a small program on the CPU for one step and report success; raises any error."""
    main, startup = Program(), Program()
    with program_guard(main, startup), unique_name.guard(), scope_guard(Scope()):
        loss = layers.mean(layers.fc(layers.data("inp", [2]), 3))
        SGD(learning_rate=0.01).minimize(loss)
        executor = Executor(CPUPlace())
        executor.run(startup)
        executor.run(main, feed={"inp": np.array([[1.0, 2.0], [3.0, 4.0]], "float32")}, fetch_list=[loss])
    sys.stdout.write("Your Paddle Fluid is installed successfully! Let's start deep Learning with Paddle Fluid now\n")
