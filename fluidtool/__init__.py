"""fluidtool: load, inspect, transpile, prune, train and run PaddlePaddle Fluid programs without Paddle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fluidtool._version import __version__

if TYPE_CHECKING:
    from fluidtool.model import Model, load

__all__ = ["Model", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """`load` and `Model` come in when first asked for: numpy takes longer to import than `--help` may take."""
    if name in __all__:
        from fluidtool import model

        return getattr(model, name)
    raise AttributeError(f"module 'fluidtool' has no attribute {name!r}")
