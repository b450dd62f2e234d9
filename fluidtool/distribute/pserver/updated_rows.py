"""Geo-SGD: which rows of a table changed since each trainer last fetched them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[np.int64]]


class UpdatedRows:
    """For each trainer the rows of one table of `height` rows that it has not seen.."""

    def __init__(self, height: int, trainers: int, *, all_new: bool = False) -> None:
        self._lock = threading.Lock()
        self._new = [np.full(height, all_new) for _ in range(trainers)]

    def add(self, rows: Rows) -> None:
        """These rows changed: news for every trainer, also for the one that changed them."""
        with self._lock:
            for flags in self._new:
                flags[rows] = True

    def take(self, trainer: int) -> Rows:
        """The rows that are news for a trainer, ascending; they are no news any more."""
        with self._lock:
            rows = np.flatnonzero(self._new[trainer]).astype(np.int64)
            self._new[trainer][rows] = False
        return rows
