"""Gradients of all trainers summed: many small arrays travel as few large ones, beside other work if wanted."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from fluidtool.distribute.collective.communicator import Communicator, Pending
from fluidtool.distribute.collective.compression import COMPRESSION, Compression
from fluidtool.errors import UsageError
from fluidtool.tensor import SelectedRows

BUCKET_SIZE, DEFAULT_MIB = "FLAGS_fuse_parameter_memory_size", 32
BUCKET_BYTES = DEFAULT_MIB << 20
PREPARED_BYTES = 64 << 10  # above, what a call costs by itself does not count, and a copy does
OVERLAP = "FLUIDTOOL_COLLECTIVE_OVERLAP"
Listener = Callable[[str, float, float], None]


def bucket_bytes(environment: Mapping[str, str], given: float = -1.0) -> int:
    """FLAGS_fuse_parameter_memory_size MiB, of the environment or else `given`; below 0: 32 MiB.

    Raises UsageError for what is no number.
    """
    text = environment.get(BUCKET_SIZE, str(given))
    try:
        size = float(text)
    except ValueError:
        raise UsageError(f"{BUCKET_SIZE} must be a number of MiB, found {text!r}") from None
    return int((size if size >= 0 else DEFAULT_MIB) * 2**20)


def overlaps(environment: Mapping[str, str]) -> bool:
    """Whether sums run beside the computation: FLUIDTOOL_COLLECTIVE_OVERLAP=1. Raises UsageError for what is not 0 or 1."""
    text = environment.get(OVERLAP, "0")
    if text not in ("0", "1"):
        raise UsageError(f"{OVERLAP} must be 0 or 1, found {text!r}")
    return text == "1"


class Background:
    """A thread that runs what it is given, in order. It does not keep the process from ending."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="sums of gradients").start()

    def submit(self, task: Callable[[], Any]) -> Future[Any]:
        """Run a task after those before it."""
        future: Future[Any] = Future()
        self._tasks.put((future, task))
        return future

    def drain(self) -> None:
        """Wait until everything before has run."""
        self.submit(lambda: None).result()

    def close(self) -> None:
        """End when everything before has run."""
        self._tasks.put(None)

    def _run(self) -> None:
        while (given := self._tasks.get()) is not None:
            future, task = given
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)


class Sums:
    """Sums over the ranks of a ring: of the arrays that are added, in buckets of neighbors of one data type.

    limit: bytes of a bucket; a larger array travels alone, and with 0 each does. A bucket is sent when the next array does not
    fit: beside the computation where the communicator can, or by the `background`, else when the sums are taken. Small buckets
    on the host are summed in memory of their own, by calls that the communicator has prepared. Raises CollectiveError as the
    communicator does.
    listener: is told the name, the start and the end of each sum, by time.perf_counter.
    """

    def __init__(
        self,
        communicator: Communicator,
        limit: int,
        compression: Compression | None = None,
        *,
        background: Background | None = None,
        listener: Listener | None = None,
        xp: Any = np,
    ) -> None:
        self._communicator, self._limit, self._xp = communicator, limit, xp
        self._compression, self._background, self._listener = compression, background, listener
        self._open: list[Any] = []
        self._size = 0
        self._sent: list[Pending | list[Any]] = []
        self._prepared: dict[tuple[int, Any, int], tuple[np.ndarray, Callable[[], None]]] = {}

    def add(self, array: Any) -> None:
        """Have an array summed; it must not change before the sums are taken."""
        if self._open and (self._size + array.nbytes > self._limit or self._open[0].dtype != array.dtype):
            self._send()
        self._open.append(array)
        self._size += array.nbytes

    def take(self) -> list[Any]:
        """The sums, in the order in which the arrays were added. Those of one bucket share their memory, not the arrays'."""
        if self._open:
            self._send()
        sent, self._sent = self._sent, []
        found = [self._sum(one, place) if isinstance(one, list) else one.result() for place, one in enumerate(sent)]
        return [array for group in found for array in group]

    def of(self, arrays: Sequence[Any]) -> list[Any]:
        """The sums of these arrays."""
        for array in arrays:
            self.add(array)
        return self.take()

    def clear(self) -> None:
        """Forget what has been added."""
        self._open, self._size, self._sent = [], 0, []

    def _send(self) -> None:
        arrays, place = self._open, len(self._sent)
        self._open, self._size = [], 0
        begun = self._communicator.begin_sums(arrays) if self._compression is None else None
        if begun is not None:
            self._sent.append(begun)
        elif self._background is None:
            self._sent.append(arrays)
        else:
            self._sent.append(self._background.submit(lambda: self._sum(arrays, place)))

    def _sum(self, arrays: list[Any], place: int) -> list[Any]:
        start = time.perf_counter()
        flat = self._reduced([array.reshape(-1) for array in arrays], place)
        if self._listener is not None:
            self._listener(f"sum of {len(arrays)} gradients, {flat.nbytes} bytes", start, time.perf_counter())
        bounds = np.cumsum([array.size for array in arrays])[:-1]
        return [part.reshape(array.shape) for part, array in zip(self._xp.split(flat, bounds), arrays, strict=True)]

    def _reduced(self, parts: list[Any], place: int) -> Any:
        if self._compression is not None and parts[0].dtype == np.float32:
            if not isinstance(parts[0], np.ndarray):
                raise UsageError(f"{COMPRESSION} works on the CPU only, but the gradients are on a GPU; unset it")
            return self._compression.sum(self._communicator, np.concatenate(parts), place)
        size = sum(part.size for part in parts)
        if isinstance(parts[0], np.ndarray) and size * parts[0].dtype.itemsize <= PREPARED_BYTES:
            return self._reduced_as_prepared(parts, place, size)
        flat = self._xp.concatenate(parts)
        return self._communicator.all_reduce(flat, out=flat)

    def _reduced_as_prepared(self, parts: list[Any], place: int, size: int) -> Any:
        """What is chosen by sizes alone: ranks that prepare and ranks that do not would wait for each other."""
        key = place, parts[0].dtype, size
        if key not in self._prepared:
            memory = np.empty(size, parts[0].dtype)
            self._prepared[key] = memory, self._communicator.prepare_all_reduce(memory)
        memory, reduce = self._prepared[key]
        np.concatenate(parts, out=memory)
        reduce()
        return memory.copy()


def gather_rows(communicator: Communicator, selected: SelectedRows, xp: Any = np) -> SelectedRows:
    """The rows of all ranks, one below the other in the order of the ranks; each may have any number."""
    rows = [
        np.frombuffer(found, np.int64)
        for found in communicator.exchange(np.asarray(selected.row_ids, np.int64).tobytes())
    ]
    longest = max(map(len, rows))
    value = xp.asarray(selected.value)
    padded = xp.zeros((longest, *value.shape[1:]), value.dtype)
    padded[: len(value)] = value
    gathered = communicator.all_gather(padded) if longest else padded
    parts = [gathered[rank * longest :][: len(ids)] for rank, ids in enumerate(rows)]
    return SelectedRows(np.concatenate(rows), selected.table_height, xp.concatenate(parts))
