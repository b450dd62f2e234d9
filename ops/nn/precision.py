"""Floating-point types: sums of 16-bit numbers run in float32, as in Paddle's kernels."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.shapes import shape_text

HALVES = frozenset({"float16", "bfloat16"})


def widened(x: Any) -> Any:
    """`x` itself, or its float32 copy when it is floating point of 16 bits."""
    return x.astype("float32") if x.dtype.itemsize == 2 and x.dtype.name in HALVES else x


def is_floating(dtype: Any) -> bool:
    """Whether a dtype is floating point; bfloat16 is, though numpy files it elsewhere."""
    return bool(dtype.kind == "f" or dtype.name == "bfloat16")


def require_floating(ctx: OpContext, slot: str, x: Any) -> None:
    """Refuse an input that is not floating point."""
    if not is_floating(x.dtype):
        raise ctx.error(
            f"input {slot} must be floating point, found {x.dtype} {shape_text(x.shape)}; put a cast before it"
        )


def require_rank(ctx: OpContext, slot: str, x: Any, *ranks: int) -> None:
    """Refuse an input of another rank."""
    if x.ndim not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise ctx.error(f"input {slot} must have {wanted} dimensions, found shape {shape_text(x.shape)}")


def require_shape(ctx: OpContext, slot: str, x: Any, shape: tuple[int, ...], why: str) -> None:
    """Refuse an input of another shape; `why` says where the expected one comes from."""
    if tuple(x.shape) != tuple(shape):
        raise ctx.error(f"input {slot} must have shape {shape_text(shape)} ({why}), found {shape_text(x.shape)}")
