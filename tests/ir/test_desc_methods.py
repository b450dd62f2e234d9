"""`desc` of programs, blocks, operators and variables: Paddle's C++ descriptions, as scripts use them."""

from __future__ import annotations

import pytest

from fluidtool import fluid
from fluidtool.ir import Program
from fluidtool.proto import framework_pb2
from fluidtool.proto.enums import AttrType, VarType


@pytest.fixture
def program() -> Program:
    """y = relu(x), x fed and y fetched."""
    made = fluid.Program()
    block = made.global_block()
    for name in ("feed", "fetch"):
        block.create_var(name=name, type=VarType.FEED_MINIBATCH, persistable=True)
    x = block.create_var(name="x", shape=[-1, 2], dtype="float32")
    y = block.create_var(name="y", shape=[-1, 2], dtype="float32")
    block.append_op(type="feed", inputs={"X": ["feed"]}, outputs={"Out": [x]}, attrs={"col": 0})
    block.append_op(type="relu", inputs={"X": [x]}, outputs={"Out": [y]})
    block.append_op(type="fetch", inputs={"X": [y]}, outputs={"Out": ["fetch"]}, attrs={"col": 0})
    return made


def test_a_program_says_by_which_version_it_was_written(program: Program) -> None:
    assert program.desc._version() == program._version() == 1008005
    program.desc._set_version(1007002)
    saved = Program.parse_from_string(program.desc.serialize_to_string())
    assert saved._version() == 1007002
    saved.desc._set_version()
    assert saved._version() == 1008005


def test_a_file_without_a_version_says_zero(program: Program) -> None:
    message = framework_pb2.ProgramDesc.FromString(program.serialize_to_string())
    message.ClearField("version")
    read = Program.parse_from_string(message.SerializeToString())
    assert read._version() == 0


def test_what_is_fed_and_fetched_is_known(program: Program) -> None:
    assert program.desc.get_feed_target_names() == ["x"]
    assert program.desc.get_fetch_target_names() == ["y"]


def test_parts_are_messages_of_their_own(program: Program) -> None:
    block = program.desc.block(0)
    message = framework_pb2.BlockDesc.FromString(block.serialize_to_string())
    assert [op.type for op in message.ops] == ["feed", "relu", "fetch"]
    assert framework_pb2.OpDesc.FromString(block.op(1).serialize_to_string()).type == "relu"
    assert framework_pb2.VarDesc.FromString(block.var("x").serialize_to_string()).name == "x"


def test_variables_change(program: Program) -> None:
    x = program.desc.block(0).var("x")
    x.set_type(VarType.SELECTED_ROWS)
    x.set_need_check_feed(True)
    x.set_name("z")
    assert program.global_block().var("z").type == VarType.SELECTED_ROWS
    assert program.global_block().var("z").need_check_feed
    assert program.global_block().ops[1].input("X") == ["z"]


def test_operators_change(program: Program) -> None:
    block = program.desc.block(0)
    relu = block.op(1)
    relu.set_type("sigmoid")
    relu._rename_input("x", "a")
    relu._rename_output("y", "b")
    relu.set_is_target(True)
    assert (relu.type(), relu.inputs(), relu.outputs()) == ("sigmoid", {"X": ["a"]}, {"Out": ["b"]})
    assert program.global_block().ops[1].is_target
    relu.copy_from(block.op(0))
    assert (relu.type(), relu.outputs(), relu.attr("col")) == ("feed", {"Out": ["x"]}, 0)
    assert relu.block().id == 0


def test_attributes_name_blocks(program: Program) -> None:
    made = program.desc.append_block(program.desc.block(0))
    relu = program.desc.block(0).op(1)
    relu.set_block_attr("sub_block", made)
    relu.set_blocks_attr("blocks", [made, made])
    assert (made.id, made.parent, program.current_block_idx) == (1, 0, 0)
    assert relu._block_attr_id("sub_block") == 1
    assert relu._blocks_attr_ids("blocks") == [1, 1]
    assert relu.attr_type("sub_block") == AttrType.BLOCK


def test_blocks_change(program: Program) -> None:
    block = program.desc.block(0)
    assert [var.name() for var in block.all_vars()] == ["feed", "fetch", "x", "y"]
    block._rename_var("y", b"z")
    assert program.global_block().ops[2].input("X") == ["z"]
    block._remove_op(1, 3)
    block._remove_var("z")
    assert [op.type for op in program.global_block().ops] == ["feed"]
    assert not block.has_var("z")
    inner = program.desc.append_block(block)
    assert inner.has_var_recursive("x")
    assert inner.find_var_recursive("nosuch") is None
    found = inner.find_var_recursive(b"x")
    assert found is not None
    assert found.name() == "x"
    inner._set_forward_block_idx(0)
    assert inner.get_forward_block_idx() == 0


def test_operators_have_paddles_inner_methods(program: Program) -> None:
    op = program.global_block().ops[1]
    op._update_desc_attr("op_role", 2)
    assert op.attr("op_role") == 2
    assert op._is_optimize_op()
    op._remove_attr("op_role")
    assert not op.has_attr("op_role")
    assert not op._is_optimize_op()


def test_the_blocks_of_an_attribute_are_found(program: Program) -> None:
    program.create_block()
    program.rollback()
    op = program.global_block().ops[1]
    op.set_attr("blocks", [program.block(1)], AttrType.BLOCKS)
    assert op._blocks_attr("blocks") == [program.block(1)]
