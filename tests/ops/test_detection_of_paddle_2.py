"""Detection operators in Paddle 2 programs; every number was computed by Paddle 2.6.2."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.later import run_later


def floats(*rows: Any) -> Any:
    return np.array(rows, np.float32)


def test_yolo_box_of_a_grid_that_is_not_square() -> None:
    attrs = {"class_num": 1, "anchors": [16, 8], "downsample_ratio": 32}
    inputs = {"X": np.zeros((1, 6, 1, 2), np.float32), "ImgSize": np.array([[32, 64]], np.int32)}
    boxes = run_later("yolo_box", inputs, attrs)["Boxes"]
    np.testing.assert_array_equal(boxes, [[[8, 12, 24, 20], [40, 12, 56, 20]]])


def test_yolo_box_weighs_the_confidence_with_a_predicted_overlap() -> None:
    x = np.zeros((1, 7, 1, 1), np.float32)
    x[0, 0], x[0, 6] = 1.0, 2.0
    attrs = {"class_num": 1, "anchors": [16, 8], "iou_aware": True, "iou_aware_factor": 0.25}
    scores = run_later("yolo_box", {"X": x, "ImgSize": np.array([[32, 32]], np.int32)}, attrs)["Scores"]
    np.testing.assert_allclose(scores, [[[0.4842743]]], rtol=1e-6)


def test_roi_align_takes_counts_and_aligns_centers_of_pixels() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4) ** 2
    inputs = {"X": x, "ROIs": floats([0.5, 0.5, 3, 3]), "RoisNum": np.array([1], np.int32)}
    attrs = {"pooled_height": 2, "pooled_width": 2, "sampling_ratio": 2, "aligned": True}
    out = run_later("roi_align", inputs, attrs)["Out"]
    np.testing.assert_array_equal(out, [[[[13.75, 23.1875], [71.0, 92.9375]]]])


def test_multiclass_nms3_goes_by_counts() -> None:
    inputs = {
        "BBoxes": floats([[0, 0, 1, 1]], [[0, 0, 1, 1.1]], [[2, 2, 3, 3]]),
        "Scores": floats([0.9], [0.8], [0.7]),
        "RoisNum": np.array([2, 1], np.int32),
    }
    attrs = {"background_label": -1, "score_threshold": 0.0, "nms_top_k": -1, "keep_top_k": -1}
    out = run_later("multiclass_nms3", inputs, attrs)
    np.testing.assert_array_equal(out["Out"], floats([0, 0.9, 0, 0, 1, 1], [0, 0.7, 2, 2, 3, 3]))
    assert out["Index"].tolist() == [[0], [2]]
    assert out["NmsRoisNum"].tolist() == [1, 1]


def test_generate_proposals_v2_gives_a_box_of_zeros_rather_than_nothing() -> None:
    inputs = {
        "Scores": np.ones((1, 1, 1, 1), np.float32),
        "BboxDeltas": np.zeros((1, 4, 1, 1), np.float32),
        "ImShape": floats([50, 50]),
        "Anchors": floats([2, 2, 9, 9]).reshape(1, 1, 1, 4),
        "Variances": np.ones((1, 1, 1, 4), np.float32),
    }
    attrs = {"pre_nms_topN": 9, "post_nms_topN": 9, "nms_thresh": 0.5, "min_size": 7.5, "eta": 1.0}
    sizes = {}
    for pixel_offset in (True, False):
        out = run_later("generate_proposals_v2", inputs, {**attrs, "pixel_offset": pixel_offset})
        sizes[pixel_offset] = out["RpnRois"].tolist()
        assert out["RpnRoisNum"].tolist() == [1]
    assert sizes == {True: [[2, 2, 9, 9]], False: [[0, 0, 0, 0]]}


def test_levels_and_their_counts_by_image() -> None:
    inputs = {"FpnRois": floats([0, 0, 9, 9], [0, 0, 300, 300], [0, 0, 8, 8]), "RoisNum": np.array([2, 1], np.int32)}
    attrs = {"min_level": 2, "max_level": 3, "refer_level": 3, "refer_scale": 100, "pixel_offset": False}
    out = run_later("distribute_fpn_proposals", inputs, attrs, outputs={"MultiFpnRois": 2})
    assert [len(level) for level in out["MultiFpnRois"]] == [2, 1]
    assert out["RestoreIndex"].ravel().tolist() == [0, 2, 1]


def test_nms_keeps_positions_of_boxes_that_come_best_first() -> None:
    boxes = floats([0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6])
    assert run_later("nms", {"Boxes": boxes}, {"iou_threshold": 0.5})["KeepBoxesIdxs"].tolist() == [0, 2]
