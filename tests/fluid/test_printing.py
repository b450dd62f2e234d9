"""What scripts print of a program and its parts is what they print with Paddle 1.8.5."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fluidtool.fluid as fluid
from fluidtool.ir import Program
from fluidtool.proto.enums import AttrType, VarType

VARIABLE = """\
name: "x"
type {
  type: LOD_TENSOR
  lod_tensor {
    tensor {
      data_type: FP32
      dims: -1
      dims: 4
    }
    lod_level: 0
  }
}
persistable: false
need_check_feed: true
"""


@pytest.fixture
def program() -> Iterator[Program]:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fluid.layers.relu(fluid.data("x", [None, 4]))
        yield main


def test_a_variable_prints_as_protobuf_text(program: Program) -> None:
    assert str(program.global_block().var("x")) == VARIABLE


def test_an_operator_and_a_block_print_as_protobuf_text(program: Program) -> None:
    op = str(program.global_block().ops[0])
    assert op.startswith('inputs {\n  parameter: "X"\n  arguments: "x"\n}\n') and '\ntype: "relu"\n' in op
    assert str(program.global_block()).startswith("idx: 0\nparent_idx: -1\nvars {\n")


def test_in_lists_they_are_short(program: Program) -> None:
    block = program.global_block()
    assert repr([block.var("x")]) == "[<Variable x: LOD_TENSOR (-1, 4) float32>]"
    assert repr(block.ops) == "[<relu: X=['x'] -> Out=['relu_0.tmp_0']>]"
    assert repr(block) == "<Block 0 (parent -1): 1 ops, 2 vars>"


@pytest.mark.parametrize("kind", [VarType.FP32, VarType.LOD_TENSOR, AttrType.INTS])
def test_types_print_by_name_and_are_numbers_in_formats_for_numbers(kind: VarType) -> None:
    name = f"{type(kind).__name__}.{kind.name}"
    assert str(kind) == repr(kind) == f"{kind}" == name
    assert f"{kind:2d}" == f"{int(kind):2}"


def test_strategies_print_by_name() -> None:
    strategy = fluid.BuildStrategy()
    assert str(strategy.reduce_strategy) == "ReduceStrategy.AllReduce"
    assert str(strategy.gradient_scale_strategy) == "GradientScaleStrategy.CoeffNumDevice"


def test_a_variable_has_the_type_that_paddle_prints(program: Program) -> None:
    assert f"{program.global_block().var('x').dtype}" == "VarType.FP32"
