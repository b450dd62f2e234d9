"""Which values are still needed, operator by operator."""

from __future__ import annotations

import pytest

from fluidtool.errors import ProgramError
from fluidtool.ir import Program
from fluidtool.passes.liveness import Liveness, Trace, liveness, traces
from fluidtool.proto.enums import AttrType
from tests.support.memory_programs import Net


def of_block(program: Program, block: int = 0) -> Liveness:
    return liveness(Trace((program.block(block),)))


def positions(flow: Liveness, name: str) -> list[int]:
    return [position for first, last in flow.occupied[name] for position in range(first, last + 1)]


def test_a_variable_is_in_use_from_its_writer_to_its_last_reader() -> None:
    net = Net()
    net.chain("a", "b", "c")
    net.op("elementwise_add", {"X": "a", "Y": "c"}, {"Out": "d"})
    flow = of_block(net.program)
    assert positions(flow, "a") == [0, 1, 2, 3]
    assert positions(flow, "b") == [1, 2]
    assert flow.dying[3] == {"a", "c"}
    assert flow.first("c") == 2


def test_what_nothing_reads_is_in_use_where_it_is_written() -> None:
    net = Net()
    net.chain("a", "b")
    flow = of_block(net.program)
    assert positions(flow, "b") == [1]
    assert all("b" not in flow.dying[position] for position in range(2))


def test_what_is_read_first_comes_from_before() -> None:
    net = Net()
    net.mul("x", net.parameter("w", 4, 4), "a")
    assert of_block(net.program).from_before == {"x", "w"}


def test_a_name_that_is_written_again_is_free_in_between() -> None:
    net = Net()
    net.chain("a", "b", "c")
    net.step("c", "a")
    net.step("a", "d")
    assert positions(of_block(net.program), "a") == [0, 1, 3, 4]


def test_an_operator_in_place_keeps_its_variable_in_use() -> None:
    net = Net()
    net.chain("a")
    net.step("a", "a", "relu")
    net.step("x", "b")
    net.step("a", "c")
    assert positions(of_block(net.program), "a") == [0, 1, 2, 3]


def test_a_loop_reads_what_its_block_reads_and_writes() -> None:
    net = Net()
    net.chain("a", "b")
    with net.loop(2, reads=["a"], writes=["b"]):
        net.step("a", "inner")
        net.op("assign", {"X": "inner"}, {"Out": "b"})
    net.step("b", "c")
    flow = of_block(net.program)
    loop = next(i for i, op in enumerate(flow.operators) if op.type == "while")
    assert loop in positions(flow, "a") and loop in positions(flow, "b")
    assert "inner" not in flow.occupied


def test_a_branch_that_may_not_be_taken_keeps_the_value_before_it() -> None:
    net = Net()
    net.chain("a", "b")
    with net.branch(False, reads=["a"], writes=["b"]):
        net.op("assign", {"X": "a"}, {"Out": "b"})
    net.step("b", "c")
    flow = of_block(net.program)
    branch = next(i for i, op in enumerate(flow.operators) if op.type == "conditional_block")
    assert set(range(branch + 1)) - {0} <= set(positions(flow, "b"))


def test_a_loop_and_its_gradient_are_one_trace() -> None:
    net = Net()
    net.chain("b")
    with net.loop(2, reads=["x"], writes=["b"]):
        net.step("x", "inner")
    gradient = net.program.create_block(0)
    gradient.set_forward_block_idx(1)
    net.step("inner", "inner_grad")
    net.program.rollback()
    attrs = {"sub_block": gradient}
    net.program.global_block().append_op(type="while_grad", inputs={"X": ["x"]}, outputs={}, attrs=attrs)
    found = [tuple(block.idx for block in trace.blocks) for trace in traces(net.program)]
    assert found == [(0,), (1, 2)]
    inner = liveness(list(traces(net.program))[1])
    assert positions(inner, "inner") == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["recurrent", "go", "unknown_operator"])
def test_blocks_of_other_operators_are_not_followed(kind: str) -> None:
    net = Net()
    with net.block() as block:
        net.step("x", "inner")
    attrs = {"sub_block": net.program.block(block)}
    net.program.global_block().append_op(type=kind, inputs={"X": ["x"]}, outputs={}, attrs=attrs)
    assert [trace.blocks[0].idx for trace in traces(net.program)] == [0]


def test_a_block_with_two_owners_is_not_followed() -> None:
    net = Net()
    net.chain("b")
    with net.loop(2, reads=["x"], writes=["b"]):
        net.step("x", "inner")
    attrs = {"sub_block": net.program.block(1)}
    net.program.global_block().append_op(type="conditional_block", inputs={}, outputs={}, attrs=attrs)
    assert len(list(traces(net.program))) == 1


def test_a_block_within_a_block_is_not_followed() -> None:
    net = Net()
    net.chain("b")
    with net.loop(2, reads=["x"], writes=["b"]), net.block() as inner:
        net.step("x", "deep")
    outer = net.program.block(1)
    outer.append_op(type="conditional_block", inputs={}, outputs={}, attrs={"sub_block": net.program.block(inner)})
    assert [trace.blocks[0].idx for trace in traces(net.program)] == [0, 1]


def test_a_block_that_does_not_exist_is_an_error() -> None:
    net = Net()
    net.chain("b")
    with net.loop(2, reads=["x"], writes=["b"]):
        net.step("x", "inner")
    net.program.global_block().ops[-1].set_attr("sub_block", 7, AttrType.BLOCK)
    with pytest.raises(ProgramError, match="the program has no block 7: it has 2"):
        list(traces(net.program))
