"""`fluid.contrib.mixed_precision`: training partly in float16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.contrib.mixed_precision import AutoMixedPrecisionLists, decorate

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(16, 6)).astype("float32")
FEED = {"x": X, "y": (X[:, :1] > 0).astype("int64")}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
        fluid.unique_name.guard(),
    ):
        yield


def network() -> Any:
    fluid.default_startup_program().random_seed = 1
    x, y = fluid.data("x", [-1, 6]), fluid.data("y", [-1, 1], "int64")
    logits = fluid.layers.fc(fluid.layers.fc(x, 8, act="tanh"), 2)
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, y))


def losses(loss: Any, steps: int = 8, feed: Any = FEED) -> list[float]:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(steps)]


def single() -> list[float]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        loss = network()
        fluid.optimizer.SGD(0.5).minimize(loss)
        return losses(loss)


@pytest.mark.parametrize("dynamic", [False, True])
def test_training_follows_float32(dynamic: bool) -> None:
    """As far as eleven bits of precision go."""
    loss = network()
    decorate(fluid.optimizer.SGD(0.5), init_loss_scaling=64.0, use_dynamic_loss_scaling=dynamic).minimize(loss)
    products = [op for op in fluid.default_main_program().global_block().ops if op.type == "mul"]
    assert all(name.endswith(".cast_fp16") for op in products for name in op.input("Y"))
    with fluid.unique_name.guard():
        expected = single()
    np.testing.assert_allclose(losses(loss), expected, rtol=1e-2)


def test_the_scale_grows_while_gradients_are_finite() -> None:
    loss = network()
    optimizer = decorate(fluid.optimizer.SGD(0.1), init_loss_scaling=8.0, incr_every_n_steps=3, incr_ratio=4.0)
    optimizer.minimize(loss)
    losses(loss, steps=8)  # it grows in the fourth step and in the eighth: after three others
    assert fluid.fetch_var(optimizer.get_loss_scaling().name).tolist() == [128.0]


def test_gradients_that_are_not_finite_shrink_the_scale_and_change_nothing() -> None:
    loss = network()
    optimizer = decorate(fluid.optimizer.SGD(0.1), init_loss_scaling=2.0**30, decr_every_n_nan_or_inf=2, decr_ratio=0.5)
    optimizer.minimize(loss)
    found = losses(loss, steps=6)  # it shrinks in the third step and in the sixth
    assert fluid.fetch_var(optimizer.get_loss_scaling().name).tolist() == [2.0**28]
    assert len(set(found)) == 1


def test_lists_move_operators() -> None:
    lists = AutoMixedPrecisionLists(custom_white_list=["exp", "tanh"], custom_black_list=["mul"])
    assert {"exp", "tanh"} <= lists.white_list and "mul" in lists.black_list
    assert not {"exp", "tanh", "mul"} & lists.gray_list and "mul" not in lists.white_list


def test_variables_that_stay_in_float32() -> None:
    loss = network()
    lists = AutoMixedPrecisionLists(custom_black_varnames={"fc_0.w_0"})
    decorate(fluid.optimizer.SGD(0.1), lists).minimize(loss)
    weights = [op.input("Y") for op in fluid.default_main_program().global_block().ops if op.type == "mul"]
    assert weights == [["fc_0.w_0"], ["fc_1.w_0.cast_fp16"]]


def test_an_operator_is_in_one_list() -> None:
    with pytest.raises(UsageError, match="Custom white list overlap custom black list: mul"):
        AutoMixedPrecisionLists(["mul"], ["mul"])


def test_only_optimizers_are_decorated() -> None:
    with pytest.raises(ArgumentTypeError, match="decorate takes an optimizer, found float"):
        decorate(0.1)  # type: ignore[arg-type]
