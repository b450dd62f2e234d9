"""fc: a matrix product with bias and activation in one operator."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ir.operator import Operator
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import Shapes
from fluidtool.ops.nn.fused_activation import activate, require_activation
from fluidtool.ops.nn.precision import require_floating, widened
from fluidtool.ops.nn.windows import UNKNOWN
from fluidtool.ops.quantize.eight_bits import is_8_bits, read_scales, stored, whole_weights
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta, floats
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text

PADDING = 4
"""The rows and columns that Paddle's fc_fuse_pass adds to a weight (padding_weights)."""


def _output_shape(ctx: OpContext | InferContext, shape: Sequence[int], weight: Sequence[int]) -> tuple[int, ...]:
    """The shape of Out: the leading dimensions of Input, then the columns of W."""
    columns = ctx.attr("in_num_col_dims")
    if not 0 < columns < len(shape):
        raise ctx.error(
            f"attribute in_num_col_dims must be between 1 and {len(shape) - 1} "
            f"for Input of shape {shape_text(shape)}, found {columns}"
        )
    if len(weight) != 2:
        raise ctx.error(f"input W must have 2 dimensions, found shape {shape_text(weight)}")
    rows, width = weight
    if ctx.attr("padding_weights"):
        rows, width = rows - PADDING, width - PADDING
    inner = shape[columns:]
    if UNKNOWN not in inner and prod(inner) != rows:
        raise ctx.error(
            f"input Input of shape {shape_text(shape)} has rows of {prod(inner)} elements (in_num_col_dims {columns}), input W of "
            f"shape {shape_text(weight)} expects {rows}"
        )
    return (*shape[:columns], width)


def _require_bias(ctx: OpContext | InferContext, bias: Any, width: int) -> None:
    """Refuse a bias that is not as long as a row of Out, where both are known."""
    if bias is not None and UNKNOWN not in (width, *bias.shape) and prod(bias.shape) != width:
        raise ctx.error(f"input Bias must hold {width} numbers, found shape {shape_text(bias.shape)}")


def _multiply_adds(op: Operator, shape: Shapes) -> int:
    """Every row of Input meets each column of W."""
    return prod(shape("Input")) * shape("W", rank=2)[1]


@op(
    "fc",
    inputs="Input W Bias?",
    outputs="Out",
    attrs={
        "in_num_col_dims": 1,
        "activation_type": "",
        "padding_weights": False,
        "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@": True,
        "use_quantizer": False,
        "Scale_in": 1.0,
        "Scale_weights": floats(1.0),
        "Scale_out": 1.0,
        "force_fp32_output": False,
        **USE_MKLDNN,
    },
    lod="Input",
    traits=Traits(weight="W"),
    multiply_adds=_multiply_adds,
)
def fc(ctx: OpContext, Input: Any, W: Any, Bias: Any) -> Any:
    """act(Input [rows, K] x W [K, N] + Bias [N]), floating point (Paddle 1.8.5 fc_op.cc), or of 8 bits."""
    if is_8_bits(Input):
        return _fc_of_8_bits(ctx, Input, W, Bias)
    require_floating(ctx, "Input", Input)
    if Input.dtype != W.dtype:
        raise ctx.error(f"Input and W must have one data type, found {Input.dtype} and {W.dtype}")
    shape = _output_shape(ctx, Input.shape, W.shape)
    _require_bias(ctx, Bias, shape[-1])
    require_activation(ctx, ctx.attr("activation_type"))
    weight = W[:-PADDING, :-PADDING] if ctx.attr("padding_weights") else W
    out = widened(Input).reshape(-1, weight.shape[0]) @ widened(weight)
    if Bias is not None:
        out += widened(Bias).reshape(-1)
    out = activate(ctx, out, ctx.attr("activation_type"))
    return out.reshape(shape).astype(Input.dtype, copy=False)


def _fc_of_8_bits(ctx: OpContext, Input: Any, W: Any, Bias: Any) -> Any:
    """The same in whole numbers, scaled at the end (Paddle 1.8.5 mkldnn/fc_mkldnn_op.cc)."""
    xp, shape, activation = ctx.xp, _output_shape(ctx, Input.shape, W.shape), ctx.attr("activation_type")
    _require_bias(ctx, Bias, shape[-1])
    scales = read_scales(ctx, shape[-1])
    sums = Input.reshape(-1, W.shape[0]).astype("float64") @ whole_weights(xp, W, scales.weights)
    if Bias is not None:
        sums += Bias.reshape(-1) * scales.sums  # unlike a convolution's, not rounded
    out = activate(ctx, sums.astype("float32") * scales.factor, activation)
    return stored(xp, out.reshape(shape), scales.out, activation == "relu")


@fc.infer
def _(ctx: InferContext, Input: TensorMeta, W: TensorMeta, Bias: TensorMeta | None) -> TensorMeta:
    shape = _output_shape(ctx, Input.shape, W.shape)
    _require_bias(ctx, Bias, shape[-1])
    return Input.with_shape(shape)
