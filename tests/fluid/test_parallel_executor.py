"""ParallelExecutor on CPU devices; numbers as real Paddle 1.8.5 gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, CollectiveError, UsageError

X = (np.arange(22).reshape(11, 2) / 10).astype("float32")
Y = (np.arange(11).reshape(11, 1) / 5).astype("float32")


@pytest.fixture(autouse=True)
def two_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CPU_NUM", "2")
    with fluid.scope_guard(fluid.Scope()):
        yield


def network() -> tuple[Any, Any, Any]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [2]), fluid.layers.data("y", [1])
        weight = fluid.initializer.NumpyArrayInitializer(np.array([[0.5], [-0.25]], "float32"))
        guess = fluid.layers.fc(x, 1, param_attr=weight, bias_attr=fluid.initializer.Constant(0.1))
        loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.Executor().run(startup)
    return main, test, loss


def test_it_trains_on_all_devices() -> None:
    main, _, loss = network()
    executor = fluid.ParallelExecutor(False, loss.name, main)
    for _ in range(3):
        (found,) = executor.run([loss.name], feed={"x": X, "y": Y})
    np.testing.assert_allclose(found, [0.02855342, 0.01345902], rtol=2e-5)


def test_feed_dict_is_the_former_name_of_feed() -> None:
    main, _, loss = network()
    (found,) = fluid.ParallelExecutor(False, loss.name, main).run([loss], feed_dict={"x": X, "y": Y})
    np.testing.assert_allclose(found, [0.155625, 1.31062496], rtol=2e-5)


def test_results_can_stay_tensors() -> None:
    main, _, loss = network()
    (found,) = fluid.ParallelExecutor(False, loss.name, main).run([loss], {"x": X, "y": Y}, return_numpy=False)
    assert isinstance(found, fluid.LoDTensor)
    assert found.shape() == [2]


def test_the_main_program_defaults_to_the_default_one() -> None:
    main, _, loss = network()
    with fluid.program_guard(main):
        executor = fluid.ParallelExecutor(False, loss.name)
    assert executor.run([loss], {"x": X, "y": Y})[0].shape == (2,)


def test_device_count_is_cpu_num() -> None:
    main, _, loss = network()
    assert fluid.ParallelExecutor(False, loss.name, main).device_count == 2


def test_a_test_program_shares_the_variables_of_training() -> None:
    main, test, loss = network()
    train = fluid.ParallelExecutor(False, loss.name, main)
    train.run([loss], {"x": X, "y": Y})
    shared = fluid.ParallelExecutor(False, main_program=test, share_vars_from=train)
    np.testing.assert_allclose(shared.run([loss], {"x": X, "y": Y})[0], [0.01835546, 0.07881035], rtol=2e-5)


def test_local_scopes_can_be_dropped_after_a_run() -> None:
    main, _, loss = network()
    executor = fluid.ParallelExecutor(False, loss.name, main)
    executor.run([loss], {"x": X, "y": Y})
    executor.drop_local_exe_scopes()
    assert not fluid.global_scope().kids


def test_broadcasting_gives_every_device_the_first_ones_statistics() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fluid.layers.batch_norm(fluid.layers.data("x", [2]))
    fluid.Executor().run(startup)
    executor = fluid.ParallelExecutor(False, main_program=main)
    (before,) = executor.run(["batch_norm_0.w_1"], {"x": X})
    assert not np.allclose(before[:2], before[2:])
    executor.bcast_params()
    same = np.concatenate([X[:6], X[:6]])
    (after,) = executor.run(["batch_norm_0.w_1"], {"x": same})
    np.testing.assert_array_equal(after[:2], after[2:])


def test_sharing_needs_a_parallel_executor() -> None:
    with pytest.raises(AssertionError, match="The share_vars_from should be ParallelExecutor, found int"):
        fluid.ParallelExecutor(False, main_program=network()[1], share_vars_from=3)  # type: ignore[arg-type]


def test_sharing_needs_a_run_before() -> None:
    _, test, loss = network()
    first = fluid.ParallelExecutor(False, main_program=test)
    second = fluid.ParallelExecutor(False, main_program=test, share_vars_from=first)
    with pytest.raises(UsageError, match="not compiled and executed, so there is no variables to share"):
        second.run([loss], {"x": X, "y": Y})


@pytest.mark.parametrize("method", ["drop_local_exe_scopes", "bcast_params"])
def test_what_needs_a_run_says_so(method: str) -> None:
    with pytest.raises(ArgumentTypeError, match="has not run yet"):
        getattr(fluid.ParallelExecutor(False, main_program=network()[1]), method)()


def test_a_training_program_needs_its_loss() -> None:
    with pytest.raises(UsageError, match="The loss name of CompiledProgram is None"):
        fluid.ParallelExecutor(False, main_program=network()[0])


def test_settings_as_extra_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="Setting num_threads by constructor is deprecated"):
        fluid.ParallelExecutor(False, main_program=network()[1], num_threads=4)


def test_several_trainers_need_to_know_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_COLLECTIVE", "grpc")
    main, _, loss = network()
    executor = fluid.ParallelExecutor(False, loss.name, main, num_trainers=2, trainer_id=1)
    with pytest.raises(CollectiveError, match="num_trainers is 2, but the endpoints of the trainers are unknown"):
        executor.run([loss], {"x": X, "y": Y})


def test_a_trainer_is_one_of_them() -> None:
    main, _, loss = network()
    executor = fluid.ParallelExecutor(False, loss.name, main, num_trainers=2, trainer_id=2)
    with pytest.raises(UsageError, match=r"trainer_id must be between 0 and 1 \(num_trainers is 2\), found 2"):
        executor.run([loss], {"x": X, "y": Y})


@pytest.mark.skipif(fluid.is_compiled_with_cuda(), reason="there is a GPU here")
def test_cuda_needs_a_gpu() -> None:
    with pytest.raises(RuntimeError, match="Not compiled with CUDA"):
        fluid.ParallelExecutor(True, main_program=network()[1])
