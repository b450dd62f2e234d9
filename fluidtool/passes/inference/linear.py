"""Operators that are linear in a weight, seen by output channel: what a scale of their channels does to the weight."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.nn.windows import CHANNELS_LAST
from fluidtool.passes.inference.rewriting import Site, Unfit

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


def check_plain(site: Site) -> None:
    """Raise Unfit when the operator does more than be linear: activations, residuals, quantised or padded weights."""
    op = site.op
    name = op.type
    if op.inputs.get("ResidualData"):
        raise Unfit(f"the {name} adds a residual (ResidualData)")
    for attribute in ("fuse_activation", "activation_type", "activation", "fuse_relu", "fuse_brelu"):
        if op.get_attr(attribute, "") not in ("", "identity", False):
            raise Unfit(f"the {name} ends with an activation ({attribute})")
    for attribute in ("enable_int8", "use_quantizer", "padding_weights"):
        if op.get_attr(attribute, False):
            raise Unfit(f"the {name} has a quantised or padded weight ({attribute})")
    if site.numbers(site.input(weight_slot(name))).dtype.kind != "f":
        raise Unfit(f"the weight {site.input(weight_slot(name))} is not of a floating-point type")


def output_rank(site: Site) -> int:
    """How many dimensions the result has; raises Unfit where the program does not say."""
    op = site.op
    weight = site.numbers(site.input(weight_slot(op.type)))
    if op.type == "mul":
        return int(op.get_attr("x_num_col_dims", 1)) + weight.ndim - int(op.get_attr("y_num_col_dims", 1))
    if op.type == "fc":
        return int(op.get_attr("in_num_col_dims", 1)) + 1
    if op.type in ("matmul", "matmul_v2"):
        var = site.block.find_var_recursive(site.input("X"))
        if weight.ndim != 2:
            raise Unfit(f"the weight of the {op.type} has shape {list(weight.shape)}; {RANK_TWO_WEIGHT}")
        if var is None or not var.has_shape or len(var.shape) < 2:
            raise Unfit(f"the program does not say that {site.input('X')} has two dimensions or more")
        return len(var.shape)
    return weight.ndim


def channel_axis(site: Site, data_layout: str) -> int:
    """The axis of the result that holds the output channels; raises Unfit when `data_layout` (of what follows) differs."""
    op, rank = site.op, output_rank(site)
    following = rank - 1 if data_layout in CHANNELS_LAST else 1
    if op.type in PRODUCTS:
        axis = rank - 1
    else:
        axis = rank - 1 if op.get_attr("data_format", "NCHW") in CHANNELS_LAST else 1
    if axis != following:
        raise Unfit(
            f"the {op.type} has its channels along axis {axis} of {rank}, and {data_layout} normalises along {following}"
        )
    return axis


def channels(site: Site) -> int:
    """How many output channels there are; raises Unfit for a weight that is no matrix or filter."""
    op, weight = site.op, site.numbers(site.input(weight_slot(site.op.type)))
    if op.type in CONVOLUTIONS:
        return int(weight.shape[0])
    if op.type in TRANSPOSED:
        return int(weight.shape[1]) * _groups(site)
    if op.type == "mul":
        columns = weight.shape[int(op.get_attr("y_num_col_dims", 1)) :]
        if len(columns) != 1:
            raise Unfit(f"the weight of the mul has shape {list(weight.shape)}; {RANK_TWO_WEIGHT}")
        return int(columns[0])
    if weight.ndim != 2:
        raise Unfit(f"the weight of the {op.type} has shape {list(weight.shape)}; {RANK_TWO_WEIGHT}")
    return int(weight.shape[0 if _transposes_weight(site) else 1])


def scaled_weight(site: Site, factor: Array) -> Array:
    """The weight with output channel i multiplied by factor[i], computed in float64, in the weight's data type."""
    op, weight = site.op, site.numbers(site.input(weight_slot(site.op.type)))
    wide = weight.astype(np.float64)
    if op.type in CONVOLUTIONS:
        scaled = wide * factor.reshape(-1, *[1] * (weight.ndim - 1))
    elif op.type in TRANSPOSED:
        groups = _groups(site)
        rows, columns, *window = weight.shape
        split = wide.reshape(groups, rows // groups, columns, prod(window))
        scaled = split * factor.reshape(groups, 1, columns, 1)
    else:
        scaled = wide * (factor[:, None] if _transposes_weight(site) else factor)
    return narrowed(scaled.reshape(weight.shape), weight.dtype)


def narrowed(values: Array, dtype: Any) -> Array:
    """float64 values in another floating-point type; raises Unfit when that does not hold them."""
    with np.errstate(over="ignore"):
        result = values.astype(dtype)
    if not np.isfinite(result).all():
        raise Unfit(f"the folded numbers do not fit {np.dtype(dtype).name} (a variance of zero, or NaN in a parameter)")
    return result


def channel_vector(site: Site, add: Site, rank: int, axis: int, count: int) -> tuple[str, Array]:
    """The per-channel vector, and its name, that `add` (an elementwise_add) adds to what `site` computes.

    Raises Unfit when it adds anything else: an activation, something along another axis, the result to itself.
    """
    name, result = add.input("Y"), site.output(result_slot(site.op.type))
    if add.input("X") != result or name == result:
        raise Unfit(f"the elementwise_add does not add a bias to {result} (its X must be {result}, its Y a parameter)")
    values = add.numbers(name)
    start = int(add.op.get_attr("axis", -1))
    start = rank - values.ndim if start == -1 else start
    sizes = [1] * start + list(values.shape)
    while len(sizes) > rank and sizes[-1] == 1:
        sizes.pop()
    sizes += [1] * (rank - len(sizes))
    wanted = [count if dimension == axis else 1 for dimension in range(rank)]
    if len(sizes) != rank or start < 0 or sizes not in (wanted, [1] * rank):
        raise Unfit(
            f"{name} of shape {list(values.shape)} is not one number per channel along axis {axis} "
            f"({count} channels, attribute axis {add.op.get_attr('axis', -1)})"
        )
    return name, np.broadcast_to(values.reshape(-1), (count,))


def _groups(site: Site) -> int:
    return int(site.op.get_attr("groups", 1) or 1)


def _transposes_weight(site: Site) -> bool:
    return bool(site.op.get_attr("transpose_Y", False) or site.op.get_attr("trans_y", False))
