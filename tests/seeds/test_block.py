"""`fluid.Block` as documented: variables, operators, copies."""

from __future__ import annotations

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import Program


def test_the_example() -> None:
    cur_program = Program()
    cur_block = cur_program.current_block()
    var = cur_block.create_var(name="X", shape=[-1, 23, 48], dtype="float32")
    cur_block.append_op(type="abs", inputs={"X": [var]}, outputs={"Out": [var]})
    x = np.full((2, 23, 48), -3, "float32")
    (out,) = fluid.Executor(fluid.CPUPlace()).run(cur_program, feed={"X": x}, fetch_list=[var])
    assert out.shape == (2, 23, 48) and (out == 3).all()


def test_the_constructor_takes_program_and_idx() -> None:
    program = Program()
    block = fluid.Block(program, idx=0)
    assert (block.program, block.idx) == (program, 0)


def test_create_block_makes_a_child_that_sees_the_parents_variables() -> None:
    program = Program()
    x = program.global_block().create_var(name="x", shape=[1], dtype="float32")
    child = program.create_block()
    assert (child.idx, child.parent_idx) == (1, 0)
    assert child.var_recursive("x") is x
    with pytest.raises(ValueError, match="var x not in this block"):
        child.var("x")


def test_two_blocks_may_have_variables_of_one_name() -> None:
    program = Program()
    outer = program.global_block().create_var(name="x", shape=[1], dtype="float32")
    inner = program.create_block().create_var(name="x", shape=[2], dtype="int64")
    assert program.block(1).var_recursive("x") is inner and program.block(0).var("x") is outer


@pytest.mark.parametrize("with_details", [False, True])
@pytest.mark.parametrize("throw_on_error", [False, True])
def test_to_string(throw_on_error: bool, with_details: bool) -> None:
    block = Program().global_block()
    block.create_parameter(name="w", shape=[2, 3], dtype="float32")
    text = block.to_string(throw_on_error, with_details=with_details)
    assert 'name: "w"' in text
    assert ("trainable: True" in text, "optimize_attr" in text) == (with_details, with_details)


def test_set_forward_block_idx() -> None:
    block = Program().create_block()
    assert block.set_forward_block_idx(0) is None  # type: ignore[func-returns-value]
    assert block.forward_block_idx == 0


def test_var() -> None:
    block = Program().global_block()
    x = block.create_var(name="x", shape=[1], dtype="float32")
    assert block.var("x") is x and block.var(name="x") is x


def test_var_raises_value_error_for_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="var nosuch not in this block"):
        Program().global_block().var("nosuch")


def test_var_raises_value_error_for_a_name_that_is_no_text() -> None:
    """Documented as a ValueError, a TypeError since 1.6: it is both."""
    with pytest.raises(ValueError, match="var require string as parameter, but get int"):
        Program().global_block().var(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Program().global_block().var(3)  # type: ignore[arg-type]


def test_var_recursive_raises_value_error_for_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="Var zz is not found recursively"):
        Program().create_block().var_recursive("zz")


def test_rename_var_renames_in_variables_and_operators() -> None:
    block = Program().global_block()
    x, y = (block.create_var(name=name, shape=[1], dtype="float32") for name in "xy")
    op = block.append_op(type="abs", inputs={"X": [x]}, outputs={"Out": [y]})
    renamed = block.rename_var("x", "new")
    assert renamed is block.var("new") and renamed.name == "new" and not block.has_var("x")
    block.rename_var(name="y", new_name="out")
    assert (op.input("X"), op.output("Out")) == (["new"], ["out"])


def test_rename_var_of_a_parameter_keeps_it_a_parameter() -> None:
    block = Program().global_block()
    block.create_parameter(name="w", shape=[1], dtype="float32")
    assert isinstance(block.rename_var("w", "v"), fluid.Parameter)


def test_rename_var_raises_value_error_for_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="var x not in this block"):
        Program().global_block().rename_var("x", "y")


def _three_operators() -> fluid.Block:
    block = Program().global_block()
    x = block.create_var(name="x", shape=[1], dtype="float32")
    for kind in ("abs", "exp", "tanh"):
        block.append_op(type=kind, inputs={"X": [x]}, outputs={"Out": [x]})
    return block


def test_append_op_returns_the_operator() -> None:
    block = _three_operators()
    op = block.append_op(type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    assert isinstance(op, fluid.Operator) and block.ops[-1] is op


def test_insert_op_returns_the_operator() -> None:
    block = _three_operators()
    op = block.insert_op(1, type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    assert block.ops[1] is op and [op.type for op in block.ops] == ["abs", "relu", "exp", "tanh"]


def test_remove_op() -> None:
    block = _three_operators()
    assert block.remove_op(1) is None  # type: ignore[func-returns-value]
    assert [op.type for op in block.ops] == ["abs", "tanh"]


def test_slice_ops_gives_a_list() -> None:
    block = _three_operators()
    assert block.slice_ops(1, 3) == block.ops[1:] and isinstance(block.slice_ops(start=0, end=1), list)


def test_sync_with_cpp_changes_nothing() -> None:
    block = _three_operators()
    block.sync_with_cpp()
    assert [op.type for op in block.ops] == ["abs", "exp", "tanh"]


def _parsed_with_parameter() -> tuple[fluid.Block, fluid.Block]:
    """A block with a parameter, and the same block from a file, which has a plain variable."""
    program = Program()
    param = program.global_block().create_parameter(name="w", shape=[2], dtype="float32", trainable=False)
    param.regularizer = fluid.regularizer.L2Decay(0.1)
    parsed = Program.parse_from_string(program.serialize_to_string())
    return program.global_block(), parsed.global_block()


def test_copy_param_info_from_makes_parameters() -> None:
    block, parsed = _parsed_with_parameter()
    assert not isinstance(parsed.var("w"), fluid.Parameter)
    assert parsed.copy_param_info_from(block) is None  # type: ignore[func-returns-value]
    param = parsed.var("w")
    assert isinstance(param, fluid.Parameter)
    assert param.trainable is False and param.regularizer is block.var("w").regularizer  # type: ignore[attr-defined]


def test_copy_param_info_from_raises_value_error_for_what_is_no_block() -> None:
    with pytest.raises(ValueError, match="copy_param_info_from takes a Block, found str"):
        Program().global_block().copy_param_info_from("w")  # type: ignore[arg-type]


def test_copy_param_info_from_raises_value_error_for_another_topology() -> None:
    block, _ = _parsed_with_parameter()
    with pytest.raises(ValueError, match=r"copy_param_info_from .* same topology"):
        Program().global_block().copy_param_info_from(other=block)


def test_copy_param_info_from_of_1_8_leaves_out_what_was_pruned() -> None:
    block, _ = _parsed_with_parameter()
    other = Program().global_block()
    other._copy_param_info_from(block)
    assert not other.has_var("w")


def test_clone_variable_puts_a_copy_into_the_block() -> None:
    var = Program().global_block().create_var(name="x", shape=[-1, 3], dtype="int64", lod_level=1)
    block = Program().global_block()
    copy = block.clone_variable(var)
    assert block.var("x") is copy is not var
    assert (copy.shape, copy.dtype, copy.lod_level, copy.persistable) == ((-1, 3), var.dtype, 1, True)
    assert copy.type == var.type
