"""What detection layers refuse, with the words of Paddle 1.8.5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fluidtool.fluid as fluid

L: Any = fluid.layers


@pytest.fixture(autouse=True)
def fresh_programs() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def real(name: str = "x", shape: tuple[int, ...] = (-1, 4)) -> Any:
    return L.data(name, list(shape), append_batch_size=False)


def whole(name: str = "n", shape: tuple[int, ...] = (-1, 1)) -> Any:
    return L.data(name, list(shape), append_batch_size=False, dtype="int64")


def feature(name: str = "f") -> Any:
    return real(name, (-1, 4, 8, 8))


def head(inputs: Any, **arguments: Any) -> Any:
    given = {"base_size": 64, "num_classes": 5, "aspect_ratios": [[1.0]] * 2, **arguments}
    return L.multi_box_head(inputs, real("image", (-1, 3, 64, 64)), **given)


def yolo(**arguments: Any) -> Any:
    given = {"x": feature(), "gt_box": real(), "gt_label": whole(), "anchors": [1, 2], "anchor_mask": [0]}
    given |= {"class_num": 2, "ignore_thresh": 0.5, "downsample_ratio": 32}
    return L.yolov3_loss(**(given | arguments))


SIZES = {"min_sizes": [1.0, 2.0], "max_sizes": [2.0, 3.0]}
REFUSALS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: L.prior_box(whole(), feature(), [8.0]), TypeError, "The data type of 'input' in prior_box must be"),
    (
        lambda: L.prior_box(feature(), feature("i"), [8.0], steps=[1.0]),
        ValueError,
        "steps should be a list or tuple with",
    ),
    (lambda: L.density_prior_box(feature(), feature("i")), TypeError, "The type of 'densities' in density_prior_box"),
    (
        lambda: L.density_prior_box(feature(), feature("i"), [1, 2], [1.0], [1.0]),
        ValueError,
        "densities and fixed_sizes length should be euqal",
    ),
    (lambda: L.anchor_generator(feature(), 32.0, 1.0), ValueError, "stride should be a list or tuple with length 2"),
    (lambda: head(feature()), ValueError, "inputs should be a list or tuple"),
    (lambda: head([feature()]), ValueError, "needs min_sizes and max_sizes, one of each for its 1 inputs"),
    (lambda: head([feature()] * 3), ValueError, "needs min_ratio and max_ratio, or min_sizes and max_sizes"),
    (lambda: head([feature()] * 2, **SIZES | {"max_sizes": [1.0]}), ValueError, "the length of inputs and max_sizes"),
    (lambda: head([feature()] * 2, aspect_ratios=[[1.0]], **SIZES), ValueError, "inputs and aspect_ratios should be"),
    (
        lambda: head([feature()] * 2, steps=[1.0], **SIZES),
        ValueError,
        "the length of inputs and steps should be the same",
    ),
    (lambda: head([feature()] * 2, step_w=[1.0, 2.0], **SIZES), ValueError, "takes step_w and step_h together"),
    (lambda: L.box_coder(real(), 0.1, real("y")), TypeError, "Input variance of box_coder must be Variable or lisz"),
    (lambda: L.box_clip(whole(), real()), TypeError, "The data type of 'input' in box_clip must be"),
    (lambda: L.polygon_box_transform(whole()), TypeError, "The data type of 'input' in polygon_box_transform must be"),
    (lambda: L.roi_perspective_transform(feature(), real(), 7.0, 7), TypeError, "The type of 'transformed_height'"),
    (lambda: L.sigmoid_focal_loss(real(), whole(), whole("m")), TypeError, "The data type of 'label' in sigmoid_focal"),
    (lambda: yolo(x=3), TypeError, "Input x of yolov3_loss must be Variable"),
    (lambda: yolo(gt_score=3), TypeError, "Input gtscore of yolov3_loss must be Variable"),
    (lambda: yolo(anchors=3), TypeError, "Attr anchors of yolov3_loss must be list or tuple"),
    (lambda: yolo(ignore_thresh=1), TypeError, "Attr ignore_thresh of yolov3_loss must be a float number"),
    (lambda: yolo(use_label_smooth=1), TypeError, "Attr use_label_smooth of yolov3_loss must be a bool value"),
    (lambda: L.yolo_box(feature(), 3, [1, 2], 2, 0.1, 32), TypeError, "Input img_size of yolo_box must be Variable"),
    (lambda: L.yolo_box(feature(), whole(), [1, 2], 2, 1, 32), TypeError, "of yolo_box must be a float number"),
    (lambda: L.ssd_loss(*[real()] * 5, mining_type="hard_example"), ValueError, "Only support mining_type == max_neg"),
    (
        lambda: L.multiclass_nms(real(), real("s"), 1, 2, 3),
        TypeError,
        "The type of 'score_threshold' in multiclass_nms",
    ),
    (lambda: L.multiclass_nms(whole(), real("s"), 0.1, 2, 3), TypeError, "The data type of 'BBoxes' in multiclass_nms"),
    (lambda: L.matrix_nms(real(), real("s"), 0.1, 1, 2, 3), TypeError, "The type of 'post_threshold' in matrix_nms"),
    (lambda: L.locality_aware_nms(real(), real("s"), 0.1, 2, 3), ValueError, "dim size of scores must be 3"),
    (
        lambda: L.locality_aware_nms(real(), real("s", (-1, 2, 5)), 0.1, 2, 3),
        ValueError,
        "locality_aware_nms only support one class",
    ),
    (
        lambda: L.retinanet_detection_output(real(), [], [], real("i")),
        TypeError,
        "The type of 'bboxes' in retinanet_detection_output must be",
    ),
    (
        lambda: L.retinanet_detection_output([whole()], [], [], real("i")),
        TypeError,
        "The data type of 'bbox0' in retinanet_detection_output must be",
    ),
    (
        lambda: L.rpn_target_assign(real("b"), real("c"), real("a"), real("v"), real("g"), real("w"), real("i")),
        TypeError,
        "The data type of 'is_crowd' in rpn_target_assign must be",
    ),
    (
        lambda: L.generate_proposals(*[whole()] * 5),
        TypeError,
        "The data type of 'scores' in generate_proposals must be",
    ),
    (
        lambda: L.generate_proposal_labels(*[real()] * 5),
        TypeError,
        "The data type of 'gt_classes' in generate_proposal_l",
    ),
]


@pytest.mark.parametrize(("build", "error", "text"), REFUSALS, ids=[case[2][:60] for case in REFUSALS])
def test_a_wrong_use_is_refused(build: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()
