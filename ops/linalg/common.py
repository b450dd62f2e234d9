"""What operators on stacks of matrices share: checks of shapes, failures of LAPACK, triangles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.shapes import shape_text


def check_matrices(ctx: OpContext | InferContext, shape: tuple[int, ...], slot: str) -> None:
    """Refuse what has fewer than two dimensions."""
    if len(shape) < 2:
        raise ctx.error(f"{slot} must hold matrices in its last two dimensions, found shape {shape_text(shape)}")


def check_square(ctx: OpContext | InferContext, shape: tuple[int, ...], slot: str) -> None:
    """Refuse what does not hold square matrices; -1 is any size."""
    if not (len(shape) >= 2 and (shape[-1] == shape[-2] or -1 in shape[-2:])):
        raise ctx.error(f"{slot} must hold square matrices in its last two dimensions, found shape {shape_text(shape)}")


def solved(ctx: OpContext, compute: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A result of numpy.linalg; what it cannot compute (singular, not positive definite, NaN) is an error."""
    try:
        return compute(*args, **options)
    except ctx.np.linalg.LinAlgError as error:
        raise ctx.error(f"it has no result for these numbers: {error}") from error


def turned(x: Any) -> Any:
    """The transpose of each matrix in the last two dimensions."""
    return x.swapaxes(-1, -2)


def smaller(shape: tuple[int, ...]) -> int:
    """The smaller of the last two sizes; -1 if one is not known."""
    return -1 if -1 in shape[-2:] else min(shape[-2:])
