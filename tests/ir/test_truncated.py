"""Programs whose bytes end too early: how far they reach is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluidtool.errors import UnreadableError
from fluidtool.ir import Program
from fluidtool.ir.codec import decode_program
from fluidtool.ir.truncated import cut_off
from tests.cli.support import DIGITS

WHOLE = (DIGITS / "__model__").read_bytes()


def test_a_whole_program_is_not_cut_off() -> None:
    assert cut_off(WHOLE) == ""


def test_a_program_that_is_cut_off_says_how_far_it_reaches() -> None:
    with pytest.raises(
        UnreadableError, match="cut off: it ends 2667 bytes before the end of block 0, after 30 variables and 4 op"
    ):
        decode_program(WHOLE[:3000], Program())


@given(st.integers(1, len(WHOLE) - 1))
def test_no_more_is_found_than_there_is(length: int) -> None:
    found = cut_off(WHOLE[:length])
    assert not found or f"it ends {len(WHOLE) - length}" in found or "of block 0" in found


@given(st.binary(max_size=400))
def test_any_bytes_are_scanned(data: bytes) -> None:
    assert isinstance(cut_off(data), str)
