"""Layers made of declarations of operators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import UsageError
from fluidtool.fluid.layers.layer_function_generator import (
    autodoc,
    deprecated,
    generate_activation_fn,
    generate_layer_fn,
    templatedoc,
)

X = np.array([[1.0, -2.0]], np.float32)


@pytest.fixture(autouse=True)
def program() -> Iterator[fluid.Program]:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        yield fluid.default_main_program()


def run(out: fluid.Variable) -> list[list[float]]:
    exe = fluid.Executor(fluid.CPUPlace())
    found: list[list[float]] = exe.run(feed={"x": X, "y": 2 * X}, fetch_list=[out])[0].tolist()
    return found


def data(name: str, dtype: str = "float32") -> fluid.Variable:
    return fluid.data(name, [None, 2], dtype)


def test_inputs_come_by_position_or_by_name_and_attributes_by_name() -> None:
    scale, add = generate_layer_fn("scale"), generate_layer_fn("elementwise_add")
    assert scale.__name__ == "scale"
    assert run(scale(data("x"), scale=3.0, bias=1.0)) == [[4, -5]]
    assert run(add(x=data("x"), y=data("y"), axis=-1)) == [[3, -6]]


def test_an_activation_follows_and_an_output_can_be_given(program: fluid.Program) -> None:
    add = generate_layer_fn("elementwise_add")
    assert run(add(data("x"), data("y"), act="relu")) == [[3, 0]]
    out = program.global_block().create_var(name="mine", dtype="float32", shape=[-1, 2])
    assert add(data("x"), data("y"), out=out).name == "mine"


def test_activations_take_x_and_a_name() -> None:
    relu = generate_activation_fn("relu")
    assert run(relu(data("x"), name="mine")) == [[1, 0]]


@pytest.mark.parametrize("op_type", ["split", "top_k", "nosuch"])
def test_operators_with_several_outputs_are_refused(op_type: str) -> None:
    with pytest.raises(UsageError, match=op_type):
        generate_layer_fn(op_type)


def test_inputs_of_two_types_are_refused() -> None:
    with pytest.raises(UsageError, match="same dtype"):
        generate_layer_fn("elementwise_add")(data("x"), data("z", "int64"))


def test_what_is_no_variable_is_refused() -> None:
    with pytest.raises(UsageError, match="must be variable, found 1 for Y"):
        generate_layer_fn("elementwise_add")(data("x"), 1)


def test_decorators_document_and_warn() -> None:
    def half(x: float) -> float:
        """Half of x."""
        return x / 2

    assert templatedoc()(half)(4) == 2
    with pytest.warns(DeprecationWarning, match="deprecated function half"):
        assert deprecated(half)(4) == 2
    assert autodoc(" More.")(half).__doc__ == "Half of x. More."
