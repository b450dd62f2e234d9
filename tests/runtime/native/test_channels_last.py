"""Kernels for images whose memory has the channels last, against numpy in double, with every instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluidtool.ops.nn.convolution import convolve, convolve_filter_grad, convolve_input_grad
from fluidtool.ops.nn.windows import Windows
from fluidtool.runtime import partition
from fluidtool.runtime.engines.native.kernels import activations, backward, biases, images, normalization
from fluidtool.runtime.engines.native.kernels.last import empty_last, is_last, is_only_last, memory_of
from fluidtool.runtime.engines.native.library import Library, library, usable_instructions
from fluidtool.runtime.engines.native.lowering.last import Geometry
from fluidtool.runtime.graph.ir import NONE, RELU, Shape
from tests.runtime.native.test_operator_kernels import agree, counted, outputs_of
from tests.support.checkout import child_environment

pytestmark = pytest.mark.usefixtures("native")


@pytest.fixture(autouse=True)
def operator_by_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in training: no regions."""
    monkeypatch.setattr(partition, "WORTH", frozenset())


NEAR = 5e-6  # of the largest number: Winograd's method rounds more than sums do


def last(shape: Shape, seed: int = 0) -> Any:
    """Random numbers, channels last."""
    array = empty_last(shape)
    array[:] = np.random.RandomState(seed).randn(*shape)
    return array


def is_near(got: Any, want: Any, near: float = NEAR) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=near * max(float(np.abs(want).max()), 1e-3))


def geometry(
    source: Shape, count: int, window: tuple[int, int], strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1), pads: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> tuple[Geometry, Windows]:  # fmt: skip
    windows = Windows(window, strides, ((pads[0], pads[2]), (pads[1], pads[3])), dilations)
    out = source[0], count, *windows.output_sizes(source[2:])
    return Geometry(source, (count, source[1], *window), out, strides, dilations, pads), windows


def check_convolution(library: Library, of: Geometry, windows: Windows) -> None:
    """The convolution and both gradients."""
    x, grad, filters = last(of.source), last(of.out, 1), np.random.RandomState(2).randn(*of.filters).astype(np.float32)
    wide = [array.astype(np.float64) for array in (x, grad, filters)]
    is_near(images.convolve(library, of, x, filters), convolve(np, wide[0], wide[2], windows, 1, of.out[2:]))
    by_input = convolve_input_grad(np, wide[1], wide[2], windows, 1, of.source[2:])
    is_near(images.input_gradient(library, of, grad, filters), by_input)
    by_filter = convolve_filter_grad(np, wide[0], wide[1], windows, 1, of.filters)
    is_near(images.filter_gradient(library, of, x, grad), by_filter)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_convolutions_of_any_geometry(data: st.DataObject) -> None:
    draw, found = data.draw, library()
    assert found is not None
    window = draw(st.tuples(*[st.integers(1, 5)] * 2))
    dilations = draw(st.tuples(*[st.integers(1, 2)] * 2))
    pads = draw(st.tuples(*[st.integers(0, 3)] * 4))
    reach = [step * (count - 1) + 1 for step, count in zip(dilations, window, strict=True)]
    size = [draw(st.integers(max(1, each - pads[i] - pads[i + 2]), 14)) for i, each in enumerate(reach)]
    channels = draw(st.sampled_from([1, 3, 16, 20, 32, 48, 70]))
    count = draw(st.sampled_from([1, 6, 16, 17, 32, 50]))
    strides = draw(st.tuples(*[st.integers(1, 3)] * 2))
    shape = (draw(st.integers(1, 4)), channels, *size)
    check_convolution(found, *geometry(shape, count, window, strides, dilations, pads))


@pytest.mark.parametrize("size", [(4, 4), (13, 15), (32, 32)])
@pytest.mark.parametrize("channels, count", [(32, 48), (64, 64), (128, 32)])
def test_convolutions_by_winograds_method(native: Library, size: tuple[int, int], channels: int, count: int) -> None:
    check_convolution(native, *geometry((5, channels, *size), count, (3, 3), pads=(1, 1, 1, 1)))


def test_many_channels_are_read_in_parts(native: Library) -> None:
    check_convolution(native, *geometry((1, 600, 7, 7), 40, (3, 2), (1, 2), pads=(1, 0, 2, 1)))
    check_convolution(native, *geometry((2, 512, 4, 4), 512, (3, 3), pads=(1, 1, 1, 1)))


def test_results_do_not_depend_on_the_number_of_threads(native: Library) -> None:
    of, _ = geometry((6, 48, 11, 9), 64, (3, 3), (2, 1), pads=(1, 1, 1, 1))
    square, _ = geometry((6, 64, 16, 16), 64, (3, 3), pads=(1, 1, 1, 1))
    found = []
    before = native.threads
    for threads in (1, max(before, 3)):
        native.use_threads(threads)
        for each in (of, square):
            x, grad, filters = last(each.source), last(each.out, 1), np.ones(each.filters, np.float32)
            found.append(images.convolve(native, each, x, filters))
            found.append(images.input_gradient(native, each, grad, filters))
            found.append(images.filter_gradient(native, each, x, grad))
        found.append(
            normalization.normalized_last(native, last((6, 48, 50, 9)), *[np.ones(48, np.float32)] * 2, 1e-5, NONE)[0]
        )
    half = len(found) // 2
    for one, other in zip(found[:half], found[half:], strict=True):
        np.testing.assert_array_equal(one, other)


# ---------------------------------------------------------------- operators follow the layout of their inputs
def test_a_convolution_of_images_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "conv2d")
    filters = np.random.RandomState(1).randn(32, 3, 3, 3).astype(np.float32)
    feeds = {"Input": np.ones((4, 3, 16, 16), np.float32), "Filter": filters}
    agree("conv2d", feeds, ["Output"], strides=[1, 1], paddings=[1, 1], dilations=[1, 1])
    assert answered == [True]


@pytest.mark.parametrize(
    "window, last_in, answers", [(1, True, True), (1, False, False), (3, True, True), (3, False, True)]
)
def test_filters_of_one_cell_follow_their_input(
    monkeypatch: pytest.MonkeyPatch, window: int, last_in: bool, answers: bool
) -> None:
    """Others convolve with the channels last whatever they are given."""
    answered = counted(monkeypatch, "conv2d_grad")
    x, grad = last((8, 32, 16, 16)), last((8, 48, 8, 8), 2)
    if not last_in:
        x, grad = np.ascontiguousarray(x), np.ascontiguousarray(grad)
    feeds = {"Input": x, "Filter": np.ascontiguousarray(last((48, 32, window, window), 1)), "Output@GRAD": grad}
    attrs = {"strides": [2, 2], "paddings": [window // 2] * 2, "dilations": [1, 1]}
    agree("conv2d_grad", feeds, ["Input@GRAD", "Filter@GRAD"], **attrs)
    assert answered == [answers]


@pytest.mark.parametrize("shape", [(4, 64, 9, 7), (3, 20, 5, 5), (2, 5, 3, 2), (1, 17, 1, 300)])
@pytest.mark.parametrize("activation", [NONE, RELU])
def test_batch_norm_gives_what_it_gives_for_planes(native: Library, shape: Shape, activation: Any) -> None:
    x, grad = last(shape) * 3 + 50, last(shape, 1)
    scale, bias = np.random.RandomState(3).rand(2, shape[1]).astype(np.float32)
    want = normalization.normalized(native, x, scale, bias, 1e-5, activation)
    got = normalization.normalized_last(native, x, scale, bias, 1e-5, activation)
    for one, other in zip(got, want, strict=True):
        is_near(one, other, 1e-5)
    inverse = (1 / np.sqrt(want[2] + 1e-5)).astype(np.float32)
    given_ = x, scale, want[1], inverse, grad
    for one, other in zip(
        normalization.gradients_last(native, *given_), normalization.gradients(native, *given_), strict=True
    ):
        is_near(one, other, 2e-5)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("more", [{}, {"ceil_mode": True}, {"global_pooling": True}, {"strides": [1, 3]}])
@pytest.mark.parametrize("channels", [20, 32])
def test_pooling_and_its_gradient(
    monkeypatch: pytest.MonkeyPatch, kind: str, exclusive: bool, more: dict[str, Any], channels: int
) -> None:
    answered = counted(monkeypatch, "pool2d"), counted(monkeypatch, "pool2d_grad")
    attrs = {
        "pooling_type": kind,
        "ksize": [3, 2],
        "strides": [2, 2],
        "paddings": [1, 1],
        "exclusive": exclusive,
    } | more
    x = np.maximum(last((3, channels, 9, 8)), 0)  # with maxima that occur more than once
    assert is_only_last(x)
    out = agree("pool2d", {"X": x}, ["Out"], **attrs)["Out"].numpy()
    feeds = {"X": x, "Out": out, "Out@GRAD": np.random.RandomState(5).randn(*out.shape).astype(np.float32)}
    agree("pool2d_grad", feeds, ["X@GRAD"], **attrs)
    assert answered == ([True], [True])


@pytest.mark.parametrize("window, pads", [([2, 2], [2, 2]), ([1, 1], [1, 1])])
def test_pooling_with_windows_beside_the_image_is_left_to_numpy(
    monkeypatch: pytest.MonkeyPatch, window: list[int], pads: list[int]
) -> None:
    answered = counted(monkeypatch, "pool2d")
    attrs = {"pooling_type": "avg", "ksize": window, "strides": [1, 1], "paddings": pads, "exclusive": False}
    agree("pool2d", {"X": last((2, 20, 5, 5))}, ["Out"], **attrs)
    assert answered == [False]


def test_a_maximum_that_is_no_number_stays_one() -> None:
    x = last((2, 20, 4, 4))
    x[0, 3, 1, 1], x[1, 7, 0, 0] = np.nan, -np.inf
    attrs = {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0]}
    want, got = (
        outputs_of("pool2d", {"X": x}, ["Out"], engine, **attrs)["Out"].numpy() for engine in ("numpy", "native")
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("channels", [20, 64])
def test_biases_of_channels_and_their_gradients(monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
    answered = counted(monkeypatch, "elementwise_add"), counted(monkeypatch, "elementwise_add_grad")
    x, bias = last((3, channels, 7, 9)), np.random.RandomState(1).randn(channels).astype(np.float32)
    agree("elementwise_add", {"X": x, "Y": bias}, ["Out"], axis=1)
    agree("elementwise_add_grad", {"X": x, "Y": bias, "Out@GRAD": last(x.shape, 2)}, ["X@GRAD", "Y@GRAD"], axis=1)
    assert answered == ([True], [True])


def test_other_additions_are_left_to_numpy() -> None:
    x, bias = last((3, 20, 7, 9)), np.zeros(20, np.float32)
    assert not biases.is_bias(np.ascontiguousarray(x), bias, 1)
    assert not biases.is_bias(x, bias, -1)
    assert not biases.is_bias(x, bias.astype(np.float64), 1)
    assert not biases.is_bias(x, x, 1)


def test_what_lies_both_ways_counts_as_channels_first() -> None:
    assert is_last(np.zeros((2, 1, 3, 3))) and not is_only_last(np.zeros((2, 1, 3, 3)))
    assert is_last(np.zeros((2, 5, 1, 1))) and not is_only_last(np.zeros((2, 5, 1, 1)))
    assert memory_of(last((2, 5, 3, 4))).base is not None


@pytest.mark.parametrize("slope", [activations.RELU, activations.SIGMOID])
def test_gradients_of_activations_keep_the_channels_last(native: Library, slope: int) -> None:
    made, grad = last((2, 20, 5, 6)), np.ascontiguousarray(last((2, 20, 5, 6), 1))
    got = activations.gradient(native, slope, made, grad)
    want = activations.gradient(native, slope, np.ascontiguousarray(made), grad)
    assert is_only_last(got) and not is_only_last(want)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_result_takes_the_place_that_it_is_given(native: Library, channels_last: bool) -> None:
    x = last((2, 20, 8, 9)) if channels_last else np.ascontiguousarray(last((2, 20, 8, 9)))
    want, bias = np.maximum(x, 0), last((1, 20, 1, 1), 3).reshape(20)
    context: Any = None
    assert backward.relu(native, context, x, over=x) is x and is_only_last(x) is channels_last
    np.testing.assert_array_equal(x, want)
    if channels_last:
        assert biases.elementwise_add(native, context, x, bias, axis=1, over=x) is x
        np.testing.assert_array_equal(x, want + bias.reshape(20, 1, 1))


def test_a_place_that_lies_otherwise_is_not_taken(native: Library) -> None:
    x = last((2, 20, 8, 9))
    other = np.zeros(x.shape, np.float32)
    context: Any = None
    got = backward.relu(native, context, x, over=other)
    assert got is not other and not other.any()
    np.testing.assert_array_equal(got, np.maximum(x, 0))


def test_what_is_fetched_lies_as_everywhere() -> None:
    filters = np.ones((32, 3, 3, 3), np.float32)
    feeds = {"Input": np.ones((4, 3, 16, 16), np.float32), "Filter": filters}
    found = outputs_of("conv2d", feeds, ["Output"], "native", strides=[1, 1], paddings=[1, 1], dilations=[1, 1])
    assert found["Output"].numpy().flags.c_contiguous


@pytest.mark.parametrize("instructions", ["avx2", "portable"])
def test_every_instruction_set(instructions: str, native: Library) -> None:
    """Another process, as instructions are chosen once: the tests of this file."""
    if os.environ.get("FLUIDTOOL_INSTRUCTIONS") or instructions not in usable_instructions(native.handle):
        pytest.skip(f"no other {instructions} here")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__],
        env=child_environment(FLUIDTOOL_INSTRUCTIONS=instructions), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
