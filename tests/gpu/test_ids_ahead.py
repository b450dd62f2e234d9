"""Ids on a GPU are looked up without anybody waiting: one out of range is an error when a result is read, and before any update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.standin import EVENTS
from tests.gpu.test_indices import started, table
from tests.runtime.native.checking import Net

GPU = CUDAPlace(0)
ROWS, IDS = 7, np.array([[1, 3, 0], [6, 3, 2]], np.int64)
WRONG = {
    "negative": np.array([[1, -1, 0], [6, 3, 2]]),
    "too large": np.array([[1, 3, 0], [6, 7, 2]]),
    "beyond 32 bits": np.array([[1, 3, 0], [6, (1 << 32) + 2, 2]]),
    "the first and the last": np.array([[9, 3, 0], [6, 3, -5]]),
}


class Words:
    """Rows of a table by ids, and what a region computes of them: two results."""

    def __init__(self, cupy: Any, padding: int = -1, dtype: Any = np.int64) -> None:
        self.cupy, self.dtype, self.net = cupy, dtype, Net()
        ids = self.net.data(of=IDS.astype(dtype))
        rows = self.net.op(
            "lookup_table_v2", "Out", {"W": self.net.parameter(ROWS, 5), "Ids": ids}, padding_idx=padding
        )
        self.ids = ids
        self.names = [
            self.net.op("softmax", "Out", {"X": rows}, axis=-1),
            self.net.op("relu", "Out", {"X": rows}),
        ]
        self.executor = Executor(GPU)
        for _ in range(3):
            self.run(IDS)

    def run(self, ids: Any, on_gpu: bool = True) -> list[LoDTensor]:
        """The results of a feed."""
        array = np.asarray(ids, self.dtype)
        feed = {self.ids: LoDTensor(self.cupy.asarray(array) if on_gpu else array)}
        return self.executor.run(self.net.program, feed, self.names, self.net.scope)


def refusal(work: Callable[[], object]) -> str:
    """The message of the error that some work ends with."""
    with pytest.raises(OperatorError) as found:
        work()
    assert found.value.location is not None and found.value.location.type == "lookup_table_v2"
    return str(found.value)


@pytest.fixture
def words(cupy: Any) -> Words:
    return Words(cupy)


def test_nobody_waits_before_the_results_are_read(words: Words) -> None:
    feed = words.cupy.asarray(IDS)
    with EVENTS.counted() as counts:
        first, second = words.executor.run(
            words.net.program, {words.ids: LoDTensor(feed)}, words.names, words.net.scope
        )
    assert counts["synchronizations"] == counts["copies to the host"] == counts["copies to the device"] == 0
    with EVENTS.counted() as counts:
        first.numpy()
    assert (counts["synchronizations"], counts["copies to the host"]) == (0, 1)  # the mark comes with the result
    with EVENTS.counted() as counts:
        second.numpy()
    assert (counts["synchronizations"], counts["copies to the host"]) == (0, 1)


def test_the_results_are_those_of_the_host(words: Words) -> None:
    want = words.net.run("numpy", *words.names)
    for a, b in zip(words.run(IDS), want, strict=True):
        assert a.shape() == list(b.shape) and a.place() == GPU and a.is_initialized()
        np.testing.assert_allclose(a.numpy(), b, atol=1e-6)
        np.testing.assert_allclose(a.array.get(), b, atol=1e-6)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("read", ["numpy", "array", "the second"])
def test_a_wrong_id_is_the_error_of_ids_from_the_host(wrong: str, read: str, words: Words) -> None:
    first, second = words.run(WRONG[wrong])

    def reads() -> object:
        return first.numpy() if read == "numpy" else first.array if read == "array" else np.asarray(second)

    message = refusal(reads)

    ids = WRONG[wrong]
    assert f"{words.ids} holds an id of {ids.min()} to {ids.max()}, the table has 7 rows" in message
    assert message == refusal(lambda: words.run(ids, on_gpu=False))
    assert message == refusal(reads)  # as often as it is read


@pytest.mark.parametrize("padding", [-1, 3])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_padding_and_types_of_ids(padding: int, dtype: Any, cupy: Any) -> None:
    words = Words(cupy, padding, dtype)
    want = words.net.run("numpy", *words.names)
    for a, b in zip(words.run(IDS), want, strict=True):
        np.testing.assert_allclose(a.numpy(), b, atol=1e-6)
    assert "holds an id of 0 to 7" in refusal(words.run([[0, 1, 7], [1, 1, 1]])[0].numpy)


def test_each_run_has_a_mark_of_its_own(words: Words) -> None:
    before, wrong, after = words.run(IDS), words.run(WRONG["too large"]), words.run(IDS)
    np.testing.assert_array_equal(after[0].numpy(), before[0].numpy())
    assert "0 to 7" in refusal(wrong[0].numpy)
    np.testing.assert_array_equal(words.run(IDS)[1].numpy(), before[1].numpy())


def test_an_array_that_was_overwritten_before_the_results_were_read(words: Words) -> None:
    ids = words.cupy.asarray(WRONG["negative"])
    found = words.executor.run(words.net.program, {words.ids: LoDTensor(ids)}, words.names, words.net.scope)
    ids[...] = words.cupy.asarray(IDS)
    with pytest.raises(OperatorError, match="an id was out of range for its table, but its array has changed since"):
        found[0].numpy()


def test_ids_of_the_host_are_refused_at_once(words: Words) -> None:
    with pytest.raises(OperatorError, match="holds an id of -1 to 6"):
        words.run(WRONG["negative"], on_gpu=False)


def test_a_result_that_is_set_anew_is_a_tensor_like_any_other(words: Words) -> None:
    found = words.run(WRONG["negative"])[0]
    found.set(np.ones(3, np.float32))
    assert found.numpy().tolist() == [1, 1, 1]


def test_a_result_may_be_fed_to_the_next_run(words: Words) -> None:
    net = Net()
    x = net.data(2, 3, 5)
    y = net.op("softmax", "Out", {"X": x}, axis=-1)
    executor = Executor(GPU)
    for _ in range(3):
        found = executor.run(net.program, {x: words.run(IDS)[0]}, [y], net.scope)
    np.testing.assert_allclose(found[0].numpy().sum(-1), 1, atol=1e-6)
    with pytest.raises(OperatorError, match="holds an id of -1 to 6"):
        executor.run(net.program, {x: words.run(WRONG["negative"])[0]}, [y], net.scope)


# ---------------------------------------------------------------- training
def rows_and_a_layer() -> tuple[fluid.Program, fluid.Program, Any]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        rows = fluid.layers.embedding(fluid.layers.data("ids", [1], dtype="int64"), [5, 3], param_attr="w")
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(rows, 4, param_attr="v")))
        fluid.optimizer.Adam(0.5).minimize(loss)
    return main, startup, loss


@pytest.mark.parametrize("on_gpu", [False, True], ids=["host", "gpu"])
def test_a_training_step_with_a_wrong_id_changes_nothing(on_gpu: bool, cupy: Any, compiled: list[CudaStep]) -> None:
    main, startup, loss = rows_and_a_layer()
    executor, scope = started(startup)

    def step(*ids: int) -> Any:
        array = np.array(ids).reshape(-1, 1)
        return executor.run(main, {"ids": LoDTensor(cupy.asarray(array) if on_gpu else array)}, [loss.name], scope)

    for _ in range(3):
        step(1, 4)
    assert compiled
    names = [var.name for var in main.list_vars() if var.persistable and scope.find_var(var.name) is not None]
    before = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
    for wrong in (5, -1):
        with pytest.raises(OperatorError, match=f"input Ids holds {wrong}, expected 0 to 4"):
            step(1, wrong)
    for name in names:
        np.testing.assert_array_equal(np.array(scope.find_var(name).get_tensor()), before[name], err_msg=name)
    step(1, 4)
    assert (table(scope) != before["w"]).any()


def test_a_step_does_not_wait_for_ids_that_the_host_had(cupy: Any, compiled: list[CudaStep]) -> None:
    main, startup, loss = rows_and_a_layer()
    executor, scope = started(startup)
    for _ in range(4):
        with EVENTS.counted() as counts:
            executor.run(main, {"ids": np.array([[1], [4]])}, [loss.name], scope)
    assert len(compiled) == 4
    assert counts["synchronizations"] == counts["copies to the host"] == 0
