"""Commands on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fluidtool.profiling import machine
from tests.cli.support import DIGITS, call, call_json, error_of, linear_model
from tests.gpu.standin import EVENTS

pytestmark = pytest.mark.usefixtures("cupy")


@pytest.mark.parametrize("device", ["gpu", "gpu:1"])
def test_run(device: str) -> None:
    found = call("run", DIGITS, "--device", device, "--feed", DIGITS / "x.npy", "--expect", DIGITS / "expected.npz")
    assert "1 output as in" in found.output


def test_a_gpu_that_is_not_there() -> None:
    assert "CUDAPlace(2): this machine has 2 GPUs" in error_of(call("run", DIGITS, "--random", "--device", "gpu:2"))


def test_profile_times_operators_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "GPU_SIZES", (1 << 10, 1 << 12))
    monkeypatch.setattr(machine, "GPU_MATRIX", 8)
    model = linear_model(tmp_path / "model")

    found = call_json("profile", model, "--random", "--device", "gpu", "--repeat", 2)

    assert [item["name"] for item in found["items"]] == ["mul", "elementwise_add", "relu", "softmax"]
    assert {item["engine"] for item in found["items"]} == {"cupy"}
    assert found["peak"]["by"] == "cupy"
    assert found["engine"]["name"] == "cupy"


def test_profile_waits_for_every_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(machine, "GPU_SIZES", (1 << 10,))
    monkeypatch.setattr(machine, "GPU_MATRIX", 8)
    monkeypatch.setattr(machine, "_best", lambda work: 1.0)
    model = linear_model(tmp_path / "model")
    for repeat in (1, 2):
        with EVENTS.counted() as counts:
            call_json("profile", model, "--random", "--device", "gpu", "--repeat", repeat)
        waits.append(counts["synchronizations"])
    assert waits[1] - waits[0] == 1 + 4  # a run without the profiler, and four operators of one with it


def test_version_names_the_gpus() -> None:
    assert "gpu:0 a stand-in for a GPU, gpu:1 a stand-in for a GPU" in call("version", "--verbose").output
