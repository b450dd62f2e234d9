"""Boxes compared, coded, clipped and transformed (Paddle 1.8.5 layers/detection.py)."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.layers.detection.appending import append_op, check_reals
from fluidtool.ir import Variable


def iou_similarity(x: Variable, y: Variable, box_normalized: bool = True, name: str | None = None) -> Variable:
    """The overlap (intersection over union) of every box of x [n, 4] with every box of y [m, 4]: [n, m]."""
    helper = LayerHelper("iou_similarity", name=name)
    return append_simple(helper, "iou_similarity", {"X": x, "Y": y}, {"box_normalized": box_normalized}, dtype=x.dtype)


def box_coder(
    prior_box: Variable,
    prior_box_var: Variable | list[float],
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """target_box as centers and sizes relative to prior_box ('encode_center_size'), or back ('decode_center_size').

    axis: the dimension of target_box that the priors go along when decoding.
    """
    helper = LayerHelper("box_coder", name=name)
    inputs: dict[str, Any] = {"PriorBox": prior_box, "TargetBox": target_box}
    attrs: dict[str, Any] = {"code_type": code_type, "box_normalized": box_normalized, "axis": axis}
    if isinstance(prior_box_var, Variable):
        inputs["PriorBoxVar"] = prior_box_var
    elif isinstance(prior_box_var, list):
        attrs["variance"] = prior_box_var
    else:
        raise ArgumentTypeError(
            f"Input variance of box_coder must be Variable or lisz, found {type(prior_box_var).__name__}"
        )
    return append_simple(helper, "box_coder", inputs, attrs, dtype=prior_box.dtype, slot="OutputBox")


def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Variable:
    """Boxes clipped to the image of im_info [n, 3] (height, width, scale)."""
    check_reals("box_clip", input=input, im_info=im_info)
    helper = LayerHelper("box_clip", name=name)
    inputs = {"Input": input, "ImInfo": im_info}
    return append_simple(helper, "box_clip", inputs, dtype=input.dtype, slot="Output")


def box_decoder_and_assign(
    prior_box: Variable,
    prior_box_var: Variable,
    target_box: Variable,
    box_score: Variable,
    box_clip: float,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """target_box [n, classes * 4] decoded, and for every row the box of its best class [n, 4]."""
    helper = LayerHelper("box_decoder_and_assign", name=name)
    inputs = {
        "PriorBox": prior_box,
        "PriorBoxVar": prior_box_var,
        "TargetBox": target_box,
        "BoxScore": box_score,
    }
    outputs = {"DecodeBox": prior_box.dtype, "OutputAssignBox": prior_box.dtype}
    decoded, assigned = append_op(
        helper, "box_decoder_and_assign", inputs, outputs, {"box_clip": box_clip}, stop_gradient=False
    )
    return decoded, assigned


def polygon_box_transform(input: Variable, name: str | None = None) -> Variable:
    """Offsets of polygon corners [n, 2 * corners, height, width] as positions in the image."""
    check_reals("polygon_box_transform", input=input)
    helper = LayerHelper("polygon_box_transform", name=name)
    return append_simple(helper, "polygon_box_transform", {"Input": input}, dtype=input.dtype, slot="Output")


def roi_perspective_transform(
    input: Variable,
    rois: Variable,
    transformed_height: int,
    transformed_width: int,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Quadrilaterals rois [r, 8] of feature maps made rectangles: the maps, which cells lie inside, and the matrices."""
    layer = "roi_perspective_transform"
    check_variable_and_dtype(input, "input", ("float32",), layer)
    check_variable_and_dtype(rois, "rois", ("float32",), layer)
    check_type(transformed_height, "transformed_height", int, layer)
    check_type(transformed_width, "transformed_width", int, layer)
    check_type(spatial_scale, "spatial_scale", float, layer)
    helper = LayerHelper(layer, input=input, name=name)
    dtype = helper.input_dtype()
    outputs = {"Out": dtype, "Mask": "int32", "TransformMatrix": dtype, "Out2InIdx": "int32", "Out2InWeights": dtype}
    attrs = {
        "transformed_height": transformed_height,
        "transformed_width": transformed_width,
        "spatial_scale": spatial_scale,
    }
    made = append_op(helper, layer, {"X": input, "ROIs": rois}, outputs, attrs, stop_gradient=False)
    return made[0], made[1], made[2]
