"""Running programs: scopes, plans, the executor and its engines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fluidtool.runtime.executor import Executor
    from fluidtool.runtime.policy import Policy
    from fluidtool.runtime.scope import Scope, ScopeVariable

__all__ = ["Executor", "Policy", "Scope", "ScopeVariable"]

_HOMES = {"Executor": "executor", "Policy": "policy", "Scope": "scope", "ScopeVariable": "scope"}


def __getattr__(name: str) -> Any:
    """A name comes in when it is first asked for: a start from the cache needs no executor."""
    if name in _HOMES:
        return getattr(import_module(f"fluidtool.runtime.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fluidtool.runtime' has no attribute {name!r}")
