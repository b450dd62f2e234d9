"""The best paths through tags on a GPU, in inference and in training steps: those of the CPU, to the first of equal ones."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.runtime.graph.importers import structured
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_recurrent_steps import sgd
from tests.gpu.test_cuda_regions import calls, on_gpu
from tests.gpu.test_cuda_structured import LONGEST, TAGS, padded_sentences, sentences
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")
GPU = CUDAPlace(0)


def whole_numbers(seed: int, *shape: int) -> Array:
    """Scores of which many sums are equal."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def tagged(net: Net, lengths: list[int], tags: int, padded: bool, has_labels: bool) -> str:
    """The best path through scores, or where it is as labels say."""
    shape = (len(lengths), max(*lengths, 1)) if padded else (sum(lengths),)
    x = net.data(of=whole_numbers(1, *shape, tags))
    inputs = {"Emission": x, "Transition": net.parameter(of=whole_numbers(2, tags + 2, tags))}
    labels = net.random.integers(0, min(tags, 2), (*shape, 1))
    if has_labels:
        inputs["Label"] = net.data(of=labels)
    if padded:
        inputs["Length"] = net.data(of=np.array(lengths)[:, None])
    else:
        lod = [list(accumulate(lengths, initial=0))]
        net.feeds[x] = LoDTensor(net.feeds[x], lod)
    return net.op("crf_decoding", "ViterbiPath", inputs)


@pytest.mark.parametrize("has_labels", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("lengths", [[3, 1, 4], [1], [0, 2, 0], [40, 2]])
def test_paths_are_one_kernel(lengths: list[int], padded: bool, has_labels: bool) -> None:
    net = Net()
    name = tagged(net, lengths, TAGS, padded, has_labels)
    (want,), (found,) = net.run("numpy", name), on_gpu(net, name)
    assert found.dtype == want.dtype == np.int64
    np.testing.assert_array_equal(found, want)
    assert calls(net) == (["clear", "viterbi"] if padded else ["viterbi"])


@pytest.mark.parametrize("tags", [1, 2, 31, 32, 33, 257, 300])
def test_tags_at_the_edges_of_warps_and_blocks(tags: int) -> None:
    net = Net()
    name = tagged(net, [5, 3], tags, False, False)
    np.testing.assert_array_equal(on_gpu(net, name)[0], net.run("numpy", name)[0])


def test_what_is_no_number_wins_as_in_numpy() -> None:
    net = Net()
    emission, transition = (whole_numbers(seed, 13, 20) for seed in (1, 2))
    emission[5, 3] = np.nan
    transition = np.resize(transition, (22, 20))
    transition[7, 18] = np.nan
    x = net.data(of=emission)
    net.feeds[x] = LoDTensor(emission, [[0, 4, 10, 13]])
    name = net.op("crf_decoding", "ViterbiPath", {"Emission": x, "Transition": net.parameter(of=transition)})
    np.testing.assert_array_equal(on_gpu(net, name)[0], net.run("numpy", name)[0])


def test_a_path_has_the_lod_of_its_scores() -> None:
    net = Net()
    name = tagged(net, [3, 0, 4], TAGS, False, False)
    for _ in range(2):
        (found,) = Executor(GPU).run(net.program, net.feeds, [name], net.scope)
        assert found.lod() == [[0, 3, 3, 7]]


def test_a_path_is_part_of_the_region_before_it(cupy: Any) -> None:
    """Behind a table, whose marks follow a result of whole numbers."""
    net = Net()
    ids = net.data(of=np.array([[1], [3], [0], [2]]))
    net.feeds[ids] = LoDTensor(net.feeds[ids], [[0, 3, 4]])
    rows = net.op("lookup_table", "Out", {"W": net.parameter(4, TAGS), "Ids": ids}, padding_idx=-1)
    path = net.op("crf_decoding", "ViterbiPath", {"Emission": rows, "Transition": net.parameter(TAGS + 2, TAGS)})
    (want,) = net.run("numpy", path)
    np.testing.assert_array_equal(on_gpu(net, path)[0], want)
    assert calls(net) == ["clear", "each", "viterbi"]
    array = np.array([[1], [4], [0], [2]])
    for wrong in (array, cupy.asarray(array)):
        with pytest.raises(OperatorError, match="holds an id of 0 to 4, the table has 4 rows"):
            feed = {ids: LoDTensor(wrong, [[0, 3, 4]])}
            Executor(GPU).run(net.program, feed, [path], net.scope)[0].numpy()


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("wrong", [5, -1])
def test_a_length_out_of_range_has_the_message_of_the_cpu(wrong: int, on_device: bool, cupy: Any) -> None:
    net = Net()
    name = tagged(net, [4, 2], TAGS, True, False)
    on_gpu(net, name)
    length = net.program.global_block().ops[-1].inputs["Length"][0]
    array, messages = np.array([[4], [wrong]]), []
    for executor in (Executor(engine="numpy"), Executor(GPU)):
        given = cupy.asarray(array) if on_device and executor.device.name == "cuda" else array
        for _ in range(1 if executor.device.name == "cpu" else 4):  # as often as it happens
            with pytest.raises(
                OperatorError, match=rf"Length must lie between 0 and 4, found \[4, {wrong}\]"
            ) as caught:
                found = executor.run(net.program, net.feeds | {length: LoDTensor(given)}, [name], net.scope)
                found[0].numpy()
            messages.append(str(caught.value))
    assert len(set(messages)) == 1
    net.feeds[length] = np.array([[1], [4]])
    np.testing.assert_array_equal(on_gpu(net, name)[0], net.run("numpy", name)[0])


def test_nobody_waits_for_lengths_before_the_path_is_read(cupy: Any) -> None:
    net = Net()
    name = tagged(net, [4, 2], TAGS, True, False)
    executor = Executor(GPU)
    feeds = {key: LoDTensor(cupy.asarray(array)) for key, array in net.feeds.items()}
    for _ in range(3):
        executor.run(net.program, feeds, [name], net.scope)
    with EVENTS.counted() as counts:
        (found,) = executor.run(net.program, feeds, [name], net.scope)
    assert counts["synchronizations"] == counts["copies to the host"] == 0
    np.testing.assert_array_equal(found.numpy(), net.run("numpy", name)[0])


@pytest.mark.parametrize("wrong", ["labels", "levels", "tags"])
def test_what_has_no_kernel_is_left_to_the_operator(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    name = tagged(net, [3, 2], TAGS, wrong == "labels", wrong == "labels")
    if wrong == "tags":
        monkeypatch.setattr(structured, "MOST_TAGS", TAGS - 1)
    if wrong == "levels":
        x = net.program.global_block().ops[-1].inputs["Emission"][0]
        net.feeds[x] = LoDTensor(net.feeds[x].numpy(), [[0, 5], [0, 3, 5]])
    if wrong == "labels":
        label = net.program.global_block().ops[-1].inputs["Label"][0]
        net.feeds[label] = net.feeds[label].astype(np.float32)
    want: Any = None
    try:
        want = net.run("numpy", name)
    except OperatorError as error:
        with pytest.raises(OperatorError, match=str(error)[:40]):
            on_gpu(net, name)
        return
    np.testing.assert_array_equal(on_gpu(net, name)[0], want[0])
    assert net.why_not()


# ---------------------------------------------------------------- in training steps
def decoder(padded: bool, behind: bool, has_labels: bool) -> Any:
    """A program that decodes before its updates, or behind them."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        shape = [LONGEST] if padded else []
        x = layers.data("x", [*shape, 4], lod_level=1 - padded)
        y = layers.data("y", [*shape, 1], dtype="int64", lod_level=1 - padded)
        length = layers.data("length", [1], dtype="int64") if padded else None
        scores = layers.fc(x, TAGS, num_flatten_dims=1 + padded)
        attr = fluid.ParamAttr(name="crf", initializer=fluid.initializer.Uniform(-1, 1, 5))
        loss = layers.mean(layers.linear_chain_crf(scores, y, param_attr=attr, length=length))
        if behind:
            sgd().minimize(loss)
        path = layers.crf_decoding(scores, attr, label=y if has_labels else None, length=length)
        if not behind:
            sgd().minimize(loss)
    return main, startup, [loss, path]


@pytest.mark.parametrize("has_labels", [False, True])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_metrics_of_a_training_step(padded: bool, behind: bool, has_labels: bool, compiled: list[CudaStep]) -> None:
    main, startup, fetches = decoder(padded, behind, has_labels)
    executors = [(fluid.Executor(place), fluid.Scope()) for place in (fluid.CPUPlace(), GPU)]
    for _, scope in executors:
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    for step in range(3):
        feed = padded_sentences(step, [4, 0, 3]) if padded else sentences(step, [4, 1, 3])
        want, found = (
            executor.run(main, feed, fetches, scope=scope, return_numpy=False) for executor, scope in executors
        )
        np.testing.assert_allclose(found[0].numpy(), want[0].numpy(), rtol=2e-5)
        np.testing.assert_array_equal(found[1].numpy(), want[1].numpy())
        assert found[1].lod() == want[1].lod()
    assert len(compiled) == (6 if behind else 3)
    kernels = [call.name for step in compiled[-2:] for call in step.calls if hasattr(call, "name")]
    assert any(name.startswith("viterbi") for name in kernels)
