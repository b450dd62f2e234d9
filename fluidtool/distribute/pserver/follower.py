"""A server of an elastic job that does not keep the roll: it asks the first one whose gradients count."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from fluidtool.distribute.pserver.elastic import ElasticServer
from fluidtool.distribute.pserver.roll import Terms, terms_of
from fluidtool.distribute.rpc.handler import TERM, Gone, Late
from fluidtool.distribute.rpc.methods import CLOSED
from fluidtool.errors import FluidError
from fluidtool.tensor import LoDTensor

OVER = [-1]


class Follower(ElasticServer):
    """connect: gives a client of the first server."""

    def __init__(self, *args: Any, connect: Callable[[], Any], **options: Any) -> None:
        super().__init__(*args, **options)
        self._connect = connect
        self._asking: tuple[Any, threading.Thread] | None = None
        self._answers: deque[Terms | FluidError | None] = deque()

    def _serve(self) -> None:
        try:
            super()._serve()
        finally:
            if self._asking is not None:
                client, thread = self._asking
                client.abandon()
                thread.join(1.0)

    def _closed(self) -> Terms | None:
        if self._asking is None:
            client = self._connect()
            thread = threading.Thread(target=self._ask, args=(client, self.updated + 1), name="roll", daemon=True)
            self._asking = client, thread
            thread.start()
        with self._arrived:
            if not self._until(lambda: bool(self._answers)):
                return None
            answer = self._answers.popleft()
            if isinstance(answer, FluidError):
                self.attendance.present = 0
                if self._has_seen_all_end():
                    return None
                raise Gone(
                    f"the server at {self.endpoint} gives up: the first server of the job, which keeps the roll, cannot be "
                    f"asked ({answer})"
                )
            if answer is None:
                self.attendance.present = 0
        return answer

    def _has_seen_all_end(self) -> bool:
        return self.attendance.has_ended

    def _ask(self, client: Any, number: int) -> None:
        """In a thread of its own: ask for one round after the other."""
        while not self._stopped:
            try:
                answer: Terms | FluidError | None = self._answer(client, number)
            except Late:
                continue  # rounds may take longer than a call
            except FluidError as error:
                answer = error
            with self._arrived:
                self._answers.append(answer)
                self._arrived.notify_all()
            if not isinstance(answer, dict):
                return
            number += 1

    def _answer(self, client: Any, number: int) -> Terms | None:
        client.step = TERM + number
        found = client.get(CLOSED, with_barrier=False)
        assert isinstance(found, LoDTensor)
        numbers = found.numpy().tolist()
        return None if numbers == OVER else terms_of(numbers)

    def _check_limits(self) -> None:
        """The first server sees who is missing."""
