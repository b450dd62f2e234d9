"""`ParallelExecutor`, `ExecutionStrategy` and `BuildStrategy` as documented, on CPU devices."""

from __future__ import annotations

from typing import Any

import numpy
import numpy as np
import pytest

import fluidtool.fluid as fluid


@pytest.fixture(autouse=True)
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")


def network() -> tuple[Any, fluid.Program]:
    x = fluid.layers.data("image", [4])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1))
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    return loss, test_program


def batch(size: int) -> dict[str, Any]:
    return {"image": np.arange(size * 4, dtype="float32").reshape(size, 4) / 10}


def test_the_example_of_training_and_testing() -> None:
    loss, test_program = network()
    feed_dict = batch(4)
    train_exe = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
    train_exe.run([loss.name], feed=feed_dict)
    test_exe = fluid.ParallelExecutor(use_cuda=False, main_program=test_program, share_vars_from=train_exe)

    (train_loss,) = train_exe.run([loss.name], feed=feed_dict)
    (test_loss,) = test_exe.run([loss.name], feed=feed_dict)
    assert train_loss.shape == test_loss.shape == (2,)
    assert (test_loss < train_loss).all()


def test_the_example_with_a_feeder() -> None:
    loss, _ = network()
    pe = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name, main_program=fluid.default_main_program())
    feeder = fluid.DataFeeder(["image"], fluid.CPUPlace())
    cur_batch = [([float(n)] * 4,) for n in range(4)]
    (loss_value,) = pe.run(feed=feeder.feed(cur_batch), fetch_list=[loss.name])
    assert loss_value.shape == (2,)


def rows_by_device(feed: Any, keyword: str = "feed") -> list[Any]:
    image = fluid.layers.data("image", [1, 28, 28])
    total = fluid.layers.reduce_sum(image, dim=[1, 2, 3])
    exe = fluid.ParallelExecutor(use_cuda=False)
    (out,) = exe.run([total.name], **{keyword: feed})
    return list(out.shape)


@pytest.mark.parametrize("keyword", ["feed", "feed_dict"])
def test_a_dict_is_split_over_the_devices(keyword: str) -> None:
    feed = {"image": numpy.random.random(size=(48, 1, 28, 28)).astype("float32")}
    assert rows_by_device(feed, keyword) == [48]


def test_a_list_gives_every_device_its_element() -> None:
    feed = [
        {"image": numpy.random.random(size=(48, 1, 28, 28)).astype("float32")},
        {"image": numpy.random.random(size=(32, 1, 28, 28)).astype("float32")},
    ]
    assert rows_by_device(feed) == [80]


def test_device_count() -> None:
    network()
    assert fluid.ParallelExecutor(use_cuda=False, loss_name="mean_0.tmp_0").device_count == 2


def test_return_numpy_false_gives_tensors() -> None:
    loss, _ = network()
    (out,) = fluid.ParallelExecutor(False, loss.name).run([loss.name], batch(4), return_numpy=False)
    assert isinstance(out, fluid.LoDTensor) and out.shape() == [2]


def test_bcast_params() -> None:
    loss, _ = network()
    exe = fluid.ParallelExecutor(False, loss.name)
    exe.run([loss.name], feed=batch(4))
    assert exe.bcast_params() is None  # type: ignore[func-returns-value]


def test_share_vars_from_is_a_parallel_executor() -> None:
    loss, _ = network()
    with pytest.raises(AssertionError, match="share_vars_from should be ParallelExecutor"):
        fluid.ParallelExecutor(False, loss.name, share_vars_from=fluid.Executor(fluid.CPUPlace()))  # type: ignore[arg-type]


def test_a_list_of_another_length_than_the_devices_is_a_value_error() -> None:
    loss, _ = network()
    with pytest.raises(ValueError, match="feed data number 1 does not match the device number 2"):
        fluid.ParallelExecutor(False, loss.name).run([loss.name], feed=[batch(4)])


def test_the_elements_of_a_list_are_dicts() -> None:
    """Documented as a ValueError, a TypeError in every version: it is both."""
    loss, _ = network()
    for error in (ValueError, TypeError):
        with pytest.raises(error, match="Each element of feed list should be a dict"):
            fluid.ParallelExecutor(False, loss.name).run([loss.name], feed=[batch(4), 3])  # type: ignore[list-item]


def test_fewer_samples_than_devices_are_refused() -> None:
    loss, _ = network()
    with pytest.raises(ValueError, match="less than the count"):
        fluid.ParallelExecutor(False, loss.name).run([loss.name], feed=batch(1))


@pytest.mark.parametrize(("num_trainers", "trainer_id"), [(1, 0), (1, 1)])
def test_one_trainer_trains_alone(num_trainers: int, trainer_id: int) -> None:
    loss, _ = network()
    exe = fluid.ParallelExecutor(False, loss.name, num_trainers=num_trainers, trainer_id=trainer_id)
    assert exe.run([loss.name], feed=batch(2))[0].shape == (2,)


def test_strategies_are_taken() -> None:
    loss, _ = network()
    execution, building = fluid.ExecutionStrategy(), fluid.BuildStrategy()
    execution.num_threads = 4
    building.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    building.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.One
    exe = fluid.ParallelExecutor(False, loss.name, exec_strategy=execution, build_strategy=building)
    assert exe.run([loss.name], feed=batch(2))[0].shape == (2,)


def test_settings_by_constructor_are_refused() -> None:
    loss, _ = network()
    with pytest.raises(ValueError, match="by constructor is deprecated"):
        fluid.ParallelExecutor(False, loss.name, num_threads=4)


@pytest.mark.skipif(fluid.core.is_compiled_with_cuda(), reason="there is a GPU, so use_cuda=True works")
def test_use_cuda_needs_a_gpu() -> None:
    with pytest.raises(RuntimeError, match="there is no GPU here"):
        fluid.ParallelExecutor(use_cuda=True)
