"""Gradients behind `one_hot`: programs as Paddle 1.8.5 builds them (models' arcmargin loss)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fluidtool.fluid as fluid


@pytest.mark.parametrize(
    ("one_hot", "expected"),
    [
        (fluid.one_hot, ["mean_grad", "elementwise_mul_grad", "relu_grad", "mul_grad"]),
        (fluid.layers.one_hot, ["mean_grad", "elementwise_mul_grad", "mul_grad"]),
    ],
    ids=["one_hot", "layers.one_hot"],
)
def test_gradients_go_up_to_the_second_version_only(one_hot: Callable[..., Any], expected: list[str]) -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        hidden = fluid.layers.fc(fluid.data("x", [-1, 3], "float32"), 4, bias_attr=False)
        chosen = fluid.layers.relu(one_hot(fluid.layers.data("label", [1], dtype="int64"), 4))
        loss = fluid.layers.mean(fluid.layers.elementwise_mul(fluid.layers.unsqueeze(hidden, [1]), chosen))
        fluid.backward.append_backward(loss)
    gradients = [op.type for op in program.global_block().ops if op.type.endswith("_grad")]
    assert [name for name in gradients if name != "unsqueeze2_grad"] == expected
