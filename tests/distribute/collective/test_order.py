"""The order of collectives is compared before the first step."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.distribute.collective.order import check_order, compare
from fluidtool.distribute.collective.threads import run_ranks
from fluidtool.errors import CollectiveError
from fluidtool.ir import Program
from fluidtool.ir.collectives import collective_lines, may_wait, uses_rings


def test_the_same_order_passes() -> None:
    run_ranks(3, lambda ring: check_order(ring, ["a", "b"]))


def test_nothing_to_do_passes() -> None:
    run_ranks(2, lambda ring: check_order(ring, []))


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([["a", "b"], ["a", "c"]], "number 1 differs (rank 0: b; rank 1: c)"),
        ([["a"], ["b"], ["a"]], "number 0 differs (ranks 0, 2: a; rank 1: b)"),
        ([["a", "b"], ["a"]], "number 1 differs (rank 0: b; rank 1: nothing more)"),
        ([[""], ["a"]], "number 0 differs (rank 0: nothing more; rank 1: a)"),
    ],
)
def test_the_first_difference_and_the_ranks_are_named(sequences: list[list[str]], message: str) -> None:
    with pytest.raises(CollectiveError) as error:
        compare(sequences)
    assert message in str(error.value)


def test_every_rank_learns_of_a_difference() -> None:
    def work(ring: object) -> str:
        with pytest.raises(CollectiveError) as error:
            check_order(ring, ["a", f"b{ring.rank}"])  # type: ignore[arg-type,attr-defined]
        return str(error.value)

    assert len(set(run_ranks(2, work))) == 1


def test_lines_say_operator_ring_variable_shape_and_data_type() -> None:
    block = Program().global_block()
    block.create_var(name="w", shape=(2, 3), dtype="float32")
    block.append_op(type="c_sync_calc_stream", inputs={"X": ["w"]}, outputs={"Out": ["w"]})
    block.append_op(type="c_broadcast", inputs={"X": ["w"]}, outputs={"Out": ["w"]}, attrs={"ring_id": 1, "root": 2})
    assert collective_lines(block.program) == [(1, "c_broadcast of w (2, 3) fp32 on ring 1 root 2")]
    assert uses_rings(block.program)


def test_a_program_without_collectives_uses_no_rings() -> None:
    assert not uses_rings(Program())


def sums(*between: tuple[str, str], use_calc_stream: bool = False, ring: int = 0) -> Program:
    """c_allreduce_sum of g, operators on other variables, c_sync_comm_stream of ring 0."""
    block = Program().global_block()
    for name in ("g", "a", "b"):
        block.create_var(name=name, shape=(2,), dtype="float32")
    attrs = {"use_calc_stream": use_calc_stream, "ring_id": ring}
    block.append_op(type="c_allreduce_sum", inputs={"X": ["g"]}, outputs={"Out": ["g"]}, attrs=attrs)
    for read, written in between:
        block.append_op(type="scale", inputs={"X": [read]}, outputs={"Out": [written]})
    block.append_op(type="c_sync_comm_stream", inputs={"X": ["g"]}, outputs={"Out": ["g"]})
    return block.program


@pytest.mark.parametrize("between", [(), (("a", "b"),), (("a", "b"), ("b", "a"))])
def test_a_sum_waits_for_the_next_sync_of_its_ring(between: tuple[tuple[str, str], ...]) -> None:
    assert may_wait(sums(*between).global_block().ops[0])


@pytest.mark.parametrize(
    ("between", "options"),
    [([("g", "a")], {}), ([("a", "g")], {}), ([], {"use_calc_stream": True}), ([], {"ring": 1})],
    ids=["read before", "written before", "needed at once", "another ring"],
)
def test_a_sum_does_not_wait(between: list[tuple[str, str]], options: dict[str, Any]) -> None:
    assert not may_wait(sums(*between, **options).global_block().ops[0])
