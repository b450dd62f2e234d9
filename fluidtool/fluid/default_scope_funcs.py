"""`fluid.default_scope_funcs`: variables of the current one of nested scopes, in each thread (Paddle 1.8.5)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fluidtool.runtime.scope import Scope, ScopeVariable

__all__ = ["enter_local_scope", "find_var", "get_cur_scope", "leave_local_scope", "scoped_function", "var"]


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.nested = [Scope()]


_scopes = _Scopes()


def get_cur_scope() -> Scope:
    """The innermost scope of this thread."""
    return _scopes.nested[-1]


def enter_local_scope() -> None:
    """Make a scope within the current one, and it the current one."""
    _scopes.nested.append(get_cur_scope().new_scope())


def leave_local_scope() -> None:
    """Go back to the scope around the current one, whose kids are dropped."""
    _scopes.nested.pop()
    if not _scopes.nested:
        _scopes.nested.append(Scope())
    get_cur_scope().drop_kids()


def var(name: str) -> ScopeVariable:
    """The variable of this name, made in the current scope unless it is there."""
    return get_cur_scope().var(name)


def find_var(name: str) -> ScopeVariable | None:
    """The variable of this name in the current scope or one around it; None without one."""
    return get_cur_scope().find_var(name)


def scoped_function(func: Callable[[], Any]) -> None:
    """Call `func` within a scope of its own."""
    enter_local_scope()
    try:
        func()
    finally:
        leave_local_scope()
