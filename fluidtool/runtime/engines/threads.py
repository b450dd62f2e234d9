"""The number of threads of every engine on the CPU."""

from __future__ import annotations

import os

from fluidtool.errors import UsageError
from fluidtool.processors import processors

THREADS = "FLUIDTOOL_THREADS"
MOST_THREADS = 256  # as in native/src/pool.c


def thread_count() -> int:
    """Threads to use: FLUIDTOOL_THREADS, else CPU_NUM, else one per processor that this process may run on.

    At most one per processor: threads that share one only wait for each other. Raises UsageError if
    FLUIDTOOL_THREADS is not a positive integer; CPU_NUM, which Paddle also uses for other purposes, is then ignored.
    """
    text = os.environ.get(THREADS, "").strip()
    if text and not _is_count(text):
        raise UsageError(f"{THREADS} must be at least 1, or unset for one per processor, found {text!r}")
    hint = os.environ.get("CPU_NUM", "").strip()
    wanted = text or (hint if _is_count(hint) else "")
    return min(int(wanted.lstrip("0")[:9]) if wanted else processors(), processors(), MOST_THREADS)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and bool(text.strip("0"))
