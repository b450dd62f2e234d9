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
    from fluidtool.workflows.inputs import Inputs
    from fluidtool.workflows.profile import profile
    from fluidtool.workflows.run import run

__all__ = ["Inputs", "Model", "__version__", "load", "profile", "run"]

_HOMES = {
    "Inputs": "fluidtool.workflows.inputs",
    "Model": "fluidtool.model",
    "load": "fluidtool.model",
    "profile": "fluidtool.workflows.profile",
    "run": "fluidtool.workflows.run",
}


def __getattr__(name: str) -> Any:
    """A name comes in when it is first asked for: numpy takes longer to import than `--help` may take."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fluidtool' has no attribute {name!r}")
