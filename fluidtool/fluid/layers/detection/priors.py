"""Boxes to start from: priors, anchors, and the head of SSD that predicts from them (Paddle 1.8.5 layers/detection.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.convolution import conv2d
from fluidtool.fluid.layers.detection.appending import append_op, as_list, floats
from fluidtool.fluid.layers.shape import concat, flatten, reshape, transpose
from fluidtool.ir import Variable

Sizes = float | Sequence[float]
VARIANCE = (0.1, 0.1, 0.2, 0.2)


def _pair(value: Any, name: str, parts: str) -> list[float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise UsageError(f"{name} should be a list or tuple with length 2, ({parts}), found {value!r}.")
    return floats(value)


def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: Sizes,
    max_sizes: Sizes | None = None,
    aspect_ratios: Sizes = (1.0,),
    variance: Sequence[float] = VARIANCE,
    flip: bool = False,
    clip: bool = False,
    steps: Sequence[float] = (0.0, 0.0),
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """The priors of SSD and their variances [height, width, priors, 4] for a feature map `input` of `image`."""
    helper = LayerHelper("prior_box", input=input, name=name)
    dtype = helper.input_dtype()
    check_variable_and_dtype(input, "input", ("uint8", "int8", "float32", "float64"), "prior_box")
    step_w, step_h = _pair(steps, "steps", "step_width, step_height")
    attrs: dict[str, Any] = {
        "min_sizes": floats(min_sizes),
        "aspect_ratios": floats(aspect_ratios),
        "variances": list(variance),
        "flip": flip,
        "clip": clip,
        "step_w": step_w,
        "step_h": step_h,
        "offset": offset,
        "min_max_aspect_ratios_order": min_max_aspect_ratios_order,
    }
    largest = [] if max_sizes is None else floats(max_sizes)
    if largest and largest[0] > 0:
        attrs["max_sizes"] = largest
    outputs = {"Boxes": dtype, "Variances": dtype}
    box, var = append_op(helper, "prior_box", {"Input": input, "Image": image}, outputs, attrs)
    return box, var


def density_prior_box(
    input: Variable,
    image: Variable,
    densities: Sequence[int] | None = None,
    fixed_sizes: Sequence[float] | None = None,
    fixed_ratios: Sequence[float] | None = None,
    variance: Sequence[float] = VARIANCE,
    clip: bool = False,
    steps: Sequence[float] = (0.0, 0.0),
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Priors of fixed sizes, `densities` of them side by side: boxes and variances, as prior_box or [boxes, 4]."""
    helper = LayerHelper("density_prior_box", input=input, name=name)
    dtype = helper.input_dtype()
    check_variable_and_dtype(input, "input", ("float32", "float64"), "density_prior_box")
    arguments = {"densities": densities, "fixed_sizes": fixed_sizes, "fixed_ratios": fixed_ratios}
    for label, value in arguments.items():
        check_type(value, label, (list, tuple), "density_prior_box")
    counts, sizes, ratios = as_list(densities), floats(fixed_sizes), floats(fixed_ratios)
    if len(counts) != len(sizes):
        raise UsageError(f"densities and fixed_sizes length should be euqal, found {len(counts)} and {len(sizes)}")
    step_w, step_h = _pair(steps, "steps", "step_width, step_height")
    attrs = {
        "variances": list(variance),
        "clip": clip,
        "step_w": step_w,
        "step_h": step_h,
        "offset": offset,
        "densities": [int(count) for count in counts],
        "fixed_sizes": sizes,
        "fixed_ratios": ratios,
        "flatten_to_2d": flatten_to_2d,
    }
    outputs = {"Boxes": dtype, "Variances": dtype}
    box, var = append_op(helper, "density_prior_box", {"Input": input, "Image": image}, outputs, attrs)
    return box, var


def anchor_generator(
    input: Variable,
    anchor_sizes: Sizes | None = None,
    aspect_ratios: Sizes | None = None,
    variance: Sequence[float] = VARIANCE,
    stride: Sequence[float] | None = None,
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """The anchors of Faster R-CNN and their variances [height, width, anchors, 4] for a feature map."""
    helper = LayerHelper("anchor_generator", input=input, name=name)
    dtype = helper.input_dtype()
    attrs = {
        "stride": _pair(stride, "stride", "stride_width, stride_height"),
        "anchor_sizes": floats(anchor_sizes),
        "aspect_ratios": floats(aspect_ratios),
        "variances": list(variance),
        "offset": offset,
    }
    outputs = {"Anchors": dtype, "Variances": dtype}
    anchor, var = append_op(helper, "anchor_generator", {"Input": input}, outputs, attrs)
    return anchor, var


# ---------------------------------------------------------------- the head of SSD
def multi_box_head(
    inputs: Sequence[Variable],
    image: Variable,
    base_size: int,
    num_classes: int,
    aspect_ratios: Sequence[Sizes],
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: Sequence[Sizes] | None = None,
    max_sizes: Sequence[Sizes] | None = None,
    steps: Sequence[float] | None = None,
    step_w: Sequence[float] | None = None,
    step_h: Sequence[float] | None = None,
    offset: float = 0.5,
    variance: Sequence[float] = VARIANCE,
    flip: bool = True,
    clip: bool = False,
    kernel_size: int = 1,
    pad: int = 0,
    stride: int = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable, Variable, Variable]:
    """What SSD predicts from feature maps: locations [n, priors, 4], scores [n, priors, num_classes], priors, variances.

    Every map has its sizes, ratios and steps. Without min_sizes and max_sizes, which maps up to two need, the sizes go
    from min_ratio to max_ratio percent of base_size.
    """
    if not isinstance(inputs, (list, tuple)):
        raise UsageError(f"inputs should be a list or tuple, found {type(inputs).__name__}")
    count = len(inputs)
    smallest, largest = _sizes(count, base_size, min_ratio, max_ratio, min_sizes, max_sizes)
    if steps is not None:
        step_w = step_h = _one_each(steps, "steps", count)
    for label, values in (("aspect_ratios", aspect_ratios or None), ("step_h", step_h), ("step_w", step_w)):
        if values is not None:
            _one_each(values, label, count)
    if (step_w is None) != (step_h is None):
        raise UsageError("multi_box_head takes step_w and step_h together")
    boxes, variances = [], []
    locations: list[Variable] = []
    scores: list[Variable] = []
    for index, feature in enumerate(inputs):
        step = [step_w[index], step_h[index]] if step_w and step_h else [0.0, 0.0]
        box, var = prior_box(
            feature,
            image,
            as_list(smallest[index]),
            as_list(largest[index]),
            as_list(aspect_ratios[index]) if aspect_ratios is not None else [],
            variance,
            flip,
            clip,
            step,
            offset,
            None,
            min_max_aspect_ratios_order,
        )
        boxes.append(box)
        variances.append(var)
        for found, width in ((locations, 4), (scores, num_classes)):
            filters = box.shape[2] * width
            predicted = conv2d(feature, num_filters=filters, filter_size=kernel_size, padding=pad, stride=stride)
            found.append(flatten(transpose(predicted, perm=[0, 2, 3, 1]), axis=1))
    if count == 1:
        return locations[0], scores[0], boxes[0], variances[0]
    flat_boxes, flat_variances = [], []
    for box, var in zip(boxes, variances, strict=True):
        flat_boxes.append(flatten(box, axis=3))
        flat_variances.append(flatten(var, axis=3))
    box, var = concat(flat_boxes), concat(flat_variances)
    location = reshape(concat(locations, axis=1), shape=[0, -1, 4])
    score = reshape(concat(scores, axis=1), shape=[0, -1, num_classes])
    box.stop_gradient = var.stop_gradient = True
    return location, score, box, var


def _one_each(values: Any, name: str, count: int) -> Any:
    if not isinstance(values, (list, tuple)) or len(values) != count:
        raise UsageError(f"{name} should be list or tuple, and the length of inputs and {name} should be the same.")
    return values


def _sizes(
    count: int,
    base_size: int,
    min_ratio: int | None,
    max_ratio: int | None,
    min_sizes: Sequence[Sizes] | None,
    max_sizes: Sequence[Sizes] | None,
) -> tuple[Sequence[Sizes], Sequence[Sizes]]:
    if min_sizes is not None and max_sizes is not None:
        return _one_each(min_sizes, "min_sizes", count), _one_each(max_sizes, "max_sizes", count)
    if count <= 2 or min_sizes is not None or max_sizes is not None:
        raise UsageError(f"multi_box_head needs min_sizes and max_sizes, one of each for its {count} inputs")
    if min_ratio is None or max_ratio is None:
        raise UsageError("multi_box_head needs min_ratio and max_ratio, or min_sizes and max_sizes")
    step = math.floor((max_ratio - min_ratio) / (count - 2))
    ratios = range(min_ratio, max_ratio + 1, step)
    smallest = [base_size * 0.1, *(base_size * ratio / 100.0 for ratio in ratios)]
    largest = [base_size * 0.2, *(base_size * (ratio + step) / 100.0 for ratio in ratios)]
    return smallest, largest
