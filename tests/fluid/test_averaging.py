"""ModelAverage, ExponentialMovingAverage, lookahead and recomputation, in numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import FluidError

BATCHES = np.random.default_rng(0).standard_normal((6, 8, 4)).astype("float32")


class Line:
    """One weight vector trained on the mean of its products; what `extend` appends comes after the loss."""

    def __init__(self, extend: Callable[[Any], Any]) -> None:
        self.main, self.startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = fluid.layers.data("x", [4])
            hidden = fluid.layers.fc(x, 3, bias_attr=False, param_attr="v", act="tanh")
            out = fluid.layers.fc(hidden, 1, bias_attr=False, param_attr="w")
            self.hidden, self.loss = hidden, fluid.layers.mean(out)
            self.extended = extend(self)
        self.executor = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(self.scope):
            self.executor.run(self.startup)
        for name, shape in (("v", (4, 3)), ("w", (3, 1))):
            self.set(name, np.linspace(-1, 1, shape[0] * shape[1]).reshape(shape).astype("float32"))

    def set(self, name: str, value: np.ndarray) -> None:
        self.scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())

    def value(self, name: str = "w") -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())

    def train(self, steps: int) -> list[np.ndarray]:
        """w after each step."""
        seen = []
        with fluid.scope_guard(self.scope):
            for batch in BATCHES[:steps]:
                self.executor.run(self.main, feed={"x": batch}, fetch_list=[self.loss])
                seen.append(self.value().copy())
        return seen


def sgd(line: Line) -> None:
    fluid.optimizer.SGD(0.1).minimize(line.loss)


def test_model_average_is_the_mean_of_the_steps_in_its_window() -> None:
    def extend(line: Line) -> Any:
        sgd(line)
        return fluid.optimizer.ModelAverage(1.0, min_average_window=100, max_average_window=100)

    line = Line(extend)
    seen = line.train(5)
    with fluid.scope_guard(line.scope), line.extended.apply(line.executor):
        np.testing.assert_allclose(line.value(), np.mean(seen, axis=0), rtol=1e-6)
    np.testing.assert_array_equal(line.value(), seen[-1])


def test_moving_average_forgets_by_its_decay_and_is_corrected_for_its_start() -> None:
    def extend(line: Line) -> Any:
        sgd(line)
        average = fluid.optimizer.ExponentialMovingAverage(0.5)
        average.update()
        return average

    line = Line(extend)
    seen = line.train(3)
    weights = np.array([0.125, 0.25, 0.5]) / (1 - 0.5**3)
    with fluid.scope_guard(line.scope):
        with line.extended.apply(line.executor, need_restore=False):
            pass
        np.testing.assert_allclose(line.value(), np.tensordot(weights, np.array(seen), 1), rtol=1e-5)
        line.extended.restore(line.executor)
    np.testing.assert_array_equal(line.value(), seen[-1])


def test_parameters_come_back_when_the_block_of_apply_raises() -> None:
    def extend(line: Line) -> Any:
        sgd(line)
        return fluid.optimizer.ModelAverage(1.0)

    line = Line(extend)
    seen = line.train(2)
    with (
        fluid.scope_guard(line.scope),
        pytest.raises(RuntimeError, match="stop"),
        line.extended.apply(line.executor),
    ):
        raise RuntimeError("stop")
    np.testing.assert_array_equal(line.value(), seen[-1])


def test_lookahead_pulls_the_weights_back_every_k_steps() -> None:
    plain = Line(sgd)
    ahead = Line(
        lambda line: fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), 0.25, k=2).minimize(line.loss)
    )
    slow = ahead.value().copy()
    ahead.set("w@SLOW", slow)
    ahead.set("v@SLOW", ahead.value("v").copy())
    fast, looked = plain.train(2), ahead.train(2)
    np.testing.assert_array_equal(looked[0], fast[0])
    np.testing.assert_allclose(looked[1], 0.25 * fast[1] + 0.75 * slow, rtol=1e-6)


def test_recomputation_changes_no_number() -> None:
    def extend(line: Line) -> None:
        optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
        optimizer._set_checkpoints([line.hidden])
        optimizer.minimize(line.loss)

    np.testing.assert_array_equal(Line(extend).train(4)[-1], Line(sgd).train(4)[-1])


def test_recomputation_needs_its_checkpoints() -> None:
    with pytest.raises(FluidError, match="_set_checkpoints first"):
        Line(lambda line: fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1)).minimize(line.loss))


@pytest.mark.parametrize(("alpha", "k"), [(1.5, 5), (-0.1, 5), (0.5, 0), (0.5, 2.0)])
def test_lookahead_refuses(alpha: float, k: Any) -> None:
    with pytest.raises(FluidError, match=r"alpha should be|k should be a positive integer"):
        fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), alpha, k)


def test_lookahead_needs_an_optimizer() -> None:
    with pytest.raises(FluidError, match="inner optimizer can not be None"):
        fluid.optimizer.LookaheadOptimizer(None)  # type: ignore[arg-type]
