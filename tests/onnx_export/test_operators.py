"""Renderings of operators: drawn inputs, ONNX Runtime beside our numpy kernels. One row for what makes a difference.

The golden cases (test_golden_operators.py) cover operators of Paddle 1.8.5; here are those of 2.x, sizes that are not known,
inputs in place of attributes, and other opsets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx_export.support import OneOperator, check, require_onnx

require_onnx()

RNG = np.random.default_rng(5)


def floats(*shape: int) -> Any:
    return RNG.uniform(-1, 1, shape).astype("float32")


def positive(*shape: int) -> Any:
    return RNG.uniform(0.1, 1, shape).astype("float32")


def ids(below: int, *shape: int) -> Any:
    return RNG.integers(0, below, shape).astype("int64")


def truths(*shape: int) -> Any:
    return RNG.integers(0, 2, shape).astype(bool)


IMAGE = floats(2, 3, 7, 6)
X = floats(2, 3, 4)
Row = tuple[str, dict[str, Any], dict[str, Any]] | tuple[str, dict[str, Any], dict[str, Any], dict[str, int]]

UNARY = [
    "abs",
    "acosh",
    "asinh",
    "atan",
    "ceil",
    "celu",
    "cos",
    "cosh",
    "elu",
    "erf",
    "exp",
    "expm1",
    "floor",
    "leaky_relu",
    "log10",
    "log1p",
    "log2",
    "logsigmoid",
    "mish",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "selu",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "softsign",
    "sqrt",
    "square",
    "swish",
    "tan",
    "tanh",
    "tanh_shrink",
    "hard_shrink",
    "softshrink",
    "hard_sigmoid",
    "hard_swish",
    "relu6",
    "brelu",
    "stanh",
    "thresholded_relu",
    "soft_relu",
    "gelu",
    "trunc",
    "isnan_v2",
    "isinf_v2",
    "isfinite_v2",
]


@pytest.mark.parametrize("opset", [13, 17, 23])
@pytest.mark.parametrize("type", UNARY)
def test_functions_of_each_number(type: str, opset: int) -> None:
    x = positive(3, 4) + (1 if type == "acosh" else 0)
    signed = x if type in ("log10", "log1p", "log2", "rsqrt", "sqrt", "reciprocal", "acosh") else floats(3, 4) * 3
    check(OneOperator(type, {"X": signed}), opset)


ROWS: list[Row] = [
    # arithmetic
    ("elementwise_floordiv", {"X": ids(9, 4) - 4, "Y": np.array([2, -2, 3, -3])}, {}),
    ("elementwise_mod", {"X": ids(9, 4) - 4, "Y": np.array([2, -2, 3, -3])}, {}),
    ("elementwise_mod", {"X": floats(4) * 5, "Y": np.array([2, -2, 0.3, -3], "float32")}, {}),
    ("elementwise_pow", {"X": positive(3), "Y": floats(3)}, {}),
    ("elementwise_add", {"X": floats(2, 3, 4), "Y": floats(3)}, {"axis": 1}),
    ("elementwise_sub", {"X": floats(3), "Y": floats(2, 3)}, {"axis": -1}),
    ("elementwise_max", {"X": ids(9, 3).astype("int32"), "Y": ids(9, 3).astype("int32")}, {}),
    ("elementwise_fmax", {"X": np.array([np.nan, 1], "f4"), "Y": np.array([2, np.nan], "f4")}, {}),
    ("elementwise_heaviside", {"X": np.array([-1, 0, 2], "f4"), "Y": floats(3)}, {}),
    ("atan2", {"X1": floats(8), "X2": floats(8)}, {}),
    ("scale", {"X": ids(9, 3)}, {"scale": 2.0, "bias": 1.0}),
    ("scale", {"X": ids(9, 3)}, {"scale": -4.7, "bias": -5.5, "bias_after_scale": False}),
    ("scale", {"X": floats(3), "ScaleTensor": np.array([2.5], "f4")}, {"bias": 1.0, "bias_after_scale": False}),
    ("sum", {"X": [floats(3), floats(3), floats(3)]}, {}),
    ("clip", {"X": floats(5), "Min": np.array([-0.2], "f4")}, {"min": 0.0, "max": 0.5}),
    ("lerp", {"X": floats(3), "Y": floats(3), "Weight": floats(3)}, {}),
    ("cast", {"X": floats(3) * 3}, {"in_dtype": 5, "out_dtype": 2}),
    ("cast", {"X": floats(3)}, {"in_dtype": 5, "out_dtype": 0}),
    ("cast", {"X": truths(3)}, {"in_dtype": 0, "out_dtype": 6}),
    ("bitwise_and", {"X": truths(4), "Y": truths(4)}, {}),
    ("bitwise_not", {"X": ids(9, 4)}, {}),
    ("partial_sum", {"X": [ids(9, 2, 4), ids(9, 2, 4)]}, {"start_index": 1, "length": 2}),
    ("softplus", {"X": floats(5) * 9}, {"beta": 2.0, "threshold": 6.0}),
    ("logical_xor", {"X": truths(4), "Y": truths(4)}, {}),
    ("equal", {"X": floats(3), "Y": floats(3)}, {}),
    ("less_equal", {"X": ids(3, 4), "Y": ids(3, 4)}, {}),
    ("equal_all", {"X": ids(3, 4), "Y": ids(3, 4)}, {}),
    ("isclose", {"Input": floats(4), "Other": floats(4)}, {"rtol": "0.5", "atol": "0.01"}),
    # products
    ("matmul_v2", {"X": floats(2, 3, 4), "Y": floats(2, 5, 4)}, {"trans_y": True}),
    ("matmul_v2", {"X": floats(4), "Y": floats(4)}, {}),
    ("matmul_v2", {"X": floats(4), "Y": floats(2, 4, 3)}, {}),
    ("bmm", {"X": floats(2, 3, 4), "Y": floats(2, 4, 5)}, {}),
    ("mv", {"X": floats(3, 4), "Vec": floats(4)}, {}),
    ("dot", {"X": floats(3, 4), "Y": floats(3, 4)}, {}),
    ("addmm", {"Input": floats(2, 3), "X": floats(2, 4), "Y": floats(4, 3)}, {"Alpha": 0.5, "Beta": 2.0}),
    ("kron", {"X": floats(2, 3), "Y": floats(3, 2)}, {}),
    ("cross", {"X": floats(2, 3), "Y": floats(2, 3)}, {"dim": 1}),
    ("einsum", {"Operands": [floats(2, 3), floats(3, 4)]}, {"equation": "ij,jk->ik"}, {"Out": 1}),
    ("multi_dot", {"X": [floats(2, 3), floats(3, 4), floats(4, 2)]}, {}),
    # images
    ("conv2d", {"Input": IMAGE, "Filter": floats(4, 3, 3, 3)}, {"strides": [2, 1], "paddings": [1, 0, 2, 1]}),
    ("conv2d", {"Input": IMAGE, "Filter": floats(4, 3, 3, 2)}, {"padding_algorithm": "SAME", "strides": [2, 2]}),
    ("conv2d", {"Input": IMAGE.transpose(0, 2, 3, 1).copy(), "Filter": floats(6, 1, 3, 3)}, {"groups": 3, "data_format": "NHWC"}),
    ("conv3d", {"Input": floats(1, 2, 4, 5, 6), "Filter": floats(3, 2, 2, 3, 2)}, {"dilations": [1, 1, 2]}),
    (
        "conv2d_transpose",
        {"Input": IMAGE, "Filter": floats(3, 4, 3, 3)},
        {"strides": [2, 2], "paddings": [1, 1], "output_size": [14, 12]},
    ),
    ("conv2d_transpose", {"Input": IMAGE, "Filter": floats(3, 2, 2, 2)}, {"strides": [3, 3], "output_padding": [1, 1]}),
    (
        "deformable_conv",
        {
            "Input": floats(2, 4, 6, 5),
            "Offset": floats(2, 2 * 2 * 9, 6, 5) * 2,
            "Mask": positive(2, 2 * 9, 6, 5),
            "Filter": floats(6, 2, 3, 3),
        },
        {"paddings": [1, 1], "groups": 2, "deformable_groups": 2},
    ),
    ("pool2d", {"X": IMAGE}, {"pooling_type": "max", "ksize": [3, 2], "strides": [2, 2], "paddings": [1, 1]}),
    ("pool2d", {"X": IMAGE}, {"pooling_type": "avg", "ksize": [3, 3], "strides": [2, 2], "ceil_mode": True}),
    (
        "pool2d",
        {"X": IMAGE},
        {"pooling_type": "avg", "ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1], "exclusive": False, "ceil_mode": True},
    ),
    ("pool2d", {"X": IMAGE}, {"pooling_type": "avg", "ksize": [3, 4], "adaptive": True}),
    ("pool2d", {"X": IMAGE}, {"pooling_type": "avg", "ksize": [1, 1], "adaptive": True}),
    ("pool2d", {"X": IMAGE}, {"pooling_type": "max", "ksize": [2, 2], "global_pooling": True}),
    ("max_pool2d_with_index", {"X": IMAGE}, {"ksize": [2, 2], "strides": [2, 2]}, {"Out": 1, "Mask": 1}),
    ("nearest_interp_v2", {"X": IMAGE}, {"interp_method": "nearest", "out_h": 9, "out_w": 11, "align_corners": False}),
    ("nearest_interp_v2", {"X": IMAGE}, {"interp_method": "nearest", "scale": [2.0, 2.0], "align_corners": False}),
    ("bilinear_interp_v2", {"X": IMAGE},
     {"interp_method": "bilinear", "scale": [2.0, 1.5], "align_corners": False, "align_mode": 0}),
    ("bilinear_interp_v2", {"X": IMAGE}, {"interp_method": "bilinear", "out_h": 9, "out_w": 11, "align_corners": True}),
    ("bicubic_interp_v2", {"X": IMAGE}, {"interp_method": "bicubic", "out_h": 9, "out_w": 11, "align_corners": False}),
    ("linear_interp_v2", {"X": floats(2, 3, 7)}, {"interp_method": "linear", "out_w": 11, "align_corners": False, "align_mode": 0}),
    ("grid_sampler", {"X": IMAGE, "Grid": floats(2, 4, 5, 2) * 1.3}, {"align_corners": False, "padding_mode": "border"}),
    ("affine_grid", {"Theta": floats(2, 2, 3)}, {"output_shape": [2, 3, 4, 5], "align_corners": False}),
    ("unfold", {"X": IMAGE}, {"kernel_sizes": [3, 2], "strides": [2, 1], "paddings": [1, 0, 1, 0], "dilations": [1, 2]}),
    ("fold", {"X": floats(2, 3 * 4, 20)}, {"output_sizes": [6, 5], "kernel_sizes": [2, 2], "strides": [1, 1],
                                           "paddings": [0, 0, 0, 0], "dilations": [1, 1]}),
    ("pixel_shuffle", {"X": floats(2, 8, 3, 4)}, {"upscale_factor": 2}),
    ("pixel_unshuffle", {"X": floats(2, 2, 4, 6)}, {"downscale_factor": 2}),
    ("channel_shuffle", {"X": floats(2, 6, 3, 4)}, {"groups": 3}),
    ("pad3d", {"X": floats(1, 2, 3, 4, 5)}, {"paddings": [1, 2, 0, 1, 2, 0], "mode": "reflect"}),
    ("pad3d", {"X": floats(1, 2, 3, 4, 5)}, {"paddings": [1, 2, 0, 1, 2, 0], "mode": "circular"}),
    ("pad3d", {"X": floats(1, 2, 3, 4, 5)}, {"paddings": [1, 2, 0, 1, 2, 0], "mode": "constant", "value": 0.5}),
    ("prelu", {"X": IMAGE, "Alpha": floats(3)}, {"mode": "channel"}),
    # normalization
    (
        "batch_norm",
        {"X": IMAGE, "Scale": floats(3), "Bias": floats(3), "Mean": floats(3), "Variance": positive(3)},
        {"is_test": True},
        {"Y": 1},
    ),
    ("layer_norm", {"X": X, "Scale": floats(4), "Bias": floats(4)}, {"begin_norm_axis": 2}, {"Y": 1}),
    ("layer_norm", {"X": X}, {"begin_norm_axis": 1}, {"Y": 1, "Mean": 1, "Variance": 1}),
    ("instance_norm", {"X": IMAGE, "Scale": floats(3), "Bias": floats(3)}, {}, {"Y": 1}),
    ("group_norm", {"X": floats(2, 6, 3, 4), "Scale": floats(6), "Bias": floats(6)}, {"groups": 3}, {"Y": 1}),
    ("lrn", {"X": floats(2, 6, 3, 4)}, {"n": 3, "alpha": 0.1}, {"Out": 1}),
    # reductions
    ("reduce_sum", {"X": X}, {"dim": [1], "keep_dim": True}),
    ("reduce_mean", {"X": X}, {"reduce_all": True}),
    ("reduce_prod", {"X": ids(4, 3, 4)}, {"dim": [-1]}),
    ("reduce_any", {"X": truths(3, 4)}, {"dim": [0]}),
    ("logsumexp", {"X": X}, {"axis": [1]}),
    ("p_norm", {"X": X}, {"porder": 3.0, "axis": 1}),
    ("p_norm", {"X": X}, {"porder": float("inf"), "axis": 1}),
    ("frobenius_norm", {"X": X}, {"dim": [1, 2]}),
    ("dist", {"X": X, "Y": floats(2, 3, 4)}, {"p": 2.0}),
    ("arg_max", {"X": X}, {"axis": 1, "dtype": 2}),
    ("arg_max", {"X": X}, {"axis": 0, "flatten": True, "dtype": 3}),
    ("cumsum", {"X": X}, {"axis": 1, "reverse": True, "exclusive": True}),
    ("cumsum", {"X": X}, {"flatten": True}),
    ("cumprod", {"X": X}, {"dim": 1}),
    ("cummax", {"x": X}, {"axis": 1}, {"out": 1, "indices": 1}),
    ("top_k_v2", {"X": X}, {"k": 2, "axis": 1, "largest": False}, {"Out": 1, "Indices": 1}),
    ("top_k_v2", {"X": X, "K": np.array([2], "int32")}, {"axis": -1}, {"Out": 1, "Indices": 1}),
    ("argsort", {"X": X}, {"axis": 1, "descending": True}, {"Out": 1, "Indices": 1}),
    ("kthvalue", {"X": X}, {"k": 2, "axis": 1}, {"Out": 1, "Indices": 1}),
    ("histogram", {"X": floats(30)}, {"bins": 5, "min": -1, "max": 1}),
    ("bincount", {"X": ids(6, 10)}, {"minlength": 3}),
    # shapes
    ("reshape2", {"X": X}, {"shape": [0, -1]}, {"Out": 1}),
    ("reshape2", {"X": X, "Shape": np.array([4, -1], "int32")}, {}, {"Out": 1}),
    ("reshape2", {"X": X, "ShapeTensor": [np.array([4], "int32"), np.array([6], "int32")]}, {"shape": [-1, -1]}, {"Out": 1}),
    ("reshape2", {"X": floats(1)}, {"shape": []}, {"Out": 1}),
    ("flatten_contiguous_range", {"X": X}, {"start_axis": 1, "stop_axis": 2}, {"Out": 1}),
    ("squeeze2", {"X": floats(1, 3, 1)}, {"axes": [0]}, {"Out": 1}),
    ("unsqueeze2", {"X": X}, {"axes": [0, -1]}, {"Out": 1}),
    ("split", {"X": floats(6, 4)}, {"num": 3, "axis": 0}, {"Out": 3}),
    ("split", {"X": floats(6, 4)}, {"sections": [1, -1, 2], "axis": 0}, {"Out": 3}),
    ("unbind", {"X": X}, {"axis": 1}, {"Out": 3}),
    ("tile", {"X": X}, {"repeat_times": [2, 1, 1, 3]}),
    ("tile", {"X": X, "RepeatTimes": np.array([2, 1, 3], "int32")}, {}),
    ("expand_v2", {"X": floats(3, 1)}, {"shape": [2, -1, 4]}),
    ("expand_v2", {"X": floats(3, 1), "Shape": np.array([2, -1, 4], "int32")}, {}),
    ("expand_as_v2", {"X": floats(3, 1), "Y": floats(2, 3, 4)}, {}),
    ("broadcast_tensors", {"X": [floats(3, 1), floats(2, 1, 4)]}, {}, {"Out": 2}),
    ("meshgrid", {"X": [floats(2), floats(3)]}, {}, {"Out": 2}),
    ("repeat_interleave", {"X": X}, {"Repeats": 2, "dim": 1}),
    ("flip", {"X": X}, {"axis": [0, 2]}),
    ("roll", {"X": X}, {"shifts": [1, -2], "axis": [1, 2], "dims": [1, 2]}),
    ("roll", {"X": X}, {"shifts": [5], "axis": [], "dims": []}),
    ("roll", {"X": X}, {"shifts": [5, -3], "axis": [0, 1], "dims": [0, 1]}),
    ("squared_l2_distance", {"X": X, "Y": floats(2, 3, 4)}, {}, {"sub_result": 1, "Out": 1}),
    ("prelu", {"X": IMAGE.astype("float64"), "Alpha": floats(1).astype("float64")}, {"mode": "all"}),
    ("slice", {"Input": X}, {"axes": [1, 2], "starts": [-2, 0], "ends": [10000, 2], "decrease_axis": []}),
    ("slice", {"Input": X}, {"axes": [1], "starts": [1], "ends": [2], "decrease_axis": [1]}),
    ("slice", {"Input": floats(3)}, {"axes": [0], "starts": [1], "ends": [2], "decrease_axis": [0]}),
    ("slice", {"Input": X, "StartsTensor": np.array([1], "int32"), "EndsTensor": np.array([3], "int32")}, {"axes": [1]}),
    ("strided_slice", {"Input": floats(8, 5)}, {"axes": [0, 1], "starts": [-1, 0], "ends": [-9, 4], "strides": [-2, 2]}),
    ("set_value", {"Input": floats(4, 5), "ValueTensor": floats(2)},
     {"axes": [0, 1], "starts": [0, 1], "ends": [4, 2], "steps": [2, 1], "decrease_axes": [1]}),
    ("set_value", {"Input": floats(4, 5)},
     {"axes": [0], "starts": [1], "ends": [3], "steps": [1], "fp32_values": [2.5], "shape": [1]}),
    ("tril_triu", {"X": floats(4, 5)}, {"diagonal": -1, "lower": True}),
    ("diag_v2", {"X": floats(3)}, {"offset": 1, "padding_value": 2.0}),
    ("diag_v2", {"X": floats(3, 4)}, {"offset": -1}),
    ("diag_embed", {"Input": floats(2, 3)}, {"offset": 1, "dim1": 0, "dim2": 2}),
    ("diagonal", {"Input": X}, {"offset": 1, "axis1": 1, "axis2": 2}),
    ("fill_diagonal", {"X": floats(3, 4)}, {"value": 2.0, "offset": 0}),
    # indices
    ("gather", {"X": X, "Index": ids(3, 2)}, {"axis": 1}),
    ("gather_nd", {"X": X, "Index": ids(2, 5, 2)}, {}),
    ("index_select", {"X": X, "Index": ids(3, 5)}, {"dim": 1}),
    ("index_sample", {"X": floats(2, 5), "Index": ids(5, 2, 3)}, {}),
    ("take_along_axis", {"Input": X, "Index": ids(3, 2, 2, 4)}, {"Axis": 1}),
    ("take_along_axis", {"Input": X, "Index": ids(3, 1, 2, 1)}, {"Axis": 1}),
    ("put_along_axis", {"Input": X, "Index": ids(3, 2, 1, 4), "Value": floats(2, 1, 4)}, {"Axis": 1, "Reduce": "assign"}),
    ("put_along_axis", {"Input": X, "Index": ids(3, 2, 1, 4), "Value": floats(2, 1, 4)}, {"Axis": 1, "Reduce": "add"}),
    ("scatter", {"X": floats(5, 2), "Ids": np.array([3, 1]), "Updates": floats(2, 2)}, {"overwrite": True}),
    ("scatter", {"X": floats(5, 2), "Ids": np.array([3, 3]), "Updates": floats(2, 2)}, {"overwrite": False}),
    ("scatter_nd_add", {"X": floats(5, 2), "Index": ids(5, 4, 1), "Updates": floats(4, 2)}, {}),
    ("index_add", {"X": floats(5, 2), "Index": ids(5, 3), "AddValue": floats(3, 2)}, {"axis": 0}),
    ("lookup_table_v2", {"W": floats(9, 4), "Ids": ids(9, 2, 3)}, {"padding_idx": 2}),
    ("one_hot_v2", {"X": ids(5, 2, 3)}, {"depth": 5, "dtype": 5}),
    ("one_hot_v2", {"X": ids(5, 2, 3), "depth_tensor": np.array([5], "int32")}, {"depth": 5, "dtype": 5}),
    ("where", {"Condition": truths(2, 3), "X": floats(2, 3), "Y": floats(2, 3)}, {}),
    ("where_index", {"Condition": truths(3, 4)}, {}),
    ("masked_select", {"X": floats(3, 4), "Mask": truths(3, 4)}, {}),
    ("unique", {"X": ids(4, 9)}, {"dtype": 3, "is_sorted": True, "return_index": True, "return_inverse": True,
                                  "return_counts": True, "axis": []}, {"Out": 1, "Indices": 1, "Index": 1, "Counts": 1}),
    ("unique_consecutive", {"X": ids(2, 9)}, {"return_inverse": True, "return_counts": True, "axis": [], "dtype": 3},
     {"Out": 1, "Index": 1, "Counts": 1}),
    ("searchsorted", {"SortedSequence": np.sort(floats(6)), "Values": floats(2, 3)}, {}),
    ("multiplex", {"Ids": ids(2, 3, 1).astype("int32"), "X": [floats(3, 2), floats(3, 2)]}, {}),
    # what comes from nowhere
    ("range", {"Start": np.array([1]), "End": np.array([9]), "Step": np.array([3])}, {}),
    ("linspace", {"Start": np.array([1], "f4"), "Stop": np.array([2], "f4"), "Num": np.array([5], "int32")}, {"dtype": 5}),
    ("fill_constant", {"ShapeTensor": np.array([2, 3], "int32")}, {"dtype": 5, "value": 1.5}),
    ("fill_any_like", {"X": X}, {"value": 2.0, "dtype": 3}),
    ("fill_constant_batch_size_like", {"Input": X}, {"shape": [-1, 5], "dtype": 5, "value": 2.0}),
    ("shape", {"Input": X}, {}),
    ("size", {"Input": X}, {}),
    # boxes
    ("iou_similarity", {"X": np.sort(positive(3, 4)), "Y": np.sort(positive(2, 4))}, {"box_normalized": True}),
    (
        "yolo_box",
        {"X": floats(2, 2 * 7, 3, 4), "ImgSize": np.array([[96, 128], [64, 64]], "int32")},
        {"class_num": 2, "anchors": [10, 13, 16, 30], "conf_thresh": 0.4, "downsample_ratio": 32},
        {"Boxes": 1, "Scores": 1},
    ),
    (
        "roi_align",
        {"X": IMAGE[:1], "ROIs": np.array([[0, 0, 3, 4], [1.5, 1, 5, 6]], "f4"), "RoisNum": np.array([2], "int32")},
        {"pooled_height": 2, "pooled_width": 3, "sampling_ratio": 2, "aligned": True, "spatial_scale": 1.0},
    ),
    # losses
    ("softmax_with_cross_entropy", {"Logits": X, "Label": ids(4, 2, 3, 1)}, {"axis": -1}, {"Softmax": 1, "Loss": 1}),
    ("softmax_with_cross_entropy", {"Logits": X, "Label": ids(3, 2, 1, 4)}, {"axis": 1, "ignore_index": 1},
     {"Softmax": 1, "Loss": 1}),
    ("bce_loss", {"X": positive(3, 4) * 0.9, "Label": positive(3, 4)}, {}),
    ("sigmoid_cross_entropy_with_logits", {"X": X, "Label": positive(2, 3, 4)}, {"normalize": True}),
    ("huber_loss", {"X": floats(3, 1), "Y": floats(3, 1)}, {"delta": 0.5}, {"Residual": 1, "Out": 1}),
    ("kldiv_loss", {"X": floats(3, 4), "Target": positive(3, 4)}, {"reduction": "batchmean"}),
    ("log_loss", {"Predicted": positive(3, 1) * 0.9, "Labels": positive(3, 1)}, {"epsilon": 1e-4}),
    ("nll_loss", {"X": floats(3, 4), "Label": ids(4, 3), "Weight": positive(4)}, {"reduction": "mean"},
     {"Out": 1, "Total_weight": 1}),
    ("label_smooth", {"X": positive(3, 4)}, {"epsilon": 0.1}),
    ("accuracy", {"Out": floats(3, 2), "Indices": ids(4, 3, 2), "Label": ids(4, 3, 1)}, {},
     {"Accuracy": 1, "Correct": 1, "Total": 1}),
    # fused
    (
        "multihead_matmul",
        {"Input": floats(2, 5, 8), "W": floats(8, 3, 8), "Bias": floats(3, 8), "BiasQK": floats(2, 2, 5, 5)},
        {"head_number": 2, "alpha": 0.5},
    ),
    ("skip_layernorm", {"X": floats(2, 3, 8), "Y": floats(2, 3, 8), "Scale": floats(8), "Bias": floats(8)}, {"begin_norm_axis": 2}),
    ("fused_elemwise_activation", {"X": X, "Y": floats(4)}, {"functor_list": ["elementwise_add", "relu"], "axis": -1}, {"Out": 1}),
    # proposals
    (
        "generate_proposals_v2",
        {
            "Scores": RNG.permutation(60).reshape(1, 3, 4, 5).astype("float32") / 60,
            "BboxDeltas": floats(1, 12, 4, 5) * 0.3,
            "ImShape": np.array([[60, 80]], "float32"),
            "Anchors": (np.array([0, 0, 15, 15]) + RNG.uniform(0, 40, (4, 5, 3, 1))).astype("float32"),
            "Variances": np.ones((4, 5, 3, 4), "float32"),
        },
        {"pre_nms_topN": 30, "post_nms_topN": 10, "nms_thresh": 0.5, "min_size": 2.0, "eta": 1.0, "pixel_offset": False},
        {"RpnRois": 1, "RpnRoiProbs": 1, "RpnRoisNum": 1},
    ),
    (
        "distribute_fpn_proposals",
        {"FpnRois": np.cumsum(positive(9, 4) * 300, 1).astype("float32"), "RoisNum": np.array([9], "int32")},
        {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 224, "pixel_offset": False},
        {"MultiFpnRois": 4, "RestoreIndex": 1, "MultiLevelRoIsNum": 4},
    ),
    (
        "matrix_nms",
        {
            "BBoxes": (np.array([0, 0, 6, 6]) + RNG.uniform(0, 9, (1, 12, 1))).astype("float32"),
            "Scores": RNG.permutation(36).reshape(1, 3, 12).astype("float32") / 36,
        },
        {"score_threshold": 0.1, "post_threshold": 0.05, "nms_top_k": 8, "keep_top_k": 6, "use_gaussian": False},
        {"Out": 1, "Index": 1},
    ),
    ("box_coder", {"PriorBox": np.cumsum(positive(5, 4), 1), "PriorBoxVar": positive(5, 4), "TargetBox": floats(2, 5, 4)},
     {"code_type": "decode_center_size", "box_normalized": False}),
]  # fmt: skip


def named(row: Row) -> str:
    return f"{row[0]}-{'-'.join(f'{k}={v}' for k, v in row[2].items())}"[:90]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_operators(row: Row) -> None:
    type, inputs, attrs, *outputs = row
    check(OneOperator(type, inputs, attrs, outputs[0] if outputs else {}), rtol=1e-5)


OPEN = [row for row in ROWS if "Shape" not in row[1] and "ShapeTensor" not in row[1] and row[0] not in {
    # They need the sizes: what they make of them is known only then.
    "set_value", "fill_diagonal", "squeeze2", "cumprod", "affine_grid", "kron", "einsum", "cross", "diag_v2", "diag_embed",
    "unique_consecutive", "multi_dot", "tril_triu", "diagonal", "equal_all",
}]  # fmt: skip


@pytest.mark.parametrize("row", OPEN, ids=named)
def test_a_batch_that_is_not_declared(row: Row) -> None:
    """The first size of the first input is open: other renderings, the same numbers."""
    type, inputs, attrs, *outputs = row
    slot = next(iter(inputs), "")
    items = inputs[slot] if isinstance(inputs[slot], list) else [inputs[slot]]
    if any(np.ndim(item) < 2 for item in items) or attrs.get("axis") == 0 or attrs.get("axes", [1])[0] == 0:
        pytest.skip("the axis that it works on")
    one = OneOperator(type, inputs, attrs, outputs[0] if outputs else {}, open=[slot])
    blockers = one.export().blockers
    if blockers:
        assert "known only at run time" in blockers[0].reason or "computed" in blockers[0].reason, blockers
        return
    check(one, rtol=1e-5)


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"])
@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
def test_recurrent_networks(mode: str, both_ways: bool, lengths: bool) -> None:
    directions, gates = 1 + both_ways, {"LSTM": 4, "GRU": 3}.get(mode, 1)
    layers, size, width = 2, 3, 5
    weights: list[Any] = []
    for layer in range(layers):
        for _ in range(directions):
            weights += [floats(gates * size, width if layer == 0 else size * directions), floats(gates * size, size)]
    weights += [floats(gates * size) for _ in range(2 * layers * directions)]
    states = [floats(layers * directions, 2, size) for _ in range(2 if mode == "LSTM" else 1)]
    inputs: dict[str, Any] = {"Input": floats(6, 2, width), "PreState": states, "WeightList": weights}
    if lengths:
        inputs["SequenceLength"] = np.array([6, 4], "int32")
    attrs = {
        "mode": mode,
        "is_bidirec": both_ways,
        "hidden_size": size,
        "input_size": width,
        "num_layers": layers,
        "is_test": True,
    }
    check(OneOperator("rnn", inputs, attrs, {"Out": 1, "State": len(states)}), rtol=1e-5)


@pytest.mark.parametrize("type", ["multiclass_nms2", "multiclass_nms3"])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("keep", [-1, 4])
@pytest.mark.parametrize("top", [-1, 6])
def test_suppression(type: str, normalized: bool, keep: int, top: int) -> None:
    corner = RNG.uniform(0, 8, (2, 20, 2))
    boxes = np.concatenate([corner, corner + RNG.uniform(1, 6, (2, 20, 2))], -1).astype("float32")
    scores = RNG.permutation(2 * 3 * 20).reshape(2, 3, 20).astype("float32") / 120
    attrs = {
        "score_threshold": 0.1, "nms_top_k": top, "nms_threshold": 0.4, "keep_top_k": keep, "normalized": normalized,
        "background_label": 0,
    }  # fmt: skip
    outputs = {"Out": 1, "Index": 1} | ({"NmsRoisNum": 1} if type == "multiclass_nms3" else {})
    check(OneOperator(type, {"BBoxes": boxes, "Scores": scores}, attrs, outputs))


def test_boxes_that_end_before_they_start_are_empty() -> None:
    boxes = np.array([[[5, 5, 1, 1], [5, 5, 1, 1], [0, 0, 4, 4], [0, 0, 4, 4.1]]], "float32")
    scores = np.array([[[0.9, 0.8, 0.7, 0.6]]], "float32")
    attrs = {"score_threshold": 0.1, "nms_top_k": -1, "nms_threshold": 0.4, "keep_top_k": -1, "background_label": -1}
    check(OneOperator("multiclass_nms2", {"BBoxes": boxes, "Scores": scores}, attrs, {"Out": 1, "Index": 1}))


def test_nothing_found_is_a_row_of_its_own_in_multiclass_nms() -> None:
    attrs = {"score_threshold": 2.0, "nms_top_k": 5, "keep_top_k": 5}
    check(OneOperator("multiclass_nms", {"BBoxes": positive(1, 4, 4), "Scores": positive(1, 2, 4)}, attrs))


@pytest.mark.parametrize(
    "type", ["fake_quantize_dequantize_moving_average_abs_max", "fake_channel_wise_quantize_dequantize_abs_max"]
)
def test_fake_quantization_becomes_nodes_of_onnx(type: str) -> None:
    moving = "moving" in type
    inputs = {"X": floats(4, 3, 2, 2), **({"InScale": np.array([0.8], "float32")} if moving else {})}
    attrs: dict[str, Any] = {"bit_length": 8, **({"is_test": True} if moving else {"quant_axis": 0})}
    one = OneOperator(type, inputs, attrs, {"Out": 1}, constant=["InScale"] if moving else ["X"])
    kinds = {node.kind for node in one.export().graph.nodes}
    assert "DequantizeLinear" in kinds and ("QuantizeLinear" in kinds) is moving
    check(one, rtol=1e-5)
