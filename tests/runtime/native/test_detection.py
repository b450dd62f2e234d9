"""Suppression by the native engine keeps exactly the boxes that numpy keeps."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluidtool.ops.detection.suppression import overlap_of, suppress
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.native.kernels import detection
from fluidtool.runtime.engines.native.kernels.detection import find, native_suppress
from fluidtool.runtime.engines.native.library import Library
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import Net, agree, check

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


# ---------------------------------------------------------------- detections
SLOTS = {
    "multiclass_nms": ["Out"],
    "multiclass_nms2": ["Out", "Index"],
    "multiclass_nms3": ["Out", "Index", "NmsRoisNum"],
}
NMS = {"score_threshold": 0.3, "nms_top_k": 40, "keep_top_k": 30, "nms_threshold": 0.4, "background_label": 0}
few = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def detected(engine: str, type: str, inputs: dict[str, Any], **attrs: Any) -> list[tuple[Array, Any]]:
    """The outputs of one operator with their LoD."""
    net = Net()
    net.feeds = inputs
    for name, value in inputs.items():
        dtype = VarType.INT32 if name == "RoisNum" else VarType.FP32
        shape = (value.numpy() if isinstance(value, LoDTensor) else value).shape
        net.program.global_block().create_var(name=name, shape=shape, dtype=dtype)
    fetches = net.several(type, dict.fromkeys(SLOTS[type], 1), {name: name for name in inputs}, **attrs)
    values = Executor(engine=engine).run(net.program, inputs, fetches, Scope())
    return [(value.numpy(), value.lod()) for value in values]


def agree_exactly(type: str, inputs: dict[str, Any], **attrs: Any) -> list[tuple[Array, Any]]:
    """Both engines give the same detections, to the bit; returns them."""
    want, got = (detected(engine, type, inputs, **attrs) for engine in ("numpy", "native"))
    for (a, a_lod), (b, b_lod) in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a_lod == b_lod
        np.testing.assert_array_equal(a, b)
    return want


def scores_of(shape: tuple[int, ...], seed: int, ties: bool) -> Array:
    """Scores within 0 and 1, many of them equal where there are ties."""
    scores = np.random.default_rng(seed).uniform(0, 1, shape)
    return (np.round(scores * 8) / 8 if ties else scores).astype(np.float32)


thresholds = {
    "score_threshold": st.sampled_from([-1.0, 0.0, 0.5, 0.9, 2.0]),
    "nms_threshold": st.sampled_from([-0.5, 0.0, 0.25, 0.6, 1.0]),
    "nms_eta": st.sampled_from([1.0, 0.9]),
    "nms_top_k": st.sampled_from([-1, 0, 1, 5, 40, 1000]),
    "keep_top_k": st.sampled_from([-1, 0, 1, 7, 30]),
    "background_label": st.sampled_from([-1, 0, 2, 9]),
    "normalized": st.booleans(),
}


@few
@given(
    type=st.sampled_from(sorted(SLOTS)),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 5), st.sampled_from([1, 7, 16, 33, 130, 300])),
    seed=st.integers(0, 1000),
    ties=st.booleans(),
    attrs=st.fixed_dictionaries(thresholds),
)
def test_detections_of_both_engines_are_one(
    native: Library, type: str, sizes: tuple[int, int, int], seed: int, ties: bool, attrs: dict[str, Any]
) -> None:
    images, classes, count = sizes
    boxes = np.stack([boxes_of(count, seed + image, whole=ties) for image in range(images)])
    agree_exactly(type, {"BBoxes": boxes, "Scores": scores_of((images, classes, count), seed, ties)}, **attrs)


@settings(few, max_examples=40)
@given(
    type=st.sampled_from(sorted(SLOTS)),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    classes=st.integers(1, 4),
    seed=st.integers(0, 1000),
    ties=st.booleans(),
    attrs=st.fixed_dictionaries(thresholds),
)
def test_detections_where_every_class_has_boxes_of_its_own(
    native: Library, type: str, lengths: list[int], classes: int, seed: int, ties: bool, attrs: dict[str, Any]
) -> None:
    count = sum(lengths)
    boxes = boxes_of(count * classes, seed, whole=ties).reshape(count, classes, 4)
    scores, offsets = scores_of((count, classes), seed, ties), [0, *accumulate(lengths)]
    inputs: dict[str, Any] = {"BBoxes": LoDTensor(boxes, [offsets]), "Scores": LoDTensor(scores, [offsets])}
    if type == "multiclass_nms3":
        inputs = {"BBoxes": boxes, "Scores": scores, "RoisNum": np.array(lengths, np.int32)}
    agree_exactly(type, inputs, **attrs)


@pytest.mark.parametrize("type", sorted(SLOTS))
def test_the_library_itself_finds_the_detections(type: str, native: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []

    def counting(library: Library, *args: Any) -> Any:
        result = find(library, *args)
        found.append(result[2][-1])
        return result

    monkeypatch.setattr(detection, "find", counting)
    boxes = np.stack([boxes_of(70, seed, whole=False) for seed in (1, 2)])
    ((rows, _), *_) = agree_exactly(type, {"BBoxes": boxes, "Scores": scores_of((2, 4, 70), 0, ties=False)}, **NMS)
    assert found == [len(rows)] == [60]


@pytest.mark.parametrize("type", sorted(SLOTS))
def test_nothing_found_at_all(type: str, native: Library) -> None:
    inputs = {"BBoxes": boxes_of(70, 1, whole=False)[None], "Scores": scores_of((1, 4, 70), 0, ties=False) - 1}
    (rows, lod), *_ = agree_exactly(type, inputs, **NMS)
    assert (rows.tolist(), lod) == (([[-1.0]], [[0, 1]]) if type == "multiclass_nms" else ([], lod))


def test_scores_that_are_no_numbers_are_never_found(native: Library) -> None:
    scores = scores_of((1, 3, 70), 0, ties=True)
    scores[0, 1, ::3], scores[0, 2, ::5], scores[0, 1, 4], scores[0, 2, 7] = np.nan, np.inf, -np.inf, -0.0
    agree_exactly("multiclass_nms2", {"BBoxes": boxes_of(70, 1, whole=False)[None], "Scores": scores}, **NMS)


@settings(few)
@given(seed=st.integers(0, 1000), side=st.integers(0, 3))
def test_boxes_with_numbers_that_are_none(native: Library, seed: int, side: int) -> None:
    boxes = boxes_of(60, seed, whole=True)
    boxes[::4, side] = np.nan
    boxes[1::7, side] = np.inf
    inputs = {"BBoxes": boxes[None], "Scores": scores_of((1, 2, 60), seed, ties=False)}
    agree_exactly("multiclass_nms2", inputs, **NMS | {"background_label": -1})


def test_a_threshold_that_is_no_number_is_left_to_numpy(native: Library) -> None:
    inputs = {"BBoxes": boxes_of(9, 1, whole=False)[None], "Scores": scores_of((1, 2, 9), 0, ties=False)}
    ((rows, _), _) = agree_exactly("multiclass_nms2", inputs, **NMS | {"nms_threshold": float("nan")})
    assert not len(rows)


def test_fewer_boxes_than_scores_are_an_error(native: Library) -> None:
    inputs = {"BBoxes": boxes_of(9, 1, whole=False)[None], "Scores": scores_of((2, 2, 9), 0, ties=False)}
    for engine in ("numpy", "native"):
        with pytest.raises(Exception, match="index 1 is out of bounds"):
            detected(engine, "multiclass_nms", inputs, **NMS)


# ---------------------------------------------------------------- polygons
def polygons_of(count: int, corners: int, seed: int, whole: bool) -> Array:
    """Polygons that overlap much, some of them twisted; of whole numbers, where edges lie upon each other."""
    random = np.random.default_rng(seed)
    angles = np.sort(random.uniform(0, 2 * np.pi, (count, corners)), axis=1)
    reach = random.uniform(2, 9, (count, corners))
    points = np.stack([np.cos(angles), np.sin(angles)], axis=2) * reach[:, :, None]
    points[::5] = points[::5][:, random.permutation(corners)]
    points += random.uniform(0, 15, (count, 1, 2))
    return (points.round() if whole else points).astype(np.float32).reshape(count, 2 * corners)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 16),
    corners=st.sampled_from([4, 8, 12, 16]),
    seed=st.integers(0, 1000),
    whole=st.booleans(),
    threshold=st.sampled_from([0.0, 0.21, 0.513, 0.7]),
    eta=st.sampled_from([1.0, 0.9]),
)
def test_the_same_polygons_stay(
    native: Library, count: int, corners: int, seed: int, whole: bool, threshold: float, eta: float
) -> None:
    polygons = polygons_of(count, corners, seed, whole)
    want = suppress(np, polygons, overlap_of(np, 2 * corners, True), threshold, eta)
    assert native_suppress(native, 0.0, np, polygons, overlap_of(np, 8, True), threshold, eta).tolist() == want.tolist()


def test_polygons_that_are_no_numbers_overlap_nothing(native: Library) -> None:
    polygons = polygons_of(9, 4, 0, whole=False)
    polygons[3, 2] = polygons[5, 1] = polygons[6, 7] = np.nan
    overlap = overlap_of(np, 8, True)
    want = suppress(np, polygons, overlap, 0.1)
    assert native_suppress(native, 0.0, np, polygons, overlap, 0.1).tolist() == want.tolist()


@few
@given(
    images=st.integers(1, 2),
    boxes=st.integers(1, 20),
    classes=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_detections_of_polygons(native: Library, images: int, boxes: int, classes: int, seed: int) -> None:
    polygons = polygons_of(images * boxes, 4, seed, whole=False).reshape(images, boxes, 8)
    inputs = {"BBoxes": polygons, "Scores": scores_of((images, classes, boxes), seed, ties=False)}
    agree_exactly("multiclass_nms2", inputs, **NMS)


# ---------------------------------------------------------------- boxes of YOLO
YOLO = {"anchors": [10, 13, 16, 30, 33, 23], "class_num": 7, "downsample_ratio": 16, "conf_thresh": 0.3}


def yolo(net: Net, size: tuple[int, int, int], version: int = 0, **attrs: Any) -> list[str]:
    images, height, width = size
    net.program.version = version
    x = net.op("relu", "Out", {"X": net.data(images, 36, height, width)})
    x = net.op("scale", "Out", {"X": x}, scale=2.0, bias=-1.0)
    sizes = net.data(of=np.arange(300, 300 + 2 * images).reshape(images, 2).astype(np.int32))
    return net.several("yolo_box", {"Boxes": 1, "Scores": 1}, {"X": x, "ImgSize": sizes}, **YOLO | attrs)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("size", [(1, 1, 1), (2, 5, 5), (1, 13, 13), (2, 4, 9)])
@pytest.mark.parametrize("version", [0, 2_000_000])
@pytest.mark.parametrize(
    "attrs", [{}, {"clip_bbox": False, "scale_x_y": 1.2}, {"conf_thresh": 0.999}, {"class_num": 7}]
)
def test_boxes_of_yolo(size: tuple[int, int, int], version: int, attrs: dict[str, Any]) -> None:
    net = Net()
    check(net, *yolo(net, size, version, **attrs))


@pytest.mark.usefixtures("native")
def test_a_confidence_at_the_threshold_is_kept() -> None:
    net = Net()
    numbers = np.zeros((1, 36, 2, 3), np.float32)  # sigmoid(0) is the threshold
    numbers[0, 4, 1, 1] = np.nan
    sizes = net.data(of=np.array([[90, 80]], np.int32))
    inputs = {"X": net.data(of=numbers), "ImgSize": sizes}
    boxes, scores = net.several("yolo_box", {"Boxes": 1, "Scores": 1}, inputs, **YOLO | {"conf_thresh": 0.5})
    check(net, boxes, scores)
    kept = net.run("native", scores)[0].any(axis=2)
    assert kept.sum() == 17 and not kept[0, 4]


@pytest.mark.usefixtures("native")
def test_boxes_of_yolo_with_confidences_by_overlap_are_left_to_numpy() -> None:
    net = Net()
    sizes = net.data(of=np.array([[90, 80]], np.int32))
    inputs = {"X": net.data(1, 39, 2, 2), "ImgSize": sizes}
    agree(net, net.several("yolo_box", {"Boxes": 1, "Scores": 1}, inputs, iou_aware=True, **YOLO))
    assert net.why_not() == ["confidences by overlap"]


# ---------------------------------------------------------------- boxes of SSD
def decoded(net: Net, shape: tuple[int, int], axis: int, scale: str, **attrs: Any) -> str:
    """A network that finds offsets [N, M, 4], and the boxes that they mean."""
    codes = net.op("softmax", "Out", {"X": net.data(*shape, 4)}, axis=-1)
    count = shape[1 - axis]
    inputs = {"PriorBox": net.data(of=boxes_of(count, 0, whole=False)), "TargetBox": codes}
    inputs |= {"PriorBoxVar": net.data(of=np.full((count, 4), 0.3, np.float32))} if scale == "input" else {}
    attrs |= {"variance": [0.1, 0.1, 0.2, 0.2]} if scale == "attribute" else {}
    return net.op("box_coder", "OutputBox", inputs, code_type="decode_center_size", axis=axis, **attrs)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("shape", [(1, 1), (2, 50), (33, 3)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("scale", ["input", "attribute", "none"])
@pytest.mark.parametrize("normalized", [True, False])
def test_decoding_of_boxes(shape: tuple[int, int], axis: int, scale: str, normalized: bool) -> None:
    net = Net()
    check(net, decoded(net, shape, axis, scale, box_normalized=normalized))


@pytest.mark.usefixtures("native")
def test_decoded_boxes_have_the_lod_of_what_lies_along_their_rows() -> None:
    net = Net()
    out = decoded(net, (4, 3), 1, "none")
    prior = net.program.global_block().ops[-1].input("PriorBox")[0]
    net.feeds[prior] = LoDTensor(net.feeds[prior], [[0, 1, 4]])
    for engine in ("numpy", "native"):
        (value,) = Executor(engine=engine).run(net.program, net.feeds, [out], net.scope)
        assert value.lod() == [[0, 1, 4]]


@pytest.mark.usefixtures("native")
def test_encoding_is_left_to_numpy() -> None:
    net = Net()
    targets = net.op("softmax", "Out", {"X": net.data(3, 4)}, axis=-1)
    inputs = {
        "PriorBox": net.data(of=boxes_of(5, 0, whole=True) + np.array([0, 0, 9, 9], np.float32)),
        "TargetBox": targets,
    }
    agree(net, [net.op("box_coder", "OutputBox", inputs, code_type="encode_center_size")])
    assert net.why_not() == ["boxes that are encoded"]


@pytest.mark.usefixtures("native")
def test_prior_boxes_are_no_work_and_cut_no_call() -> None:
    net = Net()
    image = net.data(1, 3, 32, 32)
    x = net.conv(image, net.parameter(8, 3, 3, 3), strides=[2, 2], paddings=[1, 1])
    attrs = {"min_sizes": [4.0], "max_sizes": [9.0], "aspect_ratios": [2.0], "variances": [0.1, 0.1, 0.2, 0.2]}
    boxes, variances = net.several("prior_box", {"Boxes": 1, "Variances": 1}, {"Input": x, "Image": image}, **attrs)
    flat = net.op("reshape2", "Out", {"X": boxes}, "XShape", shape=[-1, 4])
    scale = net.op("reshape2", "Out", {"X": variances}, "XShape", shape=[-1, 4])
    codes = net.conv(x, net.parameter(16, 8, 3, 3), paddings=[1, 1])
    codes = net.op("transpose2", "Out", {"X": codes}, "XShape", axis=[0, 2, 3, 1])
    codes = net.op("reshape2", "Out", {"X": codes}, "XShape", shape=[1, -1, 4])
    codes = net.op("softmax", "Out", {"X": codes}, axis=-1)
    inputs = {"PriorBox": flat, "PriorBoxVar": scale, "TargetBox": codes}
    out = net.op("box_coder", "OutputBox", inputs, code_type="decode_center_size")
    check(net, out, boxes, rtol=1e-5)
