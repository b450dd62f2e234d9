"""Python's collector of cyclic garbage while a server serves."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = 50_000, 20, 100


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for cyclic garbage seldom.

    A round of a synchronous server keeps several objects for each message, and none of them is part of a cycle. By default
    the collector looks through the new ones each time there are 700 more, and through all objects each time these have
    grown by a quarter: the more trainers a job had, the more a message cost. Thresholds that somebody raised further, and a
    collector that is switched off, stay as they are.
    """
    before = gc.get_threshold()
    if before[0] == 0 or before[0] >= THRESHOLDS[0]:
        yield
        return
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
