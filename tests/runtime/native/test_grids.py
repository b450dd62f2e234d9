"""Boxes that depend on shapes alone are computed while compiling, and do not cut a region."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.runtime.native.checking import Net, check

pytestmark = pytest.mark.usefixtures("native")
PRIORS: dict[str, Any] = {
    "min_sizes": [4.0], "max_sizes": [9.0], "aspect_ratios": [2.0], "variances": [0.1, 0.1, 0.2, 0.2],
}  # fmt: skip


def features(net: Net, size: int = 8) -> tuple[str, str]:
    """An image and what a convolution makes of it."""
    image = net.data(1, 3, size, size)
    return image, net.conv(image, net.parameter(20, 3, 3, 3), strides=[2, 2], paddings=[1, 1])


def boxes(net: Net, image: str, x: str, **attrs: Any) -> tuple[str, str]:
    """A prior_box on x; both its outputs."""
    made = net.op("prior_box", "Boxes", {"Input": x, "Image": image}, "Variances", **(PRIORS | attrs))
    return made, made[:-1] + "1"


def flat(net: Net, x: str) -> str:
    return net.op("flatten2", "Out", {"X": x}, "XShape", axis=3)


def test_prior_boxes_lie_within_a_region() -> None:
    net = Net()
    image, x = features(net)
    first = boxes(net, image, x)
    x = net.conv(x, net.parameter(8, 20, 1, 1))
    second = boxes(net, image, x, min_sizes=[6.0], flip=False)
    both = [
        net.op("concat", "Out", {"X": [flat(net, a), flat(net, b)]}, axis=0) for a, b in zip(first, second, strict=True)
    ]
    check(net, x, *both, rtol=1e-6)


def test_boxes_may_be_fetched_as_they_are() -> None:
    net = Net()
    image, x = features(net)
    check(net, x, *boxes(net, image, x))


def test_boxes_of_another_type_are_left_to_numpy() -> None:
    net = Net()
    numbers = net.data(of=np.arange(24, dtype=np.int32).reshape(1, 2, 3, 4))
    x = net.conv(net.data(1, 3, 4, 4), net.parameter(8, 3, 3, 3))
    found = boxes(net, numbers, numbers)
    for native, numpy in zip(net.run("native", x, *found), net.run("numpy", x, *found), strict=True):
        assert native.dtype == numpy.dtype
        np.testing.assert_allclose(native, numpy, rtol=1e-5, atol=1e-6)


def test_anchors_lie_within_a_region() -> None:
    net = Net()
    _, x = features(net)
    anchors = net.op(
        "anchor_generator", "Anchors", {"Input": x}, "Variances", anchor_sizes=[32.0], aspect_ratios=[0.5, 1.0],
        variances=[0.1] * 4, stride=[16.0, 16.0],
    )  # fmt: skip
    check(net, x, anchors, anchors[:-1] + "1")


def test_another_image_makes_other_boxes() -> None:
    nets = []
    for size in (8, 12):
        net = Net()
        image, x = features(net, size)
        made, _ = boxes(net, image, x)
        check(net, x, made)
        nets.append(net.run("native", made)[0])
    assert nets[0].shape != nets[1].shape and np.isfinite(nets[1]).all()


def test_what_is_wrong_with_boxes_is_said_by_numpy() -> None:
    net = Net()
    image, x = features(net)
    made, _ = boxes(net, image, x)
    op = net.program.global_block().ops[-1]
    op.set_attr("max_sizes", [1.0])
    with pytest.raises(OperatorError, match=r"max_sizes must give one larger number.*block 0"):
        net.run("native", x, made)
