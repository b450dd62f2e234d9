"""Layouts of float32 convolutions: channels first or last, by what was measured on the device, with the copies between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fluidtool.fluid as fluid
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda import cudnn, layouts, plans
from fluidtool.runtime.engines.cuda.calls import Buffer, Convolution, Pointer, RefusedError, flat
from fluidtool.runtime.engines.cuda.layouts import cheapest
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import CUDAPlace
from tests.gpu.standin.devices import MACHINE
from tests.gpu.test_cuda_channels import odd, pictures
from tests.gpu.test_cuda_regions import check
from tests.gpu.test_cuda_regions import compiled as region
from tests.gpu.test_training_steps import Job, same
from tests.runtime.native.checking import Net

Measure = Callable[[Convolution], float]


# ---------------------------------------------------------------- the choice, as data
COSTS = st.sampled_from([0.0, 1.0, 2.0, 3.5, 7.0, inf])


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[int, tuple[float, float]], dict[tuple[int, int], float]]:
    """Some layers, one of whose layouts is always possible, and links between them."""
    count = draw(st.integers(1, 7))
    seconds = {key: draw(st.tuples(COSTS, COSTS).filter(lambda both: min(both) < inf)) for key in range(count)}
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] < pair[1])
    links = draw(st.dictionaries(pairs, st.sampled_from([0.0, 0.5, 1.5, 4.0]), max_size=10)) if count > 1 else {}
    return seconds, links


def total(seconds: Any, links: Any, first: Any) -> float:
    """What a choice takes."""
    own = sum(both[key in first] for key, both in seconds.items())
    return float(own + sum(cost for (a, b), cost in links.items() if (a in first) != (b in first)))


@given(problems())
def test_no_choice_takes_less(problem: Any) -> None:
    seconds, links = problem
    choices = ({key for key, is_first in enumerate(each) if is_first} for each in product((0, 1), repeat=len(seconds)))
    assert total(seconds, links, cheapest(seconds, links)) == min(total(seconds, links, each) for each in choices)


@pytest.mark.parametrize(
    ("seconds", "links", "first"),
    [
        ({"a": (2, 1)}, {}, {"a"}),
        ({"a": (1, 2)}, {}, set()),
        ({"a": (1, 1)}, {}, set()),  # as it was
        ({"a": (inf, 9)}, {}, {"a"}),  # no plan with channels last
        ({"a": (5, 1), "b": (1, 3)}, {("a", "b"): 1}, {"a"}),  # a copy between them
        ({"a": (5, 1), "b": (1, 3)}, {("a", "b"): 3}, {"a", "b"}),  # which would take longer
        ({"a": (2, 1), "b": (1, 9)}, {("a", "b"): 3}, set()),
        ({"a": (5, 1), "b": (0, 0), "c": (5, 1)}, {("a", "b"): 1, ("b", "c"): 1}, {"a", "b", "c"}),
        ({"a": (5, 1), "b": (0, inf), "c": (5, 1)}, {("a", "b"): 1, ("b", "c"): 1}, {"a", "c"}),
    ],
)
def test_a_faster_layout_is_worth_its_copies_or_not(seconds: Any, links: Any, first: set[str]) -> None:
    assert cheapest(seconds, links) == first


def test_many_layers_are_chosen_for_at_once() -> None:
    count, random = 600, np.random.default_rng(0)
    seconds = {key: tuple(random.random(2)) if key % 3 == 0 else (0.0, 0.0) for key in range(count)}
    links = {(key, key + step): 0.2 for step in (1, 9) for key in range(count - step)}
    first = cheapest(seconds, links)
    assert total(seconds, links, first) <= min(total(seconds, links, set()), total(seconds, links, set(seconds)))


# ---------------------------------------------------------------- regions
@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions are measured, too, and copies cost nothing."""
    monkeypatch.setattr(layouts, "LEAST", 1)
    monkeypatch.setattr(plans.Copies, "seconds", lambda self, shape: 0.0)


@pytest.fixture
def measured(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Measure], list[Convolution]]]:
    """Sets how long convolutions take; gives those that are asked for."""

    def measure(seconds: Measure) -> list[Convolution]:
        asked: list[Convolution] = []
        monkeypatch.setattr(cudnn.Cudnn, "seconds", lambda self, call: asked.append(call) or seconds(call))
        return asked

    yield measure
    MACHINE.refused = frozenset()


def first_is_faster(call: Convolution) -> float:
    return 1.0 if call.channels_first else 2.0


def last_is_faster(call: Convolution) -> float:
    return 2.0 if call.channels_first else 1.0


def by_window(call: Convolution) -> float:
    """Windows of 3 x 3 are faster with channels first, others with channels last."""
    return 1.0 if call.channels_first == (call.filters[2] == 3) else 2.0


def bottleneck() -> tuple[Net, str]:
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1, a bias, a sum with the image, a ReLU, pooling."""
    net = Net()
    x = net.conv(net.data(2, 3, 8, 6), net.parameter(6, 3, 3, 3), paddings=[1, 1])
    y = net.conv(x, net.parameter(4, 6, 1, 1))
    y = net.op("relu", "Out", {"X": net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(4)}, axis=1)})
    y = net.conv(y, net.parameter(4, 4, 3, 3), paddings=[1, 1])
    y = net.conv(net.op("relu", "Out", {"X": y}), net.parameter(6, 4, 1, 1))
    y = net.op("relu", "Out", {"X": net.op("elementwise_add", "Out", {"X": y, "Y": x}, axis=-1)})
    pool = {"ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "pooling_type": "avg"}
    return net, net.conv(net.op("pool2d", "Out", {"X": y}, **pool), net.parameter(5, 6, 1, 1))


def convolutions(calls: Any) -> list[Convolution]:
    return [call for call in (getattr(each, "first", each) for each in calls) if isinstance(call, Convolution)]


def test_nothing_is_copied_where_all_channels_are_first(measured: Any) -> None:
    measured(first_is_faster)
    net, name = bottleneck()
    found = check(net, name)
    assert all(call.channels_first for call in convolutions(region(net).calls))
    assert found[0] in ("Convolution", "Choice")  # the image is read where it was fed


def test_channels_are_last_where_that_is_faster(measured: Any) -> None:
    measured(last_is_faster)
    net, name = bottleneck()
    assert check(net, name)[0] == "each"
    assert not any(call.channels_first for call in convolutions(region(net).calls))


def test_every_layer_has_the_layout_that_is_faster_for_it(measured: Any) -> None:
    measured(by_window)
    net, name = bottleneck()
    check(net, name)
    found = {call.filters[2:]: call.channels_first for call in convolutions(region(net).calls)}
    assert found == {(3, 3): True, (1, 1): False}


def test_copies_that_take_longer_are_not_made(measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans.Copies, "seconds", lambda self, shape: 10.0)
    measured(by_window)
    net, name = bottleneck()
    check(net, name)
    assert len({call.channels_first for call in convolutions(region(net).calls)}) == 1


def test_what_follows_a_convolution_is_not_measured(measured: Any) -> None:
    asked = measured(first_is_faster)
    net, name = bottleneck()
    check(net, name)
    assert len(asked) == 2 * 5 and not any(call.bias or call.added or call.activation for call in asked)


def test_what_has_no_plan_with_channels_last_has_them_first(measured: Any) -> None:
    measured(lambda call: 1.0 if call.channels_first else inf)
    net, name = bottleneck()
    check(net, name)
    assert all(call.channels_first for call in convolutions(region(net).calls))


@pytest.mark.parametrize("seconds", [inf, MemoryError("full"), RefusedError("failed"), RuntimeError("unknown")])
def test_what_cannot_be_measured_stays_as_it_was(seconds: Any, measured: Any) -> None:
    def failing(call: Convolution) -> float:
        if isinstance(seconds, Exception):
            raise seconds
        return float(seconds)

    measured(failing)
    net, name = bottleneck()
    check(net, name)
    assert not any(call.channels_first for call in convolutions(region(net).calls))


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_with_tensor_cores_channels_are_last(precision: str, measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", precision)
    asked = measured(first_is_faster)
    net, name = bottleneck()
    Executor(CUDAPlace(0)).run(net.program, net.feeds, [name], net.scope)
    assert asked == []


def test_small_convolutions_are_not_measured(measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "LEAST", 6 * 2 * 8 * 6 * 27)  # of the first one alone
    asked = measured(first_is_faster)
    net, name = bottleneck()
    check(net, name)
    assert {call.images[1] for call in asked} == {3}


def test_others_keep_their_layout_between_layers_with_channels_first(measured: Any) -> None:
    measured(first_is_faster)
    net = Net()
    x = net.conv(net.data(2, 4, 6, 6), net.parameter(8, 4, 3, 3), paddings=[1, 1])
    y = net.conv(x, net.parameter(8, 1, 3, 3), groups=8, paddings=[1, 1], type="depthwise_conv2d")
    y = net.op("conv2d_transpose", "Output", {"Input": y, "Filter": net.parameter(8, 4, 2, 2)}, strides=[2, 2],
               paddings=[0, 0], dilations=[1, 1], groups=1)  # fmt: skip
    check(net, net.conv(y, net.parameter(4, 4, 1, 1)))
    found = {call.computes: call.channels_first for call in convolutions(region(net).calls)}
    assert found == {"out": True, "x": False}


def test_later_runs_measure_nothing(measured: Any) -> None:
    asked = measured(first_is_faster)
    net, name = bottleneck()
    executor = Executor(CUDAPlace(0))
    executor.run(net.program, net.feeds, [name], net.scope)
    before = len(asked)
    for _ in range(3):
        executor.run(net.program, net.feeds, [name], net.scope)
    assert before == len(asked) > 0


# ---------------------------------------------------------------- training steps
def trained(build: Any, feeds: list[dict[str, Any]]) -> None:
    """A step with Momentum gives the CPU's parameters."""
    jobs = [Job(build, lambda: fluid.optimizer.Momentum(0.1, 0.9), place) for place in (fluid.CPUPlace(), None)]
    for feed in feeds:
        for job in jobs:
            job.step(feed)
    same(*jobs, 2e-4)


@pytest.mark.parametrize("seconds", [first_is_faster, by_window])
def test_steps_and_their_gradients(seconds: Measure, measured: Any, compiled: list[CudaStep]) -> None:
    measured(seconds)
    trained(odd(3, 12), [pictures(3, seed) for seed in range(3)])
    found = convolutions(compiled[-1].calls)
    assert {call.channels_first for call in found} == ({True} if seconds is first_is_faster else {True, False})
    assert {call.computes for call in found if call.channels_first} == {"out", "x", "weights"}


@pytest.mark.parametrize("seed", range(6))
def test_steps_in_any_layouts(seed: int, measured: Any, compiled: list[CudaStep]) -> None:
    random = np.random.default_rng(seed)
    measured(lambda call: float(random.random()))
    trained(odd(4, 8), [pictures(4, each) for each in range(2)])
    assert convolutions(flat(compiled[-1].calls))


# ---------------------------------------------------------------- what is kept
@pytest.fixture
def kept(cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Convolution]:
    """The convolutions that are measured; what was found is kept."""
    monkeypatch.setenv("FLUIDTOOL_CACHE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found: list[Convolution] = []
    own = cudnn.Cudnn._measured

    def noted(self: Any, call: Convolution) -> float:
        found.append(call)
        return own(self, call)

    monkeypatch.setattr(cudnn.Cudnn, "_measured", noted)
    return found


def process() -> Any:
    net, name = bottleneck()
    (value,) = Executor(CUDAPlace(0)).run(net.program, net.feeds, [name], net.scope)
    return value.numpy()


def test_convolutions_are_measured_on_the_device_and_seconds_are_kept(kept: list[Convolution]) -> None:
    first = process()
    assert len(kept) == 10 and sum(call.channels_first for call in kept) == 5
    np.testing.assert_array_equal(process(), first)
    assert len(kept) == 10


@pytest.mark.parametrize("what", ["driver", "device"])
def test_seconds_are_those_of_a_device_and_its_versions(
    what: str, kept: list[Convolution], cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process()
    if what == "driver":
        monkeypatch.setattr(cupy.cuda.runtime, "driverGetVersion", lambda: 13010)
    else:
        known = cupy.cuda.runtime.getDeviceProperties
        monkeypatch.setattr(cupy.cuda.runtime, "getDeviceProperties", lambda number: known(number) | {"minor": 1})
    process()
    assert len(kept) == 20


def test_what_is_refused_while_it_is_measured_takes_forever(cupy: Any) -> None:
    library, nowhere = cudnn.Cudnn(cupy), (Pointer(Buffer(1)), Pointer(Buffer(1)), Pointer(Buffer(1)))
    call = Convolution(*nowhere, (1, 4, 5, 5), (4, 4, 3, 3), (1, 4, 3, 3), (0, 0, 0, 0), (1, 1), (1, 1))
    assert 0 < library.seconds(call) < inf
    assert not library._plans  # nor is its memory kept
    MACHINE.refused = frozenset({"conv"})
    assert cudnn.Cudnn(cupy).seconds(call) == inf
    MACHINE.refused = frozenset()


def test_a_copy_is_measured_once(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(plans, "COPIED", (2, 3, 4))
    copies = plans.Copies(cupy)
    one, two = copies.seconds((1, 2, 3, 4)), copies.seconds((2, 2, 3, 4))
    assert plans.LAUNCH < one < two and two - plans.LAUNCH == pytest.approx(2 * (one - plans.LAUNCH))
