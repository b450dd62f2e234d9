"""Every program that is read has blocks that form a tree, and framework attributes of Paddle's types."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fluidtool.errors import ProgramError, UnreadableError
from fluidtool.ir import Program
from fluidtool.ir.callstack import written_in
from fluidtool.ir.roles import FRAMEWORK_ATTR_TYPES
from fluidtool.ir.structure import DEEPEST, MOST_DIMENSIONS, structure_fault
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.runtime import Executor, Scope


def nested(levels: int, *, width: int = 1) -> Program:
    """Blocks within blocks: `width` operators of each block run the next one."""
    program = Program()
    for level in range(levels):
        inner = program.create_block(level)
        for _ in range(width):
            owner = program.blocks[level].append_op(type="conditional_block", inputs={"Cond": ["c"]})
            owner.set_attr("sub_block", inner.idx, AttrType.BLOCK)
    return program


def reread(program: Program) -> Program:
    return Program.parse_from_string(program.serialize_to_string())


def refused(change: Callable[[Program], object], levels: int = 2) -> str:
    """The message with which a nested program is refused after a change."""
    program = nested(levels)
    change(program)
    with pytest.raises(UnreadableError) as caught:
        reread(program)
    return str(caught.value)


# ---------------------------------------------------------------- blocks
def test_blocks_may_be_nested_to_the_limit() -> None:
    assert reread(nested(DEEPEST)).num_blocks == DEEPEST + 1


@pytest.mark.parametrize("levels", [DEEPEST + 1, 200, 3000])
def test_deeper_nesting_is_refused_with_its_depth(levels: int) -> None:
    assert f"nests blocks {levels} deep; fluidtool takes at most {DEEPEST} levels" in refused(lambda _: None, levels)


def test_an_operator_does_not_run_its_own_block() -> None:
    message = refused(lambda program: program.blocks[1].ops[0].set_attr("sub_block", 1))
    assert (
        "names block 1 in attribute sub_block of operator conditional_block in block 1; expected one of those"
        in message
    )


def test_an_operator_does_not_run_a_block_around_it() -> None:
    assert "names block 0 in attribute sub_block" in refused(lambda p: p.blocks[1].ops[0].set_attr("sub_block", 0))


@pytest.mark.parametrize("index", [-1, 3, 2**31 - 1])
def test_an_operator_does_not_run_a_block_that_is_not_there(index: int) -> None:
    assert f"names block {index} in" in refused(lambda p: p.blocks[0].ops[0].set_attr("sub_block", index))


def test_the_last_block_has_no_block_behind_it() -> None:
    def name_itself(program: Program) -> None:
        program.blocks[2].append_op(type="while").set_attr("sub_block", 2, AttrType.BLOCK)

    assert "expected a block behind its own, but the last one is block 2" in refused(name_itself)


@pytest.mark.parametrize("parent", [-1, 2, 7])
def test_a_block_stands_behind_its_parent(parent: int) -> None:
    message = refused(lambda program: setattr(program.blocks[2], "parent_idx", parent))
    assert f"names block {parent} as the parent of block 2, which must be one of 0 to 1" in message


def test_block_0_has_no_parent() -> None:
    assert "must be none, -1" in refused(lambda program: setattr(program.blocks[0], "parent_idx", 1))


def test_a_block_is_the_gradient_of_one_that_is_there() -> None:
    assert "is the gradient of, but there are 3" in refused(lambda p: setattr(p.blocks[2], "forward_block_idx", 9))


def test_two_operators_may_name_one_block() -> None:
    assert reread(nested(2, width=2)).num_blocks == 3


def test_blocks_named_twice_at_every_level_are_refused() -> None:
    with pytest.raises(
        UnreadableError, match=f"its 80 operators become {2**41 - 2}; each block belongs to one operator"
    ):
        reread(nested(40, width=2))


def test_a_program_built_too_deep_does_not_run() -> None:
    with pytest.raises(ProgramError, match="cannot run: it nests blocks 200 deep"):
        Executor().run(nested(200), {}, [], Scope())


def test_a_program_without_operators_is_sound() -> None:
    assert structure_fault(Program()) == ""


# ---------------------------------------------------------------- variables
def test_a_tensor_has_as_many_dimensions_as_numpy_holds() -> None:
    program = Program()
    program.global_block().create_var(name="x", shape=[1] * MOST_DIMENSIONS, dtype=VarType.FP32)
    assert reread(program).global_block().var("x").shape == (1,) * MOST_DIMENSIONS
    program.global_block().create_var(name="y", shape=[1] * 70, dtype=VarType.FP32)
    with pytest.raises(
        UnreadableError, match="declares variable y in block 0 with 70 dimensions; a tensor has at most 32"
    ):
        reread(program)


@pytest.mark.parametrize("levels", [-1, 33, 2**31 - 1])
def test_a_tensor_has_some_levels_of_lod(levels: int) -> None:
    program = Program()
    program.global_block().create_var(name="x", shape=[-1], dtype=VarType.FP32, lod_level=levels)
    with pytest.raises(UnreadableError, match=rf"variable x in block 0 with {levels} levels of LoD; expected 0 to 32"):
        reread(program)


# ---------------------------------------------------------------- attributes of the framework
@pytest.mark.parametrize("name", FRAMEWORK_ATTR_TYPES)
def test_framework_attributes_have_the_types_of_paddle(name: str) -> None:
    program = Program()
    program.global_block().append_op(type="relu", inputs={"X": ["x"]}).set_attr(name, True, AttrType.BOOLEAN)
    wanted = FRAMEWORK_ATTR_TYPES[name].name
    with pytest.raises(
        UnreadableError, match=rf"has attribute {name} of operator relu .* as BOOLEAN, expected {wanted}"
    ):
        reread(program)


def test_text_that_is_not_utf_8_is_kept() -> None:
    program = Program()
    op = program.global_block().append_op(type="relu", inputs={"X": ["x"]})
    op.set_attr("op_callstack", [b'File "caf\xe9.py", line 7', b"\xff\xfe"])
    op.set_attr("mode", b"\x80")
    again = reread(program)
    assert again.serialize_to_string() == program.serialize_to_string()
    assert again.global_block().ops[0].attr("mode") == "\udc80"
    assert written_in(again.global_block().ops[0]) == "caf\udce9.py, line 7: \udcff\udcfe"


def test_the_end_of_a_with_is_written_where_the_script_writes_it() -> None:
    op = Program().global_block().append_op(type="while")
    op.set_attr("op_callstack", ['File "train.py", line 7', "    y = x", 'File "/python3.7/contextlib.py", line 119'])
    assert written_in(op) == "train.py, line 7: y = x"
