"""Quantization arithmetic: scales, rounding, and values that an output variable keeps from run to run."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor

TIES_TO_EVEN, TIES_AWAY_FROM_ZERO = 0, 1  # round_type of Paddle 2.3 and later
SMALLEST_SCALE = 1e-6


def levels(ctx: OpContext | InferContext, bit_length: int) -> int:
    """How many steps a number of `bit_length` bits has on either side of 0: 127 for 8 bits."""
    if not 1 <= bit_length <= 16:
        raise ctx.error(f"attribute bit_length must be between 1 and 16, found {bit_length}")
    return int(2 ** (bit_length - 1) - 1)


def check_axis(ctx: OpContext | InferContext, X: Any, quant_axis: int) -> None:
    """Fail unless quant_axis is a dimension of X that scales may run along (0 or 1)."""
    rank = len(X.shape)
    if not (quant_axis in (0, 1) and quant_axis < rank):
        raise ctx.error(
            f"attribute quant_axis must be 0 or 1 and a dimension of X (shape {shape_text(X.shape)}), found {quant_axis}"
        )


def largest(ctx: OpContext, X: Any, axis: int | None = None) -> Any:
    """max |x|, of everything as [1], or along `axis` as [channels]; fails for an empty X."""
    if X.size <= 0:
        raise ctx.error(f"input X must not be empty: its largest value sets the scale (shape {X.shape})")
    if axis is None:
        return abs(X).max().reshape(1)
    return abs(X).max(axis=tuple(i for i in range(X.ndim) if i != axis))


def along(scale: Any, X: Any, axis: int | None) -> Any:
    """The scale, shaped so that it runs along `axis` of X; one number when axis is None."""
    if axis is None:
        return scale.reshape(-1)[0]
    shape = [1] * X.ndim
    shape[axis] = -1
    return scale.reshape(shape)


def inverse(ctx: OpContext, scale: Any) -> Any:
    """1 / scale, with a small number added to scales of almost 0."""
    one = scale.dtype.type(1)
    return ctx.xp.where(scale <= SMALLEST_SCALE, one / (scale + scale.dtype.type(SMALLEST_SCALE)), one / scale)


def quantized(ctx: OpContext, X: Any, scale: Any, count: int, round_type: int | None) -> Any:
    """Whole numbers in the data type of X: round(x * count / scale) for x clipped to the scale.

    round_type None is Paddle 1.8.5's way, ties to even. With TIES_TO_EVEN the result is clipped instead of x, which lets
    -count - 1 through.
    """
    xp, factor = ctx.xp, X.dtype.type(count) * inverse(ctx, scale)
    if round_type == TIES_TO_EVEN:
        return xp.clip(xp.rint(factor * X), -count - 1, count)
    steps = factor * xp.clip(X, -scale, scale)
    if round_type is None:
        return xp.rint(steps)
    whole = xp.trunc(steps)
    return whole + xp.where(abs(steps - whole) >= 0.5, xp.sign(steps), steps.dtype.type(0))


def kept(ctx: OpContext, slot: str) -> Any:
    """The array that an output variable holds from an earlier run, or None."""
    holders = ctx.outputs.get(slot, ())
    value = holders[0].value if holders and holders[0] is not None else None
    return value.array if isinstance(value, LoDTensor) else None


def untouched(ctx: OpContext, **shapes: int) -> dict[str, Any]:
    """Outputs that a test run does not change: those without a value get their size, as after Paddle's inference."""
    return {slot: ctx.dims_only((size,)) for slot, size in shapes.items() if kept(ctx, slot) is None}
