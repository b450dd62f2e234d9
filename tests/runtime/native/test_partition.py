"""Regions: what is fused, what is left to numpy, what changes between runs, and who runs at the same time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings

from fluidtool.errors import DeviceError, OperatorError, UsageError
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, specialization
from fluidtool.runtime.engines.native.abi import Kind
from fluidtool.runtime.engines.native.allocator import lay_out, lifetimes, lower_bound
from fluidtool.runtime.engines.native.build import COMMON_UNITS
from fluidtool.runtime.engines.native.library import FOLDER, Library, usable_instructions
from fluidtool.runtime.partition import ONE_BY_ONE, Region
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import Net, agree, check
from tests.support.checkout import child_environment
from tests.support.counted_work import LIMIT, Work, growth
from tests.support.random_programs import RandomProgram, programs

pytestmark = pytest.mark.usefixtures("native")


def residual_block(channels: int = 16) -> tuple[Net, str]:
    """conv, batch_norm, relu, conv, batch_norm, + input, relu, global pool, fc, softmax."""
    net = Net()
    x = net.data(2, channels, 9, 9)
    data = x
    for number in range(2):
        data = net.conv(data, net.parameter(channels, channels, 3, 3), paddings=[1, 1])
        statistics = {
            "X": data,
            "Scale": net.parameter(channels),
            "Bias": net.parameter(channels),
            "Mean": net.parameter(channels),
            "Variance": net.parameter(of=np.linspace(0.5, 2, channels, dtype=np.float32)),
        }
        data = net.op("batch_norm", "Y", statistics, "SavedMean", "SavedVariance", is_test=True, epsilon=1e-3)
        if number == 0:
            data = net.op("relu", "Out", {"X": data})
    data = net.op("relu", "Out", {"X": net.op("elementwise_add", "Out", {"X": data, "Y": x}, axis=-1)})
    settled = {"pooling_type": "avg", "ksize": [1, 1], "global_pooling": True}
    data = net.op("pool2d", "Out", {"X": data}, **settled)
    data = net.op("mul", "Out", {"X": data, "Y": net.parameter(channels, 5)})
    data = net.op("elementwise_add", "Out", {"X": data, "Y": net.parameter(5)}, axis=1)
    return net, net.op("softmax", "Out", {"X": data}, axis=-1)


@pytest.mark.parametrize("channels", [3, 8, 16, 20])
def test_a_residual_block_is_one_region(channels: int) -> None:
    net, out = residual_block(channels)
    check(net, out, rtol=1e-5)


def test_a_convolution_without_normalization_adds_a_shortcut() -> None:
    net = Net()
    x = net.data(1, 16, 6, 6)
    y = net.op("relu", "Out", {"X": net.conv(x, net.parameter(16, 16, 1, 1))})
    branch = net.conv(
        net.op("relu", "Out", {"X": net.conv(y, net.parameter(16, 16, 1, 1))}), net.parameter(16, 16, 1, 1)
    )
    out = net.op("elementwise_add", "Out", {"X": y, "Y": branch})
    check(net, out, rtol=1e-5)
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    (compiled,) = region.specializations.kept.values()
    assert "ELEMENTWISE" not in [kernel_call.kind.name for kernel_call in compiled.kernel_calls]


def test_what_lies_between_can_be_fetched_too() -> None:
    net, out = residual_block()
    names = [
        op.outputs[slot][0]
        for op in net.program.global_block().ops
        for slot in ("Output", "Y", "Out")
        if slot in op.outputs
    ]
    agree(net, [*names, out], rtol=1e-5)


def test_other_parameters_are_packed_anew() -> None:
    net, out = residual_block()
    executor = Executor(engine="native")
    executor.run(net.program, net.feeds, [out], net.scope)
    weights = net.program.global_block().ops[0].input("Filter")[0]
    net.scope.var(weights).value = LoDTensor(net.random.standard_normal((16, 16, 3, 3)).astype(np.float32))
    (got,) = executor.run(net.program, net.feeds, [out], net.scope)
    (want,) = net.run("numpy", out)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-5)


def test_another_batch_size_is_compiled_anew_and_both_are_kept() -> None:
    net, out = residual_block()
    executor = Executor(engine="native")
    image = net.feeds["data0"]
    for batch in (2, 5, 2, 1):
        net.feeds["data0"] = np.resize(image, (batch, *image.shape[1:]))
        (got,) = executor.run(net.program, net.feeds, [out], net.scope)
        np.testing.assert_allclose(got.numpy(), net.run("numpy", out)[0], atol=1e-5)
    (region,) = executor.plan(net.program, [out]).block(0).work
    assert len(region.specializations.kept) == 3  # type: ignore[union-attr]


def test_what_has_no_kernel_runs_on_numpy_between_regions() -> None:
    net = Net()
    x = net.data(3, 8)
    one = net.op("mul", "Out", {"X": x, "Y": net.parameter(8, 8)})
    two = net.op("cumsum", "Out", {"X": one}, axis=-1)
    three = net.op("mul", "Out", {"X": two, "Y": net.parameter(8, 4)})
    agree(net, [three])
    assert net.regions() == 2 and len(net.plan.work) == 3


def test_shapes_without_a_kernel_say_why() -> None:
    net = Net()
    x, y = net.data(2, 3, 4), net.data(2, 4, 5)
    turned = net.op("transpose2", "Out", {"X": x}, "XShape", axis=[0, 2, 1])
    agree(net, [net.op("matmul", "Out", {"X": turned, "Y": net.op("relu", "Out", {"X": y})}, transpose_X=True)])
    assert net.why_not() == ["matmul of a vector or of a transposed X"]


def test_a_region_is_cut_where_a_kernel_is_missing() -> None:
    net = Net()
    x = net.data(3, 8)
    one = net.op("mul", "Out", {"X": x, "Y": net.parameter(8, 8)})
    two = net.op("clip", "Out", {"X": one, "Min": net.data(of=np.zeros(1, np.float32))}, min=0.0, max=1.0)
    three = net.op("mul", "Out", {"X": two, "Y": net.parameter(8, 4)})
    agree(net, [three])
    assert net.why_not() == ["computed bounds"]
    (region,) = net.plan.work
    assert [isinstance(part, Region) for part in region.parts] == [True, False, True]  # type: ignore[union-attr]


def test_numbers_of_other_types_are_left_to_numpy() -> None:
    net = Net()
    x = net.data(3, 8)
    net.program.global_block().vars[net.parameter(8, 4)].dtype = VarType.FP64
    net.scope.var("parameter1").value = LoDTensor(np.ones((8, 4)))
    with pytest.raises(OperatorError, match="float64"):
        net.run("native", net.op("mul", "Out", {"X": x, "Y": "parameter1"}))


def test_what_cannot_work_is_refused_as_numpy_refuses_it() -> None:
    net = Net()
    y = net.conv(net.data(1, 3, 8, 8), net.parameter(4, 3, 3, 3))
    net.program.global_block().ops[0].set_attr("strides", [0, 1])
    with pytest.raises(OperatorError, match="strides must be 2 positive numbers"):
        net.run("native", y)


@settings(max_examples=80, deadline=None)
@given(programs())
def test_random_programs(made: RandomProgram) -> None:
    values = [
        [
            value.numpy()
            for value in Executor(engine=engine, seed=1).run(made.program, made.feeds, made.fetches, made.scope())
        ]
        for engine in ("native", "numpy")
    ]
    for got, want in zip(*values, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(float(np.abs(want).max()), 1e-30))


def test_buffers_that_live_together_do_not_overlap() -> None:
    net, out = residual_block()
    net.run("native", out)
    (region,) = net.plan.work
    (specialization,) = region.specializations.kept.values()  # type: ignore[union-attr]
    kernel_calls = specialization.kernel_calls
    offsets, size = lay_out(kernel_calls)
    alive = lifetimes(kernel_calls)
    for a in alive:
        for b in alive:
            together = alive[a][0] <= alive[b][1] and alive[b][0] <= alive[a][1]
            if a is not b and together:
                assert offsets[a] + a.size <= offsets[b] or offsets[b] + b.size <= offsets[a]
    assert lower_bound(kernel_calls) <= size <= 1.25 * lower_bound(kernel_calls)


def test_several_executors_at_once_and_one_executor_from_several_threads() -> None:
    net, out = residual_block()
    (want,) = net.run("native", out)
    shared = Executor(engine="native")
    wrong: list[float] = []

    def work(executor: Executor) -> None:
        for _ in range(20):
            (got,) = executor.run(net.program, net.feeds, [out], net.scope)
            wrong.append(float(np.abs(got.numpy() - want).max()))

    threads = [
        threading.Thread(target=work, args=(executor,)) for executor in (shared, shared, Executor(engine="native"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 60 and max(wrong) == 0


def test_threads_that_use_more_shapes_than_are_kept_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    out = net.op("mul", "Out", {"X": net.data(1, 8), "Y": net.parameter(8, 4)})
    net.program.global_block().vars["data0"].shape = (-1, 8)
    weight = net.scope.find_var("parameter1").value.array
    executor = Executor(engine="native")
    wrong: list[float] = []
    monkeypatch.setattr(specialization, "MOST_KEPT", 8)

    def work() -> None:
        for rows in [*range(1, 12)] * 6:
            x = np.full((rows, 8), rows, np.float32)
            (got,) = executor.run(net.program, {"data0": x}, [out], net.scope.new_scope())
            wrong.append(float(np.abs(got.numpy() - x @ weight).max()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 4 * 66 and max(wrong) < 1e-4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_computes_too() -> None:
    net, out = residual_block()
    executor = Executor(engine="native")
    (want,) = executor.run(net.program, net.feeds, [out], net.scope)
    child = os.fork()
    if child == 0:
        (got,) = executor.run(net.program, net.feeds, [out], net.scope)
        os._exit(0 if np.array_equal(got.numpy(), want.numpy()) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_every_kernel_is_in_the_table() -> None:
    tables = [(FOLDER / "src" / f"{unit}.c").read_text() for unit in (*COMMON_UNITS, "pairs")]
    listed = [name for table in tables for name in re.findall(r"\[FT_(\w+)\] =", table)]
    again = ["DEPTHWISE"]  # pairs.c has the one that can read and write halves
    assert sorted(listed) == sorted([*(kind.name for kind in Kind), *again])


@pytest.mark.parametrize("instructions", ["amx", "avx512_bf16", "avx512", "avx2", "portable"])
def test_every_instruction_set_gives_the_same(instructions: str, native: Library) -> None:
    if instructions not in usable_instructions(native.handle):
        pytest.skip(f"this build of the engine has no {instructions} for this processor")
    gives_the_same("FLUIDTOOL_INSTRUCTIONS", instructions)


def test_one_thread_gives_the_same() -> None:
    gives_the_same("FLUIDTOOL_THREADS", "1")


def gives_the_same(name: str, value: str) -> None:
    """Another process, as both are chosen once."""
    net, out = residual_block()
    (want,) = net.run("native", out)
    code = (
        "import numpy as np, sys\n"
        "from tests.runtime.native.test_partition import residual_block\n"
        "from fluidtool.runtime.engines.native.library import library\n"
        "net, out = residual_block()\n"
        "print(library().instructions, library().threads, *net.run('native', out)[0].ravel())\n"
    )
    environment = child_environment(**{name: value})
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    instructions, threads, *numbers = done.stdout.split()
    assert value in (instructions, threads)
    np.testing.assert_allclose(np.array(numbers, np.float32), want.ravel(), atol=1e-6)


def test_numpy_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Executor(engine="numpy").engine is None
    monkeypatch.setenv("FLUIDTOOL_NATIVE", "0")
    assert Executor().engine is None


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UsageError, match=r"there is no engine 'tpu'; expected one of auto, native, numpy"):
        Executor(engine="tpu")


def test_an_engine_that_is_not_built_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluidtool.runtime.engines.native.engine.library", lambda: None)
    with pytest.raises(DeviceError, match=r"python -m fluidtool\.runtime\.engines\.native\.build"):
        Executor(engine="native")


def culprits(count: int) -> tuple[Net, str]:
    """So many operators of a variant that no kernel has, each before four that have one."""
    net = Net()
    x, scale = net.data(1, 1, 2, 4), net.parameter(4)
    for _ in range(count):
        x = net.op("affine_channel", "Out", {"X": x, "Scale": scale, "Bias": scale}, data_layout="NHWC")
        for _ in range(4):
            x = net.op("layer_norm", "Y", {"X": x}, "Mean", "Variance", begin_norm_axis=1, epsilon=1e-5)
    return net, x


@pytest.mark.parametrize("count", [1, ONE_BY_ONE, ONE_BY_ONE + 1, 40])
def test_what_lies_between_operators_without_a_kernel_is_native(count: int) -> None:
    net, out = culprits(count)
    expected, found = net.run("numpy", out), net.run("native", out)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    assert net.regions() == 1
    assert len(net.why_not()) <= ONE_BY_ONE + 1


def test_the_work_grows_with_the_number_of_operators_without_a_kernel() -> None:
    def work_of(count: int) -> Work:
        net, out = culprits(count)
        return lambda: net.run("native", out)

    assert growth(work_of, size=80, smallest=20) < LIMIT
