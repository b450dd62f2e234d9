"""`layers.py_func`: Python functions as operators, their gradients, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, OperatorError, UsageError
from fluidtool.ir import Program

CPU = fluid.CPUPlace()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
        fluid.unique_name.guard(),
    ):
        yield


def output(shape: Any = (-1, 3), dtype: str = "float32", name: str = "out") -> Any:
    block = fluid.default_main_program().current_block()
    return block.create_var(name=name, dtype=dtype, shape=shape)


def tanh(x: Any) -> Any:
    return np.tanh(np.array(x))


def tanh_grad(y: Any, dy: Any) -> Any:
    return np.array(dy) * (1 - np.square(np.array(y)))


X = np.array([[0.5, -1.0, 2.0]], "float32")


def run(*fetches: Any, x: Any = X) -> list[Any]:
    return fluid.Executor(CPU).run(feed={"x": x}, fetch_list=list(fetches))


def test_the_function_gets_tensors_and_gives_an_array() -> None:
    x, out = fluid.layers.data("x", [3]), output()
    assert fluid.layers.py_func(func=tanh, x=x, out=out) is out
    np.testing.assert_array_equal(run(out)[0], np.tanh(X))


def test_several_inputs_and_outputs() -> None:
    x, sums, products = fluid.layers.data("x", [3]), output(name="sums"), output(name="products")
    y = fluid.layers.scale(x, 2.0)
    fluid.layers.py_func(
        lambda a, b: (np.array(a) + np.array(b), np.array(a) * np.array(b)), x=[x, y], out=[sums, products]
    )
    np.testing.assert_array_equal(run(sums, products), [X * 3, X * X * 2])


def test_a_function_without_arguments_and_one_without_results() -> None:
    seen: list[Any] = []
    fluid.layers.data("x", [3])
    made = output([2], "int64", "made")
    fluid.layers.py_func(lambda: np.array([7, 8]), x=None, out=made)
    fluid.layers.py_func(lambda value: seen.append(np.array(value).tolist()), x=made, out=None)
    assert run(made)[0].tolist() == [7, 8] and seen == [[7, 8]]


def test_a_lod_comes_and_goes() -> None:
    x = fluid.layers.data("x", [1], lod_level=1)
    out = output([-1, 1])

    def halves(value: Any) -> Any:
        assert value.lod() == [[0, 1, 3]]
        result = fluid.LoDTensor()
        result.set(np.array(value) / 2, CPU)
        result.set_lod([[0, 2, 3]])
        return result

    fluid.layers.py_func(halves, x, out)
    feed = {"x": fluid.create_lod_tensor(np.ones((3, 1), "float32"), [[1, 2]], CPU)}
    (tensor,) = fluid.Executor(CPU).run(feed=feed, fetch_list=[out], return_numpy=False)
    assert (tensor.lod(), np.array(tensor).ravel().tolist()) == ([[0, 2, 3]], [0.5] * 3)


def test_what_the_function_is_given_cannot_be_written_into() -> None:
    x, out = fluid.layers.data("x", [3]), output()

    def careless(value: Any) -> Any:
        np.asarray(value)[0, 0] = 100
        return value

    fluid.layers.py_func(careless, x, out)
    with pytest.raises(OperatorError, match=r"careless raised ValueError: .*read-only.*np.asarray\(value\)"):
        run(out)


# ---------------------------------------------------------------- gradients
def trained(backward: Any, skip: Any) -> Any:
    x = fluid.layers.data("x", [3])
    x.stop_gradient = False
    hidden = fluid.layers.scale(x, scale=2.0)
    out = output()
    fluid.layers.py_func(tanh, hidden, out, backward, hidden if skip else None)
    fluid.backward.append_backward(fluid.layers.reduce_sum(out))
    return hidden, out


def test_the_backward_function_gives_the_gradient() -> None:
    trained(tanh_grad, skip=True)
    np.testing.assert_allclose(run("x@GRAD")[0], 2 * (1 - np.tanh(2 * X) ** 2), rtol=1e-5)


def test_the_backward_function_gets_inputs_too_unless_they_are_skipped() -> None:
    seen: list[int] = []

    def backward(*values: Any) -> Any:
        seen.append(len(values))
        return tanh_grad(*values[-2:])

    trained(backward, skip=False)
    run("x@GRAD")
    assert seen == [3]


def test_the_gradient_operator_is_the_one_of_paddle() -> None:
    """Paddle 1.8.5: py_func again, with the backward function's number, its inputs, and none of the other attributes."""
    hidden, _out = trained(tanh_grad, skip=True)
    forward, gradient = (op for op in fluid.default_main_program().global_block().ops if op.type == "py_func")
    assert forward.attr("backward_skip_vars") == [hidden.name]
    assert gradient.inputs == {"X": ["out", "out@GRAD"]} and gradient.outputs == {"Out": [f"{hidden.name}@GRAD"]}
    assert gradient.attr("forward_callable_id") == forward.attr("backward_callable_id")
    assert sorted(gradient.attr_names) == ["backward_callable_id", "forward_callable_id", "op_device", "op_role"]
    declared = fluid.default_main_program().global_block().var(f"{hidden.name}@GRAD")
    assert (declared.shape, declared.dtype) == (hidden.shape, hidden.dtype)


def test_without_a_backward_function_there_is_no_gradient() -> None:
    trained(None, skip=False)
    assert not fluid.default_main_program().global_block().has_var("x@GRAD")


# ---------------------------------------------------------------- the registry
def test_registered_functions_are_found_by_number() -> None:
    count = fluid.layers.py_func.registered_func_num()  # type: ignore[attr-defined]
    fluid.layers.py_func(tanh, fluid.layers.data("x", [3]), output())
    assert fluid.layers.py_func.registered_func_num() == count + 1  # type: ignore[attr-defined]
    assert fluid.layers.py_func.registered_func(count) is tanh  # type: ignore[attr-defined]


def test_a_program_from_a_file_of_another_process_is_refused() -> None:
    out = output()
    fluid.layers.py_func(tanh, fluid.layers.data("x", [3]), out)
    (op,) = fluid.default_main_program().global_block().ops
    op.set_attr("forward_callable_id", 1_000_000)  # as it would be numbered elsewhere
    loaded = Program.parse_from_string(fluid.default_main_program().serialize_to_string())
    with pytest.raises(OperatorError, match=r"number 1000000.*a file contains numbers, not functions"):
        fluid.Executor(CPU).run(loaded, feed={"x": X}, fetch_list=["out"])


# ---------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"func": 3}, ArgumentTypeError, "func must be a Python function"),
        ({"func": None}, ArgumentTypeError, "func must be a Python function"),
        ({"backward_func": "f"}, ArgumentTypeError, "func must be a Python function"),
        ({"x": "x"}, ArgumentTypeError, "The type of 'X' in py_func must be"),
        ({"out": ["out"]}, ArgumentTypeError, "The type of 'Out' in py_func must be"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    defaults = {"func": tanh, "x": fluid.layers.data("x", [3]), "out": output()}
    with pytest.raises(error, match=message):
        fluid.layers.py_func(**{**defaults, **arguments})


def test_an_output_needs_a_shape() -> None:
    out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32")
    with pytest.raises(UsageError, match="Output shapes of py_func op should be provided"):
        fluid.layers.py_func(tanh, fluid.layers.data("x", [3]), out)


def test_only_inputs_and_outputs_can_be_skipped() -> None:
    x = fluid.layers.data("x", [3])
    with pytest.raises(UsageError, match=r"Variable other is not found in forward inputs and outputs"):
        fluid.layers.py_func(tanh, x, output(), tanh_grad, output(name="other"))


@pytest.mark.parametrize("result", [(X, X), ()])
def test_another_number_of_results_is_refused(result: Any) -> None:
    out = output()
    fluid.layers.py_func(lambda value: result, fluid.layers.data("x", [3]), out)
    with pytest.raises(OperatorError, match=r"Expected 1, but the function returned"):
        run(out)


def test_an_output_must_get_a_value() -> None:
    out = output()
    fluid.layers.py_func(lambda value: None, fluid.layers.data("x", [3]), out)
    with pytest.raises(OperatorError, match="the function returned None"):
        run(out)
