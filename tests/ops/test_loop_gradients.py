"""Gradients of what a loop reads in every step: sums, and products of the rows of all steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.ops.control_flow import loop_gradients
from fluidtool.ops.control_flow.loop_gradients import Total
from fluidtool.passes.backward import append_backward
from fluidtool.passes.release_memory import release_memory
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor
from tests.support.blocks import BOOL, Building, check_program_gradient
from tests.support.operators import dense

RNG = np.random.default_rng(3)


def products(steps: int, twice: bool = False) -> Building:
    """s = x; `steps` times s = tanh(s · w), or tanh(tanh(s · w) · w); loss = mean(s)."""
    b = Building()
    x, w = b.data("x", [2, 3]), b.data("w", [3, 3])
    i, n = b.constant("i", 0), b.constant("n", steps)
    b.op("scale", {"X": x}, {"Out": "s"}, scale=1.0)
    b.op("less_than", {"X": i, "Y": n}, {"Out": "go_on"}, dtype=BOOL)
    with b.sub_block() as body:
        b.op("mul", {"X": "s", "Y": w}, {"Out": "p"})
        b.op("tanh", {"X": "p"}, {"Out": "t"})
        if twice:
            b.op("mul", {"X": "t", "Y": w}, {"Out": "q"})
            b.op("tanh", {"X": "q"}, {"Out": "u"})
        b.op("assign", {"X": "u" if twice else "t"}, {"Out": "s"})
        b.next_step(i, n)
    b.block.create_var(name="steps", type=VarType.STEP_SCOPES)
    b.op(
        "while",
        {"X": [x, w, "s", i, n], "Condition": "go_on"},
        {"Out": ["s", i, "go_on"], "StepScopes": "steps"},
        sub_block=b.program.block(body),
        is_test=False,
    )
    b.op("mean", {"X": "s"}, {"Out": "loss"})
    return b


FEED = {"x": RNG.normal(size=(2, 3)), "w": RNG.normal(size=(3, 3))}


@pytest.mark.parametrize("most", [0, 1 << 23])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_the_gradient_of_a_weight_is_one_product_or_several(
    steps: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_gradients, "MOST", most)
    check_program_gradient(products(steps), "loss", FEED, ["x", "w"])


def test_a_weight_of_two_products_of_a_step_is_summed() -> None:
    check_program_gradient(products(3, twice=True), "loss", FEED, ["x", "w"])


@pytest.mark.parametrize(("twice", "expected"), [(False, 1), (True, 0)])
def test_which_weights_wait_for_all_steps(twice: bool, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    take = loop_gradients.Products.take
    monkeypatch.setattr(loop_gradients.Products, "take", lambda self, value: (taken.append(self), take(self, value)))
    check_program_gradient(products(1, twice), "loss", FEED, ["w"])
    assert bool(taken) == bool(expected)


def gated(steps: int) -> Building:
    """s = x; `steps` times s = a GRU's next state by the input x w; loss = mean(s)."""
    b = Building()
    x, w, u, bias = b.data("x", [2, 3]), b.data("w", [3, 9]), b.data("u", [3, 9]), b.data("bias", [1, 9])
    i, n = b.constant("i", 0), b.constant("n", steps)
    b.op("scale", {"X": x}, {"Out": "s"}, scale=1.0)
    b.op("mul", {"X": x, "Y": w}, {"Out": "p"})
    b.op("less_than", {"X": i, "Y": n}, {"Out": "go_on"}, dtype=BOOL)
    with b.sub_block() as body:
        inputs = {"Input": "p", "HiddenPrev": "s", "Weight": u, "Bias": bias}
        b.op("gru_unit", inputs, {"Hidden": "h", "Gate": "g", "ResetHiddenPrev": "r"})
        b.op("assign", {"X": "h"}, {"Out": "s"})
        b.next_step(i, n)
    b.block.create_var(name="steps", type=VarType.STEP_SCOPES)
    b.op(
        "while",
        {"X": [x, "p", u, bias, "s", i, n], "Condition": "go_on"},
        {"Out": ["s", i, "go_on"], "StepScopes": "steps"},
        sub_block=b.program.block(body),
        is_test=False,
    )
    b.op("mean", {"X": "s"}, {"Out": "loss"})
    return b


@pytest.mark.parametrize("steps", [1, 3])
def test_the_gradients_of_the_weights_of_a_gru_are_products_of_all_steps(steps: int) -> None:
    feed = {"x": RNG.normal(size=(2, 3)), "w": RNG.normal(size=(3, 9)), "u": RNG.normal(size=(3, 9))}
    check_program_gradient(gated(steps), "loss", {**feed, "bias": RNG.normal(size=(1, 9))}, ["x", "w", "u", "bias"])


def with_gradients() -> tuple[Building, bytes]:
    """Three steps with gradients, and what the gradient of the weight is."""
    b = products(3)
    append_backward(b.program.global_block().var("loss"))
    return b, gradient(b)


def gradient(b: Building) -> bytes:
    return dense(b.run(FEED, ["w@GRAD"])[0]).tobytes()


def test_what_a_weight_waits_for_is_not_deleted() -> None:
    b, expected = with_gradients()
    assert release_memory(b.program, {"w@GRAD"}).changed
    deleted = {
        name for block in b.program.blocks[1:] for op in block.ops for name in op.input("X") if op.type == "delete_var"
    }
    assert "p@GRAD" in deleted
    assert gradient(b) == expected


def test_a_weight_does_not_wait_for_what_is_overwritten() -> None:
    """Another value in the place of p@GRAD, behind the operator that reads it."""
    b, expected = with_gradients()
    backwards = b.program.block(2)
    name = next(op.input("Out@GRAD")[0] for op in backwards.ops if op.type == "mul_grad")
    backwards.append_op(type="fill_zeros_like", inputs={"X": ["t"]}, outputs={"Out": [name]})
    np.testing.assert_allclose(np.frombuffer(gradient(b)), np.frombuffer(expected), rtol=1e-14)


@pytest.fixture
def total() -> Total:
    """An empty one."""
    context: Any = type("Context", (), {"xp": np, "np": np})()
    return Total(context)


def test_a_total_never_changes_what_it_was_given(total: Total) -> None:
    given = [np.full((2, 2), float(number)) for number in range(1, 5)]
    for array in given:
        total.add(LoDTensor(array))
        total.add(None)
    np.testing.assert_array_equal(total.value.array, np.full((2, 2), 10.0))
    assert [array[0, 0] for array in given] == [1, 2, 3, 4]


def test_a_total_of_one_gradient_shares_its_array(total: Total) -> None:
    array = np.ones(3)
    total.add(LoDTensor(array, [[0, 3]]))
    assert total.value.array is array and total.value.offsets == [[0, 3]]
