"""Convolutions of 16 bits whose channels are no eights: filled up with zeros where that moves less than float32. Same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda import channels, images
from fluidtool.runtime.engines.cuda import convolutions as lowering
from fluidtool.runtime.engines.cuda.calls import Choice, Convolution, are_channels_last, channels_last, flat, row_major
from fluidtool.runtime.engines.cuda.channels import by_eights, takes_halves
from fluidtool.runtime.engines.cuda.training import kernels
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.standin.devices import MACHINE
from tests.gpu.test_cuda_fused import ROUNDING, near
from tests.gpu.test_cuda_regions import compiled as region
from tests.gpu.test_cuda_regions import on_gpu
from tests.gpu.test_training_halves import near as step_near
from tests.gpu.test_training_steps import Job, batch
from tests.runtime.native.checking import Net


@pytest.fixture(autouse=True, params=ROUNDING)
def half(request: pytest.FixtureRequest, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A precision of 16 bits, in which cuDNN has plans for channels by eights alone."""
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", request.param)
    MACHINE.refused = frozenset({"odd conv of halves"})
    yield str(request.param)
    MACHINE.refused = frozenset()


@pytest.fixture
def unfilled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions of halves as they are, by a cuDNN that takes any channels."""
    MACHINE.refused = frozenset()
    for module in (channels, lowering, kernels):
        monkeypatch.setattr(module, "by_eights", lambda sizes: sizes)


def convolutions(net: Net) -> list[Convolution]:
    found = [getattr(call, "first", call) for call in region(net).calls]
    return [call for call in found if isinstance(call, Convolution)]


def halves(call: Convolution) -> set[str]:
    return {pointer.buffer.half for pointer in (call.x, call.weights, call.out)}


# ---------------------------------------------------------------- which
@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        (((8, 3, 224, 224), (64, 3, 7, 7), (8, 64, 112, 112)), True),  # the first layer of a ResNet
        (((8, 3, 32, 32), (16, 3, 3, 3), (8, 16, 32, 32)), True),
        (((8, 1, 28, 28), (20, 1, 5, 5), (8, 20, 24, 24)), True),
        (((8, 1, 28, 28), (6, 1, 5, 5), (8, 6, 28, 28)), False),  # 16 halves in the place of 7 floats
        (((8, 4, 9, 9), (4, 4, 3, 3), (8, 4, 9, 9)), False),  # the same number of bytes
        (((8, 12, 9, 9), (20, 12, 3, 3), (8, 20, 9, 9)), True),
        (((8, 64, 9, 9), (21, 64, 1, 1), (8, 21, 9, 9)), True),
        (((8, 16, 9, 9), (32, 16, 3, 3), (8, 32, 9, 9)), True),
        (((8, 16, 9, 9), (32, 8, 3, 3), (8, 32, 9, 9)), False),  # groups
    ],
)
def test_channels_are_filled_up_where_halves_are_no_larger_than_floats(sizes: Any, taken: bool) -> None:
    assert takes_halves(sizes) is taken


def test_channels_by_eights() -> None:
    sizes = (2, 3, 9, 9), (20, 3, 5, 4), (2, 20, 5, 6)
    assert by_eights(sizes) == ((2, 8, 9, 9), (24, 8, 5, 4), (2, 24, 5, 6))
    even = (2, 16, 9, 9), (8, 16, 1, 1), (2, 8, 9, 9)
    assert by_eights(even) == even


@pytest.mark.parametrize(
    ("strides", "shape", "are"),
    [
        (channels_last((2, 5, 3, 4)), (2, 5, 3, 4), True),
        (channels_last((2, 8, 3, 4)), (2, 5, 3, 4), True),
        (channels_last((2, 8, 3, 4)), (2, 9, 3, 4), False),
        (row_major((2, 5, 3, 4)), (2, 5, 3, 4), False),
        (row_major((2, 1, 3, 4)), (2, 1, 3, 4), False),
    ],
)
def test_pixels_may_have_further_channels(strides: Any, shape: Any, are: bool) -> None:
    assert are_channels_last(strides, shape) is are


# ---------------------------------------------------------------- inference
def stem(channels: int, count: int = 16) -> tuple[Net, str]:
    """An image, a convolution with a bias and a ReLU, pooling, and another convolution."""
    net = Net()
    y = net.conv(net.data(2, channels, 9, 7), net.parameter(count, channels, 3, 3), strides=[2, 1], paddings=[1, 1])
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(count)}, axis=1)
    y = net.op("relu", "Out", {"X": y})
    pool = {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1], "pooling_type": "max"}
    y = net.op("pool2d", "Out", {"X": y}, **pool)
    return net, net.conv(y, net.parameter(8, count, 3, 3))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_first_layer_reads_halves_that_one_kernel_makes(width: int, half: str) -> None:
    net, name = stem(width)
    assert near(net, half, name) == ["pad", "Choice", "pool", "Convolution", "each"]
    first, _ = convolutions(net)
    assert halves(first) == {half} and first.images == (2, 8, 9, 7) and first.filters == (16, 8, 3, 3)
    assert first.weights.buffer.array.size == 16 * 3 * 3 * 8


def chain(activation: str) -> tuple[Net, str]:
    """Convolutions of odd channels, a bias, a sum with the result of the first one, an activation."""
    net = Net()
    before = net.conv(net.data(2, 3, 6, 6), net.parameter(20, 3, 3, 3), paddings=[1, 1])
    weights = net.parameter(20, 20, 3, 3)
    y = net.conv(net.conv(before, weights, paddings=[1, 1]), weights, paddings=[1, 1])
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(20)}, axis=1)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": before}, axis=-1)
    return net, net.conv(net.op(activation, "Out", {"X": y}), net.parameter(12, 20, 3, 3))


@pytest.mark.parametrize("refused", [(), ("add", "relu")], ids=["taken", "refused"])
def test_layers_of_odd_channels_follow_each_other_without_copies(refused: Any, half: str) -> None:
    MACHINE.refused |= frozenset(refused)
    net, name = chain("relu")
    assert near(net, half, name) == ["pad", "Convolution", "Convolution", "Choice", "Convolution", "each"]
    assert region(net).work.refused == bool(refused)
    *_, third, last = convolutions(net)
    assert third.added is not None and third.results == (2, 24, 6, 6) and last.x.buffer is third.out.buffer


def test_an_addend_within_a_wider_image_is_not_read_beyond_it(half: str) -> None:
    """A part of another image lies as an image of more channels does, but ends before the last ones."""
    net = Net()
    wide = net.conv(net.data(2, 16, 6, 6), net.parameter(24, 16, 3, 3), paddings=[1, 1])
    part = net.op("slice", "Out", {"Input": wide}, axes=[1], starts=[4], ends=[24], decrease_axis=[])
    y = net.conv(net.data(2, 16, 6, 6), net.parameter(20, 16, 3, 3), paddings=[1, 1])
    y = net.op("relu", "Out", {"X": net.op("elementwise_add", "Out", {"X": y, "Y": part}, axis=-1)})
    y = net.conv(y, net.parameter(8, 20, 1, 1))
    near(net, half, y)
    assert not any(call.added for call in convolutions(net))


def test_parts_of_an_image_are_filled_up_anew(half: str) -> None:
    net = Net()
    wide = net.conv(net.data(2, 16, 6, 6), net.parameter(24, 16, 3, 3), paddings=[1, 1])
    parts = [
        net.op("slice", "Out", {"Input": wide}, axes=[1], starts=[start], ends=[start + 20], decrease_axis=[])
        for start in (0, 4)
    ]
    found = [net.conv(part, net.parameter(16, 20, 3, 3)) for part in parts]
    assert near(net, half, *found).count("pad") == 2


def test_an_image_is_filled_up_once_for_all_its_readers(half: str) -> None:
    net = Net()
    x = net.data(2, 3, 6, 6)
    found = [net.conv(x, net.parameter(16, 3, size, size)) for size in (1, 3)]
    assert near(net, half, *found).count("pad") == 1


@pytest.mark.parametrize(("width", "count", "groups"), [(4, 4, 1), (1, 6, 1), (16, 16, 2)])
def test_where_filling_up_costs_more_float32_stays(width: int, count: int, groups: int, half: str) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, width, 5, 5)}, axis=2)
    near(
        net, half, net.op("relu", "Out", {"X": net.conv(x, net.parameter(count, width // groups, 1, 1), groups=groups)})
    )
    (call,) = convolutions(net)
    assert halves(call) == {""} and call.images == (2, width, 5, 5)


@pytest.mark.parametrize("activation", ["", "relu", "sigmoid", "tanh"])
def test_zeros_change_no_number(activation: str, half: str, request: pytest.FixtureRequest) -> None:
    """Nor does what an activation makes of them, such as the 0.5 of a sigmoid."""

    def found() -> Any:
        net, name = chain(activation) if activation else stem(3, 20)
        return on_gpu(net, name)[0]

    filled = found()
    request.getfixturevalue("unfilled")
    np.testing.assert_array_equal(found(), filled)


# ---------------------------------------------------------------- volumes
def volumes(channels: int, count: int = 16, groups: int = 1) -> tuple[Net, str]:
    """Volumes, a convolution with a bias and a ReLU, pooling, and another convolution."""
    net = Net()
    settled = {"strides": [2, 1, 1], "paddings": [1, 1, 0], "dilations": [1, 1, 1], "groups": groups}
    inputs = {"Input": net.data(2, channels, 6, 7, 5), "Filter": net.parameter(count, channels // groups, 3, 3, 2)}
    y = net.op("conv3d", "Output", inputs, **settled)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(count)}, axis=1)
    y = net.op("relu", "Out", {"X": y})
    pool = {"ksize": [2, 2, 2], "strides": [1, 2, 2], "paddings": [0, 0, 0], "pooling_type": "max"}
    y = net.op("pool3d", "Out", {"X": y}, **pool)
    plain = {"strides": [1, 1, 1], "paddings": [0, 0, 0], "dilations": [1, 1, 1], "groups": 1}
    return net, net.op("conv3d", "Output", {"Input": y, "Filter": net.parameter(8, count, 1, 3, 1)}, **plain)


@pytest.mark.parametrize("width", [3, 12])
@pytest.mark.parametrize("count", [16, 20])
def test_volumes_are_convolved_in_halves(width: int, count: int, half: str) -> None:
    net, name = volumes(width, count)
    near(net, half, name)
    assert net.why_not() == []
    first, last = convolutions(net)
    assert halves(first) == halves(last) == {half}
    wide = 8 if width < 8 else 16
    assert first.images == (2, wide, 8, 7, 5) and first.filters == (16 if count == 16 else 24, wide, 3, 3, 2)
    assert last.x.buffer.half == half


@pytest.mark.parametrize(("width", "count", "groups"), [(4, 4, 1), (1, 6, 1), (16, 16, 2)])
def test_volumes_that_would_move_more_stay_in_float32(width: int, count: int, groups: int, half: str) -> None:
    net, name = volumes(width, count, groups)
    near(net, half, name)
    first, _ = convolutions(net)
    assert halves(first) == {""} and first.images[1] == width


@pytest.mark.parametrize("width", [3, 12])
def test_zeros_change_no_number_of_volumes(
    width: int, half: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = on_gpu(*volumes(width, 20))[0]
    request.getfixturevalue("unfilled")
    monkeypatch.setattr(images, "by_eights", lambda sizes: sizes)
    np.testing.assert_array_equal(on_gpu(*volumes(width, 20))[0], found)


# ---------------------------------------------------------------- training steps
def odd(width: int, count: int) -> Any:
    """Three convolutions of odd channels, with normalization between them."""

    def build() -> Any:
        x, y = layers.data("x", [width, 8, 8]), layers.data("y", [1], dtype="int64")
        x = layers.batch_norm(layers.conv2d(x, count, 3, padding=1, bias_attr=False), act="relu")
        x = layers.conv2d(x, count, 3, padding=1, act="relu") + x
        x = layers.conv2d(layers.pool2d(x, 2, "max", 2), count + 1, 1)
        x = layers.pool2d(x, global_pooling=True, pool_type="avg")
        return layers.mean(layers.softmax_with_cross_entropy(layers.fc(x, 5), y))

    return build


def pictures(width: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {**batch(4, seed), "x": random.standard_normal((4, width, 8, 8)).astype(np.float32)}


@pytest.mark.parametrize("width", [1, 3, 12])
def test_steps_compute_odd_channels_and_their_gradients_in_halves(
    width: int, half: str, compiled: list[CudaStep]
) -> None:
    step_near(odd(width, 12), [pictures(width, seed) for seed in range(3)], half, growth=6.0)
    found = [call for call in compiled[-1].calls if isinstance(call, Convolution)]
    assert [call.computes for call in found].count("weights") == 3 and len(found) == 3 + 3 + 2
    assert not any(isinstance(call, Choice) for call in compiled[-1].calls)
    assert all(halves(call) == {half} for call in found)
    assert all(size % 8 == 0 for call in found for size in (call.images[1], *call.filters[:2], call.results[1]))


def test_the_images_of_the_first_layer_are_filled_up_once_in_a_step(half: str, compiled: list[CudaStep]) -> None:
    Job(odd(3, 16), lambda: fluid.optimizer.SGD(0.1)).step(pictures(3, 0))
    first = [call for call in compiled[-1].calls if isinstance(call, Convolution) and call.images[2] == 8]
    assert [call.computes for call in first if call.images[1] == 8] == ["out", "weights"]
    forward, by_filters = (call for call in first if call.images[1] == 8)
    assert forward.x == by_filters.x


def test_zeros_change_no_number_of_a_step(half: str, request: pytest.FixtureRequest) -> None:
    def trained() -> dict[str, Any]:
        job = Job(odd(3, 12), lambda: fluid.optimizer.SGD(0.1))
        for seed in range(2):
            job.step(pictures(3, seed))
        return job.values()

    filled = trained()
    request.getfixturevalue("unfilled")
    found = trained()
    for name, values in filled.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6 * np.abs(values).max())


def test_steps_without_a_gain_are_offered_as_they_are(half: str, compiled: list[CudaStep]) -> None:
    step_near(odd(4, 4), [pictures(4, 0)], half, growth=6.0)
    choices = [call for call in compiled[-1].calls if isinstance(call, Choice)]
    assert choices and compiled[-1].work.refused == len(choices)
    offered = [call for call in flat(compiled[-1].calls) if isinstance(call, Convolution) and halves(call) == {half}]
    assert any(call.images[1] == 4 for call in offered)
