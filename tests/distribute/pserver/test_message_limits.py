"""How long a message of a job's trainers can be, as the server's program says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fluidtool.distribute.pserver.serving import SMALLEST_LIMIT, fitted
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType

LARGE = (SMALLEST_LIMIT // 4 + 1, 1)


def description(**more: Any) -> Any:
    return SimpleNamespace(**{"tables": {}, "prefetch_blocks": {}, "trainers": 2, **more})


def program(*shapes: tuple[int, ...], kind: VarType = VarType.LOD_TENSOR) -> Program:
    made = Program()
    for number, shape in enumerate(shapes):
        made.global_block().create_var(name=f"v{number}", shape=shape, dtype="float32", type=kind)
    return made


def test_a_message_is_no_longer_than_the_largest_variable() -> None:
    found = fitted(TransportOptions(), program((2, 3), LARGE), description())
    assert found.limits.message == 4 * LARGE[0]


def test_small_programs_take_somewhat_more() -> None:
    assert fitted(TransportOptions(), program((2, 3)), description()).limits.message == SMALLEST_LIMIT


def test_a_caller_has_room_for_all_of_its_gradients_and_all_callers_have_it() -> None:
    found = fitted(TransportOptions(), program((2, 3), LARGE), description())
    assert found.caller_bytes >= found.limits.message + 4 * (LARGE[0] + 6)
    assert found.all_bytes >= 2 * found.caller_bytes


def test_where_rows_are_sent_or_a_size_is_open_the_limits_stay() -> None:
    options = TransportOptions()
    assert fitted(options, program((2, 3)), description(tables={"g": "w"})) == options
    assert fitted(options, program((2, 3)), description(prefetch_blocks={"ids": 1})) == options
    assert fitted(options, program((2, 3), kind=VarType.SELECTED_ROWS), description()) == options
    assert fitted(options, program((-1, 3)), description()) == options
