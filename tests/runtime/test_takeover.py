"""Values that nobody reads afterwards give up their memory: to the result, or at once where only their shapes are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.ir import Program
from fluidtool.runtime.dependencies import hollow_after
from fluidtool.runtime.ownership import may_be_overwritten
from fluidtool.runtime.scope import ScopeVariable
from fluidtool.tensor import LoDTensor


def perceptron(batch: int = 64) -> tuple[Program, Program, Any, dict[str, Any]]:
    """fc with bias and ReLU, dropout, a shortcut, a mean."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [64])
        hidden = fluid.layers.fc(x, 64, act="gelu")
        hidden = fluid.layers.dropout(hidden, 0.25, seed=3, dropout_implementation="upscale_in_train")
        hidden = fluid.layers.elementwise_add(fluid.layers.fc(hidden, 64), hidden)
        loss = fluid.layers.mean(fluid.layers.softmax(hidden) * hidden)
        fluid.optimizer.SGD(0.5).minimize(loss)
    for number, op in enumerate(startup.global_block().ops):
        if op.has_attr("seed"):
            op._set_attr("seed", 1 + number)
    feed = {"x": np.random.RandomState(0).rand(batch, 64).astype("float32")}
    return main, startup, loss, feed


def losses(fetch_all: bool, steps: int = 3) -> list[float]:
    """Of a few steps; with every value fetched, no memory is taken over."""
    main, startup, loss, feed = perceptron()
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    others = [var.name for var in main.list_vars() if not var.persistable and var.name not in (loss.name, "x")]
    made = {name for op in main.global_block().ops for name in op.output_arg_names}
    fetches = [loss.name, *(name for name in others if fetch_all and name in made and "@GRAD" not in name)]
    with fluid.scope_guard(scope):
        exe.run(startup)
        return [float(exe.run(main, feed, fetches)[0].ravel()[0]) for _ in range(steps)]


def test_numbers_are_the_same_as_with_every_value_kept() -> None:
    assert losses(False) == losses(True)


def test_what_is_fed_stays_as_it_was() -> None:
    main, startup, loss, feed = perceptron()
    exe, before = fluid.Executor(fluid.CPUPlace()), feed["x"].copy()
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        exe.run(main, feed, [loss])
    np.testing.assert_array_equal(feed["x"], before)


def test_products_are_hollow_behind_the_sum_that_adds_a_bias() -> None:
    main = perceptron()[0]
    ops = list(main.global_block().ops)
    local = {var.name for var in main.list_vars() if not var.persistable}
    found = dict(zip([op.output_arg_names[0] for op in ops], hollow_after(main, ops, local), strict=True))
    assert found["fc_0.tmp_1"] == ("fc_0.tmp_0",) and found["fc_1.tmp_1"] == ("fc_1.tmp_0",)
    assert "x" not in {name for names in found.values() for name in names}


def test_a_value_whose_numbers_are_read_later_is_not_hollow() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.layers.data("x", [4], stop_gradient=False)
        total = fluid.layers.elementwise_add(x, x)
        fluid.backward.append_backward(fluid.layers.mean(total * x))
    ops = list(main.global_block().ops)
    assert all("x" not in names for names in hollow_after(main, ops, {"x", total.name})[:-1])


def holder(array: Any) -> ScopeVariable:
    """A variable that holds it."""
    variable = ScopeVariable("x")
    variable.value = LoDTensor(array)
    return variable


def test_an_array_of_its_own_may_be_overwritten_itself_or_as_a_view() -> None:
    itself, view = holder(np.zeros((2, 3), np.float32)), holder(np.zeros((2, 3), np.float32).reshape(6))
    assert may_be_overwritten(itself) and may_be_overwritten(view)


@pytest.mark.parametrize("kind", ["kept", "view", "base", "tensor", "frozen", "double", "foreign", "nothing"])
def test_others_may_not(kind: str) -> None:
    array = np.zeros((2, 3), np.float32)
    if kind == "kept":
        variable = holder(array)
    elif kind == "view":
        variable, array = holder(array), array[:1]
    elif kind == "base":
        variable = holder(array.reshape(6))
    elif kind == "tensor":
        variable = holder(np.zeros(3, np.float32))
        tensor = variable.value  # noqa: F841 - what keeps it
    elif kind == "frozen":
        variable = holder(np.broadcast_to(np.float32(0), (3,)))
    elif kind == "double":
        variable = holder(np.zeros(3))
    elif kind == "foreign":
        variable = holder(np.frombuffer(bytearray(12), np.float32))
    else:
        variable = holder(None)
    assert not may_be_overwritten(variable)
