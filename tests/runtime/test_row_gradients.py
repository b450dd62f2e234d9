"""Gradients of tables that only an update reads: rows, which mean what the dense gradient means."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.runtime.block import compile_block
from fluidtool.runtime.engines.registry import engine_for
from fluidtool.runtime.executor import Executor
from fluidtool.runtime.scope import Scope

HEIGHT, WIDTH = 40, 5
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "nesterov": lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "decayed_adagrad": lambda: fluid.optimizer.DecayedAdagrad(0.1),
    "adam": lambda: fluid.optimizer.Adam(0.1),
    "lazy adam": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.1, momentum=0.5),
    "centered rmsprop": lambda: fluid.optimizer.RMSProp(0.1, centered=True),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1, l1=0.01, l2=0.01),
    "adamax": lambda: fluid.optimizer.Adamax(0.1),
}
IDS = {"a": [3, 3, 39, 0], "b": [3, 7, 7, 7], "c": [1, 0, 39, 2]}

pytestmark = pytest.mark.usefixtures("native")


def network(optimizer: Any, slots: str = "abc", height: int = HEIGHT, **table: Any) -> tuple[Any, Any, Any]:
    """(main program, startup program, loss) of lookups in one table."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = [fluid.layers.data(slot, [1], dtype="int64") for slot in slots]
        attr = fluid.ParamAttr(name="table")
        rows = [fluid.layers.embedding(each, [height, WIDTH], param_attr=attr, **table) for each in ids]
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(fluid.layers.concat(rows, 1), 3)))
        optimizer.minimize(loss)
    return main, startup, loss


def feed(slots: str = "abc") -> dict[str, Any]:
    return {slot: np.array(IDS[slot], np.int64)[:, None] for slot in slots}


def started(startup: Any, engine: str) -> tuple[Executor, Scope]:
    executor, scope = Executor(engine=engine), Scope()
    executor.run(startup, {}, [], scope)
    return executor, scope


def trained(
    optimizer: str, engine: str, fetch: tuple[str, ...] = (), slots: str = "abc", **table: Any
) -> dict[str, Any]:
    """All persistable variables after three steps."""
    main, startup, loss = network(OPTIMIZERS[optimizer](), slots, **table)
    executor, scope = started(startup, engine)
    for _ in range(3):
        executor.run(main, feed(slots), [loss.name, *fetch], scope)
    names = [var.name for var in main.global_block().vars.values() if var.persistable]
    return {name: np.array(scope.find_var(name).value.array) for name in names}


def are_rows(program: Any, *fetches: str) -> list[bool]:
    """Of each gradient of a lookup, whether it is rows."""
    plan = compile_block(program.global_block(), fetches, False, engine_for("native"))
    return [step.attrs["is_sparse"] for step in plan.steps if step.op.type == "lookup_table_grad"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_gives_what_dense_gradients_give(optimizer: str) -> None:
    got, want = trained(optimizer, "native"), trained(optimizer, "numpy")
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_lookup_gives_the_same_bits_whether_its_gradient_is_fetched_or_not(optimizer: str) -> None:
    got, want = trained(optimizer, "native", slots="b"), trained(optimizer, "native", ("table@GRAD",), slots="b")
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


def test_gradients_that_only_an_update_reads_are_rows() -> None:
    main, _, _ = network(OPTIMIZERS["adam"]())
    assert are_rows(main) == [True] * 3


def test_a_gradient_that_is_fetched_is_dense() -> None:
    main, startup, _ = network(OPTIMIZERS["adam"]())
    assert are_rows(main, "table@GRAD") == [False] * 3
    executor, scope = started(startup, "native")
    (grad,) = executor.run(main, feed(), ["table@GRAD"], scope)
    assert grad.numpy().shape == (HEIGHT, WIDTH)


@pytest.mark.parametrize("table", [{"padding_idx": 3}, {"is_sparse": True}])
def test_gradients_with_padding_and_those_that_are_sparse_stay_what_they_are(table: dict[str, Any]) -> None:
    main, _, _ = network(OPTIMIZERS["adam"](), **table)
    assert are_rows(main) == [table.get("is_sparse", False)] * 3


def test_a_gradient_that_is_clipped_is_dense() -> None:
    main, _, _ = network(fluid.optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByValue(1.0)))
    assert are_rows(main) == [False] * 3


def test_updates_without_a_kernel_for_rows_get_dense_gradients() -> None:
    main, _, _ = network(OPTIMIZERS["adamax"]())
    assert are_rows(main) == [False] * 3


SPARSE = [name for name in OPTIMIZERS if name not in ("decayed_adagrad", "centered rmsprop", "adamax")]
IN_PLACE = [*((name, True) for name in SPARSE), *((name, False) for name in [*SPARSE, "decayed_adagrad"])]


@pytest.mark.parametrize(("optimizer", "is_sparse"), IN_PLACE)
def test_a_step_needs_no_memory_as_large_as_the_table(optimizer: str, is_sparse: bool) -> None:
    height = 50_000
    main, startup, loss = network(OPTIMIZERS[optimizer](), height=height, is_sparse=is_sparse)
    executor, scope = started(startup, "native")
    executor.run(main, feed(), [loss.name], scope)
    tracemalloc.start()
    try:
        executor.run(main, feed(), [loss.name], scope)
        assert tracemalloc.get_traced_memory()[1] < height * WIDTH * 4 / 2
    finally:
        tracemalloc.stop()
