"""Scratch outputs of fused operators: Paddle fills them for its own use, here they hold no memory."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext


def with_empty_scratch(ctx: OpContext, outputs: dict[str, Any]) -> dict[str, Any]:
    """`outputs`, with every intermediate output that it lacks as a tensor without memory."""
    missing = (slot.name for slot in ctx.info.outputs if slot.intermediate and slot.name not in outputs)
    return outputs | {name: ctx.dims_only((0,)) for name in missing}
