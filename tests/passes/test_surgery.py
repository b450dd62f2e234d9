"""clone, prune and inference_optimize by the rules of Paddle 1.8: what stays, what goes, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.errors import ProgramError
from fluidtool.ir import Parameter, Program
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.proto.enums import AttrType, VarType
from tests.support.memory_programs import Net, arguments, types
from tests.support.random_programs import pick_from, random_program


def with_roles() -> Net:
    """x -> a (forward), a -> g (backward), g -> w (optimize), and a learning rate schedule in a block of its own."""
    net = Net()
    net.parameter("w", 4, 4)
    net.mul("x", "w", "a")
    net.step("a", "g")
    net.op("mul", {"X": "g", "Y": "w"}, {"Out": "updated"}, x_num_col_dims=1, y_num_col_dims=1)
    with net.branch(True, reads=["x"], writes=["updated"]):
        net.step("x", "inner")
    roles = [OpRole.Forward, OpRole.Backward, OpRole.Optimize]
    for op, role in zip(net.program.global_block().ops, roles, strict=False):
        op.set_attr(ROLE_ATTR, int(role), AttrType.INT)
    for op in net.program.global_block().ops[3:]:
        op.set_attr(ROLE_ATTR, int(OpRole.LRSched), AttrType.INT)
    return net


# ---------------------------------------------------------------- clone
def test_a_clone_shares_nothing() -> None:
    net = Net()
    net.chain("a", "b")
    copy = net.program.clone()
    copy.global_block().ops[0].set_attr("scale", 2.0)
    copy.global_block().ops[0].set_input("X", ["b"])
    copy.global_block().var("a").shape = (7,)
    copy.global_block().remove_op(1)
    assert types(net.program) == ["tanh", "tanh"]
    assert arguments(net.program)[0] == (("x",), ("a",))
    assert net.program.global_block().var("a").shape == (-1, 4)


def test_a_clone_keeps_parameters_and_what_is_fed() -> None:
    net = Net()
    net.mul("x", net.parameter("w", 4, 4), "a")
    copy = net.program.clone()
    assert isinstance(copy.global_block().var("w"), Parameter)
    assert copy.global_block().var("x").is_data


def test_a_clone_for_testing_drops_training_its_blocks_and_variables() -> None:
    net = with_roles()
    copy = net.program.clone(for_test=True)
    assert types(copy) == ["mul"]
    assert copy.num_blocks == 1
    assert set(copy.global_block().vars) == {"x", "w", "a"}
    assert net.program.num_blocks == 2


def test_a_clone_for_testing_sets_is_test_where_it_is() -> None:
    net = Net()
    net.op("dropout", {"X": "x"}, {"Out": "a", "Mask": "mask"}, dropout_prob=0.5, is_test=False)
    net.step("a", "b")
    copy = net.program.clone(for_test=True)
    assert copy.global_block().ops[0].attr("is_test") is True
    assert not copy.global_block().ops[1].has_attr("is_test")
    assert net.program.global_block().ops[0].attr("is_test") is False


def test_blocks_that_stay_are_numbered_again() -> None:
    net = Net()
    net.chain("a")
    with net.branch(True, reads=["x"], writes=["a"]):
        net.step("x", "first")
    for op in net.program.global_block().ops:
        op.set_attr(ROLE_ATTR, int(OpRole.Backward), AttrType.INT)
    net.chain("b")
    with net.branch(True, reads=["x"], writes=["b"]):
        net.step("x", "second")
    copy = net.program.clone(for_test=True)
    assert [block.idx for block in copy.blocks] == [0, 1]
    assert copy.global_block().ops[-1].sub_blocks() == [1]
    assert arguments(copy, 1) == [(("x",), ("second",))]
    assert net.program.global_block().ops[-1].sub_blocks() == [2]


# ---------------------------------------------------------------- prune
@pytest.mark.parametrize("seed", range(10))
def test_prune_leaves_its_source_as_it_was(seed: int) -> None:
    case = random_program(pick_from(seed), blocks=True)
    before = case.program.serialize_to_string()
    case.program.prune(list(case.fetches))
    case.program.clone(for_test=True)
    case.program.inference_optimize()
    assert case.program.serialize_to_string() == before


def test_prune_keeps_what_the_target_needs_in_order() -> None:
    net = Net()
    net.chain("a", "b")
    net.step("a", "side")
    net.op("elementwise_add", {"X": "a", "Y": "b"}, {"Out": "c"})
    pruned = net.program.prune("c")
    assert types(pruned) == ["tanh", "tanh", "elementwise_add"]
    assert list(pruned.global_block().vars) == ["x", "a", "b", "c"]


def test_a_cut_program_has_no_marks_of_targets() -> None:
    net = Net()
    net.chain("a", "b")
    net.step("a", "side")
    for op in net.program.global_block().ops:
        op.is_target = True
    pruned = net.program.prune("b")
    assert types(pruned) == ["tanh", "tanh"]
    for cut in (pruned, net.program.inference_optimize()):
        assert not any(op.is_target for op in cut.global_block().ops)


@pytest.mark.parametrize("taken", [False, True])
def test_prune_keeps_the_value_that_a_branch_not_taken_leaves(taken: bool) -> None:
    net = Net()
    net.chain("a", "b")
    with net.branch(taken, reads=["x"], writes=["b"]):
        net.op("assign", {"X": "x"}, {"Out": "b"})
    assert net.run("b", program=net.program.prune("b")) == net.run("b")


def test_prune_keeps_what_a_block_reads_from_outside_and_drops_the_rest_of_it() -> None:
    net = Net()
    net.chain("a", "b", "c")
    with net.branch(True, reads=["a", "b"], writes=["c"]):
        net.step("a", "inner")
        net.step("b", "unused")
        net.op("assign", {"X": "inner"}, {"Out": "c"})
    pruned = net.program.prune("c")
    assert types(pruned, 1) == ["tanh", "assign"]
    assert set(pruned.block(1).vars) == {"inner"}
    assert net.run("c", program=pruned) == net.run("c")


def test_prune_numbers_blocks_again() -> None:
    net = Net()
    net.chain("a", "b")
    with net.branch(True, reads=["x"], writes=["a"]):
        net.op("assign", {"X": "x"}, {"Out": "a"})
    with net.branch(True, reads=["x"], writes=["b"]):
        net.step("x", "inner")
        net.op("assign", {"X": "inner"}, {"Out": "b"})
    first = next(i for i, op in enumerate(net.program.global_block().ops) if op.type == "conditional_block")
    net.program.global_block().remove_op(first)
    pruned = net.program.prune("b")
    assert pruned.num_blocks == 2
    assert pruned.global_block().ops[-1].sub_blocks() == [1]
    assert types(pruned, 1) == ["tanh", "assign"]


def test_prune_follows_what_is_written_in_place() -> None:
    net = Net()
    net.chain("a")
    net.step("a", "a", "relu")
    net.step("a", "b")
    pruned = net.program.prune("b")
    assert types(pruned) == ["tanh", "relu", "tanh"]


def test_prune_by_operator() -> None:
    net = Net()
    net.chain("a", "b", "c")
    assert types(net.program.prune(net.program.global_block().ops[1])) == ["tanh", "tanh"]


def test_prune_leaves_the_optimizer_out() -> None:
    net = Net()
    net.mul("x", net.parameter("w", 4, 4), "a")
    net.op("mul", {"X": "a", "Y": "w"}, {"Out": "a"}, x_num_col_dims=1, y_num_col_dims=1)
    net.program.global_block().ops[1].set_attr(ROLE_ATTR, int(OpRole.Optimize), AttrType.INT)
    assert types(net.program.prune("a")) == ["mul"]


def test_prune_with_input_cuts_there() -> None:
    net = Net()
    net.chain("a", "b", "c")
    pruned = net.program.prune_with_input(["b"], ["c"])
    assert arguments(pruned) == [(("b",), ("c",))]


def test_a_target_that_is_fed_needs_no_operator() -> None:
    net = Net()
    net.chain("a", "b")
    assert types(net.program.prune_with_input(["a"], ["a", "b"])) == ["tanh"]


@pytest.mark.parametrize("target", [3, None, 2.5, b"a"], ids=repr)
def test_prune_refuses_other_targets(target: Any) -> None:
    net = Net()
    net.chain("a")
    with pytest.raises(ValueError, match=r"All targets of .* can only be Variable or Operator, but received <class"):
        net.program.prune([target])


def test_prune_refuses_a_feed_that_is_no_name() -> None:
    with pytest.raises(ProgramError, match=r"All feeded_var_names of .* can only be str, but received <class 'int'>"):
        Net().program.prune_with_input([3], [])  # type: ignore[list-item]


def test_prune_refuses_a_variable_that_nothing_computes() -> None:
    net = Net()
    net.chain("a")
    with pytest.raises(
        ValueError, match="associated operator that generates it: x is computed by no operator of block 0"
    ):
        net.program.prune("x")
    with pytest.raises(ValueError, match="associated operator that generates it: nowhere is not a variable of block 0"):
        net.program.prune("nowhere")


def test_prune_refuses_a_variable_that_only_a_block_within_computes() -> None:
    net = Net()
    net.chain("a")
    with net.branch(True, reads=["x"], writes=["a"]):
        net.step("x", "inner")
    with pytest.raises(ProgramError, match="inner is not a variable of block 0"):
        net.program.prune("inner")


@pytest.mark.parametrize("kind", ["feed", "fetch"])
def test_prune_refuses_feed_and_fetch_operators_in_the_middle(kind: str) -> None:
    net = Net()
    net.chain("a")
    holder = VarType.FEED_MINIBATCH if kind == "feed" else VarType.FETCH_LIST
    net.program.global_block().create_var(name=kind, type=holder, persistable=True)
    inputs, outputs = ({"X": "feed"}, {"Out": "x"}) if kind == "feed" else ({"X": "a"}, {"Out": "fetch"})
    net.program.global_block().append_op(type=kind, inputs=inputs, outputs=outputs, attrs={"col": 0})
    net.step("a", "b")
    with pytest.raises(ProgramError, match="block 0 cannot be pruned: feed operators must come first"):
        net.program.prune("b")


# ---------------------------------------------------------------- inference_optimize
def test_inference_optimize_drops_readers_and_what_comes_before_the_first_read() -> None:
    net = Net()
    block = net.program.global_block()
    block.create_var(name="reader", type=VarType.READER)
    block.append_op(type="create_py_reader", inputs={}, outputs={"Out": "reader"})
    block.append_op(type="read", inputs={"Reader": "reader"}, outputs={"Out": "x"})
    net.chain("a")
    optimized = net.program.inference_optimize()
    assert types(optimized) == ["tanh"]
    assert "reader" not in optimized.global_block().vars
    assert types(net.program.inference_optimize(prune_read_op=False)) == ["create_py_reader", "read", "tanh"]


def test_a_program_parsed_from_bytes_has_no_parameters() -> None:
    net = Net()
    net.mul("x", net.parameter("w", 4, 4), "a")
    parsed = Program.parse_from_string(net.program.serialize_to_string())
    assert parsed.all_parameters() == []
    assert parsed.global_block().var("w").persistable
    assert not parsed.global_block().var("x").is_data
