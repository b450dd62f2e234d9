"""unfold and fold: the windows of an image as columns, and back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.precision import require_rank, require_shape
from fluidtool.ops.nn.windows import UNKNOWN, Windows, pad, require_outputs, unpad
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, TensorMeta, required
from fluidtool.shapes import shape_text

UNFOLD: dict[str, Any] = {
    "kernel_sizes": required(INTS),
    "strides": required(INTS),
    "paddings": required(INTS),
    "dilations": required(INTS),
}


def _windows(ctx: OpContext | InferContext, sizes: Sequence[int]) -> tuple[Windows, tuple[int, ...]]:
    """The windows, and how many there are on each axis."""
    for name in ("kernel_sizes", "strides", "dilations"):
        values = ctx.attr(name)
        if not (len(values) == 2 and min(values) > 0):
            raise ctx.error(f"attribute {name} must be 2 positive numbers, found {values}")
    paddings = ctx.attr("paddings")
    if not (len(paddings) == 4 and min(paddings) >= 0):
        raise ctx.error(f"attribute paddings must be [up, left, down, right], none negative, found {paddings}")
    up, left, down, right = paddings
    windows = Windows(
        tuple(ctx.attr("kernel_sizes")),
        tuple(ctx.attr("strides")),
        ((up, down), (left, right)),
        tuple(ctx.attr("dilations")),
    )
    counts = windows.output_sizes(sizes)
    require_outputs(ctx, sizes, windows, counts)
    return windows, counts


def _unfold(xp: Any, x: Any, windows: Windows, counts: tuple[int, ...]) -> Any:
    padded = pad(xp, x, windows.reach(x.shape[2:], counts))
    columns = xp.empty((*x.shape[:2], *windows.kernel, *counts), dtype=x.dtype)
    for tap, cells in windows.taps(counts):
        columns[(slice(None), slice(None), *tap)] = padded[cells]
    return columns.reshape(len(x), x.shape[1] * prod(windows.kernel), -1)


def _fold(xp: Any, columns: Any, windows: Windows, counts: tuple[int, ...], sizes: Sequence[int]) -> Any:
    """The transpose of `_unfold`: [N, C * kh * kw, windows] -> [N, C, sizes]."""
    columns = columns.reshape(len(columns), -1, *windows.kernel, *counts)
    edges = windows.reach(sizes, counts)
    spans = [size + sum(edge) for size, edge in zip(sizes, edges, strict=True)]
    padded = xp.zeros((*columns.shape[:2], *spans), dtype=columns.dtype)
    for tap, cells in windows.taps(counts):
        padded[cells] += columns[(slice(None), slice(None), *tap)]
    return unpad(xp, padded, edges)


@op("unfold", inputs="X", outputs="Y", attrs=UNFOLD)
def unfold(ctx: OpContext, X: Any) -> Any:
    """[N, C, H, W] -> [N, C * kh * kw, windows] (Paddle 1.8.5 unfold_op.h)."""
    require_rank(ctx, "X", X, 4)
    return _unfold(ctx.xp, X, *_windows(ctx, X.shape[2:]))


@unfold.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    if X.rank != 4:
        raise ctx.error(f"input X must have 4 dimensions, found shape {X.shape}")
    windows, counts = _windows(ctx, X.shape[2:])
    rows = UNKNOWN if X.shape[1] == UNKNOWN else X.shape[1] * prod(windows.kernel)
    return X.with_shape([X.shape[0], rows, UNKNOWN if UNKNOWN in counts else prod(counts)]).with_lod_level(0)


@unfold.grad(inputs="X Y@GRAD", outputs="X@GRAD")
def unfold_grad(ctx: OpContext, X: Any, Y_grad: Any) -> Any:
    """Every cell gets the sum over the windows that it is in."""
    windows, counts = _windows(ctx, X.shape[2:])
    shape = (len(X), X.shape[1] * prod(windows.kernel), prod(counts))
    require_shape(ctx, "Y@GRAD", Y_grad, shape, "the shape of Y")
    return _fold(ctx.xp, Y_grad, windows, counts, X.shape[2:])


def _fold_plan(ctx: OpContext | InferContext, shape: Sequence[int]) -> tuple[Windows, tuple[int, ...], tuple[int, ...]]:
    """(windows, their counts, output sizes) of `fold` for X of this shape."""
    if len(shape) != 3:
        raise ctx.error(f"input X must have 3 dimensions, found shape {shape_text(shape)}")
    sizes = tuple(ctx.attr("output_sizes"))
    if len(sizes) != 2:
        raise ctx.error(f"attribute output_sizes must be 2 numbers, found {list(sizes)}")
    windows, counts = _windows(ctx, sizes)
    kernel = prod(windows.kernel)
    if shape[1] != UNKNOWN and shape[1] % kernel != 0:
        raise ctx.error(f"input X {shape_text(shape)} must have a multiple of {kernel} rows, the cells of a kernel")
    if shape[2] not in (UNKNOWN, prod(counts)):
        raise ctx.error(
            f"input X {shape_text(shape)} must have {prod(counts)} columns: output_sizes {list(sizes)} have {counts} windows"
        )
    return windows, counts, sizes


@op("fold", inputs="X", outputs="Y", attrs={"output_sizes": required(INTS), **UNFOLD})
def fold(ctx: OpContext, X: Any) -> Any:
    """[N, C * kh * kw, windows] -> [N, C, H, W]: every cell is the sum over the windows that it is in (Paddle 2.6 fold)."""
    return _fold(ctx.xp, X, *_fold_plan(ctx, X.shape))


@fold.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    windows, _, sizes = _fold_plan(ctx, X.shape)
    channels = UNKNOWN if X.shape[1] == UNKNOWN else X.shape[1] // prod(windows.kernel)
    return X.with_shape([X.shape[0], channels, *sizes]).with_lod_level(0)


@fold.grad(inputs="X Y@GRAD", outputs="X@GRAD")
def fold_grad(ctx: OpContext, X: Any, Y_grad: Any) -> Any:
    """dX = the windows of dY."""
    windows, counts, sizes = _fold_plan(ctx, X.shape)
    require_shape(ctx, "Y@GRAD", Y_grad, (len(X), X.shape[1] // prod(windows.kernel), *sizes), "the shape of Y")
    return _unfold(ctx.xp, Y_grad, windows, counts)
