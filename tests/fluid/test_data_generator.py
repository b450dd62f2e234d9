"""`incubate.data_generator` writes the MultiSlot text format."""

from __future__ import annotations

import io
from typing import Any

import pytest

from fluidtool.errors import UnsupportedOperatorError, UsageError
from fluidtool.fluid.incubate.data_generator import MultiSlotDataGenerator, MultiSlotStringDataGenerator


class Lengths(MultiSlotDataGenerator):
    """A line of numbers becomes one sample, an empty line none; batches are written by length."""

    def generate_sample(self, line: str | None) -> Any:
        words = [int(word) for word in (line or "8 9").split()]
        yield_ = (
            [[("words", words), ("dense", [0.5 * len(words), 1]), ("label", [len(words) % 2])]] if words else [None]
        )
        return lambda: iter(yield_)

    def generate_batch(self, samples: list[Any]) -> Any:
        return lambda: iter(sorted(samples, key=lambda sample: len(sample[0][1])))


def test_lines_of_standard_input_become_samples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("3 4 5\n\n1\n2 3\n"))
    generator = Lengths()
    generator.set_batch(2)
    generator.run_from_stdin()
    assert capsys.readouterr().out == "1 1 2 0.5 1 1 1\n3 3 4 5 2 1.5 1 1 1\n2 2 3 2 1.0 1 1 0\n"


def test_samples_can_come_from_memory(capsys: pytest.CaptureFixture[str]) -> None:
    Lengths().run_from_memory()
    assert capsys.readouterr().out == "2 8 9 2 1.0 1 1 0\n"


def test_texts_are_written_as_they_are() -> None:
    sample = [("words", ["1926", "08"]), ("label", ["1"])]
    assert MultiSlotStringDataGenerator()._gen_str(sample) == "2 1926 08 1 1\n"


@pytest.mark.parametrize(
    ("sample", "what"),
    [
        ({"words": [1]}, "must be in list or tuple type"),
        ([(3, [1])], "name 3 must be in str type"),
        ([("words", (1,))], "the elements of words must be in list type, found tuple"),
        ([("words", [])], "the elements of words can not be empty"),
        ([("words", ["1"])], "the elements of words must be in int or float, found '1'"),
    ],
)
def test_samples_that_cannot_be_written(sample: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        MultiSlotDataGenerator()._gen_str(sample)


@pytest.mark.parametrize(
    ("sample", "what"),
    [
        ([("words", [1])], "the complete field set of two given line are inconsistent: 2 fields, now 1"),
        ([("label", [1]), ("words", [1])], "require<words>, get<label>"),
    ],
)
def test_samples_must_have_the_fields_of_the_first(sample: Any, what: str) -> None:
    generator = MultiSlotDataGenerator()
    generator._gen_str([("words", [1]), ("label", [1])])
    with pytest.raises(UsageError, match=what):
        generator._gen_str(sample)


def test_a_generator_must_say_what_samples_are() -> None:
    with pytest.raises(UnsupportedOperatorError, match="Please rewrite this function"):
        MultiSlotDataGenerator().run_from_memory()
