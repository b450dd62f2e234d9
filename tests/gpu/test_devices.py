"""Several devices of one process: values go to the device of the run, and every thread computes on its own GPU."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import DeviceError
from fluidtool.runtime import Scope

CPU, GPU, OTHER_GPU = fluid.CPUPlace(), fluid.CUDAPlace(0), fluid.CUDAPlace(1)
X = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4)
pytestmark = pytest.mark.usefixtures("cupy")


class Network:
    """A regression with batch normalization; its parameters start alike on all devices."""

    def __init__(self, sparse: bool = False) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = fluid.layers.data("x", [4])
            constant = fluid.initializer.ConstantInitializer(0.3)
            y = fluid.layers.fc(x, 3, param_attr=fluid.ParamAttr("w", constant), act="tanh")
            if sparse:
                rows = fluid.layers.embedding(
                    fluid.layers.data("ids", [1], dtype="int64"),
                    [5, 3],
                    is_sparse=True,
                    param_attr=fluid.ParamAttr("table", constant),
                )
                y = fluid.layers.elementwise_mul(y, rows)
            y = fluid.layers.batch_norm(y, moving_mean_name="mean", moving_variance_name="variance")
            self.loss = fluid.layers.mean(fluid.layers.square(y - 0.5) * x[:, :3])
            self.test = self.main.clone(for_test=True)
            fluid.optimizer.Adam(0.1).minimize(self.loss)

    def started(self, place: Any) -> Scope:
        """A scope with its parameters."""
        scope = Scope()
        fluid.Executor(place).run(self.startup, scope=scope)
        return scope

    def losses(self, places: list[Any], scope: Scope, feed: dict[str, Any], steps: int = 3) -> Any:
        """Training steps on several devices; the losses of each device."""
        compiled = fluid.CompiledProgram(self.main).with_data_parallel(loss_name=self.loss.name, places=places)
        executor = fluid.Executor(places[0])
        with fluid.scope_guard(scope):
            return np.array([executor.run(compiled, feed, [self.loss])[0] for _ in range(steps)])


def tensor(scope: Scope, name: str) -> Any:
    found = scope.find_var(name)
    assert found is not None
    return found.get_tensor()


@pytest.mark.parametrize(("startup", "main"), [(CPU, GPU), (GPU, CPU), (GPU, OTHER_GPU), (OTHER_GPU, GPU)])
def test_parameters_go_to_the_device_of_the_run(startup: Any, main: Any) -> None:
    network = Network()
    scope = network.started(startup)

    loss = fluid.Executor(main).run(network.main, {"x": X}, [network.loss], scope=scope)

    expected = fluid.Executor(CPU).run(network.main, {"x": X}, [network.loss], scope=network.started(CPU))
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert tensor(scope, "w").place() == main


@pytest.mark.parametrize("place", [CPU, OTHER_GPU])
def test_tensors_are_set_on_any_device(place: Any) -> None:
    network = Network()
    scope = network.started(GPU)
    tensor(scope, "w").set(np.zeros((4, 3), "float32"), place)
    assert tensor(scope, "w").place() == place

    fluid.Executor(GPU).run(network.test, {"x": X}, [network.loss], scope=scope)

    assert tensor(scope, "w").place() == GPU
    assert not tensor(scope, "w").numpy().any()


def test_feeds_of_another_device_are_moved() -> None:
    network = Network()
    scope, feed = network.started(GPU), fluid.LoDTensor()
    feed.set(X, OTHER_GPU)

    (loss,) = fluid.Executor(GPU).run(network.test, {"x": feed}, [network.loss], scope=scope)

    (expected,) = fluid.Executor(GPU).run(network.test, {"x": X}, [network.loss], scope=scope)
    assert loss == expected


def test_every_thread_computes_on_the_gpu_of_its_executor() -> None:
    network, found = Network(), {}
    executors = {place: fluid.Executor(place) for place in (GPU, OTHER_GPU)}

    def train(place: Any) -> None:
        scope = Scope()
        executors[place].run(network.startup, scope=scope)
        executors[place].run(network.main, {"x": X}, [network.loss], scope=scope)
        found[place] = tensor(scope, "w").place()

    threads = [threading.Thread(target=train, args=[place]) for place in executors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {GPU: GPU, OTHER_GPU: OTHER_GPU}


@pytest.mark.parametrize("switch", ["0", "1"], ids=["cupy", "graphs"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_two_gpus_train_as_two_processors(sparse: bool, switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight rows each: normalized over two, results are 1 and -1, and gradients no more than what rounding leaves."""
    monkeypatch.setenv("FLUIDTOOL_NCCL", switch)
    network, rows = Network(sparse), np.random.default_rng(1)
    feed: dict[str, Any] = {"x": rows.standard_normal((16, 4)).astype("float32")}
    if sparse:
        feed["ids"] = rows.integers(0, 5, (16, 1))
    gpus, processors = network.started(GPU), network.started(CPU)

    losses = network.losses([GPU, OTHER_GPU], gpus, feed)

    np.testing.assert_allclose(losses, network.losses([CPU, CPU], processors, feed), rtol=1e-5)
    for name in ("w", "mean", *(["table"] if sparse else [])):
        np.testing.assert_allclose(tensor(gpus, name).numpy(), tensor(processors, name).numpy(), rtol=1e-5, atol=1e-7)
        assert tensor(gpus, name).place() == GPU


def test_another_gpu_copies_parameters_once_until_they_change() -> None:
    network = Network()
    scope = network.started(GPU)
    compiled = fluid.CompiledProgram(network.test).with_data_parallel(places=[GPU, OTHER_GPU])
    executor = fluid.Executor(GPU)

    def copy() -> Any:
        with fluid.scope_guard(scope):
            executor.run(compiled, {"x": X}, [network.loss])
        return tensor(compiled._running().scopes[1], "w").array

    first, second = copy(), copy()
    tensor(scope, "w").set(np.ones((4, 3), "float32"), GPU)
    third = copy()

    assert first is second
    assert first.device.id == 1
    assert third is not first
    assert third.get().all()


def test_broadcasting_gives_every_gpu_the_variables_of_the_first() -> None:
    network = Network()
    scope, executor = network.started(GPU), fluid.Executor(GPU)
    compiled = fluid.CompiledProgram(network.main).with_data_parallel(
        loss_name=network.loss.name, places=[GPU, OTHER_GPU]
    )
    with fluid.scope_guard(scope):
        executor.run(compiled, {"x": X}, [network.loss])
    runner = compiled._running()
    own = tensor(runner.scopes[1], "mean")
    assert own.place() == OTHER_GPU and (own.numpy() != tensor(scope, "mean").numpy()).any()

    runner.broadcast()

    np.testing.assert_array_equal(tensor(runner.scopes[1], "mean").numpy(), tensor(scope, "mean").numpy())


def test_gpus_that_are_not_there_are_refused() -> None:
    with pytest.raises(DeviceError, match=r"CUDAPlace\(2\): this machine has 2 GPUs, numbered from 0"):
        fluid.Executor(fluid.CUDAPlace(2))


def test_saving_and_loading_keep_parameters_of_a_gpu(tmp_path: Path) -> None:
    network = Network()
    scope, executor = network.started(GPU), fluid.Executor(GPU)
    with fluid.scope_guard(scope):
        before = tensor(scope, "w").numpy()
        fluid.io.save_persistables(executor, str(tmp_path), network.main, filename="all")
        tensor(scope, "w").set(np.zeros_like(before), GPU)
        fluid.io.load_persistables(executor, str(tmp_path), network.main, filename="all")
    np.testing.assert_array_equal(tensor(scope, "w").numpy(), before)
