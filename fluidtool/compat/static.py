"""`paddle.static`: programs in Paddle 2's spelling."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fluidtool import fluid
from fluidtool.errors import UsageError
from fluidtool.fluid import (
    BuildStrategy,
    CompiledProgram,
    ExecutionStrategy,
    Executor,
    Program,
    Scope,
    Variable,
    WeightNormParamAttr,
    cpu_places,
    cuda_places,
    default_main_program,
    default_startup_program,
    device_guard,
    global_scope,
    gradients,
    name_scope,
    program_guard,
    scope_guard,
)
from fluidtool.fluid.backward import append_backward
from fluidtool.fluid.io import load, load_program_state, save, set_program_state
from fluidtool.fluid.layers import Print, accuracy, auc, create_global_var, create_parameter, py_func
from fluidtool.fluid.optimizer import ExponentialMovingAverage
from fluidtool.records import dataclass

__all__ = [
    "BuildStrategy",
    "CompiledProgram",
    "ExecutionStrategy",
    "Executor",
    "ExponentialMovingAverage",
    "InputSpec",
    "Print",
    "Program",
    "Scope",
    "Variable",
    "WeightNormParamAttr",
    "accuracy",
    "append_backward",
    "auc",
    "cpu_places",
    "create_global_var",
    "create_parameter",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "global_scope",
    "gradients",
    "load",
    "load_inference_model",
    "load_program_state",
    "name_scope",
    "program_guard",
    "py_func",
    "save",
    "save_inference_model",
    "scope_guard",
    "set_program_state",
]


@dataclass(frozen=True)
class InputSpec:
    """The shape, data type and name of an input; -1 or None for any size."""

    shape: Sequence[int | None]
    dtype: str = "float32"
    name: str | None = None


def data(name: str, shape: Sequence[int | None], dtype: Any = None, lod_level: int = 0) -> Variable:
    """An input of the program; float32 without dtype."""
    return fluid.data(name, shape, "float32" if dtype is None else dtype, lod_level)


def save_inference_model(
    path_prefix: str,
    feed_vars: Sequence[Variable] | Variable,
    fetch_vars: Sequence[Variable] | Variable,
    executor: Executor,
    program: Program | None = None,
) -> None:
    """Write `<prefix>.pdmodel` and `<prefix>.pdiparams`."""
    folder, stem = _split(path_prefix)
    feeds = [feed_vars] if isinstance(feed_vars, Variable) else list(feed_vars)
    fluid.io.save_inference_model(
        folder,
        [var.name for var in feeds],
        fetch_vars,
        executor,
        program,
        model_filename=f"{stem}.pdmodel",
        params_filename=f"{stem}.pdiparams",
    )


def load_inference_model(path_prefix: str, executor: Executor) -> list[Any]:
    """[program, feed names, fetch variables] of `<prefix>.pdmodel` and `<prefix>.pdiparams`."""
    folder, stem = _split(path_prefix)
    return fluid.io.load_inference_model(folder, executor, f"{stem}.pdmodel", f"{stem}.pdiparams")


def _split(path_prefix: str) -> tuple[str, str]:
    folder, stem = os.path.split(path_prefix)
    if not stem:
        raise UsageError(f"path_prefix must end with the name of the files without extension, found {path_prefix!r}")
    return folder or ".", stem
