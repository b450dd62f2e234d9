"""A primary's connection to its backup: what trainers send goes there too, in the order in which the primary took it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from fluidtool.distribute.pserver.replicas.messages import BEAT, signal
from fluidtool.distribute.rpc.handler import Message
from fluidtool.errors import FluidError

COPYING = 60.0  # seconds that a backup has to take one message of everything
LAST_SECONDS = 1.0  # that the last messages have
PAUSE = 0.5  # seconds between two signs of life


class Link:
    """told: how many messages there were to pass on; taken: how many of them the backup has. patience: seconds that it has to
    take one.

    `changed` is called when that becomes more, `failed` when the backup is lost, each on the thread of the link.
    """

    def __init__(self, client: Any, changed: Callable[[], None], failed: Callable[[Link, FluidError], None]) -> None:
        self.told = self.taken = 0
        self.patience = COPYING
        self.is_closed = False
        self._client, self._changed, self._failed = client, changed, failed
        self._queue: deque[tuple[Message, int]] = deque()
        self._filled = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="to the backup", daemon=True)

    def start(self) -> None:
        """Begin to pass on."""
        self._thread.start()

    def tell(self, message: Message, step: int) -> int:
        """Pass a message on; its number."""
        with self._filled:
            self._queue.append((message, step))
            self.told += 1
            if len(self._queue) == 1:
                self._filled.notify()
            return self.told

    def close(self) -> None:
        """Pass nothing more on."""
        with self._filled:
            self.is_closed = True
            self._filled.notify()
        self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        try:
            while not self.is_closed:
                self._pass_on(self._next())
        except FluidError as error:
            if not self.is_closed:
                self.is_closed = True
                self._failed(self, error)
        finally:
            self._client.abandon()

    def _next(self) -> list[tuple[Message, int]]:
        with self._filled:
            if not self._queue and not self.is_closed:
                self._filled.wait(PAUSE)
            found = list(self._queue)
            self._queue.clear()
            return found

    def _pass_on(self, messages: list[tuple[Message, int]]) -> None:
        for message, step in messages or [(signal(BEAT), 0)]:
            self._client.forward(message, step)
        self._client.settle(self.patience)
        if messages:
            self.taken += len(messages)
            self._changed()
