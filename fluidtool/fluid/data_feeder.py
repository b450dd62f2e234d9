"""DataFeeder: samples of Python numbers, lists and arrays -> LoDTensors by variable (Paddle 1.8.5 data_feeder.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, AssertedError, FeedError
from fluidtool.fluid.framework import default_main_program
from fluidtool.ir import Program, Variable
from fluidtool.ir.variable import data_type_name
from fluidtool.tensor import CUDAPlace, LoDTensor, Place, numpy_dtype

Reader = Callable[[], Iterable[Any]]


class _Converter:
    """Collects one variable's values of a batch."""

    def __init__(self, var: Variable, place: Place) -> None:
        self.var, self.place = var, place
        self.shape = None if sum(size < 0 for size in var.shape) > 1 else var.shape
        self.data: list[Any] = []
        self.lengths: list[list[int]] = [[] for _ in range(var.lod_level)]

    def add(self, value: Any, level: int = 0) -> None:
        """Add one sample; at each LoD level a list of items of the level below."""
        if level == self.var.lod_level:
            self.data.append(value)
            return
        self.lengths[level].append(len(value))
        for item in value:
            self.add(item, level + 1)

    def done(self) -> LoDTensor:
        """The batch as a LoDTensor; raises FeedError if it does not have the declared shape."""
        assert self.var.dtype is not None
        try:
            array = np.array(self.data, dtype=numpy_dtype(self.var.dtype))
        except (ValueError, TypeError) as error:
            raise FeedError(
                f"the samples for {self.var.name} do not form one array of {data_type_name(self.var.dtype)}: {error}; "
                "sequences of different lengths need lod_level >= 1"
            ) from error
        if self.shape is not None and array.ndim != len(self.shape):
            try:
                array = array.reshape(self.shape)
            except ValueError:
                raise FeedError(
                    f"Reshape error. What is defined in data layer is {self.shape}, but receive {array.shape} "
                    f"for {self.var.name}"
                ) from None
        tensor = LoDTensor()
        tensor.set(array, self.place)
        if self.var.lod_level > 0:
            tensor.set_recursive_sequence_lengths(self.lengths)
        return tensor


class DataFeeder:
    """Converts mini-batches of samples (tuples in the order of feed_list) to feeds for `Executor.run(feed=)`."""

    def __init__(self, feed_list: Sequence[Variable | str], place: Place, program: Program | None = None) -> None:
        block = (default_main_program() if program is None else program).global_block()
        self.place = place
        self._variables = [block.var(item) if isinstance(item, str) else item for item in feed_list]
        if not all(isinstance(var, Variable) for var in self._variables):
            raise ArgumentTypeError("Feed list should contain a list of variable")
        self.feed_names = [var.name for var in self._variables]
        self.feed_dtypes = [var.dtype for var in self._variables]
        self.feed_shapes = [var.shape for var in self._variables]
        self.feed_lod_level = [var.lod_level for var in self._variables]

    def feed(self, iterable: Iterable[Sequence[Any]]) -> dict[str, LoDTensor]:
        """A mini-batch -> LoDTensor by name."""
        converters = [_Converter(var, self.place) for var in self._variables]
        for sample in iterable:
            if len(sample) != len(converters):
                raise AssertedError(
                    f"The number of fields in data ({len(sample)}) does not match len(feed_list) ({len(converters)})"
                )
            for converter, value in zip(converters, sample, strict=True):
                converter.add(value)
        return {name: converter.done() for name, converter in zip(self.feed_names, converters, strict=True)}

    def feed_parallel(
        self, iterable: Sequence[Iterable[Sequence[Any]]], num_places: int | None = None
    ) -> Iterator[dict[str, LoDTensor]]:
        """One mini-batch per device -> one feed per device."""
        count = self._places(num_places)
        if len(iterable) != count:
            raise FeedError(
                "feed_parallel takes multiple mini-batches. Each mini-batch will be feed on each device. The number of "
                f"devices ({count}) and number of mini-batches ({len(iterable)}) must be same."
            )
        for number, batch in enumerate(iterable):
            place = CUDAPlace(number) if isinstance(self.place, CUDAPlace) else self.place
            yield DataFeeder(self._variables, place).feed(batch)

    def _places(self, num_places: int | None) -> int:
        if num_places is not None:
            return int(num_places)
        if isinstance(self.place, CUDAPlace):
            import cupy

            return int(cupy.cuda.runtime.getDeviceCount())
        return int(os.environ.get("CPU_NUM", "1"))

    def decorate_reader(
        self, reader: Reader, multi_devices: bool, num_places: int | None = None, drop_last: bool = True
    ) -> Callable[[], Iterator[Any]]:
        """A reader of feeds from a reader of mini-batches; with multi_devices, of lists with one feed per device."""

        def feeds() -> Iterator[Any]:
            if not multi_devices:
                for batch in reader():
                    yield self.feed(batch)
                return
            count = self._places(num_places)
            waiting: list[Any] = []
            for batch in reader():
                waiting.append(batch)
                if len(waiting) == count:
                    yield list(self.feed_parallel(waiting, count))
                    waiting = []
            if waiting and not drop_last:
                raise FeedError(
                    f"the last {len(waiting)} mini-batches do not fill {count} devices; drop_last=True drops them"
                )

        return feeds
