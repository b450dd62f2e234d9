"""fluidtool: load, inspect, transpile, prune, train and run PaddlePaddle Fluid programs without Paddle.

    model = fluidtool.load("samples/digits")
    result = fluidtool.run(model, fluidtool.Inputs(random=True, batch=4))

Each command of the command line is one call here; a model alone is run with `model.run(feed)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fluidtool._version import __version__

if TYPE_CHECKING:
    from fluidtool.model import Model, load
    from fluidtool.outputs import Outputs
    from fluidtool.workflows.check import check
    from fluidtool.workflows.compare import compare
    from fluidtool.workflows.conversion import OnnxOptions
    from fluidtool.workflows.convert import convert
    from fluidtool.workflows.debug import reduce
    from fluidtool.workflows.diff import diff
    from fluidtool.workflows.inputs import Inputs
    from fluidtool.workflows.job import JobRequest, make_job
    from fluidtool.workflows.launch import LaunchOptions, launch
    from fluidtool.workflows.operators import coverage
    from fluidtool.workflows.parameter_sets import (
        merge_parameters,
        open_parameters,
        rename_parameters,
        split_parameters,
    )
    from fluidtool.workflows.profile import profile
    from fluidtool.workflows.prune import prune
    from fluidtool.workflows.quantize import quantize
    from fluidtool.workflows.reshape import reshape
    from fluidtool.workflows.role import play_role
    from fluidtool.workflows.run import run
    from fluidtool.workflows.train import TrainingRequest, train
    from fluidtool.workflows.training_data import DataFiles
    from fluidtool.workflows.transpile import transpile
    from fluidtool.workflows.view import view

__all__ = [
    "DataFiles",
    "Inputs",
    "JobRequest",
    "LaunchOptions",
    "Model",
    "OnnxOptions",
    "Outputs",
    "TrainingRequest",
    "__version__",
    "check",
    "compare",
    "convert",
    "coverage",
    "diff",
    "launch",
    "load",
    "make_job",
    "merge_parameters",
    "open_parameters",
    "play_role",
    "profile",
    "prune",
    "quantize",
    "reduce",
    "rename_parameters",
    "reshape",
    "run",
    "split_parameters",
    "train",
    "transpile",
    "view",
]

_HOMES = {
    "DataFiles": "fluidtool.workflows.training_data",
    "Inputs": "fluidtool.workflows.inputs",
    "JobRequest": "fluidtool.workflows.job",
    "LaunchOptions": "fluidtool.workflows.launch",
    "Model": "fluidtool.model",
    "OnnxOptions": "fluidtool.workflows.conversion",
    "Outputs": "fluidtool.outputs",
    "TrainingRequest": "fluidtool.workflows.train",
    "check": "fluidtool.workflows.check",
    "compare": "fluidtool.workflows.compare",
    "convert": "fluidtool.workflows.convert",
    "coverage": "fluidtool.workflows.operators",
    "diff": "fluidtool.workflows.diff",
    "launch": "fluidtool.workflows.launch",
    "load": "fluidtool.model",
    "make_job": "fluidtool.workflows.job",
    "merge_parameters": "fluidtool.workflows.parameter_sets",
    "open_parameters": "fluidtool.workflows.parameter_sets",
    "play_role": "fluidtool.workflows.role",
    "profile": "fluidtool.workflows.profile",
    "prune": "fluidtool.workflows.prune",
    "quantize": "fluidtool.workflows.quantize",
    "reduce": "fluidtool.workflows.debug",
    "rename_parameters": "fluidtool.workflows.parameter_sets",
    "reshape": "fluidtool.workflows.reshape",
    "run": "fluidtool.workflows.run",
    "split_parameters": "fluidtool.workflows.parameter_sets",
    "train": "fluidtool.workflows.train",
    "transpile": "fluidtool.workflows.transpile",
    "view": "fluidtool.workflows.view",
}


def __dir__() -> list[str]:
    """The names that `__getattr__` gives."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """A name comes in when it is first asked for: numpy takes longer to import than `--help` may take."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fluidtool' has no attribute {name!r}")
