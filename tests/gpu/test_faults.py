"""What is said where there is no GPU that can be used, or not enough of its memory."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import DeviceError, OutOfMemoryError
from fluidtool.io import checkpoints
from tests.cli.support import call, error_of
from tests.cli.test_train import write
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


def test_with_cupy_for_two_versions_of_cuda(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluidtool.runtime.engines.cupy._is_installed", lambda name: name != "cupy-cuda11x")
    with pytest.raises(DeviceError, match=r"two versions of CUDA \(cupy-cuda12x, cupy-cuda13x\); keep the one"):
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
    assert message.startswith(
        "operator expand needs more memory than is available: Out of memory allocating 16,000 bytes"
    )
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


def test_a_gpu_that_fails_in_the_middle_of_a_run(cupy: Any, program: tuple[fluid.Program, str]) -> None:
    main, y = program
    executor, x = fluid.Executor(GPU), np.ones((5, 8), "float32")
    MACHINE.left = 0
    with pytest.raises(DeviceError, match=r"GPU 0 has failed \(cudaErrorLaunchFailure.*--resume\)") as found:
        executor.run(main, {"x": x}, [y])
    assert isinstance(found.value.__cause__, CUDARuntimeError)


@pytest.mark.parametrize("switch", ["0", "1"], ids=["cupy", "graphs"])
def test_training_on_a_gpu_that_fails_leaves_its_last_checkpoint(
    cupy: Any, tmp_path: Path, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA", switch)

    def train(folder: Path, *args: object) -> Any:
        return call(
            "train", tmp_path / "line", "--data", tmp_path / "line" / "data.npz", "--batch-size", 4, "--device", "gpu",
            "--epochs", 4, "--checkpoint", folder, "--checkpoint-every", "1 steps",
            "--log", tmp_path / f"{folder.name}.json", *args,
        )  # fmt: skip

    write(tmp_path / "line")
    train(tmp_path / "whole")
    before = MACHINE.submitted
    train(tmp_path / "counted")
    MACHINE.left = (MACHINE.submitted - before) // 2
    message = error_of(train(tmp_path / "broken"))
    assert "GPU 0 has failed" in message
    last = max(checkpoints.serials(tmp_path / "broken"))
    assert 0 < last < max(checkpoints.serials(tmp_path / "whole"))

    MACHINE.left = None
    assert train(tmp_path / "broken", "--resume").exit_code == 0

    serial = max(checkpoints.serials(tmp_path / "whole"))
    assert max(checkpoints.serials(tmp_path / "broken")) == serial
    for name in ("w", "w_velocity_0"):
        whole, broken = (tmp_path / run / f"checkpoint_{serial}" / "__model__" / name for run in ("whole", "broken"))
        assert broken.read_bytes() == whole.read_bytes()
