"""How many processors there are for this process. Imports nothing, so that it can be asked before numpy is there."""

from __future__ import annotations

import os


def processors() -> int:
    """The processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
