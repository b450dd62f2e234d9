"""Detection: what the golden cases do not say. Numbers without a formula beside them were computed by Paddle 1.8.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.ops.detection.polygons import polygon_iou
from fluidtool.ops.detection.sampling import reservoir
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor
from tests.support.operators import OneOp, check_gradient, lod_tensor, run_op

NMS = {"background_label": -1, "score_threshold": 0.0, "nms_top_k": -1, "nms_threshold": 0.3, "keep_top_k": -1}
PROPOSALS = {"pre_nms_topN": 9, "post_nms_topN": 9, "nms_thresh": 0.5, "min_size": 1.0, "eta": 1.0}


def floats(*rows: Any) -> Any:
    return np.array(rows, np.float32)


def value(tensor: Any) -> Any:
    return tensor.numpy()


# ---------------------------------------------------------------- gradients
def test_gradients_of_prroi_pool_by_map_and_by_corners_of_regions() -> None:
    rng = np.random.default_rng(1)
    rois = np.array([[0.3, 0.4, 3.2, 2.9], [1.1, 0.2, 2.7, 3.3]])
    inputs = {"X": rng.normal(size=(2, 1, 4, 5)), "ROIs": lod_tensor(rois, [[1, 1]])}
    attrs = {"pooled_height": 2, "pooled_width": 2, "spatial_scale": 0.9}
    check_gradient("prroi_pool", inputs, wrt=["X", "ROIs"], attrs=attrs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("part", [[2, 2], [2, 3]])
def test_gradients_of_deformable_psroi_pooling_by_map_and_by_offsets(part: list[int]) -> None:
    rng = np.random.default_rng(2)
    inputs = {
        "Input": rng.normal(size=(2, 4, 4, 5)),
        "ROIs": lod_tensor(np.array([[0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 4.0, 4.0]]), [[1, 1]]),
        "Trans": rng.uniform(-0.2, 0.2, size=(2, 2, *part)),
    }
    attrs = {
        "no_trans": False,
        "spatial_scale": 1.0,
        "output_dim": 1,
        "group_size": [2, 2],
        "pooled_height": 2,
        "pooled_width": 3,
        "part_size": part,
        "sample_per_part": 2,
        "trans_std": 0.3,
    }
    check_gradient(
        "deformable_psroi_pooling", inputs, wrt=["Input", "Trans"], attrs=attrs, loss=["Output"], rtol=1e-4, atol=1e-6
    )


# ---------------------------------------------------------------- corners
def test_yolo_box_takes_the_height_of_the_grid_for_its_width() -> None:
    attrs = {"class_num": 1, "anchors": [16, 8], "downsample_ratio": 32}
    inputs = {"X": np.zeros((1, 6, 1, 2), np.float32), "ImgSize": np.array([[32, 64]], np.int32)}
    boxes = value(run_op("yolo_box", inputs, attrs)["Boxes"])
    np.testing.assert_array_equal(boxes, [[[16, 12, 48, 20], [80, 12, 63, 20]]])


def test_suppression_lowers_an_adaptive_threshold_with_every_kept_box() -> None:
    boxes = floats([0, 0, 10, 10], [0, 0, 10, 7.5], [0, 20, 10, 30], [0, 20, 10, 26.5])[None]
    scores = floats([0.9, 0.8, 0.7, 0.6])[None]
    kept = []
    for eta in (1.0, 0.9):
        attrs = {**NMS, "nms_threshold": 0.8, "nms_eta": eta}
        kept.append(run_op("multiclass_nms", {"BBoxes": boxes, "Scores": scores}, attrs)["Out"].shape()[0])
    assert kept == [4, 2]


@pytest.mark.parametrize("engine", ["numpy", "auto"])
@pytest.mark.parametrize(("first", "kept"), [([2, np.nan, 1, 1], [0, 1]), ([0, 0, 2, 2], [0])])
def test_suppression_compares_nan_as_paddle_does(engine: str, first: list[float], kept: list[int]) -> None:
    second = [0, 0, 2, 2] if kept == [0, 1] else [2, np.nan, 1, 1]
    one = OneOp("multiclass_nms2", {"BBoxes": floats(first, second)[None], "Scores": floats([0.9, 0.8])[None]}, NMS)
    scope = Scope()
    for name, value in one.feed.items():
        one.program.global_block().vars[name].persistable = True
        scope.var(name).value = LoDTensor(value)
    (index,) = Executor(engine=engine).run(one.program, {}, one.outputs["Index"], scope)
    assert index.numpy().reshape(-1).tolist() == kept


@pytest.mark.parametrize(
    ("nms_top_k", "keep_top_k", "kept"),
    [(-1, -1, [4, 1, 0, 5, 3, 2, 6]), (3, -1, [4, 1, 3]), (-1, 3, [4, 1, 3])],
)
def test_matrix_nms_orders_equal_scores_and_nan_as_paddle_does(
    nms_top_k: int, keep_top_k: int, kept: list[int]
) -> None:
    boxes = floats(*([3 * i, 0, 3 * i + 1, 1] for i in range(7)))[None]
    attrs = {
        "background_label": -1,
        "score_threshold": 0.1,
        "post_threshold": 0.0,
        "nms_top_k": nms_top_k,
        "keep_top_k": keep_top_k,
    }
    scores = floats([0.5, 0.5, 0.25, 0.5, 0.75, 0.5, np.nan])[None]
    out = run_op("matrix_nms", {"BBoxes": boxes, "Scores": scores}, attrs)
    assert value(out["Index"]).reshape(-1).tolist() == kept  # 1.8.5's and 2.6.2's


def test_matrix_nms_drops_nan_only_as_the_best_score() -> None:
    attrs = {"background_label": -1, "score_threshold": 0.1, "post_threshold": 0.0, "nms_top_k": 1, "keep_top_k": -1}
    inputs = {"BBoxes": floats([0, 0, 1, 1], [2, 2, 3, 3])[None], "Scores": floats([np.nan, 0.5])[None]}
    assert value(run_op("matrix_nms", inputs, attrs)["Index"]).size == 0


def test_suppression_of_quadrangles_goes_by_their_true_overlap() -> None:
    boxes = floats([0, 0, 2, 0, 2, 2, 0, 2], [1, 1, 3, 1, 3, 3, 1, 3], [1, 0, 2, 1, 1, 2, 0, 1])[None]
    out = run_op("multiclass_nms", {"BBoxes": boxes, "Scores": floats([0.9, 0.8, 0.7])[None]}, NMS)["Out"]
    np.testing.assert_array_equal(value(out)[:, 2:], boxes[0, :2])
    assert out.lod() == [[0, 2]]


def test_overlap_of_polygons_that_are_not_convex() -> None:
    notched = np.array([[0.0, 0, 2, 0, 2, 2, 1, 1, 0, 2]])  # a square of 4 without the triangle of 1 at its top
    square = np.array([[0.0, 1, 2, 1, 2, 3, 1, 3, 0, 3]])
    np.testing.assert_allclose(polygon_iou(np, notched, square), [1 / (3 + 4 - 1)])
    np.testing.assert_allclose(polygon_iou(np, notched, notched), [1.0])
    np.testing.assert_array_equal(polygon_iou(np, notched, square + 5), [0.0])


def test_no_proposal_is_left_when_all_are_too_small() -> None:
    inputs = {
        "Scores": np.ones((1, 1, 1, 1), np.float32),
        "BboxDeltas": np.zeros((1, 4, 1, 1), np.float32),
        "ImInfo": floats([50, 50, 1]),
        "Anchors": floats([2, 2, 9, 9]).reshape(1, 1, 1, 4),
        "Variances": np.ones((1, 1, 1, 4), np.float32),
    }
    assert value(run_op("generate_proposals", inputs, PROPOSALS)["RpnRois"]).tolist() == [[2, 2, 9, 9]]
    assert run_op("generate_proposals", inputs, {**PROPOSALS, "min_size": 20.0})["RpnRois"].shape() == [0, 4]


def test_the_size_of_a_single_image_may_come_without_its_dimension() -> None:
    def inputs(images: int) -> dict[str, Any]:
        return {
            "Scores": np.ones((images, 1, 1, 1), np.float32),
            "BboxDeltas": np.zeros((images, 4, 1, 1), np.float32),
            "ImInfo": np.float32([50, 50, 1]),
            "Anchors": floats([2, 2, 9, 9]).reshape(1, 1, 1, 4),
            "Variances": np.ones((1, 1, 1, 4), np.float32),
        }

    assert value(run_op("generate_proposals", inputs(1), PROPOSALS)["RpnRois"]).tolist() == [[2, 2, 9, 9]]
    with pytest.raises(OperatorError, match=r"ImInfo must be \(2, 3\), found shape \(3,\)"):
        run_op("generate_proposals", inputs(2), PROPOSALS)


def test_of_equal_scores_the_later_proposal_is_collected_first() -> None:
    rois = lod_tensor(floats([0, 0, 1, 1], [0, 0, 2, 2], [0, 0, 3, 3]), [[2, 1]])
    scores = lod_tensor(floats([0.5], [0.5], [0.5]), [[2, 1]])
    out = run_op(
        "collect_fpn_proposals", {"MultiLevelRois": [rois], "MultiLevelScores": [scores]}, {"post_nms_topN": 2}
    )
    assert value(out["FpnRois"])[:, 2].tolist() == [2, 3]
    assert out["FpnRois"].lod() == [[0, 1, 2]]


def test_a_proposal_a_hair_below_the_size_of_a_level_belongs_to_it() -> None:
    rois = lod_tensor(floats([0, 0, 223, 223], [0, 0, 222.99993, 222.99993], [0, 0, 222.9, 222.9]), [[3]])
    attrs = {"min_level": 3, "max_level": 4, "refer_level": 4, "refer_scale": 224}
    out = run_op("distribute_fpn_proposals", {"FpnRois": rois}, attrs, outputs={"MultiFpnRois": 2})
    assert [len(value(level)) for level in out["MultiFpnRois"]] == [1, 2]
    assert value(out["RestoreIndex"]).tolist() == [[1], [2], [0]]


def test_a_cascade_takes_the_first_proposals_for_the_ground_truth_and_keeps_all() -> None:
    proposals = floats([0, 0, 10, 10], [20, 20, 30, 30], [0, 0, 9, 9], [40, 40, 44, 44], [21, 21, 30, 30])
    inputs = {
        "RpnRois": lod_tensor(proposals, [[5]]),
        "GtClasses": lod_tensor(np.array([[1], [2]], np.int32), [[2]]),
        "IsCrowd": lod_tensor(np.zeros((2, 1), np.int32), [[2]]),
        "GtBoxes": lod_tensor(floats([1, 1, 10, 10], [20, 20, 31, 31]), [[2]]),
        "ImInfo": floats([100, 100, 2]),
    }
    attrs = {
        "batch_size_per_im": 8,
        "fg_fraction": 0.5,
        "fg_thresh": 0.5,
        "bg_thresh_hi": 0.5,
        "bg_thresh_lo": 0.0,
        "bbox_reg_weights": [1.0, 1.0, 1.0, 1.0],
        "class_nums": 3,
        "use_random": False,
        "is_cascade_rcnn": True,
    }
    out = run_op("generate_proposal_labels", inputs, attrs)
    expected = floats([0, 0, 20, 20], [40, 40, 60, 60], [0, 0, 9, 9], [40, 40, 44, 44], [21, 21, 30, 30])
    np.testing.assert_array_equal(value(out["Rois"]), expected)
    assert value(out["LabelsInt32"]).ravel().tolist() == [1, 2, 0, 0, 0]
    np.testing.assert_allclose(
        value(out["BboxTargets"])[1, 8:], [1 / 22, 1 / 22, np.log(12 / 11), np.log(12 / 11)], rtol=1e-6
    )


def test_random_anchors_are_as_many_as_asked_and_all_eligible() -> None:
    anchors = np.arange(40, dtype=np.float32)[:, None] * 20 + floats(0, 0, 10, 10)
    inputs = {
        "Anchor": anchors,
        "GtBoxes": lod_tensor(anchors[:12], [[12]]),
        "IsCrowd": lod_tensor(np.zeros(12, np.int32), [[12]]),
        "ImInfo": floats([900, 900, 1]),
    }
    attrs = {"rpn_batch_size_per_im": 16, "rpn_straddle_thresh": -1.0, "rpn_fg_fraction": 0.5, "use_random": True}
    out = run_op("rpn_target_assign", inputs, attrs)
    score, label = value(out["ScoreIndex"]), value(out["TargetLabel"]).ravel()
    assert label.tolist() == [1] * 8 + [0] * 8
    assert len(set(score)) == 16 and score[:8].max() < 12 <= score[8:].min()
    assert score[:8].tolist() != list(range(8))


def test_later_candidates_of_a_reservoir_have_the_better_chance_that_paddle_gives_them() -> None:
    generator = np.random.default_rng(0)
    taken = sum(np.bincount(reservoir(np, 3, 12, generator), minlength=12) for _ in range(3000))
    # candidate i takes place floor(uniform * i), so one of the first three stays with (2/3)(3/4)…(10/11) = 2/11
    np.testing.assert_allclose(taken / 3000, [2 / 11] * 3 + [3 / 11] * 9, atol=0.03)


def test_average_precision_by_eleven_points_without_difficult_ground_truth() -> None:
    detections = floats(
        [1, 0.9, 0.1, 0.1, 0.3, 0.3],
        [1, 0.8, 0.5, 0.5, 0.6, 0.6],
        [1, 0.7, 0.1, 0.1, 0.3, 0.3],
        [2, 0.6, 0.2, 0.2, 0.4, 0.4],
    )
    labels = floats(
        [1, 0, 0.1, 0.1, 0.3, 0.3], [1, 1, 0.5, 0.5, 0.6, 0.6], [2, 0, 0.2, 0.2, 0.4, 0.4], [2, 0, 0.7, 0.7, 0.8, 0.8]
    )
    inputs = {"DetectRes": lod_tensor(detections, [[4]]), "Label": lod_tensor(labels, [[4]])}
    attrs = {"class_num": 3, "ap_type": "11point", "evaluate_difficult": False}
    out = run_op("detection_map", inputs, attrs)
    np.testing.assert_allclose(value(out["MAP"]), [(1 + 6 / 11) / 2], rtol=1e-6)
    assert value(out["AccumPosCount"]).ravel().tolist() == [0, 1, 2]
    assert out["AccumTruePos"].lod() == [[0, 0, 2, 3]]


def test_precision_over_two_batches_is_that_of_both_at_once() -> None:
    rng = np.random.default_rng(5)
    boxes = rng.uniform(0, 0.5, (8, 2)).astype(np.float32)
    boxes = np.concatenate([boxes, boxes + 0.3], axis=1)
    labels = np.concatenate([floats(*[[1], [2]] * 4), boxes], axis=1)
    detections = np.concatenate([labels[:, :1], rng.uniform(size=(8, 1)), boxes[rng.permutation(8)]], axis=1).astype(
        np.float32
    )
    attrs = {"class_num": 3}

    def batch(rows: slice, lengths: list[int]) -> dict[str, Any]:
        return {"DetectRes": lod_tensor(detections[rows], [lengths]), "Label": lod_tensor(labels[rows], [lengths])}

    first = run_op("detection_map", batch(slice(0, 4), [4]), attrs)
    state = {
        "HasState": np.array([1], np.int32),
        "PosCount": value(first["AccumPosCount"]),
        "TruePos": first["AccumTruePos"],
        "FalsePos": first["AccumFalsePos"],
    }
    second = run_op("detection_map", batch(slice(4, 8), [4]) | state, attrs)
    both = run_op("detection_map", batch(slice(0, 8), [4, 4]), attrs)
    np.testing.assert_allclose(value(second["MAP"]), value(both["MAP"]), rtol=1e-6)


def test_regions_without_area_give_zeros_and_no_gradient_to_the_map() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    rois = lod_tensor(floats([0.5, 0.5, 2.5, 1.5], [1, 1, 1, 1]), [[2]])
    out = run_op("prroi_pool", {"X": x, "ROIs": rois}, {"pooled_height": 1, "pooled_width": 2})["Out"]
    np.testing.assert_allclose(value(out).reshape(2, 2), [[5, 6], [0, 0]])


# ---------------------------------------------------------------- bad input
X = np.zeros((2, 4, 6, 6), np.float32)
ROIS = floats([0, 0, 3, 3], [1, 1, 4, 4])
POOLED = {"pooled_height": 2, "pooled_width": 2}

FAULTS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("roi_align", {"X": X, "ROIs": ROIS}, POOLED, r"roi_align: input ROIs needs a LoD"),
    (
        "roi_align",
        {"X": X, "ROIs": lod_tensor(ROIS, [[2]])},
        POOLED,
        r"the LoD of ROIs must cover 2 images",
    ),
    ("roi_align", {"X": X[0], "ROIs": ROIS}, POOLED, r"input X must be \(N, C, H, W\), found shape \(4, 6, 6\)"),
    (
        "roi_pool",
        {"X": X, "ROIs": ROIS, "RoisLod": np.array([0, 1, 3])},
        POOLED,
        r"RoisLod counts 3 regions, but ROIs holds 2",
    ),
    ("roi_pool", {"X": X, "ROIs": ROIS}, {"pooled_height": 0}, r"attribute pooled_height must be above 0, found 0"),
    ("prroi_pool", {"X": X, "ROIs": ROIS, "BatchRoINums": np.array([2])}, POOLED, r"must cover 2 images"),
    ("psroi_pool", {"X": X, "ROIs": ROIS}, {"output_channels": 3, **POOLED}, r"pooled_width = 12 channels"),
    ("iou_similarity", {"X": ROIS, "Y": ROIS[:, :3]}, {}, r"input Y must hold one box of 4 numbers"),
    (
        "box_coder",
        {"PriorBox": ROIS, "PriorBoxVar": ROIS, "TargetBox": ROIS},
        {"variance": [1.0] * 4},
        r"exclude each other",
    ),
    ("box_coder", {"PriorBox": ROIS, "TargetBox": ROIS}, {"code_type": "decode"}, r"attribute code_type must be"),
    ("box_clip", {"Input": ROIS, "ImInfo": floats([9, 9, 1])}, {}, r"input Input needs a LoD of one level, found 0"),
    (
        "prior_box",
        {"Input": X, "Image": X},
        {"min_sizes": [4.0], "aspect_ratios": [1.0], "variances": [0.1]},
        r"variances must be four",
    ),
    (
        "prior_box",
        {"Input": X, "Image": X},
        {"min_sizes": [4.0], "max_sizes": [3.0], "aspect_ratios": [1.0], "variances": [0.1] * 4},
        r"attribute max_sizes must give one larger number",
    ),
    (
        "yolo_box",
        {"X": X, "ImgSize": np.zeros((2, 2), np.int32)},
        {"class_num": 3, "anchors": [1, 2]},
        r"input X must be \(N, 8, H, W\)",
    ),
    (
        "multiclass_nms",
        {"BBoxes": X[0], "Scores": X[0]},
        NMS,
        r"inputs BBoxes and Scores|must be one of 4, 8, 16, 24, 32",
    ),
    (
        "multiclass_nms",
        {"BBoxes": np.zeros((6, 2, 4), "f4"), "Scores": X[0, 0][:, :2]},
        NMS,
        r"input BBoxes needs a LoD",
    ),
    ("bipartite_match", {"DistMat": ROIS}, {"match_type": "best"}, r"attribute match_type must be"),
    (
        "target_assign",
        {"X": lod_tensor(np.zeros((2, 1, 4), "f4"), [[1, 1]]), "MatchIndices": np.array([[0], [1]], np.int32)},
        {},
        r"input MatchIndices names a row beyond an image's sequence of X",
    ),
    (
        "mine_hard_examples",
        {"ClsLoss": ROIS, "MatchIndices": np.zeros((2, 4), np.int32), "MatchDist": ROIS},
        {"neg_dist_threshold": 1.5},
        r"attribute neg_dist_threshold must lie between 0 and 1, found 1.5",
    ),
    (
        "yolov3_loss",
        {
            "X": X[:, :, :2, :2].repeat(2, 1),
            "GTBox": np.full((2, 1, 4), 1.5, "f4"),
            "GTLabel": np.zeros((2, 1), np.int32),
        },
        {"class_num": 3, "anchors": [16, 16], "anchor_mask": [0]},
        r"input GTBox must hold centers and sizes relative to the image",
    ),
    (
        "sigmoid_focal_loss",
        {"X": ROIS, "Label": np.zeros((3, 1), np.int32), "FgNum": np.ones(1, np.int32)},
        {},
        r"input Label must be \(2, 1\)",
    ),
    ("polygon_box_transform", {"Input": X[:, :3]}, {}, r"input Input must be \(N, 2 \* points, H, W\)"),
]


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"), FAULTS, ids=[f"{i}-{fault[0]}" for i, fault in enumerate(FAULTS)]
)
def test_bad_input_is_named(op: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message) as caught:
        run_op(op, inputs, attrs)
    assert str(caught.value).startswith(f"operator {op}: ")
