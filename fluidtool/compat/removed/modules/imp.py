"""`imp`, which Python dropped in 3.12: the parts that scripts use."""

from __future__ import annotations

import sys
from importlib import reload
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

__all__ = ["load_source", "new_module", "reload"]


def new_module(name: str) -> ModuleType:
    """An empty module."""
    return ModuleType(name)


def load_source(name: str, pathname: str, file: Any = None) -> ModuleType:
    """The module of a file; raises ImportError unless it is a Python file."""
    spec = spec_from_file_location(name, pathname)
    if spec is None or spec.loader is None:
        raise ImportError(f"{pathname} is not a Python file", name=name, path=pathname)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
