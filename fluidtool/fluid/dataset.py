"""Data sets of text files for `Executor.train_from_dataset` (Paddle 1.8.5 dataset.py, data_set.cc).

Paddle reads and trains with threads, each with its own files, in no fixed order. Here readers take turns, one batch each,
and files are read in the order given, so that a run can be repeated; one thread gives exactly Paddle's batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import numpy as np

from fluidtool.errors import NotOfferedError, UnsupportedOperatorError, UsageError
from fluidtool.fluid.data_feed_desc import feed_text
from fluidtool.fluid.multi_slot import Record, Slot, batch_of, open_lines, parse_line, slot_of, without_zeros
from fluidtool.ir import Variable
from fluidtool.tensor import LoDTensor

__all__ = ["DatasetFactory", "InMemoryDataset", "QueueDataset"]

BATCH_SIZE = 32
Feed = dict[str, LoDTensor]


class DatasetFactory:
    """Creates data sets by class name."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> DatasetBase:
        """A new InMemoryDataset or QueueDataset; raises UsageError for another name."""
        kinds: dict[str, type[DatasetBase]] = {"InMemoryDataset": InMemoryDataset, "QueueDataset": QueueDataset}
        if datafeed_class not in kinds:
            raise UsageError(f"there is no datafeed class {datafeed_class}; expected {' or '.join(kinds)}")
        return kinds[datafeed_class]()


class DatasetBase:
    """Text files, the variables that their slots feed, and the batch size."""

    feed_name = ""

    def __init__(self) -> None:
        self.thread_num = 1
        self.filelist: list[str] = []
        self.batch_size = BATCH_SIZE
        self.pipe_command = "cat"
        self.slots: list[Slot] = []
        self.skipped_fields = 0
        self._batch_size_set = False

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command that converts each file to samples, from standard input to standard output."""
        self.pipe_command = pipe_command

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples per batch; the last one may be smaller."""
        if batch_size < 1:
            raise UsageError(f"set_batch_size takes a number of at least 1, found {batch_size}")
        self.batch_size, self._batch_size_set = batch_size, True

    def set_thread(self, thread_num: int) -> None:
        """Set how many readers take turns (Paddle: threads)."""
        self.thread_num = thread_num

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """The files, in the order in which they are read."""
        self.filelist = list(filelist)

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """The variables that a line's slots feed, in order; raises UsageError for other types than float32 and int64."""
        self.slots += [slot_of(var) for var in var_list]

    def desc(self) -> str:
        """The settings as Paddle's DataFeedDesc in the text form of protobuf."""
        size = self.batch_size if self._batch_size_set else None
        return feed_text(self.feed_name, size, self.slots, self.pipe_command)

    def batches(self, readers: int) -> Iterator[tuple[int, Feed]]:
        """(number of the reader, mini-batch), the readers taking turns. Raises UsageError without set_use_var."""
        if not self.slots:
            raise UsageError("the data set does not know which variables its slots feed; call set_use_var first")
        turns = {number: self._in_batches(records) for number, records in enumerate(self._shares(max(readers, 1)))}
        while turns:
            for number in list(turns):
                records = next(turns[number], None)
                if records:
                    yield number, batch_of(records, self.slots)
                else:
                    del turns[number]

    def readers(self, thread: int = 0) -> int:
        """The number of readers in a run with this many threads (0: the number of set_thread)."""
        return max(thread if thread > 0 else self.thread_num, 1)

    def _in_batches(self, records: Iterator[Record]) -> Iterator[list[Record]]:
        return iter(lambda: list(islice(records, self.batch_size)), [])

    def _shares(self, readers: int) -> list[Iterator[Record]]:
        raise NotImplementedError(f"{type(self).__name__} has no records; use InMemoryDataset or QueueDataset")

    def _read(self, files: Iterator[str]) -> Iterator[Record]:
        for file in files:
            for number, line in enumerate(open_lines(Path(file), self.pipe_command), start=1):
                yield parse_line(line, self.slots, self.skipped_fields, f"{file}, line {number}")

    def __getattr__(self, name: str) -> NoReturn:
        if name in NOT_OFFERED:
            raise NotOfferedError(f"{type(self).__name__}.{name} is not offered: it {NOT_OFFERED[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_REMOTE = "reads files of a remote file system; pass local files to set_filelist"
_ADS = "belongs to Paddle's pipelines for advertisements; here, each line is a sample"
_MEMORY = "needs samples in memory; use InMemoryDataset"
NOT_OFFERED = {
    "set_fea_eval": _MEMORY,
    "slots_shuffle": _MEMORY,
    "set_hdfs_config": _REMOTE,
    "set_download_cmd": _REMOTE,
    **dict.fromkeys(
        (
            "set_rank_offset",
            "set_pv_batch_size",
            "set_enable_pv_merge",
            "set_parse_logkey",
            "set_merge_by_sid",
            "set_merge_by_lineid",
            "set_generate_unique_feasigns",
            "generate_local_tables_unlock",
            "preprocess_instance",
            "postprocess_instance",
            "set_current_phase",
            "get_pv_data_size",
        ),
        _ADS,
    ),
}


class InMemoryDataset(DatasetBase):
    """Samples that are read once, and may be shuffled. Slots that are not dense lose their zeros, as in Paddle."""

    feed_name = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self.queue_num: int | None = None
        self._records: list[Record] | None = None
        self._loading: Thread | None = None
        self._fault: BaseException | None = None
        self._may_shuffle_slots = False

    def set_feed_type(self, data_feed_type: str) -> None:
        """Set the name of the data feed in `desc`."""
        self.feed_name = data_feed_type

    def set_queue_num(self, queue_num: int) -> None:
        """Has no effect here: readers share the memory."""
        self.queue_num = queue_num

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Lines begin with '1 ID', which is skipped."""
        self._skip("id", parse_ins_id)

    def set_parse_content(self, parse_content: bool) -> None:
        """Lines begin with '1 CONTENT' (after the id), which is skipped."""
        self._skip("content", parse_content)

    def _skip(self, field: str, wanted: bool) -> None:
        self._skipped = {**getattr(self, "_skipped", {}), field: bool(wanted)}
        self.skipped_fields = sum(self._skipped.values())

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Has no effect in one process."""

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Has no effect in one process."""

    def load_into_memory(self) -> None:
        """Read all files. Raises DataFileNotFoundError, UnreadableError."""
        self._records = [without_zeros(record, self.slots) for record in self._read(iter(self.filelist))]

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Start reading all files in the background; `wait_preload_done` waits for the end."""

        def load() -> None:
            try:
                self.load_into_memory()
            except BaseException as error:  # raised again by wait_preload_done
                self._fault = error

        self._fault, self._loading = None, Thread(target=load, daemon=True)
        self._loading.start()

    def wait_preload_done(self) -> None:
        """Wait for `preload_into_memory`; raises its errors."""
        if self._loading is None:
            raise UsageError("wait_preload_done waits for preload_into_memory, which has not been called")
        self._loading.join()
        self._loading = None
        if self._fault is not None:
            raise self._fault

    def local_shuffle(self, seed: int | None = None) -> None:
        """Shuffle the samples; the same seed gives the same order (Paddle has no seed)."""
        records = self._loaded()
        self._records = [records[i] for i in np.random.default_rng(seed).permutation(len(records))]

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Exchange samples between trainers: one trainer keeps its samples, in order, as Paddle without PSLIB does.

        Raises UnsupportedOperatorError for a fleet of several workers.
        """
        _alone(fleet, "global_shuffle")
        self._loaded()

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Allow `slots_shuffle`; all samples are candidates."""
        self._may_shuffle_slots = fea_eval

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Exchange the values of these slots between samples at random; `set_fea_eval` must have allowed it."""
        if not self._may_shuffle_slots:
            raise UsageError("slots_shuffle must be allowed first, with set_fea_eval(record_candidate_size, True)")
        known = {slot.name: index for index, slot in enumerate(self.slots)}
        unknown = [name for name in slots if name not in known]
        if unknown:
            raise UsageError(f"slots_shuffle: no slot {unknown[0]!r}; the slots are {', '.join(known)}")
        records = [list(record) for record in self._loaded()]
        for name in slots:
            order = np.random.default_rng().permutation(len(records))
            values = [records[i][known[name]] for i in order]
            for record, value in zip(records, values, strict=True):
                record[known[name]] = value
        self._records = records

    def release_memory(self) -> None:
        """Release the samples."""
        self._records = None

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """The number of samples in memory. Raises UnsupportedOperatorError for a fleet of several workers."""
        _alone(fleet, "get_memory_data_size")
        return len(self._records or ())

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """The number of samples from other trainers: 0. Raises UnsupportedOperatorError for a fleet of several workers."""
        _alone(fleet, "get_shuffle_data_size")
        return 0

    def _loaded(self) -> list[Record]:
        if self._records is None:
            raise UsageError("the data set has no samples in memory; call load_into_memory first")
        return self._records

    def _shares(self, readers: int) -> list[Iterator[Record]]:
        records = self._loaded()
        bounds = [len(records) * number // readers for number in range(readers + 1)]
        return [iter(records[start:end]) for start, end in pairwise(bounds)]


class QueueDataset(DatasetBase):
    """Samples that are read as they are used; their files are read again in every run."""

    feed_name = "MultiSlotDataFeed"

    def readers(self, thread: int = 0) -> int:
        """At most one per file."""
        return max(min(self.thread_num, len(self.filelist)), 1)

    def local_shuffle(self) -> NoReturn:
        """Raises UnsupportedOperatorError."""
        raise UnsupportedOperatorError(
            "QueueDataset does not support local shuffle, please use InMemoryDataset for local_shuffle"
        )

    def global_shuffle(self, fleet: Any = None) -> NoReturn:
        """Raises UnsupportedOperatorError."""
        raise UnsupportedOperatorError(
            "QueueDataset does not support global shuffle, please use InMemoryDataset for global_shuffle"
        )

    def _shares(self, readers: int) -> list[Iterator[Record]]:
        files = iter(self.filelist)  # a reader that has finished a file takes the next one
        return [self._read(files) for _ in range(readers)]


def _alone(fleet: Any, method: str) -> None:
    if fleet is not None and fleet.worker_num() > 1:
        raise UnsupportedOperatorError(
            f"{method} with a fleet of {fleet.worker_num()} workers needs trainers that exchange samples, which is not "
            "supported; give each trainer its own files, and omit fleet"
        )
