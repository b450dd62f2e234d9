"""var_conv_2d: convolution of images that all differ in size."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.precision import require_floating, require_shape
from fluidtool.ops.nn.windows import UNKNOWN, Windows, pad, unpad
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.records import dataclass

VAR_CONV_2D: dict[str, Any] = {
    "InputChannel": 1,
    "OutputChannel": 1,
    "StrideH": 1,
    "StrideW": 1,
    "KernelH": 1,
    "KernelW": 1,
}


@dataclass(frozen=True, slots=True)
class Image:
    """One image: its cells in X, its sizes and windows, and where its columns and outputs are in Col and Out."""

    rows: slice
    sizes: tuple[int, int]
    windows: Windows
    counts: tuple[int, ...]
    columns: slice
    outputs: slice

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Paddings with which every window has its cells."""
        return self.windows.reach(self.sizes, self.counts)


def _images(ctx: OpContext, X: Any, W: Any) -> Iterator[Image]:
    """The images by the LoD of X, ROW and COLUMN, whose sequences are cells, rows and columns of each."""
    require_floating(ctx, "X", X)
    if X.ndim != 2 or X.shape[1] != 1:
        raise ctx.error(f"input X must have shape (cells, 1), found {X.shape}")
    kernel, strides = (ctx.attr("KernelH"), ctx.attr("KernelW")), (ctx.attr("StrideH"), ctx.attr("StrideW"))
    channels, filters = ctx.attr("InputChannel"), ctx.attr("OutputChannel")
    if min(*kernel, *strides, channels, filters) <= 0:
        raise ctx.error(
            f"kernel {kernel}, strides {strides}, InputChannel {channels} and OutputChannel {filters} must be positive"
        )
    require_shape(ctx, "W", W, (filters, channels * prod(kernel)), "OutputChannel, InputChannel * KernelH * KernelW")
    cells, rows, columns = (
        ctx.lod(slot)[0] if ctx.lod(slot) else ctx.sequences(slot) for slot in ("X", "ROW", "COLUMN")
    )
    if not len(cells) == len(rows) == len(columns):
        raise ctx.error(
            f"X, ROW and COLUMN must have one sequence per image, found {len(cells) - 1}, {len(rows) - 1}, {len(columns) - 1}"
        )
    windows = Windows(kernel, strides, ((kernel[0] // 2, 0), (kernel[1] // 2, 0)), (1, 1))
    column, output = 0, 0
    for i in range(len(cells) - 1):
        sizes = (rows[i + 1] - rows[i], columns[i + 1] - columns[i])
        counts = tuple((size - 1) // stride + 1 if size else 0 for size, stride in zip(sizes, strides, strict=True))
        column_end = column + channels * prod(kernel) * prod(counts)
        output_end = output + filters * prod(counts)
        yield Image(
            slice(cells[i], cells[i] + channels * prod(sizes)),
            sizes,
            windows,
            counts,
            slice(column, column_end),
            slice(output, output_end),
        )
        column, output = column_end, output_end


def _cells(xp: Any, X: Any, rows: slice) -> Any:
    """The cells of an image. Paddle reads as many as the sizes ask for, whatever the LoD of X; past its end are zeros."""
    cells = X[rows]
    missing = rows.stop - rows.start - len(cells)
    return cells if missing == 0 else xp.concatenate([cells, xp.zeros((missing, 1), dtype=X.dtype)])


@op("var_conv_2d", inputs="X ROW COLUMN W", outputs="Out Col", attrs=VAR_CONV_2D)
def var_conv_2d(ctx: OpContext, X: Any, ROW: Any, COLUMN: Any, W: Any) -> dict[str, Any]:
    """Out [cells, 1], Col [columns, 1], a sequence per image: W [O, C * kh * kw] times the windows around every
    StrideH-th row and StrideW-th column; cells outside an image are zero (Paddle 1.8.5 var_conv_2d_op.cc).
    """
    xp, outs, cols = ctx.xp, [], []
    column_ends, output_ends = [0], [0]
    for image in _images(ctx, X, W):
        column_ends.append(image.columns.stop)
        output_ends.append(image.outputs.stop)
        if not prod(image.sizes):
            continue
        cells = pad(xp, _cells(xp, X, image.rows).reshape(-1, *image.sizes), image.edges)
        columns = xp.empty((len(cells), *image.windows.kernel, *image.counts), dtype=X.dtype)
        for tap, window in image.windows.taps(image.counts):
            columns[(slice(None), *tap)] = cells[window]
        columns = columns.reshape(W.shape[1], -1)
        cols.append(columns.reshape(-1))
        outs.append((W @ columns).reshape(-1))
    ctx.set_lod("Out", [output_ends])
    ctx.set_lod("Col", [column_ends])
    empty = xp.zeros(0, dtype=X.dtype)
    return {
        "Out": xp.concatenate([*outs, empty]).reshape(-1, 1),
        "Col": xp.concatenate([*cols, empty]).reshape(-1, 1),
    }


@var_conv_2d.infer
def _(ctx: InferContext, X: TensorMeta, ROW: TensorMeta, COLUMN: TensorMeta, W: TensorMeta) -> dict[str, TensorMeta]:
    out = X.with_shape([UNKNOWN, 1]).with_lod_level(0)
    return {"Out": out, "Col": out}


@var_conv_2d.grad(inputs="X ROW COLUMN W Out Col Out@GRAD", outputs="X@GRAD W@GRAD", lod="X->X@GRAD")
def var_conv_2d_grad(
    ctx: OpContext, X: Any, ROW: Any, COLUMN: Any, W: Any, Out: Any, Col: Any, Out_grad: Any
) -> dict[str, Any]:
    """Gradients by X and W."""
    xp = ctx.xp
    x_grad, w_grad = xp.zeros_like(X), xp.zeros_like(W)
    for image in _images(ctx, X, W):
        if not prod(image.sizes):
            continue
        grad = Out_grad[image.outputs].reshape(len(W), -1)
        w_grad += grad @ Col[image.columns].reshape(W.shape[1], -1).T
        columns = (W.T @ grad).reshape(-1, *image.windows.kernel, *image.counts)
        spans = [size + sum(edge) for size, edge in zip(image.sizes, image.edges, strict=True)]
        cells = xp.zeros((len(columns), *spans), dtype=X.dtype)
        for tap, window in image.windows.taps(image.counts):
            cells[window] += columns[(slice(None), *tap)]
        part = x_grad[image.rows]
        part += unpad(xp, cells, image.edges).reshape(-1, 1)[: len(part)]
    return {"X@GRAD": x_grad, "W@GRAD": w_grad}
