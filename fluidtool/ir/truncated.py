"""How far the bytes of a program reach that end too early."""

from __future__ import annotations

from itertools import islice

from fluidtool.proto.scan import DELIMITED, VARINT, fields

BLOCKS, BLOCK_INDEX, BLOCK_VARS, BLOCK_OPS = 1, 1, 3, 4  # fields of ProgramDesc and of BlockDesc
MOST_FIELDS = 300_000  # that are looked at: seconds, whatever the bytes are


def cut_off(data: bytes) -> str:
    """'it ends 2118 bytes before the end of block 0, after 30 variables and 4 operators'; '' for other bytes.

    '' also for a program in which there is too much to look at.
    """
    position = 0
    for number, wire, begin, end in islice(fields(data), MOST_FIELDS):
        if number != BLOCKS or wire != DELIMITED:
            continue
        if end > len(data):
            return _within_block(data, position, begin, end)
        position += 1
    return ""


def _within_block(data: bytes, position: int, begin: int, end: int) -> str:
    inside = list(islice(fields(data, begin), MOST_FIELDS + 1))
    if not inside or len(inside) > MOST_FIELDS or inside[0][:2] != (BLOCK_INDEX, VARINT):
        return ""
    whole = [number for number, _, _, stop in inside if stop <= len(data)]
    variables, operators = whole.count(BLOCK_VARS), whole.count(BLOCK_OPS)
    return (
        f"it ends {end - len(data)} bytes before the end of block {position}, after {variables} variables and "
        f"{operators} operators"
    )
