"""Commands on a GPU."""

from __future__ import annotations

import sys
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
    monkeypatch.setenv("FLUIDTOOL_CUDA", "0")
    monkeypatch.setattr(machine, "GPU_SIZES", (1 << 10, 1 << 12))
    monkeypatch.setattr(machine, "GPU_MATRIX", 8)
    model = linear_model(tmp_path / "model")

    found = call_json("profile", model, "--random", "--device", "gpu", "--repeat", 2)

    assert [item["name"] for item in found["items"]] == ["mul", "elementwise_add", "relu", "softmax"]
    assert {item["engine"] for item in found["items"]} == {"cupy"}
    assert found["peak"]["by"] == "cupy"
    assert found["engine"]["name"] == "cupy"


def test_profile_times_the_calls_of_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "GPU_SIZES", (1 << 10, 1 << 12))
    monkeypatch.setattr(machine, "GPU_MATRIX", 8)
    model = linear_model(tmp_path / "model")

    found = call_json("profile", model, "--random", "--device", "gpu", "--repeat", 2)

    items = [item for item in found["items"] if item["name"] != "in and out of region 1"]
    assert [item["kernel"] for item in items] == ["product", "softmax"]
    assert {item["engine"] for item in found["items"]} == {"cuda"}
    assert found["engine"]["name"] == "cuda" and found["engine"]["operators_in_regions"] == 4
    assert items[0]["multiply_adds"] > 0 == items[1]["multiply_adds"]


@pytest.mark.parametrize(("switch", "calls"), [("0", 4 - 1), ("1", 2)], ids=["operators", "calls of a graph"])
def test_profile_waits_for_everything_it_times(
    switch: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA", switch)
    waits: list[Any] = []
    monkeypatch.setattr(machine, "GPU_SIZES", (1 << 10,))
    monkeypatch.setattr(machine, "GPU_MATRIX", 8)
    monkeypatch.setattr(machine, "_best", lambda work: 1.0)
    model = linear_model(tmp_path / "model")
    for repeat in (1, 2):
        with EVENTS.counted() as counts:
            call_json("profile", model, "--random", "--device", "gpu", "--repeat", repeat)
        waits.append(counts["synchronizations"])
    assert (
        waits[1] - waits[0] == 1 + 1 + calls
    )  # a run without the profiler; one with it, before which it waits, and its calls


def test_version_names_the_gpus() -> None:
    assert "gpu:0 a stand-in for a GPU, gpu:1 a stand-in for a GPU" in call("version", "--verbose").output


@pytest.mark.parametrize(("switch", "said"), [("0", "off (FLUIDTOOL_CUDA=0)"), ("", "on, for regions")])
def test_version_says_whether_regions_run_as_graphs_and_why(
    switch: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA", switch)
    assert said in call("version", "--verbose").output


def test_version_names_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    assert "without nvidia-cudnn-frontend (" in call_json("version", "--verbose")["engines"]["cuda"]


def test_without_cupy_there_are_no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "not in use, since cupy is not installed" in call_json("version", "--verbose")["engines"]["cuda"]


def test_run_says_that_regions_ran_as_graphs() -> None:
    found = call("run", DIGITS, "--random", "--device", "gpu", "--repeat", 3)
    assert "3 runs by cuda" in found.stderr and "11 of 11 operators in 1 region" in found.stderr
