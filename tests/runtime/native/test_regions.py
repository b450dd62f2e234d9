"""Regions and proposals by the native engine are numpy's, also where maps and regions are odd or empty."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.ops.detection.proposals import best_first
from fluidtool.tensor import LoDTensor
from tests.runtime.native.test_operator_kernels import agree, counted

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=60, deadline=None)
Array = np.ndarray[Any, Any]
BINS = {"pooled_height": 3, "pooled_width": 2, "spatial_scale": 0.25}


def maps(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def regions(counts: list[int], seed: int = 0) -> LoDTensor:
    """So many regions of each image, some of them outside of it, small, or with their ends exchanged."""
    random = np.random.default_rng(seed)
    corner = random.uniform(-20, 60, (sum(counts), 2))
    boxes = np.concatenate([corner, corner + random.uniform(-4, 40, corner.shape)], axis=1)
    return LoDTensor(boxes.astype(np.float32), [list(accumulate(counts, initial=0))])


shapes = st.tuples(st.sampled_from([1, 3, 16, 37]), st.integers(1, 13), st.integers(1, 11))
counts = st.lists(st.sampled_from([0, 1, 2, 9]), min_size=1, max_size=3)


@few
@given(shapes, counts, st.sampled_from([-1, 1, 2, 5]), st.integers(1, 8), st.integers(1, 8), st.integers(0, 99))
def test_roi_align(shape: tuple[int, ...], counts: list[int], ratio: int, height: int, width: int, seed: int) -> None:
    feeds = {"X": maps(len(counts), *shape, seed=seed), "ROIs": regions(counts, seed)}
    attrs = {"pooled_height": height, "pooled_width": width, "spatial_scale": 0.25, "sampling_ratio": ratio}
    agree("roi_align", feeds, ["Out"], **attrs)


@few
@given(shapes, counts, st.integers(1, 8), st.integers(1, 8), st.integers(0, 99))
def test_roi_pool(shape: tuple[int, ...], counts: list[int], height: int, width: int, seed: int) -> None:
    feeds = {"X": maps(len(counts), *shape, seed=seed).round(1), "ROIs": regions(counts, seed)}
    attrs = {"pooled_height": height, "pooled_width": width, "spatial_scale": 0.25}
    agree("roi_pool", feeds, ["Out", "Argmax"], rtol=0, **attrs)


@pytest.mark.parametrize("type", ["roi_align", "roi_pool"])
def test_regions_cut_among_threads_are_answered(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, type)
    agree(type, {"X": maps(2, 40, 30, 20), "ROIs": regions([50, 30])}, ["Out"], **BINS)
    assert answered == [True]


def test_what_is_no_number_is_never_the_largest() -> None:
    x = maps(1, 5, 12, 12)
    x[0, :, ::2, 1::3] = np.nan
    x[0, 1] = -np.inf
    agree("roi_pool", {"X": x, "ROIs": regions([20])}, ["Out", "Argmax"], rtol=0, **BINS)


def test_regions_without_end_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "roi_align")
    rois = LoDTensor(np.array([[0, 0, 8, 8], [0, 0, np.inf, 8]], np.float32), [[0, 2]])
    with np.errstate(all="ignore"):
        agree("roi_align", {"X": maps(1, 4, 9, 9), "ROIs": rois}, ["Out"], **BINS)
    assert answered == [False]


# ---------------------------------------------------------------- proposals
def proposals(images: int, height: int, width: int, tied: bool, seed: int) -> dict[str, Array]:
    """What a network of three anchors by cell says."""
    random, anchors = np.random.default_rng(seed), 3
    corner = random.uniform(0, 16 * max(height, width), (height, width, anchors, 2))
    scores = random.integers(0, 4, (images, anchors, height, width)) if tied else maps(images, anchors, height, width)
    return {
        "Scores": scores.astype(np.float32),
        "BboxDeltas": 0.3 * maps(images, 4 * anchors, height, width, seed=seed),
        "ImInfo": np.array([[16 * height, 16 * width, 2]] * images, np.float32),
        "Anchors": np.concatenate([corner, corner + random.uniform(4, 60, corner.shape)], axis=3).astype(np.float32),
        "Variances": np.ones((height, width, anchors, 4), np.float32),
    }


@few
@given(
    st.integers(1, 2),
    st.integers(1, 9),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([0, 5, 40, 1000]),
    st.sampled_from([0.0, 0.3, 0.7]),
    st.sampled_from([1.0, 0.9]),
    st.integers(0, 99),
)
def test_proposals(
    images: int, height: int, width: int, tied: bool, first: int, threshold: float, eta: float, seed: int
) -> None:
    attrs = {"pre_nms_topN": first, "post_nms_topN": 20, "nms_thresh": threshold, "min_size": 6.0, "eta": eta}
    feeds = proposals(images, height, width, tied, seed)
    agree("generate_proposals", feeds, ["RpnRois", "RpnRoiProbs"], rtol=0, **attrs)


def test_proposals_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "generate_proposals")
    attrs = {"pre_nms_topN": 50, "post_nms_topN": 20, "nms_thresh": 0.5, "min_size": 6.0, "eta": 1.0}
    agree("generate_proposals", proposals(1, 8, 8, False, 0), ["RpnRois"], rtol=0, **attrs)
    assert answered == [True]


@pytest.mark.parametrize("count", [-1, 0, 1, 7, 20, 100])
def test_the_best_come_first_and_equal_ones_in_order(count: int) -> None:
    scores = np.random.default_rng(0).integers(0, 5, 60).astype(np.float32)
    scores[[3, 17]] = np.nan
    want = np.argsort(-scores, kind="stable")[: count if count > 0 else None]
    assert best_first(np, scores, count).tolist() == want.tolist()


@few
@given(st.integers(1, 2), st.integers(1, 12), st.integers(1, 5), st.sampled_from([1.0, 0.9]), st.integers(0, 99))
def test_detections_of_retinanet(images: int, boxes: int, classes: int, eta: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    corner = random.uniform(0, 50, (boxes, 2))
    feeds = {
        "BBoxes": 0.2 * maps(images, boxes, 4, seed=seed),
        "Scores": random.uniform(0, 1, (images, boxes, classes)).astype(np.float32),
        "Anchors": np.concatenate([corner, corner + random.uniform(5, 40, corner.shape)], axis=1).astype(np.float32),
        "ImInfo": np.array([[90, 80, 1]] * images, np.float32),
    }
    attrs = {"score_threshold": 0.1, "nms_top_k": 30, "nms_threshold": 0.3, "nms_eta": eta, "keep_top_k": 9}
    agree("retinanet_detection_output", feeds, ["Out"], rtol=0, **attrs)
