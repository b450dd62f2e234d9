"""DataLoader and PyReader: batches from Python generators, read ahead in the background (Paddle 1.8.5 reader.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from fluidtool.errors import AssertedError, FeedError, UnsupportedOperatorError, UsageError
from fluidtool.fluid.dataloader import BatchSampler, Dataset, SampleBatches, default_collate_fn
from fluidtool.fluid.dataset import DatasetBase
from fluidtool.fluid.framework import default_main_program
from fluidtool.fluid.layers.readers import append_reader, double_buffer, fed_batches, slots_of
from fluidtool.fluid.reader_decorators import batch
from fluidtool.fluid.reader_thread import Batches, ReaderThread, regular_array
from fluidtool.ir import Variable
from fluidtool.ir.unique_name import UniqueNameGenerator
from fluidtool.tensor import LoDTensor, Place

__all__ = ["DataLoader", "PyReader", "default_collate_fn"]


class _Names:
    generator = UniqueNameGenerator()


class _Order:
    kept = True


def keep_data_loader_order(*args: bool) -> bool | None:
    """Whether loaders give each device its batches in order, or with an argument that they need not: they always do.

    Raises AssertedError for anything but one bool.
    """
    if not args:
        return _Order.kept
    if len(args) != 1 or not isinstance(args[0], bool):
        raise AssertedError(f"keep_data_loader_order takes one bool, found {args}")
    _Order.kept = args[0]
    return None


class DataLoaderBase:
    """What loaders have in common: calling one gives itself, and iterating is its own."""

    def __call__(self) -> Self:
        return self

    def __iter__(self) -> Any:
        raise UnsupportedOperatorError(f"{type(self).__name__} cannot be iterated: it has no __iter__")

    def __next__(self) -> Any:
        raise UnsupportedOperatorError(f"{type(self).__name__} cannot be iterated: it has no __next__")

    def next(self) -> Any:
        """What comes next, as Python 2 asks for it."""
        return self.__next__()

    @staticmethod
    def _check_input_array(item: Any) -> np.ndarray[Any, Any]:
        """An array of a list; raises ArgumentTypeError for lists of different lengths."""
        return regular_array(item)


class GeneratorLoader(DataLoaderBase):
    """Batches for the variables of feed_list; at most `capacity` wait at a time.

    Iterable: `for feed in loader()` yields a list with one dict (one list with return_list) per place. Not
    iterable: reader operators go into the default main program, runs follow `start()` and end with EOFException.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
    ) -> None:
        if not capacity:
            raise UsageError("Please give value to capacity.")
        if not feed_list:
            raise UsageError("Feed list must be given under static mode.")
        self._feed_list = list(feed_list)
        self._thread = ReaderThread(capacity)
        self._iterable, self._return_list = iterable, return_list
        self._use_double_buffer, self._drop_last = use_double_buffer, drop_last
        self._places: list[Place] = []
        self._reading = False
        if not iterable:
            self._append_operators()

    @property
    def queue(self) -> Any:
        """Where batches wait; code that asks for it may push them itself, without `start`."""
        return self._thread.open_queue()

    @property
    def iterable(self) -> bool:
        """Whether it is a Python iterator instead of a part of the program."""
        return self._iterable

    def __iter__(self) -> GeneratorLoader:
        if not self._iterable:
            raise AssertedError("DataLoader is not iterable: call start() and run the program until EOFException")
        self._thread.reset()
        self._thread.start()
        self._reading = True
        return self

    def __next__(self) -> Any:
        if not self._reading:
            raise StopIteration
        group: list[list[LoDTensor]] = []
        try:
            while len(group) < len(self._places) and (tensors := self._thread.queue.pop()) is not None:
                group.append(self._checked(tensors))
        except BaseException:
            self._stop()
            raise
        if not group or (len(group) < len(self._places) and self._drop_last):
            self._stop()
            raise StopIteration
        if self._return_list:
            return group
        names = [var.name for var in self._feed_list]
        return [dict(zip(names, tensors, strict=True)) for tensors in group]

    def start(self) -> None:
        """Begin an epoch of a loader that is not iterable."""
        if self._iterable:
            raise AssertedError("start() cannot be called when DataLoader is iterable")
        self._thread.start()

    def reset(self) -> None:
        """End the epoch of a loader that is not iterable: after EOFException, or before."""
        if self._iterable:
            raise AssertedError("reset() cannot be called when DataLoader is iterable")
        self._thread.reset()

    def set_sample_generator(
        self,
        reader: Callable[[], Iterable[Any]],
        batch_size: int,
        drop_last: bool = True,
        places: Sequence[Place] | Place | None = None,
    ) -> GeneratorLoader:
        """Set a source of single samples, grouped into batches of batch_size; drop_last drops an incomplete last one."""
        if batch_size <= 0:
            raise AssertedError(f"batch_size must be larger than 0, found {batch_size}")
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(
        self, reader: Callable[[], Iterable[Any]], places: Sequence[Place] | Place | None = None
    ) -> GeneratorLoader:
        """Set a source of mini-batches: lists of samples, each a tuple with a value for every variable."""
        return self.set_batch_generator(fed_batches(reader, self._feed_list), places)

    def set_batch_generator(self, reader: Batches, places: Sequence[Place] | Place | None = None) -> GeneratorLoader:
        """Set a source of whole batches: an array or LoDTensor for every variable."""
        if self._iterable:
            if not places:
                raise AssertedError("Places cannot be None when DataLoader is iterable")
            self._places = list(places) if isinstance(places, (list, tuple)) else [places]  # type: ignore[list-item]
            if self._use_double_buffer:
                self._thread.places = self._places
        self._thread.batches = reader
        return self

    def _stop(self) -> None:
        self._reading = False
        self._thread.reset()

    _reset = _stop

    def _checked(self, tensors: list[LoDTensor]) -> list[LoDTensor]:
        if len(tensors) != len(self._feed_list):
            names = ", ".join(var.name for var in self._feed_list)
            raise FeedError(
                f"a batch must have a value for each of {len(self._feed_list)} variables ({names}), found {len(tensors)}"
            )
        return tensors

    def _append_operators(self) -> None:
        block = default_main_program().current_block()
        keys = ("lod_tensor_blocking_queue", "create_py_reader", "double_buffer")
        queue_name, reader_name, buffer_name = map(_Names.generator, keys)
        reader = append_reader(block, reader_name, queue_name, slots_of(self._feed_list), self._thread)
        if self._use_double_buffer:
            reader = double_buffer(reader, name=buffer_name)
        block.append_op(
            type="read",
            inputs={"Reader": [reader]},
            outputs={"Out": self._feed_list},
            attrs={"drop_last": self._drop_last},
        )


class DataLoader:
    """The mini-batches of a Dataset, read ahead in the background; or, by `from_generator` and `from_dataset`, other loaders.

    Iterating yields a list with a dict (with return_list, a list of LoDTensors) per place; a last group with fewer
    batches than places is dropped. batch_size, shuffle and drop_last configure a BatchSampler; collate_fn combines a
    list of samples into arrays. num_workers and related arguments have no effect here: one thread reads.
    Raises AssertedError.
    """

    def __init__(
        self,
        dataset: Dataset,
        feed_list: Sequence[Variable] | None = None,
        places: Sequence[Place] | Place | None = None,
        return_list: bool = False,
        batch_sampler: BatchSampler | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[Sequence[Any]], Sequence[Any]] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise AssertedError(
                f"dataset should be subclass instance of paddle.io.Dataset, found {type(dataset).__name__}"
            )
        if feed_list is None and not return_list:
            raise AssertedError("feed_list should be set when return_list=False")
        if not places:
            raise AssertedError("places cannot be None")
        if num_workers < 0 or timeout < 0:
            raise AssertedError(f"num_workers {num_workers} and timeout {timeout} should be non-negative values")
        self.dataset, self.feed_list, self.return_list = dataset, list(feed_list or ()), return_list
        self.places: list[Place] = list(places) if isinstance(places, (list, tuple)) else [places]  # type: ignore[list-item]
        self.collate_fn, self.use_buffer_reader = collate_fn, use_buffer_reader
        self.batch_sampler = _sampler(dataset, batch_sampler, batch_size, shuffle, drop_last)

    def __len__(self) -> int:
        """The number of mini-batches."""
        return len(self.batch_sampler)

    def __iter__(self) -> SampleBatches:
        return SampleBatches(
            self.dataset,
            self.batch_sampler,
            self.collate_fn or default_collate_fn,
            self.feed_list,
            self.places,
            self.return_list,
            self.use_buffer_reader,
        )

    __call__ = __iter__

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """A loader for a Python generator (arguments of GeneratorLoader); use_multiprocess has no effect here."""
        return GeneratorLoader(feed_list, capacity, use_double_buffer, iterable, return_list, drop_last)

    @staticmethod
    def from_dataset(dataset: DatasetBase, places: Sequence[Place] | Place, drop_last: bool = True) -> DatasetLoader:
        """A loader for the mini-batches of a data set (arguments of DatasetLoader)."""
        return DatasetLoader(dataset, places, drop_last)


def _sampler(
    dataset: Dataset, given: BatchSampler | None, batch_size: int, shuffle: bool, drop_last: bool
) -> BatchSampler:
    if given is None:
        if not batch_size or batch_size < 1:
            raise AssertedError("batch_size should be a positive value when batch_sampler is not given")
        return BatchSampler(dataset, batch_size=batch_size, shuffle=shuffle, drop_last=drop_last)
    if not isinstance(given, BatchSampler):
        raise AssertedError(
            f"batch_sampler should be None or subclass instance of paddle.io.BatchSampler, found {type(given).__name__}"
        )
    if batch_size != 1 or shuffle or drop_last:
        raise AssertedError("batch_size/shuffle/drop_last should not be set when batch_sampler is given")
    return given


class DatasetLoader(DataLoaderBase):
    """The mini-batches of a data set: `for feed in loader()` gives a list with one dict for every place.

    drop_last drops incomplete batches, and a last group with fewer batches than places.
    Raises AssertedError for another data set, or for more places than files.
    """

    def __init__(self, dataset: DatasetBase, places: Sequence[Place] | Place, drop_last: bool = True) -> None:
        if not isinstance(dataset, DatasetBase):
            raise AssertedError(f"dataset must be type of DatasetBase, found {type(dataset).__name__}")
        self._places = list(places) if isinstance(places, (list, tuple)) else [places]
        if len(dataset.filelist) < len(self._places):
            raise AssertedError(
                f"Filelist number of dataset {len(dataset.filelist)} must be not less than place number {len(self._places)}"
            )
        self._dataset, self._drop_last = dataset, drop_last
        self._groups: Iterator[list[dict[str, LoDTensor]]] = iter(())
        dataset.set_thread(len(self._places))

    def __iter__(self) -> DatasetLoader:
        self._groups = self._in_groups()
        return self

    def __next__(self) -> list[dict[str, LoDTensor]]:
        return next(self._groups)

    def _in_groups(self) -> Iterator[list[dict[str, LoDTensor]]]:
        group: list[dict[str, LoDTensor]] = []
        for _, feed in self._dataset.batches(len(self._places)):
            size = len(next(iter(feed.values())).offsets[0]) - 1
            if self._drop_last and size < self._dataset.batch_size:
                continue
            group.append(feed)
            if len(group) == len(self._places):
                yield group
                group = []
        if group and not self._drop_last:
            yield group


class PyReader(GeneratorLoader):
    """A GeneratorLoader with the older method names."""

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        super().__init__(feed_list, capacity, use_double_buffer, iterable, return_list)

    @property
    def _loader(self) -> PyReader:
        """The loader within, which is the reader itself."""
        return self

    def decorate_sample_generator(
        self,
        sample_generator: Callable[[], Iterable[Any]],
        batch_size: int,
        drop_last: bool = True,
        places: Sequence[Place] | Place | None = None,
    ) -> None:
        """`set_sample_generator`, whose source has another name here."""
        self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    decorate_sample_list_generator = GeneratorLoader.set_sample_list_generator
    decorate_batch_generator = GeneratorLoader.set_batch_generator
