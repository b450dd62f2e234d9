"""Kernels of our own: sums in order, and numpy's random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.cupy import CupyDevice
from fluidtool.tensor import CPUPlace, CUDAPlace
from tests.gpu.standin import EVENTS

KEYS: dict[str, Any] = {
    "rows": np.array([3, 0, 3, 3, 2]),
    "rows of a matrix": np.array([[1, 1], [0, 1]]),
    "elements": (np.array([0, 3, 0]), np.array([2, 1, 2])),
    "columns": (slice(None), np.array([1, 1, 0])),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", KEYS)
def test_additions_are_in_order(name: str, dtype: str, cupy: Any) -> None:
    random, key = np.random.default_rng(1), KEYS[name]
    total = (random.standard_normal((4, 3)) * 100).astype(dtype)
    values = (random.standard_normal(total[key].shape) * 100).astype(dtype)
    found = cupy.asarray(total)
    on_device = (
        tuple(cupy.asarray(k) if isinstance(k, np.ndarray) else k for k in key) if isinstance(key, tuple) else None
    )

    with EVENTS.counted() as counts:
        CupyDevice(0).add_at(found, on_device or cupy.asarray(key), cupy.asarray(values))

    np.add.at(total, key, values)
    np.testing.assert_array_equal(found.get(), total)
    assert "atomic additions" not in counts


def test_additions_to_an_array_that_is_not_contiguous(cupy: Any) -> None:
    found, total = cupy.asarray(np.ones((3, 4), "float32")), np.ones((3, 4), "float32")
    values = np.arange(6, dtype="float32").reshape(2, 3)
    CupyDevice(0).add_at(found.T, cupy.asarray([2, 2]), cupy.asarray(values))
    np.add.at(total.T, [2, 2], values)
    np.testing.assert_array_equal(found.get(), total)


def test_halves_are_rounded_once(cupy: Any) -> None:
    found = cupy.asarray(np.array([2048], "float16"))
    CupyDevice(0).add_at(found, cupy.asarray([0, 0]), cupy.asarray(np.ones(2, "float16")))
    assert found.tolist() == [2050]  # 2048 + 1 is 2048 in halves


def test_no_additions(cupy: Any) -> None:
    found = cupy.asarray(np.ones((2, 3), "float32"))
    CupyDevice(0).add_at(found, cupy.asarray(np.zeros(0, "int64")), cupy.asarray(np.zeros((0, 3), "float32")))
    assert found.tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("counts", [[1], [2], [7, 1, 0, 16, 33], [1000, 5, 17]])
def test_random_numbers_are_those_of_numpy(counts: list[int], dtype: str, cupy: Any) -> None:
    device, drawn, expected = CupyDevice(0), np.random.default_rng(5), np.random.default_rng(5)
    for count in counts:
        found = device.random(drawn, (count,), dtype)
        np.testing.assert_array_equal(found.get(), expected.random(count, dtype))
        assert drawn.random(dtype="float32") == expected.random(dtype="float32")
    assert drawn.bit_generator.state == expected.bit_generator.state


def test_random_numbers_of_another_generator(cupy: Any) -> None:
    drawn, expected = (np.random.Generator(np.random.Philox(3)) for _ in range(2))
    np.testing.assert_array_equal(CupyDevice(0).random(drawn, (5,), "float32").get(), expected.random(5, "float32"))


def test_dropout_drops_what_it_drops_on_the_cpu(cupy: Any) -> None:
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        y = fluid.layers.dropout(fluid.layers.data("x", [64]), 0.3)
    feed = {"x": np.ones((9, 64), "float32")}
    executors = [Executor(place, seed=4) for place in (CPUPlace(), CUDAPlace(0))]
    for _ in range(3):
        on_cpu, on_gpu = (executor.run(main, feed, [y.name], Scope())[0].numpy() for executor in executors)
        np.testing.assert_array_equal(on_gpu, on_cpu)


def test_dropout_copies_nothing_to_the_device(cupy: Any) -> None:
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        y = fluid.layers.dropout(fluid.layers.data("x", [64]), 0.3)
    executor, x = Executor(CUDAPlace(0), seed=4), cupy.asarray(np.ones((9, 64), "float32"))
    with EVENTS.counted() as counts:
        executor.run(main, {"x": x}, [y.name], Scope())
    assert counts["copies to the device"] == 0
