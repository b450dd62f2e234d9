"""Pyramids of features: images that are scaled by channel, added up, resampled and put side by side are one step, which also
rounds to 8 bits; and convolutions of 8 bits whose pixels share vectors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.runtime.engines.native.library import library
from fluidtool.runtime.partition import Region
from tests.runtime.native.checking import Net, calls_of, check, kernels
from tests.runtime.native.test_int8 import digest, in_steps, rounded, same, usable, weights
from tests.support.checkout import child_environment

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=25, deadline=None)


def nearest(net: Net, x: str, factor: int, kind: str = "nearest_interp") -> str:
    attrs = {"align_corners": False, "align_mode": 1, "data_layout": "NCHW", "interp_method": kind.partition("_")[0]}
    sizes = {"out_h": -1, "out_w": -1, "scale": float(factor)}
    return net.op(kind, "Out", {"X": x}, **attrs, **sizes)


def gated(net: Net, x: str, images: int, channels: int) -> str:
    """An image, and that image scaled by channel, added up."""
    scaled = net.op("elementwise_mul", "Out", {"X": x, "Y": net.data(images, channels, 1, 1)}, axis=-1)
    return add(net, x, scaled)


def add(net: Net, x: str, y: str) -> str:
    return net.op("elementwise_add", "Out", {"X": x, "Y": y}, axis=-1)


def image(net: Net, images: int, channels: int, rows: int, columns: int) -> str:
    """A level of a pyramid, as a convolution gives it."""
    return net.conv(rounded(net, net.data(images, 5, rows, columns), 3.0), weights(net, channels, 5, 1, 1))


# ---------------------------------------------------------------- sums
@few
@given(st.integers(1, 2), st.integers(1, 40), st.integers(1, 7), st.integers(1, 7), st.integers(2, 3), st.booleans())
def test_a_level_and_the_next_one_resampled(
    images: int, channels: int, rows: int, columns: int, factor: int, swapped: bool
) -> None:
    net = Net()
    fine, coarse = (image(net, images, channels, rows * by, columns * by) for by in (factor, 1))
    pair = [gated(net, fine, images, channels), nearest(net, coarse, factor)]
    found = same(net, add(net, *(reversed(pair) if swapped else pair)))
    assert "SUM_IMAGES" in found and not {"INTERPOLATE", "ELEMENTWISE"} & set(found)


def test_bytes_and_floats_of_a_sum() -> None:
    """Each level is rounded for its convolution, and read as floats by the next one."""
    net = Net()
    levels = [image(net, 1, 24, size, size) for size in (4, 8, 16)]
    results, above = [], levels[0]
    for level in levels[1:]:
        above = add(net, gated(net, level, 1, 24), nearest(net, above, 2))
        results.append(net.conv(rounded(net, above, 60.0, 2_000_000), weights(net, 16, 24, 3, 3), paddings=[1, 1]))
    in_steps(net, 1e3, *results)
    assert kernels(net).count("SUM_IMAGES") == 2 and kernels(net).count("TO_INT8") == len(levels)


def test_a_sum_of_float_programs() -> None:
    net = Net()
    fine, coarse = (net.conv(net.data(1, 3, size, size), net.parameter(20, 3, 1, 1)) for size in (8, 4))
    check(net, add(net, gated(net, fine, 1, 20), nearest(net, coarse, 2)))
    assert "SUM_IMAGES" in kernels(net)


def test_factors_of_two_axes() -> None:
    """As SE-ResNeXt of Paddle 1.8 has them."""
    net = Net()
    fine = image(net, 2, 24, 8, 8)
    scaled = net.op("elementwise_mul", "Out", {"X": fine, "Y": net.data(2, 24)}, axis=0)
    assert "SUM_IMAGES" in same(net, add(net, scaled, nearest(net, image(net, 2, 24, 4, 4), 2)))


@pytest.mark.parametrize("what", ["bilinear", "read elsewhere", "activation", "another shape"])
def test_what_is_no_such_sum(what: str) -> None:
    net = Net()
    fine, coarse = image(net, 1, 24, 8, 8), image(net, 1, 24, 4, 4)
    resampled = nearest(net, coarse, 2, "bilinear_interp" if what == "bilinear" else "nearest_interp")
    other = net.parameter(24) if what == "another shape" else fine
    inputs = {"X": resampled, "Y": other}
    y = net.op("elementwise_add", "Out", inputs, axis=1 if what == "another shape" else -1)
    y = net.op("relu", "Out", {"X": y}) if what == "activation" else y
    assert "SUM_IMAGES" not in same(net, y, *([resampled] if what == "read elsewhere" else []))


# ---------------------------------------------------------------- parts
def parts(net: Net, counts: tuple[int, ...], images: int = 1) -> tuple[str, list[str]]:
    """A concatenation of levels of these channels, the first the smallest, the last scaled by channel."""
    made = []
    for number, channels in enumerate(counts):
        factor = 2 ** (len(counts) - 1 - number)
        level = image(net, images, channels, 8 // factor, 16 // factor)
        made.append(nearest(net, level, factor) if factor > 1 else gated(net, level, images, channels))
    return net.op("concat", "Out", {"X": made}, axis=1), made


@pytest.mark.parametrize("counts", [(24, 24, 24, 24), (4, 8, 12, 3), (40, 17)])
@pytest.mark.parametrize("version", [0, 2_000_000])
def test_parts_become_bytes_where_they_belong(counts: tuple[int, ...], version: int) -> None:
    net = Net()
    whole, _ = parts(net, counts, 2)
    out = net.conv(rounded(net, whole, 20.0, version), weights(net, 24, sum(counts), 3, 3), paddings=[1, 1])
    in_steps(net, 1e3, out)
    found = kernels(net)
    assert found.count("SUM_IMAGES") == len(counts) and not {"REGROUP", "INTERPOLATE", "ELEMENTWISE"} & set(found)


@pytest.mark.parametrize("why", ["fetched", "odd channels", "also read as floats", "two quantizers"])
def test_parts_that_stay_apart(why: str) -> None:
    net = Net()
    whole, _ = parts(net, (6, 24) if why == "odd channels" else (24, 24))
    channels = 30 if why == "odd channels" else 48
    bytes_of = rounded(net, whole, 20.0)
    fetches = [net.conv(bytes_of, weights(net, 24, channels, 1, 1))]
    fetches += [whole] if why == "fetched" else [bytes_of] if why == "also read as floats" else []
    if why == "two quantizers":
        fetches.append(net.conv(rounded(net, whole, 30.0), weights(net, 24, channels, 1, 1)))
    same(net, *fetches)
    assert "INTERPOLATE" in kernels(net) and "SUM_IMAGES" not in kernels(net)


# ---------------------------------------------------------------- pixels that share vectors
def narrow() -> int:
    """Half as many outputs as a vector has lanes."""
    found = library()
    assert found is not None
    return found.width // 2


def columns_of(net: Net, kind: str) -> list[int]:
    """How many pixels of a row the calls of a kernel compute."""
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    (found,) = region.specializations.kept.values()
    calls: list[Any] = [call.arguments for call in found.kernel_calls if call.kind.name == kind]  # type: ignore[attr-defined]
    return [call.columns for call in calls]


@few
@given(st.data())
def test_two_pixels_share_a_vector(data: st.DataObject) -> None:
    """A block as networks for phones begin: a convolution, one by channel, and one that adds what the first gave."""
    draw, count = data.draw, narrow()
    net = Net(draw(st.integers(0, 99)))
    window, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    columns = 2 * draw(st.integers(2, 9))
    images, rows = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    sizes = [(length - 1) * stride + window for length in (rows, columns)]
    x = net.data(images, draw(st.integers(1, 9)), *sizes)
    version = draw(st.sampled_from([0, 2_000_000]))
    y = net.conv(
        rounded(net, x, 3.0, version), weights(net, count, net.feeds[x].shape[1], window, window),
        strides=[stride, stride],
    )  # fmt: skip
    y = net.op("hard_swish", "Out", {"X": y}, threshold=6.0, offset=3.0, scale=6.0)
    z = net.op("relu", "Out", {"X": net.conv(rounded(net, y, 9.0, version), weights(net, count, count, 1, 1))})
    taps = draw(st.sampled_from([1, 3, 5]))
    z = net.conv(
        rounded(net, z, 9.0, version), weights(net, count, 1, taps, taps), type="depthwise_conv2d", groups=count,
        paddings=[taps // 2] * 2,
    )  # fmt: skip
    z = net.conv(rounded(net, z, 30.0, version), weights(net, count, count, 1, 1))
    out = net.conv(rounded(net, add(net, z, y), 50.0, version), weights(net, 20, count, 1, 1))
    in_steps(net, 1e3, out)
    assert columns_of(net, "INT8_DEPTHWISE") == [columns // 2]
    *first, last = columns_of(net, "INT8_PRODUCTS")
    assert first == [columns // 2] * 3 and last in (columns, columns * rows)


@pytest.mark.parametrize("why", ["odd columns", "floats are fetched", "a shortcut from elsewhere", "dilated"])
def test_pixels_that_stay_apart(why: str) -> None:
    net, count = Net(), narrow()
    columns = 7 if why == "odd columns" else 8
    attrs = {"dilations": [1, 2], "paddings": [1, 2]} if why == "dilated" else {"paddings": [1, 1]}
    y = net.conv(rounded(net, net.data(1, 3, 4, columns), 3.0), weights(net, count, 3, 3, 3), **attrs)
    if why == "a shortcut from elsewhere":
        y = add(net, y, net.data(1, count, 4, columns))
    out = net.conv(rounded(net, y, 9.0), weights(net, 20, count, 1, 1))
    same(net, out, *([y] if why == "floats are fetched" else []))
    assert columns // 2 not in columns_of(net, "INT8_PRODUCTS")


@pytest.mark.parametrize("reader", ["pool2d", "another quantizer"])
def test_pixels_stay_apart_for_a_quantizer_that_reads_floats(reader: str) -> None:
    net, count = Net(), narrow()
    y = net.conv(rounded(net, net.data(1, 3, 4, 8), 3.0), weights(net, count, 3, 1, 1))
    z = rounded(net, y, 9.0)
    if reader == "pool2d":
        out = net.op("pool2d", "Out", {"X": z}, pooling_type="avg", ksize=[2, 2], strides=[2, 2], paddings=[0, 0])
        same(net, out)
    else:
        same(net, *(net.conv(each, weights(net, 20, count, 1, 1)) for each in (z, rounded(net, y, 5.0))))
    assert 4 not in columns_of(net, "INT8_PRODUCTS")


# ---------------------------------------------------------------- the end of a sum
def test_hard_swish_divides_as_a_division_does() -> None:
    """Also where the quotient is tiny or huge: by whole numbers as sums, and powers of two as factors."""
    net = Net()
    numbers = np.arange(-127, 128, dtype=np.float32).reshape(1, 1, 15, 17)
    powers = np.float32(2) ** np.arange(-120, 121, 8)
    x = rounded(net, net.data(of=numbers), 127.0)
    filters = net.parameter(of=np.ones((powers.size, 1, 1, 1), np.float32))
    filters = net.op(
        "fake_channel_wise_quantize_dequantize_abs_max", "Out", {"X": filters}, "OutScale", quant_axis=0
    )  # fmt: skip
    y = net.op("affine_channel", "Out", {
        "X": net.conv(x, filters), "Scale": net.parameter(of=powers), "Bias": net.parameter(of=np.zeros_like(powers)),
    }, data_layout="NCHW")  # fmt: skip
    got, value = net.run("native", net.op("hard_swish", "Out", {"X": y}, threshold=6.0, offset=3.0, scale=6.0), y)
    product = value * np.minimum(np.maximum(value + np.float32(3), 0), np.float32(6))
    np.testing.assert_array_equal(got, product / np.float32(6))


def test_every_vector_of_an_end_gives_what_its_lanes_alone_would() -> None:
    """Channels of all numbers, the last of which fill no vector, with and without what is added, rounded both ways."""
    for version in (0, 2_000_000):
        alone, together = [], []
        for channels in (4, 8, 12, 20, 28):
            for made, count in ((together, channels), (alone, channels + 16)):
                net = Net(channels)
                x = net.data(1, 6, 3, 5)
                numbers = np.random.default_rng(channels).standard_normal((channels, 6, 1, 1)).astype(np.float32)
                wide = np.concatenate([numbers, np.ones((count - channels, 6, 1, 1), np.float32)])
                y = net.conv(rounded(net, x, 3.0, version), by_tensor(net, wide))
                bytes_of = rounded(net, net.op("relu", "Out", {"X": y}), 5.0, version)
                last = np.zeros((10, count, 1, 1), np.float32)
                last[:, :channels] = np.random.default_rng(1).integers(-127, 128, (10, channels, 1, 1))
                made.append(net.run("native", net.conv(bytes_of, by_tensor(net, last)))[0])
        assert digest(alone) == digest(together)


def by_tensor(net: Net, numbers: Any) -> str:
    """Weights rounded by the largest of them, which is the same for all."""
    numbers = np.clip(numbers, -127, 127)
    return net.op(
        "fake_quantize_dequantize_abs_max", "Out", {"X": net.parameter(of=with_largest(numbers))}, "OutScale"
    )  # fmt: skip


def with_largest(numbers: Any) -> Any:
    numbers = numbers.copy()
    numbers.reshape(-1)[0] = 127
    return numbers


# ---------------------------------------------------------------- transposed convolutions, one after the other
def transposed(net: Net, x: str, channels: int, filters: int, window: int = 2, stride: int = 2, **attrs: Any) -> str:
    settled = {"strides": [stride] * 2, "paddings": [0, 0], "dilations": [1, 1], "groups": 1} | attrs
    numbers = net.random.standard_normal((channels, filters, window, window)).astype(np.float32) / np.float32(10)
    return net.op("conv2d_transpose", "Output", {"Input": x, "Filter": net.parameter(of=numbers)}, **settled)


def head(net: Net, images: int, rows: int, columns: int, **first: Any) -> tuple[str, str]:
    """The end of a detector of text: an image four times as large in each direction; and what lies between."""
    x = net.op("relu", "Out", {"X": net.conv(net.data(images, 6, rows, columns), net.parameter(24, 6, 1, 1))})
    between = net.op("relu", "Out", {"X": transposed(net, x, 24, 24, **first)})
    return net.op("sigmoid", "Out", {"X": transposed(net, between, 24, 1)}), between


@pytest.mark.parametrize(("images", "rows", "columns"), [(1, 91, 64), (2, 40, 70), (1, 3, 2050)])
def test_two_transposed_convolutions_are_computed_band_by_band(images: int, rows: int, columns: int) -> None:
    net = Net()
    out, _ = head(net, images, rows, columns)
    check(net, out)
    wide = sum(call.kind.name == "CONVOLUTION" and call.repeats is None for call in calls_of(net))
    assert wide > 1 + 4 + 1 and (wide - 1) % 5 == 0


@pytest.mark.parametrize("why", ["small", "read elsewhere", "overlaps", "padded"])
def test_transposed_convolutions_of_whole_images(why: str) -> None:
    net = Net()
    first = {"overlaps": {"window": 3}, "padded": {"window": 4, "paddings": [1, 1]}}.get(why, {})
    out, between = head(net, 1, *((8, 8) if why == "small" else (91, 64)), **first)
    check(net, out, *([between] if why == "read elsewhere" else []))
    assert kernels(net).count("CONVOLUTION") == 1 + 4 + 1


def test_a_part_of_a_concatenation_is_no_band() -> None:
    net = Net()
    out, _ = head(net, 1, 91, 64)
    other = net.conv(net.data(1, 5, 364, 256), net.parameter(16, 5, 1, 1))
    whole = net.op("concat", "Out", {"X": [other, out]}, axis=1)
    check(net, net.conv(whole, net.parameter(8, 17, 3, 3)))


# ---------------------------------------------------------------- every instruction set
def pyramid_of_8_bits() -> list[Any]:
    """Layers that fill half of the vectors of 16 lanes, and of 8, and a pyramid behind them, rounded away from zero."""
    net, version, levels = Net(5), 2_000_000, []
    data = rounded(net, net.data(1, 3, 32, 32), 3.0, version)
    for count, taps in ((8, 3), (4, 5)):
        y = net.conv(
            data,
            weights(net, count, net.program.global_block().var(data).shape[1], 3, 3),
            strides=[2, 2],
            paddings=[1, 1],
        )
        y = net.op("hard_swish", "Out", {"X": y}, threshold=6.0, offset=3.0, scale=6.0)
        z = net.conv(rounded(net, y, 9.0, version), weights(net, count, 1, taps, taps), type="depthwise_conv2d", groups=count,
                     paddings=[taps // 2] * 2)  # fmt: skip
        data = rounded(
            net, add(net, net.conv(rounded(net, z, 30.0, version), weights(net, count, count, 1, 1)), y), 20.0, version
        )
        levels.append(net.conv(data, weights(net, 24, count, 1, 1)))
    fine, coarse = levels
    both = add(net, gated(net, fine, 1, 24), nearest(net, coarse, 2))
    whole = net.op("concat", "Out", {"X": [gated(net, both, 1, 24), nearest(net, coarse, 2)]}, axis=1)
    return net.run("native", net.conv(rounded(net, whole, 40.0, version), weights(net, 10, 48, 3, 3)))


@pytest.mark.parametrize("instructions", ["amx", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "portable"])
def test_every_instruction_set_gives_the_same_bits(instructions: str) -> None:
    if instructions not in usable():
        pytest.skip(f"this build or processor has no {instructions}")
    code = (
        "from fluidtool.ir.operator import hooks; hooks.prepare = hooks.infer = None\n"
        "from tests.runtime.native.test_pyramids import digest, pyramid_of_8_bits\n"
        "print(digest(pyramid_of_8_bits()))"
    )
    env = child_environment(FLUIDTOOL_INSTRUCTIONS=instructions)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [digest(pyramid_of_8_bits())], done.stderr
