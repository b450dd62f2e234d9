"""Work that is counted, not timed: the lines of fluidtool that run, a line of a comprehension once for each item.

Twice the program may take at most LIMIT times the lines, once the lines for a very small program are taken off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import fluidtool

LIMIT = 2.5
Work = Callable[[], Any]
SOURCES = str(Path(fluidtool.__file__).parent), str(Path(fluidtool.__file__).parent.parent / "ops")


def lines(work: Work) -> int:
    """How many lines of fluidtool run."""
    count = 0

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return inside

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return inside if frame.f_code.co_filename.startswith(SOURCES) else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def growth(work_of: Callable[[int], Work], size: int, smallest: int) -> float:
    """How many times the lines it takes for as much again, beside what the smallest takes: 2 where lines go by the size."""
    work_of(smallest)()  # what is imported or found once
    sizes = (smallest, size, 2 * size - smallest)
    least, once, twice = (lines(work_of(each)) for each in sizes)
    return (twice - least) / (once - least)
