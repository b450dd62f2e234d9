"""GPUs of the stand-in for the tests here; no other test sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fluidtool.runtime.engines.cuda import sources
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.standin import installed
from tests.gpu.standin.kernels import COMPILER, NO_COMPILER


@pytest.fixture(autouse=True)
def _as_nothing_is_set() -> Iterator[None]:
    """What computes is the default, unless a test says something else; threads compute several elements of small arrays, too.

    By a patch of its own: that of a test ends before the stand-in goes, whose modules it may have changed.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FLUIDTOOL_CUDA", "FLUIDTOOL_CUDA_PRECISION", "FLUIDTOOL_NCCL"):
            patch.delenv(name, raising=False)
        patch.setattr(sources, "ENOUGH", 1)
        yield


@pytest.fixture
def cupy() -> Iterator[Any]:
    """The stand-in for cupy, on a machine with two GPUs."""
    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    with installed(devices=2) as module:
        yield module


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[CudaStep]:
    """Every step that runs in one call, for each run and each GPU."""
    found: list[CudaStep] = []
    run = CudaStep.run

    def noted(self: CudaStep, *args: Any) -> Any:
        found.append(self)
        return run(self, *args)

    monkeypatch.setattr(CudaStep, "run", noted)
    return found
