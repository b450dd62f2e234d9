"""Runs that leave out what is not asked for: `use_prune`, and optimizers in the fetch list (Paddle 1.8.5 executor.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.fluid import layers

ONES = np.ones([2, 1], "float32")


@dataclass
class Network:
    """Two losses, each with a weight and an optimizer of its own."""

    main: fluid.Program
    losses: list[Any]
    minimized: list[Any]

    def weights(self) -> list[float]:
        return [float(fluid.fetch_var(name)[0, 0]) for name in ("w0", "w1")]


@pytest.fixture
def network() -> Iterator[Network]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 1], "float32")
        losses = []
        for name in ("w0", "w1"):
            weight = fluid.ParamAttr(name, initializer=fluid.initializer.Constant(1.0))
            losses.append(layers.mean(layers.fc(layers.scale(x, 1.0), 1, param_attr=weight, bias_attr=False)))
            losses[-1].persistable = True
        minimized = [fluid.optimizer.SGD(0.5).minimize(loss) for loss in losses]
        fluid.Executor().run(startup)
        yield Network(main, losses, minimized)


@pytest.mark.parametrize("whole", [True, False], ids=["what minimize returned", "its operators"])
def test_an_optimizer_in_the_fetch_list_leaves_out_the_others(network: Network, whole: bool) -> None:
    second = network.minimized[1] if whole else network.minimized[1][0]
    (value,) = fluid.Executor().run(network.main, {"x": ONES}, [network.losses[0], second])
    assert float(value) == 1.0
    assert network.weights() == [1.0, 0.5]


def test_all_optimizers_run_where_none_is_named(network: Network) -> None:
    fluid.Executor().run(network.main, {"x": ONES}, [network.losses[0]], use_prune=True)
    assert network.weights() == [0.5, 0.5]


def test_what_is_not_needed_is_not_computed(network: Network) -> None:
    forward = network.main.clone(for_test=True)
    fluid.Executor().run(forward, {"x": ONES}, [network.losses[0]], use_prune=True)
    assert fluid.global_scope().find_var(network.losses[0].name) is not None
    assert fluid.global_scope().find_var(network.losses[1].name) is None


def test_a_fed_value_takes_the_place_of_what_computes_it(network: Network) -> None:
    forward = network.main.clone(for_test=True)
    scaled = forward.global_block().ops[0].output("Out")[0]
    (value,) = fluid.Executor().run(forward, {scaled: 3 * ONES}, [network.losses[0]], use_prune=True)
    assert float(value) == 3.0


def test_a_feed_that_is_not_needed_is_left_out(network: Network) -> None:
    with fluid.program_guard(network.main):
        fluid.data("spare", [1], "float32")
    fluid.Executor().run(network.main, {"x": ONES, "spare": np.zeros([9, 9])}, [network.losses[0]], use_prune=True)


def test_a_compiled_program_is_pruned_too(network: Network) -> None:
    compiled = fluid.CompiledProgram(network.main).with_data_parallel(
        loss_name=network.losses[0].name, places=[fluid.CPUPlace()] * 2
    )
    executor = fluid.Executor()
    for index in (0, 1):
        executor.run(compiled, {"x": ONES}, [network.losses[index], network.minimized[index]])
    assert network.weights() == [0.5, 0.5]


def test_a_pruned_copy_is_made_once_until_the_program_changes(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(self: Any, program: Any, *arguments: Any) -> Any:
        made.append(program)
        return program

    monkeypatch.setattr(fluid.Executor, "_prune_program", counted)
    executor = fluid.Executor()
    for _ in range(3):
        executor.run(network.main, {"x": ONES}, [network.losses[0]], use_prune=True)
    assert len(made) == 1
    with fluid.program_guard(network.main):
        layers.fill_constant([1], "float32", 0.0)
    executor.run(network.main, {"x": ONES}, [network.losses[0]], use_prune=True)
    assert len(made) == 2


def test_only_optimizers_may_stand_in_a_fetch_list(network: Network) -> None:
    with pytest.raises(TypeError, match="not an optimize_op, found scale"):
        fluid.Executor().run(network.main, {"x": ONES}, [network.main.global_block().ops[0]])
