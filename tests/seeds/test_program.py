"""`fluid.Program` as documented: construction, roles, copies, blocks; and the default programs and their guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import Program
from fluidtool.fluid.core import op_proto_and_checker_maker
from tests.networks.dump import forget_name_scopes
from tests.support.program_diff import differences

OpRole = op_proto_and_checker_maker.OpRole


def types(program: Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


# ---------------------------------------------------------------- the class
def test_the_example() -> None:
    main_program = fluid.Program()
    startup_program = fluid.Program()
    with fluid.program_guard(main_program=main_program, startup_program=startup_program):
        x = fluid.layers.data(name="x", shape=[-1, 784], dtype="float32")
        fluid.layers.data(name="y", shape=[-1, 1], dtype="int32")
        fluid.layers.fc(input=x, size=10, act="relu")
    assert types(main_program) == ["mul", "elementwise_add", "relu"] and len(startup_program.all_parameters()) == 2
    assert main_program.global_block().var("y").shape == (-1, 1)


def test_the_line_of_the_example_that_no_version_took_is_a_type_error() -> None:
    """`fc` has always needed `input` and `size`."""
    with pytest.raises(TypeError, match="shape"):
        fluid.layers.fc(name="fc", shape=[10], dtype="float32", act="relu")  # type: ignore[call-arg]


def test_an_empty_program_has_one_empty_block() -> None:
    program = fluid.Program()
    assert (program.num_blocks, program.global_block().ops, list(program.list_vars())) == (1, [], [])


# ---------------------------------------------------------------- roles
def test_op_role_is_given_to_operators() -> None:
    program = Program()
    assert program.op_role == OpRole.Forward
    program.op_role = OpRole.Backward
    program.set_op_role(OpRole.Optimize)
    program.op_role_var = ["w", "w@GRAD"]
    assert (program.op_role, program.op_role_var) == (OpRole.Optimize, ["w", "w@GRAD"])
    x = program.global_block().create_var(name="x", shape=[1], dtype="float32")
    op = program.global_block().append_op(type="abs", inputs={"X": [x]}, outputs={"Out": [x]})
    assert (op.attr("op_role"), op.attr("op_role_var")) == (int(OpRole.Optimize), ["w", "w@GRAD"])


def test_set_op_role_var() -> None:
    program = Program()
    program.set_op_role_var("w")
    assert program.op_role_var == ["w"]


def test_optimized_guard_marks_what_is_appended_within() -> None:
    program = fluid.default_main_program()
    p = program.global_block().create_parameter(name="p", shape=[2], dtype="float32")
    g = program.global_block().create_var(name="g", shape=[2], dtype="float32")
    with program.optimized_guard(p):
        p = p - 0.001 * g
    marked = [(op.attr("op_role"), op.attr("op_role_var")) for op in program.global_block().ops]
    assert marked == [(int(OpRole.Optimize), ["p"])] * 2
    assert (program.op_role, program.op_role_var) == (OpRole.Forward, [])
    feed = {"p": np.ones(2, "float32"), "g": np.full(2, 100, "float32")}
    (out,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[p])
    np.testing.assert_allclose(out, [0.9, 0.9], rtol=1e-6)


@pytest.mark.parametrize("item", ["p", ["p", "p@GRAD"]])
def test_optimized_guard_takes_names(item: Any) -> None:
    program = Program()
    with program.optimized_guard(item):
        assert program.op_role_var == (item if isinstance(item, list) else [item])


def test_optimized_guard_ends_when_its_body_fails() -> None:
    program = Program()
    with pytest.raises(KeyError), program.optimized_guard("p"):
        raise KeyError
    assert program.op_role == OpRole.Forward


# ---------------------------------------------------------------- text and bytes
@pytest.mark.parametrize("throw_on_error", [True, False])
def test_to_string(throw_on_error: bool) -> None:
    fluid.layers.fc(fluid.layers.data("x", [3]), 2)
    program = fluid.default_main_program()
    plain, detailed = program.to_string(throw_on_error), program.to_string(throw_on_error, with_details=True)
    assert 'type: "mul"' in plain and "trainable" not in plain
    assert 'type: "mul"' in detailed and "trainable: True" in detailed and "optimize_attr" in detailed


def test_to_string_raises_value_error_on_an_incomplete_program_when_asked() -> None:
    program = Program()
    var = program.global_block().create_var(name="reader", type=fluid.core.VarDesc.VarType.CHANNEL)
    var.type_bytes = b"\x08\x10\x32\x00"  # a channel that does not say what it carries
    assert isinstance(program.to_string(False), str)
    with pytest.raises(ValueError, match="are not initialized"):
        program.to_string(throw_on_error=True)


def test_get_desc_gives_the_programs_bytes() -> None:
    fluid.layers.data("x", [3])
    program = fluid.default_main_program()
    assert program.get_desc().serialize_to_string() == program.desc.serialize_to_string()
    assert Program.parse_from_string(program.get_desc().serialize_to_string()).global_block().has_var("x")


def test_parse_from_string_gives_the_program_without_parameters() -> None:
    fluid.layers.fc(fluid.layers.data("x", [3]), 2)
    program = fluid.default_main_program()
    parsed = Program.parse_from_string(binary_str=program.desc.serialize_to_string())
    assert list(differences(parsed, program)) == []
    assert program.all_parameters() and not parsed.all_parameters()
    assert parsed.global_block().var("fc_0.w_0").persistable


def test_copy_param_info_from() -> None:
    fluid.layers.fc(fluid.layers.data("x", [3]), 2)
    program = fluid.default_main_program()
    parsed = Program.parse_from_string(program.desc.serialize_to_string())
    assert parsed.copy_param_info_from(program) is None  # type: ignore[func-returns-value]
    assert sorted(param.name for param in parsed.all_parameters()) == ["fc_0.b_0", "fc_0.w_0"]


def test_copy_data_info_from() -> None:
    fluid.layers.data("x", [3])
    program = fluid.default_main_program()
    parsed = Program.parse_from_string(program.desc.serialize_to_string())
    assert parsed.global_block().var("x").is_data is False
    assert parsed.copy_data_info_from(other=program) is None  # type: ignore[func-returns-value]
    assert parsed.global_block().var("x").is_data is True and parsed.global_block().var("x").stop_gradient is True


@pytest.mark.parametrize("method", ["copy_param_info_from", "copy_data_info_from"])
def test_copying_info_takes_programs(method: str) -> None:
    with pytest.raises(TypeError, match=f"{method} takes a Program"):
        getattr(Program(), method)("program")


# ---------------------------------------------------------------- clone
def _cloned_for_test() -> tuple[Program, Program, Program]:
    train_program = fluid.Program()
    startup_program = fluid.Program()
    with fluid.program_guard(train_program, startup_program):
        img = fluid.layers.data(name="image", shape=[784])
        hidden = fluid.layers.fc(input=img, size=200, act="relu")
        hidden = fluid.layers.dropout(hidden, dropout_prob=0.5)
        loss = fluid.layers.cross_entropy(
            input=fluid.layers.fc(hidden, size=10, act="softmax"),
            label=fluid.layers.data(name="label", shape=[1], dtype="int64"),
        )
        loss = fluid.layers.mean(loss)

    test_program = train_program.clone(for_test=True)

    sgd = fluid.optimizer.SGD(learning_rate=1e-3)
    with fluid.program_guard(train_program, startup_program):
        sgd.minimize(loss)
    return train_program, startup_program, test_program


def _built_twice() -> tuple[Program, Program, Program]:
    def network(is_test: bool) -> fluid.Variable:
        img = fluid.layers.data(name="image", shape=[784])
        hidden = fluid.layers.fc(input=img, size=200, act="relu")
        hidden = fluid.layers.dropout(hidden, dropout_prob=0.5, is_test=is_test)
        loss = fluid.layers.cross_entropy(
            input=fluid.layers.fc(hidden, size=10, act="softmax"),
            label=fluid.layers.data(name="label", shape=[1], dtype="int64"),
        )
        return fluid.layers.mean(loss)

    train_program = fluid.Program()
    startup_program = fluid.Program()
    test_program = fluid.Program()

    with fluid.program_guard(train_program, startup_program), fluid.unique_name.guard():
        loss = network(is_test=False)
        sgd = fluid.optimizer.SGD(learning_rate=1e-3)
        sgd.minimize(loss)

    # the test startup program is not used.
    with fluid.program_guard(test_program, fluid.Program()), fluid.unique_name.guard():
        loss = network(is_test=True)
    return train_program, startup_program, test_program


def test_the_two_ways_to_a_test_program_give_the_same_programs() -> None:
    """The documented snippets, with the mean that makes their loss a scalar. Two fields differ that change no number, in
    Paddle 1.8.5 as here: clone sets `is_test` on softmax, too, and keeps the declared shape of the unused mask.
    """
    forget_name_scopes(fluid)
    with fluid.unique_name.guard():
        cloned = _cloned_for_test()
    forget_name_scopes(fluid)
    found = [list(differences(mine, other)) for mine, other in zip(cloned, _built_twice(), strict=True)]
    assert found[:2] == [[], []]
    assert [line.split(":")[0] for line in found[2]] == ["block 0, op 6 softmax", "block 0, variable dropout_0.tmp_1"]


def test_a_loss_that_is_no_scalar_as_in_the_documented_snippets_is_refused() -> None:
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    image = fluid.layers.data(name="image", shape=[784])
    loss = fluid.layers.cross_entropy(fluid.layers.fc(image, size=10, act="softmax"), label)
    with pytest.raises(ValueError, match=r"loss.shape should be \(1L?,\)"):
        fluid.optimizer.SGD(learning_rate=1e-3).minimize(loss)


def test_clone_for_training_is_an_equal_program_apart() -> None:
    fluid.layers.dropout(fluid.layers.data("x", [3]), 0.5)
    program = fluid.default_main_program()
    copy = program.clone()
    assert list(differences(copy, program)) == [] and copy is not program
    assert copy.clone(for_test=False).global_block().ops[0].attr("is_test") is False
    fluid.layers.scale(program.global_block().var("x"))
    assert types(copy) == ["dropout"]


def test_clone_for_test_sets_is_test_and_prunes_no_forward_operator() -> None:
    x = fluid.layers.data("x", [3])
    fluid.layers.dropout(x, 0.5)
    fluid.layers.scale(x)
    copy = fluid.default_main_program().clone(for_test=True)
    assert types(copy) == ["dropout", "scale"] and copy.global_block().ops[0].attr("is_test") is True
    assert fluid.default_main_program().global_block().ops[0].attr("is_test") is False


# ---------------------------------------------------------------- prune, inference_optimize
def _two_outputs() -> tuple[Program, fluid.Variable, fluid.Variable]:
    x = fluid.layers.data("x", [3])
    return fluid.default_main_program(), fluid.layers.tanh(x), fluid.layers.exp(x)


@pytest.mark.parametrize("form", ["variable", "list", "operator", "name"])
def test_prune_keeps_what_the_targets_need(form: str) -> None:
    program, target, _ = _two_outputs()
    targets = {
        "variable": target,
        "list": [target],
        "operator": program.global_block().ops[0],
        "name": target.name,
    }[form]
    pruned = program.prune(targets)
    assert (types(pruned), types(program)) == (["tanh"], ["tanh", "exp"])


def test_prune_takes_variables_and_operators() -> None:
    program, _, _ = _two_outputs()
    with pytest.raises(ValueError, match="can only be Variable or Operator"):
        program.prune(targets=[3])


def test_prune_needs_a_target_that_an_operator_computes() -> None:
    program, _, _ = _two_outputs()
    with pytest.raises(ValueError, match=r"target variable .* associated operator"):
        program.prune([program.global_block().var("x")])


def test_inference_optimize_sets_is_test() -> None:
    fluid.layers.fc(fluid.layers.dropout(fluid.layers.data("x", [3]), 0.5), 2)
    program = fluid.default_main_program().inference_optimize()
    assert program.global_block().ops[0].attr("is_test") is True and program is not fluid.default_main_program()


# ---------------------------------------------------------------- blocks and fields
def test_blocks() -> None:
    program = Program()
    assert program.block(0) is program.global_block() is program.current_block()
    first = program.create_block()
    second = program.create_block(parent_idx=0)
    assert (program.num_blocks, first.parent_idx, second.parent_idx) == (3, 0, 0)
    assert program.current_block() is second is program.block(index=2)
    assert program.rollback() is None  # type: ignore[func-returns-value]
    assert program.current_block() is program.global_block()


def test_a_block_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no block 3"):
        Program().block(3)


def test_random_seed_makes_random_operators_repeat() -> None:
    program = fluid.default_main_program()
    assert program.random_seed == 0
    program.random_seed = 12
    fluid.layers.uniform_random([4])
    (name,) = program.global_block().vars
    runs = [fluid.Executor(fluid.CPUPlace()).run(program, fetch_list=[name])[0].tolist() for _ in range(2)]
    assert runs[0] == runs[1]


def test_a_global_seed_is_that_of_later_programs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "_first_seed", 0)
    program, earlier = Program(), Program()
    program.global_seed(102)
    assert [each.random_seed for each in (program, earlier, Program())] == [102, 0, 102]


def test_random_seed_is_a_whole_number() -> None:
    with pytest.raises(TypeError, match="must be an integer"):
        Program().random_seed = "12"  # type: ignore[assignment]


def test_list_vars_goes_through_all_blocks() -> None:
    program = Program()
    program.global_block().create_var(name="x")
    program.create_block().create_var(name="y")
    found = program.list_vars()
    assert iter(found) is found and [var.name for var in found] == ["x", "y"]


def test_sync_with_cpp_changes_nothing() -> None:
    program, _, _ = _two_outputs()
    program.sync_with_cpp()
    assert types(program) == ["tanh", "exp"]


# ---------------------------------------------------------------- default programs
def test_default_programs_take_what_layers_append() -> None:
    fluid.layers.fc(fluid.layers.data("x", [3]), 2)
    assert types(fluid.default_main_program()) == ["mul", "elementwise_add"]
    assert sorted(types(fluid.default_startup_program())) == ["fill_constant", "uniform_random"]


def test_program_guard() -> None:
    main_program = fluid.Program()
    startup_program = fluid.Program()
    before = fluid.default_main_program()
    with fluid.program_guard(main_program, startup_program):
        data = fluid.layers.data("data", [3])
        fluid.layers.fc(data, 2)
        assert fluid.default_startup_program() is startup_program
    assert fluid.default_main_program() is before
    assert types(main_program) == ["mul", "elementwise_add"] and len(startup_program.global_block().ops) == 2


def test_program_guard_with_a_temporary_startup_program() -> None:
    main_program = fluid.Program()
    # does not care about startup program. Just pass a temporary value.
    with fluid.program_guard(main_program, fluid.Program()):
        fluid.layers.data("data", [3])
    assert main_program.global_block().has_var("data")


def test_program_guard_keeps_the_startup_program_for_none() -> None:
    startup = fluid.default_startup_program()
    with fluid.program_guard(fluid.Program(), None):
        assert fluid.default_startup_program() is startup


@pytest.mark.parametrize("make", [lambda: ("main",), lambda: (Program(), "startup")], ids=["main", "startup"])
def test_program_guard_takes_programs(make: Callable[[], tuple[Any, ...]]) -> None:
    with pytest.raises(TypeError, match="program_guard takes a Program"), fluid.program_guard(*make()):
        pass


def test_program_guard_ends_when_its_body_fails() -> None:
    before = fluid.default_main_program()
    with pytest.raises(KeyError), fluid.program_guard(fluid.Program()):
        raise KeyError
    assert fluid.default_main_program() is before


def test_get_var() -> None:
    x = fluid.layers.data("x", [3])
    program = fluid.Program()
    other = program.global_block().create_var(name="x")
    assert fluid.get_var("x") is x and fluid.get_var(name="x", program=program) is other


def test_get_var_of_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="var nosuch not in this block"):
        fluid.get_var("nosuch")
