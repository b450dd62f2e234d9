"""`paddle.static.CompiledProgram` as documented for Paddle 2, and the other names of Paddle 2 that its examples use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.compat import install
from tests.cli.support import process


@pytest.fixture
def paddle() -> Iterator[ModuleType]:
    with install():
        import paddle  # type: ignore[import-not-found]
        import paddle.static  # type: ignore[import-not-found]

        paddle.enable_static()
        yield paddle


COMPILED = """
import numpy
import paddle
import paddle.static as static

paddle.enable_static()

place = paddle.CPUPlace()
exe = static.Executor(place)

data = static.data(name='X', shape=[None, 1], dtype='float32')
hidden = static.nn.fc(x=data, size=10)
loss = paddle.mean(hidden)
paddle.optimizer.SGD(learning_rate=0.01).minimize(loss)

exe.run(static.default_startup_program())
compiled_prog = static.CompiledProgram(
    static.default_main_program())

x = numpy.random.random(size=(10, 1)).astype('float32')
loss_data, = exe.run(compiled_prog,
                    feed={"X": x},
                    fetch_list=[loss.name])
print(loss_data.shape)
"""

DATA_PARALLEL = """
import numpy
import os
import paddle
import paddle.static as static

paddle.enable_static()

use_cuda = False
place = paddle.CUDAPlace(0) if use_cuda else paddle.CPUPlace()
parallel_places = [paddle.CUDAPlace(0), paddle.CUDAPlace(1)] if use_cuda else [paddle.CPUPlace()] * 2

if not use_cuda:
    os.environ['CPU_NUM'] = str(2)

exe = static.Executor(place)

data = static.data(name='X', shape=[None, 1], dtype='float32')
hidden = static.nn.fc(x=data, size=10)
loss = paddle.mean(hidden)

test_program = static.default_main_program().clone(for_test=True)
paddle.optimizer.SGD(learning_rate=0.01).minimize(loss)

exe.run(static.default_startup_program())
compiled_train_prog = static.CompiledProgram(
    static.default_main_program()).with_data_parallel(
            loss_name=loss.name, places=parallel_places)
# NOTE: if not set share_vars_from=compiled_train_prog,
# the parameters used in test process are different with
# the parameters used by train process
compiled_test_prog = static.CompiledProgram(
    test_program).with_data_parallel(
            share_vars_from=compiled_train_prog,
            places=parallel_places)

train_data = numpy.random.random(size=(10, 1)).astype('float32')
loss_data, = exe.run(compiled_train_prog,
                feed={"X": train_data},
                fetch_list=[loss.name])
test_data = numpy.random.random(size=(10, 1)).astype('float32')
loss_data, = exe.run(compiled_test_prog,
                feed={"X": test_data},
                fetch_list=[loss.name])
print(loss_data.shape)
"""


@pytest.mark.parametrize(("script", "printed"), [(COMPILED, "(1,)\n"), (DATA_PARALLEL, "(2,)\n")])
def test_an_example_as_a_script(tmp_path: Path, script: str, printed: str) -> None:
    """On the CPU, as the examples offer it in their comments."""
    (tmp_path / "script.py").write_text(script)
    done = process("exec", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout.decode()) == (0, printed), done.stderr.decode()


@pytest.mark.skipif(fluid.core.is_compiled_with_cuda(), reason="there is a GPU, so the example runs on it")
def test_the_example_on_a_gpu_that_is_not_there_says_so(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(COMPILED.replace("paddle.CPUPlace()", "paddle.CUDAPlace(0)"))
    done = process("exec", "script.py", cwd=tmp_path)
    assert done.returncode == 2 and "script.py, line " in done.stderr.decode() and "CUDAPlace" in done.stderr.decode()


def network(paddle: Any) -> tuple[Any, Any, Any]:
    """(executor, loss, test program) of the examples."""
    static = paddle.static
    exe = static.Executor(paddle.CPUPlace())
    data = static.data(name="X", shape=[None, 1], dtype="float32")
    loss = paddle.mean(static.nn.fc(x=data, size=10))
    test_program = static.default_main_program().clone(for_test=True)
    paddle.optimizer.SGD(learning_rate=0.01).minimize(loss)
    exe.run(static.default_startup_program())
    return exe, loss, test_program


FEED = {"X": np.arange(10, dtype="float32").reshape(10, 1)}


def test_a_program_is_taken_by_either_argument(paddle: Any) -> None:
    exe, loss, _ = network(paddle)
    program = paddle.static.default_main_program()
    strategy = paddle.static.BuildStrategy()
    compiled = paddle.static.CompiledProgram(program_or_graph=program, build_strategy=strategy)
    assert exe.run(compiled, feed=FEED, fetch_list=[loss])[0].shape == (1,)


def test_only_programs_are_taken(paddle: Any) -> None:
    with pytest.raises(TypeError, match="expected Graph or Program"):
        paddle.static.CompiledProgram("program")


def test_with_data_parallel_returns_the_compiled_program(paddle: Any) -> None:
    _, loss, _ = network(paddle)
    compiled = paddle.static.CompiledProgram(paddle.static.default_main_program())
    assert compiled.with_data_parallel(loss.name) is compiled


def test_the_strategies_of_with_data_parallel_win(paddle: Any) -> None:
    """Scale One doubles the gradient of two devices; the strategy of the constructor is overwritten."""
    exe, loss, _ = network(paddle)
    one = paddle.static.BuildStrategy()
    one.gradient_scale_strategy = paddle.static.BuildStrategy.GradientScaleStrategy.One
    compiled = paddle.static.CompiledProgram(paddle.static.default_main_program(), paddle.static.BuildStrategy())
    compiled.with_data_parallel(
        loss_name=loss.name,
        build_strategy=one,
        exec_strategy=paddle.static.ExecutionStrategy(),
        places=[paddle.CPUPlace()] * 2,
    )
    (gradient,) = exe.run(compiled, feed=FEED, fetch_list=["fc_0.b_0@GRAD"], return_merged=False)
    np.testing.assert_allclose(np.array(gradient[0]), np.full(10, 2 / 10), rtol=1e-5)


@pytest.mark.parametrize("places", [["cpu", "cpu"], "place objects"])
def test_places_may_be_text(paddle: Any, places: Any) -> None:
    exe, loss, _ = network(paddle)
    places = [paddle.CPUPlace()] * 2 if places == "place objects" else places
    program = paddle.static.CompiledProgram(paddle.static.default_main_program())
    compiled = program.with_data_parallel(loss.name, places=places)
    assert exe.run(compiled, feed=FEED, fetch_list=[loss])[0].shape == (2,)


@pytest.mark.parametrize("places", [["cpu", "tpu:0"], ["gpu:x"]])
def test_another_text_is_no_place(paddle: Any, places: Any) -> None:
    _, loss, _ = network(paddle)
    with pytest.raises(ValueError, match="'cpu', 'gpu' or 'gpu:0'"):
        paddle.static.CompiledProgram(paddle.static.default_main_program()).with_data_parallel(loss.name, places=places)


def test_without_places_cpu_num_says_how_many(paddle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exe, loss, _ = network(paddle)
    monkeypatch.setenv("CPU_NUM", "4")
    compiled = paddle.static.CompiledProgram(paddle.static.default_main_program()).with_data_parallel(loss.name)
    assert exe.run(compiled, feed=FEED, fetch_list=[loss])[0].shape == (4,)


def test_without_cpu_num_there_is_one_device_and_cpu_num_is_set(paddle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exe, loss, _ = network(paddle)
    monkeypatch.delenv("CPU_NUM", raising=False)
    compiled = paddle.static.CompiledProgram(paddle.static.default_main_program()).with_data_parallel(loss.name)
    assert exe.run(compiled, feed=FEED, fetch_list=[loss])[0].shape == (1,)
    assert os.environ["CPU_NUM"] == "1"


def test_shared_variables_follow_the_training(paddle: Any) -> None:
    exe, loss, test_program = network(paddle)
    places = [paddle.CPUPlace()] * 2
    compiled = paddle.static.CompiledProgram
    train = compiled(paddle.static.default_main_program()).with_data_parallel(loss.name, places=places)
    test = compiled(test_program).with_data_parallel(share_vars_from=train, places=places)
    with pytest.raises(ValueError, match="not compiled and executed"):
        exe.run(test, feed=FEED, fetch_list=[loss])
    losses = []
    for _ in range(3):
        exe.run(train, feed=FEED, fetch_list=[loss])
        losses.append(float(exe.run(test, feed=FEED, fetch_list=[loss])[0].mean()))
    assert losses[0] > losses[1] > losses[2]


def test_training_needs_the_name_of_the_loss(paddle: Any) -> None:
    network(paddle)
    with pytest.raises((ValueError, AssertionError), match="The loss name of CompiledProgram is None"):
        paddle.static.CompiledProgram(paddle.static.default_main_program()).with_data_parallel()


# ---------------------------------------------------------------- the names around
def test_static_data_and_fc(paddle: Any) -> None:
    data = paddle.static.data("x", [None, 3], "int64", lod_level=1)
    assert (data.shape, data.dtype, data.lod_level) == ((-1, 3), fluid.core.VarDesc.VarType.INT64, 1)
    assert paddle.static.data("y", [-1, 4]).dtype == fluid.core.VarDesc.VarType.FP32
    out = paddle.static.nn.fc(
        x=paddle.static.data("z", [2, 3, 4]),
        size=5,
        num_flatten_dims=2,
        weight_attr=paddle.ParamAttr(name="w"),
        bias_attr=False,
        activation="relu",
        name="layer",
    )
    assert out.shape == (2, 3, 5) and [p.name for p in out.block.program.all_parameters()] == ["w"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [2.5]),
        ({"axis": 0}, [2, 3]),
        ({"axis": 1, "keepdim": True}, [[1.5], [3.5]]),
    ],
)
def test_mean(paddle: Any, arguments: dict[str, Any], expected: Any) -> None:
    x = paddle.static.data("x", [2, 2])
    (out,) = paddle.static.Executor(paddle.CPUPlace()).run(
        feed={"x": np.array([[1, 2], [3, 4]], "float32")}, fetch_list=[paddle.mean(x, **arguments)]
    )
    np.testing.assert_allclose(out, expected)


def test_models_are_saved_and_loaded(paddle: Any, tmp_path: Path) -> None:
    static = paddle.static
    exe = static.Executor()
    x = static.data("X", [None, 3])
    y = static.nn.fc(x, 2)
    exe.run(static.default_startup_program())
    static.save_inference_model(str(tmp_path / "model"), [x], [y], exe)
    assert sorted(os.listdir(tmp_path)) == ["model.pdiparams", "model.pdmodel"]
    feed = {"X": np.ones((2, 3), "float32")}
    before = exe.run(feed=feed, fetch_list=[y])[0]
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(str(tmp_path / "model"), exe)
        assert feeds == ["X"]
        np.testing.assert_array_equal(exe.run(program, feed=feed, fetch_list=fetches)[0], before)


def test_places(paddle: Any) -> None:
    assert isinstance(paddle.CPUPlace(), fluid.CPUPlace) and paddle.CUDAPlace(1) == fluid.CUDAPlace(1)


def test_sgd_takes_the_arguments_of_paddle_2(paddle: Any) -> None:
    x = paddle.static.data("x", [None, 2])
    loss = paddle.mean(paddle.static.nn.fc(x, 1, weight_attr="w", bias_attr=False))
    sgd = paddle.optimizer.SGD(learning_rate=0.5, parameters=["w"], weight_decay=0.1, grad_clip=None, name="mine")
    operators, pairs = sgd.minimize(loss)
    assert [op.type for op in operators] == ["sgd"] and pairs[0][0].name == "w"


def test_dynamic_graphs_are_refused(paddle: Any) -> None:
    with pytest.raises(NotImplementedError, match="dynamic graphs are not supported"):
        paddle.disable_static()


@pytest.mark.parametrize(
    "name", ["ExponentialMovingAverage", "InputSpec", "Print", "accuracy", "auc", "create_parameter", "py_func", "save"]
)
def test_static_offers_the_names_that_fluid_has(paddle: Any, name: str) -> None:
    assert callable(getattr(paddle.static, name)) and name in paddle.static.__all__


@pytest.mark.parametrize("name", ["conv2d", "cond", "while_loop", "sequence_pool", "prelu", "nce", "py_func"])
def test_static_nn_offers_the_layers_of_fluid(paddle: Any, name: str) -> None:
    assert getattr(paddle.static.nn, name) is getattr(fluid.layers, name)
