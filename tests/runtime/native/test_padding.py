"""Borders around tensors: numpy's numbers, and where they disappear in a convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native.abi import Kind
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import Net, agree, check

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=60, deadline=None)


def image(net: Net, shape: tuple[int, ...], blocked: bool) -> str:
    """An image within a region, in blocks of channels or in rows."""
    if not blocked:
        return net.op("softmax", "Out", {"X": net.data(*shape)}, axis=-1)
    attrs = {"pooling_type": "max", "ksize": [1, 1], "strides": [1, 1], "paddings": [0, 0]}
    return net.op("pool2d", "Out", {"X": net.data(*shape)}, **attrs)


def kernels(net: Net, fetch: str) -> list[Kind]:
    """The steps of the one region of the last run."""
    (region,) = net.plan.work
    (specialization,) = region.specializations.kept.values()  # type: ignore[union-attr]
    return [kernel_call.kind for kernel_call in specialization.kernel_calls]


@few
@given(st.data(), st.sampled_from(["constant", "reflect", "edge"]), st.booleans(), st.booleans())
def test_pad2d(data: st.DataObject, mode: str, blocked: bool, last: bool) -> None:
    shape = (
        *data.draw(st.tuples(st.integers(1, 2), st.sampled_from([1, 3, 16, 21]))),
        *data.draw(st.tuples(*[st.integers(4, 9)] * 2)),
    )
    least = -2 if data.draw(st.booleans()) else 0
    paddings = data.draw(st.lists(st.integers(least, 3), min_size=4, max_size=4))
    assume(shape[2] + sum(paddings[:2]) > 0 and shape[3] + sum(paddings[2:]) > 0)
    layout = "NHWC" if last and not blocked else "NCHW"
    shape = (shape[0], *shape[2:], shape[1]) if layout == "NHWC" else shape
    net = Net()
    x = image(net, shape, blocked)
    value = data.draw(st.sampled_from([0.0, 1.5]))
    y = net.op("pad2d", "Out", {"X": x}, paddings=paddings, mode=mode, pad_value=value, data_format=layout)
    check(net, net.op("relu", "Out", {"X": y}))


@few
@given(st.data(), st.integers(1, 4))
def test_pad(data: st.DataObject, rank: int) -> None:
    net = Net()
    shape = data.draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank))
    paddings = data.draw(st.lists(st.integers(0, 3), min_size=2 * rank, max_size=2 * rank))
    x = net.op("softmax", "Out", {"X": net.data(*shape)}, axis=-1)
    check(net, net.op("pad", "Out", {"X": x}, paddings=paddings, pad_value=-0.5))


@few
@given(
    st.data(), st.sampled_from(["constant", "reflect", "replicate", "circular"]), st.sampled_from(["NCDHW", "NDHWC"])
)
def test_pad3d(data: st.DataObject, mode: str, layout: str) -> None:
    net = Net()
    shape = data.draw(st.lists(st.integers(3, 5), min_size=5, max_size=5))
    paddings = data.draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    assume(layout == "NCDHW" or any(paddings))
    x = net.op("softmax", "Out", {"X": net.data(*shape)}, axis=-1)
    check(net, net.op("pad3d", "Out", {"X": x}, paddings=paddings, value=2.0, mode=mode, data_format=layout))


@pytest.mark.parametrize("groups", [1, 20])
@pytest.mark.parametrize("algorithm", ["EXPLICIT", "SAME"])
def test_a_border_of_zeros_goes_into_the_convolution_behind_it(groups: int, algorithm: str) -> None:
    net = Net()
    x = net.op("pad2d", "Out", {"X": image(net, (2, 20, 7, 6), True)}, paddings=[0, 1, 2, 3], mode="constant")
    attrs = {"paddings": [1, 0], "padding_algorithm": algorithm, "strides": [2, 2], "groups": groups}
    y = net.op("relu", "Out", {"X": net.conv(x, net.parameter(20, 20 // groups, 3, 3), **attrs)})
    check(net, y, scale=100)
    assert Kind.PAD not in kernels(net, y)


@pytest.mark.parametrize("attrs", [{"pad_value": 1.0}, {"mode": "edge"}, {"paddings": [-1, 1, 1, 1]}])
def test_other_borders_do_not(attrs: dict[str, Any]) -> None:
    net = Net()
    settled = {"paddings": [1, 1, 1, 1], "mode": "constant"} | attrs
    x = net.op("pad2d", "Out", {"X": image(net, (2, 5, 7, 6), True)}, **settled)
    y = net.conv(x, net.parameter(7, 5, 3, 3))
    check(net, y, scale=100)
    assert Kind.PAD in kernels(net, y)


def test_a_border_that_somebody_else_reads_stays() -> None:
    net = Net()
    x = net.op("pad2d", "Out", {"X": image(net, (2, 5, 7, 6), True)}, paddings=[1, 1, 1, 1], mode="constant")
    check(net, net.conv(x, net.parameter(7, 5, 3, 3)), x, scale=100)


@pytest.mark.parametrize(("paddings", "lod"), [([0, 0, 1, 0], [[0, 2, 4]]), ([1, 0, 0, 0], [])])
def test_rows_keep_their_lod_where_there_are_as_many(paddings: list[int], lod: list[Any]) -> None:
    net = Net()
    x = net.data(4, 3)
    net.feeds[x] = LoDTensor(net.feeds[x], [[0, 2, 4]])
    y = net.op("pad", "Out", {"X": net.op("softmax", "Out", {"X": x}, axis=-1)}, paddings=paddings)
    check(net, y)
    for engine in ("numpy", "native"):
        (value,) = Executor(engine=engine).run(net.program, net.feeds, [y], net.scope)
        assert value.lod() == lod


def test_computed_paddings_are_left_to_numpy() -> None:
    net = Net()
    given = net.data(of=np.array([1, 0, 0, 1], np.int64))
    x = image(net, (1, 3, 4, 5), False)
    agree(net, [net.op("pad2d", "Out", {"X": x, "Paddings": given}, paddings=[0] * 4, mode="constant")])
    assert net.why_not() == ["computed paddings"]
