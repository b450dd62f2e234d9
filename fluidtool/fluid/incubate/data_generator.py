"""Writing the MultiSlot text format, as the pipe command of a data set does (Paddle 1.8.5 incubate/data_generator)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from fluidtool.errors import UnsupportedOperatorError, UsageError

__all__ = ["MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

Sample = Sequence[tuple[str, list[Any]]]
Samples = Callable[[], Iterable[Any]]


class DataGenerator:
    """Converts lines to samples: override `generate_sample`, and `generate_batch` if samples depend on each other."""

    def __init__(self) -> None:
        self.batch_size_ = 32

    def set_batch(self, batch_size: int) -> None:
        """Set how many samples `generate_batch` gets at a time."""
        self.batch_size_ = batch_size

    def generate_sample(self, line: str | None) -> Samples:
        """A function without arguments that yields the samples of a line: (('words', [3, 1]), ('label', [1]))."""
        raise UnsupportedOperatorError(
            "Please rewrite this function to return a list or tuple: [(name, [feasign, ...]), ...] or "
            "((name, [feasign, ...]), ...)"
        )

    def generate_batch(self, samples: list[Any]) -> Samples:
        """A function without arguments that yields the samples to write; by default all, unchanged."""
        return lambda: iter(samples)

    def run_from_stdin(self) -> None:
        """Write the samples of every line of standard input to standard output."""
        self._write(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def run_from_memory(self) -> None:
        """Write the samples that `generate_sample(None)` yields to standard output."""
        self._write(iter(self.generate_sample(None)()))

    def _write(self, samples: Iterator[Any]) -> None:
        batch: list[Any] = []
        for sample in samples:
            if sample is not None:
                batch.append(sample)
            if len(batch) == self.batch_size_:
                self._write_batch(batch)
                batch = []
        self._write_batch(batch)

    def _write_batch(self, batch: list[Any]) -> None:
        for sample in self.generate_batch(batch)() if batch else ():
            sys.stdout.write(self._gen_str(sample))

    def _gen_str(self, line: Any) -> str:
        raise UnsupportedOperatorError("pls use MultiSlotDataGenerator or MultiSlotStringDataGenerator")


class MultiSlotStringDataGenerator(DataGenerator):
    """Samples whose values are already texts; they are written unchecked."""

    def _gen_str(self, line: Any) -> str:
        fields = _fields(line, "[('words', ['1926', '08', '17']), ('label', ['1'])]")
        return " ".join(" ".join([str(len(values)), *values]) for _, values in fields) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Samples of integers and floats; every sample must have the fields of the first one."""

    def __init__(self) -> None:
        super().__init__()
        self._proto_info: list[tuple[str, str]] | None = None

    def _gen_str(self, line: Any) -> str:
        fields = _fields(line, "[('words', [1926, 8, 17]), ('label', [1])]")
        known = self._proto_info
        if known is not None and len(known) != len(fields):
            raise UsageError(
                f"the complete field set of two given line are inconsistent: {len(known)} fields, now {len(fields)}"
            )
        found = []
        for index, (name, values) in enumerate(fields):
            if known is not None and known[index][0] != name:
                raise UsageError(
                    f"the field name of two given line are not match: require<{known[index][0]}>, get<{name}>."
                )
            before = "uint64" if known is None else known[index][1]
            found.append((name, _kind(name, values, before)))
        self._proto_info = found
        return " ".join(" ".join(map(str, [len(values), *values])) for _, values in fields) + "\n"


def _fields(line: Any, example: str) -> Sample:
    if not isinstance(line, (list, tuple)):
        raise UsageError(
            f"the output of generate_sample must be in list or tuple type, such as {example}; found {line!r}"
        )
    return line


def _kind(name: Any, values: Any, before: str) -> str:
    """'float' if a float was among the values of a field so far, else 'uint64'."""
    if not isinstance(name, str):
        _refuse(f"name {name!r} must be in str type")
    if not isinstance(values, list):
        _refuse(f"the elements of {name} must be in list type, found {type(values).__name__}")
    if not values:
        _refuse(f"the elements of {name} can not be empty, you need padding it in generate_sample()")
    for value in values:
        if before != "float" and not isinstance(value, (int, float)):
            _refuse(f"the elements of {name} must be in int or float, found {value!r}")
    return "float" if before == "float" or any(isinstance(value, float) for value in values) else "uint64"


def _refuse(text: str) -> NoReturn:
    raise UsageError(text)
