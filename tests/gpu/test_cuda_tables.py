"""Tables in training steps on a GPU: gradients of some rows, by sorted ids. The numbers are the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda import sorting
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import CUDAPlace
from tests.gpu.test_training_steps import Job, same

ROWS = 50
OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "lazy adam": lambda: fluid.optimizer.Adam(0.01, lazy_mode=True),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1, l1=0.01, l2=0.01),
    "ftrl of another power": lambda: fluid.optimizer.Ftrl(0.1, l1=0.01, l2=0.01, lr_power=-0.4),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.01, momentum=0.5),
    "centered rmsprop": lambda: fluid.optimizer.RMSProp(0.01, momentum=0.5, centered=True),
    "lamb": lambda: fluid.optimizer.Lamb(0.01, lamb_weight_decay=0.1),
}
BY_ROWS = ("sgd", "lazy adam", "adagrad", "ftrl", "ftrl of another power")


pytestmark = pytest.mark.usefixtures("cupy")


def two_tables(padding: Any = None) -> Any:
    """The first and second order of features, by the same ids."""
    ids, y = layers.data("ids", [4], dtype="int64"), layers.data("y", [1])
    wide, deep = (
        fluid.embedding(ids, [ROWS, size], is_sparse=True, padding_idx=padding, param_attr=f"table{size}")
        for size in (1, 6)
    )
    found = layers.reduce_sum(wide, [1]) + layers.fc(layers.reduce_sum(deep, 1), 1, act="tanh")
    return layers.mean(layers.square(found - y))


def batch(seed: int, rows: int = 8) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {"ids": random.integers(0, ROWS, (rows, 4)), "y": random.random((rows, 1), np.float32)}


def both(build: Any, optimizer: Any, steps: int = 4, rows: int = 8) -> Job:
    """A job on the GPU that has trained as one on the CPU has."""
    want, job = Job(build, optimizer, fluid.CPUPlace()), Job(build, optimizer)
    for step in range(steps):
        a, b = (each.step(batch(step, rows))[0] for each in (want, job))
        np.testing.assert_allclose(b, a, rtol=2e-5)
    same(want, job, 1e-4)
    return job


def kinds(step: CudaStep) -> list[str]:
    return [getattr(call, "name", "").rpartition("_")[0] for call in step.calls]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_of_rows_are_part_of_the_step(name: str, compiled: list[CudaStep]) -> None:
    job = both(two_tables, OPTIMIZERS[name])
    assert len(compiled) == 4 and job.region().region.parts is None
    assert kinds(compiled[-1]).count("sort") == 1
    assert kinds(compiled[-1]).count("rows_update") == (2 if name in BY_ROWS else 0)


@pytest.mark.parametrize("chunk", [2, 8, 64])
def test_ids_are_sorted_by_several_blocks(
    chunk: int, compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "CHUNK", chunk)
    both(two_tables, OPTIMIZERS["sgd"], 3, 37)
    assert kinds(compiled[-1]).count("sort") == 1
    assert kinds(compiled[-1]).count("merge") == 8 - (chunk.bit_length() - 1)  # of 256 keys


def test_rows_of_padding_have_gradients_like_others(compiled: list[CudaStep]) -> None:
    both(lambda: two_tables(7), OPTIMIZERS["adagrad"])
    assert compiled and "rows_update" in kinds(compiled[-1])


def test_a_gradient_of_rows_that_is_fetched_is_rows() -> None:
    want, job = Job(two_tables, OPTIMIZERS["sgd"], fluid.CPUPlace()), Job(two_tables, OPTIMIZERS["sgd"])
    for step in range(3):
        found = [
            each.executor.run(each.main, batch(step), ["table6@GRAD"], scope=each.scope, return_numpy=False)[0]
            for each in (want, job)
        ]
        assert type(found[0]) is type(found[1])
    same(want, job)


def test_several_lookups_of_one_table_are_one_update(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        first, second = (layers.data(name, [2], dtype="int64") for name in ("a", "b"))
        x, y = (fluid.embedding(each, [ROWS, 4], is_sparse=True, param_attr="table") for each in (first, second))
        return layers.mean(layers.square(layers.fc(layers.reduce_sum(x * y, 1), 1)))

    want, job = Job(build, OPTIMIZERS["adagrad"], fluid.CPUPlace()), Job(build, OPTIMIZERS["adagrad"])
    for step in range(3):
        feed = {"a": batch(step)["ids"][:, :2], "b": batch(step)["ids"][:, 2:]}
        a, b = (each.step(feed)[0] for each in (want, job))
        np.testing.assert_allclose(b, a, rtol=2e-5)
    same(want, job)
    assert kinds(compiled[-1]).count("rows_update") == 1


def test_a_word_that_stands_everywhere_is_added_in_order(compiled: list[CudaStep]) -> None:
    jobs = [Job(two_tables, OPTIMIZERS["sgd"], place) for place in (fluid.CPUPlace(), CUDAPlace(0))]
    feed = {**batch(0, 60), "ids": np.full((60, 4), 3)}
    for job in jobs:
        job.step(feed)
    same(*jobs)


CLIPS = {
    "value": lambda: fluid.clip.GradientClipByValue(0.004, -0.002),
    "norm": lambda: fluid.clip.GradientClipByNorm(0.01),
    "global norm": lambda: fluid.clip.GradientClipByGlobalNorm(0.01),
}


@pytest.mark.parametrize("name", ["sgd", "lazy adam", "adagrad", "momentum"])
@pytest.mark.parametrize("clip", CLIPS)
def test_clipped_rows_are_part_of_the_step(clip: str, name: str, compiled: list[CudaStep]) -> None:
    def build() -> Any:
        loss = two_tables()
        fluid.clip.set_gradient_clip(CLIPS[clip]())
        return loss

    ids = {"ids": np.array([[3, 3, 7, 3], [7, 9, 3, 1]]), "y": np.array([[9.0], [-9.0]], np.float32)}
    want, plain, job = (
        Job(each, OPTIMIZERS[name], place)
        for each, place in ((build, fluid.CPUPlace()), (two_tables, None), (build, None))
    )
    for feed in (ids, batch(1), ids, batch(2)):
        a, _, b = (each.step(feed)[0] for each in (want, plain, job))
        np.testing.assert_allclose(b, a, rtol=2e-5)
    same(want, job, 1e-4)
    assert np.abs(plain.values()["table6"] - job.values()["table6"]).max() > 1e-3  # it was clipped
    assert job.region().region.parts is None
    assert kinds(compiled[-1]).count("sort") == 1
    assert kinds(compiled[-1]).count("rows_update") == (0 if name == "momentum" else 2)


@pytest.mark.parametrize("clip", CLIPS)
def test_clipped_rows_of_several_lookups_of_one_table(clip: str, compiled: list[CudaStep]) -> None:
    def build() -> Any:
        first, second = (layers.data(name, [2], dtype="int64") for name in ("a", "b"))
        x, y = (fluid.embedding(each, [ROWS, 4], is_sparse=True, param_attr="table") for each in (first, second))
        return layers.mean(layers.square(layers.fc(layers.reduce_sum(x * y, 1), 1) - 4.0))

    def optimizer() -> Any:
        return fluid.optimizer.Adagrad(0.1, grad_clip=CLIPS[clip]())

    want, job = Job(build, optimizer, fluid.CPUPlace()), Job(build, optimizer)
    for step in range(3):
        feed = {"a": batch(step)["ids"][:, :2], "b": np.full((8, 2), 3)}
        a, b = (each.step(feed)[0] for each in (want, job))
        np.testing.assert_allclose(b, a, rtol=2e-5)
    same(want, job, 1e-4)
    assert job.region().region.parts is None and "merged" in kinds(compiled[-1])


def test_bounds_that_leave_out_zero_are_left_to_their_operator() -> None:
    def clipped() -> Any:
        return fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByValue(0.5, 0.001))

    job = both(two_tables, clipped)
    assert "bounds that leave out 0" in str(job.region().region.reasons)


def test_values_of_rows_that_are_fetched_are_those_of_the_cpu() -> None:
    """Within the step zeros stand beside them."""

    def clipped() -> Any:
        return fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.01))

    want, job = Job(two_tables, clipped, fluid.CPUPlace()), Job(two_tables, clipped)
    ops = job.main.global_block().ops
    (name, *_) = [op.outputs["Out"][0] for op in ops if op.type == "get_tensor_from_selected_rows"]
    for step in range(3):
        a, b = (each.step(batch(step), name)[1] for each in (want, job))
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-9)
    same(want, job, 1e-4)


def test_values_of_rows_that_others_read_are_left_to_their_operators() -> None:
    class Shown:
        """SGD beside an operator that reads the values of the rows of a gradient."""

        def minimize(self, loss: Any) -> None:
            _, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
            block = loss.block
            grad = next(grad for param, grad in pairs if param.name == "table6")
            values, mean = (block.create_var(name=name, dtype="float32") for name in ("values", "level"))
            block.append_op(type="get_tensor_from_selected_rows", inputs={"X": grad}, outputs={"Out": values})
            block.append_op(type="mean", inputs={"X": values}, outputs={"Out": mean})

    want, job = Job(two_tables, Shown, fluid.CPUPlace()), Job(two_tables, Shown)
    for step in range(3):
        a, b = (each.step(batch(step), "level")[1] for each in (want, job))
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-9)
    same(want, job)


def test_an_id_out_of_range_has_the_message_of_the_cpu_and_changes_nothing() -> None:
    want, job = Job(two_tables, OPTIMIZERS["sgd"], fluid.CPUPlace()), Job(two_tables, OPTIMIZERS["sgd"])
    job.step(batch(0))
    before = job.values()
    wrong = {**batch(1), "ids": np.full((8, 4), ROWS)}
    messages = []
    for each in (want, job):
        with pytest.raises(OperatorError) as caught:
            each.step(wrong)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    for name, value in before.items():
        np.testing.assert_array_equal(job.values()[name], value, err_msg=name)


def test_ids_may_be_brought_into_another_shape(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        ids, y = layers.data("ids", [4], dtype="int64"), layers.data("y", [1])
        rows = layers.embedding(layers.unsqueeze(ids, [2]), [ROWS, 3], is_sparse=True)
        return layers.mean(layers.square(layers.fc(layers.reduce_sum(rows, 1), 1) - y))

    both(build, OPTIMIZERS["lazy adam"])
    assert len(compiled) == 4 and "rows_update" in kinds(compiled[-1])
