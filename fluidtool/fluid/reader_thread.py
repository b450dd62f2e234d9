"""The thread that reads batches ahead of the runs: from a generator into a bounded queue."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from threading import Thread
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, AssertedError, FeedError, UsageError
from fluidtool.ops.control_flow.readers import TensorQueue
from fluidtool.tensor import CPUPlace, CUDAPlace, LoDTensor, Place

Batches = Callable[[], Iterable[Sequence[Any]]]


class ReaderQueue(TensorQueue):
    """A queue of batches that raises the generator's exception for the reader of the next batch."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.started = False
        self.error: Exception | None = None

    def pop(self) -> list[LoDTensor] | None:
        """The oldest batch, waiting for it; None at the end. Raises what the generator raised, FeedError before start."""
        if not self.started:
            raise FeedError("the reader has not been started: call its start() before the program runs")
        batch = super().pop()
        if batch is None and self.error is not None:
            raise self.error
        return batch

    def reopen(self) -> None:
        """Drop waiting batches and errors, and accept batches again."""
        super().reopen()
        self.started, self.error = True, None


class ReaderThread:
    """Fills a queue of `capacity` batches from a generator, in the background; ends with this object or `reset`."""

    def __init__(self, capacity: int) -> None:
        self.queue = ReaderQueue(capacity)
        self.batches: Batches | None = None
        self.places: Sequence[Place] = (CPUPlace(),)
        self._thread: Thread | None = None
        weakref.finalize(self, self.queue.close)

    def open_queue(self) -> ReaderQueue:
        """The queue, for code that pushes batches itself."""
        self.queue.started = True
        return self.queue

    def start(self) -> None:
        """Begin an epoch; raises AssertedError without a source of data, UsageError while the previous epoch is running."""
        if self.batches is None:
            raise AssertedError("Data source of DataLoader has not set yet: give it a generator first")
        if self._thread is not None and self._thread.is_alive():
            raise UsageError("the reader is already running: call reset() before the next start()")
        self.queue.reopen()
        self._thread = Thread(target=_fill, args=(self.queue, self.batches, tuple(self.places)), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the generator has been read."""
        if self._thread is not None:
            self._thread.join()

    def reset(self) -> None:
        """End the epoch and drop the queued batches."""
        self.queue.close()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self.queue.reopen()
            self.queue.close()


def _fill(queue: ReaderQueue, batches: Batches, places: tuple[Place, ...]) -> None:
    try:
        for number, batch in enumerate(batches()):
            place = places[number % len(places)]
            if not queue.push(_tensor(item, place) for item in batch):
                return
    except Exception as error:
        queue.error = error
    finally:
        queue.close()


def _tensor(item: Any, place: Place) -> LoDTensor:
    if isinstance(item, LoDTensor) and not isinstance(place, CUDAPlace):
        return item
    array = item.numpy() if isinstance(item, LoDTensor) else regular_array(item)
    tensor = LoDTensor()
    tensor.set(array, place)
    if isinstance(item, LoDTensor):
        tensor.set_lod(item.lod())
    return tensor


def regular_array(item: Any) -> np.ndarray[Any, Any]:
    """An array of an array or nested lists; raises ArgumentTypeError for lists of different lengths."""
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise _ragged() from error
    if array.dtype == object:
        raise _ragged()
    return array


def _ragged() -> ArgumentTypeError:
    return ArgumentTypeError(
        "Faild to convert input data to a regular ndarray: the generator gave nested lists of different lengths; "
        "use fluid.create_lod_tensor to convert them to a LoDTensor"
    )
