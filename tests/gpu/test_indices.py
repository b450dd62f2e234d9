"""Indices out of range are refused on a GPU as on the CPU, although nothing there waits to look at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import FluidError, OperatorError
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.checks import AT_ONCE
from fluidtool.tensor import CPUPlace, CUDAPlace
from tests.gpu.budgets import operator_cases
from tests.gpu.standin import EVENTS
from tests.support.operator_cases import OperatorCase, operator_case

CPU, GPU = CPUPlace(), CUDAPlace(0)


def refusal(case: OperatorCase, place: Any) -> str | None:
    """The error of a run, up to where it happened; None without one."""
    try:
        case.run(Executor(place, seed=1, engine="numpy" if place == CPU else "auto"), Scope())
    except FluidError as error:
        return str(error).partition(" [")[0]
    return None


def families() -> list[str]:
    """A case of each operator."""
    first: dict[str, str] = {}
    for name in operator_cases():
        first.setdefault(name.partition("/")[0], name)
    return list(first.values())


@pytest.mark.parametrize("name", families())
def test_what_the_cpu_refuses_is_refused(
    name: str, cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    case = operator_case(name)
    for key, array in case.arrays.items():
        if key.startswith("feed/") and array.dtype.kind == "i" and array.itemsize >= 4 and array.size:
            wrong = array.copy()
            wrong.reshape(-1)[-1] = 4999
            case.arrays[key] = wrong
            expected = refusal(case, CPU)
            assert expected is None or refusal(case, GPU) == expected, key
            case.arrays[key] = array


def lookup(ids: int = 1) -> tuple[fluid.Program, fluid.Program, Any]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        rows = [
            fluid.layers.embedding(fluid.layers.data(f"ids{i}", [1], dtype="int64"), [5, 3], param_attr="w")
            for i in range(ids)
        ]
        loss = fluid.layers.mean(fluid.layers.sums(rows))
        fluid.optimizer.SGD(0.5).minimize(loss)
    return main, startup, loss


def started(startup: fluid.Program) -> tuple[Executor, Scope]:
    executor, scope = Executor(GPU, seed=3), Scope()
    executor.run(startup, {}, [], scope)
    return executor, scope


def table(scope: Scope) -> Any:
    variable = scope.find_var("w")
    assert variable is not None
    return variable.get_tensor().numpy()


def test_parameters_are_not_updated_by_a_batch_with_a_wrong_id(cupy: Any) -> None:
    main, startup, loss = lookup()
    executor, scope = started(startup)
    before = table(scope)
    with pytest.raises(OperatorError, match="input Ids holds 7, expected 0 to 4") as found:
        executor.run(main, {"ids0": np.array([[1], [7]])}, [loss.name], scope)
    np.testing.assert_array_equal(table(scope), before)
    assert found.value.location is not None
    assert found.value.location.type == "lookup_table"


def test_the_next_run_starts_without_what_a_failed_one_left(cupy: Any) -> None:
    main, startup, loss = lookup()
    executor, scope = started(startup)
    for _ in range(2):
        with pytest.raises(OperatorError):
            executor.run(main, {"ids0": np.array([[-9]])}, [loss.name], scope)
        executor.run(main, {"ids0": np.array([[4]])}, [loss.name], scope)


def test_all_checks_of_a_run_are_read_at_once(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA", "0")
    waits = []
    for count in (1, 8):
        main, startup, loss = lookup(count)
        executor, scope = started(startup)
        feed = {f"ids{i}": np.array([[i % 5]]) for i in range(count)}
        with EVENTS.counted() as counts:
            executor.run(main, feed, [loss.name], scope)
        waits.append(counts["copies to the host"] + counts["synchronizations"])
    assert waits == [1, 1]


def test_more_checks_than_there_are_flags(cupy: Any) -> None:
    count = AT_ONCE + 10
    main, startup, loss = lookup(count)
    executor, scope = started(startup)
    feed = {f"ids{i}": np.array([[0]]) for i in range(count)}
    executor.run(main, feed, [loss.name], scope)
    with pytest.raises(OperatorError, match="holds 6"):
        executor.run(main, feed | {f"ids{count - 1}": np.array([[6]])}, [loss.name], scope)


def test_the_first_wrong_index_is_told(cupy: Any) -> None:
    main, startup, loss = lookup()
    executor, scope = started(startup)
    ids = np.arange(600).reshape(-1, 1) % 5
    ids[500], ids[400], ids[300] = 11, -12, 13
    with pytest.raises(OperatorError, match="input Ids holds 13,"):
        executor.run(main, {"ids0": ids}, [loss.name], scope)
