"""How many bytes of long contents a server takes from sockets at a time: from each caller, and from all."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from fluidtool.distribute.rpc.rooms import STALLED

if TYPE_CHECKING:
    from fluidtool.distribute.rpc.sockets.connection import Connection


class Space:
    """caller, total: bytes for one caller and for all. A content that is longer than that passes alone.

    For one thread. One that has begun and does not end makes way when others wait.
    """

    def __init__(self, caller: int, total: int) -> None:
        self.caller, self.total = caller, total
        self._of: Counter[str] = Counter()
        self._used = 0
        self._held: dict[Connection, deque[tuple[int, float]]] = {}

    def enter(self, connection: Connection, size: int) -> bool:
        """Take room for a content of so many bytes; False where there is none now."""
        caller = connection.client.name
        if self._of[caller] and self._of[caller] + size > self.caller:
            return False
        if self._used and self._used + size > self.total:
            return False
        self._held.setdefault(connection, deque()).append((size, time.monotonic()))
        self._change(caller, size)
        return True

    def leave(self, connection: Connection) -> bool:
        """Give back what the oldest content of a connection took; whether there was one."""
        held = self._held.get(connection)
        if not held:
            return False
        self._change(connection.client.name, -held.popleft()[0])
        if not held:
            del self._held[connection]
        return True

    def leave_all(self, connection: Connection) -> None:
        """Give back everything that a connection took."""
        while self.leave(connection):
            pass

    def stalled(self, now: float) -> Connection | None:
        """A connection whose content has begun, and not ended for too long."""
        for connection, held in self._held.items():
            if connection.reader.is_long and now - held[-1][1] > STALLED:
                return connection
        return None

    def _change(self, caller: str, size: int) -> None:
        self._used += size
        self._of[caller] += size
        if not self._of[caller]:
            del self._of[caller]
