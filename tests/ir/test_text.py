"""Programs as protobuf text, in pieces: no piece is larger because the program is."""

from __future__ import annotations

import pytest

from fluidtool.ir import Program
from fluidtool.ir.messages import program_message
from fluidtool.ir.text import program_pieces
from fluidtool.proto.protobuf import text_format
from tests.support.large_programs import branches, chain


def rich() -> Program:
    """Blocks within a block, and what a program says besides."""
    program = branches(30).program
    program.version = 2
    program.blocks[1].forward_block_idx = 0
    return program


@pytest.mark.parametrize("program", [rich(), Program()], ids=["rich", "empty"])
def test_the_pieces_are_what_protobuf_writes(program: Program) -> None:
    assert "".join(program_pieces(program)) == text_format.MessageToString(program_message(program))
    assert program.to_string() == "".join(program_pieces(program))


@pytest.mark.parametrize("with_details", [False, True], ids=["as protobuf", "with details"])
def test_no_piece_grows_with_the_program(with_details: bool) -> None:
    def longest(size: int) -> int:
        return max(map(len, program_pieces(chain(size).program, with_details=with_details)))

    assert longest(90) == longest(20)  # names as long, operators of the same types
