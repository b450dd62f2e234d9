"""release_memory: what is deleted where, what is left alone, and that no value changes."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.errors import ArgumentTypeError, UninitializedError
from fluidtool.ir import Program
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.passes.memory_optimize import memory_optimize
from fluidtool.passes.release_memory import release_memory
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.block import compile_block
from tests.support.counted_work import LIMIT, growth
from tests.support.large_programs import branches
from tests.support.memory_programs import Net, types


def deletions(program: Program, block: int = 0) -> list[tuple[int, tuple[str, ...]]]:
    """(position, names) of every delete_var."""
    ops = enumerate(program.block(block).ops)
    return [(position, tuple(op.input("X"))) for position, op in ops if op.type == "delete_var"]


def reason(result: Any, name: str) -> str:
    return next(decision.reason for decision in result.decisions if decision.variable == name)


def test_a_variable_is_deleted_right_after_its_last_use() -> None:
    net = Net()
    net.chain("a", "b", "c")
    net.op("elementwise_add", {"X": "a", "Y": "c"}, {"Out": "d"})
    result = release_memory(net.program)
    assert types(net.program) == ["tanh", "tanh", "tanh", "delete_var", "elementwise_add", "delete_var"]
    assert deletions(net.program) == [(3, ("b",)), (5, ("a", "c"))]
    assert reason(result, "b") == "deleted after tanh, its last use"
    assert [decision.variable for decision in result.done] == ["b", "a", "c"]


def test_what_nothing_reads_is_not_deleted() -> None:
    net = Net()
    net.chain("a", "b")
    release_memory(net.program)
    assert deletions(net.program) == [(2, ("a",))]


def test_values_do_not_change() -> None:
    net = Net()
    net.chain("a", "b", "c", "d")
    before = net.run("d")
    release_memory(net.program)
    assert net.run("d") == before


def kept_deletions(program: Program, *fetches: str) -> list[list[str]]:
    """The names that the plan of a run still deletes."""
    steps = compile_block(program.global_block(), fetches, needed_only=False).steps
    return [step.op.input("X") for step in steps if step.op.type == "delete_var"]


def test_a_run_leaves_out_deletions_of_what_it_releases_itself() -> None:
    net = Net()
    net.chain("a", "b", "c", "d")
    release_memory(net.program)
    assert deletions(net.program) and kept_deletions(net.program, "d") == []


def test_a_run_deletes_what_it_would_not_release_there() -> None:
    net = Net()
    net.chain("a", "b", "c")
    block = net.program.global_block()
    block.append_op(type="delete_var", inputs={"X": ["b"]})
    block.append_op(type="tanh", inputs={"X": ["a"]}, outputs={"Out": ["b"]})  # one that writes the name again
    assert kept_deletions(net.program, "c") == [["b"]]
    block.var("b").persistable = True
    block.remove_op(len(block.ops) - 1)
    assert kept_deletions(net.program, "c") == [["b"]]


def test_what_is_fetched_by_its_name_is_there_although_the_program_deletes_it() -> None:
    net = Net()
    net.chain("a", "b", "c", "d")
    before = net.run("a", "c", "d")
    release_memory(net.program)
    assert net.run("a", "c", "d") == before
    values = Executor().run(net.program, net.feed(), ["a"], Scope(), needed_only=True)
    assert values[0].numpy().tobytes() == before[0]


def test_a_run_of_only_what_is_needed_does_not_run_what_deletions_name() -> None:
    net = Net()
    net.chain("a", "b")
    net.op("dropout", {"X": "a"}, {"Out": "side"}, dropout_prob=0.5, is_test=True)
    release_memory(net.program)
    plan = Executor().plan(net.program, ["a"], needed_only=True)
    assert [step.op.type for step in plan.block(0).steps] == ["tanh"]


def test_a_deleted_variable_cannot_be_read_any_more() -> None:
    net = Net()
    net.chain("a", "b")
    release_memory(net.program)
    net.step("a", "late")
    with pytest.raises(UninitializedError, match="variable a, which holds no value"):
        net.run("late")


@pytest.mark.parametrize("skip", [{"a"}, ["a"]], ids=lambda skip: type(skip).__name__)
def test_what_the_caller_skips_stays(skip: Any) -> None:
    net = Net()
    net.chain("a", "b", "c")
    result = release_memory(net.program, skip)
    assert deletions(net.program) == [(3, ("b",))]
    assert reason(result, "a") == "the caller skips it"


def test_what_is_fed_or_persistable_stays() -> None:
    net = Net()
    net.mul("x", net.parameter("w", 4, 4), "a")
    net.step("a", "b")
    result = release_memory(net.program)
    assert deletions(net.program) == [(2, ("a",))]
    assert (reason(result, "x"), reason(result, "w")) == (
        "it is fed, or read before it is written",
        "it is persistable",
    )


def test_what_a_fetch_operator_reads_stays() -> None:
    net = Net()
    net.chain("a", "b")
    block = net.program.global_block()
    block.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
    block.append_op(type="fetch", inputs={"X": "a"}, outputs={"Out": "fetch"}, attrs={"col": 0})
    assert not release_memory(net.program).changed


def test_what_a_loop_uses_stays() -> None:
    net = Net()
    net.chain("a", "b")
    with net.loop(2, reads=["a"], writes=["b"]):
        net.step("a", "inner")
        net.op("assign", {"X": "inner"}, {"Out": "b"})
    net.step("b", "c")
    before = net.run("c")
    release_memory(net.program)
    deleted = {name for _, names in deletions(net.program) for name in names}
    assert deleted.isdisjoint({"a", "b", "index", "go_on"})
    assert net.run("c") == before


def test_local_variables_of_a_loop_are_deleted_in_its_block() -> None:
    net = Net()
    net.chain("out")
    with net.loop(3, reads=["x"], writes=["out"]):
        net.step("out", "p")
        net.step("p", "q")
        net.op("assign", {"X": "q"}, {"Out": "out"})
    before = net.run("out")
    release_memory(net.program)
    assert deletions(net.program, 1) == [(2, ("p",)), (4, ("q",))]
    assert net.run("out") == before


def test_local_variables_of_a_branch_are_deleted_in_its_block() -> None:
    for taken in (False, True):
        net = Net()
        net.chain("out")
        with net.branch(taken, reads=["x"], writes=["out"]):
            net.step("x", "p")
            net.op("assign", {"X": "p"}, {"Out": "out"})
        before = net.run("out")
        release_memory(net.program)
        assert deletions(net.program, 1) == [(2, ("p",))]
        assert net.run("out") == before


def test_a_name_that_is_written_again_is_deleted_after_its_last_value_only() -> None:
    net = Net()
    net.chain("a", "b")
    net.step("b", "a")
    net.step("a", "c")
    result = release_memory(net.program)
    assert [names for _, names in deletions(net.program)] == [("b",), ("a",)]
    assert reason(result, "a") == "it is written again later, and Paddle cannot write to a deleted variable"


def test_a_deletion_has_the_role_of_the_operator_before_it() -> None:
    net = Net()
    net.chain("a", "b", "c")
    for op, role in zip(
        net.program.global_block().ops, (OpRole.Forward, OpRole.Backward, OpRole.Optimize), strict=True
    ):
        op.set_attr(ROLE_ATTR, int(role), AttrType.INT)
    release_memory(net.program)
    roles = [op.get_attr(ROLE_ATTR) for op in net.program.global_block().ops]
    assert roles == [0, 1, 1, 2, 2]
    assert types(net.program.clone(for_test=True)) == ["tanh"]


@pytest.mark.parametrize("level", [0, 1])
def test_shared_memory_is_deleted_after_its_last_user(level: int) -> None:
    net = Net()
    net.chain("a", "b", "c", "d", "e")
    before = net.run("e"), net.run("a", "b", "c", "d", "e")
    memory_optimize(net.program, {"e"}, level=level)
    release_memory(net.program, {"e"})
    assert [names for _, names in deletions(net.program)] == [("a",), ("b",)]
    assert (net.run("e"), net.run("a", "b", "c", "d", "e")) == before


def test_memory_is_shared_after_deletions_too() -> None:
    net = Net()
    net.chain("a", "b", "c", "d")
    before = net.run("a", "b", "c", "d")
    release_memory(net.program)
    assert memory_optimize(net.program).changed
    assert net.run("a", "b", "c", "d") == before


def test_a_second_time_changes_nothing() -> None:
    net = Net()
    net.chain("a", "b", "c", "d")
    release_memory(net.program)
    once = net.program.serialize_to_string()
    again = release_memory(net.program)
    assert net.program.serialize_to_string() == once
    assert not again.changed
    assert reason(again, "a") == "it is already deleted"


def test_the_result_is_in_order() -> None:
    net = Net()
    net.chain("a", "b", "c", "d")
    release_memory(net.program)
    assert [finding for finding in verify(net.program) if finding.code != "FC103"] == []


@pytest.mark.parametrize("skip", ["a", ("a",), 3], ids=lambda skip: type(skip).__name__)
def test_a_skip_opt_set_that_is_no_set_or_list_is_refused(skip: Any) -> None:
    net = Net()
    net.chain("a", "b")
    with pytest.raises(ValueError, match="only support skip_opt_set as set"):
        release_memory(net.program, skip)
    assert types(net.program) == ["tanh", "tanh"]


def test_other_items_in_a_skip_opt_set_are_refused() -> None:
    with pytest.raises(TypeError, match="3 in skip_opt_set should be Variable or str, found int; give names"):
        release_memory(Net().program, [3])


def test_something_else_than_a_program_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="release_memory takes a Program, found NoneType"):
        release_memory(None)  # type: ignore[arg-type]


def test_nothing_is_deleted_in_a_loop_for_inference() -> None:
    net = Net()
    net.chain("out")
    with net.loop(3, reads=["x"], writes=["out"]):
        net.step("out", "p")
        net.op("assign", {"X": "p"}, {"Out": "out"})
    net.program.global_block().ops[-1].set_attr("is_test", True)
    result = release_memory(net.program)
    assert deletions(net.program, 1) == []
    assert reason(result, "p").startswith("all iterations of the loop share one scope")


def test_what_a_recurrent_block_is_done_with_is_deleted() -> None:
    net = Net()
    net.chain("a")
    net.program.global_block().create_var(name="out", shape=[-1, 4], dtype="float32")
    with net.block() as block:
        net.step("a", "inner")
    attrs = {"sub_block": net.program.block(block), "ex_states": [], "states": []}
    net.program.global_block().append_op(
        type="recurrent", inputs={"inputs": ["a"]}, outputs={"outputs": ["out"]}, attrs=attrs
    )
    release_memory(net.program)
    assert deletions(net.program) == [(2, ("a",))]


def test_branches_are_looked_through_once() -> None:
    programs = {size: branches(size).inference() for size in (60, 600, 1140)}
    assert growth(lambda size: lambda: release_memory(programs[size].clone()), 600, 60) < LIMIT
