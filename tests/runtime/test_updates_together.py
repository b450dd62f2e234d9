"""Updates that follow each other run in one call of the engine, with the numbers that they have one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.runtime import step as steps
from fluidtool.runtime.engines.native.library import library, switched_off

pytestmark = pytest.mark.skipif(
    library() is None or switched_off(), reason="the native engine is not built, or switched off"
)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "adam": lambda: fluid.optimizer.Adam(0.1),
    "decayed_adagrad": lambda: fluid.optimizer.DecayedAdagrad(0.1),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.1),
    "sgd": lambda: fluid.optimizer.SGD(0.1),
}

DENSE_ONLY = ("decayed_adagrad", True)


def trained(make: Callable[[], Any], is_sparse: bool) -> dict[str, Any]:
    """Every persistable array after three steps of an embedding and two layers."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64")
        hidden = fluid.layers.fc(fluid.layers.embedding(ids, [50, 8], is_sparse=is_sparse), 16, act="relu")
        make().minimize(fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 3))))
    for number, op in enumerate(startup.global_block().ops):
        if op.has_attr("seed"):
            op._set_attr("seed", 1 + number)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for number in range(3):
            exe.run(main, {"ids": np.array([[3], [7], [3], [number]])}, [])
        names = [var.name for var in main.list_vars() if var.persistable]
        return {name: np.array(scope.find_var(name).get_tensor()) for name in names if scope.find_var(name).value}


@pytest.mark.parametrize(
    ("name", "is_sparse"),
    [(name, is_sparse) for name in OPTIMIZERS for is_sparse in (False, True) if (name, is_sparse) != DENSE_ONLY],
)
def test_numbers_are_those_of_updates_one_by_one(name: str, is_sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    together = trained(OPTIMIZERS[name], is_sparse)
    monkeypatch.setattr("fluidtool.runtime.block.with_updates_together", list)
    alone = trained(OPTIMIZERS[name], is_sparse)
    assert together.keys() == alone.keys() and len(together) >= 5
    for key, array in alone.items():
        np.testing.assert_array_equal(together[key], array, err_msg=key)


def test_all_parameters_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    run = steps.BoundUpdates.run

    def counted(self: Any) -> None:
        sizes.append(len(self.steps))
        run(self)

    monkeypatch.setattr(steps.BoundUpdates, "run", counted)
    trained(OPTIMIZERS["adam"], False)
    assert sizes == [5, 5, 5]


def test_parameters_are_changed_in_place_in_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[bool] = []
    holds_alone = steps.holds_alone

    def noted(holder: Any) -> bool:
        alone.append(holds_alone(holder))
        return alone[-1]

    monkeypatch.setattr(steps, "holds_alone", noted)
    trained(OPTIMIZERS["adam"], False)
    assert len(alone) == 3 * 5 * 3 and all(alone)


class Named:
    """A bound update, as far as grouping looks at it."""

    def __init__(self, reads: list[str], writes: list[str]) -> None:
        op = type("Op", (), {"input_arg_names": reads, "output_arg_names": writes})()
        self.context = type("Context", (), {"op": op})()


@pytest.mark.parametrize(
    ("second", "together"),
    [(["b"], True), (["a"], False)],
)
def test_an_update_that_reads_what_another_wrote_begins_anew(
    second: list[str], together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "BoundUpdate", Named)
    found = steps.with_updates_together([Named(["a"], ["a"]), Named(second, ["b"])])
    assert len(found) == (1 if together else 2)
