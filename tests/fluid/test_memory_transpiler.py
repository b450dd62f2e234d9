"""fluid.memory_optimize and fluid.release_memory in scripts as they were written: training, data parallel, inference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.compat import install
from fluidtool.ir.reuse import shares_names
from tests.support.memory_programs import types

X = np.random.default_rng(1).normal(size=(8, 4)).astype("float32")
Y = np.random.default_rng(2).normal(size=(8, 1)).astype("float32")
Change = Callable[[fluid.Program], None]
CHANGES: dict[str, Change] = {
    "level 0": fluid.memory_optimize,
    "level 1": lambda program: fluid.memory_optimize(program, level=1),
    "skip_grads": lambda program: fluid.memory_optimize(program, None, False, 0, True),
    "release": fluid.release_memory,
    "both": lambda program: (fluid.memory_optimize(program, level=1), fluid.release_memory(program))[0],
    "the other way round": lambda program: (fluid.release_memory(program), fluid.memory_optimize(program))[0],
}


@pytest.fixture(autouse=True)
def own_scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CPU_NUM", "2")
    with fluid.scope_guard(fluid.Scope()):
        yield


def network() -> tuple[fluid.Program, fluid.Program, list[Any]]:
    """Main and startup program; the loss, its square, the prediction, a hidden layer."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
        weight = fluid.initializer.NumpyArrayInitializer(np.linspace(-1, 1, 24).reshape(4, 6).astype("float32"))
        hidden = fluid.layers.fc(x, 6, act="tanh", param_attr=weight)
        other = fluid.layers.fc(hidden, 6, act="tanh", param_attr=fluid.initializer.Constant(0.25))
        guess = fluid.layers.fc(other, 1, param_attr=fluid.initializer.Constant(-0.5))
        cost = fluid.layers.square_error_cost(guess, y)
        loss = fluid.layers.mean(cost)
        rate = fluid.layers.exponential_decay(0.1, 2, 0.5)
        fluid.optimizer.Adam(rate).minimize(loss)
    return main, startup, [loss, cost, guess, hidden]


def trained(change: Change | None, run: Callable[[fluid.Program, list[Any]], list[Any]]) -> list[bytes]:
    """What a run gives, and every persistable value after it."""
    main, startup, fetches = network()
    fluid.Executor().run(startup)
    if change is not None:
        change(main)
    values = run(main, fetches)
    kept = sorted(var.name for var in main.list_vars() if var.persistable)
    values += [np.array(fluid.global_scope().find_var(name).get_tensor()) for name in kept]
    return [np.asarray(value).tobytes() for value in values]


def steps(main: fluid.Program, fetches: list[Any]) -> list[Any]:
    executor = fluid.Executor()
    return [value for _ in range(3) for value in executor.run(main, {"x": X, "y": Y}, fetches)]


def loss_only(main: fluid.Program, fetches: list[Any]) -> list[Any]:
    executor = fluid.Executor()
    return [value for _ in range(3) for value in executor.run(main, {"x": X, "y": Y}, fetches[:1])]


def no_fetches(main: fluid.Program, fetches: list[Any]) -> list[Any]:
    fluid.Executor().run(main, {"x": X, "y": Y})
    return []


def in_parallel(main: fluid.Program, fetches: list[Any]) -> list[Any]:
    executor = fluid.ParallelExecutor(False, fetches[0].name, main)
    return [value for _ in range(3) for value in executor.run([v.name for v in fetches], {"x": X, "y": Y})]


def compiled(main: fluid.Program, fetches: list[Any]) -> list[Any]:
    program = fluid.CompiledProgram(main).with_data_parallel(loss_name=fetches[0].name)
    executor = fluid.Executor()
    return [value for _ in range(3) for value in executor.run(program, {"x": X, "y": Y}, fetches)]


@pytest.mark.parametrize("run", [steps, loss_only, no_fetches, in_parallel, compiled])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_training_gives_the_same_bits(change: Change, run: Any) -> None:
    plain = trained(None, run)
    with fluid.scope_guard(fluid.Scope()):
        assert trained(change, run) == plain


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_they_return_nothing_and_change_the_program(change: Change) -> None:
    main, _, _ = network()
    before = main.desc.serialize_to_string()
    assert change(main) is None
    assert main.desc.serialize_to_string() != before


def test_deletions_are_in_the_list_of_operators() -> None:
    main, _, _ = network()
    fluid.release_memory(main)
    assert "delete_var" in types(main)


def test_a_saved_inference_model_computes_what_it_was_saved_for(tmp_path: Path) -> None:
    main, startup, fetches = network()
    executor = fluid.Executor()
    executor.run(startup)
    with fluid.program_guard(main):
        test = main.clone(for_test=True)
        want = executor.run(test, {"x": X, "y": Y}, [fetches[2]])
        fluid.memory_optimize(main, level=1)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [fetches[2]], executor, main)
    program, feeds, targets = fluid.io.load_inference_model(str(tmp_path), executor)
    assert feeds == ["x"]
    np.testing.assert_array_equal(executor.run(program, {"x": X}, targets)[0], want[0])


def test_minimize_after_memory_optimize_trains_as_without() -> None:
    losses = []
    for early in (False, True):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.scope_guard(fluid.Scope()), fluid.program_guard(main, startup), fluid.unique_name.guard():
            x = fluid.layers.data("x", [4])
            hidden = fluid.layers.fc(x, 6, act="tanh", param_attr=fluid.initializer.Constant(0.25))
            hidden = fluid.layers.fc(hidden, 6, act="tanh", param_attr=fluid.initializer.Constant(0.5))
            loss = fluid.layers.mean(fluid.layers.fc(hidden, 1, param_attr=fluid.initializer.Constant(-0.5)))
            if early:
                fluid.memory_optimize(main, level=1)
                assert shares_names(main)
            fluid.optimizer.SGD(0.1).minimize(loss)
            executor = fluid.Executor()
            executor.run(startup)
            losses.append([executor.run(main, {"x": X}, [loss])[0].tobytes() for _ in range(3)])
    assert losses[0] == losses[1]


def test_print_log_writes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    main, _, _ = network()
    fluid.memory_optimize(main, print_log=True)
    assert capsys.readouterr().out.startswith("Hit Cache !!!! cache pool index is ")


@pytest.mark.parametrize("arguments", [{"level": 2}, {"skip_opt_set": "loss"}], ids=str)
def test_wrong_values_are_value_errors(arguments: dict[str, Any]) -> None:
    main, _, _ = network()
    with pytest.raises(ValueError, match="only support"):
        fluid.memory_optimize(main, **arguments)
    assert not shares_names(main)


@pytest.mark.parametrize("function", [fluid.memory_optimize, fluid.release_memory])
def test_wrong_types_are_type_errors(function: Any) -> None:
    main, _, _ = network()
    with pytest.raises(TypeError, match="should be Variable or str"):
        function(main, {1, 2})
    with pytest.raises(TypeError, match="takes a Program, found str"):
        function("main")


def test_they_have_the_names_of_paddles_modules() -> None:
    with install():
        import paddle.fluid as paddle_fluid
        from paddle.fluid.transpiler import memory_optimize, release_memory
        from paddle.fluid.transpiler.memory_optimization_transpiler import memory_optimize as longer

        assert paddle_fluid.memory_optimize is memory_optimize is longer is fluid.memory_optimize
        assert paddle_fluid.transpiler.release_memory is release_memory is fluid.release_memory
