"""Checks that losses share; they work on arrays and on TensorMeta."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.shapes import shape_text


def same_shape(ctx: OpContext | InferContext, **inputs: Any) -> None:
    """Fail unless all inputs (slot=value) have one shape; sizes known only at run time match anything."""
    (first, base), *others = ((slot, tuple(value.shape)) for slot, value in inputs.items())
    for slot, shape in others:
        fits = len(shape) == len(base) and all(a == b or -1 in (a, b) for a, b in zip(base, shape, strict=True))
        if not fits:
            raise ctx.error(
                f"inputs {first} and {slot} must have the same shape, found {shape_text(base)} and {shape_text(shape)}"
            )
