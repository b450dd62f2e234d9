"""Where a precision is refused."""

from __future__ import annotations

import pytest

from fluidtool.errors import DeviceError, UsageError
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.registry import engine_for
from fluidtool.tensor import CUDAPlace


def test_an_unknown_precision_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no precision 'fp8'; expected one of float32, bf16"):
        Executor(precision="fp8")


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "openvino"])
def test_other_engines_do_not_round(engine: str) -> None:
    with pytest.raises(UsageError, match=f"precision bf16 needs the native engine, found the engine {engine}"):
        Executor(engine=engine, precision="bf16")


def test_an_unknown_engine_is_said_to_be_none() -> None:
    with pytest.raises(UsageError, match="no engine 'tpu'"):
        Executor(engine="tpu", precision="bf16")


def test_a_gpu_does_not_round() -> None:
    with pytest.raises(UsageError, match="needs the native engine, but the device is a GPU"):
        engine_for("auto", CUDAPlace(0), "bf16")


def test_no_engine_no_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_NATIVE", "0")
    with pytest.raises(DeviceError, match=r"precision bf16 needs the native engine, which is not in use: .+"):
        Executor(precision="bf16")
