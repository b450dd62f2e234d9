"""Ranks as threads of one process: devices of a ParallelExecutor, and tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from fluidtool.distribute.collective.communicator import DEADLINE_SECONDS, Communicator
from fluidtool.distribute.collective.mailbox import Mailbox, Parcel, Place
from fluidtool.distribute.collective.peers import PeerCommunicator

T = TypeVar("T")


class ThreadLink:
    """Reaches the mailboxes of the other threads; copies what it sends."""

    def __init__(self, rank: int, mailboxes: list[Mailbox], seconds: float) -> None:
        self._rank, self._mailboxes, self._seconds = rank, mailboxes, seconds

    def post(self, values: Mapping[int, Any], sequence: int, step: int, label: str) -> None:
        """Leave a copy of each value in the mailbox of its rank."""
        for rank, value in values.items():
            copy = value if isinstance(value, bytes) else np.array(value)
            self._mailboxes[rank].put(Place(self._rank, sequence, step), Parcel(label, copy), self._seconds)

    def take(self, source: int, sequence: int, step: int, label: str) -> Any:
        """What another thread has left here."""
        return self._mailboxes[self._rank].take(Place(source, sequence, step), label, self._seconds)

    def flush(self) -> None:
        """Nothing is on the way."""

    def abort(self, reason: str) -> None:
        """Fail in every thread."""
        for mailbox in self._mailboxes:
            mailbox.abort(reason)

    def leave(self) -> None:
        """Tell every thread."""
        for mailbox in self._mailboxes:
            mailbox.leave(self._rank)


def thread_communicators(size: int, ring: int = 0, seconds: float = DEADLINE_SECONDS) -> list[Communicator]:
    """A ring of `size` ranks within this process, one for each thread."""
    mailboxes = [Mailbox(rank) for rank in range(size)]
    return [PeerCommunicator(ThreadLink(rank, mailboxes, seconds), rank, size, ring) for rank in range(size)]


def run_ranks(size: int, work: Callable[[Communicator], T], seconds: float = DEADLINE_SECONDS) -> list[T]:
    """Run `work` on `size` threads, each with its end of one ring; their results by rank.

    A thread that raises aborts the others; the error that came first is raised here.
    """
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def run(communicator: Communicator) -> None:
        try:
            results[communicator.rank] = work(communicator)
            communicator.close()
        except BaseException as error:
            errors.append(error)
            communicator.abort(f"rank {communicator.rank} failed: {error}")

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in thread_communicators(size, 0, seconds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
