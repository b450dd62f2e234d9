"""CUDA graphs are what a GPU computes by default; what a library, the compiler or a capture refuses is computed another way."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import DeviceError, OutOfMemoryError, UsageError
from fluidtool.fluid import layers
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda import region
from fluidtool.runtime.engines.cuda.cublaslt import CublasLt
from fluidtool.runtime.engines.cuda.cudnn import Cudnn
from fluidtool.runtime.engines.cuda.region import CudaRegion
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep, StepCompiler
from fluidtool.runtime.partition import reasons
from fluidtool.tensor import CPUPlace, CUDAPlace
from tests.gpu.standin import devices, kernels
from tests.gpu.standin.devices import MACHINE, CompileException, CUDARuntimeError
from tests.gpu.test_cuda_regions import on_gpu
from tests.runtime.native.checking import Net

GPU = CUDAPlace(0)
pytestmark = pytest.mark.usefixtures("cupy")


@pytest.mark.parametrize(("switch", "engine"), [(None, "cuda"), ("", "cuda"), ("1", "cuda"), ("0", None)])
def test_the_switch(switch: str | None, engine: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if switch is not None:
        monkeypatch.setenv("FLUIDTOOL_CUDA", switch)
    found = Executor(GPU).engine
    assert (None if found is None else found.name) == engine


def test_cupy_is_an_engine_of_gpus_only() -> None:
    assert Executor(GPU, engine="cupy").engine is None
    with pytest.raises(UsageError, match="there is no engine 'cupy'"):
        Executor(CPUPlace(), engine="cupy")


def test_a_precision_is_not_looked_at_where_graphs_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", "int4")
    with pytest.raises(UsageError, match="FLUIDTOOL_CUDA_PRECISION=int4: the precisions on a GPU are"):
        Executor(GPU)
    monkeypatch.setenv("FLUIDTOOL_CUDA", "0")
    assert Executor(GPU).engine is None


# ---------------------------------------------------------------- what is refused
class Layers:
    """A convolution and a product, with kernels around them."""

    def __init__(self) -> None:
        self.net = Net()
        x = self.net.op("tanh", "Out", {"X": self.net.data(2, 3, 6, 6)})
        self.image = self.net.conv(x, self.net.parameter(4, 3, 3, 3))
        y = self.net.op("reshape2", "Out", {"X": self.image}, "XShape", shape=[2, 64])
        self.product = self.net.op(
            "mul", "Out", {"X": y, "Y": self.net.parameter(64, 5)}, x_num_col_dims=1, y_num_col_dims=1
        )
        self.out = self.net.op("softmax", "Out", {"X": self.product}, axis=-1)

    def check(self) -> list[str]:
        """Three runs give numpy's numbers; what users are warned of."""
        (want,) = self.net.run("numpy", self.out)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            (found,) = on_gpu(self.net, self.out)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
        assert all(each.category is RuntimeWarning for each in told)
        return [str(each.message) for each in told]

    def reasons(self) -> list[str]:
        """Why parts run by cupy."""
        return list(reasons(self.net.plan.work).values())


@pytest.fixture
def net() -> Layers:
    return Layers()


def graphs(monkeypatch: pytest.MonkeyPatch) -> list[CudaRegion]:
    """The regions that run as graphs, for each run."""
    found: list[CudaRegion] = []
    computed = CudaRegion._computed

    def noted(self: CudaRegion, *args: Any) -> Any:
        found.append(self)
        return computed(self, *args)

    monkeypatch.setattr(CudaRegion, "_computed", noted)
    return found


def test_nobody_is_warned_of_what_works(net: Layers) -> None:
    assert net.check() == [] and net.reasons() == []


@pytest.mark.parametrize(("package", "library"), [("cudnn", "nvidia-cudnn-frontend"), ("nvmath", "nvmath-python")])
def test_without_a_package_nobody_is_warned_but_the_version_tells(
    package: str, library: str, net: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fluidtool.runtime.engines.cuda.engine import state

    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    assert net.check() == []
    assert any("needs cu" in reason for reason in net.reasons())
    assert f"without {library}" in state() and "by cupy" in state()


def test_a_convolution_that_cudnn_has_no_plan_for(net: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
    MACHINE.refused, ran = frozenset({"conv"}), graphs(monkeypatch)
    (told,) = net.check()
    assert told.startswith("cuDNN has no plan for ")
    assert f"the operator that computes {net.image} is computed by cupy instead" in told
    assert ran  # what is around it


def failing(error: Exception) -> Callable[..., Any]:
    """A function that fails."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_a_library_that_cannot_be_loaded(net: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cudnn, "__init__", failing(RuntimeError("libcudnn.so.9: cannot open shared object file")))
    ran = graphs(monkeypatch)
    (told,) = net.check()
    assert told.startswith("cuDNN failed (RuntimeError: libcudnn.so.9: cannot open shared object file); ")
    assert ran


def test_a_product_that_cublaslt_has_no_algorithm_for(net: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CublasLt, "_algorithm", failing(RuntimeError("cuBLASLt has no algorithm for a product")))
    (told,) = net.check()
    assert "cuBLASLt has no algorithm" in told and f"computes {net.product} is computed by cupy" in told


class LibraryError(Exception):
    """As those of nvmath: of no class that others are."""


def test_a_call_that_fails_in_the_first_run(net: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CublasLt, "run", failing(LibraryError("CUBLAS_STATUS_NOT_SUPPORTED (15)")))
    ran = graphs(monkeypatch)
    told = net.check()
    assert "cuBLASLt failed (LibraryError: CUBLAS_STATUS_NOT_SUPPORTED (15))" in told[0]
    assert net.reasons() and ran


def test_a_kernel_that_nvrtc_refuses(net: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
    get = kernels.RawModule.get_function

    def refuse(self: Any, name: str) -> Any:
        if name.startswith("softmax"):
            raise CompileException("nvrtc: error: failed to open libnvrtc-builtins.so.13.0")
        return get(self, name)

    monkeypatch.setattr(kernels.RawModule, "get_function", refuse)
    (told,) = net.check()
    assert "NVRTC refused a generated kernel (nvrtc: error: failed to open libnvrtc-builtins.so.13.0)" in told
    assert f"the operator that computes {net.out} is computed by cupy" in told


@pytest.mark.parametrize("status", [900, 901, 905])
def test_a_region_that_cannot_be_captured_makes_its_calls_one_by_one(
    status: int, net: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = devices.Stream.end_capture

    def fail(self: Any) -> Any:
        if MACHINE.capturing is not None:
            end(self)
        raise CUDARuntimeError(status, f"cudaErrorStreamCapture: {status}")

    monkeypatch.setattr(devices.Stream, "end_capture", fail)
    ran = graphs(monkeypatch)
    (told,) = net.check()  # three runs, one warning
    assert f"a CUDA graph cannot be captured (cudaErrorStreamCapture: {status}); its calls are made one by one" in told
    assert len(ran) == 3 and net.reasons() == []


def test_a_library_that_refuses_to_be_captured(net: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CublasLt.run

    def refuse(self: Any, *args: Any) -> None:
        if MACHINE.capturing is not None:
            raise LibraryError("CUBLAS_STATUS_EXECUTION_FAILED (13)")
        run(self, *args)

    monkeypatch.setattr(CublasLt, "run", refuse)
    (told,) = net.check()
    assert "cannot be captured (cuBLASLt failed (LibraryError: CUBLAS_STATUS_EXECUTION_FAILED (13)))" in told
    assert MACHINE.capturing is None


def test_a_gpu_that_is_lost_is_no_refusal(net: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CublasLt, "run", failing(CUDARuntimeError(719, "cudaErrorLaunchFailure")))
    with pytest.raises(DeviceError, match="GPU 0 has failed"):
        Executor(GPU).run(net.net.program, net.net.feeds, [net.out], net.net.scope)


# ---------------------------------------------------------------- training
class Job:
    """A perceptron on one device."""

    def __init__(self, place: Any) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.main.random_seed = self.startup.random_seed = 3
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            hidden = layers.fc(layers.data("x", [6]), 8, act="tanh")
            self.loss = layers.mean(layers.square(layers.fc(hidden, 4)))
            fluid.optimizer.Adam(0.1).minimize(self.loss)
        self.scope, self.executor = fluid.Scope(), fluid.Executor(place)
        self.executor.run(self.startup, scope=self.scope)

    def steps(self, *rows: int) -> list[float]:
        """The losses of steps with so many rows."""
        feeds = [{"x": np.random.default_rng(count).standard_normal((count, 6)).astype(np.float32)} for count in rows]
        return [float(self.executor.run(self.main, feed, [self.loss], scope=self.scope)[0].item()) for feed in feeds]


@pytest.mark.parametrize("name", ["plan", "run"])
def test_a_training_step_whose_products_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want = Job(CPUPlace()).steps(5, 5, 5, 5)
    monkeypatch.setattr(CublasLt, name, failing(LibraryError("CUBLAS_STATUS_NOT_SUPPORTED (15)")))
    with pytest.warns(RuntimeWarning, match="cuBLASLt failed .* is computed by cupy instead, one operator at a time"):
        found = Job(GPU).steps(5, 5, 5, 5)
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_steps_of_other_shapes_are_dropped_for_one_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, compiled: list[CudaStep]
) -> None:
    want = Job(CPUPlace()).steps(5, 5, 6, 6, 6)
    compile, refused = StepCompiler.compile, [True]

    def full(self: Any, *args: Any, **named: Any) -> Any:
        if compiled and args[1]["x"].shape[0] == 6 and refused:
            raise OutOfMemoryError(f"a region needs 10 bytes {refused.pop()}")
        return compile(self, *args, **named)

    monkeypatch.setattr(StepCompiler, "compile", full)
    np.testing.assert_allclose(Job(GPU).steps(5, 5, 6, 6, 6), want, rtol=1e-5)
    assert refused == [] and len(compiled) == 5


def test_a_step_that_does_not_fit_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(GPU)
    job.steps(5)
    monkeypatch.setattr(StepCompiler, "compile", failing(OutOfMemoryError("a region needs 10 bytes on the GPU")))
    with pytest.raises(OutOfMemoryError, match="a region needs 10 bytes on the GPU"):
        job.steps(6)


def test_graphs_of_training_steps_take_a_quarter_of_the_memory(compiled: list[CudaStep]) -> None:
    job = Job(GPU)
    job.steps(5)
    MACHINE.total_bytes = 4 * compiled[0].memory + 4 * 100
    job.steps(5, 4, 5)
    assert len({id(step) for step in compiled}) == 3  # that for 5 rows was dropped for 4, and compiled again
    MACHINE.total_bytes = 1 << 34
    job.steps(4, 5, 4)
    assert len({id(step) for step in compiled}) == 4


# ---------------------------------------------------------------- inference
def test_regions_of_other_shapes_are_dropped_for_one_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    net, executor, bound, refused = Net(), Executor(GPU), region.bind, [True]
    x = net.data(4, 8)
    y = net.op("softmax", "Out", {"X": x}, axis=-1)
    executor.run(net.program, net.feeds, [y], net.scope)

    def full(*args: Any) -> Any:
        if refused:
            raise OutOfMemoryError(f"a region needs 10 bytes {refused.pop()}")
        return bound(*args)

    monkeypatch.setattr("fluidtool.runtime.engines.cuda.engine.bind", full)
    (found,) = executor.run(net.program, {x: np.ones((2, 8), np.float32)}, [y], net.scope)
    np.testing.assert_allclose(found.numpy(), 1 / 8)
    assert refused == []
