"""im2sequence: the windows of an image as the steps of a sequence."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.precision import require_rank, require_shape
from fluidtool.ops.nn.windows import Windows, pad, unpad
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, TensorMeta, ints, required
from fluidtool.shapes import shape_text


def _windows(ctx: OpContext | InferContext) -> Windows:
    kernels, strides, paddings = ctx.attr("kernels"), ctx.attr("strides"), ctx.attr("paddings")
    if not (len(kernels) == 2 and min(kernels) > 0):
        raise ctx.error(f"attribute kernels must be 2 positive numbers, found {kernels}")
    if not (len(strides) == 2 and min(strides) > 0):
        raise ctx.error(f"attribute strides must be 2 positive numbers, found {strides}")
    if len(paddings) != 4:
        raise ctx.error(f"attribute paddings must be [up, left, down, right], found {paddings}")
    up, left, down, right = paddings
    return Windows(tuple(kernels), tuple(strides), ((up, down), (left, right)), (1, 1))


def _counts(ctx: OpContext, windows: Windows, height: int, width: int) -> tuple[int, ...]:
    counts = windows.output_sizes((height, width))
    if min(counts) < 0:
        raise ctx.error(
            f"no window fits: an image of {height} x {width}, kernels {windows.kernel}, paddings {windows.paddings}"
        )
    return counts


@op(
    "im2sequence",
    inputs="X Y?",
    outputs="Out",
    attrs={"kernels": required(INTS), "strides": ints(1, 1), "paddings": ints(0, 0, 0, 0), "out_stride": ints(1, 1)},
)
def im2sequence(ctx: OpContext, X: Any, Y: Any, *, out_stride: list[int]) -> Any:
    """[N, C, H, W] -> [windows, C * kh * kw], one sequence of windows per image (Paddle 1.8.5 im2sequence_op.h).

    Y (for more than one image) holds the true height and width of each image before it was shrunk by `out_stride`: 2 * N
    numbers in any shape.
    """
    require_rank(ctx, "X", X, 4)
    windows, images = _windows(ctx), len(X)
    grids = [_counts(ctx, windows, *X.shape[2:])] * images
    if Y is not None and images > 1:
        if Y.size != 2 * images:
            raise ctx.error(
                f"input Y must hold a height and a width for each of the {images} images of X, found shape {shape_text(Y.shape)}"
            )
        true_sizes = ctx.host(Y).reshape(images, 2).astype("int64")
        grids = [
            _counts(ctx, windows, *(-(-int(n) // s) for n, s in zip(row, out_stride, strict=True)))
            for row in true_sizes
        ]
    lengths = [prod(grid) for grid in grids]
    ctx.set_lod("Out", [[sum(lengths[:i]) for i in range(images + 1)]])
    width = X.shape[1] * prod(windows.kernel)
    if not sum(lengths):
        return ctx.xp.zeros((0, width), dtype=X.dtype)
    most = tuple(max(sizes) for sizes in zip(*grids, strict=True))
    padded = pad(ctx.xp, X, windows.reach(X.shape[2:], most))
    steps = ctx.xp.empty((images, *most, X.shape[1], *windows.kernel), dtype=X.dtype)
    for tap, cells in windows.taps(most):
        steps[(Ellipsis, *tap)] = padded[cells].transpose(0, 2, 3, 1)
    if len(set(grids)) == 1:
        return steps.reshape(-1, width)
    return ctx.xp.concatenate([steps[i, :h, :w].reshape(-1, width) for i, (h, w) in enumerate(grids)])


@im2sequence.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta | None) -> TensorMeta:
    if X.rank != 4:
        raise ctx.error(f"input X must have 4 dimensions, found shape {X.shape}")
    _windows(ctx)
    return X.with_shape([X.shape[0], X.shape[1] * prod(ctx.attr("kernels"))]).with_lod_level(1)


@im2sequence.grad(inputs="X Out@GRAD", outputs="X@GRAD")
def im2sequence_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """Every cell gets the sum over the windows that it is in."""
    windows = _windows(ctx)
    counts = _counts(ctx, windows, *X.shape[2:])
    rows = len(X) * prod(counts)
    width = X.shape[1] * prod(windows.kernel)
    require_shape(ctx, "Out@GRAD", Out_grad, (rows, width), "every window of every image; Y is not for training")
    steps = Out_grad.reshape(len(X), *counts, X.shape[1], *windows.kernel)
    edges = windows.reach(X.shape[2:], counts)
    shape = [size + sum(edge) for size, edge in zip(X.shape[2:], edges, strict=True)]
    padded = ctx.xp.zeros((*X.shape[:2], *shape), dtype=Out_grad.dtype)
    for tap, cells in windows.taps(counts):
        padded[cells] += steps[(Ellipsis, *tap)].transpose(0, 3, 1, 2)
    return unpad(ctx.xp, padded, edges)
