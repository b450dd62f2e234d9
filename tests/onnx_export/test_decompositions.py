"""Operators that ONNX lacks in older opsets or for sizes known only at run time, put together from others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx_export.support import OneOperator, check, require_onnx, run_onnx

require_onnx()

RNG = np.random.default_rng(7)


def floats(*shape: int) -> Any:
    return RNG.uniform(-1, 1, shape).astype("float32")


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("sizes", [(5, 4), (3, 5, 4)])
def test_samples_of_a_grid(sizes: tuple[int, ...], mode: str, padding: str, corners: bool, opset: int) -> None:
    x, grid = floats(2, 3, *sizes), floats(2, *(n + 1 for n in sizes), len(sizes)) * 1.7
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    check(OneOperator("grid_sampler", {"X": x, "Grid": grid}, attrs), opset, rtol=1e-5)


def test_deformable_convolutions_before_opset_16() -> None:
    inputs = {"Input": floats(2, 4, 6, 5), "Offset": floats(2, 18, 6, 5) * 2, "Mask": floats(2, 9, 6, 5)}
    one = OneOperator("deformable_conv", {**inputs, "Filter": floats(3, 4, 3, 3)}, {"paddings": [1, 1]})
    check(one, 13, rtol=1e-5)


@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
@pytest.mark.parametrize("type", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_operations_on_bits(type: str, dtype: str, opset: int) -> None:
    ends = np.iinfo(dtype)
    x, y = (RNG.integers(ends.min, ends.max, 9, dtype=dtype, endpoint=True) for _ in range(2))
    x[:2], y[:2] = [ends.min, ends.max], [ends.max, ends.min]
    check(OneOperator(type, {"X": x, "Y": y}), opset)


@pytest.mark.parametrize("counts", [[2, 4], [3, 3], [7, 1]])
def test_places_of_maxima_in_windows_of_different_sizes(counts: list[int]) -> None:
    attrs = {"ksize": counts, "adaptive": True}
    check(OneOperator("max_pool2d_with_index", {"X": floats(2, 3, 7, 9)}, attrs, {"Out": 1, "Mask": 1}))


SIZES_AT_RUN_TIME: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, list[int]]]] = [
    ("unfold", {"X": floats(2, 3, 7, 6)},
     {"kernel_sizes": [3, 2], "strides": [2, 1], "paddings": [1, 0, 2, 1], "dilations": [1, 2]}, {"X": [-1, 3, -1, -1]}),
    ("conv2d_transpose", {"Input": floats(2, 3, 5, 4), "Filter": floats(3, 4, 3, 2)},
     {"strides": [2, 3], "paddings": [1, 1], "output_size": [10, 11]}, {"Input": [-1, 3, -1, -1]}),
    ("squeeze2", {"X": floats(1, 3, 1, 2)}, {"axes": []}, {"X": [1, -1, -1, 2]}),
    ("im2sequence", {"X": floats(1, 3, 7, 6)}, {"kernels": [3, 2], "strides": [2, 1], "paddings": [1, 0, 2, 1]},
     {"X": [1, 3, -1, -1]}),
]  # fmt: skip


@pytest.mark.parametrize("row", SIZES_AT_RUN_TIME, ids=lambda row: row[0])
def test_sizes_known_only_at_run_time(row: tuple[str, Any, Any, Any]) -> None:
    type, inputs, attrs, declared = row
    outputs = {"Out": 1} if type == "squeeze2" else {}
    check(OneOperator(type, inputs, attrs, outputs, declared=declared), rtol=1e-5)


@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_one_of_three_values(chosen: int) -> None:
    inputs = {"X": [floats(2, 3) for _ in range(3)], "Mask": np.array([chosen], "int32")}
    check(OneOperator("select_input", inputs))


@pytest.mark.parametrize("mask", [[1, 0, 1], [0, 0, 0], [1, 1, 1]])
def test_rows_parted_and_joined_by_a_mask(mask: list[int]) -> None:
    chosen = np.array(mask, bool)[:, None]
    check(OneOperator("split_lod_tensor", {"X": floats(3, 2), "Mask": chosen}, {}, {"OutTrue": 1, "OutFalse": 1}))
    branches = {"InTrue": floats(3, 2), "InFalse": floats(4, 2)}
    check(OneOperator("merge_lod_tensor", {"X": floats(3, 2), "Mask": chosen, **branches}, {"level": 0}))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_an_axis_that_is_computed(axis: int) -> None:
    inputs = {"X": floats(3, 4, 5), "Index": np.array([2, 0]), "Axis": np.array([axis], "int32")}
    check(OneOperator("gather", inputs))


@pytest.mark.parametrize("shift", [0, 2, -7])
def test_shifts_that_are_computed(shift: int) -> None:
    inputs = {"X": floats(3, 4), "ShiftsTensor": np.array([shift])}
    check(OneOperator("roll", inputs, {"axis": [1], "shifts": [0]}))


@pytest.mark.parametrize(
    ("type", "attrs", "outputs"),
    [
        ("group_norm", {"groups": 2}, {"Y": 1, "Mean": 1, "Variance": 1}),
        ("instance_norm", {}, {"Y": 1, "SavedMean": 1, "SavedVariance": 1}),
    ],
)
def test_statistics_of_normalization(type: str, attrs: dict[str, Any], outputs: dict[str, int]) -> None:
    inputs = {"X": floats(2, 4, 3, 5), "Scale": floats(4), "Bias": floats(4)}
    check(OneOperator(type, inputs, attrs, outputs), rtol=1e-5)


def test_a_table_of_bytes_is_written_as_floats() -> None:
    table = np.concatenate([np.array([[-1, 2], [0, 1]], "f4"), np.array([[7], [9]], "f4")], 1)
    inputs = {"W": table, "Ids": np.array([[[1], [0]], [[1], [1]]])}
    check(OneOperator("lookup_table_dequant", inputs, constant=["W"]), rtol=1e-5)
    (blocker,) = OneOperator("lookup_table_dequant", inputs).export().blockers
    assert "a table that is computed" in blocker.reason


def test_normal_numbers_without_spread_are_their_mean() -> None:
    """ONNX Runtime aborts the process on them."""
    one = OneOperator("gaussian_random", {}, {"shape": [3], "mean": 2.0, "std": 0.0, "dtype": 5})
    assert run_onnx(one.export(), {}, one.fetches)[0].tolist() == [2, 2, 2]


@pytest.mark.parametrize("eta", [0.9, 0.5])
@pytest.mark.parametrize("top", [-1, 7])
@pytest.mark.parametrize("normalized", [True, False])
def test_suppression_by_a_threshold_that_falls(normalized: bool, top: int, eta: float) -> None:
    corner = RNG.uniform(0, 8, (2, 20, 2))
    boxes = np.concatenate([corner, corner + RNG.uniform(2, 6, (2, 20, 2))], -1).astype("float32")
    scores = RNG.permutation(2 * 3 * 20).reshape(2, 3, 20).astype("float32") / 120
    attrs = {
        "score_threshold": 0.1, "nms_top_k": top, "nms_threshold": 0.7, "keep_top_k": 9, "normalized": normalized,
        "background_label": 0, "nms_eta": eta,
    }  # fmt: skip
    outputs = {"Out": 1, "Index": 1, "NmsRoisNum": 1}
    check(OneOperator("multiclass_nms3", {"BBoxes": boxes, "Scores": scores}, attrs, outputs))


def test_matrix_nms_of_two_images() -> None:
    corner = RNG.uniform(0, 8, (2, 9, 2))
    boxes = np.concatenate([corner, corner + RNG.uniform(2, 6, (2, 9, 2))], -1).astype("float32")
    scores = RNG.permutation(2 * 3 * 9).reshape(2, 3, 9).astype("float32") / 54
    attrs = {"score_threshold": 0.1, "post_threshold": 0.05, "nms_top_k": 8, "keep_top_k": 6}
    outputs = {"Out": 1, "Index": 1, "RoisNum": 1}
    check(OneOperator("matrix_nms", {"BBoxes": boxes, "Scores": scores}, attrs, outputs), rtol=1e-5)


LENGTHS = np.array([[4], [0], [6]])


@pytest.mark.parametrize("labels", [False, True])
def test_best_paths_of_padded_sequences(labels: bool) -> None:
    inputs = {"Emission": floats(3, 6, 5), "Transition": floats(7, 5), "Length": LENGTHS}
    if labels:
        inputs["Label"] = RNG.integers(0, 5, (3, 6))
    check(OneOperator("crf_decoding", inputs))


@pytest.mark.parametrize("merge", [False, True])
def test_alignments_of_padded_sequences(merge: bool) -> None:
    inputs = {"Input": RNG.integers(0, 3, (3, 6)).astype("int32"), "InputLength": LENGTHS.astype("int32")}
    attrs = {"blank": 1, "merge_repeated": merge, "padding_value": -7}
    check(OneOperator("ctc_align", inputs, attrs, {"Output": 1, "OutputLength": 1}))


def test_rows_of_several_padded_sequences() -> None:
    one = OneOperator("sequence_unpad", {"X": floats(3, 6, 2), "Length": LENGTHS[:, 0]})
    assert not one.export().single_sequence
    check(one)


def test_rows_of_several_padded_sequences_stay_several() -> None:
    one = OneOperator("sequence_unpad", {"X": floats(3, 6, 2), "Length": LENGTHS[:, 0]})
    block = one.program.global_block()
    block.create_var(name="reversed")
    block.append_op(type="sequence_reverse", inputs={"X": one.fetches}, outputs={"Y": ["reversed"]})
    one.fetches.append("reversed")
    check(one)


@pytest.mark.parametrize("repeats", [[2, 0, 3], [1, 1, 1]])
def test_repeats_that_differ(repeats: list[int]) -> None:
    inputs = {"X": floats(2, 3, 4), "RepeatsTensor": np.array(repeats, "int32")}
    check(OneOperator("repeat_interleave", inputs, {"Repeats": 0, "dim": 1}))


def test_an_identity_that_is_too_large_for_a_constant() -> None:
    one = OneOperator("eye", {}, {"num_rows": 1200, "num_columns": 1100, "dtype": 5})
    assert max(array.size for array in one.export().graph.shared.initializers.values()) <= 1200
    check(one)


def test_an_axis_that_is_named_twice_is_cut_by_the_later_range() -> None:
    attrs = {"axes": [2, 1, 2], "starts": [2, 1, 0], "ends": [3, 3, 4], "strides": [1, 1, 1]}
    check(OneOperator("strided_slice", {"Input": floats(1, 5, 6)}, attrs))


def test_an_adaptive_maximum_whose_windows_would_be_more() -> None:
    attrs = {"pooling_type": "max", "ksize": [4, 1], "strides": [7, 14], "paddings": [3, 9]}
    check(OneOperator("pool2d", {"X": floats(1, 2, 22, 86)}, {**attrs, "adaptive": True, "padding_algorithm": "SAME"}))


def test_a_shape_that_an_input_gives_beside_another_in_the_attribute() -> None:
    check(OneOperator("reshape", {"X": np.float32(3.5), "Shape": np.array([1, 1], "int32")}, {"shape": [1]}))


def test_a_longest_sequence_of_several_numbers_is_the_first() -> None:
    inputs = {"X": RNG.integers(0, 5, (2, 3)), "MaxLenTensor": np.array([4, 9], "int32")}
    check(OneOperator("sequence_mask", inputs, {"out_dtype": 3}, {"Y": 1}))


def test_levels_of_regions_of_several_images() -> None:
    corners = np.sort(floats(9, 2, 2) * 300 + 200, axis=1).reshape(9, 4)
    attrs = {"min_level": 2, "max_level": 4, "refer_level": 3, "refer_scale": 60, "pixel_offset": False}
    one = OneOperator(
        "distribute_fpn_proposals", {"FpnRois": corners, "RoisNum": np.array([4, 0, 5], "int32")}, attrs,
        {"MultiFpnRois": 3, "RestoreIndex": 1, "MultiLevelRoIsNum": 3},
    )  # fmt: skip
    check(one)


def test_the_old_shape_of_a_reshape() -> None:
    one = OneOperator("flatten2", {"X": floats(2, 3)}, {"axis": 1}, {"Out": 1, "XShape": 1})
    _, old = run_onnx(one.export(), one.feed, one.fetches)
    assert (old.dtype, old.shape) == (np.dtype(np.float32), (0, 2, 3))


def test_a_single_number_flattened() -> None:
    check(OneOperator("flatten2", {"X": np.float32(2.5)}, {"axis": 0}, {"Out": 1}))
