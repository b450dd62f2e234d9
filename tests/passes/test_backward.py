"""The stages of the backward pass: which operators are differentiated, and what is left out. Whole programs: tests/fluid."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import layers
from fluidtool.ir import Block, Program, Variable
from fluidtool.ops.gradient import OpDescription
from fluidtool.passes.backward.build import new_backward
from fluidtool.passes.backward.descriptions import drop_no_grad
from fluidtool.passes.backward.paths import operator_path, unused_outputs


@pytest.fixture
def block() -> Iterator[Block]:
    program = Program()
    with fluid.program_guard(program, Program()), fluid.unique_name.guard():
        yield program.global_block()


def data(name: str, stop_gradient: bool = False) -> Variable:
    var: Variable = layers.data(name, [3])
    var.stop_gradient = stop_gradient
    return var


def types(block: Block, outputs: list[Variable], inputs: list[Variable], no_grad: set[str]) -> list[str]:
    path, _ = operator_path(block, outputs, inputs, no_grad)
    return [op.type for op in path]


def test_the_path_has_what_the_outputs_depend_on_in_order(block: Block) -> None:
    x = data("x")
    wanted = layers.tanh(layers.exp(x))
    layers.relu(x)
    assert types(block, [wanted], [], set()) == ["exp", "tanh"]


def test_the_path_ends_where_an_operator_has_no_gradient(block: Block) -> None:
    assert types(block, [layers.cast(layers.shape(data("x")), "float32")], [], set()) == ["cast"]


def test_the_path_ends_at_variables_without_gradient(block: Block) -> None:
    middle = layers.exp(data("x"))
    assert types(block, [layers.tanh(middle)], [], {middle.name}) == ["tanh"]


def test_with_inputs_the_path_has_only_what_depends_on_them(block: Block) -> None:
    x, y = layers.exp(data("x")), layers.relu(data("y"))
    assert types(block, [layers.tanh(x + y)], [x], set()) == ["elementwise_add", "tanh"]


def test_what_the_path_reads_beside_the_inputs_has_no_gradient_where_it_stops_gradients(block: Block) -> None:
    x, fixed, free = data("x"), data("fixed", stop_gradient=True), data("free")
    given = {"other"}
    _, no_grad = operator_path(block, [x * fixed + free], [x], given)
    assert no_grad == {"other", "fixed"}
    assert given == {"other"}


def test_without_inputs_the_names_without_gradient_stay_as_they_are(block: Block) -> None:
    out = data("x") * data("fixed", stop_gradient=True)
    assert operator_path(block, [out], [], {"other"})[1] == {"other"}


def test_an_output_that_nothing_on_the_path_reads_is_unused(block: Block) -> None:
    parts = layers.split(data("x"), 3, dim=1)
    loss = layers.tanh(parts[1])
    path, no_grad = operator_path(block, [loss], [], set())
    assert unused_outputs(block, path, [loss], no_grad) == {parts[0].name, parts[2].name}


def test_an_operator_that_reads_only_unwanted_gradients_makes_more_of_them() -> None:
    lonely = OpDescription("tanh_grad", {"Out@GRAD": ["b@GRAD"]}, {"X@GRAD": ["a@GRAD"]})
    given = {"b@GRAD"}
    assert drop_no_grad([lonely], given) == ([], {"a@GRAD", "b@GRAD"})
    assert given == {"b@GRAD"}


def test_an_unwanted_gradient_that_is_read_beside_others_is_zero() -> None:
    both = OpDescription("sum_grad", {"Out@GRAD": ["b@GRAD", "c@GRAD"]}, {"X@GRAD": ["a@GRAD"]})
    kept, no_grad = drop_no_grad([both], {"b@GRAD"})
    assert [op.type for op in kept] == ["fill_zeros_like", "sum_grad"]
    assert kept[0].outputs == {"Out": ["b@GRAD"]}
    assert no_grad == {"b@GRAD"}


def test_a_state_with_more_unwanted_gradients_leaves_the_first_as_it_was(block: Block) -> None:
    data("x", stop_gradient=True)
    before = new_backward(block.program, ["y"])
    after = before.without(block, ["z@GRAD"])
    assert before.unwanted(block) == {"x@GRAD", "y@GRAD"}
    assert after.unwanted(block) == {"x@GRAD", "y@GRAD", "z@GRAD"}
