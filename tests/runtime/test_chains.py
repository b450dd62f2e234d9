"""A convolution and what only changes its numbers, in place: the same bits as the operators one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.passes.memory_optimize import memory_optimize
from fluidtool.runtime import Executor
from fluidtool.runtime.chains import Chain
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import Net

Array = np.ndarray[Any, Any]


class Chained(Net):
    """A net of small convolutions; `both` runs it in chains and one by one."""

    def convolved(self, *shape: int) -> str:
        return self.conv(self.data(*shape), self.parameter(shape[1], shape[1], 3, 3), paddings=[1, 1])

    def norm(self, x: str, channels: int, **attrs: Any) -> str:
        inputs = {slot: self.parameter(channels) for slot in ("Scale", "Bias", "Mean")}
        self.variance = self.parameter(of=self.random.random(channels, np.float32) + 0.5)
        inputs |= {"X": x, "Variance": self.variance}
        further = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
        return self.op("batch_norm", "Y", inputs, *further, **({"is_test": True} | attrs))

    def add(self, x: str, y: str, axis: int = -1) -> str:
        return self.op("elementwise_add", "Out", {"X": x, "Y": y}, axis=axis)

    def relu(self, x: str) -> str:
        return self.op("relu", "Out", {"X": x})

    def both(self, *fetches: str) -> tuple[list[Array], list[Array]]:
        one_by_one = Executor(engine="numpy").run(
            self.program, self.feeds, list(fetches), self.scope, observer=lambda step, block: step.run()
        )
        return self.run("numpy", *fetches), [value.numpy() for value in one_by_one]

    def chains(self) -> list[list[str]]:
        return [[step.op.type for step in part.steps] for part in self.plan.work if isinstance(part, Chain)]


def same(pair: tuple[list[Array], list[Array]]) -> None:
    for got, want in zip(*pair, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("residual_first", [False, True])
def test_a_residual_block_is_one_chain(residual_first: bool) -> None:
    net = Chained()
    normed = net.norm(net.convolved(2, 4, 5, 6), 4)
    residual = net.data(2, 4, 5, 6)
    out = net.relu(net.add(residual, normed) if residual_first else net.add(normed, residual))
    same(net.both(out))
    assert net.chains() == [["conv2d", "batch_norm", "elementwise_add", "relu"]]


def test_a_bias_by_channel_is_added_in_place() -> None:
    net = Chained()
    out = net.relu(net.add(net.convolved(2, 4, 5, 6), net.parameter(4), axis=1))
    same(net.both(out))
    assert net.chains() == [["conv2d", "elementwise_add", "relu"]]


def test_inputs_and_parameters_stay_as_they_were() -> None:
    net = Chained()
    residual = net.data(2, 4, 5, 6)
    out = net.relu(net.add(net.norm(net.convolved(2, 4, 5, 6), 4), residual))
    before = net.feeds[residual].copy()
    first, second = net.run("numpy", out, residual), net.run("numpy", out, residual)
    same((first, second))
    np.testing.assert_array_equal(net.feeds[residual], before)
    np.testing.assert_array_equal(first[1], before)


def test_new_statistics_count_from_the_next_run_on() -> None:
    net = Chained()
    executor = Executor(engine="numpy")
    out = net.norm(net.convolved(1, 4, 5, 6), 4)
    executor.run(net.program, net.feeds, [out], net.scope)
    net.scope.var(net.variance).value = LoDTensor(np.full(4, 9, np.float32))
    (got,) = executor.run(net.program, net.feeds, [out], net.scope)
    np.testing.assert_array_equal(got.numpy(), net.both(out)[1][0])


def test_a_result_that_is_fetched_is_not_changed() -> None:
    net = Chained()
    convolved = net.convolved(1, 4, 5, 6)
    out = net.relu(convolved)
    same(net.both(convolved, out))
    assert net.chains() == []


def test_a_result_that_two_operators_read_is_not_changed() -> None:
    net = Chained()
    convolved = net.convolved(1, 4, 5, 6)
    out = net.add(net.relu(convolved), convolved)
    same(net.both(out))
    assert net.chains() == []


def test_statistics_of_the_batch_that_are_fetched_keep_the_operators_apart() -> None:
    net = Chained()
    out = net.norm(net.convolved(1, 4, 5, 6), 4)
    saved = net.program.global_block().ops[-1].output("SavedMean")[0]
    same(net.both(out, saved))
    assert net.chains() == []


def larger_sum(net: Chained) -> str:
    return net.add(net.data(3, 4, 5, 6), net.convolved(1, 4, 5, 6))


def norm_by_the_batch(net: Chained) -> str:
    return net.norm(net.convolved(2, 4, 5, 6), 4, is_test=False)


def norm_with_relu(net: Chained) -> str:
    return net.norm(net.convolved(2, 4, 5, 6), 4, fuse_with_relu=True)


@pytest.mark.parametrize("make", [larger_sum, norm_by_the_batch, norm_with_relu])
def test_what_cannot_be_done_in_place_runs_by_itself(make: Callable[[Chained], str]) -> None:
    net = Chained()
    out = net.relu(make(net))
    same(net.both(out))
    assert len(net.chains()) == 1


def test_sequences_stay_with_what_they_belong_to() -> None:
    net = Chained()
    out = net.relu(net.convolved(3, 4, 5, 6))
    feeds = {name: LoDTensor(array, [[0, 1, 3]]) for name, array in net.feeds.items()}
    (got,) = Executor(engine="numpy").run(net.program, feeds, [out], net.scope)
    assert got.lod() == [[0, 1, 3]]


def test_an_error_names_the_operator_of_the_chain_that_failed() -> None:
    net = Chained()
    out = net.norm(net.convolved(1, 4, 5, 6), 4)
    net.scope.var(net.variance).value = LoDTensor(np.ones(3, np.float32))
    with pytest.raises(OperatorError, match=r"batch_norm.*Variance must have shape \(4,\)"):
        net.run("numpy", out)


def test_what_was_settled_for_other_sizes_does_not_count() -> None:
    net = Chained()
    convolved = net.conv(net.data(1, 4, 5, 6), net.parameter(6, 4, 3, 3), paddings=[1, 1])
    out = net.relu(net.norm(convolved, 6))
    (name,) = net.feeds
    executor = Executor(engine="numpy")
    for shape in ((1, 4, 5, 6), (3, 4, 5, 6), (1, 4, 9, 2), (1, 4, 5, 6)):
        net.feeds[name] = net.random.standard_normal(shape).astype(np.float32)
        (got,) = executor.run(net.program, net.feeds, [out], net.scope)
        np.testing.assert_array_equal(got.numpy(), net.both(out)[1][0])
    net.feeds[name] = np.zeros((1, 5, 5, 6), np.float32)
    with pytest.raises(OperatorError, match=r"conv2d.*has 5 channels"):
        executor.run(net.program, net.feeds, [out], net.scope)
    net.feeds[name] = np.zeros((1, 4, 5, 6), np.float64)
    with pytest.raises(OperatorError, match=r"conv2d.*one data type"):
        executor.run(net.program, net.feeds, [out], net.scope)


def test_a_variable_that_dies_within_a_chain_and_is_written_at_its_end_lives_on() -> None:
    net = Chained()
    first = net.relu(net.data(1, 4, 5, 6))
    convolved = net.conv(first, net.parameter(4, 4, 3, 3), paddings=[1, 1])
    added = net.add(convolved, net.parameter(4), axis=1)
    out = net.op("elementwise_mul", "Out", {"X": added, "Y": added})
    (before,) = net.run("numpy", out)
    memory_optimize(net.program, [out])
    adding = net.program.global_block().ops[2]
    assert adding.type == "elementwise_add" and adding.output("Out") == [first]
    same(([before], net.run("numpy", out)))
    assert net.chains() == [["conv2d", "elementwise_add"]]
