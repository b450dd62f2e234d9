"""Block 0 stays bound from run to run: what one run was given, or made, is never seen by the next."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import OperatorError, UninitializedError
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.block import BoundBlock
from fluidtool.runtime.scope import ScopeVariable
from fluidtool.tensor import LoDTensor

Array = np.ndarray[Any, Any]
X = np.array([[1.0, -2.0]], np.float32)
WEIGHT = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


class Small:
    """out = relu(x · weight) * 2 + free, `free` a name that the program does not declare."""

    def __init__(self) -> None:
        self.program, self.scope, self.executor = Program(), Scope(), Executor(engine="numpy")
        block = self.program.global_block()
        for name in ("x", "product", "positive", "scaled", "out", "free"):
            block.create_var(name=name, shape=[-1, 2], dtype=VarType.FP32, lod_level=1)
        block.create_var(name="weight", shape=[2, 2], dtype=VarType.FP32, persistable=True)
        block.append_op(type="mul", inputs={"X": ["x"], "Y": ["weight"]}, outputs={"Out": ["product"]})
        block.append_op(type="relu", inputs={"X": ["product"]}, outputs={"Out": ["positive"]})
        self.scale = block.append_op(
            type="scale", inputs={"X": ["positive"]}, outputs={"Out": ["scaled"]}, attrs={"scale": 2.0}
        )
        block.append_op(type="elementwise_add", inputs={"X": ["scaled"], "Y": ["free"]}, outputs={"Out": ["out"]})
        block.remove_var("free")
        self.put("weight", WEIGHT)
        self.put("free", np.zeros((1, 2), np.float32))

    def put(self, name: str, array: Array) -> None:
        self.scope.var(name).value = LoDTensor(array)

    def run(self, *fetches: str, **feed: Any) -> list[Any]:
        return self.executor.run(self.program, feed or {"x": X}, fetches or ("out",), self.scope)

    def out(self, **feed: Any) -> list[float]:
        return [float(number) for number in self.run(**feed)[0].numpy().reshape(-1)]

    def resting(self, *fetches: str) -> BoundBlock | None:
        return self.executor.plan(self.program, fetches or ("out",)).resting.get(self.scope)


def test_a_block_is_bound_once_for_runs_alike() -> None:
    small = Small()
    assert small.out() == [0, 0] and small.out(x=-X) == [10, 12]
    first = small.resting()
    assert small.out(x=np.ones((1, 2), np.float32)) == [8, 12]
    assert first is not None and small.resting() is first


def test_what_rests_holds_no_value_and_hangs_nowhere() -> None:
    small = Small()
    small.run()
    block = small.resting()
    assert block is not None and block.scope.parent is None and small.scope.kids == []
    assert {name for name in block.scope.local_var_names() if block.scope.var(name).value is not None} == set()


def test_a_value_that_was_fed_once_is_not_fed_again() -> None:
    small = Small()
    small.run()
    small.executor.run(small.program, {"x": X}, ["out"], small.scope)
    with pytest.raises(UninitializedError, match="variable x"):
        small.executor.run(small.program, {}, ["out"], small.scope)


def test_the_lod_of_a_run_is_not_that_of_the_next() -> None:
    small = Small()
    (with_lod,) = small.run("positive", x=LoDTensor(X, [[0, 1]]))
    (without,) = small.run("positive", x=X)
    assert with_lod.lod() == [[0, 1]] and without.lod() == []


def test_results_are_not_those_of_the_run_before() -> None:
    small = Small()
    (first,) = small.run(x=-X)
    small.run(x=X)
    np.testing.assert_array_equal(first.numpy(), [[10, 12]])


def test_a_block_is_bound_once_though_a_parameter_was_missing() -> None:
    small = Small()
    small.program.global_block().create_var(name="other", shape=[2], dtype=VarType.FP32, persistable=True)
    small.out()
    first = small.resting()
    small.out()
    assert first is not None and small.resting() is first


def test_a_value_that_goes_with_the_run_is_fetched_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    small, made = Small(), []
    put = ScopeVariable.set_tensor

    def noting(self: ScopeVariable, array: Any, offsets: Any) -> None:
        made.append((self.name, array.ctypes.data))
        put(self, array, offsets)

    monkeypatch.setattr(ScopeVariable, "set_tensor", noting)
    (out,) = small.run()
    assert ("out", out.array.ctypes.data) in made
    kept = out.numpy().copy()
    small.out(x=-X)
    np.testing.assert_array_equal(out.numpy(), kept)


def test_values_that_others_have_too_are_fetched_as_copies() -> None:
    small = Small()
    first, again = small.run("out", "out")
    (weight,) = small.run("weight")
    (fed,) = small.run("x")
    given = [(first.array, again.array), (weight.array, WEIGHT), (fed.array, X)]
    assert not any(np.shares_memory(*pair) for pair in given)


def test_other_fetches_are_bound_by_themselves() -> None:
    small = Small()
    assert [small.run("product")[0].numpy().tolist(), small.out(), small.run("product")[0].numpy().tolist()] == [
        [[-5, -6]],
        [0, 0],
        [[-5, -6]],
    ]
    assert small.resting() is not small.resting("product")


def test_a_changed_attribute_counts() -> None:
    small = Small()
    assert small.out(x=-X) == [10, 12]
    small.scale._set_attr("scale", 3.0)
    assert small.out(x=-X) == [15, 18]


def test_a_changed_block_counts() -> None:
    small = Small()
    assert small.out(x=-X) == [10, 12]
    block = small.program.global_block()
    block.append_op(type="scale", inputs={"X": ["out"]}, outputs={"Out": ["out"]}, attrs={"scale": -1.0})
    assert small.out(x=-X) == [-10, -12]
    block._remove_op(len(block.ops) - 1)
    assert small.out(x=-X) == [10, 12]


def test_another_value_of_a_parameter_counts() -> None:
    small = Small()
    assert small.out(x=-X) == [10, 12]
    small.put("weight", -WEIGHT)
    assert small.out(x=X) == [10, 12]
    small.scope.var("weight").get_tensor().set(WEIGHT * 2)
    assert small.out(x=-X) == [20, 24]


def test_another_variable_of_that_name_counts() -> None:
    small = Small()
    assert small.out(x=-X) == [10, 12]
    small.scope.erase(["weight"])
    small.put("weight", -WEIGHT)
    assert small.out(x=X) == [10, 12]


def test_a_parameter_that_is_fed_stays() -> None:
    small = Small()
    assert small.out(x=-X) == [10, 12]
    assert small.out(x=X, weight=-WEIGHT) == [10, 12]
    assert small.out(x=X) == [10, 12]


def test_a_name_that_is_fed_hides_the_one_in_the_scope_for_one_run() -> None:
    small = Small()
    assert small.out(x=-X) == [10, 12]
    assert small.out(x=-X, free=np.ones((1, 2), np.float32)) == [11, 13]
    assert small.out(x=-X) == [10, 12]


def test_each_scope_has_a_block_of_its_own() -> None:
    small = Small()
    below = small.scope.new_scope()
    below.var("free").value = LoDTensor(np.ones((1, 2), np.float32))

    def run(scope: Scope) -> list[list[float]]:
        found: list[list[float]] = small.executor.run(small.program, {"x": -X}, ["out"], scope)[0].numpy().tolist()
        return found

    assert [run(small.scope), run(below), run(small.scope)] == [[[10, 12]], [[11, 13]], [[10, 12]]]
    below.erase(["free"])
    assert run(below) == [[10, 12]]


def test_a_run_that_fails_leaves_nothing() -> None:
    small = Small()
    assert small.out(x=-X) == [10, 12]
    with pytest.raises(OperatorError, match="mul"):
        small.run(x=np.ones((1, 3), np.float32))
    assert small.resting() is None and small.scope.kids == []
    assert small.out(x=-X) == [10, 12]


def test_who_watches_steps_gets_a_block_of_his_own() -> None:
    small = Small()
    small.run()
    before, seen = small.resting(), []

    def watch(step: Any, block: int) -> None:
        seen.append(step.context)
        step.run()

    small.executor.run(small.program, {"x": -X}, ["out"], small.scope, observer=watch)
    assert small.resting() is before
    assert seen[-1].inputs["X"][0].name == "scaled" and seen[0].scope is not getattr(before, "scope", None)


def test_runs_at_the_same_time_do_not_meet() -> None:
    small = Small()
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            if small.out(x=-X * number) != [10 * number, 12 * number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and small.scope.kids == []


def test_random_numbers_go_on_and_come_from_the_generator_of_the_run() -> None:
    program = Program()
    block = program.global_block()
    block.create_var(name="out", shape=[3], dtype=VarType.FP32)
    block.append_op(
        type="uniform_random", inputs={}, outputs={"Out": ["out"]}, attrs={"shape": [3], "min": 0.0, "max": 1.0}
    )
    executor, scope = Executor(engine="numpy", seed=1), Scope()

    def draw(**more: Any) -> list[float]:
        found: list[float] = executor.run(program, {}, ["out"], scope, **more)[0].numpy().tolist()
        return found

    first, second = draw(), draw()
    assert first != second
    assert draw(generator=np.random.default_rng(7)) == draw(generator=np.random.default_rng(7))


def test_a_program_with_blocks_below_is_bound_anew() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        limit = fluid.layers.fill_constant([1], "int64", 3)
        count = fluid.layers.fill_constant([1], "int64", 0)
        more = fluid.layers.less_than(count, limit)
        with fluid.layers.While(more).block():
            fluid.layers.increment(count)
            fluid.layers.less_than(count, limit, cond=more)
    executor, scope = Executor(engine="numpy"), Scope()
    for _ in range(3):
        assert executor.run(main, {}, [count.name], scope)[0].numpy().tolist() == [3]
    assert scope not in executor.plan(main, [count.name]).resting


def test_a_scope_that_nobody_holds_is_not_kept() -> None:
    small = Small()
    small.run()
    assert small.resting() is not None
    gone = weakref.ref(small.scope)
    small.scope = Scope()
    gc.collect()
    assert gone() is None


def test_a_batch_of_another_size_counts() -> None:
    small = Small()
    for rows in (1, 3, 1):
        assert small.out(x=-np.repeat(X, rows, axis=0)) == [10, 12] * rows
    with pytest.raises(OperatorError, match=r"mul.*they must be equal"):
        small.run(x=np.ones((1, 3), np.float32))
