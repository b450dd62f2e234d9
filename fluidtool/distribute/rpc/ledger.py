"""Which calls of a trainer were answered already, so that one that is repeated does not count twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from fluidtool.distribute.rpc.handler import Late

KEPT_CALLS = 1 << 14
KEPT_CLIENTS = 1 << 13


class _Client:
    """The calls of one client process: those that are done, and those that a thread answers now."""

    __slots__ = ("done", "running")

    def __init__(self) -> None:
        self.done: OrderedDict[int, None] = OrderedDict()
        self.running: dict[int, threading.Event | None] = {}  # None: no repetition waits


class Ledger:
    """Runs each numbered call of a client once. A call that failed is not done: a repetition runs it again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def once(self, client: str, number: int, work: Callable[[], object], patience: float) -> None:
        """Run `work` unless the client's call of that number is done; a repetition waits for the first to end.

        Raises what `work` raises, and Late when the first one does not end within `patience` seconds.
        """
        while True:
            with self._lock:
                calls = self._calls(client)
                if number in calls.done:
                    return
                if number not in calls.running:
                    calls.running[number] = None
                    break
                ended = calls.running[number] = calls.running[number] or threading.Event()
            if not ended.wait(patience):
                raise Late(f"call {number} was repeated, and its first run has not ended within {patience:g} s")
        try:
            work()
            with self._lock:
                calls.done[number] = None
                if len(calls.done) > KEPT_CALLS:
                    calls.done.popitem(last=False)
        finally:
            with self._lock:
                waited_for = calls.running.pop(number)
            if waited_for is not None:
                waited_for.set()

    def _calls(self, client: str) -> _Client:
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = _Client()
            if len(self._clients) > KEPT_CLIENTS:
                self._clients.popitem(last=False)
        else:
            self._clients.move_to_end(client)
        return found
