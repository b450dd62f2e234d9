"""Maxima and minima in training steps: forward and gradient are part of the graph; the numbers of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import layers
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda.calls import Launch
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.runtime.training_regions import TrainingRegion
from fluidtool.tensor import CUDAPlace
from tests.gpu.test_training_halves import near
from tests.gpu.test_training_softmax import jobs
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")
TYPES = pytest.mark.parametrize("type", ["reduce_max", "reduce_min"])


def in_a_step(net: Net, *names: str, rtol: float = 0.0) -> list[Array]:
    """What operators give as a training step: numpy's numbers, up to a part of the largest one."""
    want = net.run("numpy", *names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRegion, "is_worthwhile", True)
        values = Executor(CUDAPlace(0)).run(net.program, net.feeds, list(names), net.scope)
    found = [value.numpy() for value in values]
    for a, b in zip(found, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * float(np.nanmax(np.abs(b))))
    return found


def kernels(step: CudaStep) -> list[str]:
    """What kernels are called, in order."""
    return [call.name.rpartition("_")[0] for call in step.calls if isinstance(call, Launch)]


def extreme(net: Net, type: str, x: Array, **attrs: Any) -> tuple[str, str]:
    """An extreme of x and its gradient by x, from one of whole numbers."""
    given = net.data(of=x)
    out = net.op(type, "Out", {"X": given}, **attrs)
    (made,) = net.run("numpy", out)
    grad = net.data(of=np.arange(1, 1 + made.size, dtype=np.float32).reshape(made.shape))
    return out, net.op(f"{type}_grad", "X@GRAD", {"X": given, "Out": out, "Out@GRAD": grad}, **attrs)


def whole_numbers(*shape: int) -> Array:
    """Numbers of which many are equal."""
    return np.random.default_rng(0).integers(-2, 3, shape).astype(np.float32)


@TYPES
@pytest.mark.parametrize(
    "attrs",
    [
        {"dim": [0]},
        {"dim": [1], "keep_dim": True},
        {"dim": [-1]},
        {"dim": [0, 2], "keep_dim": True},
        {"dim": [2, 0, 3]},
        {"dim": [1, 2, 3]},
        {"dim": [0], "reduce_all": True},
        {"dim": [0], "reduce_all": True, "keep_dim": True},
    ],
)
def test_any_axes_and_equal_numbers_that_all_get_the_gradient(
    attrs: dict[str, Any], type: str, compiled: list[CudaStep]
) -> None:
    net = Net()
    _, grad = in_a_step(net, *extreme(net, type, whole_numbers(3, 5, 4, 6), **attrs))
    assert len(compiled) == 1 and np.count_nonzero(grad) > np.unique(grad[grad != 0]).size


def products(net: Net, x: Array, **attrs: Any) -> tuple[str, str]:
    """A product of x and its gradient."""
    return extreme(net, "reduce_prod", x, **attrs)


@pytest.mark.parametrize(
    "attrs",
    [{"dim": [0]}, {"dim": [1], "keep_dim": True}, {"dim": [0, 2]}, {"dim": [1, 2, 3]}, {"reduce_all": True}],
)
def test_products(attrs: dict[str, Any], compiled: list[CudaStep]) -> None:
    net = Net()
    x = 1 + 0.1 * net.random.standard_normal((3, 5, 4, 6)).astype(np.float32)
    in_a_step(net, *products(net, x, **attrs), rtol=2e-5)
    assert len(compiled) == 1


def test_the_gradient_of_a_product_where_numbers_are_zero(compiled: list[CudaStep]) -> None:
    """The only zero of a row gets the product of the others; where there are two, there is none."""
    net = Net()
    x = np.array([[2, 3, 4], [0, 3, 4], [2, 0, -0.0], [0, 0, 0], [np.nan, 0, 1], [np.inf, 0, 2]], np.float32)
    _, grad = in_a_step(net, *products(net, x, dim=[1]))
    assert grad[:3].tolist() == [[12, 8, 6], [24, 0, 0], [0, 0, 0]] and len(compiled) == 1


@TYPES
def test_one_of_many_and_many_of_a_few(type: str, compiled: list[CudaStep]) -> None:
    """Shares of a long sum are found by many threads."""
    net = Net()
    x = net.random.standard_normal((4, 70_000)).astype(np.float32)
    names = [*extreme(net, type, x, reduce_all=True), *extreme(net, type, x.T.copy(), dim=[0])]
    in_a_step(net, *names)
    assert kernels(compiled[-1]).count("sums") == 2


@TYPES
def test_what_is_not_a_number_is_the_extreme_and_gets_no_gradient(type: str, compiled: list[CudaStep]) -> None:
    net, x = Net(), whole_numbers(3, 40)
    x[1, 7] = np.nan
    out, grad = in_a_step(net, *extreme(net, type, x, dim=[1]))
    assert np.isnan(out).tolist() == [False, True, False] and not grad[1].any() and len(compiled) == 1


def test_a_result_of_another_type_is_left_to_cupy(compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.data(of=whole_numbers(3, 4))
    found = net.op("reduce_max", "Out", {"X": x}, dim=[1], out_dtype=6)
    in_a_step(net, found, net.op("relu_grad", "X@GRAD", {"Out": x, "Out@GRAD": x}))
    assert [kernels(step) for step in compiled if step.calls] == [["each"]]


def pooled(dims: Any) -> Any:
    """A network whose images, channels last, are reduced to their largest and smallest numbers."""

    def build() -> Any:
        x = layers.data("x", [3, 6, 7])
        x = layers.conv2d(x, 8, 3, act="relu", padding=1)
        found = layers.reduce_max(x, dims) - 0.5 * layers.reduce_min(layers.scale(x, -1.5), dims)
        return layers.mean(layers.square(layers.fc(found, 4) - 0.7))

    return build


def images(count: int = 3) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [{"x": random.standard_normal((4, 3, 6, 7)).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("dims", [[2, 3], 1, [1, 3]])
def test_a_step_is_one_graph(dims: Any, compiled: list[CudaStep]) -> None:
    both = jobs(pooled(dims), images())
    assert len(compiled) == 3 and both[1].region().region.parts is None


@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_extremes_of_halves_are_found_again(
    half: str, compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    job = near(pooled([2, 3]), images(), half, lambda: fluid.optimizer.SGD(0.01), growth=6.0)
    (op,) = [op for op in job.main.global_block().ops if op.type == "reduce_max_grad"]
    _, found = job.step(images(1)[0], op.output("X@GRAD")[0])
    assert len(compiled) == 4 and found.any(axis=(2, 3)).all()
