"""Choices of cuBLASLt and cuDNN in the user's cache folder, from which the next process takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda import cublaslt, cudnn, plans
from fluidtool.tensor import CUDAPlace
from tests.gpu.standin.devices import MACHINE
from tests.runtime.native.checking import Net


@pytest.fixture(autouse=True)
def _cached(cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FLUIDTOOL_CACHE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cublaslt, "aligned", lambda address: 4)  # by which memory is always aligned, here, too
    yield


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the libraries had to choose."""
    found: list[str] = []
    algorithm, planned = cublaslt.CublasLt._algorithm, cudnn.Cudnn._planned

    def choose(self: Any, *args: Any) -> Any:
        found.append("cublaslt")
        return algorithm(self, *args)

    def plan(self: Any, *args: Any) -> Any:
        found.append("cudnn")
        return planned(self, *args)

    monkeypatch.setattr(cublaslt.CublasLt, "_algorithm", choose)
    monkeypatch.setattr(cudnn.Cudnn, "_planned", plan)
    return found


def net() -> tuple[Net, str]:
    """A convolution with a ReLU, and a product."""
    found = Net()
    hidden = found.conv(found.data(2, 3, 6, 6), found.parameter(4, 3, 3, 3), paddings=[1, 1])
    hidden = found.op("relu", "Out", {"X": hidden})
    return found, found.op(
        "mul", "Out", {"X": hidden, "Y": found.parameter(144, 5)}, x_num_col_dims=1, y_num_col_dims=1
    )


def process() -> Any:
    """The result of a process that runs the network once."""
    found, name = net()
    (value,) = Executor(CUDAPlace(0)).run(found.program, found.feeds, [name], found.scope)
    return value.numpy()


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "fluidtool" / "plans").iterdir())


def test_the_next_process_takes_the_algorithm_of_a_product(asked: list[str], tmp_path: Path) -> None:
    first = process()
    assert asked.count("cublaslt") == 1 and len(kept(tmp_path)) == 2
    np.testing.assert_array_equal(process(), first)
    assert asked.count("cublaslt") == 1


def test_what_cudnn_refuses_is_not_planned_by_the_next_process(asked: list[str], tmp_path: Path) -> None:
    MACHINE.refused = frozenset({"relu"})
    first = process()
    refused = asked.count("cudnn")  # with the activation, then without
    np.testing.assert_array_equal(process(), first)
    assert refused == 2 and asked.count("cudnn") == refused + 1


@pytest.mark.parametrize("what", ["library", "driver", "device", "precision"])
def test_choices_are_those_of_a_device_and_its_versions(
    what: str, asked: list[str], cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process()
    if what == "library":
        monkeypatch.setattr(cublaslt.CublasLt, "version", 1)
    elif what == "driver":
        monkeypatch.setattr(cupy.cuda.runtime, "driverGetVersion", lambda: 13010)
    elif what == "device":
        known = cupy.cuda.runtime.getDeviceProperties
        monkeypatch.setattr(cupy.cuda.runtime, "getDeviceProperties", lambda number: known(number) | {"minor": 1})
    else:
        monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", "tf32")
    process()
    assert asked.count("cublaslt") == 2


@pytest.mark.parametrize("damage", ["removed", "cut", "changed"])
def test_files_may_be_removed_or_damaged(damage: str, asked: list[str], tmp_path: Path) -> None:
    first = process()
    for path in kept(tmp_path):
        if damage == "removed":
            path.unlink()
        else:
            data = path.read_bytes()
            path.write_bytes(data[:7] if damage == "cut" else bytes([data[0] ^ 255]) + data[1:])
    np.testing.assert_array_equal(process(), first)
    assert asked.count("cublaslt") == 2


def test_nothing_is_kept_if_the_user_has_no_cache(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CACHE", "0")
    process()
    process()
    assert asked.count("cublaslt") == 2 and not (tmp_path / "fluidtool").exists()


def test_the_folder_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST", 250)
    process()
    assert sum(path.stat().st_size for path in kept(tmp_path)) <= 250
    for size in (2, 3):
        found, name = net()
        found.feeds = {each: np.repeat(array, size, 0) for each, array in found.feeds.items()}
        Executor(CUDAPlace(0)).run(found.program, found.feeds, [name], found.scope)
        assert sum(path.stat().st_size for path in kept(tmp_path)) <= 250
