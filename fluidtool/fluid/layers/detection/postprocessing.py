"""From predictions to detections: suppression of overlapping boxes, and measures (Paddle 1.8.5 layers/detection.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.errors import AssertedError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.detection.appending import REAL, append_op, check_reals
from fluidtool.fluid.layers.detection.boxes import box_coder
from fluidtool.fluid.layers.elementary import softmax
from fluidtool.fluid.layers.shape import transpose
from fluidtool.ir import Variable
from fluidtool.shapes import shape_text


def _check_kinds(op_name: str, kind: type, **values: Any) -> None:
    for name, value in values.items():
        check_type(value, name, kind, op_name)


def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Variable | list[float],
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
    return_index: bool = False,
) -> Variable | tuple[Variable, Variable]:
    """SSD's detections [boxes, 6] (label, score, box) from locations [n, priors, 4] and scores [n, priors, classes].

    As in Paddle 1.8.5, the background is label 0 and eta 1, whatever is given.
    """
    helper = LayerHelper("detection_output")
    decoded = box_coder(prior_box, prior_box_var, loc, code_type="decode_center_size")
    scores = transpose(softmax(scores), perm=[0, 2, 1])
    scores.stop_gradient = True
    attrs = {
        "background_label": 0,
        "nms_threshold": nms_threshold,
        "nms_top_k": nms_top_k,
        "keep_top_k": keep_top_k,
        "score_threshold": score_threshold,
        "nms_eta": 1.0,
    }
    inputs, outputs = {"Scores": scores, "BBoxes": decoded}, {"Out": decoded.dtype}
    if not return_index:
        return append_op(helper, "multiclass_nms", inputs, outputs, attrs)[0]
    found, index = append_op(helper, "multiclass_nms2", inputs, {**outputs, "Index": "int64"}, attrs)
    return found, index


def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Variable:
    """The boxes of every class that do not overlap a better box of the class: [boxes, 6] (label, score, box), by image."""
    layer = "multiclass_nms"
    check_reals(layer, BBoxes=bboxes, Scores=scores)
    _check_kinds(layer, float, score_threshold=score_threshold)
    _check_kinds(layer, int, nums_top_k=nms_top_k, keep_top_k=keep_top_k)
    _check_kinds(layer, float, nms_threshold=nms_threshold)
    _check_kinds(layer, bool, normalized=normalized)
    _check_kinds(layer, float, nms_eta=nms_eta)
    _check_kinds(layer, int, background_label=background_label)
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "nms_eta": nms_eta,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    inputs = {"BBoxes": bboxes, "Scores": scores}
    return append_op(LayerHelper(layer, name=name), layer, inputs, {"Out": bboxes.dtype}, attrs)[0]


def locality_aware_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> Variable:
    """multiclass_nms of one class, scores [n, 1, boxes], that merges neighboring boxes first (EAST)."""
    layer = "locality_aware_nms"
    check_reals(layer, bboxes=bboxes, scores=scores)
    _check_kinds(layer, int, background_label=background_label)
    _check_kinds(layer, float, score_threshold=score_threshold)
    _check_kinds(layer, int, nms_top_k=nms_top_k)
    _check_kinds(layer, float, nms_eta=nms_eta, nms_threshold=nms_threshold)
    _check_kinds(layer, int, keep_top_k=keep_top_k)
    _check_kinds(layer, bool, normalized=normalized)
    if len(scores.shape) != 3:
        raise AssertedError(f"dim size of scores must be 3, found {shape_text(scores.shape)}")
    if scores.shape[1] != 1:
        raise AssertedError(
            f"locality_aware_nms only support one class, Tensor score shape must be [N, 1, M], found {shape_text(scores.shape)}"
        )
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "nms_eta": nms_eta,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    inputs = {"BBoxes": bboxes, "Scores": scores}
    return append_op(LayerHelper(layer, name=name), layer, inputs, {"Out": bboxes.dtype}, attrs)[0]


def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """multiclass_nms that lowers the scores of overlapped boxes instead of dropping them (SOLOv2)."""
    layer = "matrix_nms"
    check_reals(layer, BBoxes=bboxes, Scores=scores)
    _check_kinds(layer, float, score_threshold=score_threshold, post_threshold=post_threshold)
    _check_kinds(layer, int, nums_top_k=nms_top_k, keep_top_k=keep_top_k)
    _check_kinds(layer, bool, normalized=normalized, use_gaussian=use_gaussian)
    _check_kinds(layer, float, gaussian_sigma=gaussian_sigma)
    _check_kinds(layer, int, background_label=background_label)
    helper = LayerHelper(layer, name=name)
    out = helper.create_variable_for_type_inference(bboxes.dtype, stop_gradient=True)
    index = helper.create_variable_for_type_inference("int64")
    helper.append_op(
        type=layer,
        inputs={"BBoxes": bboxes, "Scores": scores},
        outputs={"Out": out, "Index": index},
        attrs={
            "background_label": background_label,
            "score_threshold": score_threshold,
            "post_threshold": post_threshold,
            "nms_top_k": nms_top_k,
            "gaussian_sigma": gaussian_sigma,
            "use_gaussian": use_gaussian,
            "keep_top_k": keep_top_k,
            "normalized": normalized,
        },
    )
    return (out, index) if return_index else out


def retinanet_detection_output(
    bboxes: list[Variable],
    scores: list[Variable],
    anchors: list[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> Variable:
    """RetinaNet's detections [boxes, 6] from the predictions of all levels; eta is 1, as in Paddle 1.8.5."""
    layer = "retinanet_detection_output"
    for label, item, values in (
        ("bboxes", "bbox", bboxes),
        ("scores", "score", scores),
        ("anchors", "anchor", anchors),
    ):
        check_type(values, label, list, layer)
        for index, value in enumerate(values):
            check_variable_and_dtype(value, f"{item}{index}", REAL, layer)
    check_reals(layer, im_info=im_info)
    helper = LayerHelper(layer, scores=scores)
    inputs = {"BBoxes": bboxes, "Scores": scores, "Anchors": anchors, "ImInfo": im_info}
    attrs = {
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "keep_top_k": keep_top_k,
        "nms_eta": 1.0,
    }
    return append_op(helper, layer, inputs, {"Out": helper.input_dtype("scores")}, attrs)[0]


def detection_map(
    detect_res: Variable,
    label: Variable,
    class_num: int,
    background_label: int = 0,
    overlap_threshold: float = 0.3,
    evaluate_difficult: bool = True,
    has_state: Variable | None = None,
    input_states: Sequence[Variable] | None = None,
    out_states: Sequence[Variable] | None = None,
    ap_version: str = "integral",
) -> Variable:
    """The mean average precision of detections; states (positives, true and false ones) accumulate over batches."""
    helper = LayerHelper("detection_map")
    precision = helper.create_variable_for_type_inference("float32")
    precision.shape = [1]
    states = out_states or [
        helper.create_variable_for_type_inference(dtype) for dtype in ("int32", "float32", "float32")
    ]
    before = input_states or (None, None, None)
    inputs = {
        "Label": label,
        "DetectRes": detect_res,
        "HasState": has_state,
        "PosCount": before[0],
        "TruePos": before[1],
        "FalsePos": before[2],
    }
    helper.append_op(
        type="detection_map",
        inputs={slot: value for slot, value in inputs.items() if value is not None},
        outputs={
            "MAP": precision,
            "AccumPosCount": states[0],
            "AccumTruePos": states[1],
            "AccumFalsePos": states[2],
        },
        attrs={
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_type": ap_version,
            "class_num": class_num,
        },
    )
    return precision
