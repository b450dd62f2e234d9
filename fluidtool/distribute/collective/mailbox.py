"""Mailbox: where the values that other ranks send to this one wait until it asks for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from fluidtool.errors import CollectiveError
from fluidtool.records import dataclass

POLL_SECONDS = 1.0
AHEAD = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Which message: of which rank, in which collective (counted from 0 on each ring), in which step of it."""

    source: int
    sequence: int
    step: int


@dataclass(frozen=True, slots=True)
class Parcel:
    """A value and what its sender was doing: 'all_reduce sum (3, 4) float32'."""

    label: str
    value: Any


class Mailbox:
    """Messages for one rank of one ring. Senders put, the rank takes; any number of threads."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._parcels: dict[Place, Parcel] = {}
        self._left: set[int] = set()
        self._reason = ""
        self._sequence = 0
        self._changed = threading.Condition()

    def put(self, place: Place, parcel: Parcel, seconds: float = 0.0) -> None:
        """Leave a parcel; waits up to `seconds` while the sender is far ahead. Raises CollectiveError after an abort."""
        with self._changed:
            self._changed.wait_for(lambda: self._reason or place.sequence <= self._sequence + AHEAD, seconds)
            self.check()
            if place.sequence > self._sequence + AHEAD:
                raise CollectiveError(
                    f"rank {place.source} is {AHEAD} collectives ahead of rank {self.rank}, which makes no progress"
                )
            self._parcels[place] = parcel
            self._changed.notify_all()

    def take(
        self, place: Place, label: str, seconds: float, is_alive: Callable[[int], bool] = lambda rank: True
    ) -> Any:
        """The value of that place, waited for up to `seconds`.

        Raises CollectiveError when its sender did something else than `label`, has left, does not live, or is too late.
        """
        end = time.monotonic() + seconds
        while True:
            with self._changed:
                self._sequence = max(self._sequence, place.sequence)
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._is_decided(place), min(POLL_SECONDS, max(end - time.monotonic(), 0))
                )
                self.check()
                parcel = self._parcels.pop(place, None)
                if parcel is not None:
                    return self._value(place, parcel, label)
                if place.source in self._left:
                    raise CollectiveError(
                        f"rank {self.rank} waits for rank {place.source} at {label}, but that rank has finished; the "
                        "ranks must run the same number of steps"
                    )
            if not is_alive(place.source):
                raise CollectiveError(
                    f"rank {place.source} has ended or died while rank {self.rank} waited for it at {label}"
                )
            if time.monotonic() >= end:
                raise CollectiveError(
                    f"rank {self.rank} waited {seconds:g} s for rank {place.source} at {label}; it hangs, or does "
                    f"something else (FLUIDTOOL_COLLECTIVE_DEADLINE sets how many seconds to wait)"
                )

    def abort(self, reason: str) -> None:
        """Everything fails from now on; the first reason stays."""
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()

    def leave(self, source: int) -> None:
        """Another rank sends nothing any more."""
        with self._changed:
            self._left.add(source)
            self._changed.notify_all()

    def check(self) -> None:
        """Raise CollectiveError after an abort."""
        if self._reason:
            raise CollectiveError(self._reason)

    def _is_decided(self, place: Place) -> bool:
        return bool(self._reason) or place in self._parcels or place.source in self._left

    def _value(self, place: Place, parcel: Parcel, label: str) -> Any:
        if parcel.label != label:
            raise CollectiveError(
                f"the ranks disagree: at collective number {place.sequence} of the ring, rank {self.rank} is at "
                f"{label}, but rank {place.source} at {parcel.label}"
            )
        return parcel.value
