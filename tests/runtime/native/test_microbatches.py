"""Batches of images whose first layers run for a few images at a time (lowering/microbatches.py): the same numbers to the bit,
in less memory; which layers do, and which run for the whole batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fluidtool.profiling.work import step_works
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native.abi import Kind
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.library import TILES, library
from fluidtool.runtime.engines.native.lowering import microbatches
from fluidtool.runtime.engines.native.region import NativeRegion
from fluidtool.runtime.partition import Region
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("native")
PRECISIONS = pytest.mark.parametrize("precision", ["float32", "bf16"])


@pytest.fixture
def batch() -> int:
    """Images that are several microbatches for the threads of this machine."""
    found = library()
    assert found is not None
    return 4 * max(1, found.threads // 2)


def compiled(net: Net, fetch: str, precision: str = "float32") -> tuple[Array, NativeRegion]:
    """What the only region gives, and what it was compiled to."""
    executor = Executor(engine="native", precision=precision)
    for _ in range(2):  # the second run finds the arena used
        (value,) = executor.run(net.program, net.feeds, [fetch], net.scope)
    net.plan = executor.plan(net.program, [fetch]).block(0)
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    (found,) = region.specializations.kept.values()
    assert net.why_not() == [] and isinstance(found, NativeRegion)
    return value.numpy(), found


def at_once(
    monkeypatch: pytest.MonkeyPatch, net: Net, fetch: str, precision: str = "float32"
) -> tuple[Array, NativeRegion]:
    """The same with all images at once."""
    with monkeypatch.context() as patched:
        patched.setattr(microbatches, "LEAST_BYTES", float("inf"))
        return compiled(net, fetch, precision)


def of_kind(region: NativeRegion, *kinds: Kind) -> list[KernelCall]:
    return [call for call in region.kernel_calls if call.kind in kinds]


def runs_apart(region: NativeRegion) -> bool:
    return any(call.repeats is not None for call in region.kernel_calls)


def relu(net: Net, x: str) -> str:
    return net.op("relu", "Out", {"X": x})


def plain(net: Net, x: str) -> str:
    return relu(net, net.conv(x, net.parameter(32, 3, 3, 3), paddings=[1, 1]))


def pooled(net: Net, x: str) -> str:
    x = plain(net, x)
    return net.op("pool2d", "Out", {"X": x}, pooling_type="max", ksize=[3, 3], strides=[2, 2], paddings=[1, 1])


def residual(net: Net, x: str) -> str:
    x = plain(net, x)
    y = net.conv(relu(net, net.conv(x, net.parameter(32, 32, 1, 1))), net.parameter(32, 32, 3, 3), paddings=[1, 1])
    return relu(net, net.op("elementwise_add", "Out", {"X": x, "Y": y}, axis=-1))


def depthwise(net: Net, x: str) -> str:
    x = plain(net, x)
    return relu(net, net.conv(x, net.parameter(32, 1, 3, 3), paddings=[1, 1], groups=32, type="depthwise_conv2d"))


def classes(net: Net, x: str, channels: int = 32) -> str:
    """The mean of each channel, and sums of those: for the whole batch."""
    mean = net.op("pool2d", "Out", {"X": x}, pooling_type="avg", ksize=[1, 1], global_pooling=True)
    return net.op("mul", "Out", {"X": mean, "Y": net.parameter(channels, 10)}, x_num_col_dims=1, y_num_col_dims=1)


# ---------------------------------------------------------------- the numbers
@PRECISIONS
@pytest.mark.parametrize("layers", [plain, pooled, residual, depthwise])
def test_images_give_the_bits_that_they_give_together(
    layers: Callable[[Net, str], str], precision: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    out = classes(net, relu(net, net.conv(layers(net, net.data(batch, 3, 80, 80)), net.parameter(32, 32, 1, 1))))
    got, apart = compiled(net, out, precision)
    want, together = at_once(monkeypatch, net, out, precision)
    found = library()
    assert found is not None
    in_tiles = precision == "bf16" and found.instructions == TILES
    assert runs_apart(apart) != in_tiles and not runs_apart(together)
    np.testing.assert_array_equal(got, want)


def test_a_result_that_is_read_twice_is_there_for_both(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    x = plain(net, net.data(batch, 3, 80, 80))
    small = net.conv(x, net.parameter(64, 32, 8, 8), strides=[8, 8])  # more weights than pixels
    out = net.op("elementwise_add", "Out", {"X": classes(net, x), "Y": classes(net, small, 64)}, axis=-1)
    got, apart = compiled(net, out)
    assert runs_apart(apart)
    np.testing.assert_array_equal(got, at_once(monkeypatch, net, out)[0])


# ---------------------------------------------------------------- memory and work
def test_images_use_the_memory_of_those_before_them(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    x = net.data(batch, 3, 80, 80)
    for _ in range(3):
        x = plain(net, x) if x in net.feeds else relu(net, net.conv(x, net.parameter(32, 32, 1, 1)))
    out = classes(net, x)
    apart, together = compiled(net, out)[1], at_once(monkeypatch, net, out)[1]
    assert apart.frames[0].arena.nbytes < 0.8 * together.frames[0].arena.nbytes


def test_a_layer_does_as_much_for_all_images_as_for_the_batch(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    out = classes(net, plain(net, net.data(batch, 3, 80, 80)))
    apart, together = compiled(net, out)[1], at_once(monkeypatch, net, out)[1]
    sums = [sum(work.multiply_adds for work in step_works(each.kernel_calls)) for each in (apart, together)]
    assert sums[0] == sums[1] > 0


# ---------------------------------------------------------------- which layers
def test_layers_with_more_weights_than_pixels_run_for_the_whole_batch(batch: int) -> None:
    net = Net()
    x = plain(net, net.data(batch, 3, 80, 80))
    x = net.conv(x, net.parameter(128, 32, 8, 8), strides=[8, 8])
    calls = of_kind(compiled(net, classes(net, x, 128))[1], Kind.CONVOLUTION)
    assert [call.repeats is not None for call in calls] == [False, *[True] * (len(calls) - 2), False]
    assert calls[-1].arguments.images == batch  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("images", "size", "why"), [(1, 80, "one image"), (4, 16, "images that stay in the cache")], ids=["one", "small"]
)
def test_a_batch_runs_at_once_where_nothing_is_gained(images: int, size: int, why: str) -> None:
    net = Net()
    out = classes(net, plain(net, net.data(images, 3, size, size)))
    assert not runs_apart(compiled(net, out)[1]), why


def test_layers_beside_each_other_run_for_the_whole_batch(batch: int) -> None:
    net = Net()
    x = net.data(batch, 3, 80, 80)
    out = net.op(
        "elementwise_add", "Out", {"X": classes(net, plain(net, x)), "Y": classes(net, plain(net, x))}, axis=-1
    )
    assert not runs_apart(compiled(net, out)[1])


def test_a_result_that_is_fetched_is_computed_for_the_whole_batch(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    out = plain(net, net.data(batch, 3, 80, 80))
    got, region = compiled(net, out)
    assert not runs_apart(region)
    np.testing.assert_array_equal(got, at_once(monkeypatch, net, out)[0])


@pytest.mark.parametrize(
    ("images", "threads", "together"),
    [(8, 1, 1), (8, 2, 1), (8, 16, 8), (16, 16, 8), (7, 4, 7), (6, 4, 2), (1, 2, 1), (64, 2, 2)],
)
def test_so_many_images_run_together(images: int, threads: int, together: int) -> None:
    assert microbatches._images_at_once(images, threads) == together
