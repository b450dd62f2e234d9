"""The MultiSlot text format: a line is a sample, each slot a count and that many numbers (Paddle 1.8.5 data_feed.cc)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from fluidtool.errors import DataFileNotFoundError, FeedError, UnreadableError, UsageError
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor

FLOAT, INTEGER = "float", "uint64"
TYPES = {VarType.FP32: FLOAT, VarType.INT64: INTEGER}
LEAST = 1e-6  # floats below count as zero where zeros are dropped
Record = list[list[Any]]


@dataclass(frozen=True, slots=True)
class Slot:
    """One field of a sample. A dense one has `shape`; others give a LoDTensor [numbers, 1] with a sequence per sample."""

    name: str
    type: str
    dense: bool
    shape: tuple[int, ...] = ()

    @property
    def width(self) -> int | None:
        """The count of numbers per sample of a dense slot; None if more than the leading size is unknown."""
        return prod(self.shape[1:]) if self.dense and self.shape[:1] == (-1,) and -1 not in self.shape[1:] else None


def slot_of(var: Variable) -> Slot:
    """The slot that feeds a variable: dense without LoD. Raises UsageError for other types than float32 and int64."""
    if var.dtype not in TYPES:
        found = var.dtype.name if var.dtype is not None else "?"
        raise UsageError(
            f"Currently, fluid.dataset only supports dtype=float32 and dtype=int64; {var.name} is {found}, which a "
            "DataLoader can feed"
        )
    return Slot(var.name, TYPES[var.dtype], not var.lod_level, () if var.lod_level else tuple(var.shape))


def open_lines(path: Path, pipe_command: str) -> Iterator[bytes]:
    """The lines of a file after `pipe_command`, which a shell runs with the file as its standard input.

    Raises DataFileNotFoundError, and UnreadableError when the command fails.
    """
    if not path.is_file():
        raise DataFileNotFoundError(
            f"the data set's file {path} does not exist; check the names passed to set_filelist"
        )
    with path.open("rb") as file:
        if pipe_command.strip() in ("", "cat"):
            yield from file
        else:
            yield from _piped(file, path, pipe_command)


def _piped(file: IO[bytes], path: Path, command: str) -> Iterator[bytes]:
    with subprocess.Popen(["bash", "-c", command], stdin=file, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield from process.stdout
        except GeneratorExit:
            process.kill()
            raise
    if process.returncode:
        raise UnreadableError(
            f"the pipe command {command!r} ended with {process.returncode} for {path}; it must read lines from standard "
            "input and write samples to standard output"
        )


def parse_line(line: bytes, slots: Sequence[Slot], skipped: int, where: str) -> Record:
    """The numbers of each slot. The first `skipped` fields of the line ('1 ID') are skipped.

    Anything after the last slot is ignored, as in Paddle. Raises UnreadableError naming `where` and the slot.
    """
    words, position, record = line.split(), 2 * skipped, []
    for slot in slots:
        count = _count(words, position, slot, where)
        end = position + 1 + count
        if end > len(words):
            raise UnreadableError(
                f"{where}: the line ends within slot {slot.name}, which should have {count} numbers; a line has, for "
                f"each of {', '.join(each.name for each in slots)}, a count and that many numbers"
            )
        record.append(_numbers(words[position + 1 : end], slot, where))
        if slot.width not in (None, count):
            raise UnreadableError(
                f"{where}: slot {slot.name} has {count} numbers, but the variable is declared {shape_text(slot.shape)}"
            )
        position = end
    return record


def _count(words: Sequence[bytes], position: int, slot: Slot, where: str) -> int:
    text = words[position] if position < len(words) else b""
    if not text.isdigit() or not int(text):
        raise UnreadableError(
            f"{where}: slot {slot.name} should begin with the count of its numbers, found {text.decode(errors='replace')!r}: "
            "The number of ids can not be zero, you need padding it in data generator"
        )
    return int(text)


def _numbers(words: Sequence[bytes], slot: Slot, where: str) -> list[Any]:
    try:
        return [float(word) for word in words] if slot.type == FLOAT else [int(word) % 2**64 for word in words]
    except ValueError as error:
        raise UnreadableError(f"{where}: slot {slot.name} is of type {slot.type}: {error}") from error


def without_zeros(record: Record, slots: Sequence[Slot]) -> Record:
    """What a data set keeps in memory: slots that are not dense lose their zeros, and become one zero if nothing is left."""
    return [
        numbers if slot.dense else [n for n in numbers if abs(n) >= (LEAST if slot.type == FLOAT else 1)] or [0]
        for slot, numbers in zip(slots, record, strict=True)
    ]


def batch_of(records: Sequence[Record], slots: Sequence[Slot]) -> dict[str, LoDTensor]:
    """The feed of a mini-batch. As in Paddle, dense slots also have a LoD, which counts numbers."""
    feed = {}
    for index, slot in enumerate(slots):
        parts = [record[index] for record in records]
        numbers = [number for part in parts for number in part]
        array: np.ndarray[Any, Any] = (
            np.array(numbers, np.float32) if slot.type == FLOAT else np.array(numbers, np.uint64).view(np.int64)
        )
        offsets = [0, *np.cumsum([len(part) for part in parts]).tolist()]
        feed[slot.name] = LoDTensor(array.reshape(_sizes(slot, len(numbers))), [offsets])
    return feed


def _sizes(slot: Slot, count: int) -> tuple[int, ...]:
    if not slot.dense:
        return count, 1
    known = prod(size for size in slot.shape if size >= 0)
    open_sizes = slot.shape.count(-1)
    if open_sizes > 1 or (count % known if open_sizes else count != known):
        raise FeedError(
            f"a batch has {count} numbers for {slot.name}, which do not fit its shape {shape_text(slot.shape)}"
        )
    return tuple(count // known if size < 0 else size for size in slot.shape)
