"""`memory_optimize` and `release_memory` as documented."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid

FEED = {"x": np.random.default_rng(0).normal(size=(3, 8)).astype("float32")}


def network() -> Any:
    x = fluid.layers.data("x", [8])
    hidden = fluid.layers.fc(fluid.layers.fc(x, 8, act="tanh"), 8, act="tanh")
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 4))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def losses(program: fluid.Program, loss: Any, steps: int = 3) -> list[float]:
    fluid.default_startup_program().random_seed = 1
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        return [exe.run(program, feed=FEED, fetch_list=[loss.name])[0].item() for _ in range(steps)]


def names(program: fluid.Program) -> set[str]:
    return {name for op in program.global_block().ops for name in op.output_arg_names}


def memory_optimized(**arguments: Any) -> tuple[fluid.Program, Any, list[float]]:
    loss = network()
    program = fluid.default_main_program()
    expected = losses(program.clone(), loss)
    assert fluid.memory_optimize(program, **arguments) is None  # type: ignore[func-returns-value]
    return program, loss, expected


@pytest.mark.parametrize("level", [0, 1])
def test_memory_is_reused_and_nothing_that_is_fetched_changes(level: int) -> None:
    loss = network()
    plain = len(names(fluid.default_main_program()))
    expected = losses(fluid.default_main_program().clone(), loss)
    fluid.memory_optimize(fluid.default_main_program(), level=level)
    assert len(names(fluid.default_main_program())) < plain
    assert losses(fluid.default_main_program(), loss) == expected


def test_the_arguments_by_position() -> None:
    loss = network()
    expected = losses(fluid.default_main_program().clone(), loss)
    fluid.transpiler.memory_optimize(fluid.default_main_program(), {loss.name}, False, 0, False)
    assert losses(fluid.default_main_program(), loss) == expected


@pytest.mark.parametrize("form", [set, list])
def test_what_is_skipped_keeps_its_name(form: type) -> None:
    program, _, _ = memory_optimized(skip_opt_set=form(["fc_1.tmp_0", "fc_1.tmp_1"]))
    assert {"fc_1.tmp_0", "fc_1.tmp_1"} <= names(program)


def test_skip_grads_leaves_the_gradients_of_parameters_alone() -> None:
    program, loss, expected = memory_optimized(skip_grads=True)
    assert {"fc_0.w_0@GRAD", "fc_1.w_0@GRAD", "fc_2.w_0@GRAD"} <= names(program)
    assert losses(program, loss) == expected


@pytest.mark.parametrize("print_log", [False, True])
def test_print_log_tells_each_reuse(print_log: bool, capsys: pytest.CaptureFixture[str]) -> None:
    memory_optimized(print_log=print_log)
    assert ("cache pool index" in capsys.readouterr().out) is print_log


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"level": 2}, ValueError, "only support opt_level 0 or 1"),
        ({"skip_opt_set": "loss"}, ValueError, "only support skip_opt_set as set"),
        ({"skip_opt_set": [3]}, TypeError, "skip_opt_set"),
    ],
)
def test_what_memory_optimize_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        memory_optimized(**arguments)


def test_release_memory_deletes_what_is_no_longer_used() -> None:
    loss = network()
    program = fluid.default_main_program()
    expected = losses(program.clone(), loss)
    assert fluid.release_memory(program) is None  # type: ignore[func-returns-value]
    deleted = {name for op in program.global_block().ops if op.type == "delete_var" for name in op.input("X")}
    assert "fc_0.tmp_0" in deleted and loss.name not in deleted and "fc_0.w_0" not in deleted
    assert losses(program, loss) == expected


def test_release_memory_leaves_alone_what_is_skipped() -> None:
    network()
    program = fluid.default_main_program()
    fluid.transpiler.release_memory(input_program=program, skip_opt_set={"fc_0.tmp_0"})
    deleted = {name for op in program.global_block().ops if op.type == "delete_var" for name in op.input("X")}
    assert deleted and "fc_0.tmp_0" not in deleted
