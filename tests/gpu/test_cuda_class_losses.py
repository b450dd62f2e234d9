"""Losses of classes in regions of inference on a GPU, as in a program that is tested: the numbers of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_regions import calls, check, on_gpu
from tests.gpu.test_training_reductions import in_a_step
from tests.gpu.test_training_steps import Job, batch
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")
GPU, CLASSES = CUDAPlace(0), 5
LOSSES = pytest.mark.parametrize("type", ["cross_entropy", "cross_entropy2", "softmax_with_cross_entropy"])
MORE = {"cross_entropy": (), "cross_entropy2": ("XShape", "MatchX"), "softmax_with_cross_entropy": ("Softmax",)}


def loss_of(net: Net, type: str, labels: Array, ignored: int = -100, scores: Array | None = None) -> str:
    """The loss of scores, as probabilities where the operator wants those."""
    lead = labels.shape[:-1] if labels.shape[-1:] == (1,) else labels.shape
    x = net.data(*lead, CLASSES) if scores is None else net.data(of=scores)
    if type != "softmax_with_cross_entropy":
        x = net.op("softmax", "Out", {"X": x}, axis=-1)
    slots = ("Loss", "Logits") if type == "softmax_with_cross_entropy" else ("Y", "X")
    return net.op(type, slots[0], {slots[1]: x, "Label": net.data(of=labels)}, *MORE[type], ignore_index=ignored)


@LOSSES
@pytest.mark.parametrize("shape", [(6, 1), (2, 3, 1), (1, 1)])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_losses(type: str, shape: tuple[int, ...], ignored: int) -> None:
    net = Net()
    labels = net.random.integers(0, CLASSES, shape)
    assert check(net, loss_of(net, type, labels, ignored), rtol=2e-6)[:2] == ["clear", "softmax"]


@pytest.mark.parametrize("type", ["cross_entropy", "cross_entropy2"])
def test_labels_without_a_last_axis(type: str) -> None:
    net = Net()
    check(net, loss_of(net, type, net.random.integers(0, CLASSES, (6,))), rtol=2e-6)


@LOSSES
def test_scores_that_leave_a_class_almost_no_probability(type: str) -> None:
    """It is never 0, as in Paddle, whose losses are therefore not infinite."""
    net = Net()
    scores = np.array([[-1e9, 0, 0, 0, 0], [0, -1e9, -1e9, -1e9, -1e9], [np.nan] * 5], np.float32)
    name = loss_of(net, type, np.array([[0], [0], [1]]), scores=scores)
    (want,), (found,) = net.run("numpy", name), on_gpu(net, name)
    np.testing.assert_allclose(want[0], 64 + np.log(4), rtol=1e-6)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    assert net.why_not() == []


@pytest.mark.parametrize("type", ["cross_entropy", "cross_entropy2"])
def test_probabilities_of_zero_and_no_number(type: str) -> None:
    net = Net()
    given = np.array([[0, 1], [1, 0], [np.inf, 0], [np.nan, 0], [-1, 0]], np.float32)
    x = net.op("pool2d", "Out", {"X": net.data(of=given[None, None])}, pooling_type="max", ksize=[1, 1], strides=[1, 1])
    rows = net.op("reshape2", "Out", {"X": x}, "XShape", shape=[5, 2])
    inputs = {"X": rows, "Label": net.data(of=np.zeros((5, 1), np.int64))}
    name = net.op(type, "Y", inputs, *MORE[type])
    (want,), (found,) = net.run("numpy", name), on_gpu(net, name)
    assert want[0] == np.float32(1e20) and want[2] == np.float32(-1e20)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    assert net.why_not() == []


@pytest.mark.parametrize("on_device", [False, True])
def test_a_label_of_more_than_32_bits_is_no_class(on_device: bool, cupy: Any) -> None:
    net = Net()
    name = loss_of(net, "cross_entropy", np.array([[1], [2**32], [0]]))
    feeds = {key: LoDTensor(cupy.asarray(array) if on_device else array) for key, array in net.feeds.items()}
    with pytest.raises(OperatorError, match="input Label holds class"):
        Executor(GPU).run(net.program, feeds, [name], net.scope)[0].numpy()


def test_a_softmax_that_is_read_is_a_result_of_the_same_kernel() -> None:
    net = Net()
    loss = loss_of(net, "softmax_with_cross_entropy", net.random.integers(0, CLASSES, (6, 1)))
    softmax = net.program.global_block().ops[-1].outputs["Softmax"][0]
    assert check(net, loss, softmax, rtol=2e-6).count("softmax") == 1


@pytest.mark.parametrize("ignored", [-100, 1])
def test_the_loss_of_logits(ignored: int) -> None:
    net = Net()
    x = np.array([[0, 1, -1], [1e9, -1e9, np.inf], [30, -30, np.nan]], np.float32)
    labels = np.array([[0, 1, 0.5], [1, 1, 0], [0.25, 1, 1]], np.float32)
    inputs = {"X": net.data(of=x), "Label": net.data(of=labels)}
    name = net.op("sigmoid_cross_entropy_with_logits", "Out", inputs, ignore_index=ignored, normalize=False)
    pooled = net.op("softmax", "Out", {"X": net.data(2, 3)}, axis=-1)
    want, found = net.run("numpy", name, pooled), on_gpu(net, name, pooled)
    np.testing.assert_allclose(found[0], want[0], rtol=2e-6)
    assert net.why_not() == [] and net.regions() == len(net.plan.work) == 1


@pytest.mark.parametrize("ignored", [0, -1])
def test_labels_that_are_ignored_are_compared_as_integers(ignored: int, compiled: list[CudaStep]) -> None:
    """As in Paddle: with 0, also 0.3 and -0.7. Its gradient ignores the same ones."""
    net = Net()
    labels = net.data(of=np.array([[0.3, -0.7, 0, 1.2, -1, -1.5]], np.float32))
    inputs, attrs = {"X": net.data(1, 6), "Label": labels}, {"ignore_index": ignored, "normalize": False}
    grad = net.data(of=np.arange(1, 7, dtype=np.float32).reshape(1, 6))
    loss, slope = in_a_step(
        net,
        net.op("sigmoid_cross_entropy_with_logits", "Out", inputs, **attrs),
        net.op("sigmoid_cross_entropy_with_logits_grad", "X@GRAD", inputs | {"Out@GRAD": grad}, **attrs),
        rtol=2e-6,
    )
    wanted = [0, 1, 2] if ignored == 0 else [4, 5]
    for found in (loss, slope):
        assert np.flatnonzero(found == 0).tolist() == wanted
    assert len(compiled) == 1


# ---------------------------------------------------------------- labels that are probabilities
def smoothed(net: Net, rows: int, epsilon: float = 0.1, on: str = "one_hot") -> str:
    """Classes as probabilities, a share of which is the same for all."""
    labels = net.random.integers(0, CLASSES, (rows, 1) if on == "one_hot" else (rows,))
    return net.op(
        "label_smooth", "Out", {"X": net.op(on, "Out", {"X": net.data(of=labels)}, depth=CLASSES)}, epsilon=epsilon
    )


@pytest.mark.parametrize("type", ["cross_entropy", "softmax_with_cross_entropy"])
@pytest.mark.parametrize("on", ["one_hot", "one_hot_v2"])
def test_labels_that_are_probabilities(type: str, on: str) -> None:
    """They are in no memory."""
    net = Net()
    labels, x = smoothed(net, 6, on=on), net.data(6, CLASSES)
    if type == "cross_entropy":
        x = net.op("softmax", "Out", {"X": x}, axis=-1)
        name = net.op(type, "Y", {"X": x, "Label": labels}, soft_label=True)
    else:
        name = net.op(type, "Loss", {"Logits": x, "Label": labels}, "Softmax", soft_label=True)
    assert check(net, name, rtol=2e-6) == ["clear", "softmax", "reduce"]


def test_soft_losses_of_probabilities_of_zero_and_no_number() -> None:
    net = Net()
    given = np.array([[0, 1], [1, 0], [np.inf, 0], [np.nan, 0], [-1, 0]], np.float32)
    x = net.op("pool2d", "Out", {"X": net.data(of=given[None, None])}, pooling_type="max", ksize=[1, 1], strides=[1, 1])
    rows = net.op("reshape2", "Out", {"X": x}, "XShape", shape=[5, 2])
    labels = net.data(of=np.array([[0.5, 0.5], [0, 1], [1, 0], [1, 0], [1, 0]], np.float32))
    name = net.op("cross_entropy", "Y", {"X": rows, "Label": labels}, soft_label=True)
    (want,), (found,) = net.run("numpy", name), on_gpu(net, name)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    assert net.why_not() == []


@pytest.mark.parametrize("type", ["one_hot", "one_hot_v2"])
@pytest.mark.parametrize("anywhere", [False, True])
def test_places_of_labels(type: str, anywhere: bool) -> None:
    net = Net()
    labels = np.array([0, 4, 2, -1, 5, 2**32] if anywhere else [0, 4, 2])
    x = net.data(of=labels[:, None] if type == "one_hot" else labels)
    name = net.op(type, "Out", {"X": x}, depth=CLASSES, allow_out_of_range=anywhere)
    softmax = net.op("softmax", "Out", {"X": net.data(2, 3)}, axis=-1)
    check(net, name, softmax, rtol=2e-6)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("wrong", [CLASSES, -1])
def test_a_label_beyond_all_places_has_the_message_of_the_cpu(wrong: int, on_device: bool, cupy: Any) -> None:
    net = Net()
    x = net.data(of=np.array([[1], [wrong]]))
    name = net.op("softmax", "Out", {"X": net.op("one_hot", "Out", {"X": x}, depth=CLASSES)}, axis=-1)
    messages = []
    for executor in (Executor(engine="numpy"), Executor(GPU)):
        on_gpu_now = on_device and executor.device.name == "cuda"
        feeds = {x: LoDTensor(cupy.asarray(net.feeds[x]) if on_gpu_now else net.feeds[x])}
        with pytest.raises(OperatorError, match=rf"X must lie in \[0, {CLASSES}\), the depth, found {wrong}") as caught:
            executor.run(net.program, feeds, [name], net.scope)[0].numpy()
        messages.append(str(caught.value))
    assert len(set(messages)) == 1


def test_a_smoothing_by_a_distribution_is_left_to_the_operator() -> None:
    net = Net()
    labels = net.op("softmax", "Out", {"X": net.data(4, CLASSES)}, axis=-1)
    prior = net.data(of=np.full((1, CLASSES), 0.2, np.float32))
    name = net.op("label_smooth", "Out", {"X": labels, "PriorDist": prior}, epsilon=0.2)
    (want,) = net.run("numpy", name)
    np.testing.assert_allclose(on_gpu(net, name)[0], want, rtol=1e-6)
    assert net.why_not() == ["a prior distribution"]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("with_logits", [False, True])
def test_smoothed_labels_are_part_of_a_training_step(
    with_logits: bool, precision: str, compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", precision)

    def build() -> Any:
        x, y = layers.data("x", [6]), layers.data("y", [1], dtype="int64")
        labels = layers.label_smooth(layers.one_hot(y, CLASSES), epsilon=0.1)
        scores = layers.fc(layers.fc(x, 16, act="relu"), CLASSES, act=None if with_logits else "softmax")
        loss = layers.softmax_with_cross_entropy if with_logits else layers.cross_entropy
        return layers.mean(loss(scores, labels, soft_label=True))

    jobs = [Job(build, lambda: fluid.optimizer.Adam(1e-2), place) for place in (fluid.CPUPlace(), None)]
    for step in range(3):
        want, found = (job.step(batch(seed=step))[0] for job in jobs)
        np.testing.assert_allclose(found, want, rtol=2e-5 if precision == "float32" else 1e-2)
    assert len(compiled) == 3
    if precision == "float32":
        for name, value in jobs[1].values().items():
            np.testing.assert_allclose(value, jobs[0].values()[name], rtol=2e-4, atol=2e-6)


# ---------------------------------------------------------------- labels that are no class
@LOSSES
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("wrong", [CLASSES, -1])
def test_a_label_that_is_no_class_has_the_message_of_the_cpu(wrong: int, on_device: bool, type: str, cupy: Any) -> None:
    net = Net()
    name = loss_of(net, type, net.random.integers(0, CLASSES, (3, 1)))
    on_gpu(net, name)
    label = net.program.global_block().ops[-1].inputs["Label"][0]
    array, messages = np.array([[1], [wrong], [0]]), []
    for executor in (Executor(engine="numpy"), Executor(GPU)):
        given = cupy.asarray(array) if on_device and executor.device.name == "cuda" else array
        for _ in range(1 if executor.device.name == "cpu" else 3):
            with pytest.raises(OperatorError, match=f"input Label holds class {wrong}, expected 0 to 4") as caught:
                executor.run(net.program, net.feeds | {label: LoDTensor(given)}, [name], net.scope)[0].numpy()
            messages.append(str(caught.value))
    assert len(set(messages)) == 1
    check(net, name, rtol=2e-6)


@LOSSES
@pytest.mark.parametrize("on_device", [False, True])
def test_the_label_that_does_not_count_may_be_no_class(on_device: bool, type: str, cupy: Any) -> None:
    net = Net()
    name = loss_of(net, type, np.array([[1], [-100], [4]]))
    (want,) = net.run("numpy", name)
    assert want[1] == 0
    feeds = {key: LoDTensor(cupy.asarray(array) if on_device else array) for key, array in net.feeds.items()}
    executor = Executor(GPU)
    for _ in range(3):
        with EVENTS.counted() as counts:
            (found,) = executor.run(net.program, feeds, [name], net.scope)
        np.testing.assert_allclose(found.numpy(), want, rtol=2e-6)
    assert counts["synchronizations"] == 0


# ---------------------------------------------------------------- what is left to the operators
def along_another_axis(net: Net) -> str:
    logits = net.op("relu", "Out", {"X": net.op("softmax", "Out", {"X": net.data(6, CLASSES)}, axis=-1)})
    inputs = {"Logits": logits, "Label": net.data(of=np.zeros((1, CLASSES), np.int64))}
    return net.op("softmax_with_cross_entropy", "Loss", inputs, "Softmax", axis=0)


def divided(net: Net) -> str:
    x = net.op("softmax", "Out", {"X": net.data(6, CLASSES)}, axis=-1)
    inputs = {"X": x, "Label": net.data(of=np.ones((6, CLASSES), np.float32))}
    return net.op("sigmoid_cross_entropy_with_logits", "Out", inputs, normalize=True)


@pytest.mark.parametrize(
    ("build", "why"),
    [(along_another_axis, "another axis"), (divided, "divided by the number of labels")],
)
def test_what_has_no_kernel_is_left_to_the_operator(build: Any, why: str) -> None:
    net = Net()
    name = build(net)
    want, found = net.run("numpy", name), on_gpu(net, name)
    np.testing.assert_allclose(found[0], want[0], rtol=2e-6, atol=1e-6)
    assert [why in each for each in net.why_not()] == [True]


def test_what_is_kept_of_a_loss_is_left_to_the_operator_where_it_is_read() -> None:
    net = Net()
    name = loss_of(net, "cross_entropy2", net.random.integers(0, CLASSES, (6, 1)))
    match = net.program.global_block().ops[-1].outputs["MatchX"][0]
    want, found = net.run("numpy", name, match), on_gpu(net, name, match)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6)


# ---------------------------------------------------------------- programs that are tested
@pytest.mark.parametrize("loss", [layers.cross_entropy, layers.softmax_with_cross_entropy])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_classifier_that_is_tested_is_one_graph(loss: Any, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its loss, top_k and accuracy. In halves the probabilities of the loss stay float32."""
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", precision)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = layers.data("x", [3, 8, 8]), layers.data("y", [1], dtype="int64")
        features = layers.pool2d(layers.conv2d(x, 8, 3, act="relu"), 2, pool_stride=2)
        scores = layers.fc(features, CLASSES, act="softmax" if loss is layers.cross_entropy else None)
        total = layers.mean(loss(scores, y))
        fetches = [total, layers.accuracy(scores, y), layers.accuracy(scores, y, k=3)]
    random, found = np.random.default_rng(0), []
    feed = {"x": random.standard_normal((6, 3, 8, 8)).astype(np.float32), "y": random.integers(0, CLASSES, (6, 1))}
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    (want, *shares) = fluid.Executor(fluid.CPUPlace()).run(main, feed, fetches, scope=scope)
    executor = fluid.Executor(GPU)
    for _ in range(3):
        with EVENTS.counted() as counts:
            found = executor.run(main, feed, fetches, scope=scope)
    np.testing.assert_allclose(found[0], want, rtol=2e-5 if precision == "float32" else 1e-2)
    np.testing.assert_array_equal(found[1:], shares)
    assert counts["launches"] == 2 and counts["synchronizations"] == 0  # the graph, and a copy of three results
    (plan,) = [plan for plans in executor._runtime._plans.values() for plan in plans.values()]
    assert len(plan.block(0).work) == 1


def test_calls_of_a_classifier() -> None:
    net = Net()
    loss = loss_of(net, "cross_entropy2", net.random.integers(0, CLASSES, (6, 1)))
    check(net, net.op("mean", "Out", {"X": loss}), rtol=2e-6)
    assert calls(net) == ["clear", "softmax", "each", "reduce"]
