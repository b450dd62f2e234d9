"""pool2d and pool3d: maximum and average pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.nn.conv_common import require_like_output
from fluidtool.ops.nn.pooling import (
    AxisBins,
    adaptive_bins,
    first_maximum_grad,
    max_bins,
    outer_product,
    single_share,
    spread_bins,
    sum_bins,
    window_bins,
)
from fluidtool.ops.nn.precision import require_floating, widened
from fluidtool.ops.nn.windows import (
    Windows,
    channels_back,
    channels_first,
    join_shape,
    lay_windows,
    require_outputs,
    split_shape,
)
from fluidtool.ops.quantize.eight_bits import is_8_bits, saturated
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, STRING, USE_CUDNN, USE_MKLDNN, TensorMeta, ints, or_variable, required
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

POOL: dict[str, Any] = {
    "pooling_type": required(STRING),
    "ksize": required(INTS),
    "global_pooling": False,
    "exclusive": True,
    "adaptive": False,
    "ceil_mode": False,
    "padding_algorithm": "EXPLICIT",
    **USE_CUDNN,
    **USE_MKLDNN,
}
POOL2D: dict[str, Any] = {
    **POOL,
    "ksize": or_variable(required(INTS)),
    "strides": ints(1, 1),
    "paddings": ints(0, 0),
    "use_quantizer": False,
    "data_format": "NCHW",
    "is_test": False,
}
POOL3D: dict[str, Any] = {**POOL, "strides": ints(1, 1, 1), "paddings": ints(0, 0, 0), "data_format": "NCDHW"}


@dataclass(frozen=True, slots=True)
class Pooling:
    """One pooling, checked against the shape of X."""

    maximum: bool
    adaptive: bool
    windows: Windows
    data_format: str
    batch: int
    channels: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the output, in the layout of the input."""
        return join_shape(self.batch, self.channels, self.counts, self.data_format)

    @property
    def bins(self) -> list[AxisBins]:
        """The windows by axis. Paddle's maximum knows no adaptive windows: they start at multiples of the stride."""
        if self.adaptive and not self.maximum:
            return adaptive_bins(self.sizes, self.counts)
        return window_bins(self.sizes, self.windows, self.counts)


def plan_pooling(ctx: OpContext | InferContext, shape: Sequence[int]) -> Pooling:
    """Read the attributes and check the shape (Paddle 1.8.5 pool_op.cc); raises OperatorError when they cannot work."""
    if len(shape) not in (4, 5):
        raise ctx.error(f"X must have 4 dimensions (or 5 with depth), found {shape_text(shape)}")
    kind, data_format, adaptive = ctx.attr("pooling_type"), ctx.attr("data_format"), ctx.attr("adaptive")
    if kind not in ("max", "avg"):
        raise ctx.error(f"attribute pooling_type must be 'max' or 'avg', found {kind!r}")
    batch, channels, sizes = split_shape(shape, data_format)
    kernel, algorithm, paddings = list(ctx.attr("ksize")), ctx.attr("padding_algorithm"), ctx.attr("paddings")
    if ctx.attr("global_pooling"):
        kernel = list(sizes)
    if ctx.attr("global_pooling") or adaptive:
        paddings, algorithm = [0] * len(sizes), "EXPLICIT"
    windows = lay_windows(ctx, sizes, kernel, ctx.attr("strides"), paddings, algorithm)
    counts = tuple(kernel) if adaptive else windows.output_sizes(sizes, ctx.attr("ceil_mode"))
    require_outputs(ctx, sizes, windows, counts)
    return Pooling(kind == "max", adaptive, windows, data_format, batch, channels, sizes, counts)


def pool(ctx: OpContext, X: Any) -> Any:
    """Maximum or average of every window; averages of 8 bits are rounded."""
    if not is_8_bits(X):
        require_floating(ctx, "X", X)
    plan, xp = plan_pooling(ctx, X.shape), ctx.xp
    if X.size == 0:
        return xp.zeros(plan.output_shape, dtype=X.dtype)
    x = channels_first(X.astype("float32") if is_8_bits(X) else X, plan.data_format)
    if plan.maximum:
        return channels_back(max_bins(xp, x, plan.bins).astype(X.dtype, copy=False), plan.data_format)
    out = sum_bins(xp, widened(x), plan.bins)
    out = out / _divisor(ctx, plan, out.dtype)
    out = saturated(xp, out, X.dtype.name) if is_8_bits(X) else out
    return channels_back(out.astype(X.dtype, copy=False), plan.data_format)


def _divisor(ctx: OpContext, plan: Pooling, dtype: Any) -> Any:
    """How many cells each window averages over.

    exclusive=False counts the whole kernel; programs saved since 2.0 leave out what ceil_mode adds beyond the paddings.
    """
    if ctx.attr("exclusive") or plan.adaptive:
        lengths = [axis.lengths() for axis in plan.bins]
    elif saved_since(ctx, 2, 0):
        lengths = [axis.padded_lengths() for axis in plan.bins]
    else:
        return ctx.xp.asarray(prod(plan.windows.kernel), dtype=dtype)
    return outer_product(ctx.xp, lengths, dtype)


def pool_grad(ctx: OpContext, X: Any, Out: Any, out_grad: Any) -> Any:
    """Average: every cell gets its windows' shares. Maximum: the first cell of a window that equals Out gets all."""
    plan, xp = plan_pooling(ctx, X.shape), ctx.xp
    require_like_output(ctx, "Out@GRAD", out_grad, plan.output_shape)
    if X.size == 0:
        return X
    grad = widened(channels_first(out_grad, plan.data_format))
    if plan.maximum:
        x, out = channels_first(X, plan.data_format), channels_first(Out, plan.data_format)
        grad = first_maximum_grad(xp, x, out, grad, plan.bins)
    else:
        grad = spread_bins(xp, grad * single_share(_divisor(ctx, plan, grad.dtype)), plan.bins)
    return channels_back(grad.astype(X.dtype, copy=False), plan.data_format)


def infer_pool(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    """The output's shape; sizes of -1 stay open."""
    return X.with_shape(plan_pooling(ctx, X.shape).output_shape)


@op("pool2d", inputs="X", outputs="Out", attrs=POOL2D, lod="X")
def pool2d(ctx: OpContext, X: Any) -> Any:
    """2-D pooling, NCHW or NHWC, floating point (Paddle 1.8.5 pool_op.h, math/pooling.cc)."""
    return pool(ctx, X)


@pool2d.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return infer_pool(ctx, X)


@pool2d.grad(inputs="X Out Out@GRAD", outputs="X@GRAD")
def pool2d_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any) -> Any:
    """Gradient by X."""
    return pool_grad(ctx, X, Out, Out_grad)


@op("pool3d", inputs="X", outputs="Out", attrs=POOL3D, lod="X")
def pool3d(ctx: OpContext, X: Any) -> Any:
    """3-D pooling, NCDHW or NDHWC, floating point (Paddle 1.8.5 pool_op.h, math/pooling.cc)."""
    return pool(ctx, X)


@pool3d.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return infer_pool(ctx, X)


@pool3d.grad(inputs="X Out Out@GRAD", outputs="X@GRAD")
def pool3d_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any) -> Any:
    """Gradient by X."""
    return pool_grad(ctx, X, Out, Out_grad)
