"""memory_optimize: what shares memory, what is left alone, and that no value changes."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.errors import ArgumentTypeError, ProgramError, UsageError
from fluidtool.ir import Program
from fluidtool.ir.reuse import ORIGINAL_NAMES_ATTR
from fluidtool.passes.memory_optimize import memory_optimize
from fluidtool.passes.peak import estimate
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import AttrType, VarType
from tests.support.memory_programs import Net, arguments, types


def chained() -> Net:
    """x -> a -> b -> c -> d -> e, all of one shape; a and c, b and d are needed at different times."""
    net = Net()
    net.chain("a", "b", "c", "d", "e")
    return net


def reason(result: Any, name: str) -> str:
    return next(decision.reason for decision in result.decisions if decision.variable == name)


def names_written(program: Program, block: int = 0) -> set[str]:
    return {name for op in program.block(block).ops for name in op.output_arg_names}


# ---------------------------------------------------------------- what shares
def test_variables_that_are_needed_one_after_the_other_get_one_name() -> None:
    net = chained()
    result = memory_optimize(net.program)
    assert arguments(net.program) == [
        (("x",), ("a",)),
        (("a",), ("b",)),
        (("b",), ("a",)),
        (("a",), ("b",)),
        (("b",), ("a",)),
    ]
    assert [decision.variable for decision in result.done] == ["c", "d", "e"]
    assert reason(result, "c") == "uses the memory of a"
    assert result.changed


def test_the_operators_stay_the_same() -> None:
    net = chained()
    before = types(net.program)
    memory_optimize(net.program, level=1)
    assert types(net.program) == before


def test_level_0_asks_for_equal_shapes() -> None:
    net = Net()
    net.mul("x", net.parameter("w", 4, 8), "wide")
    net.mul("wide", net.parameter("v", 8, 2), "narrow")
    net.step("narrow", "other")
    assert not memory_optimize(net.program).done


def test_level_1_lets_a_smaller_one_use_the_memory_of_a_larger_one() -> None:
    net = Net()
    net.mul("x", net.parameter("w", 4, 8), "wide")
    net.mul("wide", net.parameter("v", 8, 2), "narrow")
    net.step("narrow", "other")
    result = memory_optimize(net.program, level=1)
    assert reason(result, "other") == "uses the memory of wide"
    assert net.program.global_block().var("wide").shape == (-1, 8)


def test_level_1_calls_the_memory_after_its_largest_user_even_if_that_comes_later() -> None:
    net = Net()
    net.step("x", "narrow")
    net.step("narrow", "between")
    net.mul("between", net.parameter("w", 4, 8), "wide")
    assert reason(memory_optimize(net.program, level=1), "narrow") == "uses the memory of wide"


def test_level_1_keeps_sizes_by_the_batch_apart_from_fixed_ones() -> None:
    net = Net()
    net.step("x", "a")
    net.step("a", "mean", "mean")
    net.step("mean", "b", "tanh")
    assert not memory_optimize(net.program, level=1).done


def test_other_data_types_do_not_share() -> None:
    net = Net()
    net.step("x", "a")
    net.step("a", "b")
    net.op("cast", {"X": "b"}, {"Out": "c"}, in_dtype=int(VarType.FP32), out_dtype=int(VarType.FP64))
    assert not memory_optimize(net.program, level=1).done


def test_the_output_of_an_operator_never_uses_the_memory_of_its_input() -> None:
    net = Net()
    net.chain("a", "b")
    assert not memory_optimize(net.program, level=1).done


def test_local_variables_of_a_loop_share() -> None:
    net = Net()
    net.chain("out")
    with net.loop(3, reads=["x"], writes=["out"]):
        net.step("out", "p")
        net.step("p", "q")
        net.step("q", "r")
        net.op("assign", {"X": "r"}, {"Out": "out"})
    before = net.run("out")
    result = memory_optimize(net.program)
    assert reason(result, "r") == "uses the memory of p"
    assert "r" not in names_written(net.program, 1)
    assert net.run("out") == before


# ---------------------------------------------------------------- what is left alone
def left(net: Net, name: str, **options: Any) -> str:
    """Why a variable is left; the program must compute what it computed before."""
    fetches = [op.output_arg_names[0] for op in net.program.global_block().ops if op.output_arg_names]
    wanted = [
        name for name in dict.fromkeys(fetches) if net.program.global_block().var(name).type == VarType.LOD_TENSOR
    ]
    before = net.run(*wanted)
    result = memory_optimize(net.program, level=1, **options)
    assert net.run(*wanted) == before
    assert name not in {decision.variable for decision in result.done}
    return reason(result, name)


def test_what_is_fed_is_left() -> None:
    assert left(chained(), "x") == "it is fed, or read before it is written"


def test_what_a_feed_operator_writes_is_left() -> None:
    net = chained()
    block = net.program.global_block()
    block.var("x").is_data = False
    block.create_var(name="feed", type=VarType.FEED_MINIBATCH, persistable=True)
    block.prepend_op(type="feed", inputs={"X": "feed"}, outputs={"Out": "x"}, attrs={"col": 0})
    assert reason(memory_optimize(net.program), "x") == "it is fed, or read before it is written"


@pytest.mark.parametrize("skip", [{"c"}, ["c"], frozenset({"c"})], ids=lambda skip: type(skip).__name__)
def test_what_the_caller_skips_is_left(skip: Any) -> None:
    assert left(chained(), "c", skip_opt_set=skip) == "the caller skips it"


def test_variables_are_skipped_as_well_as_names() -> None:
    net = chained()
    assert left(net, "c", skip_opt_set={net.program.global_block().var("c")}) == "the caller skips it"


def test_what_a_fetch_operator_reads_is_left() -> None:
    net = chained()
    block = net.program.global_block()
    block.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
    block.append_op(type="fetch", inputs={"X": "c"}, outputs={"Out": "fetch"}, attrs={"col": 0})
    result = memory_optimize(net.program)
    assert reason(result, "c") == "it is fetched"
    assert "c" in names_written(net.program)


def test_persistable_variables_are_left() -> None:
    net = chained()
    net.program.global_block().var("c").persistable = True
    assert left(net, "c") == "it is persistable"


def test_a_shared_weight_is_left() -> None:
    net = Net()
    weight = net.parameter("w", 4, 4)
    net.mul(net.mul("x", weight, "a"), weight, "b")
    net.mul("b", weight, "c")
    result = memory_optimize(net.program)
    assert reason(result, "w") == "it is persistable"
    assert all("w" in op.input_arg_names for op in net.program.global_block().ops)


def test_a_residual_is_needed_until_it_is_added() -> None:
    net = Net()
    net.chain("a", "b", "c")
    net.op("elementwise_add", {"X": "a", "Y": "c"}, {"Out": "d"})
    net.step("d", "e")
    before = net.run("d", "e")
    result = memory_optimize(net.program)
    assert {decision.variable for decision in result.done} == {"d", "e"}
    assert net.run("d", "e") == before


def test_what_a_loop_uses_is_left() -> None:
    net = Net()
    net.chain("a", "b", "c")
    with net.loop(2, reads=["a"], writes=["c"]):
        net.step("a", "inner")
        net.op("assign", {"X": "inner"}, {"Out": "c"})
    net.step("c", "d")
    assert left(net, "a").startswith("operators of other blocks use it")


def test_what_a_branch_writes_is_left() -> None:
    net = Net()
    net.chain("a", "b", "c")
    with net.branch(True, reads=["a"], writes=["c"]):
        net.op("assign", {"X": "a"}, {"Out": "c"})
    net.chain("d", "e", "f")
    net.op("elementwise_add", {"X": "c", "Y": "f"}, {"Out": "g"})
    assert left(net, "c").startswith("operators of other blocks use it")


def test_what_an_operator_with_a_block_lists_but_does_not_use_is_left() -> None:
    net = Net()
    net.chain("a", "b", "c")
    with net.branch(True, reads=["a", "b"], writes=["c"]):
        net.op("assign", {"X": "a"}, {"Out": "c"})
    assert left(net, "b") == "an operator with a sub-block uses it, or may"


def test_what_an_attribute_names_is_left() -> None:
    net = chained()
    net.program.global_block().ops[0].set_attr("varnames", ["c:1"], AttrType.STRINGS)
    assert reason(memory_optimize(net.program), "c") == "an attribute names it"


def test_what_is_sent_is_left() -> None:
    net = chained()
    net.program.global_block().append_op(type="send", inputs={"X": "c"}, outputs={"Out": "dummy"})
    assert reason(memory_optimize(net.program), "c") == "an operator sends, receives or prints it by name"


def test_what_is_kept_on_the_cpu_is_left() -> None:
    net = Net()
    net.constant("a", 1.0, VarType.FP32, force_cpu=True)
    net.step("a", "b")
    net.step("b", "c")
    assert left(net, "a") == "its operator keeps it on the CPU (force_cpu)"


def test_arrays_of_tensors_are_left() -> None:
    net = Net()
    net.constant("zero", 0)
    net.program.global_block().create_var(name="array", type=VarType.LOD_TENSOR_ARRAY, dtype="float32")
    net.op("write_to_array", {"X": "x", "I": "zero"}, {"Out": "array"})
    net.op("read_from_array", {"X": "array", "I": "zero"}, {"Out": "a"})
    assert left(net, "array") == "it is not a LoDTensor"


def test_what_has_no_declared_shape_is_left() -> None:
    net = chained()
    net.program.global_block().var("c").shape = None  # type: ignore[assignment]
    assert left(net, "c") == "its shape or data type is not declared"


def test_the_shape_that_reshape_keeps_has_no_memory() -> None:
    net = Net()
    net.op("reshape2", {"X": "x"}, {"Out": "a", "XShape": "xshape"}, shape=[-1, 2, 2])
    assert left(net, "xshape") == "it has no memory"


def test_skip_grads_leaves_the_gradients_that_optimizers_read() -> None:
    net = chained()
    net.program.global_block().ops[4].set_attr("op_role", 2)
    net.program.global_block().ops[4].set_attr("op_role_var", ["w", "c"], AttrType.STRINGS)
    assert left(net, "c", skip_grads=True) == "it is a gradient that an optimizer reads (skip_grads)"


def test_without_skip_grads_they_share() -> None:
    net = chained()
    net.program.global_block().ops[4].set_attr("op_role", 2)
    net.program.global_block().ops[4].set_attr("op_role_var", ["w", "c"], AttrType.STRINGS)
    assert "c" in {decision.variable for decision in memory_optimize(net.program).done}


# ---------------------------------------------------------------- values, again, errors
@pytest.mark.parametrize("level", [0, 1])
def test_every_value_can_still_be_fetched_by_its_name(level: int) -> None:
    net = chained()
    before = net.run("a", "b", "c", "d", "e")
    memory_optimize(net.program, level=level)
    assert net.run("a", "b", "c", "d", "e") == before
    assert [net.run(name)[0] for name in "abcde"] == before


def test_a_skipped_result_is_computed_in_shared_memory() -> None:
    net = chained()
    before = net.run("e")
    memory_optimize(net.program, {"e"})
    assert "e" in names_written(net.program)
    assert "c" not in names_written(net.program)
    assert net.run("e") == before


def test_a_saved_and_loaded_program_still_gives_every_value() -> None:
    net = chained()
    before = net.run("a", "c", "e")
    memory_optimize(net.program)
    assert net.run("a", "c", "e", program=Program.parse_from_string(net.program.serialize_to_string())) == before


@pytest.mark.parametrize("level", [0, 1])
def test_a_second_time_changes_nothing(level: int) -> None:
    net = chained()
    memory_optimize(net.program, level=level)
    once, mutation = net.program.serialize_to_string(), net.program.mutation
    again = memory_optimize(net.program, level=level)
    assert net.program.serialize_to_string() == once
    assert net.program.mutation == mutation
    assert not again.changed


def test_level_1_after_level_0_saves_more() -> None:
    net = Net()
    net.chain("a", "b", "c")
    net.mul("c", net.parameter("w", 4, 8), "wide")
    net.step("wide", "other")
    before = net.run("a", "b", "c", "wide", "other")
    memory_optimize(net.program)
    after_level_0 = estimate(net.program)
    memory_optimize(net.program, level=1)
    assert estimate(net.program).all_variables < after_level_0.all_variables
    assert net.run("a", "b", "c", "wide", "other") == before


def test_the_result_is_in_order() -> None:
    net = chained()
    memory_optimize(net.program)
    assert [finding for finding in verify(net.program) if finding.code != "FC103"] == []


def test_print_log_writes_every_reuse_as_paddle_does(capsys: pytest.CaptureFixture[str]) -> None:
    memory_optimize(chained().program, print_log=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "Hit Cache !!!! cache pool index is 0, var name is c, cached var name is a, var shape is (-1, 4) "
    )
    assert len(lines) == 3


def test_without_print_log_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    memory_optimize(chained().program)
    assert capsys.readouterr() == ("", "")


def test_operators_that_share_say_which_variable_they_mean() -> None:
    net = chained()
    memory_optimize(net.program)
    marks = [op.get_attr(ORIGINAL_NAMES_ATTR) for op in net.program.global_block().ops]
    assert marks[2] == ["b", "b", "a", "c"]


@pytest.mark.parametrize("level", [2, -1, None, "0"])
def test_another_level_is_refused(level: Any) -> None:
    net = chained()
    before = net.program.serialize_to_string()
    with pytest.raises(UsageError, match=r"only support opt_level 0 or 1\. Found"):
        memory_optimize(net.program, level=level)
    assert net.program.serialize_to_string() == before


@pytest.mark.parametrize("skip", ["c", ("c",), {"c": 1}, 3], ids=lambda skip: type(skip).__name__)
def test_a_skip_opt_set_that_is_no_set_or_list_is_refused(skip: Any) -> None:
    net = chained()
    before = net.program.serialize_to_string()
    with pytest.raises(ValueError, match=r"only support skip_opt_set as set\. Found " + type(skip).__name__):
        memory_optimize(net.program, skip)
    assert net.program.serialize_to_string() == before


@pytest.mark.parametrize("item", [3, None, b"c"])
def test_other_items_in_a_skip_opt_set_are_refused(item: Any) -> None:
    net = chained()
    before = net.program.serialize_to_string()
    with pytest.raises(TypeError, match=r"in skip_opt_set should be Variable or str, found"):
        memory_optimize(net.program, ["c", item])
    assert net.program.serialize_to_string() == before


def test_something_else_than_a_program_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="memory_optimize takes a Program, found bytes"):
        memory_optimize(b"program")  # type: ignore[arg-type]


def test_an_error_leaves_the_program_as_it_was() -> None:
    net = chained()
    net.program.global_block().append_op(type="while", inputs={}, outputs={}, attrs={})
    net.program.global_block().ops[-1].set_attr("sub_block", 9, AttrType.BLOCK)
    before = arguments(net.program)
    with pytest.raises(ProgramError, match="the program has no block 9"):
        memory_optimize(net.program)
    assert arguments(net.program) == before


# ---------------------------------------------------------------- what Paddle's operators do to memory and LoDs
def test_views_of_paddle_are_left() -> None:
    net = Net()
    net.chain("a", "b", "c")
    net.program.global_block().create_var(name="d", shape=[-1, 4], dtype="float32")
    net.program.global_block().append_op(type="lod_reset", inputs={"X": "c"}, outputs={"Out": "d"})
    result = memory_optimize(net.program)
    for name in "cd":
        assert reason(result, name) == "in Paddle an operator's output is a view of it, or keeps its LoD"


def expanding(lod_level: int) -> Net:
    """x -> a … -> g, and g expanded by the LoD of x."""
    net = Net()
    net.chain(*"abcdefg", type="relu")
    for name in "abcdefg":
        net.program.global_block().var(name).lod_level = lod_level
    net.program.global_block().create_var(name="out", shape=[-1, 4], dtype="float32", lod_level=1)
    net.program.global_block().append_op(type="sequence_expand", inputs={"X": "g", "Y": "x"}, outputs={"Out": "out"})
    return net


def test_what_must_not_have_a_lod_takes_no_memory_that_could_leave_one() -> None:
    result = memory_optimize(expanding(0).program)
    for name in "abcdefg":
        assert reason(result, name) == "an operator checks whether it, or a value with its LoD, has a LoD"


def test_what_has_a_lod_of_its_own_shares() -> None:
    assert memory_optimize(expanding(1).program).changed


def test_memory_of_a_loop_and_its_gradient_is_called_after_a_variable_of_the_forward_block() -> None:
    net = Net()
    net.chain("out")
    with net.loop(2, reads=["x"], writes=["out"]):
        net.step("x", "small", "mean")
        net.program.current_block().var("small").shape = (2,)
    gradient = net.program.create_block(0)
    gradient.set_forward_block_idx(1)
    net.step("x", "other")
    net.program.current_block().var("other").shape = (8,)
    net.program.rollback()
    attrs = {"sub_block": gradient}
    net.program.global_block().append_op(type="while_grad", inputs={"X": ["x"]}, outputs={}, attrs=attrs)
    result = memory_optimize(net.program, level=1)
    assert reason(result, "other") == "uses the memory of small"
