"""How many threads compute, in every engine on the CPU."""

from __future__ import annotations

import os

from fluidtool.errors import UsageError
from fluidtool.processors import processors

THREADS = "FLUIDTOOL_THREADS"
MOST_THREADS = 256  # as in native/src/pool.c


def thread_count() -> int:
    """Threads to use: FLUIDTOOL_THREADS, else CPU_NUM, else one for each processor that this process may run on.

    Never more than there are processors: threads that take turns on one only wait for each other. Raises UsageError when
    FLUIDTOOL_THREADS is not a whole number from 1 on; CPU_NUM, which Paddle means otherwise too, is then left aside.
    """
    text = os.environ.get(THREADS, "").strip()
    if text and not _is_count(text):
        raise UsageError(
            f"{THREADS} is {text!r}; expected a number of threads from 1 on, or nothing for one per processor"
        )
    hint = os.environ.get("CPU_NUM", "").strip()
    wanted = text or (hint if _is_count(hint) else "")
    return min(int(wanted.lstrip("0")[:9]) if wanted else processors(), processors(), MOST_THREADS)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and bool(text.strip("0"))
