"""Dropout, sequences of windows, fused and small layers of vision: what golden cases do not say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import check_gradient, lod_tensor, run_op

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


# -- dropout
def test_dropout_keeps_its_share_and_repeats_with_its_seed() -> None:
    x = np.ones((200, 100), np.float32)
    attrs = {"dropout_prob": 0.3, "fix_seed": True, "seed": 5, "dropout_implementation": "upscale_in_train"}
    first, again = (run_op("dropout", {"X": x}, attrs) for _ in range(2))
    out, mask = first["Out"].numpy(), first["Mask"].numpy()
    assert mask.dtype == np.uint8 and abs(mask.mean() - 0.7) < 0.01
    np.testing.assert_allclose(out, mask / np.float32(0.7), rtol=1e-6)
    np.testing.assert_array_equal(out, again["Out"].numpy())
    other = run_op("dropout", {"X": x, "Seed": np.int32([6])}, attrs)
    assert (other["Mask"].numpy() != mask).any()


@pytest.mark.parametrize(
    ("implementation", "rate", "expected"),
    [("downgrade_in_infer", 0.4, 0.6), ("upscale_in_train", 0.4, 1.0), ("downgrade_in_infer", 1.0, 0.0)],
)
def test_dropout_of_a_test_run_only_scales(implementation: str, rate: float, expected: float) -> None:
    attrs = {"is_test": True, "dropout_prob": rate, "dropout_implementation": implementation}
    got = run_op("dropout", {"X": np.ones((2, 3), np.float32)}, attrs, fetch=["Out"])
    np.testing.assert_allclose(got["Out"].numpy(), np.full((2, 3), expected, np.float32))


@pytest.mark.parametrize("implementation", ["downgrade_in_infer", "upscale_in_train"])
@pytest.mark.parametrize("op_type", ["dropout", "dropout_nd"])
def test_dropout_gradient(op_type: str, implementation: str) -> None:
    attrs = {"dropout_prob": 0.5, "fix_seed": True, "seed": 3, "dropout_implementation": implementation}
    check_gradient(op_type, {"X": normal(4, 3)}, wrt=["X"], attrs=attrs)


def test_dropout_nd_drops_whole_slices() -> None:
    attrs = {"dropout_prob": 0.5, "fix_seed": True, "seed": 3, "axis": [0]}
    mask = run_op("dropout_nd", {"X": normal(50, 4)}, attrs)["Mask"].numpy()
    assert set(mask.sum(axis=1).tolist()) == {0, 4}


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_dropout_of_all_or_nothing(rate: float) -> None:
    got = run_op(
        "dropout", {"X": np.ones((2, 3))}, {"dropout_prob": rate, "dropout_implementation": "upscale_in_train"}
    )
    assert (got["Out"].numpy() == 1 - rate).all() and (got["Mask"].numpy() == 1 - rate).all()


# -- windows as steps and columns. Numbers of Paddle 1.8.5.
STEPS = np.arange(1, 33, dtype=np.float32).reshape(2, 1, 4, 4)


def test_im2sequence_of_images_of_their_true_sizes() -> None:
    attrs = {"kernels": [2, 2], "paddings": [0, 1, 1, 0], "out_stride": [2, 2]}
    out = run_op("im2sequence", {"X": STEPS, "Y": np.float32([[4, 4], [2, 3]])}, attrs)["Out"]
    expected = [[0, 1, 0, 5], [1, 2, 5, 6], [0, 5, 0, 9], [5, 6, 9, 10], [0, 17, 0, 21], [17, 18, 21, 22]]
    assert out.numpy().tolist() == expected
    assert out.recursive_sequence_lengths() == [[4, 2]]


def test_im2sequence_takes_the_true_sizes_in_any_shape() -> None:
    attrs = {"kernels": [2, 2], "paddings": [0, 1, 1, 0], "out_stride": [2, 2]}
    flat = run_op("im2sequence", {"X": STEPS, "Y": np.float32([4, 4, 2, 3])}, attrs)["Out"]
    assert flat.recursive_sequence_lengths() == [[4, 2]]
    with pytest.raises(OperatorError, match=r"for each of the 2 images of X, found shape \(2,\)"):
        run_op("im2sequence", {"X": STEPS, "Y": np.float32([4, 4])}, attrs)


def test_im2sequence_of_an_image_smaller_than_the_kernel_is_empty() -> None:
    out = run_op("im2sequence", {"X": STEPS[:, :, :1]}, {"kernels": [2, 2]})["Out"]
    assert out.shape() == [0, 4] and out.recursive_sequence_lengths() == [[0, 0]]


def test_unfold_pads_up_left_down_right() -> None:
    attrs = {"kernel_sizes": [2, 2], "strides": [1, 1], "paddings": [0, 1, 0, 0], "dilations": [1, 1]}
    out = run_op("unfold", {"X": np.arange(9.0).reshape(1, 1, 3, 3)}, attrs)["Y"].numpy()
    assert out[0, 0].tolist() == [0, 0, 1, 0, 3, 4]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs"),
    [
        ("im2sequence", {"X": (2, 2, 4, 3)}, {"kernels": [2, 2], "strides": [2, 1], "paddings": [0, 1, 1, 0]}),
        (
            "unfold",
            {"X": (1, 2, 4, 3)},
            {"kernel_sizes": [2, 1], "strides": [1, 2], "paddings": [1, 0, 0, 1], "dilations": [2, 1]},
        ),
        (
            "fold",
            {"X": (1, 4, 6)},
            {
                "output_sizes": [3, 4],
                "kernel_sizes": [2, 2],
                "strides": [1, 1],
                "paddings": [0, 0, 0, 0],
                "dilations": [1, 1],
            },
        ),
        ("row_conv", {"X": (2, 4, 3), "Filter": (2, 3)}, {}),
        ("row_conv", {"X": (2, 2, 3), "Filter": (4, 3)}, {}),
        ("conv_shift", {"X": (2, 5), "Y": (2, 3)}, {}),
    ],
)
def test_gradients(op_type: str, inputs: dict[str, tuple[int, ...]], attrs: dict[str, Any]) -> None:
    check_gradient(op_type, {slot: normal(*shape) for slot, shape in inputs.items()}, wrt=list(inputs), attrs=attrs)


def test_lookahead_stops_at_the_end_of_a_sequence() -> None:
    inputs = {"X": lod_tensor(np.arange(10.0).reshape(5, 2), [[2, 3]]), "Filter": np.ones((2, 2))}
    out = run_op("row_conv", inputs)["Out"]
    assert out.numpy().tolist() == [[2, 4], [2, 3], [10, 12], [14, 16], [8, 9]]
    assert out.recursive_sequence_lengths() == [[2, 3]]
    check_gradient("row_conv", inputs, wrt=["X", "Filter"])


# -- images and trees of all sizes
def test_var_conv_2d_gradient() -> None:
    inputs = {
        "X": lod_tensor(normal(2 * (6 + 0 + 4), 1), [[12, 0, 8]]),
        "ROW": lod_tensor(np.zeros((5, 1)), [[2, 1, 2]]),
        "COLUMN": lod_tensor(np.zeros((5, 1)), [[3, 0, 2]]),
        "W": normal(2, 2 * 2 * 3),
    }
    attrs = {"InputChannel": 2, "OutputChannel": 2, "KernelH": 2, "KernelW": 3, "StrideW": 2}
    check_gradient("var_conv_2d", inputs, wrt=["X", "W"], attrs=attrs, loss=["Out"])
    assert run_op("var_conv_2d", inputs, attrs)["Out"].recursive_sequence_lengths() == [[8, 0, 4]]


@pytest.mark.parametrize("max_depth", [1, 2, 3])
def test_tree_conv_gradient(max_depth: int) -> None:
    edges = np.int32([[[1, 2], [1, 3], [3, 4], [0, 0]], [[1, 2], [2, 3], [0, 0], [0, 0]]])
    inputs = {"NodesVector": normal(2, 5, 2), "EdgeSet": edges, "Filter": normal(2, 3, 2, 2)}
    check_gradient("tree_conv", inputs, wrt=["NodesVector", "Filter"], attrs={"max_depth": max_depth})


def test_similarity_focus_takes_the_first_of_equal_cells() -> None:
    x = np.zeros((1, 2, 2, 3))
    x[0, 0] = [[5, 5, 1], [5, 2, 7]]
    out = run_op("similarity_focus", {"X": x}, {"axis": 1, "indexes": [0]})["Out"].numpy()
    assert out[0].tolist() == [[[1, 0, 0], [0, 0, 1]]] * 2


# -- fused operators
@pytest.mark.parametrize("unary", ["scale", "relu", "tanh", "sigmoid", "gelu"])
@pytest.mark.parametrize("binary", ["elementwise_add", "elementwise_mul"])
@pytest.mark.parametrize("save", [False, True])
def test_fused_elementwise_gradient(unary: str, binary: str, save: bool) -> None:
    for functors in ([unary, binary], [binary, unary]):
        attrs = {"functor_list": functors, "scale": 0.5, "save_intermediate_out": save}
        outputs = {"IntermediateOut": int(save)}
        inputs = {"X": normal(2, 3), "Y": normal(3)}
        check_gradient("fused_elemwise_activation", inputs, wrt=["X", "Y"], attrs=attrs, outputs=outputs)


# Numbers of Paddle 1.8.5.
def test_fused_elementwise_order_and_intermediate_value() -> None:
    x, y = np.float32([[1, -2]]), np.float32([-3, 4])
    inside = run_op(
        "fused_elemwise_activation",
        {"X": x, "Y": y},
        {"functor_list": ["elementwise_add", "relu"], "save_intermediate_out": True},
    )
    assert inside["Out"].numpy().tolist() == [[1, 2]] and inside["IntermediateOut"].numpy().tolist() == [0, 4]
    outside = run_op(
        "fused_elemwise_activation",
        {"X": x, "Y": y},
        {"functor_list": ["relu", "elementwise_add"], "save_intermediate_out": True},
    )
    assert outside["Out"].numpy().tolist() == [[0, 2]] and outside["IntermediateOut"].numpy().tolist() == [[-2, 2]]


def test_fc_with_padded_weights() -> None:
    x, weight = normal(3, 2, 4), normal(8, 5)
    padded = np.zeros((12, 9))
    padded[:8, :5] = weight
    attrs = {"padding_weights": True, "activation_type": "relu"}
    out = run_op("fc", {"Input": x, "W": padded, "Bias": np.ones((1, 5))}, attrs)["Out"].numpy()
    np.testing.assert_allclose(out, np.maximum(x.reshape(3, 8) @ weight + 1, 0))
    assert run_op("fc", {"Input": x, "W": weight[:4]}, {"in_num_col_dims": 2})["Out"].shape() == [3, 2, 5]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "message"),
    [
        ("dropout", {"X": normal(2)}, {"dropout_prob": 1.5}, r"dropout_prob must be between 0 and 1, found 1.5"),
        ("dropout", {"X": normal(2)}, {"dropout_implementation": "x"}, r"dropout_implementation must be .*found 'x'"),
        (
            "im2sequence",
            {"X": STEPS, "Y": np.ones((1, 2), np.float32)},
            {"kernels": [2, 2]},
            r"Y must hold a height and a width for each of the 2 images",
        ),
        ("im2sequence", {"X": STEPS[0]}, {"kernels": [2, 2]}, r"X must have 4 dimensions"),
        ("fc", {"Input": normal(2, 3), "W": normal(4, 5)}, {}, r"rows of 3 elements .* expects 4"),
        ("fc", {"Input": normal(2, 3), "W": normal(3, 5), "Bias": normal(4)}, {}, r"Bias must hold 5 numbers"),
        ("conv_shift", {"X": normal(2, 5), "Y": normal(2, 2)}, {}, r"Y must have an odd width of at most 5"),
        ("row_conv", {"X": normal(2, 3), "Filter": normal(2, 3)}, {}, r"X must have 3 dimensions"),
        (
            "similarity_focus",
            {"X": normal(1, 2, 2, 2)},
            {"axis": 1, "indexes": [2]},
            r"indexes of axis 1 of X .*found \[2\]",
        ),
        (
            "fused_elemwise_activation",
            {"X": normal(2), "Y": normal(2)},
            {"functor_list": ["foo", "elementwise_add"]},
            r"functor_list must be one of",
        ),
        (
            "fold",
            {"X": normal(1, 4, 5)},
            {
                "output_sizes": [3, 4],
                "kernel_sizes": [2, 2],
                "strides": [1, 1],
                "paddings": [0] * 4,
                "dilations": [1, 1],
            },
            r"must have 6 columns",
        ),
        (
            "tree_conv",
            {"NodesVector": normal(1, 2, 2), "EdgeSet": np.int32([[[1, 5]]]), "Filter": normal(2, 3, 1, 1)},
            {},
            r"edge 1 -> 5; nodes are numbered from 1 to 2",
        ),
        (
            "tree_conv",
            {"NodesVector": normal(1, 1, 2), "EdgeSet": np.int32([[[1, 2]]]), "Filter": normal(2, 3, 1, 1)},
            {},
            r"2 nodes; NodesVector holds 1",
        ),
        (
            "var_conv_2d",
            {"X": normal(4, 1), "ROW": normal(2, 1), "COLUMN": normal(2, 1), "W": normal(1, 1)},
            {},
            r"X needs a LoD of at least one level",
        ),
    ],
)
def test_what_does_not_fit_is_named(op_type: str, inputs: Any, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=rf"operator {op_type}: .*{message}"):
        run_op(op_type, inputs, attrs)
