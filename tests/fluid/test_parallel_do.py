"""ParallelDo and get_places, of Fluid 0.12 to 0.15: the block runs once, on the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import UsageError

L: Any = fluid.layers
X = np.arange(12, dtype="float32").reshape(4, 3) / 10
Y = X.sum(axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def fresh_programs() -> Iterator[None]:
    guards = fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope())
    with guards[0], guards[1], fluid.unique_name.guard():
        yield


def cost_of(x: Any, y: Any) -> Any:
    weights = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.1))
    return L.mean(L.square_error_cost(L.fc(x, 1, param_attr=weights), y))


def costs(steps: int, build: Any) -> list[float]:
    """The costs of some steps of a network that `build` makes of x and y."""
    cost = build(L.data("x", [3]), L.data("y", [1]))
    fluid.optimizer.SGD(0.1).minimize(cost)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return [float(executor.run(feed={"x": X, "y": Y}, fetch_list=[cost])[0].item()) for _ in range(steps)]


def in_parallel(x: Any, y: Any) -> Any:
    pd = L.ParallelDo(L.get_places(device_count=2), use_nccl=False)
    with pd.do():
        pd.write_output(cost_of(pd.read_input(x), pd.read_input(y)))
    return L.mean(pd())


def test_a_network_in_it_is_trained_like_one_without_it() -> None:
    found = costs(3, in_parallel)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        assert found == costs(3, cost_of)


def test_several_outputs_are_a_list_in_the_order_they_were_written() -> None:
    pd = L.ParallelDo(L.get_places())
    with pd.do():
        first, second = L.fill_constant([1], "float32", 1.0), L.fill_constant([1], "float32", 2.0)
        pd.write_output(second)
        pd.write_output(first)
    assert pd() == [second, first]


@pytest.mark.parametrize("method", ["read_input", "write_output"])
def test_a_variable_cannot_pass_outside_the_block(method: str) -> None:
    pd = L.ParallelDo(L.get_places())
    with pytest.raises(UsageError, match=f"You must invoke {method} in the block of ParallelDo"):
        getattr(pd, method)(L.data("x", [3]))


def test_there_is_no_output_before_the_block_ends() -> None:
    with pytest.raises(UsageError, match="can be called only after its block"):
        L.ParallelDo(L.get_places())()


def test_a_block_that_wrote_nothing_has_no_output() -> None:
    pd = L.ParallelDo(L.get_places())
    with pd.do():
        pass
    with pytest.raises(UsageError, match="wrote nothing; call write_output"):
        pd()
