"""Channels of images put behind each other, cut, shuffled and spread, without leaving their blocks: numpy's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.native.checking import Net, agree, check, kernels

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=40, deadline=None)
counts = st.one_of(st.integers(1, 40), st.sampled_from([16, 32, 48]))


def image(net: Net, channels: int, images: int = 2, size: tuple[int, int] = (5, 7)) -> str:
    """What a convolution makes: it lies in blocks."""
    return net.conv(net.data(images, 3, *size), net.parameter(channels, 3, 1, 1))


def shuffled(net: Net, x: str, shape: tuple[int, int, int, int], groups: int) -> str:
    n, c, h, w = shape
    split = net.op("reshape2", "Out", {"X": x}, "XShape", shape=[n, groups, c // groups, h, w])
    turned = net.op("transpose2", "Out", {"X": split}, "XShape", axis=[0, 2, 1, 3, 4])
    return net.op("reshape2", "Out", {"X": turned}, "XShape", shape=list(shape))


@few
@given(st.lists(counts, min_size=2, max_size=6), st.integers(1, 2), st.integers(1, 3))
def test_concat_of_channels(parts: list[int], images: int, window: int) -> None:
    net = Net()
    y = net.op("concat", "Out", {"X": [image(net, count, images) for count in parts]}, axis=1)
    weights = net.parameter(5, sum(parts), window, window)
    check(net, net.conv(y, weights, paddings=[window // 2] * 2), y, scale=sum(parts) ** 0.5 * 3)


@few
@given(st.lists(counts, min_size=2, max_size=4), st.integers(1, 2))
def test_a_concat_that_grows_as_in_densenet(parts: list[int], images: int) -> None:
    net = Net()
    y = image(net, 32, images)
    for count in parts:
        more = net.op(
            "relu", "Out", {"X": net.conv(y, net.parameter(count, net_channels(net, y), 3, 3), paddings=[1, 1])}
        )
        y = net.op("concat", "Out", {"X": [y, more]}, axis=1)
    check(net, net.op("relu", "Out", {"X": y}), rtol=2e-5)


def net_channels(net: Net, name: str) -> int:
    return int(net.program.global_block().var(name).shape[1])


def test_a_concat_of_an_image_with_itself_and_with_what_is_read_from_it_again() -> None:
    net = Net()
    x = image(net, 16)
    once = net.op("concat", "Out", {"X": [x, net.op("relu", "Out", {"X": x}), x]}, axis=1)
    again = net.op("concat", "Out", {"X": [x, once]}, axis=1)
    check(net, net.conv(again, net.parameter(3, 64, 1, 1)), once, scale=20)


def test_a_concat_whose_parts_fill_blocks_moves_nothing() -> None:
    net = Net()
    y = net.op("concat", "Out", {"X": [image(net, 32, 1), image(net, 48, 1), image(net, 20, 1)]}, axis=1)
    check(net, net.op("pool2d", "Out", {"X": y}, pooling_type="max", ksize=[2, 2], strides=[1, 1], paddings=[0, 0]))
    assert not {"REGROUP", "COPY"} & set(kernels(net))


def test_a_concat_that_is_fetched_and_one_of_fed_images() -> None:
    net = Net()
    fed = net.data(2, 4, 5, 7)
    y = net.op("concat", "Out", {"X": [fed, image(net, 16), net.data(2, 3, 5, 7)]}, axis=1)
    check(net, y, net.op("relu", "Out", {"X": y}), net.conv(y, net.parameter(3, 23, 3, 3)), scale=15)


def test_an_activation_of_a_concat_is_done_by_what_makes_its_parts() -> None:
    net = Net()
    y = net.op("concat", "Out", {"X": [image(net, 16), image(net, 32)]}, axis=1)
    check(net, net.op("leaky_relu", "Out", {"X": y}, alpha=0.1))
    assert "ELEMENTWISE" not in kernels(net)


@few
@given(counts, st.data())
def test_slices_of_channels(channels: int, data: st.DataObject) -> None:
    net = Net()
    x = image(net, channels)
    start = data.draw(st.integers(0, channels - 1))
    end = data.draw(st.integers(start + 1, channels))
    y = net.op("slice", "Out", {"Input": x}, axes=[1], starts=[start], ends=[end])
    z = net.op("slice", "Out", {"Input": x}, axes=[1], starts=[channels // 2], ends=[channels])
    weights = net.parameter(5, end - start, 3, 3)
    check(
        net, net.conv(y, weights, paddings=[1, 1]), net.op("relu", "Out", {"X": z}), scale=(9.0 * channels) ** 0.5 * 3
    )


def test_slices_by_whole_blocks_are_convolved_where_they_lie() -> None:
    net = Net()
    x = image(net, 64)
    y = [net.op("slice", "Out", {"Input": x}, axes=[1], starts=[32 * i], ends=[32 * i + 32]) for i in (0, 1)]
    net_sum = net.op("elementwise_add", "Out", {"X": net.op("tanh", "Out", {"X": y[0]}), "Y": y[1]})
    strided = net.conv(y[1], net.parameter(16, 32, 1, 1), strides=[2, 2])
    check(net, net_sum, strided, net.conv(net_sum, net.parameter(8, 32, 3, 3), paddings=[1, 1]), scale=30)
    assert "REGROUP" not in kernels(net)


@few
@given(st.integers(1, 12), st.sampled_from([2, 3, 4, 8]), st.integers(1, 2), st.booleans())
def test_shuffled_channels(each: int, groups: int, images: int, by_operator: bool) -> None:
    net = Net()
    shape = (images, each * groups, 5, 7)
    x = image(net, shape[1], images)
    y = net.op("shuffle_channel", "Out", {"X": x}, group=groups) if by_operator else shuffled(net, x, shape, groups)
    check(net, y, net.conv(y, net.parameter(3, shape[1], 3, 3)), scale=(9.0 * shape[1]) ** 0.5 * 3)


def test_shuffled_channels_of_what_is_fed() -> None:
    net = Net()
    y = net.op("shuffle_channel", "Out", {"X": net.data(2, 6, 3, 4)}, group=2)
    check(net, net.op("softmax", "Out", {"X": y}))


@few
@given(st.integers(1, 40), st.integers(1, 2))
def test_halves_that_are_put_together_shuffled_and_cut_move_once(half: int, images: int) -> None:
    net = Net()
    whole = net.op("concat", "Out", {"X": [image(net, half, images), image(net, half, images)]}, axis=1)
    y = shuffled(net, whole, (images, 2 * half, 5, 7), 2)
    left, right = (
        net.op("slice", "Out", {"Input": y}, axes=[1], starts=[start], ends=[start + half]) for start in (0, half)
    )
    check(net, net.conv(left, net.parameter(4, half, 1, 1)), net.op("relu", "Out", {"X": right}), scale=half**0.5 * 4)
    assert kernels(net).count("REGROUP") <= 2


@few
@given(st.integers(1, 20), st.integers(1, 3), st.integers(1, 2), st.booleans())
def test_pixel_shuffle(channels: int, factor: int, images: int, fed: bool) -> None:
    net = Net()
    count = channels * factor**2
    x = net.data(images, count, 4, 5) if fed else image(net, count, images, (4, 5))
    y = net.op("pixel_shuffle", "Out", {"X": x}, upscale_factor=factor)
    check(net, net.conv(y, net.parameter(3, channels, 3, 3), paddings=[1, 1]), y, scale=(9.0 * channels) ** 0.5 * 3)


@few
@given(st.integers(8, 40), st.integers(2, 4), st.integers(1, 2), st.sampled_from([0.125, 0.25, 0.4]))
def test_temporal_shift(channels: int, segments: int, videos: int, share: float) -> None:
    net = Net()
    x = image(net, channels, videos * segments)
    y = net.op("temporal_shift", "Out", {"X": x}, seg_num=segments, shift_ratio=share)
    check(net, y, net.conv(y, net.parameter(3, channels, 1, 1)), scale=channels**0.5 * 4)


@pytest.mark.parametrize("images", [1, 3])
def test_columns_of_an_image_as_steps_of_a_sequence(images: int) -> None:
    net = Net()
    steps = net.op(
        "im2sequence", "Out", {"X": image(net, 20, images)}, kernels=[5, 1], strides=[1, 1], paddings=[0] * 4
    )
    y = net.op("mul", "Out", {"X": steps, "Y": net.parameter(100, 12)})
    check(net, net.op("sequence_pool", "Out", {"X": y}, "MaxIndex", pooltype="SUM"), scale=60)


@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize(("images", "channels"), [(1, 32), (2, 48), (3, 20)])
def test_factors_by_image_and_channel(rank: int, images: int, channels: int) -> None:
    net = Net()
    x = image(net, channels, images)
    factors = net.data(images, channels, *(1, 1)[: rank - 2])
    y = net.op("elementwise_mul", "Out", {"X": x, "Y": net.op("sigmoid", "Out", {"X": factors})}, axis=0)
    check(net, net.conv(y, net.parameter(4, channels, 3, 3)), scale=(9.0 * channels) ** 0.5 * 3)
    assert "UNBLOCK" not in kernels(net)[:-1]


@pytest.mark.parametrize("act", ["relu", "leaky_relu", None])
@pytest.mark.parametrize(("images", "channels"), [(1, 32), (2, 48), (3, 20)])
def test_factors_by_image_and_channel_before_a_shortcut_are_one_step_with_it(
    images: int, channels: int, act: str | None
) -> None:
    net = Net()
    x, short = image(net, channels, images), image(net, channels, images)
    factors = net.op("sigmoid", "Out", {"X": net.data(images, channels)})
    scaled = net.op("elementwise_mul", "Out", {"X": x, "Y": factors}, axis=0)
    y = net.op("elementwise_add", "Out", {"X": short, "Y": scaled})
    y = net.op(act, "Out", {"X": y}) if act else y
    check(net, net.conv(y, net.parameter(4, channels, 3, 3)), scale=(9.0 * channels) ** 0.5 * 3)
    assert kernels(net).count("ELEMENTWISE") == 2


@pytest.mark.parametrize("fetched", [False, True])
def test_factors_of_an_image_added_to_the_image_itself_are_one_step(fetched: bool) -> None:
    net = Net()
    x = image(net, 24, 2)
    means = net.op("reduce_mean", "Out", {"X": x}, dim=[2, 3], keep_dim=True)
    scaled = net.op("elementwise_mul", "Out", {"X": x, "Y": net.op("sigmoid", "Out", {"X": means})})
    y = net.op("elementwise_add", "Out", {"X": x, "Y": scaled})
    check(net, net.conv(y, net.parameter(4, 24, 3, 3)), *[x] * fetched, scale=50)
    assert kernels(net).count("ELEMENTWISE") <= 2


def test_factors_before_a_shortcut_in_rows() -> None:
    net = Net()
    x, short, factors = net.data(2, 5, 3, 4), net.data(2, 5, 3, 4), net.data(2, 5)
    scaled = net.op("elementwise_mul", "Out", {"X": x, "Y": factors}, axis=0)
    check(net, net.op("softmax", "Out", {"X": net.op("elementwise_add", "Out", {"X": scaled, "Y": short})}))


@pytest.mark.parametrize(
    ("type", "attrs", "shape", "why"),
    [
        ("pixel_shuffle", {"upscale_factor": 2, "data_format": "NHWC"}, (1, 3, 5, 8), "not an NCHW image"),
        ("channel_shuffle", {"groups": 2, "data_format": "NHWC"}, (1, 3, 5, 8), "not an NCHW image"),
        (
            "temporal_shift",
            {"seg_num": 2, "shift_ratio": 0.05},
            (2, 8, 4, 4),
            "segments that do not divide the images or channels",
        ),
        ("im2sequence", {"kernels": [2, 2]}, (1, 8, 4, 4), "windows that are not columns of the image"),
        (
            "im2sequence",
            {"kernels": [4, 1], "paddings": [0, 1, 0, 1]},
            (1, 8, 4, 4),
            "windows that are not columns of the image",
        ),
    ],
)
def test_specializations_that_are_left_to_numpy(
    type: str, attrs: dict[str, Any], shape: tuple[int, ...], why: str
) -> None:
    net = Net()
    y = net.op(type, "Out", {"X": net.data(*shape)}, **attrs)
    agree(net, [net.op("softmax", "Out", {"X": y})])
    assert any(why in reason for reason in net.why_not())


def test_not_a_number_stays_in_its_channel() -> None:
    net = Net()
    x = net.data(1, 20, 2, 2, of=np.where(np.arange(80).reshape(1, 20, 2, 2) == 5, np.nan, 1).astype(np.float32))
    y = net.op("shuffle_channel", "Out", {"X": net.op("relu", "Out", {"X": x})}, group=2)
    for engine in ("numpy", "native"):
        assert np.isnan(net.run(engine, net.op("scale", "Out", {"X": y}, scale=2.0))[0]).sum() == 1
