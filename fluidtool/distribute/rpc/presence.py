"""Which trainers have a connection to a server, whichever way it goes."""

from __future__ import annotations

import threading
from collections import Counter

KEPT = 8  # processes of a trainer


def process_of(client: str) -> str:
    """The process that a client belongs to, by its name; "" for a name that says nothing of that."""
    return client.rpartition(".")[0]


class Presence:
    """Counts connections of a trainer's newest process. One of an older process is left where a machine vanished without a word:
    it says nothing about a process that was started again elsewhere.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, Counter[str]] = {}  # of each trainer the processes, the oldest first

    def begin(self, trainer: int, process: str) -> None:
        """A connection begins."""
        with self._lock:
            processes = self._open.setdefault(trainer, Counter())
            processes[process] += 1
            for older in list(processes)[:-KEPT]:
                del processes[older]

    def end(self, trainer: int, process: str) -> bool:
        """A connection ends; whether it was the last one of the trainer's newest process."""
        with self._lock:
            processes = self._open.get(trainer)
            if processes is None or process not in processes:
                return False
            processes[process] -= 1
            return not processes[process] and process == next(reversed(processes))
