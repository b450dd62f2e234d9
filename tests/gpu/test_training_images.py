"""Images and volumes in training steps: forward and gradient are part of the graph; the numbers of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda.calls import Launch
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.test_training_reductions import in_a_step, whole_numbers
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")


def kernels(step: CudaStep) -> list[str]:
    """What kernels are called, in order."""
    return [call.name.rpartition("_")[0] for call in step.calls if isinstance(call, Launch)]


def numbered(net: Net, name: str) -> str:
    """A gradient of whole numbers, one for each element of a result."""
    (made,) = net.run("numpy", name)
    return net.data(of=np.arange(1, 1 + made.size, dtype=np.float32).reshape(made.shape) % 97)


def both_ways(net: Net, type: str, x: Array, *more: str, reads: tuple[str, ...] = (), **attrs: Any) -> list[str]:
    """The results of an operator of X, and its gradient, which reads X and these results, too. more: its other results."""
    given = net.data(of=x)
    results = net.several(type, dict.fromkeys(("Out", *more), 1), {"X": given}, **attrs)
    named = {"X": given, **dict(zip(("Out", *more), results, strict=True))}
    inputs = {slot: named[slot] for slot in ("X", *reads)} | {"Out@GRAD": numbered(net, results[0])}
    return [*results, net.op(f"{type}_grad", "X@GRAD", inputs, **attrs)]


# ---------------------------------------------------------------- volumes
POOLS: list[dict[str, Any]] = [
    {"ksize": [2, 2, 2], "strides": [2, 2, 2]},
    {"ksize": [3, 2, 3], "strides": [1, 2, 2], "paddings": [1, 0, 1]},
    {"ksize": [2, 3, 2], "strides": [3, 2, 1], "paddings": [1, 0, 0, 1, 1, 0]},
    {"ksize": [1, 3, 3], "strides": [1, 2, 2], "paddings": [0, 1, 1]},
    {"ksize": [3, 1, 1], "strides": [2, 1, 1]},
    {"ksize": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": True},
    {"ksize": [3, 3, 3], "strides": [2, 2, 2], "padding_algorithm": "SAME"},
    {"ksize": [2, 2, 2], "global_pooling": True},
]


@pytest.mark.parametrize("kind", ["max", "avg", "avg with pads"])
@pytest.mark.parametrize("attrs", POOLS)
def test_pooling_of_volumes(attrs: dict[str, Any], kind: str, compiled: list[CudaStep]) -> None:
    """Of equal numbers the first is the maximum."""
    uneven = len(attrs.get("paddings", [])) == 6 or {"ceil_mode", "padding_algorithm"} & attrs.keys()
    exclusive = kind != "avg with pads" or bool(uneven)
    settled = {"strides": [1, 1, 1], "paddings": [0, 0, 0], "exclusive": exclusive} | attrs
    net = Net()
    names = both_ways(net, "pool3d", whole_numbers(2, 3, 5, 6, 7), reads=("Out",), pooling_type=kind[:3], **settled)
    in_a_step(net, *names, rtol=1e-6)
    assert kernels(compiled[-1]) == ["pool", "unpool"]


def test_adaptive_windows_of_volumes_are_left_to_cupy(compiled: list[CudaStep]) -> None:
    net = Net()
    attrs = {"pooling_type": "avg", "ksize": [2, 3, 2], "adaptive": True}
    in_a_step(net, *both_ways(net, "pool3d", whole_numbers(2, 3, 5, 6, 7), reads=("Out",), **attrs), rtol=1e-6)
    assert [step.calls for step in compiled if step.calls] == []
