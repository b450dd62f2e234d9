"""Operators that are linear in a weight, seen by output channel: what a scale of their channels does to the weight."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.nn.windows import CHANNELS_LAST
from fluidtool.passes.inference.rewriting import MatchContext, NoMatch
from fluidtool.shapes import shape_text

Array = np.ndarray[Any, Any]

CONVOLUTIONS = frozenset({"conv2d", "depthwise_conv2d", "conv3d"})
TRANSPOSED = frozenset({"conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose"})
PRODUCTS = frozenset({"mul", "matmul", "matmul_v2", "fc"})
LINEAR = CONVOLUTIONS | TRANSPOSED | PRODUCTS
WEIGHT_SLOTS: Mapping[str, str] = {"mul": "Y", "matmul": "Y", "matmul_v2": "Y", "fc": "W"}
RANK_TWO_WEIGHT = "only a matrix of two dimensions is folded into"


def weight_slot(op_type: str) -> str:
    """The slot of the weight."""
    return WEIGHT_SLOTS.get(op_type, "Filter")


def result_slot(op_type: str) -> str:
    """The slot of the result."""
    return "Output" if op_type in CONVOLUTIONS | TRANSPOSED else "Out"


def check_plain(match: MatchContext) -> None:
    """Raise NoMatch when the operator does more than be linear: activations, residuals, quantised or padded weights."""
    op = match.op
    name = op.type
    if op.inputs.get("ResidualData"):
        raise NoMatch(f"the {name} adds a residual (ResidualData)")
    for attribute in ("fuse_activation", "activation_type", "activation", "fuse_relu", "fuse_brelu"):
        if op.get_attr(attribute, "") not in ("", "identity", False):
            raise NoMatch(f"the {name} ends with an activation ({attribute})")
    for attribute in ("enable_int8", "use_quantizer", "padding_weights"):
        if op.get_attr(attribute, False):
            raise NoMatch(f"the {name} has a quantized or padded weight ({attribute})")
    if match.numbers(match.input(weight_slot(name))).dtype.kind != "f":
        raise NoMatch(f"the weight {match.input(weight_slot(name))} is not of a floating-point type")


def output_rank(match: MatchContext) -> int:
    """How many dimensions the result has; raises NoMatch where the program does not say."""
    op = match.op
    weight = match.numbers(match.input(weight_slot(op.type)))
    if op.type == "mul":
        return int(op.get_attr("x_num_col_dims", 1)) + weight.ndim - int(op.get_attr("y_num_col_dims", 1))
    if op.type == "fc":
        return int(op.get_attr("in_num_col_dims", 1)) + 1
    if op.type in ("matmul", "matmul_v2"):
        var = match.block.find_var_recursive(match.input("X"))
        if weight.ndim != 2:
            raise NoMatch(f"the weight of the {op.type} has shape {shape_text(weight.shape)}; {RANK_TWO_WEIGHT}")
        if var is None or not var.has_shape or len(var.shape) < 2:
            raise NoMatch(f"{match.input('X')} is not declared with two dimensions or more")
        return len(var.shape)
    return weight.ndim


def channel_axis(match: MatchContext, data_layout: str) -> int:
    """The axis of the result that holds the output channels; raises NoMatch when `data_layout` (of what follows) differs."""
    op, rank = match.op, output_rank(match)
    following = rank - 1 if data_layout in CHANNELS_LAST else 1
    if op.type in PRODUCTS:
        axis = rank - 1
    else:
        axis = rank - 1 if op.get_attr("data_format", "NCHW") in CHANNELS_LAST else 1
    if axis != following:
        raise NoMatch(
            f"the {op.type} has its channels along axis {axis} of {rank}, but {data_layout} normalizes along "
            f"{following}"
        )
    return axis


def channels(match: MatchContext) -> int:
    """How many output channels there are; raises NoMatch for a weight that is not a matrix or filter."""
    op, weight = match.op, match.numbers(match.input(weight_slot(match.op.type)))
    if op.type in CONVOLUTIONS:
        return int(weight.shape[0])
    if op.type in TRANSPOSED:
        return int(weight.shape[1]) * _groups(match)
    if op.type == "mul":
        columns = weight.shape[int(op.get_attr("y_num_col_dims", 1)) :]
        if len(columns) != 1:
            raise NoMatch(f"the weight of the mul has shape {shape_text(weight.shape)}; {RANK_TWO_WEIGHT}")
        return int(columns[0])
    if weight.ndim != 2:
        raise NoMatch(f"the weight of the {op.type} has shape {shape_text(weight.shape)}; {RANK_TWO_WEIGHT}")
    return int(weight.shape[0 if _transposes_weight(match) else 1])


def scaled_weight(match: MatchContext, factor: Array) -> Array:
    """The weight with output channel i multiplied by factor[i], computed in float64, in the weight's data type."""
    op, weight = match.op, match.numbers(match.input(weight_slot(match.op.type)))
    wide = weight.astype(np.float64)
    if op.type in CONVOLUTIONS:
        scaled = wide * factor.reshape(-1, *[1] * (weight.ndim - 1))
    elif op.type in TRANSPOSED:
        groups = _groups(match)
        rows, columns, *window = weight.shape
        split = wide.reshape(groups, rows // groups, columns, prod(window))
        scaled = split * factor.reshape(groups, 1, columns, 1)
    else:
        scaled = wide * (factor[:, None] if _transposes_weight(match) else factor)
    return narrowed(scaled.reshape(weight.shape), weight.dtype)


def narrowed(values: Array, dtype: Any) -> Array:
    """float64 values in another floating-point type; raises NoMatch when that does not hold them."""
    with np.errstate(over="ignore"):
        result = values.astype(dtype)
    if not np.isfinite(result).all():
        raise NoMatch(
            f"the folded numbers do not fit {np.dtype(dtype).name} (a variance of zero, or NaN in a parameter)"
        )
    return result


def channel_vector(match: MatchContext, add: MatchContext, rank: int, axis: int, count: int) -> tuple[str, Array]:
    """The per-channel vector, and its name, that `add` (an elementwise_add) adds to what `match` computes.

    Raises NoMatch when it adds anything else: an activation, something along another axis, the result to itself.
    """
    name, result = add.input("Y"), match.output(result_slot(match.op.type))
    if add.input("X") != result or name == result:
        raise NoMatch(
            f"the elementwise_add does not add a bias to {result} (its X must be {result}, its Y a parameter)"
        )
    values = add.numbers(name)
    start = int(add.op.get_attr("axis", -1))
    start = rank - values.ndim if start == -1 else start
    sizes = [1] * start + list(values.shape)
    while len(sizes) > rank and sizes[-1] == 1:
        sizes.pop()
    sizes += [1] * (rank - len(sizes))
    wanted = [count if dimension == axis else 1 for dimension in range(rank)]
    if len(sizes) != rank or start < 0 or sizes not in (wanted, [1] * rank):
        raise NoMatch(
            f"{name} of shape {shape_text(values.shape)} is not one number per channel along axis {axis} "
            f"({count} channels, attribute axis {add.op.get_attr('axis', -1)})"
        )
    return name, np.broadcast_to(values.reshape(-1), (count,))


def _groups(match: MatchContext) -> int:
    return int(match.op.get_attr("groups", 1) or 1)


def _transposes_weight(match: MatchContext) -> bool:
    return bool(match.op.get_attr("transpose_Y", False) or match.op.get_attr("trans_y", False))
