"""Programs whose bytes end too early: how far they reach is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluidtool.errors import UnreadableError
from fluidtool.ir import Program, truncated
from fluidtool.ir.codec import decode_program
from fluidtool.ir.truncated import cut_off
from fluidtool.proto import scan
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


@pytest.mark.parametrize("field", [b"\x08\x00", b"\x0a\x00", b"\x22\x00"])  # others, blocks, versions
@pytest.mark.parametrize("start", [b"", b"\x0a\xff\xff\xff\x7f\x08\x00"], ids=["outside", "within a block"])
def test_a_large_file_that_is_no_program_is_not_looked_through(
    start: bytes, field: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    varint = scan._varint

    def counted(data: bytes, at: int) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        return varint(data, at)

    monkeypatch.setattr(scan, "_varint", counted)
    monkeypatch.setattr(truncated, "MOST_FIELDS", 100)
    assert cut_off(start + field * 10_000 + b"\x0a") == ""
    assert looks < 250


def test_bytes_behind_what_is_no_field_are_not_looked_at() -> None:
    assert list(scan.fields(b"\x08\x01" + b"\0" * 8)) == [(1, scan.VARINT, 1, 2)]
