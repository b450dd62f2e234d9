"""`op.desc` and `program.desc`, as scripts that save models by code of their own use them."""

from __future__ import annotations

from fluidtool import fluid
from fluidtool.fluid import core
from fluidtool.ir import Program


def two_scales() -> Program:
    program = Program()
    with fluid.program_guard(program, Program()):
        x = fluid.data("x", [2], "float32")
        fluid.layers.scale(x, 2.0)
        fluid.layers.scale(x, 3.0)
    return program


def kept(program: Program) -> list[float]:
    names = [op.output("Out")[0] for op in program.global_block().ops]
    pruned = program._prune_with_input(["x"], [program.global_block().var(names[0])])
    return [op.attr("scale") for op in pruned.global_block().ops]


def test_an_operator_that_was_marked_as_a_target_is_pruned_as_in_paddle() -> None:
    """`_prune` of 1.8.5 cuts to its own targets."""
    program = two_scales()
    last = program.global_block().ops[1].desc
    assert not last.is_target()
    last.set_is_target(True)
    assert last.is_target()
    assert kept(program) == [2.0]


def test_the_version_of_a_program_is_in_its_bytes() -> None:
    program = two_scales()
    assert program.desc._version() == 1008005
    program.desc._set_version(7)
    core.save_op_compatible_info(program.desc)
    assert Program.parse_from_string(program.desc.serialize_to_string()).desc._version() == 7
