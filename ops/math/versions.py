"""Behavior that changed after Paddle 1.8: programs carry the version that saved them."""

from __future__ import annotations

from typing import Any

from fluidtool.ir import Program
from fluidtool.ops.context import InferContext, OpContext


def saved_by(program: Program, major: int, minor: int) -> bool:
    """Whether a program was saved by Paddle `major.minor` or later."""
    return (program.version or 0) >= major * 1_000_000 + minor * 1_000


def saved_since(ctx: OpContext | InferContext, major: int, minor: int) -> bool:
    """Whether the program of an operator was."""
    return saved_by(ctx.op.block.program, major, minor)


def scalar_shape(ctx: OpContext | InferContext) -> tuple[int, ...]:
    """The shape of a single number: (1,), from Paddle 2.5 on ()."""
    return () if saved_since(ctx, 2, 5) else (1,)


def later_attr(ctx: OpContext | InferContext, name: str, default: Any) -> Any:
    """An attribute that Paddle 1.8.5 did not have: the program's value, else `default`."""
    return ctx.op.attr(name) if ctx.op.has_attr(name) else default
