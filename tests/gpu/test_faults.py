"""What is said where there is no GPU that can be used, or not enough of its memory."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import DeviceError, OutOfMemoryError
from tests.gpu.standin.devices import MACHINE, CUDARuntimeError

GPU = fluid.CUDAPlace(0)


@pytest.fixture
def program() -> tuple[fluid.Program, str]:
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x = fluid.layers.data("x", [8])
        y = fluid.layers.expand(x, [100, 1])
    return main, y.name


def failing_import(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    real = builtins.__import__

    def load(name: str, *args: Any, **named: Any) -> Any:
        if name == "cupy":
            raise error
        return real(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", load)


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_import(monkeypatch, ModuleNotFoundError("No module named 'cupy'", name="cupy"))
    with pytest.raises(DeviceError, match=r"needs cupy, which is not installed; pip install 'fluidtool\[gpu-cuda12\]'"):
        fluid.Executor(GPU)


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libcudart.so.12: cannot open shared object file"),
        ModuleNotFoundError("No module named 'cupy_backends'", name="cupy_backends"),
    ],
)
def test_with_a_cupy_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    failing_import(monkeypatch, error)
    with pytest.raises(
        DeviceError, match=r"cupy is installed, but cannot be loaded: .*; keep one of its packages only"
    ):
        fluid.Executor(GPU)


def test_without_a_gpu(cupy: Any) -> None:
    MACHINE.fault = CUDARuntimeError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
    with pytest.raises(
        DeviceError, match=r"CUDAPlace\(0\): no usable GPU on this machine \(cudaErrorNoDevice.*run on the CPU"
    ):
        fluid.Executor(GPU)
    assert not fluid.is_compiled_with_cuda()


def test_with_a_driver_that_is_too_old(cupy: Any) -> None:
    MACHINE.fault = CUDARuntimeError(35, "cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    with pytest.raises(DeviceError, match=r"the NVIDIA driver is too old for this cupy .*; update it, or install"):
        fluid.Executor(GPU)


def test_an_operator_without_enough_memory(cupy: Any, program: tuple[fluid.Program, str]) -> None:
    main, y = program
    executor = fluid.Executor(GPU)
    MACHINE.free_bytes = 10_000
    with pytest.raises(OutOfMemoryError) as found:
        executor.run(main, {"x": np.ones((5, 8), "float32")}, [y])
    message = str(found.value)
    assert message.startswith("operator expand needs more memory than there is: Out of memory allocating 16,000 bytes")
    assert "GPU 0 has 10,000 of 17,179,869,184 bytes free." in message
    assert "x (5, 8) float32" in message
    assert message.endswith("use smaller inputs, fetch less or free memory")


def test_a_feed_that_does_not_fit(cupy: Any, program: tuple[fluid.Program, str]) -> None:
    main, y = program
    executor = fluid.Executor(GPU)
    MACHINE.free_bytes = 100
    with pytest.raises(OutOfMemoryError, match=r"allocating 160 bytes.*GPU 0 has 100 of"):
        executor.run(main, {"x": np.ones((5, 8), "float32")}, [y])


def test_training_can_go_on_after_memory_was_exhausted(
    cupy: Any, program: tuple[fluid.Program, str], tmp_path: Path
) -> None:
    main, y = program
    executor, x = fluid.Executor(GPU), np.ones((5, 8), "float32")
    MACHINE.free_bytes = 10_000
    with pytest.raises(OutOfMemoryError):
        executor.run(main, {"x": x}, [y])
    MACHINE.free_bytes = 1 << 30
    assert executor.run(main, {"x": x}, [y])[0].shape == (500, 8)
