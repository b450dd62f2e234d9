"""Collectives out of messages between ranks: the reference, and what runs where neither MPI nor NCCL is there.

Every rank reduces its own part of an array, in the order of the ranks, and gives it to all others. Each rank sends and
receives 2 * bytes * (size - 1) / size, as a ring does, in two steps where a ring needs 2 * (size - 1). Sums are
((x0 + x1) + x2) + …, whatever the size of the array, and the same bits on every rank.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.errors import CollectiveError
from fluidtool.shapes import shape_text

SMALL_ELEMENTS = 2048
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


class Link(Protocol):
    """How one rank reaches the others. Values are arrays or bytes; posted ones must not change before a flush."""

    def post(self, values: Mapping[int, Any], sequence: int, step: int, label: str) -> None:
        """Send each rank its value."""

    def take(self, source: int, sequence: int, step: int, label: str) -> Any:
        """What a rank has sent; waits for it. Must not be written to."""

    def flush(self) -> None:
        """Wait until the others have what was posted."""

    def abort(self, reason: str) -> None:
        """Make whatever the others wait for fail."""

    def leave(self) -> None:
        """Tell the others that nothing comes any more."""


class PeerCommunicator(Communicator):
    """A ring whose ranks send each other messages over a Link."""

    checks_arrays = True

    def __init__(self, link: Link, rank: int, size: int, ring: int = 0) -> None:
        super().__init__(rank, size, ring)
        self._link, self._sequence = link, 0

    @property
    def others(self) -> list[int]:
        """The other ranks."""
        return [rank for rank in range(self.size) if rank != self.rank]

    def barrier(self) -> None:
        """Return when every rank has come here."""
        self.exchange(b"")

    def exchange(self, data: bytes) -> list[bytes]:
        """The bytes that every rank gave, by rank."""
        return [bytes(found) for found in self._round("exchange", data)]

    def abort(self, reason: str) -> None:
        """Make whatever the other ranks do on this ring fail with this reason."""
        self._link.abort(reason)

    def close(self) -> None:
        """Leave the ring."""
        self._link.leave()

    def _all_reduce(self, array: Any, reduction: str, out: Any) -> Any:
        label = _label(f"all_reduce {reduction}", array)
        result = np.empty_like(array, order="C") if out is None else out
        if array.size <= SMALL_ELEMENTS:
            result[...] = reduced(self._round(label, array), reduction)
            return result
        flat, into, bounds = np.ravel(array), result.reshape(-1), parts(array.size, self.size)
        with self._collective() as sequence:
            mine = self._reduced_part([flat[start:end] for start, end in bounds], reduction, sequence, label)
            self._post(dict.fromkeys(self.others, mine), sequence, 1, label)
            for rank, (start, end) in enumerate(bounds):
                into[start:end] = mine if rank == self.rank else self._take(rank, sequence, 1, label)
        return result

    def _reduce(self, array: Any, root: int, reduction: str) -> Any:
        label = _label(f"reduce {reduction} to {root}", array)
        with self._collective() as sequence:
            if self.rank != root:
                self._post({root: array}, sequence, 0, label)
                return array
            return reduced(self._collected(array, sequence, label), reduction)

    def _broadcast(self, array: Any, root: int) -> Any:
        label = _label(f"broadcast from {root}", array)
        with self._collective() as sequence:
            if self.rank != root:
                return np.array(self._take(root, sequence, 0, label))
            self._post(dict.fromkeys(self.others, array), sequence, 0, label)
            return array

    def _all_gather(self, array: Any) -> Any:
        return np.concatenate(self._round(_label("all_gather", array), array))

    def _all_to_all(self, array: Any) -> Any:
        label = _label("all_to_all", array)
        with self._collective() as sequence:
            self._post({rank: array[rank] for rank in self.others}, sequence, 0, label)
            return np.stack(self._collected(array[self.rank], sequence, label))

    def _reduce_scatter(self, array: Any, reduction: str) -> Any:
        label = _label(f"reduce_scatter {reduction}", array)
        with self._collective() as sequence:
            return self._reduced_part(np.split(array, self.size), reduction, sequence, label)

    # ---------------------------------------------------------------- steps
    def _round(self, label: str, value: Any) -> list[Any]:
        """What every rank gives, by rank."""
        with self._collective() as sequence:
            self._post(dict.fromkeys(self.others, value), sequence, 0, label)
            return self._collected(value, sequence, label)

    def _reduced_part(self, chunks: Sequence[Any], reduction: str, sequence: int, label: str) -> Any:
        self._post({rank: chunks[rank] for rank in self.others}, sequence, 0, label)
        return reduced(self._collected(chunks[self.rank], sequence, label), reduction)

    def _collected(self, own: Any, sequence: int, label: str) -> list[Any]:
        return [own if rank == self.rank else self._take(rank, sequence, 0, label) for rank in range(self.size)]

    @contextmanager
    def _collective(self) -> Iterator[int]:
        """The number of this collective; a failure here is told to the others, who would wait."""
        sequence = self._sequence
        self._sequence += 1
        try:
            yield sequence
            self._link.flush()
        except CollectiveError as error:
            self._link.abort(str(error))
            raise

    def _post(self, values: Mapping[int, Any], sequence: int, step: int, label: str) -> None:
        self._link.post(values, sequence, step, label)

    def _take(self, source: int, sequence: int, step: int, label: str) -> Any:
        return self._link.take(source, sequence, step, label)


def reduced(values: Sequence[Any], reduction: str) -> Any:
    """The reduction in the order of the values, as a new array."""
    if len(values) == 1:
        return values[0].copy()
    function = FUNCTIONS[reduction]
    first = function(values[0], values[1])
    return functools.reduce(lambda total, value: function(total, value, out=total), values[2:], np.asarray(first))


def parts(count: int, number: int) -> list[tuple[int, int]]:
    """`number` neighboring ranges that cover 0 to count, of lengths that differ by one at most."""
    width, longer = divmod(count, number)
    starts = [index * width + min(index, longer) for index in range(number + 1)]
    return list(itertools.pairwise(starts))


def _label(what: str, array: Any) -> str:
    return f"{what} {shape_text(array.shape)} {array.dtype}"
