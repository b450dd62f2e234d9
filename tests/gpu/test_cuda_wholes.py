"""Whole numbers and booleans that regions and training steps compute: metrics, comparisons, casts. The numbers are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.runtime.graph.importers import metrics
from fluidtool.runtime.training_regions import TrainingRegion
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.test_cuda_ranking import read, same, scores
from tests.gpu.test_cuda_regions import on_gpu
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")
GPU = CUDAPlace(0)
FP32, INT64, BOOL = (int(each) for each in (VarType.FP32, VarType.INT64, VarType.BOOL))
COMPARISONS = ["less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"]
SPECIAL = np.array([0, -0.0, 1, 1 + 6e-8, 2e-9, 1.1e-8, -3, np.inf, -np.inf, np.nan], np.float32)
WHOLE = np.array([0, 1, 2, -1, 2**24, 2**24 + 1, 2**53 + 1, 2**62, -(2**62)])
Layers = Callable[..., Any]


# ---------------------------------------------------------------- regions
def cast(net: Net, x: str, into: int, given: int = FP32) -> str:
    return net.op("cast", "Out", {"X": x}, out_dtype=into, in_dtype=given)


def worth(net: Net) -> str:
    """What makes a region worthwhile."""
    return read(net, scores("numbers", 2, 3))


def pairs(kind: str) -> tuple[Array, Array]:
    """All pairs of some numbers, as a column and a row."""
    found = SPECIAL if kind == "floats" else WHOLE
    return np.repeat(found[:, None], len(found), 1), np.repeat(found[None], len(found), 0)


@pytest.mark.parametrize("version", [0, 2_000_000])
@pytest.mark.parametrize("kind", ["floats", "whole numbers"])
@pytest.mark.parametrize("type", COMPARISONS)
def test_comparisons(type: str, kind: str, version: int) -> None:
    net = Net()
    net.program.version = version
    x, y = (net.data(of=array) for array in pairs(kind))
    found = cast(net, net.op(type, "Out", {"X": x, "Y": y}, axis=-1), FP32, BOOL)
    assert sorted(same(net, found, worth(net))) == ["each", "each", "pool"]  # one of them copies a result


@pytest.mark.parametrize(("y", "axis"), [((3, 4), -1), ((4,), -1), ((2, 3), 0), ((3, 1), 1), ((1,), -1)])
def test_a_comparison_broadcasts_what_is_on_its_right(y: tuple[int, ...], axis: int) -> None:
    net = Net()
    inputs = {"X": net.data(of=scores("ties", 2, 3, 4)), "Y": net.data(of=scores("ties", *y, seed=1))}
    same(net, cast(net, net.op("greater_than", "Out", inputs, axis=axis), FP32, BOOL), worth(net))


@pytest.mark.parametrize("type", ["logical_and", "logical_or", "logical_xor", "logical_not"])
def test_logic(type: str) -> None:
    net = Net()
    x, y = (net.data(of=scores("ties", 40, seed=seed)) for seed in (1, 2))
    given = {"X": net.op("less_than", "Out", {"X": x, "Y": y}), "Y": cast(net, y, BOOL)}
    if type == "logical_not":
        del given["Y"]
    same(net, cast(net, net.op(type, "Out", given), INT64, BOOL), worth(net))


@pytest.mark.parametrize("into", [FP32, INT64, BOOL])
@pytest.mark.parametrize("given", [FP32, INT64, BOOL])
def test_casts(given: int, into: int) -> None:
    net = Net()
    array = np.array([0, -0.0, 0.5, -0.5, 1.9, -1.9, 3e9, 1e17, -1e17], np.float32) if given != INT64 else WHOLE
    x = net.data(of=array)
    found = cast(net, cast(net, x, BOOL) if given == BOOL else x, into, given)
    if into == BOOL:
        found = cast(net, found, INT64, BOOL)
    same(net, found, worth(net))


def test_what_is_no_whole_number_becomes_the_lowest_one() -> None:
    """As from the instruction of x86."""
    net = Net()
    x = net.data(of=np.array([np.nan, np.inf, -np.inf, 1e30, -1e30], np.float32))
    found = cast(net, x, INT64)
    assert on_gpu(net, found, worth(net))[0].tolist() == [-(2**63)] * 5 and not net.why_not()


@pytest.mark.parametrize("into", [VarType.FP64, VarType.FP16])
def test_casts_to_other_types_are_left_to_the_operator(into: VarType) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 3)}, axis=-1)
    found = cast(net, x, int(into))
    want = net.run("numpy", found)[0]
    np.testing.assert_allclose(on_gpu(net, found)[0], want, rtol=1e-3)
    assert net.why_not() == ["a cast to another type than float32, int64, int32 or bool"]


def test_booleans_that_leave_the_region_are_booleans_outside() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 3)}, axis=-1)
    name = net.op("greater_than", "Out", {"X": x, "Y": net.data(of=np.full((2, 3), 0.3, np.float32))})
    want = net.run("numpy", name, x)
    found = on_gpu(net, name, x)
    assert found[0].dtype == want[0].dtype == np.bool_
    np.testing.assert_array_equal(found[0], want[0])
    assert net.why_not() == [] and net.regions() == len(net.plan.work) == 1


def test_booleans_from_outside_are_part_of_the_region() -> None:
    net = Net()
    x = net.data(of=np.array([True, False]))
    same(net, cast(net, net.op("logical_not", "Out", {"X": x}), FP32, BOOL), worth(net))


def test_numbers_of_two_types_have_the_message_of_the_cpu() -> None:
    net = Net()
    name = net.op("equal", "Out", {"X": net.data(of=WHOLE), "Y": net.data(len(WHOLE))})
    fetches, messages = (cast(net, name, FP32, BOOL), worth(net)), []
    for executor in (Executor(engine="numpy"), Executor(GPU)):
        with pytest.raises(Exception, match="both must be of one data type") as caught:
            executor.run(net.program, net.feeds, list(fetches), net.scope)
        messages.append(str(caught.value))
    assert len(set(messages)) == 1


# ---------------------------------------------------------------- other shapes
RESHAPES: dict[str, dict[str, Any]] = {
    "reshape2": {"shape": [-1, 1]},
    "squeeze2": {"axes": [0]},
    "unsqueeze2": {"axes": [3]},
    "flatten2": {"axis": 2},
}


@pytest.mark.parametrize("type", RESHAPES)
def test_whole_numbers_in_another_shape(type: str) -> None:
    """Given ones, and places that are computed."""
    net = Net()
    given = net.data(of=net.random.integers(0, 4, (1, 6, 1)))
    places = net.op("arg_max", "Out", {"X": read(net, scores("ties", 1, 6, 1, 4))}, axis=-1)
    x, y = (net.op(type, "Out", {"X": each}, "XShape", **RESHAPES[type]) for each in (given, places))
    same(net, cast(net, net.op("equal", "Out", {"X": x, "Y": y}), FP32, BOOL), x, y)


@pytest.mark.parametrize("on_device", [False, True])
def test_ids_in_another_shape_are_looked_at_as_they_were_given(on_device: bool, cupy: Any) -> None:
    net = Net()
    given = net.data(of=np.array([[1, 3], [0, 2]]))
    ids = net.op("reshape2", "Out", {"X": given}, "XShape", shape=[4, 1])
    ids = net.op("unsqueeze2", "Out", {"X": ids}, "XShape", axes=[0])
    rows = net.op("lookup_table", "Out", {"W": net.parameter(4, 3), "Ids": ids}, padding_idx=-1)
    name = net.op("softmax", "Out", {"X": rows}, axis=-1)
    (want,) = net.run("numpy", name)
    np.testing.assert_allclose(on_gpu(net, name)[0], want, rtol=1e-6)
    assert net.why_not() == [] and len(net.plan.work) == 1
    wrong = np.array([[1, 4], [0, 2]])
    feed = {given: LoDTensor(cupy.asarray(wrong) if on_device else wrong)}
    with pytest.raises(OperatorError, match=f"{given} holds an id of 0 to 4, the table has 4 rows"):
        Executor(GPU).run(net.program, feed, [name], net.scope)[0].numpy()


def test_labels_in_another_shape_are_looked_at_as_they_were_given(cupy: Any) -> None:
    net = Net()
    given = net.data(of=np.array([1, 3, 0]))
    label = net.op("unsqueeze2", "Out", {"X": given}, "XShape", axes=[1])
    name = net.op("softmax_with_cross_entropy", "Loss", {"Logits": net.data(3, 4), "Label": label}, "Softmax")
    (want,) = net.run("numpy", name)
    np.testing.assert_allclose(on_gpu(net, name)[0], want, rtol=1e-6)
    assert net.why_not() == [] and len(net.plan.work) == 1
    with pytest.raises(OperatorError, match="input Label holds class 4, expected 0 to 3"):
        feeds = net.feeds | {given: LoDTensor(cupy.asarray([1, 4, 0]))}
        Executor(GPU).run(net.program, feeds, [name], net.scope)[0].numpy()


def test_rows_are_looked_up_by_ids_that_are_computed() -> None:
    net = Net()
    places = net.op("arg_max", "Out", {"X": read(net, scores("ties", 5, 4))}, axis=-1, keepdims=True)
    ids = net.op("reshape2", "Out", {"X": places}, "XShape", shape=[5, 1])
    rows = net.op("lookup_table", "Out", {"W": net.parameter(4, 3), "Ids": ids}, padding_idx=-1)
    name = net.op("softmax", "Out", {"X": rows}, axis=-1)
    (want,) = net.run("numpy", name)
    np.testing.assert_allclose(on_gpu(net, name)[0], want, rtol=1e-6)
    assert net.why_not() == [] and net.regions() == len(net.plan.work) == 1


# ---------------------------------------------------------------- accuracy
def measured(net: Net, rows: int, k: int, label: Array | None = None) -> list[str]:
    """top_k and accuracy of scores: the names of Accuracy, Correct, Total."""
    x = read(net, scores("ties", rows, 9))
    out, places = net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=k)
    labels = net.random.integers(0, 9, (rows, 1)) if label is None else label
    inputs = {"Out": out, "Indices": places, "Label": net.data(of=labels)}
    return net.several("accuracy", {"Accuracy": 1, "Correct": 1, "Total": 1}, inputs)


@pytest.mark.parametrize("type", [np.int64, np.int32])
@pytest.mark.parametrize("rows", [1, 3, 300])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_accuracy(k: int, rows: int, type: Any) -> None:
    net = Net()
    labels = net.random.integers(0, 9, (rows, 1)).astype(type)
    name = measured(net, rows, k, labels)[0]
    assert same(net, name)[-2:] == ["place" if k == 1 else "largest", "reduce"]


def test_labels_that_are_no_class_are_wrong_predictions() -> None:
    net = Net()
    same(net, measured(net, 4, 2, np.array([[-1], [9], [2**40], [0]]))[0])


def test_more_places_than_a_kernel_compares_are_left_to_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_PLACES", 1)
    net = Net()
    name = measured(net, 6, 2)[0]
    (want,) = net.run("numpy", name)
    np.testing.assert_array_equal(on_gpu(net, name)[0], want)
    assert net.why_not() == ["more than 1 places"]


def test_counts_are_whole_numbers_of_32_bits() -> None:
    net = Net()
    same(net, *measured(net, 6, 2))


def test_counts_that_stay_in_the_scope_are_left_to_the_operator() -> None:
    net = Net()
    names = measured(net, 6, 2)
    net.program.global_block().var(names[1]).persistable = True
    (want,) = net.run("numpy", names[0])
    counted = net.scope.find_var(names[1]).value.numpy().copy()
    net.scope.find_var(names[1]).value = None
    np.testing.assert_array_equal(on_gpu(net, names[0])[0], want)
    np.testing.assert_array_equal(net.scope.find_var(names[1]).value.numpy(), counted)


# ---------------------------------------------------------------- training steps
def classifier(build: Layers, is_behind: bool = False) -> tuple[Any, Any, list[Any]]:
    """A program that is trained; `build` computes metrics of (probabilities, labels, loss of each row)."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = layers.data("x", [8]), layers.data("y", [1], dtype="int64")
        probabilities = layers.fc(layers.fc(x, 16, act="relu"), 5, act="softmax")
        loss = layers.cross_entropy(probabilities, y)
        total = layers.mean(loss)
        adam = fluid.optimizer.Adam(1e-2)
        if is_behind:
            adam.minimize(total)
        metrics = build(probabilities, y, loss)
        if not is_behind:
            adam.minimize(total)
    return main, startup, [total, *metrics]


def samples(seed: int, rows: int = 6) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((rows, 8)).astype(np.float32), "y": random.integers(0, 5, (rows, 1))}


def trained(main: Any, startup: Any, fetches: list[Any], steps: int = 3) -> None:
    """Steps on both devices, whose numbers are the same."""
    executors = [(fluid.Executor(place), fluid.Scope()) for place in (fluid.CPUPlace(), GPU)]
    for _, scope in executors:
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    for step in range(steps):
        found = []
        for executor, scope in executors:
            found.append(executor.run(main, samples(step), fetches, scope=scope))
        for want, own in zip(*found, strict=True):
            assert own.dtype == want.dtype and own.shape == want.shape
            np.testing.assert_allclose(own, want, rtol=2e-5, atol=1e-6)


def of_top(k: int) -> Layers:
    return lambda probabilities, y, loss: [layers.accuracy(probabilities, y, k=k)]


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("k", [1, 3])
def test_a_classifier_with_its_accuracy_is_one_graph(k: int, is_behind: bool, compiled: list[CudaStep]) -> None:
    trained(*classifier(of_top(k), is_behind))
    assert len(compiled) == 3
    kernels = [call.name.partition("_")[0] for call in compiled[-1].calls if hasattr(call, "name")]
    assert kernels.count("place" if k == 1 else "largest") == 1


def by_hand(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """What scripts write in place of accuracy."""
    best = layers.reshape(layers.argmax(probabilities, axis=1), [-1, 1])
    right = layers.cast(layers.equal(best, y), "float32")
    return [layers.reduce_mean(right), best]


def masked(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """The average loss of the samples of some classes."""
    zero, three = (layers.fill_constant_batch_size_like(y, [-1, 1], "int64", number) for number in (0, 3))
    counts = layers.logical_and(layers.not_equal(y, zero), layers.logical_not(layers.equal(y, three)))
    weights = layers.cast(counts, "float32")
    return [layers.reduce_sum(loss * weights) / (layers.reduce_sum(weights) + 1e-6)]


def confident(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """How many rows have a probability above a threshold, and which class it is."""
    best, places = layers.topk(probabilities, 2)
    threshold = layers.fill_constant_batch_size_like(best, [-1, 2], "float32", 0.3)
    above = layers.greater_than(best, threshold)
    return [
        layers.reduce_sum(layers.cast(above, "float32")),
        places,
        layers.cast(layers.cast(above, "int64"), "float32"),
    ]


@pytest.mark.parametrize("build", [by_hand, confident])
def test_metrics_by_hand_are_part_of_the_graph(build: Layers, compiled: list[CudaStep]) -> None:
    trained(*classifier(build))
    assert len(compiled) == 3


def test_masks_by_labels(compiled: list[CudaStep]) -> None:
    """Constants of whole numbers are made by their operators, before the graph."""
    trained(*classifier(masked))
    assert len(compiled) == 3


def shown(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """Booleans that are fetched."""
    best, _ = layers.topk(probabilities, 1)
    return [layers.less_than(loss, best), layers.accuracy(probabilities, y)]


def counted(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """How many are right, which is fetched as well, and stays in the scope."""
    correct, total = (layers.create_global_var([1], 0, "int32", persistable=stays) for stays in (True, False))
    return [layers.accuracy(probabilities, y, correct=correct, total=total), correct, total]


def looked_up(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """Rows of a table by places that are computed."""
    return [layers.embedding(layers.topk(probabilities, 1)[1], [5, 3])]


@pytest.mark.parametrize("build", [shown, counted, looked_up])
def test_what_has_no_place_in_a_step_is_left_to_its_operator(build: Layers, compiled: list[CudaStep]) -> None:
    trained(*classifier(build))
    assert compiled


def ranked(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """How well the first two classes are told apart, over all batches and this one; both have no place in a step."""
    return list(layers.auc(layers.softmax(layers.slice(probabilities, [1], [0], [2])), layers.cast(y > 1, "int64"))[:2])


def halved(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """A metric of float64 that other operators read."""
    found = ranked(probabilities, y, loss)
    return [*found, layers.scale(layers.cast(found[0], "float32"), 0.5)]


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("build", [ranked, halved])
def test_a_metric_without_a_place_waits_until_the_step_is_over(
    build: Layers, is_behind: bool, compiled: list[CudaStep]
) -> None:
    trained(*classifier(build, is_behind))
    updating = [
        step for step in compiled if any(call.name.startswith("update") for call in step.calls if hasattr(call, "name"))
    ]
    assert len(updating) == 3 and all(len(step.calls) > 10 for step in updating)  # with what is before the metric


def test_what_a_metric_reads_is_kept_for_it_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(region: TrainingRegion, *_: Any) -> None:
        region.parts = region.steps

    monkeypatch.setattr(TrainingRegion, "compile", refuse)
    trained(*classifier(ranked))


def test_a_metric_that_is_changed_before_it_is_read_does_not_wait(compiled: list[CudaStep]) -> None:
    """What the step changes must be looked at before."""

    def build(probabilities: Any, y: Any, loss: Any) -> list[Any]:
        kept = layers.create_global_var([6, 2], 0.5, "float32", persistable=True)
        found = layers.auc(kept, layers.cast(y > 1, "int64"))[0]
        layers.assign(layers.softmax(layers.slice(probabilities, [1], [0], [2])), kept)
        return [found]

    trained(*classifier(build))
    assert compiled


def test_whole_numbers_that_stay_in_the_scope(compiled: list[CudaStep]) -> None:
    def build(probabilities: Any, y: Any, loss: Any) -> list[Any]:
        kept = layers.create_global_var([6], 0, "int64", persistable=True, name="kept")
        layers.assign(layers.argmax(probabilities, axis=1), kept)
        return [kept]

    trained(*classifier(build))
    assert compiled


def test_a_schedule_that_counts_in_whole_numbers(compiled: list[CudaStep]) -> None:
    def build(probabilities: Any, y: Any, loss: Any) -> list[Any]:
        steps = layers.create_global_var([1], 0, "int64", persistable=True)
        share = layers.create_global_var([1], 1.0, "float32", persistable=True)
        layers.increment(steps)
        with layers.Switch() as switch, switch.case(layers.less_than(layers.fill_constant([1], "int64", 1), steps)):
            layers.assign(layers.fill_constant([1], "float32", 0.5), share)
        return [layers.scale(share, 3.0), layers.cast(steps, "float32")]

    trained(*classifier(build))
    assert compiled
