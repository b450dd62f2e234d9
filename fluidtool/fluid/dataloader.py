"""Data sets of samples by index, and mini-batches of them (Paddle 1.8.5 fluid/dataloader)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError, FeedError, UnsupportedOperatorError
from fluidtool.fluid.reader_thread import ReaderThread
from fluidtool.ir import Variable
from fluidtool.tensor import LoDTensor, Place

__all__ = ["BatchSampler", "Dataset", "default_collate_fn"]


class Dataset:
    """Samples by index: override `__getitem__`, which returns a tuple with a value for each variable, and `__len__`."""

    def __getitem__(self, idx: int) -> Any:
        """The sample with this index."""
        raise UnsupportedOperatorError(f"'__getitem__' not implement in class {type(self).__name__}")

    def __len__(self) -> int:
        """The number of samples."""
        raise UnsupportedOperatorError(f"'__len__' not implement in class {type(self).__name__}")


class BatchSampler:
    """The indices of the samples of each mini-batch: of a whole data set, or of `indices`.

    shuffle: a different order in every epoch, by `numpy.random.shuffle`, as in Paddle. drop_last: drops an incomplete
    batch. Raises AssertedError.
    """

    def __init__(
        self,
        dataset: Dataset | None = None,
        indices: Sequence[int] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        if (dataset is None) == (indices is None):
            text = (
                "either dataset or indices should be set"
                if dataset is None
                else "should not set both dataset and indices"
            )
            raise AssertedError(text)
        if dataset is not None and not isinstance(dataset, Dataset):
            raise AssertedError(f"dataset should be an instance of paddle.io.Dataset, found {type(dataset).__name__}")
        if indices is not None and not isinstance(indices, (list, tuple)):
            raise AssertedError(f"indices should be a list or tuple, but got {type(indices)}")
        if not isinstance(batch_size, int) or batch_size < 1:
            raise AssertedError(f"batch_size should be a positive integer, but got {batch_size}")
        for name, value in (("shuffle", shuffle), ("drop_last", drop_last)):
            if not isinstance(value, bool):
                raise AssertedError(f"{name} should be a boolean value, but got {type(value)}")
        self.indices = list(range(len(dataset))) if dataset is not None else list(indices or ())
        self.shuffle, self.batch_size, self.drop_last = shuffle, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        if self.shuffle:
            np.random.shuffle(self.indices)  # numpy.random.seed decides, as in Paddle
        end = len(self) * self.batch_size
        for start in range(0, min(end, len(self.indices)), self.batch_size):
            yield self.indices[start : start + self.batch_size]

    def __len__(self) -> int:
        rest = 0 if self.drop_last else self.batch_size - 1
        return (len(self.indices) + rest) // self.batch_size


def default_collate_fn(batch: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """One array per field of the samples, stacked along a new first axis. Raises FeedError."""
    samples = [(sample,) if isinstance(sample, np.ndarray) else tuple(sample) for sample in batch]
    try:
        return [np.stack(field) for field in zip(*samples, strict=True)]
    except ValueError as error:
        raise FeedError(
            f"the samples of a mini-batch do not form arrays: {error}; use samples of one shape, or a collate_fn"
        ) from error


class SampleBatches:
    """An epoch: for each group of places a list of feeds, or of lists of LoDTensors. Read ahead in the background."""

    def __init__(
        self,
        dataset: Dataset,
        sampler: Iterable[list[int]],
        collate: Callable[[Sequence[Any]], Sequence[Any]],
        feed_list: Sequence[Variable],
        places: Sequence[Place],
        as_lists: bool,
        at_places: bool,
    ) -> None:
        self._names, self._count, self._as_lists = [var.name for var in feed_list], len(places), as_lists
        self._thread = ReaderThread(2 * len(places))
        self._thread.batches = lambda: (collate([dataset[index] for index in chosen]) for chosen in sampler)
        if at_places:
            self._thread.places = places
        self._thread.start()

    def __iter__(self) -> SampleBatches:
        return self

    def __next__(self) -> list[Any]:
        """The next group; one with fewer batches than places is dropped."""
        group: list[Any] = []
        while len(group) < self._count:
            tensors = self._thread.queue.pop()
            if tensors is None:
                raise StopIteration
            group.append(tensors if self._as_lists else self._feed(tensors))
        return group

    next = __next__

    def _feed(self, tensors: Sequence[LoDTensor]) -> dict[str, LoDTensor]:
        if len(tensors) != len(self._names):
            raise FeedError(
                f"a sample must have a value for each of {len(self._names)} variables ({', '.join(self._names)}), found "
                f"{len(tensors)}"
            )
        return dict(zip(self._names, tensors, strict=True))
