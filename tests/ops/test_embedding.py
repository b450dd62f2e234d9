"""Tables, SelectedRows, sampled losses, hashing and trees: what the golden cases do not say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError, PolicyError
from fluidtool.tensor import SelectedRows
from tests.support.operators import OneOp, check_gradient, dense, lod_tensor, run_op

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(7, 3))
IDS = np.array([[1], [6], [1], [3]])
INPUT, LABEL = RNG.normal(size=(4, 3)), np.array([[1], [0], [6], [2]])
BIAS = RNG.normal(size=(7, 1))
PATHS = {
    "PathTable": np.array([[0, 1, 2], [0, 1, -1], [0, 3, -1], [0, -1, -1]]),
    "PathCode": np.array([[1, 0, 1], [0, 1, -1], [1, 1, -1], [0, -1, -1]]),
}
ROWS = SelectedRows([3, 1, 3, 0], 9, np.array([[1], [2], [3], [4]], np.float32))

GRADIENTS: list[tuple[str, dict[str, Any], list[str], dict[str, Any], dict[str, int] | None, list[str] | None]] = [
    ("lookup_table", {"W": TABLE, "Ids": IDS}, ["W"], {"padding_idx": 6}, None, None),
    ("lookup_table", {"W": TABLE, "Ids": IDS}, ["W"], {"is_sparse": True}, None, None),
    ("lookup_table_v2", {"W": TABLE, "Ids": IDS}, ["W"], {"is_sparse": True}, None, None),
    (
        "nce",
        {"Input": INPUT, "Label": LABEL, "Weight": TABLE, "Bias": BIAS, "SampleWeight": RNG.random((4, 1))},
        ["Input", "Weight", "Bias"],
        {"num_total_classes": 7, "num_neg_samples": 2, "sampler": 1, "custom_neg_classes": [1, 5], "is_sparse": True},
        None,
        ["Cost"],
    ),
    (
        "hierarchical_sigmoid",
        {"X": INPUT, "W": TABLE, "Label": LABEL, "Bias": BIAS},
        ["X", "W", "Bias"],
        {"num_classes": 7},
        {"W_Out": 0},
        ["Out"],
    ),
    (
        "hierarchical_sigmoid",
        {"X": INPUT, "W": TABLE, "Label": LABEL, **PATHS},
        ["X", "W"],
        {"num_classes": 7, "is_sparse": True},
        {"W_Out": 0},
        ["Out"],
    ),
    (
        "sample_logits",
        {
            "Logits": RNG.normal(size=(2, 5)),
            "Labels": np.array([[1], [2]]),
            "CustomizedSamples": np.array([[1, 0, 3], [2, 0, 3]]),
            "CustomizedProbabilities": np.full((2, 3), 0.3),
        },
        ["Logits"],
        {"use_customized_samples": True, "num_samples": 2},
        None,
        ["SampledLogits"],
    ),
    (
        "filter_by_instag",
        {"Ins": INPUT, "Ins_tag": lod_tensor(np.array([1, 2, 1, 3, 4]), [[1, 2, 1, 1]]), "Filter_tag": np.array([1])},
        ["Ins"],
        {"is_lod": False},
        None,
        None,
    ),
    (
        "rank_attention",
        {
            "X": INPUT,
            "RankOffset": np.array([[1, 1, 0, 2, 2], [2, 1, 0, 0, 0], [0, 0, 0, 0, 0], [2, 2, 3, 1, 1]], np.int32),
            "RankParam": RNG.normal(size=(12, 2)),
        },
        ["RankParam"],
        {"MaxRank": 2},
        None,
        None,
    ),
]


@pytest.mark.parametrize(("op", "inputs", "wrt", "attrs", "outputs", "loss"), GRADIENTS)
def test_gradient_agrees_with_central_differences(
    op: str,
    inputs: dict[str, Any],
    wrt: list[str],
    attrs: dict[str, Any],
    outputs: dict[str, int] | None,
    loss: list[str] | None,
) -> None:
    check_gradient(op, inputs, wrt, attrs, outputs, loss, rtol=1e-4, atol=1e-6)


def test_a_sparse_gradient_keeps_every_id_in_order_even_padding() -> None:
    grad = np.arange(4, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)
    attrs = {"is_sparse": True, "padding_idx": 1}
    found = run_op("lookup_table_grad", {"W": TABLE.astype(np.float32), "Ids": IDS, "Out@GRAD": grad}, attrs)["W@GRAD"]
    assert (found.rows(), found.height()) == ([1, 6, 1, 3], 7)
    np.testing.assert_array_equal(found.value, grad)


def test_a_table_of_selected_rows_is_looked_up_by_row_number() -> None:
    table = SelectedRows([6, 1, 3], 7, np.array([[6.0], [1.0], [3.0]]))
    out = run_op("lookup_table", {"W": table, "Ids": lod_tensor(IDS, [[1, 3]])}, {"padding_idx": 3})["Out"]
    np.testing.assert_array_equal(out.numpy(), [[1], [6], [1], [0]])
    assert out.recursive_sequence_lengths() == [[1, 3]]


def test_merge_selected_rows_sorts_only_what_it_merges() -> None:
    merged = run_op("merge_selected_rows", {"X": ROWS})["Out"]
    assert (merged.rows(), merged.value.tolist()) == ([0, 1, 3], [[4], [2], [4]])
    unique = SelectedRows([3, 1], 9, np.ones((2, 1)))
    assert run_op("merge_selected_rows", {"X": unique})["Out"].rows() == [3, 1]


def test_split_ids_of_selected_rows_takes_the_last_value_of_a_row() -> None:
    even, odd = run_op("split_ids", {"Ids": [ROWS]}, outputs={"Out": 2})["Out"]
    assert (even.rows(), even.value.tolist()) == ([0], [[4]])
    assert (odd.rows(), odd.value.tolist()) == ([3, 1, 3], [[3], [2], [3]])


def test_split_selected_rows_numbers_rows_from_their_range() -> None:
    parts = run_op("split_selected_rows", {"X": ROWS}, {"height_sections": [2, 7]}, {"Out": 2})["Out"]
    assert [(part.rows(), part.height()) for part in parts] == [([1, 0], 2), ([1, 1], 7)]


def test_merge_ids_undoes_split_ids() -> None:
    inputs = {"Ids": [np.array([[5], [1], [5]])], "Rows": [np.array([[1]]), np.array([[5]])]}
    out = run_op("merge_ids", inputs | {"X": [np.array([[10.0]]), np.array([[50.0]])]})["Out"]
    assert out.numpy().tolist() == [[50], [10], [50]]


def test_a_sparse_table_grows_by_unknown_ids_and_remembers_them() -> None:
    table = SelectedRows([6], 9, np.array([[6], [7], [8]], np.float32))
    one = OneOp("lookup_sparse_table", {"W": table, "Ids": np.array([[2], [6], [4], [2]])})
    out, grown = one.run(fetch=["Out0@out", "W0"])
    assert out.numpy().tolist() == [[7], [6], [8], [7]]
    assert grown.rows() == [6, 2, 4]


def test_a_sparse_table_gives_zeros_for_unknown_ids_when_testing() -> None:
    table = SelectedRows([6], 9, np.array([[6]], np.float32))
    out = run_op("lookup_sparse_table", {"W": table, "Ids": np.array([[2], [6]])}, {"is_test": True})["Out"]
    assert out.numpy().tolist() == [[0], [6]]


def test_hash_is_xxh64() -> None:
    one = run_op("hash", {"X": np.array([[1], [2]])}, {"num_hash": 2, "mod_by": 10000})["Out"].numpy()
    assert one.tolist() == [[[1269], [9609]], [[3360], [2419]]]
    five = np.array([[1, 2, 3, 4, 5], [9, 8, 7, 6, 5]], np.int32)
    assert run_op("hash", {"X": five}, {"num_hash": 2, "mod_by": 10000})["Out"].numpy().tolist() == [
        [[1354], [4409]],
        [[2761], [6949]],
    ]


PYRAMID = {"num_emb": 4, "space_len": 10, "pyramid_layer": 3, "rand_len": 2, "use_filter": False, "lr": 0.5}
PYRAMID_X = lod_tensor(np.array([[1], [2], [3], [7]], np.int32), [[3, 1]])
PYRAMID_W = np.arange(12, dtype=np.float32).reshape(12, 1)
NO_LIST = np.zeros((1, 1), np.float32)


def test_pyramid_hash_embeds_runs_of_terms() -> None:
    inputs = {"X": PYRAMID_X, "W": PYRAMID_W, "WhiteList": NO_LIST, "BlackList": NO_LIST}
    out = run_op("pyramid_hash", inputs, PYRAMID | {"is_training": 1})
    assert out["Out"].numpy().tolist() == [[3, 4, 1, 2], [4, 5, 5, 6], [6, 7, 8, 9], [0, 0, 0, 0]]
    assert out["Out"].recursive_sequence_lengths() == [[3, 1]]
    assert out["DropPos"].lod() == [[0, 3, 3]]


def test_pyramid_hash_grad_updates_the_table_itself() -> None:
    gradient = np.array([[1, 2, 3, 4], [0, 0, 0, 0], [2, 2, 2, 2], [9, 9, 9, 9]], np.float32)
    positions = lod_tensor(np.array([[1], [1], [1]], np.int32), [[3, 0]])
    inputs = {"X": PYRAMID_X, "W": PYRAMID_W, "DropPos": positions, "Out@GRAD": gradient}
    inputs["X_Temp_Out"] = np.array([[1], [2], [3], [7]], np.float32)
    table = OneOp("pyramid_hash_grad", inputs, PYRAMID).run(fetch=["W0"])[0].numpy()
    # lr * the gradients of the three runs, at the places that test_pyramid_hash_embeds_runs_of_terms shows
    expected = PYRAMID_W.copy()
    for places, row in (([3, 4, 1, 2], gradient[0]), ([6, 7, 8, 9], gradient[2])):
        expected[places, 0] -= 0.5 * row
    np.testing.assert_allclose(table, expected)


def test_hierarchical_sigmoid_of_a_complete_tree() -> None:
    inputs = {
        "X": np.array([[1, 2], [3, 4]], np.float32),
        "W": np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32),
        "Label": np.array([[0], [3]]),
        "Bias": np.array([[0.1], [0.2], [0.3]], np.float32),
    }
    for label in (inputs["Label"], inputs["Label"][:, 0]):  # a column, or one dimension
        out = run_op("hierarchical_sigmoid", inputs | {"Label": label}, {"num_classes": 4}, {"W_Out": 0})["Out"].numpy()
        np.testing.assert_allclose(out, [[2.5784964561462402], [0.2781662940979004]], rtol=1e-5)


@pytest.mark.parametrize("sampler", [0, 1, 2])
def test_nce_draws_by_its_sampler_and_repeats_with_its_seed(sampler: int) -> None:
    classes, rows = 6, 4000
    inputs: dict[str, Any] = {
        "Input": np.ones((rows, 1)),
        "Label": np.zeros((rows, 1), int),
        "Weight": np.ones((classes, 1)),
    }
    expected = np.full(classes, 1 / classes)
    if sampler == 1:
        expected = np.log((np.arange(classes) + 2) / (np.arange(classes) + 1)) / np.log(classes)
        expected[-1] = 0  # class 5 of the range [0, 5] is drawn as class 0
        expected[0] += 1 - expected.sum()
    if sampler == 2:
        inputs |= {
            "CustomDistProbs": np.array([0.25, 0.25, 0.125, 0.125, 0.125, 0.125], np.float32),
            "CustomDistAlias": np.array([0, 1, 0, 0, 1, 1], np.int32),
            "CustomDistAliasProbs": np.array([1, 1, 0.75, 0.75, 0.75, 0.75], np.float32),
        }
        expected = inputs["CustomDistProbs"]
    attrs = {"num_total_classes": classes, "num_neg_samples": 5, "sampler": sampler, "seed": 3}
    drawn = [run_op("nce", inputs, attrs, fetch=["SampleLabels"])["SampleLabels"].numpy() for _ in range(2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    frequencies = np.bincount(drawn[0][:, 1:].reshape(-1), minlength=classes) / (rows * 5)
    np.testing.assert_allclose(frequencies, expected, atol=0.015)


def test_sample_logits_draws_different_classes_once_for_all_rows() -> None:
    inputs = {"Logits": np.zeros((3, 10)), "Labels": np.array([[0], [1], [9]])}
    samples = run_op("sample_logits", inputs, {"num_samples": 6, "seed": 5}, fetch=["Samples"])["Samples"].numpy()
    assert samples[:, 0].tolist() == [0, 1, 9]
    assert (samples[:, 1:] == samples[0, 1:]).all() and len(set(samples[0, 1:])) == 6


def test_tdm_sampler_takes_other_nodes_of_the_layer() -> None:
    travel, layer = np.array([[1, 3], [1, 4], [2, 5], [2, 0]]), np.array([[1], [2], [3], [4], [5], [6]])
    attrs = {"neg_samples_num_list": [1, 3], "layer_offset_lod": [0, 2, 6], "seed": 1}
    out = run_op("tdm_sampler", {"X": np.array([[0], [2], [3]]), "Travel": travel, "Layer": layer}, attrs)
    nodes = out["Out"].numpy()
    assert nodes.dtype == np.int32
    assert nodes[:, :3].tolist() == [[1, 2, 3], [2, 1, 5], [2, 1, 0]]
    assert [sorted(row) for row in nodes[:2, 3:].tolist()] == [[4, 5, 6], [3, 4, 6]]
    assert out["Labels"].numpy().tolist() == [[1, 0, 1, 0, 0, 0]] * 2 + [[1, 0, 0, 0, 0, 0]]
    assert out["Mask"].numpy().tolist() == [[1] * 6] * 2 + [[1, 1, 0, 0, 0, 0]]


def test_dense_and_sparse_gradients_agree() -> None:
    inputs = {"W": TABLE, "Ids": IDS, "Out@GRAD": RNG.normal(size=(4, 3))}
    sparse, full = (run_op("lookup_table_grad", inputs, {"is_sparse": s})["W@GRAD"] for s in (True, False))
    np.testing.assert_allclose(dense(sparse), full.numpy())


NCE = {"Input": INPUT, "Weight": TABLE}


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        ("lookup_table", {"W": TABLE, "Ids": IDS + 1}, {}, r"Ids holds 7, expected 0 to 6 \(table W has 7 rows\)"),
        ("lookup_table", {"W": TABLE, "Ids": IDS - 2}, {"padding_idx": 0}, r"Ids holds -1"),
        ("lookup_table", {"W": TABLE, "Ids": IDS.T}, {}, r"size 1 in its last dimension, found shape \(1, 4\)"),
        ("lookup_table_v2", {"W": TABLE, "Ids": IDS.astype(float)}, {}, r"must hold integers \(int64\), found float64"),
        (
            "lookup_table",
            {"W": ROWS, "Ids": np.array([[5]])},
            {},
            r"Ids holds 5, which is not in table W \(SelectedRows of 4\)",
        ),
        ("lookup_sparse_table", {"W": ROWS, "Ids": np.array([[5]])}, {}, r"table W is full"),
        ("merge_selected_rows", {"X": TABLE}, {}, r"must hold SelectedRows"),
        ("split_selected_rows", {"X": ROWS}, {"height_sections": [2]}, r"cover 2 rows, but X holds row 3"),
        ("split_byref", {"X": TABLE}, {"sections": [8]}, r"take 8 rows, but X has 7"),
        ("ref_by_trainer_id", {"X": [TABLE], "TrainerId": np.array([1])}, {}, r"TrainerId is 1, but input X has 1"),
        (
            "merge_ids",
            {"Ids": [IDS], "Rows": [np.array([1])], "X": [TABLE[:1]]},
            {},
            r"Ids\[0\] holds 6, which no input",
        ),
        ("nce", NCE | {"Label": LABEL + 1}, {"num_total_classes": 7}, r"Label holds class 7, expected 0 to 6"),
        ("nce", NCE | {"Label": LABEL}, {"num_total_classes": 7, "sampler": 2}, r"needs the input CustomDistProbs"),
        ("nce", NCE | {"Label": LABEL}, {"num_total_classes": 7, "sampler": 3}, r"sampler must be 0 .* found 3"),
        ("hierarchical_sigmoid", {"X": INPUT, "W": TABLE, "Label": LABEL}, {"num_classes": 16}, r"but W has 7 rows"),
        (
            "hierarchical_sigmoid_grad",
            {"X": INPUT, "W": TABLE, "Label": LABEL, "PreOut": np.ones((4, 3)), "Out@GRAD": np.ones((4, 1))},
            {"num_classes": 8},
            r"Bias@GRAD is requested, but the input Bias is missing",
        ),
        (
            "sample_logits",
            {"Logits": INPUT, "Labels": IDS % 3},
            {"num_samples": 4},
            r"num_samples must be .* 3 classes",
        ),
        (
            "filter_by_instag",
            {"Ins": INPUT, "Ins_tag": IDS, "Filter_tag": IDS},
            {"is_lod": False},
            r"Ins_tag needs a LoD",
        ),
        ("hash", {"X": INPUT}, {}, r"X must be int32 or int64, found float64"),
        ("tdm_child", {"X": IDS, "TreeInfo": IDS}, {"child_nums": 1}, r"at least 3 \+ child_nums = 4 columns"),
        (
            "pyramid_hash",
            {"X": PYRAMID_X, "W": PYRAMID_W, "WhiteList": np.zeros((20, 1), np.float32), "BlackList": NO_LIST},
            PYRAMID | {"use_filter": True, "white_list_len": 20},
            r"WhiteList is not a Bloom filter",
        ),
    ],
)
def test_refusals_name_the_operator_and_what_is_wrong(
    op: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperatorError, match=f"operator {op}: .*{message}"):
        run_op(op, inputs, attrs)


def test_tables_on_parameter_servers_need_leave_to_ask_them() -> None:
    attrs = {
        "remote_prefetch": True,
        "epmap": ["127.0.0.1:6174"],
        "table_names": ["t"],
        "height_sections": [len(TABLE)],
    }
    with pytest.raises(PolicyError, match=r"lookup_table asks to connect to '127.0.0.1:6174'"):
        run_op("lookup_table", {"W": TABLE, "Ids": IDS}, attrs)
