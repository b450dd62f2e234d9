"""Garbage collection pauses where nothing is garbage, and goes on as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fluidtool.collecting import paused
from fluidtool.errors import UnreadableError
from fluidtool.ir import Program


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_nothing_is_collected_within() -> None:
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_pause_within_a_pause_ends_nothing() -> None:
    with paused():
        with paused():
            pass
        assert not gc.isenabled()


def test_who_does_not_collect_still_does_not_after_a_program_was_read() -> None:
    data = Program().serialize_to_string()
    gc.disable()
    Program.parse_from_string(data).clone()
    assert not gc.isenabled()


def test_a_file_that_is_no_program_leaves_the_collector_on() -> None:
    with pytest.raises(UnreadableError):
        Program.parse_from_string(b"no program")
    assert gc.isenabled()
