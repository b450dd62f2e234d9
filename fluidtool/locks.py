"""Locks that the child of a fork finds open.

A fork copies every lock as it is. One that another thread held then would stay locked in the child forever, since that
thread is not there. So code that takes a lock from here keeps what it guards consistent at every moment: it prepares values
first, and then puts each in its place by one assignment. A child, or code that continues after an interruption, can use it
as it is.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

_MADE: WeakSet[Any] = WeakSet()


def lock() -> threading.Lock:
    """A lock, as threading.Lock."""
    made = threading.Lock()
    _MADE.add(made)
    return made


def _open_all() -> None:
    """In the child of a fork, before anything else runs there."""
    for made in list(_MADE):
        made._at_fork_reinit()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_open_all)
