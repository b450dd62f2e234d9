"""Training data in memory: examples from which mini-batches are taken in an order that seed and epoch decide."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fluidtool.errors import FeedError, LoDError, UnreadableError
from fluidtool.records import dataclass
from fluidtool.runtime.batches import merge_offsets
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.lod import check_lod

Feed = dict[str, LoDTensor]
Indices = np.ndarray[Any, np.dtype[np.int64]]
STREAM_KEY = re.compile(r"step([0-9]{1,18})_feed([0-9]{1,18})(?:_lod([0-9]{1,18}))?")


class Source(Protocol):
    """Where mini-batches come from."""

    @property
    def count(self) -> int:
        """How many there are to choose from."""

    def take(self, chosen: Indices) -> Feed:
        """A mini-batch of the chosen ones."""


class Examples:
    """Values by input. Along the leading axis, or the outermost sequences of a LoD, stand the examples.

    Raises FeedError when the inputs have different numbers of examples, or none.
    """

    def __init__(self, values: Mapping[str, LoDTensor]) -> None:
        self.values = dict(values)
        counts = {name: count_examples(name, value) for name, value in self.values.items()}
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise FeedError(f"the inputs have different numbers of examples: {found}; give the same number for each")
        self._count = next(iter(counts.values()), 0)
        if not self._count:
            raise FeedError("the data has no examples; give at least one")

    @property
    def count(self) -> int:
        """The number of examples."""
        return self._count

    def take(self, chosen: Indices) -> Feed:
        """A mini-batch of the examples with these numbers."""
        return {name: take_examples(value, chosen) for name, value in self.values.items()}


class Stream:
    """Ready mini-batches, which may differ in size."""

    def __init__(self, batches: Sequence[Feed]) -> None:
        self.batches = list(batches)

    @property
    def count(self) -> int:
        """The number of mini-batches."""
        return len(self.batches)

    def take(self, chosen: Indices) -> Feed:
        """The mini-batch with this number."""
        return self.batches[int(chosen[0])]


@dataclass(frozen=True, slots=True)
class Order:
    """How examples are put into mini-batches: epoch e shuffles with the seed (seed, e), so a run can be repeated.

    Of several trainers each has its part of every mini-batch of trainers * batch_size examples: the job trains as one
    process does with such mini-batches. Parts are of one size; what is left of the last mini-batch after that is left out.
    whole: mini-batches of all trainers, which somebody else divides.
    """

    batch_size: int
    shuffle: bool = True
    seed: int = 1
    drop_last: bool = False
    trainer: int = 0
    trainers: int = 1
    whole: bool = False

    def batches(self, count: int, epoch: int) -> list[Indices]:
        """The numbers of the examples of each mini-batch of an epoch."""
        numbers = np.random.default_rng((self.seed, epoch)).permutation(count) if self.shuffle else np.arange(count)
        whole = self.batch_size * self.trainers
        end = count - count % whole if self.drop_last else count
        return [part for start in range(0, end, whole) if (part := self._own(numbers[start : start + whole])).size]

    def _own(self, batch: Indices) -> Indices:
        """This trainer's part of a mini-batch of all."""
        size = len(batch) // self.trainers
        if self.whole:
            return batch if size else batch[:0]
        return batch[self.trainer * size : (self.trainer + 1) * size]


def count_examples(name: str, value: LoDTensor) -> int:
    """The number of outermost sequences, or of rows where there is no LoD."""
    if value.offsets:
        return len(value.offsets[0]) - 1
    if not value.shape():
        raise FeedError(f"the data of {name} is a single number; the leading axis must be the examples")
    return int(value.shape()[0])


def take_examples(value: LoDTensor, chosen: Indices) -> LoDTensor:
    """The rows, or whole outermost sequences, with these numbers, in this order."""
    offsets = []
    for level in value.offsets:
        bounds = np.asarray(level)
        starts, ends = bounds[chosen], bounds[chosen + 1]
        offsets.append([0, *np.cumsum(ends - starts).tolist()])
        parts = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
        chosen = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return LoDTensor(value.numpy()[chosen], offsets)


def join(name: str, values: Sequence[LoDTensor]) -> LoDTensor:
    """The examples of several files one after the other; raises FeedError when they do not fit together."""
    if len(values) == 1:
        return values[0]
    kinds = {(value.numpy().shape[1:], value.numpy().dtype, len(value.offsets)) for value in values}
    if len(kinds) > 1:
        found = ", ".join(f"{value.numpy().dtype} {shape_text(value.shape())}" for value in values)
        raise FeedError(f"the files disagree on the data of the input {name}: {found}")
    return LoDTensor(np.concatenate([value.numpy() for value in values]), merge_offsets(values))


# ---------------------------------------------------------------- ready mini-batches
def is_stream(names: Sequence[str]) -> bool:
    """Whether the arrays of an archive are ready mini-batches: step0_feed0, step0_feed0_lod0, step0_feed1 …"""
    return bool(names) and all(STREAM_KEY.fullmatch(name) for name in names)


def stream_of(arrays: Mapping[str, LoDTensor], inputs: Sequence[str], source: str) -> Stream:
    """The mini-batches of an archive; feed N is for the Nth of `inputs`, and lod L holds its offsets at level L.

    Raises UnreadableError for a missing step or feed, LoDError for offsets that do not fit.
    """
    steps: dict[int, dict[int, LoDTensor]] = {}
    levels: dict[tuple[int, int], dict[int, list[int]]] = {}
    for name, value in arrays.items():
        match = STREAM_KEY.fullmatch(name)
        assert match is not None
        step, feed = int(match[1]), int(match[2])
        if match[3] is None:
            steps.setdefault(step, {})[feed] = LoDTensor(value.numpy())
        else:
            levels.setdefault((step, feed), {})[int(match[3])] = _offsets(value.numpy(), f"{name} in {source}")
    for number in range(len(steps)):
        found = sorted(steps.get(number, {}))
        if found != list(range(len(inputs))):
            raise UnreadableError(
                f"{source} must contain step{number}_feed0 to step{number}_feed{len(inputs) - 1} for the inputs "
                f"{', '.join(inputs)}; found the feeds {found}"
            )
    for (step, feed), offsets in levels.items():
        if feed not in steps.get(step, {}):
            raise UnreadableError(f"{source} has offsets for step{step}_feed{feed}, which it does not contain")
        if sorted(offsets) != list(range(len(offsets))):
            raise LoDError(f"step{step}_feed{feed} in {source} must have the levels 0, 1, …, found {sorted(offsets)}")
        lod, tensor = [offsets[level] for level in range(len(offsets))], steps[step][feed]
        check_lod(lod, next(iter(tensor.shape()), None), f"step{step}_feed{feed} in {source}")
        tensor.set_lod(lod)
    return Stream([{name: steps[step][i] for i, name in enumerate(inputs)} for step in range(len(steps))])


def _offsets(array: np.ndarray[Any, Any], what: str) -> list[int]:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise LoDError(f"{what} must be a list of whole numbers, found {array.dtype} {shape_text(array.shape)}")
    return [int(offset) for offset in array]
