"""What a server's operator says, in the words of every version."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.distribute.pserver.description import ServerDescription, describe_server
from fluidtool.distribute.settings import DistributedMode
from fluidtool.ir import Operator, Program
from tests.distribute.pserver.support import line, server_role, table


def operator(**attrs: Any) -> Operator:
    """`listen_and_serv` of an old version: only what it wrote."""
    program = Program()
    block = program.global_block()
    for _ in range(2):
        program.create_block(0)
    given = {"endpoint": "127.0.0.1:6174", "Fanin": 2, "optimize_blocks": [program.block(1), program.block(2)]} | attrs
    return Operator(block, type="listen_and_serv", inputs={"X": ["g"]}, outputs={}, attrs=given)


def described(programs: Any, **options: Any) -> ServerDescription:
    role = server_role(programs, **options)
    return describe_server(role.main.global_block().ops[-1])


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, DistributedMode.SYNC),
        ({"sync": False}, DistributedMode.HALF_ASYNC),
        ({"sync": False, "runtime_split": True}, DistributedMode.ASYNC),
        ({"sync": False, "geo": True}, DistributedMode.GEO),
    ],
)
def test_the_mode_is_that_of_the_transpilation(options: Any, mode: DistributedMode) -> None:
    assert described(line(), **options).mode == mode


@pytest.mark.parametrize(("sync", "mode"), [(True, DistributedMode.SYNC), (False, DistributedMode.ASYNC)])
def test_up_to_fluid_1_6_there_is_only_sync_mode(sync: bool, mode: DistributedMode) -> None:
    found = describe_server(operator(sync_mode=sync))
    assert found.mode == mode and found.is_sync == sync
    assert (found.index, found.schedule_block, found.checkpoint_block) == (-1, -1, -1)


def test_fluid_0_13_has_one_block() -> None:
    op = operator()
    program = op.block.program
    attrs = {"endpoint": "127.0.0.1:6174", "Fanin": 1, "OptimizeBlock": program.block(1)}
    old = Operator(op.block, type="listen_and_serv", inputs={"X": []}, outputs={}, attrs=attrs)
    assert describe_server(old).optimize_blocks == (1,)


def test_names_may_have_colons() -> None:
    assert describe_server(operator(grad_to_block_id=["a:b@GRAD:2"])).gradient_blocks == {"a:b@GRAD": 2}


def test_tables_say_what_they_are_for() -> None:
    found = described(table(is_distributed=True), sync=False)
    assert found.prefetch_blocks == {"prefetch_compress_in_tmp_0": found.checkpoint_block - 1}
    assert found.checkpoint_block > 0
    assert described(table(), sync=False).tables == {"emb@GRAD": "emb"}
