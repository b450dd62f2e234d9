"""Registers suffice for each generated kernel of the benchmarks' training steps, in their real sizes, where NVRTC is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from benchmarks import training_networks
from benchmarks.gpu_training import MANY, on_gpu
from fluidtool.runtime.engines.cuda import sources
from fluidtool.runtime.engines.cuda.region import Libraries, source_of
from fluidtool.runtime.engines.cuda.sources import PRELUDE
from fluidtool.runtime.engines.cuda.training.compiled import StepCompiler
from fluidtool.runtime.engines.cuda.training.lowering import LoweredStep
from fluidtool.tensor import CUDAPlace
from tests.gpu.nvrtc import ABSENT, nvrtc, spilled

if nvrtc() is None:
    pytest.skip(ABSENT, allow_module_level=True)
THREADS = 1 << 15  # that are at least left on a GPU; tests here have one otherwise


class Enough(BaseException):
    """Raised once a step is lowered: running it takes a GPU."""


@pytest.fixture
def lowered(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> list[LoweredStep]:
    """The steps that were lowered, none of which runs."""
    found: list[LoweredStep] = []

    def kept(self: StepCompiler, built: Any, step: LoweredStep, given: Any) -> None:
        found.append(step)
        raise Enough

    monkeypatch.setattr(StepCompiler, "_bound", kept)
    monkeypatch.setattr(Libraries, "channels_first", lambda self, step: frozenset())  # nothing is measured
    monkeypatch.setattr(sources, "ENOUGH", THREADS)
    return found


def step_once(name: str) -> None:
    """A step of a network of the benchmarks, whose parameters are zeros."""
    build, batch = training_networks.ON_GPUS[name]
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        loss, optimizer, feed = build(fluid, MANY * batch)
        optimizer.minimize(loss)
    for var in startup.global_block().vars.values():
        kind = "float32" if var.dtype == fluid.core.VarDesc.VarType.FP32 else "int64"
        scope.var(var.name).get_tensor().set(np.zeros(var.shape, kind), fluid.CPUPlace())
    fluid.Executor(CUDAPlace(0)).run(main, feed=on_gpu(feed), fetch_list=[], scope=scope)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", ["seq2seq", "lstm", "deepfm", "resnet18"])
def test_no_kernel_of_a_network_spills(
    name: str, precision: str, lowered: list[LoweredStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", precision)
    with pytest.raises(Enough):
        step_once(name)
    assert [found for step in lowered if (found := spilled(source_of(step.calls), "sm_90"))] == []


def test_what_spills_is_found() -> None:
    kernel = "{ volatile float x[64]; x[(int)out[0]] = 1.0f; out[1] = x[(int)out[2]]; }"
    text = PRELUDE + 'extern "C" __global__ void indexed(float* out)\n' + kernel
    assert spilled(text, "sm_90") == {"indexed": 256}
