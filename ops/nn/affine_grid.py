"""affine_grid: the grid of positions that an affine map of the output reads."""

from __future__ import annotations

from math import inf
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.nn.precision import require_floating, require_shape, widened
from fluidtool.ops.nn.windows import UNKNOWN
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints
from fluidtool.shapes import shape_text


def _sizes(ctx: OpContext, OutputShape: Any, rank: int) -> tuple[int, ...]:
    """The spatial sizes of the output image: after batch and channels in OutputShape or output_shape."""
    shape = (
        ctx.attr("output_shape") if OutputShape is None else [int(size) for size in ctx.host(OutputShape).reshape(-1)]
    )
    if not (len(shape) == rank + 2 and min(shape) > 0):
        raise ctx.error(
            f"the output's shape (OutputShape or output_shape) must be {rank + 2} positive numbers, found {shape_text(shape)}"
        )
    return tuple(shape[2:])


def _base(ctx: OpContext, sizes: tuple[int, ...], dtype: Any) -> Any:
    """[cells, rank + 1]: x, y (, z) from -1 to 1 and a one, for every cell. A size of 1 has no step: nan, as in Paddle."""
    xp, numbers = ctx.xp, []
    for axis, size in enumerate(sizes):
        if later_attr(ctx, "align_corners", True):
            step = 2 / (size - 1) if size > 1 else inf
            line = xp.arange(size, dtype=dtype) * dtype.type(step) - 1
        else:
            line = (xp.arange(size, dtype=dtype) * 2 + 1) / size - 1
        shape = [1] * len(sizes)
        shape[axis] = size
        numbers.append(xp.broadcast_to(line.reshape(shape), sizes).reshape(-1))
    return xp.stack([*numbers[::-1], xp.ones_like(numbers[0])], axis=1)


def _rank(ctx: OpContext | InferContext, shape: tuple[int, ...]) -> int:
    if len(shape) != 3 or tuple(shape[1:]) not in ((2, 3), (3, 4)):
        raise ctx.error(f"Theta must have shape (N, 2, 3), or (N, 3, 4) for volumes, found {shape_text(shape)}")
    return shape[1]


@op(
    "affine_grid",
    inputs="Theta OutputShape?",
    outputs="Output",
    attrs={"use_cudnn": True, "output_shape": ints()},
    lod="Theta",
)
def affine_grid(ctx: OpContext, Theta: Any, OutputShape: Any) -> Any:
    """Output [N, H, W, 2] = Theta [N, 2, 3] applied to the positions (x, y, 1) of an H x W image (affine_grid_op.h)."""
    require_floating(ctx, "Theta", Theta)
    sizes = _sizes(ctx, OutputShape, _rank(ctx, Theta.shape))
    theta = widened(Theta)
    grid = ctx.xp.matmul(_base(ctx, sizes, theta.dtype), theta.swapaxes(1, 2))
    return grid.reshape(len(Theta), *sizes, len(sizes)).astype(Theta.dtype, copy=False)


@affine_grid.infer
def _(ctx: InferContext, Theta: TensorMeta, OutputShape: TensorMeta | None, *, output_shape: list[int]) -> TensorMeta:
    rank = _rank(ctx, Theta.shape)
    if OutputShape is None and len(output_shape) != rank + 2:
        raise ctx.error(f"output_shape must hold {rank + 2} sizes, found {shape_text(output_shape)}")
    return Theta.with_shape([Theta.shape[0], *[UNKNOWN] * rank, rank])


@affine_grid.grad(inputs="OutputShape? Output@GRAD", outputs="Theta@GRAD")
def affine_grid_grad(ctx: OpContext, OutputShape: Any, Output_grad: Any) -> Any:
    """dTheta = sum over positions of dOutput times the position."""
    rank = Output_grad.shape[-1]
    sizes = _sizes(ctx, OutputShape, rank)
    require_shape(ctx, "Output@GRAD", Output_grad, (len(Output_grad), *sizes, rank), "the output's shape")
    grad = widened(Output_grad).reshape(len(Output_grad), -1, rank).swapaxes(1, 2)
    return ctx.xp.matmul(grad, _base(ctx, sizes, grad.dtype)).astype(Output_grad.dtype, copy=False)


@affine_grid_grad.infer
def _(ctx: InferContext, OutputShape: TensorMeta | None, Output_grad: TensorMeta) -> TensorMeta:
    rank = Output_grad.shape[-1]
    return Output_grad.with_shape([Output_grad.shape[0], rank, rank + 1])
