"""How much memory activations need: estimated from shapes, and measured in a run."""

from __future__ import annotations

import numpy as np
import pytest

from fluidtool.passes.memory_optimize import memory_optimize
from fluidtool.passes.peak import MemorySteps, MemoryUse, estimate, measure, memory_steps
from fluidtool.passes.release_memory import release_memory
from fluidtool.runtime import Executor
from fluidtool.runtime.memory import MemoryMeter
from fluidtool.tensor import LoDTensor
from tests.support.memory_programs import Net
from tests.support.random_programs import pick_from, random_program

ROW = 4 * 4  # bytes of a row of x


def test_every_variable_counts_with_its_batch() -> None:
    net = Net()
    net.chain("a", "b", "c")
    assert estimate(net.program) == MemoryUse(all_variables=4 * ROW, at_once=2 * ROW)
    assert estimate(net.program, batch=5) == MemoryUse(all_variables=20 * ROW, at_once=10 * ROW)


def test_shapes_of_inputs_say_more_than_the_batch() -> None:
    net = Net()
    net.chain("a")
    assert estimate(net.program, {"x": [7, 4]}) == MemoryUse(14 * ROW, 14 * ROW)


def test_parameters_do_not_count() -> None:
    net = Net()
    net.mul("x", net.parameter("w", 4, 100), "a")
    assert estimate(net.program).all_variables == ROW + 400


def test_what_is_needed_later_counts_until_then() -> None:
    net = Net()
    net.chain("a", "b", "c")
    net.op("elementwise_add", {"X": "a", "Y": "c"}, {"Out": "d"})
    assert estimate(net.program).at_once == 3 * ROW


def test_variables_of_a_loop_count_once_and_only_while_it_runs() -> None:
    net = Net()
    net.chain("out")
    with net.loop(3, reads=[], writes=["out"]):
        net.step("out", "p")
        net.op("assign", {"X": "p"}, {"Out": "out"})
    found = estimate(net.program)
    counters = 8 + 8 + 1  # index and bound int64, go_on bool
    assert found.all_variables == 3 * ROW + counters
    assert found.at_once == 2 * ROW + counters


def test_a_size_that_cannot_be_told_is_named() -> None:
    net = Net()
    net.step("x", "a", "unknown_operator")
    net.program.global_block().var("a").shape = None  # type: ignore[assignment]
    assert estimate(net.program).unknown == ("a",)


@pytest.mark.parametrize("level", [0, 1])
def test_shared_memory_counts_once_as_large_as_its_largest_user(level: int) -> None:
    net = Net()
    net.chain("a", "b", "c", "d")
    net.mul("d", net.parameter("w", 4, 8), "wide")
    net.step("wide", "result")
    before = MemoryUse(9 * ROW, 4 * ROW)
    assert estimate(net.program) == before
    memory_optimize(net.program, level=level)
    # level 0: x, one buffer of two users, another one, wide and result; level 1: x, wide, result
    after = {0: 7 * ROW, 1: 5 * ROW}[level]
    assert estimate(net.program) == MemoryUse(after, before.at_once)


def test_what_is_released_is_not_counted_afterwards() -> None:
    net = Net()
    net.chain("a", "b", "c")
    before = estimate(net.program)
    release_memory(net.program)
    assert estimate(net.program) == before


def test_memory_is_followed_operator_by_operator() -> None:
    net = Net()
    net.chain("a", "b", "c")
    kept = MemorySteps((2 * ROW, 3 * ROW, 4 * ROW), (2 * ROW, 2 * ROW, 2 * ROW))
    assert memory_steps(net.program) == kept
    release_memory(net.program)
    assert memory_steps(net.program).in_use == kept.in_use
    assert len(memory_steps(net.program).held) == 3 and max(memory_steps(net.program).held) < 4 * ROW


def test_a_measured_run_agrees_with_the_estimate() -> None:
    net = Net()
    net.chain("a", "b", "c")
    assert measure(net.program, net.feed(), net.scope(), ["c"]) == estimate(net.program, batch=3)


def test_a_measured_run_keeps_what_is_fetched() -> None:
    net = Net()
    net.chain("a", "b", "c", "d")
    assert measure(net.program, net.feed(), net.scope(), ["a", "d"]).at_once == 3 * 3 * ROW


def test_memory_that_variables_share_in_a_run_counts_once() -> None:
    net = Net()
    net.op("reshape2", {"X": "x"}, {"Out": "a", "XShape": "xshape"}, shape=[-1, 2, 2])
    found = measure(net.program, net.feed(), net.scope(), ["a"])
    assert found.at_once in (3 * ROW, 6 * ROW)  # a view, or a copy
    assert found.all_variables == 6 * ROW


def test_views_of_a_parameter_do_not_count() -> None:
    net = Net()
    net.parameter("w", 4, 4)
    scope = net.scope()
    scope.var("w").value = LoDTensor(np.zeros((4, 4), np.float32))
    net.op("reshape2", {"X": "w"}, {"Out": "a", "XShape": "xshape"}, shape=[2, 8])
    net.step("x", "b")
    found = measure(net.program, net.feed(), scope, ["b"])
    assert found.at_once <= 3 * ROW + 3 * ROW + 64


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_sharing_never_needs_more(seed: int, level: int) -> None:
    case = random_program(pick_from(seed), largest=20, trains=seed % 2 == 0)
    plain = measure(case.program, case.feeds, case.scope(), case.fetches)
    before = estimate(case.program)
    memory_optimize(case.program, set(case.fetches), level=level)
    after = estimate(case.program)
    shared = measure(case.program, case.feeds, case.scope(), case.fetches)
    assert after.all_variables <= before.all_variables
    assert after.at_once == before.at_once <= after.all_variables
    assert shared.at_once <= plain.at_once
    assert shared.all_variables <= plain.all_variables


def test_a_meter_changes_no_value() -> None:
    case = random_program(pick_from(3), largest=20)
    plain = case.run()
    meter = MemoryMeter()
    values = Executor(seed=5).run(case.program, case.feeds, case.fetches, case.scope(), observer=meter.observe)
    assert [value.numpy().tobytes() for value in values] == [array.tobytes() for array in plain[: len(values)]]
    assert meter.peak > 0
