"""Arrays that numpy 2 makes wider are fed to old scripts' variables as these are declared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.compat.removed.feeds import meets_narrow, narrow_feeds
from fluidtool.compat.removed.notes import Notes
from fluidtool.errors import FeedError, OperatorError

WIDE = np.ones([2, 3])
NOTE = "note: x was fed as float64, as numpy 2 makes it; fluidtool feeds float32, as it is declared\n"


@pytest.fixture
def exe() -> Iterator[fluid.Executor]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield fluid.Executor(fluid.CPUPlace())


def dense(exe: fluid.Executor, x: fluid.Variable) -> fluid.Variable:
    """A layer with parameters, initialized."""
    out = fluid.layers.fc(fluid.layers.reshape(x, [-1, 3]), 2)
    exe.run(fluid.default_startup_program())
    return out


def test_float64_is_fed_as_float32_once_noted(exe: fluid.Executor, capsys: pytest.CaptureFixture[str]) -> None:
    out = dense(exe, fluid.data("x", [None, 3], "float32"))
    with narrow_feeds(Notes()):
        for _ in range(2):
            assert exe.run(feed={"x": WIDE}, fetch_list=[out])[0].dtype == np.float32
    assert capsys.readouterr().err == NOTE


def test_a_variable_without_a_check_is_fed_so_where_an_operator_would_fail(exe: fluid.Executor) -> None:
    x = fluid.layers.data("x", [3], "float32")
    out = dense(exe, x)
    assert meets_narrow(fluid.default_main_program(), x)
    with narrow_feeds(Notes()):
        assert exe.run(feed={"x": WIDE}, fetch_list=[out])[0].dtype == np.float32


def test_where_paddle_computes_with_float64_it_stays(exe: fluid.Executor, capsys: pytest.CaptureFixture[str]) -> None:
    x = fluid.layers.data("x", [3], "float32")
    out = fluid.layers.reduce_sum(fluid.layers.reshape(x, [-1]))
    assert not meets_narrow(fluid.default_main_program(), x)
    with narrow_feeds(Notes()):
        assert exe.run(feed={"x": WIDE}, fetch_list=[out])[0].dtype == np.float64
    assert capsys.readouterr().err == ""


def test_a_tensor_keeps_its_lod(exe: fluid.Executor) -> None:
    out = fluid.layers.sequence_pool(fluid.data("x", [None, 3], "float32", lod_level=1), "sum")
    tensor = fluid.create_lod_tensor(np.ones([3, 3]), [[1, 2]], fluid.CPUPlace())
    with narrow_feeds(Notes()):
        (found,) = exe.run(feed={"x": tensor}, fetch_list=[out])
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 1, 1], [2, 2, 2]]


def test_each_device_and_a_parallel_executor_are_fed_so(exe: fluid.Executor) -> None:
    out = dense(exe, fluid.data("x", [None, 3], "float32"))
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    with narrow_feeds(Notes()):
        (both,) = exe.run(compiled, feed=[{"x": WIDE}, {"x": WIDE}], fetch_list=[out])
        (one,) = fluid.ParallelExecutor(False).run([out.name], feed={"x": WIDE})
    assert both.dtype == one.dtype == np.float32


def test_int64_is_fed_as_int32(exe: fluid.Executor) -> None:
    ids = fluid.data("ids", [None, 1], "int32")
    with narrow_feeds(Notes()):
        assert exe.run(feed={"ids": np.ones([2, 1], np.int64)}, fetch_list=[fluid.layers.cast(ids, "int64")])


@pytest.mark.parametrize(("dtype", "fed"), [("int64", np.ones([2, 1])), ("float64", np.ones([2, 1], np.float32))])
def test_other_types_are_refused_as_ever(exe: fluid.Executor, dtype: str, fed: np.ndarray) -> None:
    x = fluid.data("x", [None, 1], dtype)
    with narrow_feeds(Notes()), pytest.raises(FeedError, match="must be"):
        exe.run(feed={"x": fed}, fetch_list=[x])


def test_beyond_the_block_everything_is_as_before(exe: fluid.Executor) -> None:
    checked = fluid.data("x", [None, 3], "float32")
    with narrow_feeds(Notes()):
        pass
    with pytest.raises(FeedError, match="must be 'float32'"):
        exe.run(feed={"x": WIDE}, fetch_list=[checked])
    out = dense(exe, fluid.layers.data("y", [3], "float32"))
    with pytest.raises(OperatorError, match="float64"):
        exe.run(feed={"x": WIDE.astype(np.float32), "y": WIDE}, fetch_list=[out])
