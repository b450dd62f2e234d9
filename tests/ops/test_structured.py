"""CRF and CTC: gradients, real Paddle's numbers for the corners, and what is refused."""

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import check_gradient, lod_tensor, run_op


def wave(*shape: int, step: float = 1.0, dtype: str = "float64") -> np.ndarray[Any, Any]:
    """sin(step), sin(2 * step), … in this shape."""
    return np.sin(step * np.arange(1, np.prod(shape) + 1)).reshape(shape).astype(dtype)


def column(*values: int, dtype: str = "int64") -> np.ndarray[Any, Any]:
    return np.array(values, dtype=dtype)[:, None]


TRANSITION = wave(4, 2, step=0.7)


def crf_rows() -> dict[str, Any]:
    return {
        "Emission": lod_tensor(wave(4, 2), [[3, 0, 1]]),
        "Transition": TRANSITION,
        "Label": lod_tensor(column(0, 1, 1, 0), [[3, 0, 1]]),
    }


def crf_padded() -> dict[str, Any]:
    return {
        "Emission": wave(3, 3, 2),
        "Transition": TRANSITION,
        "Label": np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]])[:, :, None],
        "Length": np.array([[3, 0, 1]]),
    }


def refused(op: str, inputs: dict[str, Any], message: str, attrs: dict[str, Any] | None = None) -> None:
    with pytest.raises(OperatorError, match=message):
        run_op(op, inputs, attrs)


def test_the_cost_of_an_empty_sequence_is_zero() -> None:
    cost = run_op("linear_chain_crf", crf_rows(), fetch=["LogLikelihood"])["LogLikelihood"].numpy()
    np.testing.assert_allclose(cost, [[2.9440428], [0], [0.7684781]], rtol=0, atol=1e-7)


def test_the_cost_is_the_same_padded() -> None:
    padded = crf_padded()
    padded["Emission"][0, :3] = wave(4, 2)[:3]
    padded["Emission"][2, :1] = wave(4, 2)[3:]
    cost = run_op("linear_chain_crf", padded, fetch=["LogLikelihood"])["LogLikelihood"].numpy()
    np.testing.assert_allclose(cost, [[2.9440428], [0], [0.7684781]], rtol=0, atol=1e-7)


@pytest.mark.parametrize("inputs", [crf_rows(), crf_padded()], ids=["rows", "padded"])
def test_linear_chain_crf_gradient(inputs: dict[str, Any]) -> None:
    check_gradient("linear_chain_crf", inputs, wrt=["Emission", "Transition"], loss=["LogLikelihood"])


def test_crf_refuses_labels_shapes_and_lengths_that_do_not_fit() -> None:
    rows, padded = crf_rows(), crf_padded()
    wrong = lod_tensor(column(0, 2, 1, 0), [[3, 0, 1]])
    refused("linear_chain_crf", rows | {"Label": wrong}, "input Label must hold tags from 0 to 1, found 0 to 2")
    negative = lod_tensor(column(0, -1, 1, 0), [[3, 0, 1]])
    refused("linear_chain_crf", rows | {"Label": negative}, "input Label must hold tags from 0 to 1, found -1 to 1")
    refused("linear_chain_crf", rows | {"Transition": wave(3, 2)}, r"input Transition must be \(tags \+ 2, tags\)")
    refused("linear_chain_crf", rows | {"Label": column(0, 1, 1, 0)}, "input Label needs a LoD")
    refused("linear_chain_crf", padded | {"Length": np.array([3, 0, 4])}, "input Length must lie between 0 and 3")
    refused("linear_chain_crf", padded | {"Length": np.array([3, 0])}, "one number per sequence of Emission")


def test_crf_refuses_scores_that_all_vanish() -> None:
    rows = crf_rows() | {"Transition": np.full((4, 2), -1e4)}
    refused("linear_chain_crf", rows, "the score of every path underflows to 0")


def test_crf_decoding_with_label_and_length_marks_nothing_beyond_the_length() -> None:
    inputs = {
        "Emission": wave(2, 3, 2),
        "Transition": TRANSITION,
        "Label": np.zeros((2, 3, 1), np.int64),
        "Length": np.array([2, 3]),
    }
    np.testing.assert_array_equal(run_op("crf_decoding", inputs)["ViterbiPath"].numpy(), [[1, 1, 0], [0, 1, 1]])


def test_crf_decoding_takes_the_lowest_of_equal_tags() -> None:
    inputs = {"Emission": lod_tensor(np.zeros((3, 2)), [[3]]), "Transition": np.zeros((4, 2))}
    got = run_op("crf_decoding", inputs)["ViterbiPath"]
    np.testing.assert_array_equal(got.numpy(), [[0], [0], [0]])
    assert got.lod() == [[0, 3]]


def test_viterbi_decode_weighs_start_and_stop_by_the_last_rows() -> None:
    emission, transition = np.zeros((1, 2, 3)), np.zeros((3, 3))
    transition[2] = [1, 0, 0]
    transition[1] = [0, 3, 0]
    got = run_op("viterbi_decode", {"Input": emission, "Transition": transition, "Length": np.array([2])})
    np.testing.assert_array_equal(got["Path"].numpy(), [[1, 1]])
    np.testing.assert_array_equal(got["Scores"].numpy(), [6])
    plain = run_op(
        "viterbi_decode",
        {"Input": emission, "Transition": transition, "Length": np.array([1])},
        {"include_bos_eos_tag": False},
    )
    np.testing.assert_array_equal(plain["Path"].numpy(), [[0]])


def ctc_rows(dtype: str = "float64") -> dict[str, Any]:
    return {
        "Logits": lod_tensor(wave(9, 3, dtype=dtype), [[2, 4, 3]]),
        "Label": lod_tensor(column(1, 1, 2, 2, 1, dtype="int32"), [[2, 2, 1]]),
    }


def ctc_padded() -> dict[str, Any]:
    return {
        "Logits": wave(4, 3, 3),
        "Label": np.array([[1, 1], [2, 2], [1, 0]], np.int32),
        "LogitsLength": np.array([2, 4, 3]),
        "LabelLength": np.array([2, 2, 0]),
    }


def test_a_label_that_does_not_fit_costs_nothing_and_has_no_gradient() -> None:
    """1 1 needs a blank between, so three steps; real Paddle's numbers for the second sequence."""
    inputs = {
        "Logits": lod_tensor(wave(5, 3, dtype="float32"), [[2, 3]]),
        "Label": lod_tensor(column(1, 1, 2, dtype="int32"), [[2, 1]]),
    }
    got = run_op("warpctc", inputs)
    np.testing.assert_allclose(got["Loss"].numpy(), [[0], [1.7123997]], rtol=0, atol=1e-6)
    gradient = [
        [-0.264788, 0.4388531, -0.174065],
        [0.0438405, 0.2399694, -0.2838098],
        [-0.1746011, 0.4392092, -0.2646081],
    ]
    np.testing.assert_allclose(got["WarpCTCGrad"].numpy()[:, 1], gradient, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(got["WarpCTCGrad"].numpy()[:, 0], 0)


@pytest.mark.parametrize("inputs", [ctc_rows(), ctc_padded()], ids=["rows", "padded"])
@pytest.mark.parametrize("blank", [0, 2])
def test_warpctc_gradient(inputs: dict[str, Any], blank: int) -> None:
    if blank == 2:
        inputs = dict(inputs)
        label = inputs["Label"]
        inputs["Label"] = label - 1 if isinstance(label, np.ndarray) else lod_tensor(label.numpy() - 1, [[2, 2, 1]])
        inputs["Label"] = np.maximum(inputs["Label"], 0) if isinstance(label, np.ndarray) else inputs["Label"]
    check_gradient("warpctc", inputs, wrt=["Logits"], attrs={"blank": blank}, loss=["Loss"])


def test_warpctc_of_labels_with_the_class_of_the_blank() -> None:
    """Losses and gradient of Paddle 1.8.5: a path may leave such a state in two steps, but not come to it in two."""
    logits = lod_tensor(np.random.RandomState(1).rand(8, 6).astype(np.float32), [[2, 6]])
    inputs = {"Logits": logits, "Label": lod_tensor(column(0, 1, 2, 0, 0, dtype="int32"), [[2, 3]])}
    got = run_op("warpctc", inputs, {"blank": 0})
    np.testing.assert_allclose(got["Loss"].numpy(), [[3.5716994], [9.816719]], rtol=1e-6)
    gradient = got["WarpCTCGrad"].numpy()[0]
    np.testing.assert_allclose(
        gradient[:, :4], [[0.1855, 0.2512, 0.1223, 0.1654], [-1.297, 0.2435, -2.6599, 0.1978]], atol=6e-5
    )


def test_warpctc_of_improbable_paths_stays_finite() -> None:
    logits = np.zeros((8, 3), np.float32)
    logits[:, 0] = 200
    inputs = {
        "Logits": lod_tensor(logits, [[8]]),
        "Label": lod_tensor(column(1, 2, 1, 2, 1, 2, 1, 2, dtype="int32"), [[8]]),
    }
    loss = run_op("warpctc", inputs, fetch=["Loss"])["Loss"].numpy()
    floor = -np.log(np.float64(np.finfo(np.float32).tiny))
    np.testing.assert_allclose(loss, [[8 * floor]], rtol=1e-6)


def test_warpctc_refuses_what_does_not_fit() -> None:
    rows, padded = ctc_rows(), ctc_padded()
    refused("warpctc", rows, "attribute blank must lie below the 3 classes of Logits, found 3", {"blank": 3})
    classes = lod_tensor(column(1, 1, 2, 2, 3, dtype="int32"), [[2, 2, 1]])
    refused("warpctc", rows | {"Label": classes}, "input Label must hold classes from 0 to 2, found 1 to 3")
    fewer = lod_tensor(column(1, 2, dtype="int32"), [[1, 1]])
    refused("warpctc", rows | {"Label": fewer}, "must have equally many sequences, found 3 and 2")
    refused("warpctc", rows | {"Logits": wave(9, 3)}, "input Logits needs a LoD, or pass the inputs LogitsLength")
    long = padded | {"LogitsLength": np.array([2, 5, 3])}
    refused("warpctc", long, "input LogitsLength must be 3 numbers from 0 to 4, found")


def test_ctc_align_of_nothing_but_blanks_is_minus_one() -> None:
    got = run_op("ctc_align", {"Input": lod_tensor(column(0, 0, 0), [[2, 1]])}, fetch=["Output"])["Output"]
    np.testing.assert_array_equal(got.numpy(), [[-1]])
    assert got.numpy().dtype == np.int64 and got.lod() == [[0, 0, 0]]


def test_ctc_align_keeps_equal_tokens_of_neighboring_sequences() -> None:
    got = run_op("ctc_align", {"Input": lod_tensor(column(1, 1, 1, 0, 1), [[2, 3]])}, fetch=["Output"])["Output"]
    np.testing.assert_array_equal(got.numpy(), [[1], [1], [1]])
    assert got.lod() == [[0, 1, 3]]


def test_ctc_align_padded() -> None:
    inputs = {"Input": np.array([[1, 1, 0, 1], [2, 2, 2, 2]], np.int32), "InputLength": np.array([[4], [0]], np.int32)}
    got = run_op("ctc_align", inputs, {"padding_value": 9})
    np.testing.assert_array_equal(got["Output"].numpy(), [[1, 1, 9, 9], [9, 9, 9, 9]])
    np.testing.assert_array_equal(got["OutputLength"].numpy(), [[2], [0]])


def test_ctc_align_refuses_padded_input_without_lengths() -> None:
    refused("ctc_align", {"Input": np.zeros((2, 4), np.int32)}, "with an input InputLength of N numbers")
    long = {"Input": np.zeros((2, 4), np.int32), "InputLength": np.array([[5], [1]], np.int32)}
    refused("ctc_align", long, "input InputLength must lie between 0 and 4")
