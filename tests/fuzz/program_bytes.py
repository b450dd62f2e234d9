"""Bytes of programs: decoding, the way back, and the text form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluidtool.ir import Program
from tests.fuzz import _bytes
from tests.fuzz.campaign import Budget, Finding
from tests.support.golden import corpus

LONGEST, LONGEST_TEXT = 10_000, 1500  # bytes; protobuf takes its time for text


def seeds() -> Sequence[bytes]:
    """Programs that real Paddle wrote, from 1.8.5 to 2.6."""
    files = sorted(file for file in corpus("formats").rglob("*") if file.is_file())
    programs = [file for file in files if file.suffix in (".pb", ".pdmodel") or file.name == "__model__"]
    return [data for data in (file.read_bytes() for file in programs) if len(data) < LONGEST]


def check(data: bytes) -> None:
    """What can be decoded can be written and read again, and has a text."""
    program = Program.parse_from_string(data)
    saved = program.serialize_to_string()
    again = Program.parse_from_string(saved)
    assert again.serialize_to_string() == saved, "the program is another one after it was saved"
    if len(data) < LONGEST_TEXT:
        assert program.to_string(True) and str(again)


TARGET = _bytes.Bytes(seeds, check, (_bytes.change_field,))


def search(budget: Budget) -> Iterator[Finding]:
    """Look for bytes that are not refused as they should be."""
    return _bytes.search(budget, TARGET, "program_bytes")
