"""`fluid.Executor`, `global_scope`, `scope_guard`, `_switch_scope`, `fetch_var` and `Scope` as documented."""

from __future__ import annotations

import re
from typing import Any

import numpy
import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import Executor, core, default_startup_program, layers

CPU = fluid.CPUPlace()


# ---------------------------------------------------------------- as_lodtensor
def test_the_example_of_as_lodtensor() -> None:
    exe = fluid.Executor(fluid.CPUPlace())
    data = np.zeros((3, 200, 300))
    np_outs = [exe.as_lodtensor(x) for x in data]
    assert all(isinstance(out, fluid.LoDTensor) for out in np_outs)
    assert (np_outs[0].shape(), np_outs[0].lod()) == ([200, 300], [])


def test_the_lines_of_that_example_that_no_version_took_are_type_errors() -> None:
    """`fluid.executor` is a module, and numpy arrays have no `size=` to be made of."""
    with pytest.raises(TypeError, match="not callable"):
        fluid.executor(fluid.CPUPlace())  # type: ignore[operator]
    with pytest.raises(TypeError):
        np.array(size=(100, 200, 300))  # type: ignore[call-overload]


def test_as_lodtensor_refuses_lists() -> None:
    with pytest.raises((TypeError, RuntimeError), match="hold LoD information"):
        Executor(CPU).as_lodtensor([np.zeros(2), np.zeros(3)])


# ---------------------------------------------------------------- run
def test_the_example() -> None:
    out = fluid.default_main_program().global_block().create_var(name="out", shape=[-1, 10], dtype="float32")
    data = layers.data(name="X", shape=[1], dtype="float32")
    hidden = layers.fc(input=data, size=10)
    layers.assign(hidden, out)
    loss = layers.mean(out)
    adam = fluid.optimizer.Adam()
    adam.minimize(loss)
    cpu = core.CPUPlace()
    exe = Executor(cpu)
    exe.run(default_startup_program())
    x = numpy.random.random(size=(10, 1)).astype("float32")
    outs = exe.run(feed={"X": x}, fetch_list=[loss.name])
    assert len(outs) == 1 and outs[0].shape == (1,) and outs[0].dtype == numpy.float32


def _doubling() -> tuple[Any, dict[str, Any]]:
    x = layers.data("x", [2])
    return layers.scale(x, scale=2.0), {"x": np.ones((1, 2), "float32")}


@pytest.mark.parametrize("form", ["variable", "name"])
def test_the_fetch_list_takes_variables_and_names(form: str) -> None:
    y, feed = _doubling()
    (out,) = Executor(CPU).run(feed=feed, fetch_list=[y if form == "variable" else y.name])
    assert out.tolist() == [[2, 2]]


def test_results_come_in_the_order_of_the_fetch_list() -> None:
    y, feed = _doubling()
    outs = Executor(CPU).run(feed=feed, fetch_list=[y, "x", y])
    assert [out.tolist() for out in outs] == [[[2, 2]], [[1, 1]], [[2, 2]]]


def test_the_program_defaults_to_the_main_program_and_may_be_named() -> None:
    y, feed = _doubling()
    for program in (None, fluid.default_main_program()):
        assert Executor(CPU).run(program=program, feed=feed, fetch_list=[y])[0].tolist() == [[2, 2]]


def test_the_names_of_the_feed_and_fetch_holders_may_be_chosen() -> None:
    y, feed = _doubling()
    (out,) = Executor(CPU).run(feed=feed, fetch_list=[y], feed_var_name="in", fetch_var_name="out")
    assert out.tolist() == [[2, 2]]


def test_the_scope_holds_what_persists() -> None:
    layers.fc(layers.data("x", [2]), 1, param_attr="w", bias_attr=False)
    scope = fluid.Scope()
    exe = Executor(CPU)
    exe.run(default_startup_program(), scope=scope)
    assert scope.find_var("w").get_tensor().shape() == [2, 1]  # type: ignore[union-attr]
    assert fluid.global_scope().find_var("w") is None
    exe.run(feed={"x": np.ones((1, 2), "float32")}, scope=scope)
    assert scope.find_var("fc_0.tmp_0") is None


def test_return_numpy_false_gives_tensors() -> None:
    y, feed = _doubling()
    (out,) = Executor(CPU).run(feed=feed, fetch_list=[y], return_numpy=False)
    assert isinstance(out, fluid.LoDTensor) and out.shape() == [1, 2]


def test_return_numpy_refuses_sequences() -> None:
    x = layers.data("x", [1], lod_level=1)
    y = layers.scale(x, scale=2.0)
    feed = {"x": fluid.create_lod_tensor(np.ones((3, 1), "float32"), [[1, 2]], CPU)}
    with pytest.raises(RuntimeError, match="set the parameter 'return_numpy' as 'False'"):
        Executor(CPU).run(feed=feed, fetch_list=[y])
    (out,) = Executor(CPU).run(feed=feed, fetch_list=[y], return_numpy=False)
    assert out.recursive_sequence_lengths() == [[1, 2]]


def test_use_program_cache_gives_the_same_numbers() -> None:
    y, feed = _doubling()
    exe = Executor(CPU)
    for _ in range(3):
        assert exe.run(feed=feed, fetch_list=[y], use_program_cache=True)[0].tolist() == [[2, 2]]
    layers.scale(y, scale=3.0, name="more")
    assert exe.run(feed=feed, fetch_list=["more.tmp_0"], use_program_cache=True)[0].tolist() == [[6, 6]]


def test_all_operators_run_not_those_alone_that_the_fetches_need() -> None:
    counter = layers.create_global_var([1], 0.0, "float32", persistable=True, name="counter")
    layers.increment(counter)
    y, feed = _doubling()
    exe = Executor(CPU)
    exe.run(default_startup_program())
    for _ in range(3):
        exe.run(feed=feed, fetch_list=[y])
    assert fluid.fetch_var("counter").tolist() == [3]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"program": "main"}, TypeError, "requires Program as its Parameter"),
        ({"feed": 3}, TypeError, "feed requires dict as its Parameter"),
        ({"fetch_list": [3]}, TypeError, "fetch_list should be str or Variable"),
        ({"fetch_list": ["nosuch"]}, ValueError, "nosuch"),
        ({"feed": {}}, RuntimeError, "x"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    y, feed = _doubling()
    with pytest.raises(error, match=message):
        Executor(CPU).run(**{"feed": feed, "fetch_list": [y], **arguments})


def test_a_closed_executor_runs_no_more() -> None:
    exe = Executor(CPU)
    exe.close()
    with pytest.raises((RuntimeError, TypeError), match="Attempted to use a closed Executor"):
        exe.run(default_startup_program())


# ---------------------------------------------------------------- scopes
def test_global_scope_is_where_runs_keep_things() -> None:
    layers.create_global_var([1], 5.0, "float32", persistable=True, name="kept")
    Executor(CPU).run(default_startup_program())
    assert np.array(fluid.global_scope().find_var("kept").get_tensor()).tolist() == [5]  # type: ignore[union-attr]


def test_scope_guard() -> None:
    before = fluid.global_scope()
    new_scope = fluid.Scope()
    with fluid.scope_guard(new_scope):
        assert fluid.global_scope() is new_scope
    assert fluid.global_scope() is before
    with pytest.raises(KeyError), fluid.scope_guard(scope=new_scope):
        raise KeyError
    assert fluid.global_scope() is before


def test_switch_scope_returns_the_one_before() -> None:
    before, scope = fluid.global_scope(), fluid.Scope()
    assert fluid._switch_scope(scope) is before
    assert fluid._switch_scope(before) is scope


def test_scope_guard_takes_scopes() -> None:
    with pytest.raises(TypeError, match="Scope"), fluid.scope_guard("scope"):  # type: ignore[arg-type]
        pass


def test_fetch_var() -> None:
    scope = fluid.Scope()
    scope.var("x").get_tensor().set(np.array([1.5], "float32"), CPU)
    assert fluid.fetch_var("x", scope=scope).tolist() == [1.5]
    tensor = fluid.fetch_var("x", scope, return_numpy=False)
    assert isinstance(tensor, fluid.LoDTensor) and tensor.shape() == [1]
    with fluid.scope_guard(scope):
        assert fluid.fetch_var("x").tolist() == [1.5]


def test_fetch_var_of_an_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"Cannot find x in scope. Perhaps you need to make the variable persistable"):
        fluid.fetch_var("x")


def test_a_scope_creates_and_finds_variables() -> None:
    scope = fluid.Scope()
    assert scope.find_var("x") is None
    var = scope.var("x")
    assert scope.find_var("x") is var is scope.var("x")


def test_a_child_scope_finds_the_parents_variables() -> None:
    scope = fluid.Scope()
    var = scope.var("x")
    kid = scope.new_scope()
    assert isinstance(kid, fluid.Scope) and kid.find_var("x") is var
    own = kid.var("x")
    assert own is not var and kid.find_var("x") is own and scope.find_var("x") is var
    kid.var("y")
    assert scope.find_var("y") is None
    assert scope.drop_kids() is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize("value", [2, 2.0, np.float64(2.0)])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_number_is_fed_in_the_data_type_of_its_variable(value: Any, compiled: bool) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        doubled = fluid.layers.scale(fluid.data("x", [1], "float32"), 2.0)
    program = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()]) if compiled else main
    (fetched,) = fluid.Executor().run(program, feed={"x": value}, fetch_list=[doubled])
    assert (fetched.dtype, fetched.tolist()) == (np.float32, [4.0])


def test_a_number_alone_has_no_data_type() -> None:
    with pytest.raises(AssertionError, match="dtype should be given"):
        fluid.executor._as_lodtensor(1, fluid.CPUPlace())


def test_the_rows_of_a_device_are_checked() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        doubled = fluid.layers.scale(fluid.data("x", [1, 2], "float32"), 2.0)
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    (fetched,) = fluid.Executor().run(compiled, feed={"x": np.ones((2, 2), "float32")}, fetch_list=[doubled])
    assert fetched.shape == (2, 2)
    with pytest.raises(ValueError, match=r"received fed shape \[2, 2\] on each device"):
        fluid.Executor().run(compiled, feed={"x": np.ones((4, 2), "float32")}, fetch_list=[doubled])


def test_the_rows_left_for_the_last_device_are_checked() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        doubled = fluid.layers.scale(fluid.data("x", [3, None], "float32"), 2.0)
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    with pytest.raises(ValueError, match=r"received fed shape \[2, 2\] on each device"):
        fluid.Executor().run(compiled, feed={"x": np.ones((5, 2), "float32")}, fetch_list=[doubled])


@pytest.mark.parametrize("shape", [(5, 3), (5, 2, 1)])
def test_all_but_the_rows_of_sequences_is_checked(shape: tuple[int, ...]) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        summed = fluid.layers.sequence_pool(fluid.data("x", [3, 2], "float32", lod_level=1), "sum")
    fed = fluid.create_lod_tensor(np.ones((5, 2), "float32"), [[2, 3]], fluid.CPUPlace())
    (fetched,) = fluid.Executor().run(main, feed={"x": fed}, fetch_list=[summed])
    assert fetched.tolist() == [[2, 2], [3, 3]]
    wrong = fluid.create_lod_tensor(np.ones(shape, "float32"), [[2, 3]], fluid.CPUPlace())
    found = re.escape(str([-1, *shape[1:]]))
    with pytest.raises(ValueError, match=f"received fed shape {found} on each device"):
        fluid.Executor().run(main, feed={"x": wrong}, fetch_list=[summed])
