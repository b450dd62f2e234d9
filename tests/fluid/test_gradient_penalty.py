"""Critics with a penalty on their gradient (WGAN-GP): the gradients of gradients, with parameters left out of the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.ir import Program, unique_name

INPUT = np.random.RandomState(0).uniform(-1, 1, (3, 4)).astype("float32")


def critic(x: Any) -> Any:
    """Two layers whose parameters are those of each other call; the slope between is constant near the inputs of the test."""
    layer = fluid.layers.leaky_relu(fluid.layers.fc(x, 3, param_attr="w1", bias_attr="b1"), alpha=0.3)
    return fluid.layers.fc(layer, 1, param_attr="w2", bias_attr="b2")


def penalized(leave_out: bool) -> tuple[Program, Program, Any, dict[str, Any]]:
    """The mean of a critic's score and of its squared gradient, with the gradients of that by parameter.

    leave_out: the first gradient has those of no parameter.
    """
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), unique_name.guard():
        x = fluid.data("x", [3, 4], "float32")
        score = critic(fluid.layers.scale(x, -1.0))
        moved = fluid.layers.scale(x, 0.5)
        moved.stop_gradient = False
        parameters = [var.name for var in main.list_vars() if fluid.io.is_parameter(var)]
        gradient = fluid.gradients(critic(moved), [moved], no_grad_set=set(parameters) if leave_out else None)[0]
        loss = fluid.layers.reduce_mean(score) + fluid.layers.reduce_mean(fluid.layers.square(gradient))
        gradients = {parameter.name: found for parameter, found in fluid.backward.append_backward(loss)}
    return main, startup, loss, gradients


@pytest.mark.parametrize("leave_out", [False, True])
def test_the_gradients_of_a_penalty_agree_with_central_differences(leave_out: bool) -> None:
    main, startup, loss, gradients = penalized(leave_out)
    exe, generator = fluid.Executor(fluid.CPUPlace()), np.random.RandomState(1)
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        scope = fluid.global_scope()

        def value() -> float:
            return float(exe.run(main, feed={"x": INPUT}, fetch_list=[loss])[0][0])

        for name in ("w1", "b1", "w2"):
            tensor = scope.find_var(name).get_tensor()
            tensor.set(generator.uniform(-1, 1, np.array(tensor).shape).astype("float32"), fluid.CPUPlace())
        found = exe.run(main, feed={"x": INPUT}, fetch_list=[gradients[name] for name in ("w1", "b1", "w2")])
        for name, gradient in zip(("w1", "b1", "w2"), found, strict=True):
            tensor = scope.find_var(name).get_tensor()
            held = np.array(tensor)
            for place in np.ndindex(*held.shape):
                ends = []
                for step in (1e-2, -1e-2):
                    moved = held.copy()
                    moved[place] += step
                    tensor.set(moved, fluid.CPUPlace())
                    ends.append(value())
                assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-2, abs=2e-4)
            tensor.set(held, fluid.CPUPlace())


def operators(main: Program, kind: str) -> list[list[str]]:
    return [
        sorted(slot for slot in op.output_names if op.output(slot)) for op in main.global_block().ops if op.type == kind
    ]


def test_a_second_gradient_that_comes_in_for_nothing_goes_nowhere() -> None:
    main, _, _, _ = penalized(leave_out=True)
    assert operators(main, "mul_grad_grad") == [["DDOut", "DY"], ["DDOut", "DY"]]
