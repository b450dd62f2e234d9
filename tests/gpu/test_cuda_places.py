"""Slices by the numbers of their places along several axes (`gather_nd`), in regions and training steps, with their gradient.

The numbers are the CPU's, to the bit, and so are the errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import FluidError, OperatorError
from fluidtool.fluid import layers
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import CPUPlace, CUDAPlace, LoDTensor
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_ranking import read, same, scores
from tests.gpu.test_cuda_regions import on_gpu
from tests.gpu.test_cuda_wholes import cast, worth
from tests.gpu.test_training_reductions import in_a_step, kernels
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")
SHAPE = (4, 3, 5)
INT64, INT32 = int(VarType.INT64), int(VarType.INT32)


def index(depth: int, *lead: int, kind: Any = np.int64, seed: int = 0) -> Array:
    """Places along the first axes, some of them twice."""
    random = np.random.default_rng(seed)
    return np.stack([random.integers(0, size, lead) for size in SHAPE[:depth]], axis=-1).astype(kind)


# ---------------------------------------------------------------- regions
@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("lead", [(6,), (2, 3), (1,), ()])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_slices(depth: int, lead: tuple[int, ...], kind: Any) -> None:
    net = Net()
    given = {"X": read(net, scores("numbers", *SHAPE)), "Index": net.data(of=index(depth, *lead, kind=kind))}
    same(net, net.op("gather_nd", "Out", given), worth(net))


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_slices_of_whole_numbers(kind: Any) -> None:
    net = Net()
    given = {"X": net.data(of=net.random.integers(-99, 99, SHAPE).astype(kind)), "Index": net.data(of=index(2, 6))}
    found = net.op("gather_nd", "Out", given)
    same(net, cast(net, found, INT64, INT32) if kind == np.int32 else found, worth(net))


def test_slices_of_a_parameter_by_places_of_another_one() -> None:
    net = Net()
    given = {"X": net.parameter(*SHAPE), "Index": net.parameter(of=index(2, 6))}
    same(net, net.op("relu", "Out", {"X": net.op("gather_nd", "Out", given)}), worth(net))


def test_the_same_places_of_two_arrays_are_numbered_once() -> None:
    net = Net()
    by = net.data(of=index(2, 6))
    names = [net.op("gather_nd", "Out", {"X": read(net, scores("numbers", *SHAPE)), "Index": by}) for _ in range(2)]
    same(net, *(net.op("relu", "Out", {"X": name}) for name in names))
    assert len({node.output for node in _nodes(net) if node.kind == "whole"}) == 1


def _nodes(net: Net) -> list[Any]:
    (region,) = net.plan.work
    (compiled,) = region.specializations.kept.values()  # type: ignore[union-attr]
    return list(compiled.imported.graph.nodes)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("rows", "kept"), [(3, [[0, 2, 3]]), (4, [])])
def test_sequences_stay_sequences_while_their_rows_are_as_many(rows: int, kept: list[list[int]]) -> None:
    net = Net()
    x = net.data(3, 2)
    net.feeds[x] = LoDTensor(net.feeds[x], [[0, 2, 3]])
    by = net.data(of=np.arange(rows).reshape(-1, 1) % 3)
    names = [net.op("gather_nd", "Out", {"X": net.op("relu", "Out", {"X": x}), "Index": by}), worth(net)]
    same(net, *names)
    for executor in (Executor(engine="numpy"), Executor(CUDAPlace(0))):
        assert executor.run(net.program, net.feeds, names, net.scope)[0].offsets == kept


@pytest.mark.parametrize("half", ["bf16", "fp16"])
def test_in_halves(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    net = Net()
    given = {"X": read(net, scores("numbers", *SHAPE)), "Index": net.data(of=index(2, 6))}
    names = [net.op("relu", "Out", {"X": net.op("gather_nd", "Out", given)}), worth(net)]
    for a, b in zip(on_gpu(net, *names), net.run("numpy", *names), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2)


@pytest.mark.parametrize("wrong", [(0, 4), (0, -1), (1, 3), (1, -1), (1, 1 << 40), (0, -(1 << 62))])
@pytest.mark.parametrize("how", ["fed", "on the GPU", "computed"])
def test_a_place_out_of_range_has_the_message_of_the_cpu(how: str, wrong: tuple[int, int], cupy: Any) -> None:
    """Also one whose row would be another one: [0, 3] of 3 columns is not [1, 0]."""
    net = Net()
    fed = net.data(of=index(2, 6))
    by = net.op("scale", "Out", {"X": fed}, scale=1.0, bias=0.0) if how == "computed" else fed
    found = net.op("gather_nd", "Out", {"X": read(net, scores("numbers", *SHAPE)), "Index": by})
    names = [net.op("relu", "Out", {"X": found}), worth(net)]
    places = index(2, 6)
    places[3, wrong[0]] = wrong[1]
    with pytest.raises(FluidError) as expected:
        Executor(CPUPlace(), engine="numpy").run(net.program, net.feeds | {fed: places}, names, net.scope)
    executor = Executor(CUDAPlace(0))
    for _ in range(3):
        executor.run(net.program, net.feeds, names, net.scope)
    with pytest.raises(OperatorError) as caught:
        feeds = net.feeds | {fed: places if how == "fed" else LoDTensor(cupy.asarray(places))}
        executor.run(net.program, feeds, names, net.scope)[0].numpy()
    assert str(caught.value).partition(" [")[0] == str(expected.value).partition(" [")[0]
    assert f"Index[..., {wrong[0]}]" in str(caught.value)


def test_more_axes_than_there_are_have_the_message_of_the_cpu() -> None:
    net = Net()
    given = {"X": read(net, scores("numbers", 4, 3)), "Index": net.data(of=np.zeros((2, 2), np.int64))}
    found = net.op("gather_nd", "Out", given)
    net.feeds[given["Index"]] = np.zeros((2, 3), np.int64)
    messages = []
    for executor in (Executor(engine="numpy"), Executor(CUDAPlace(0))):
        with pytest.raises(FluidError, match="the last size of Index is 3, but") as caught:
            executor.run(net.program, net.feeds, [found], net.scope)
        messages.append(str(caught.value))
    assert len(set(messages)) == 1


# ---------------------------------------------------------------- training steps
@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("lead", [(40,), (2, 3), ()])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_gradient_adds_up_at_places_that_are_named_twice(
    depth: int, lead: tuple[int, ...], kind: Any, compiled: list[CudaStep]
) -> None:
    net = Net()
    given = {"X": net.data(*SHAPE), "Index": net.data(of=index(depth, *lead, kind=kind))}
    grad = net.data(of=net.random.integers(-9, 9, (*lead, *SHAPE[depth:])).astype(np.float32))
    names = [net.op("gather_nd", "Out", given), net.op("gather_nd_grad", "X@GRAD", given | {"Out@GRAD": grad})]
    in_a_step(net, *names)
    assert len(compiled) == 1 and "scatter" in kernels(compiled[-1])


def picked(computed: bool, dtype: str = "int64") -> tuple[fluid.Program, fluid.Program, Any]:
    """Numbers of a network's result by their places, which are fed or computed."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, places = layers.data("x", [8]), layers.data("places", [2], dtype=dtype)
        hidden = layers.fc(x, 6, act="tanh", param_attr="v")
        found = layers.gather_nd(hidden, layers.scale(places, 1.0, 1.0) if computed else places)
        loss = layers.mean(layers.square(found - 0.5))
        fluid.optimizer.Adam(1e-2).minimize(loss)
    return main, startup, loss


def batch(seed: int, dtype: str = "int64") -> dict[str, Array]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((5, 8)).astype(np.float32)
    return {"x": x, "places": random.integers(0, 4, (7, 2)).astype(dtype)}


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_a_step_with_places_is_one_graph(dtype: str, computed: bool, compiled: list[CudaStep]) -> None:
    main, startup, loss = picked(computed, dtype)
    found = []
    for place in (fluid.CPUPlace(), CUDAPlace(0)):
        scope, executor = fluid.Scope(), fluid.Executor(place)
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        found.append([executor.run(main, batch(seed, dtype), [loss], scope=scope)[0] for seed in range(4)])
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5)
    assert len(compiled) == 4


@pytest.mark.parametrize("computed", [False, True])
def test_the_host_waits_only_for_places_that_are_computed(computed: bool, compiled: list[CudaStep]) -> None:
    main, startup, loss = picked(computed)
    scope, executor = fluid.Scope(), Executor(CUDAPlace(0))
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    for _ in range(4):
        with EVENTS.counted() as counts:
            executor.run(main, batch(0), [loss.name], scope)
    assert len(compiled) == 4 and counts["copies to the host"] + counts["synchronizations"] == computed


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("wrong", [(0, 5), (1, 6), (1, -2)])
def test_a_step_with_a_place_out_of_range_changes_nothing(
    wrong: tuple[int, int], computed: bool, compiled: list[CudaStep]
) -> None:
    main, startup, loss = picked(computed)
    messages = []
    for place in (fluid.CPUPlace(), CUDAPlace(0)):
        scope, executor = fluid.Scope(), fluid.Executor(place)
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        for seed in range(3):
            executor.run(main, batch(seed), [loss], scope=scope)
        before, feed = np.array(scope.find_var("v").get_tensor()), batch(3)
        feed["places"][2, wrong[0]] = wrong[1]
        with pytest.raises(OperatorError) as caught:
            executor.run(main, feed, [loss], scope=scope)
        messages.append(str(caught.value).partition(" [")[0])
        np.testing.assert_array_equal(np.array(scope.find_var("v").get_tensor()), before)
    assert messages[0] == messages[1] and compiled
