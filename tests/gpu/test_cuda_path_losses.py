"""Losses over all paths of sequences in regions of inference on a GPU, as in a program that is tested: the numbers of the CPU."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.runtime import Executor
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_regions import calls, check
from tests.runtime.native.checking import Net

pytestmark = pytest.mark.usefixtures("cupy")
GPU, TAGS = CUDAPlace(0), 5
FORMS = pytest.mark.parametrize("padded", [False, True])


class Case:
    """A loss of sequences, and the names of what it reads that may be out of range."""

    def __init__(self, type: str, padded: bool, lengths: list[int], of_labels: list[int], beyond: int = 0) -> None:
        self.net, self.padded, self.is_crf = Net(), padded, type == "linear_chain_crf"
        self.rows, self.of_labels = lengths, lengths if self.is_crf else of_labels
        longest, most = max(lengths), max(*self.of_labels, 1)
        scores = self.net.random.standard_normal((len(lengths), longest, TAGS)).astype(np.float32)
        labels = self.net.random.integers(0 if self.is_crf else 1, TAGS, (len(lengths), most))
        inside = [
            np.arange(size) < np.array(own)[:, None] for size, own in ((longest, lengths), (most, self.of_labels))
        ]
        labels[~inside[1]] = beyond
        if padded and self.is_crf:
            given = {"Emission": scores, "Label": labels[..., None], "Length": np.array(lengths)[:, None]}
        elif padded:
            counts = {"LogitsLength": np.array(lengths), "LabelLength": np.array(of_labels)}
            given = {"Logits": np.ascontiguousarray(scores.swapaxes(0, 1)), "Label": labels, **counts}
        else:
            rows = scores[inside[0]]
            given = {"Emission" if self.is_crf else "Logits": rows, "Label": labels[inside[1]][:, None]}
        self.inputs = {slot: self.net.data(of=array) for slot, array in given.items()}
        if not padded:
            for (slot, array), own in zip(given.items(), (lengths, self.of_labels), strict=True):
                self.net.feeds[self.inputs[slot]] = LoDTensor(array, [list(accumulate(own, initial=0))])
        if self.is_crf:
            self.inputs["Transition"] = self.net.parameter(TAGS + 2, TAGS)
            more = ("Alpha", "EmissionExps", "TransitionExps")
            self.loss = self.net.op(type, "LogLikelihood", self.inputs, *more)
        else:
            self.loss = self.net.op(type, "Loss", self.inputs, "WarpCTCGrad", blank=0, norm_by_times=False)

    def with_number(self, slot: str, number: int) -> dict[str, Any]:
        """The feed with another first number in a slot."""
        name = self.inputs[slot]
        value = self.net.feeds[name]
        array = np.array(value.numpy() if isinstance(value, LoDTensor) else value)
        array.reshape(-1)[0] = number
        return self.net.feeds | {name: LoDTensor(array, value.lod()) if isinstance(value, LoDTensor) else array}

    def on_device(self, cupy: Any, feeds: dict[str, Any]) -> dict[str, Any]:
        """A feed whose arrays are on the GPU."""
        found = {}
        for name, value in feeds.items():
            array, lod = (value.numpy(), value.lod()) if isinstance(value, LoDTensor) else (value, [])
            found[name] = LoDTensor(cupy.asarray(array), lod)
        return found

    def message(self, executor: Executor, feeds: dict[str, Any]) -> str:
        """Of the error of a run."""
        with pytest.raises(OperatorError) as caught:
            executor.run(self.net.program, feeds, [self.loss], self.net.scope)[0].numpy()
        return str(caught.value)


@FORMS
@pytest.mark.parametrize("lengths", [[3, 1, 4], [2], [3, 0, 2]])
def test_conditional_random_fields(lengths: list[int], padded: bool) -> None:
    case = Case("linear_chain_crf", padded, lengths, [])
    assert check(case.net, case.loss, rtol=2e-5) == ["clear", "crf", "each"]


@FORMS
@pytest.mark.parametrize(
    ("lengths", "of_labels"), [([5, 4, 7], [2, 1, 3]), ([5, 4], [2, 0]), ([2, 6], [4, 2]), ([4, 0], [2, 1])]
)
def test_labels_without_places(lengths: list[int], of_labels: list[int], padded: bool) -> None:
    case = Case("warpctc", padded, lengths, of_labels)
    assert check(case.net, case.loss, rtol=2e-5) == ["clear", "softmax", "ctc", "each"]


WRONG = [
    ("linear_chain_crf", "Label", TAGS, "input Label must hold tags from 0 to 4"),
    ("linear_chain_crf", "Label", -1, "input Label must hold tags from 0 to 4"),
    ("linear_chain_crf", "Length", 5, "input Length must lie between 0 and 4"),
    ("warpctc", "Label", TAGS, "input Label must hold classes from 0 to 4"),
    ("warpctc", "LogitsLength", -1, "input LogitsLength must be 3 numbers from 0 to 4"),
    ("warpctc", "LabelLength", 3, "input LabelLength must be 3 numbers from 0 to 2"),
]


@pytest.mark.parametrize("on_device", [False, True])
@FORMS
@pytest.mark.parametrize(("type", "slot", "number", "message"), WRONG)
def test_what_is_out_of_range_has_the_message_of_the_cpu(
    type: str, slot: str, number: int, message: str, padded: bool, on_device: bool, cupy: Any
) -> None:
    if "Length" in slot and not padded:
        slot = "Label"
        number, message = (TAGS, "input Label must hold")
    case, executor = Case(type, padded, [3, 2, 4], [2, 1, 2]), Executor(GPU)
    feeds = case.with_number(slot, number)
    want = case.message(Executor(engine="numpy"), feeds)
    assert message in want
    for _ in range(2):
        executor.run(case.net.program, case.net.feeds, [case.loss], case.net.scope)
        assert case.message(executor, case.on_device(cupy, feeds) if on_device else feeds) == want


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("type", ["linear_chain_crf", "warpctc"])
def test_labels_beyond_a_sequence_may_be_anything(type: str, on_device: bool, cupy: Any) -> None:
    case, executor = Case(type, True, [3, 2, 4], [2, 1, 2], beyond=-1), Executor(GPU)
    (want,) = case.net.run("numpy", case.loss)
    feeds = case.on_device(cupy, case.net.feeds) if on_device else case.net.feeds
    for _ in range(3):
        with EVENTS.counted() as counts:
            (found,) = executor.run(case.net.program, feeds, [case.loss], case.net.scope)
        np.testing.assert_allclose(found.numpy(), want, rtol=2e-5)
    assert counts["synchronizations"] == 0
    case.net.plan = executor.plan(case.net.program, [case.loss]).block(0)
    assert "clear" in calls(case.net)


def test_further_results_that_are_read_are_left_to_the_operator() -> None:
    case = Case("linear_chain_crf", False, [3, 1], [])
    alpha = case.net.program.global_block().ops[-1].outputs["Alpha"][0]
    want = case.net.run("numpy", case.loss, alpha)
    found = Executor(GPU).run(case.net.program, case.net.feeds, [case.loss, alpha], case.net.scope)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-5)
