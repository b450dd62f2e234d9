"""Suppression by the native engine keeps exactly the boxes that numpy keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluidtool.ops.detection.suppression import overlap_of, suppress
from fluidtool.runtime.engines.native.bodies import BODIES
from fluidtool.runtime.engines.native.bodies.detection import native_suppress
from fluidtool.runtime.engines.native.library import Library
from tests.runtime.native.checking import Net

Array = np.ndarray[Any, Any]


def boxes_of(count: int, seed: int, whole: bool) -> Array:
    """Boxes that overlap much; of whole numbers, where overlaps are often the threshold itself."""
    random = np.random.default_rng(seed)
    corner, size = random.uniform(0, 20, (count, 2)), random.uniform(-1, 12, (count, 2))
    boxes = np.concatenate([corner, corner + size], axis=1)
    return (np.round(boxes) if whole else boxes).astype(np.float32)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(0, 90),
    seed=st.integers(0, 1000),
    whole=st.booleans(),
    normalized=st.booleans(),
    threshold=st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]),
    eta=st.sampled_from([1.0, 0.9]),
)
def test_the_same_boxes_stay(
    native: Library, count: int, seed: int, whole: bool, normalized: bool, threshold: float, eta: float
) -> None:
    boxes = boxes_of(count, seed, whole)
    overlap = overlap_of(np, 4, normalized)
    want = suppress(np, boxes, overlap, threshold, eta)
    got = native_suppress(native, 0.0 if normalized else 1.0, np, boxes, overlap, threshold, eta)
    assert got.tolist() == want.tolist()


def test_boxes_that_are_no_numbers_do_not_stay(native: Library) -> None:
    boxes = boxes_of(9, 0, whole=False)
    boxes[3, 2] = boxes[5, 0] = np.nan
    overlap = overlap_of(np, 4, True)
    want = suppress(np, boxes, overlap, 0.5)
    assert native_suppress(native, 0.0, np, boxes, overlap, 0.5).tolist() == want.tolist()


@pytest.mark.parametrize("type", ["multiclass_nms", "multiclass_nms2", "multiclass_nms3"])
@pytest.mark.parametrize("high", [1.0, -1.0])
def test_detections_of_both_engines_are_one(
    type: str, high: float, native: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[bool] = []
    body = BODIES[type]

    def counting(*args: Any, **attrs: Any) -> Any:
        result = body(*args, **attrs)
        answered.append(result is not NotImplemented)
        return result

    monkeypatch.setitem(BODIES, type, counting)
    net = Net()
    boxes = np.stack([boxes_of(70, seed, whole=False) for seed in (1, 2)])
    scores = np.random.default_rng(0).uniform(high - 1, high, (2, 4, 70)).astype(np.float32)
    more = () if type == "multiclass_nms" else ("Index",) if type == "multiclass_nms2" else ("Index", "NmsRoisNum")
    attrs = {"score_threshold": 0.3, "nms_top_k": 40, "keep_top_k": 30, "nms_threshold": 0.4, "background_label": 0}
    inputs = {"BBoxes": net.data(of=boxes), "Scores": net.data(of=scores)}
    out = net.op(type, "Out", inputs, *more, normalized=False, nms_eta=1.0, **attrs)
    (want,), (got,) = net.run("numpy", out), net.run("native", out)
    np.testing.assert_array_equal(got, want)
    assert answered == [True]


def test_polygons_are_left_to_numpy(native: Library) -> None:
    net = Net()
    boxes = np.random.default_rng(0).uniform(0, 9, (1, 5, 8)).astype(np.float32)
    scores = np.random.default_rng(1).uniform(0, 1, (1, 2, 5)).astype(np.float32)
    attrs = {"score_threshold": 0.3, "nms_top_k": -1, "keep_top_k": -1}
    out = net.op("multiclass_nms", "Out", {"BBoxes": net.data(of=boxes), "Scores": net.data(of=scores)}, **attrs)
    np.testing.assert_array_equal(net.run("native", out)[0], net.run("numpy", out)[0])
