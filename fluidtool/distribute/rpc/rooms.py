"""How many bytes of messages a server holds at a time: of each caller, and of all.

A call takes room before its message is read, and waits while there is none. A message that has not arrived for a while
loses its room when others wait: callers that are slow on purpose stop nobody for long.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field

from fluidtool.distribute.rpc.handler import Late
from fluidtool.records import dataclass

STALLED = 10.0  # seconds after which a message that has not arrived makes way for others
LOOK = 0.2


@dataclass(slots=True, eq=False)
class Room:
    """What one call holds. give_up ends that call."""

    caller: str
    size: int
    give_up: Callable[[], object] = field(repr=False)
    since: float = 0.0
    is_arriving: bool = True


class Rooms:
    """caller, total: bytes for one caller and for all; arriving: messages that arrive at a time.

    A message that is larger than that passes alone.
    """

    def __init__(self, caller: int, total: int, arriving: int, patience: float) -> None:
        self.caller, self.total, self.arriving, self.patience = caller, total, arriving, patience
        self._changed = threading.Condition()
        self._of: Counter[str] = Counter()
        self._used = 0
        self._arriving: dict[Room, None] = {}  # the oldest first

    @contextmanager
    def taken(self, caller: str, size: int, give_up: Callable[[], object]) -> Iterator[Room]:
        """Room for a message of up to `size` bytes; raises Late when there is none for too long."""
        room = Room(caller, 0, give_up)
        self.change(room, size)
        try:
            yield room
        finally:
            self.arrived(room, 0)

    def change(self, room: Room, size: int) -> None:
        """Before another message of the same call arrives: room for that instead; waits for it, and raises Late."""
        with self._changed:
            self._set(room, 0)
            if not self._fits(room.caller, size):
                self._wait(room.caller, size)
            room.since, room.is_arriving = time.monotonic(), True
            self._arriving[room] = None
            self._set(room, size)

    def arrived(self, room: Room, size: int) -> None:
        """The message is here, and has so many bytes; the call holds them until it ends."""
        with self._changed:
            room.is_arriving = False
            self._arriving.pop(room, None)
            self._set(room, size)
            self._changed.notify_all()

    def _set(self, room: Room, size: int) -> None:
        self._used += size - room.size
        self._of[room.caller] += size - room.size
        if not self._of[room.caller]:
            del self._of[room.caller]
        room.size = size

    def _fits(self, caller: str, size: int) -> bool:
        alone = not self._of[caller]
        if not alone and self._of[caller] + size > self.caller:
            return False
        if self._used and self._used + size > self.total:
            return False
        return len(self._arriving) < self.arriving

    def _wait(self, caller: str, size: int) -> None:
        end = time.monotonic() + self.patience
        while not self._fits(caller, size):
            now = time.monotonic()
            if now > end:
                raise Late(f"this server had no room for a message of {size} bytes for {self.patience:g} s; try again")
            self._make_way(now)
            self._changed.wait(LOOK)

    def _make_way(self, now: float) -> None:
        """End the oldest call whose message does not arrive."""
        for room in self._arriving:
            if now - room.since < STALLED:
                return
            if room.is_arriving:
                room.is_arriving = False
                room.give_up()
                return
