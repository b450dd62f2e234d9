"""Losses over all paths in training steps on a GPU: a block for each sequence. The numbers are the CPU's, and those of slopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import OperatorError
from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda.training import structured
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import LoDTensor
from tests.gpu.test_cuda_recurrent_steps import both, sgd
from tests.gpu.test_training_steps import Job, same

TAGS = 5


@pytest.fixture(autouse=True)
def _standin(cupy: Any) -> None:
    """On the stand-in."""


def sequences(array: Any, lengths: list[int]) -> Any:
    return fluid.create_lod_tensor(array, [lengths], fluid.CPUPlace())


# ---------------------------------------------------------------- conditional random fields
def tagger(tags: int = TAGS, scale: float = 1.0) -> Any:
    def build() -> Any:
        x, y = layers.data("x", [4], lod_level=1), layers.data("y", [1], dtype="int64", lod_level=1)
        scores = layers.scale(layers.fc(x, tags), scale)
        attr = fluid.ParamAttr(name="crf", initializer=fluid.initializer.Uniform(-1, 1, 5))
        return layers.mean(layers.linear_chain_crf(scores, y, param_attr=attr))

    return build


def sentences(seed: int, lengths: list[int], tags: int = TAGS) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    rows = random.standard_normal((sum(lengths), 4)).astype(np.float32)
    return {"x": sequences(rows, lengths), "y": sequences(random.integers(0, tags, (sum(lengths), 1)), lengths)}


@pytest.mark.parametrize("lengths", [[3, 1, 4, 4], [1], [2, 0, 3], [23, 1]])
def test_a_conditional_random_field_is_part_of_the_step(lengths: list[int], compiled: list[CudaStep]) -> None:
    job = both(tagger(), [sentences(step, lengths) for step in range(3)])
    assert len(compiled) == 3 and job.region().region.parts is None


@pytest.mark.parametrize("tags", [2, 33, 300])
def test_tags_beyond_a_warp_and_beyond_a_block(tags: int, compiled: list[CudaStep]) -> None:
    both(tagger(tags), [sentences(step, [3, 2], tags) for step in range(2)])
    assert len(compiled) == 2


def test_scores_far_apart_do_not_overflow(compiled: list[CudaStep]) -> None:
    both(tagger(scale=20.0), [sentences(0, [4, 2])])
    assert compiled


def test_gradients_are_slopes(compiled: list[CudaStep]) -> None:
    """Central differences of the loss, which this engine computes, too."""
    job = Job(tagger(), lambda: fluid.optimizer.SGD(0.0))
    feed, step = sentences(1, [4, 1, 3]), 2e-2
    grads = dict(zip(("crf", "fc_0.w_0"), job.step(feed, "crf@GRAD", "fc_0.w_0@GRAD")[1:], strict=True))
    for name, grad in grads.items():
        start = job.values()[name]
        for place in list(np.ndindex(*start.shape))[::4]:
            losses = []
            for change in (step, -step):
                changed = start.copy()
                changed[place] += change
                job.scope.find_var(name).get_tensor().set(changed, fluid.CPUPlace())
                losses.append(job.step(feed)[0].item())
            job.scope.find_var(name).get_tensor().set(start, fluid.CPUPlace())
            assert abs((losses[0] - losses[1]) / (2 * step) - grad[place]) < 1e-3, (name, place)
    assert compiled


def test_scores_of_a_field_that_are_fetched_are_those_of_the_cpu(compiled: list[CudaStep]) -> None:
    jobs = [Job(tagger(), lambda: fluid.optimizer.SGD(0.1), place) for place in (fluid.CPUPlace(), None)]
    op = next(op for op in jobs[0].main.global_block().ops if op.type == "linear_chain_crf")
    names = [op.outputs[slot][0] for slot in ("Alpha", "EmissionExps", "TransitionExps", "LogLikelihood")]
    want, found = (job.step(sentences(0, [3, 1, 2]), *names)[1:] for job in jobs)
    for a, b in zip(want, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6)
    assert compiled


@pytest.mark.parametrize("tag", [TAGS, -1])
def test_a_tag_out_of_range_has_the_message_of_the_cpu_and_changes_nothing(tag: int) -> None:
    jobs = [Job(tagger(), lambda: fluid.optimizer.SGD(0.1), place) for place in (fluid.CPUPlace(), None)]
    feed = sentences(0, [3, 2])
    feed["y"] = sequences(np.array([[0], [1], [tag], [0], [1]]), [3, 2])
    before, messages = jobs[1].values(), []
    for job in jobs:
        with pytest.raises(OperatorError, match="input Label must hold tags from 0 to 4") as caught:
            job.step(feed)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    for name, value in before.items():
        np.testing.assert_array_equal(jobs[1].values()[name], value, err_msg=name)


# ---------------------------------------------------------------- the same of padded sequences
LONGEST = 4


def padded_tagger(tags: int = TAGS) -> Any:
    def build() -> Any:
        x, y = layers.data("x", [LONGEST, 4]), layers.data("y", [LONGEST, 1], dtype="int64")
        length = layers.data("length", [1], dtype="int64")
        attr = fluid.ParamAttr(name="crf", initializer=fluid.initializer.Uniform(-1, 1, 5))
        scores = layers.fc(x, tags, num_flatten_dims=2)
        return layers.mean(layers.linear_chain_crf(scores, y, param_attr=attr, length=length))

    return build


def padded_sentences(seed: int, lengths: list[int], tags: int = TAGS, beyond: int = 0) -> dict[str, Any]:
    random, count = np.random.default_rng(seed), len(lengths)
    labels = random.integers(0, tags, (count, LONGEST, 1))
    labels[np.arange(LONGEST) >= np.array(lengths)[:, None]] = beyond
    rows = random.standard_normal((count, LONGEST, 4)).astype(np.float32)
    return {"x": rows, "y": labels, "length": np.array(lengths)[:, None]}


@pytest.mark.parametrize("lengths", [[4, 1, 3], [2], [0, 4, 0], [4, 4]])
def test_padded_sequences_are_part_of_the_step(lengths: list[int], compiled: list[CudaStep]) -> None:
    job = both(padded_tagger(), [padded_sentences(step, lengths) for step in range(3)])
    assert len(compiled) == 3 and job.region().region.parts is None


def test_lengths_of_padded_sequences_need_no_graph_of_their_own(compiled: list[CudaStep]) -> None:
    both(padded_tagger(), [padded_sentences(step, [4, step]) for step in range(4)])
    assert len(compiled) == 4 and len({id(step) for step in compiled}) == 1


@pytest.mark.parametrize("tags", [2, 33, 300])
def test_tags_of_padded_sequences_beyond_a_warp_and_beyond_a_block(tags: int, compiled: list[CudaStep]) -> None:
    both(padded_tagger(tags), [padded_sentences(0, [3, 0, 4], tags)])
    assert compiled


@pytest.mark.parametrize("on_gpu", [False, True])
def test_labels_beyond_a_sequence_may_be_anything(on_gpu: bool, cupy: Any, compiled: list[CudaStep]) -> None:
    want, job = (Job(padded_tagger(), sgd, place) for place in (fluid.CPUPlace(), None))
    for step in range(2):
        feed = padded_sentences(step, [2, 4, 0], beyond=-1)
        given = {name: LoDTensor(cupy.asarray(array)) for name, array in feed.items()} if on_gpu else feed
        np.testing.assert_allclose(job.step(given)[0], want.step(feed)[0], rtol=2e-5)
    assert len(compiled) == 2
    same(want, job, 1e-4)


def test_scores_of_padded_sequences_that_are_fetched_are_those_of_the_cpu(compiled: list[CudaStep]) -> None:
    jobs = [Job(padded_tagger(), sgd, place) for place in (fluid.CPUPlace(), None)]
    op = next(op for op in jobs[0].main.global_block().ops if op.type == "linear_chain_crf")
    names = [op.outputs[slot][0] for slot in ("Alpha", "EmissionExps", "TransitionExps", "LogLikelihood")]
    names.append(f"{op.inputs['Emission'][0]}@GRAD")
    want, found = (job.step(padded_sentences(0, [3, 0, 4]), *names)[1:] for job in jobs)
    for a, b in zip(want, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6)
    assert compiled


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("y", TAGS, "input Label must hold tags from 0 to 4, found"),
        ("y", -1, "input Label must hold tags from 0 to 4, found"),
        ("length", 5, r"input Length must lie between 0 and 4, found \[5, 4\]"),
        ("length", -2, r"input Length must lie between 0 and 4, found \[-2, 4\]"),
    ],
)
def test_what_does_not_fit_has_the_message_of_the_cpu(
    name: str, wrong: int, message: str, on_gpu: bool, cupy: Any
) -> None:
    jobs, feed = [Job(padded_tagger(), sgd, place) for place in (fluid.CPUPlace(), None)], padded_sentences(0, [3, 4])
    feed[name].reshape(-1)[0] = wrong
    before, messages = jobs[1].values(), []
    for job in jobs:
        on_device = on_gpu and job is jobs[1]
        given = {key: LoDTensor(cupy.asarray(array)) for key, array in feed.items()} if on_device else feed
        with pytest.raises(OperatorError, match=message) as caught:
            job.step(given)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    for name, value in before.items():
        np.testing.assert_array_equal(jobs[1].values()[name], value, err_msg=name)


def test_more_pairs_than_there_is_memory_for_are_left_to_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structured, "MOST_PAIRS", 3 * (TAGS + 2) * TAGS - 1)
    job = both(tagger(), [sentences(0, [2, 2, 2])])
    assert "more pairs of tags" in str(job.region().region.reasons)


# ---------------------------------------------------------------- connectionist temporal classification
CLASSES = 6


def reader(blank: int = 0, scale: float = 1.0, norm_by_times: bool = False) -> Any:
    def build() -> Any:
        x, y = layers.data("x", [4], lod_level=1), layers.data("y", [1], dtype="int32", lod_level=1)
        scores = layers.scale(layers.fc(x, CLASSES), scale)
        return layers.mean(layers.warpctc(scores, y, blank=blank, norm_by_times=norm_by_times))

    return build


def spoken(seed: int, lengths: list[int], of_labels: list[int], labels: Any = None) -> Any:
    random = np.random.default_rng(seed)
    rows = random.standard_normal((sum(lengths), 4)).astype(np.float32)
    given = random.integers(1, CLASSES - 1, (sum(of_labels), 1)) if labels is None else np.reshape(labels, (-1, 1))
    return {"x": sequences(rows, lengths), "y": sequences(given.astype(np.int32), of_labels)}


SPOKEN = {
    "several": ([5, 4, 7], [2, 1, 3]),
    "without a label": ([5, 4], [2, 0]),
    "labels that do not fit": ([2, 6], [4, 2]),
    "no rows": ([4, 0], [2, 1]),
    "states beyond a warp": ([45], [20]),
}


@pytest.mark.parametrize("name", SPOKEN)
@pytest.mark.parametrize("options", [{}, {"blank": CLASSES - 1}, {"norm_by_times": True}, {"scale": 30.0}])
def test_labels_without_places_are_part_of_the_step(
    options: dict[str, Any], name: str, compiled: list[CudaStep]
) -> None:
    job = both(reader(**options), [spoken(step, *SPOKEN[name]) for step in range(2)], rtol=1e-4)
    assert len(compiled) == 2 and job.region().region.parts is None


def test_labels_that_repeat(compiled: list[CudaStep]) -> None:
    both(reader(), [spoken(0, [7, 5], [3, 3], [2, 2, 2, 1, 2, 1])], rtol=1e-4)
    assert len(compiled) == 1


def test_a_label_that_is_the_blank_costs_what_it_costs_on_the_cpu(compiled: list[CudaStep]) -> None:
    both(reader(), [spoken(0, [7, 5], [3, 2], [2, 0, 1, 0, 3])], rtol=1e-4)
    assert compiled


def test_a_class_that_does_not_exist_has_the_message_of_the_cpu() -> None:
    jobs = [Job(reader(), lambda: fluid.optimizer.SGD(0.1), place) for place in (fluid.CPUPlace(), None)]
    messages = []
    for job in jobs:
        with pytest.raises(OperatorError, match="input Label must hold classes from 0 to 5") as caught:
            job.step(spoken(0, [5], [2], [1, CLASSES]))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


# ---------------------------------------------------------------- the same of padded sequences
def padded_reader(blank: int = 0, norm_by_times: bool = False, type: str = "int32") -> Any:
    def build() -> Any:
        x = layers.data("x", [-1, -1, 4], append_batch_size=False)
        y = layers.data("y", [-1, -1], dtype=type, append_batch_size=False)
        lengths = [layers.data(name, [-1], dtype="int64", append_batch_size=False) for name in ("n", "m")]
        scores = layers.fc(x, CLASSES, num_flatten_dims=2)
        return layers.mean(layers.warpctc(scores, y, blank, norm_by_times, *lengths))

    return build


def padded_speech(seed: int, lengths: list[int], of_labels: list[int], beyond: int = 0) -> dict[str, Any]:
    random, count = np.random.default_rng(seed), len(lengths)
    labels = random.integers(1, CLASSES - 1, (count, max(*of_labels, 1)))
    labels[np.arange(labels.shape[1]) >= np.array(of_labels)[:, None]] = beyond
    rows = random.standard_normal((max(lengths) + 1, count, 4)).astype(np.float32)
    return {"x": rows, "y": labels.astype(np.int32), "n": np.array(lengths), "m": np.array(of_labels)}


PADDED_SPEECH = SPOKEN | {"states beyond a warp": ([45, 3], [20, 1]), "rows and no labels": ([3, 2], [0, 0])}


@pytest.mark.parametrize("name", PADDED_SPEECH)
@pytest.mark.parametrize("options", [{}, {"blank": CLASSES - 1}, {"norm_by_times": True}])
def test_padded_labels_without_places_are_part_of_the_step(
    options: dict[str, Any], name: str, compiled: list[CudaStep]
) -> None:
    feeds = [padded_speech(step, *PADDED_SPEECH[name], beyond=-1) for step in range(2)]
    job = both(padded_reader(**options), feeds, rtol=1e-4)
    assert len(compiled) == 2 and job.region().region.parts is None


def test_the_gradient_within_warpctc_can_be_fetched(compiled: list[CudaStep]) -> None:
    jobs = [Job(padded_reader(), sgd, place) for place in (fluid.CPUPlace(), None)]
    op = next(op for op in jobs[0].main.global_block().ops if op.type == "warpctc")
    feed = padded_speech(0, [5, 2], [2, 1])
    want, found = (job.step(feed, op.outputs["WarpCTCGrad"][0])[1] for job in jobs)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert compiled


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("y", CLASSES, "input Label must hold classes from 0 to 5, found"),
        ("n", 7, r"input LogitsLength must be 2 numbers from 0 to 6, found \[7, 4\]"),
        ("m", -1, r"input LabelLength must be 2 numbers from 0 to 2, found \[-1, 1\]"),
    ],
)
def test_padded_labels_that_do_not_fit_have_the_message_of_the_cpu(name: str, wrong: int, message: str) -> None:
    feed, messages = padded_speech(0, [5, 4], [2, 1]), []
    feed[name].reshape(-1)[0] = wrong
    for place in (fluid.CPUPlace(), None):
        with pytest.raises(OperatorError, match=message) as caught:
            Job(padded_reader(), sgd, place).step(feed)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("half", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["crf", "padded crf", "ctc", "padded ctc"])
def test_losses_over_paths_of_halves(
    name: str, half: str, compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    build, feed = {
        "crf": (tagger(), sentences(0, [3, 1, 4])),
        "padded crf": (padded_tagger(), padded_sentences(0, [3, 0, 4])),
        "ctc": (reader(), spoken(0, [9, 5], [3, 2])),
        "padded ctc": (padded_reader(), padded_speech(0, [9, 5], [3, 2])),
    }[name]
    want, job = Job(build, sgd, fluid.CPUPlace()), Job(build, sgd)
    for _ in range(3):
        np.testing.assert_allclose(job.step(feed)[0], want.step(feed)[0], rtol=1e-2)
    assert len(compiled) == 3
