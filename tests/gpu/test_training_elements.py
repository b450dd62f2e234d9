"""Activations and moves in training steps whose gradients are formulas, sums or other moves: the numbers of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.test_training_images import both_ways, kernels, numbered
from tests.gpu.test_training_reductions import in_a_step
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")


def bends(*points: float) -> Array:
    """Numbers around zero, and points at which a slope changes, with their neighbors."""
    around = [np.nextafter(np.float32(point), np.float32(to)) for point in points for to in (-np.inf, np.inf)]
    numbers = [*np.linspace(-5, 5, 40 - len(around) - len(points)), *points, *around]
    return np.array(numbers, np.float32).reshape(2, 4, 5)


# ---------------------------------------------------------------- activations
ACTIVATIONS: list[tuple[str, dict[str, Any], str, Array]] = [
    ("hard_swish", {}, "X", bends(-3, 3)),
    ("hard_swish", {"threshold": 4.0, "scale": 5.0, "offset": 1.5}, "X", bends(-1.5, 2.5)),
    ("softsign", {}, "X", bends(0)),
    ("sin", {}, "X", bends()),
    ("cos", {}, "X", bends()),
    ("reciprocal", {}, "Out", bends() + 9),
    ("rsqrt", {}, "Out", bends() + 9),
    ("brelu", {"t_min": -1.0, "t_max": 2.5}, "X", bends(-1, 2.5)),
]


@pytest.mark.parametrize(("type", "attrs", "reads", "x"), ACTIVATIONS)
def test_activations(type: str, attrs: dict[str, Any], reads: str, x: Array, compiled: list[CudaStep]) -> None:
    net = Net()
    in_a_step(net, *both_ways(net, type, x, reads=(reads,) if reads == "Out" else (), **attrs), rtol=2e-6)
    assert kernels(compiled[-1]) == ["each", "each"]


@pytest.mark.parametrize(("mode", "slopes"), [("all", (1,)), ("channel", (4,)), ("element", (4, 5))])
def test_learned_slopes(mode: str, slopes: tuple[int, ...], compiled: list[CudaStep]) -> None:
    net = Net()
    inputs = {"X": net.data(of=bends(0)), "Alpha": net.data(*slopes)}
    y = net.op("prelu", "Out", inputs, mode=mode)
    wanted = dict.fromkeys(("X@GRAD", "Alpha@GRAD"), 1)
    grads = net.several("prelu_grad", wanted, {**inputs, "Out@GRAD": numbered(net, y)}, mode=mode)
    in_a_step(net, y, *grads, rtol=2e-6)
    assert len(compiled) == 1 and kernels(compiled[-1])[:1] == ["each"]
