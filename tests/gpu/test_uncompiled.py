"""A cupy that cannot compile kernels: everything is computed all the same, one operator at a time, with the CPU's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.cuda.engine import open_engine, state
from fluidtool.runtime.engines.cupy import CupyDevice
from fluidtool.tensor import CPUPlace, CUDAPlace
from tests.gpu.standin.devices import CompileException

LOW, HIGH = -2, 5
IDS = {
    "all inside": [0, 4, -2],
    "too large": [0, 5, 9],
    "too small": [4, -3],
    "the ignored one": [-100, 3, 7],
    "beyond 32 bits": [0, 2**40],
    "below 32 bits": [-(2**40)],
    "none": [],
}


@pytest.fixture
def uncompiled(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in, without what compiles sources."""
    monkeypatch.delattr(cupy, "RawModule")
    return cupy


def marked(cupy: Any, ids: list[int], ignored: int | None) -> tuple[int, int] | None:
    device = CupyDevice(0)
    flags = device.flags(2)
    device.mark_outside(cupy.asarray(np.array(ids, "int64").reshape(-1, 1)), LOW, HIGH, ignored, flags[1:])
    return device.read_flags(flags)


@pytest.mark.parametrize("ignored", [None, -100])
@pytest.mark.parametrize("name", IDS)
def test_the_same_ids_are_outside(name: str, ignored: int | None, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = marked(cupy, IDS[name], ignored)
    monkeypatch.delattr(cupy, "RawModule")
    assert marked(cupy, IDS[name], ignored) == compiled


def test_a_flag_keeps_the_first_id_of_several_checks(uncompiled: Any) -> None:
    device = CupyDevice(0)
    flags = device.flags(1)
    for ids in ([0, 8], [7, 0], [0, 0], [0, 9]):
        device.mark_outside(uncompiled.asarray(np.array(ids)), LOW, HIGH, None, flags)
    assert device.read_flags(flags) == (0, 7)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_repeated_rows_are_added_in_order(dtype: str, uncompiled: Any) -> None:
    random = np.random.default_rng(1)
    total, values = ((random.standard_normal(shape) * 100).astype(dtype) for shape in ((4, 3), (5, 3)))
    key, found = np.array([3, 0, 3, 3, 2]), uncompiled.asarray(total)
    CupyDevice(0).add_at(found, uncompiled.asarray(key), uncompiled.asarray(values))
    expected = total.astype("float32" if dtype == "float16" else dtype)
    np.add.at(expected, key, values)
    np.testing.assert_array_equal(found.get(), expected.astype(dtype))


def test_random_numbers_are_those_of_numpy(uncompiled: Any) -> None:
    drawn, expected = np.random.default_rng(5), np.random.default_rng(5)
    found = CupyDevice(0).random(drawn, (7, 3), "float32")
    np.testing.assert_array_equal(found.get(), expected.random((7, 3), "float32"))
    assert drawn.bit_generator.state == expected.bit_generator.state


def test_no_region_runs_as_a_graph(uncompiled: Any) -> None:
    assert open_engine(CupyDevice(0)) is None
    assert state().startswith("off, since this cupy compiles no kernels")


def lookups() -> tuple[fluid.Program, fluid.Program, Any]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        rows = fluid.layers.embedding(fluid.layers.data("ids", [1], dtype="int64"), [5, 3])
        loss = fluid.layers.mean(fluid.layers.dropout(fluid.layers.fc(rows, 4), 0.3))
        fluid.optimizer.Adam(0.1).minimize(loss)
    return main, startup, loss


def losses(place: Any) -> list[float]:
    main, startup, loss = lookups()
    executor, scope = Executor(place, seed=3), Scope()
    executor.run(startup, {}, [], scope)
    feed = {"ids": np.array([[1], [4], [1]])}
    return [float(executor.run(main, feed, [loss.name], scope)[0].numpy()[0]) for _ in range(3)]


def test_training_learns_what_it_learns_on_the_cpu(uncompiled: Any) -> None:
    np.testing.assert_allclose(losses(CUDAPlace(0)), losses(CPUPlace()), rtol=1e-6)


def test_ids_out_of_range_are_refused(uncompiled: Any) -> None:
    main, startup, loss = lookups()
    executor, scope = Executor(CUDAPlace(0)), Scope()
    executor.run(startup, {}, [], scope)
    with pytest.raises(OperatorError, match="holds 5"):
        executor.run(main, {"ids": np.array([[5]])}, [loss.name], scope)


def test_kernels_that_nvrtc_refuses_are_replaced_with_a_warning(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise CompileException("nvrtc: error: failed to open libnvrtc-builtins.so.13.0")

    monkeypatch.setattr(cupy.RawModule, "compile", refuse)
    found, device = cupy.zeros((2, 1), "float32"), CupyDevice(0)
    with pytest.warns(
        RuntimeWarning, match=r"NVRTC refused the kernels for what cupy lacks \(nvrtc: error: failed"
    ) as told:
        for _ in range(2):
            device.add_at(found, cupy.asarray([1, 1]), cupy.asarray(np.ones((2, 1), "float32")))
    assert len(told) == 1
    assert found.tolist() == [[0], [4]]
