"""Threads that share a model, an executor or a scope: what is made when it is first needed is made once, and whole."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool import fluid
from fluidtool.errors import ParameterFileError
from fluidtool.ir import Program
from fluidtool.ops import index, registry
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.executor import communicators_of
from fluidtool.runtime.policy import Policy
from fluidtool.runtime.scope import StoredVariable
from fluidtool.tensor import CPUPlace, LoDTensor

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
THREADS = 8


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads take turns all the time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def together(work: Callable[[], Any], count: int = THREADS) -> list[Any]:
    """What `work` gives to threads that begin at the same moment; raises what one of them raised."""
    start = threading.Barrier(count)
    results: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        start.wait()
        try:
            results.append(work())
        except BaseException as error:  # handed on to the caller
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def scaling(scale: float = 2.0) -> Program:
    """out = x * scale."""
    program = Program()
    block = program.global_block()
    for name in ("x", "out"):
        block.create_var(name=name, shape=[-1, 2], dtype=VarType.FP32)
    block.append_op(type="scale", inputs={"X": ["x"]}, outputs={"Out": ["out"]}, attrs={"scale": scale})
    return program


# ---------------------------------------------------------------- first runs
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_first_runs_at_the_same_time_give_the_bits_of_a_later_one(engine: str, request: pytest.FixtureRequest) -> None:
    if engine == "native":
        request.getfixturevalue("native")
    feed = {"image": np.random.default_rng(1).random((2, 1, 8, 8), np.float32)}
    first = fluidtool.load(DIGITS, engine=engine)
    feed = {name: np.random.default_rng(1).random(sizes(first, name), np.float32) for name in first.feeds}
    first.run(feed)
    want = np.asarray(first.run(feed)[first.fetches[0]])
    for _ in range(40):
        model = fluidtool.load(DIGITS, engine=engine)
        for got in together(lambda model=model: np.asarray(model.run(feed)[model.fetches[0]])):  # type: ignore[misc]
            np.testing.assert_array_equal(got, want)


def sizes(model: Any, name: str) -> list[int]:
    return [2 if size < 0 else size for size in model.program.global_block().vars[name].shape]


def test_all_threads_get_one_executor() -> None:
    for _ in range(40):
        model = fluidtool.load(DIGITS)
        assert len({id(found) for found in together(lambda model=model: model.executor)}) == 1  # type: ignore[misc]


def test_nobody_gets_an_executor_before_the_parameters_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fluidtool.load(DIGITS)
    holding, hold = threading.Event(), threading.Event()
    put = Scope.hold

    def slow(self: Scope, variable: Any) -> None:
        holding.set()
        hold.wait()
        put(self, variable)

    monkeypatch.setattr(Scope, "hold", slow)
    filling = threading.Thread(target=lambda: model.executor)
    filling.start()
    holding.wait()
    found: list[int] = []
    other = threading.Thread(
        target=lambda: found.append(model.executor is not None and len(model.scope.local_var_names()))
    )
    other.start()
    other.join(0.05)
    assert other.is_alive() and not found
    hold.set()
    filling.join()
    other.join()
    assert found == [len(model.files.parameters)]


def test_a_parameter_that_cannot_be_read_is_said_at_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fluidtool.load(DIGITS)

    def refuse(self: Any, name: str) -> Any:
        raise ParameterFileError(f"{name} cannot be read")

    monkeypatch.setattr(type(model.files.parameters), "mapped", refuse)
    for _ in range(2):
        with pytest.raises(ParameterFileError, match="cannot be read"):
            model.run({name: np.zeros(sizes(model, name), np.float32) for name in model.feeds})
    monkeypatch.undo()
    model.run({name: np.zeros(sizes(model, name), np.float32) for name in model.feeds})


# ---------------------------------------------------------------- plans, generators, rings
def test_all_threads_get_one_plan_and_one_block() -> None:
    for _ in range(100):
        program, executor = scaling(), Executor(engine="numpy")
        found = together(lambda program=program, executor=executor: executor.plan(program, ["out"]))  # type: ignore[misc]
        assert len({id(plan) for plan in found}) == 1
        blocks = together(lambda plan=found[0]: plan.block(0))  # type: ignore[misc]
        assert len({id(block) for block in blocks}) == 1


def test_plans_come_and_go_while_threads_ask_for_them() -> None:
    program, executor = Program(), Executor(engine="numpy")
    block = program.global_block()
    block.create_var(name="x", shape=[-1, 2], dtype=VarType.FP32)
    names = [f"out{number}" for number in range(40)]
    for name in names:
        block.create_var(name=name, shape=[-1, 2], dtype=VarType.FP32)
        block.append_op(type="scale", inputs={"X": ["x"]}, outputs={"Out": [name]}, attrs={"scale": 2.0})

    def work() -> None:
        for name in names:
            (value,) = executor.run(program, {"x": np.ones((1, 2), np.float32)}, [name], Scope())
            assert value.numpy().tolist() == [[2, 2]]

    together(work)


def test_all_threads_draw_from_one_generator() -> None:
    for _ in range(100):
        program, executor = scaling(), Executor(engine="numpy", seed=3)
        found = together(lambda program=program, executor=executor: executor.generator(program))  # type: ignore[misc]
        assert len({id(generator) for generator in found}) == 1


def test_all_threads_get_the_rings_of_a_scope() -> None:
    for _ in range(100):
        scope = Scope()
        found = together(lambda scope=scope: communicators_of(scope, CPUPlace(), Policy()))  # type: ignore[misc]
        assert len({id(rings) for rings in found}) == 1


# ---------------------------------------------------------------- scopes
def test_all_threads_get_one_variable_of_a_name() -> None:
    for _ in range(100):
        scope = Scope()
        assert len({id(variable) for variable in together(lambda scope=scope: scope.var("x"))}) == 1  # type: ignore[misc]


def test_scopes_below_come_and_go_without_a_trace() -> None:
    scope = Scope()

    def work() -> None:
        for _ in range(200):
            scope.drop_kid(scope.new_scope())

    together(work)
    assert scope.kids == []


def test_a_scope_that_is_not_below_can_be_dropped() -> None:
    scope = Scope()
    kid = scope.new_scope()
    scope.drop_kid(Scope())
    assert scope.kids == [kid]


def test_a_stored_value_is_read_once_for_all_threads() -> None:
    for _ in range(100):
        read: list[int] = []

        def load() -> LoDTensor:
            read.append(1)  # noqa: B023
            return LoDTensor(np.ones(3, np.float32))

        variable = StoredVariable("w", np.ones(3, np.float32), load)
        values = together(lambda variable=variable: variable.value)  # type: ignore[misc]
        assert len({id(value) for value in values}) == 1 and read == [1]


def test_a_value_that_is_set_while_the_stored_one_is_read_stays() -> None:
    loading, go_on = threading.Event(), threading.Event()

    def load() -> LoDTensor:
        loading.set()
        go_on.wait()
        return LoDTensor(np.zeros(1, np.float32))

    variable, new = StoredVariable("w", np.zeros(1, np.float32), load), LoDTensor(np.ones(1, np.float32))
    reading = threading.Thread(target=lambda: variable.value)
    reading.start()
    loading.wait()
    setting = threading.Thread(target=lambda: setattr(variable, "value", new))
    setting.start()
    setting.join(0.05)
    go_on.set()
    reading.join()
    setting.join()
    assert variable.value is new and variable.mapped() is None


# ---------------------------------------------------------------- operators, compiled programs
def test_an_operator_is_not_found_before_its_module_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fluidtool.ops as package

    (tmp_path / "arriving.py").write_text(
        "from fluidtool.ops.registry import op\n"
        "from tests.runtime.test_threads import ARRIVING\n"
        "@op('arriving', inputs='X', outputs='Out')\n"
        "def arriving(ctx, X):\n    return X\n"
        "ARRIVING[0].set()\n"
        "ARRIVING[1].wait()\n"
        "@arriving.infer\n"
        "def _(ctx, X):\n    return X\n"
    )
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.setitem(index.MODULES, "arriving", "arriving")
    monkeypatch.setattr(registry, "_REGISTRY", registry._Registry())
    first = threading.Thread(target=lambda: registry.get_op("arriving"))
    first.start()
    ARRIVING[0].wait()
    found: list[Any] = []
    second = threading.Thread(target=lambda: found.append(registry.get_op("arriving").infer_by_kernel))
    second.start()
    second.join(0.05)
    assert not found
    ARRIVING[1].set()
    first.join()
    second.join()
    del sys.modules["fluidtool.ops.arriving"]
    assert found[0] is not None


ARRIVING = threading.Event(), threading.Event()


def test_all_threads_run_a_compiled_program_by_one_runner() -> None:
    for _ in range(10):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()):
            x = fluid.data("x", [-1, 2], "float32")
            out = fluid.layers.scale(x, 2.0)
        compiled = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(1))
        executor, scope = fluid.Executor(fluid.CPUPlace()), Scope()
        feed = {"x": np.ones((1, 2), np.float32)}

        def work() -> tuple[int, Any]:
            (value,) = executor.run(compiled, feed, [out], scope=scope)  # noqa: B023
            return id(compiled._runner), value.tolist()  # noqa: B023

        assert len({found for found, _ in together(work)}) == 1
