"""Fused operators: they equal the operators that they stand for; what is refused."""

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.tensor import SelectedRows
from tests.support.operators import check_gradient, lod_tensor, run_op


def wave(*shape: int, step: float = 1.0, dtype: str = "float64") -> np.ndarray[Any, Any]:
    """sin(step), sin(2 * step), … in this shape."""
    return np.sin(step * np.arange(1, np.prod(shape) + 1)).reshape(shape).astype(dtype)


def layer_norm(x: np.ndarray[Any, Any], scale: Any = 1.0, bias: Any = 0.0, epsilon: float = 1e-5) -> Any:
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered**2).mean(axis=-1, keepdims=True) + float(np.float32(epsilon))
    return centered / np.sqrt(variance) * scale + bias


def refused(op: str, inputs: dict[str, Any], message: str, attrs: dict[str, Any] | None = None) -> None:
    with pytest.raises(OperatorError, match=message):
        run_op(op, inputs, attrs)


@pytest.mark.parametrize("peepholes", [False, True])
def test_fusion_lstm_is_lstm_after_a_product(peepholes: bool) -> None:
    x, weight_x, weight_h = wave(5, 3), wave(3, 8, step=0.4), wave(2, 8, step=0.7)
    bias = wave(1, 14 if peepholes else 8, step=0.3)
    states = {"H0": wave(2, 2, step=0.8), "C0": wave(2, 2, step=0.6)}
    attrs = {"use_peepholes": peepholes, "is_reverse": True}
    lengths = [[2, 3]]
    fused = {"X": lod_tensor(x, lengths), "WeightX": weight_x, "WeightH": weight_h, "Bias": bias} | states
    plain = {"Input": lod_tensor(x @ weight_x, lengths), "Weight": weight_h, "Bias": bias} | states
    got, expected = run_op("fusion_lstm", fused, attrs), run_op("lstm", plain, attrs)
    for slot in ("Hidden", "Cell"):
        np.testing.assert_allclose(got[slot].numpy(), expected[slot].numpy(), rtol=1e-12)
        assert got[slot].lod() == [[0, 2, 5]]
    assert got["XX"].shape() == [5, 8] and not got["XX"].is_initialized()


def test_fused_embedding_fc_lstm_takes_rows_that_carry_the_bias_already() -> None:
    table, weight_h = wave(4, 8), wave(2, 8, step=0.7)
    ids, lengths = np.array([[3], [0], [1]]), [[3]]
    attrs = {"use_peepholes": False}
    fused = {"Ids": lod_tensor(ids, lengths), "Embeddings": table, "WeightH": weight_h, "Bias": wave(1, 8, step=0.3)}
    plain = {"Input": lod_tensor(table[ids[:, 0]], lengths), "Weight": weight_h, "Bias": np.zeros((1, 8))}
    got = run_op("fused_embedding_fc_lstm", fused, attrs)["Hidden"].numpy()
    np.testing.assert_allclose(got, run_op("lstm", plain, attrs)["Hidden"].numpy(), rtol=1e-12)
    beyond = fused | {"Ids": lod_tensor(np.array([[4], [0], [1]]), lengths)}
    refused("fused_embedding_fc_lstm", beyond, "input Ids must lie between 0 and 3, found 0 to 4", attrs)


def test_fusion_gru_computes_without_origin_mode_as_paddle_does() -> None:
    inputs = {"X": lod_tensor(wave(2, 2), [[2]]), "WeightX": wave(2, 6, step=0.7), "WeightH": wave(2, 6, step=0.5)}
    got = run_op("fusion_gru", inputs, {"origin_mode": True})["Hidden"].numpy()
    np.testing.assert_allclose(got, [[0.2228312, 0.0245957], [-0.4662535, -0.4867112]], rtol=0, atol=1e-7)


def test_fused_recurrent_layers_name_the_weight_that_does_not_fit() -> None:
    lstm = {"X": lod_tensor(wave(2, 3), [[2]]), "WeightX": wave(2, 8), "WeightH": wave(2, 8), "Bias": wave(1, 8)}
    attrs = {"use_peepholes": False}
    refused("fusion_lstm", lstm, r"input X \(rows, M\) must fit input WeightX", attrs)
    refused(
        "fusion_lstm",
        lstm | {"WeightX": wave(3, 8), "WeightH": wave(3, 8)},
        r"input WeightH must have shape \(2, 8\)",
        attrs,
    )
    gru = {"X": lod_tensor(wave(2, 3), [[2]]), "WeightX": wave(3, 9), "WeightH": wave(2, 6)}
    refused("fusion_gru", gru, "input WeightX must have 6 columns for WeightH")


def embedding_inputs() -> dict[str, Any]:
    ids = np.array([[0, 1], [2, 1], [3, 3]])[:, :, None]
    return {"W": wave(4, 2), "Ids": lod_tensor(ids, [[2, 1]])}


@pytest.mark.parametrize("padding_idx", [-1, 1])
def test_fused_embedding_seq_pool_gradient(padding_idx: int) -> None:
    check_gradient("fused_embedding_seq_pool", embedding_inputs(), wrt=["W"], attrs={"padding_idx": padding_idx})


def test_fused_embedding_seq_pool_of_ids_in_one_dimension() -> None:
    inputs = {"W": wave(5, 3), "Ids": lod_tensor(np.array([1, 2, 3, 4]), [[1, 3]])}
    got = run_op("fused_embedding_seq_pool", inputs)["Out"].numpy()
    np.testing.assert_allclose(got, [wave(5, 3)[1], wave(5, 3)[2:5].sum(axis=0)], rtol=1e-6)
    check_gradient("fused_embedding_seq_pool", inputs, wrt=["W"])


def test_fused_embedding_seq_pool_sparse_gradient_names_every_id() -> None:
    attrs = {"is_sparse": True, "padding_idx": -1}
    check_gradient("fused_embedding_seq_pool", embedding_inputs(), wrt=["W"], attrs=attrs)
    inputs = embedding_inputs() | {"Out@GRAD": wave(2, 4)}
    (grad,) = run_op("fused_embedding_seq_pool_grad", inputs, attrs).values()
    assert isinstance(grad, SelectedRows) and grad.rows() == [0, 1, 2, 1, 3, 3] and grad.height() == 4
    np.testing.assert_array_equal(grad.value[2:4], wave(2, 4)[0].reshape(2, 2))


def test_fused_embedding_seq_pool_refuses_ids_outside_the_table_and_other_combiners() -> None:
    inputs = embedding_inputs()
    refused("fused_embedding_seq_pool", inputs | {"W": wave(3, 2)}, "input Ids must lie between 0 and 2, found 3")
    refused("fused_embedding_seq_pool", inputs, 'attribute combiner must be "sum"', {"combiner": "mean"})


def test_fusion_seqconv_is_sequence_conv_with_bias_and_relu() -> None:
    x, weight, bias = lod_tensor(wave(6, 2), [[1, 5]]), wave(6, 3, step=0.7), wave(1, 3, step=0.3)
    attrs = {"contextLength": 3, "contextStart": -1, "contextStride": 1}
    plain = run_op("sequence_conv", {"X": x, "Filter": weight}, attrs)["Out"].numpy()
    got = run_op("fusion_seqconv_eltadd_relu", {"X": x, "Filter": weight, "Bias": bias}, attrs)["Out"].numpy()
    np.testing.assert_allclose(got, np.maximum(plain + bias, 0), rtol=0, atol=1e-12)


def test_fusion_seqconv_refuses_a_context_that_ends_before_the_row_and_a_filter_of_another_height() -> None:
    inputs = {"X": lod_tensor(wave(6, 2), [[6]]), "Filter": wave(6, 3), "Bias": wave(1, 3)}
    attrs = {"contextLength": 3, "contextStart": -3, "contextStride": 1}
    refused("fusion_seqconv_eltadd_relu", inputs, "contextStart \\+ contextLength must be above 0", attrs)
    refused(
        "fusion_seqconv_eltadd_relu",
        inputs,
        r"input Filter must be \(2 \* columns of X, n\)",
        attrs | {"contextLength": 2, "contextStart": 0},
    )


def test_fusion_seqpool_concat_refuses_inputs_of_another_number_of_sequences_and_unknown_pooling() -> None:
    x = [lod_tensor(wave(3, 2), [[1, 2]]), lod_tensor(wave(3, 2), [[3]])]
    refused("fusion_seqpool_concat", {"X": x}, r"input X\[1\] must have as many sequences as X\[0\] \(2\), found 1")
    refused(
        "fusion_seqpool_concat",
        {"X": x[:1]},
        "attribute pooltype must be one of SUM, AVERAGE, SQRT",
        {"pooltype": "MAX"},
    )
    cvm = {"X": x[:1], "CVM": wave(2, 2)}
    refused("fusion_seqpool_cvm_concat", cvm, "attribute use_cvm must be True", {"use_cvm": False})


def test_fusion_repeated_fc_relu_refuses_a_weight_without_bias() -> None:
    inputs = {"X": wave(2, 3), "W": [wave(3, 4), wave(4, 2)], "Bias": [wave(1, 4)]}
    refused("fusion_repeated_fc_relu", inputs, "inputs W and Bias must have equally many variables")


def test_fusion_squared_mat_sub_and_seqexpand_refuse_shapes_that_do_not_fit() -> None:
    refused("fusion_squared_mat_sub", {"X": wave(2, 3), "Y": wave(2, 3)}, r"input X \(rows, n\) must fit input Y")
    x = [lod_tensor(wave(3, 2), [[1, 2]]), wave(3, 2)]
    refused(
        "fusion_seqexpand_concat_fc", {"X": x, "FCWeight": wave(4, 2)}, r"input X\[1\] must have one row per sequence"
    )


def test_multihead_matmul_attends_head_by_head() -> None:
    x, weight, bias, mask = wave(2, 3, 4), wave(4, 3, 4, step=0.7), wave(3, 4, step=0.3), wave(2, 1, 1, 3, step=0.9)
    query, key, value = (x @ weight[:, i] + bias[i] for i in range(3))
    expected = np.empty((2, 3, 4))
    for head in (slice(0, 2), slice(2, 4)):
        scores = 0.5 * query[:, :, head] @ key[:, :, head].swapaxes(1, 2) + mask[:, 0]
        weights = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
        expected[:, :, head] = weights @ value[:, :, head]
    inputs = {"Input": x, "W": weight, "Bias": bias, "BiasQK": mask}
    got = run_op("multihead_matmul", inputs, {"alpha": 0.5, "head_number": 2})["Out"].numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    refused("multihead_matmul", inputs, "must fit input W", {"head_number": 3})


def test_skip_layernorm_normalizes_the_sum_over_the_last_dimension() -> None:
    x, y, scale, bias = wave(2, 3, 4), wave(2, 3, 4, step=0.7), wave(4, step=0.5), wave(4, step=0.3)
    inputs = {"X": x, "Y": y, "Scale": scale, "Bias": bias}
    got = run_op("skip_layernorm", inputs)["Out"].numpy()
    np.testing.assert_allclose(got, layer_norm(x + y, scale, bias), rtol=1e-12)
    refused("skip_layernorm", inputs | {"Scale": wave(3)}, r"input Scale must hold 4 numbers, found shape \(3,\)")


def test_fused_fc_elementwise_layernorm() -> None:
    x, weight, y, bias = wave(6, 5), wave(5, 4, step=0.7), wave(2, 3, 4, step=0.4), wave(4, step=0.3)
    attrs = {"activation_type": "relu", "begin_norm_axis": 2}
    got = run_op("fused_fc_elementwise_layernorm", {"X": x, "W": weight, "Y": y, "Bias0": bias}, attrs)
    summed = np.maximum(x @ weight + bias, 0).reshape(2, 3, 4) + y
    np.testing.assert_allclose(got["Out"].numpy(), layer_norm(summed), rtol=1e-9)
    np.testing.assert_allclose(got["Mean"].numpy(), summed.mean(axis=2).reshape(-1), rtol=1e-12)


def test_fused_embedding_eltwise_layernorm_sums_its_tables() -> None:
    ids = [np.array([[[0], [2]]]), np.array([[[1], [1]]])]
    tables, scale, bias = [wave(3, 4), wave(2, 4, step=0.7)], wave(4, step=0.5), wave(4, step=0.3)
    inputs = {"Ids": ids, "Embs": tables, "Scale": scale, "Bias": bias}
    got = run_op("fused_embedding_eltwise_layernorm", inputs)["Out"].numpy()
    summed = tables[0][ids[0][..., 0]] + tables[1][ids[1][..., 0]]
    np.testing.assert_allclose(got, layer_norm(summed, scale, bias), rtol=1e-12)
    beyond = inputs | {"Ids": [ids[0], np.array([[[1], [2]]])]}
    refused("fused_embedding_eltwise_layernorm", beyond, r"input Ids\[1\] must lie between 0 and 1, found 1 to 2")


def test_match_matrix_tensor_gradient() -> None:
    inputs = {
        "X": lod_tensor(wave(3, 2), [[1, 2]]),
        "Y": lod_tensor(wave(4, 3, step=0.7), [[3, 1]]),
        "W": wave(2, 2, 3, step=0.5),
    }
    check_gradient("match_matrix_tensor", inputs, wrt=list(inputs), attrs={"dim_t": 2})


def test_match_matrix_tensor_refuses_texts_that_do_not_pair_up() -> None:
    inputs = {"X": lod_tensor(wave(3, 2), [[1, 2]]), "Y": lod_tensor(wave(4, 2), [[4]]), "W": wave(2, 1, 2)}
    refused("match_matrix_tensor", inputs, "inputs X and Y must have equally many sequences, found 2 and 1")
    refused("match_matrix_tensor", inputs | {"W": wave(2, 3, 2)}, r"must fit W \(m, dim_t 1, n\)")
