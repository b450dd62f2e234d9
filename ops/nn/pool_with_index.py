"""max_pool2d_with_index and max_pool3d_with_index: maximum pooling that says where each maximum was."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.pooling import LOWEST, AxisBins, adaptive_bins, scatter_sum, taps, window_bins
from fluidtool.ops.nn.precision import require_floating, require_rank, require_shape
from fluidtool.ops.nn.windows import UNKNOWN, Windows, lay_windows, require_outputs
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, TensorMeta, ints, required
from fluidtool.proto.enums import VarType

POOL_WITH_INDEX: dict[str, Any] = {"ksize": required(INTS), "global_pooling": False, "adaptive": False}
POOL2D: dict[str, Any] = {**POOL_WITH_INDEX, "strides": ints(1, 1), "paddings": ints(0, 0)}
POOL3D: dict[str, Any] = {**POOL_WITH_INDEX, "strides": ints(1, 1, 1), "paddings": ints(0, 0, 0)}


def _lay(ctx: OpContext | InferContext, sizes: Sequence[int]) -> tuple[Windows, tuple[int, ...]]:
    """The windows and how many there are on each axis."""
    kernel, paddings = list(ctx.attr("ksize")), ctx.attr("paddings")
    if ctx.attr("global_pooling"):
        kernel, paddings = list(sizes), [0] * len(sizes)
    windows = lay_windows(ctx, sizes, kernel, ctx.attr("strides"), paddings)
    counts = windows.kernel if ctx.attr("adaptive") else windows.output_sizes(sizes)
    require_outputs(ctx, sizes, windows, counts)
    return windows, counts


def _bins(ctx: OpContext, sizes: tuple[int, ...], windows: Windows, counts: tuple[int, ...]) -> list[AxisBins]:
    return adaptive_bins(sizes, counts) if ctx.attr("adaptive") else window_bins(sizes, windows, counts)


def _pool(ctx: OpContext, X: Any, rank: int) -> dict[str, Any]:
    """The maximum of each window, and the flat index of the first cell that has it (-1 where no cell is above LOWEST)."""
    require_floating(ctx, "X", X)
    require_rank(ctx, "X", X, rank + 2)
    sizes, xp = X.shape[2:], ctx.xp
    windows, counts = _lay(ctx, sizes)
    best = xp.full((*X.shape[:2], *counts), LOWEST, dtype=X.dtype)
    where = xp.full(best.shape, -1, dtype="int32")
    if X.size:
        for cells, indexes in taps(xp, X, _bins(ctx, sizes, windows, counts)):
            better = cells > best
            best = xp.where(better, cells, best)
            where = xp.where(better, _flat(xp, indexes, sizes), where)
    return {"Out": best, "Mask": where}


def _flat(xp: Any, indexes: list[list[int]], sizes: tuple[int, ...]) -> Any:
    """Row-major positions of the grid that these indexes by axis span."""
    flat = xp.zeros((1,) * len(sizes), dtype="int32")
    for axis, index in enumerate(indexes):
        shape = [1] * len(sizes)
        shape[axis] = len(index)
        flat = flat * sizes[axis] + xp.asarray(index, dtype="int32").reshape(shape)
    return flat


def _pool_grad(ctx: OpContext, X: Any, Mask: Any, out_grad: Any) -> Any:
    """Every maximum's cell gets its window's gradient."""
    require_shape(ctx, "Out@GRAD", out_grad, Mask.shape, "the shape of Mask")
    xp, cells = ctx.xp, prod(X.shape[2:])
    if Mask.size and not (int(Mask.max()) < cells and int(Mask.min()) >= -1):
        raise ctx.error(
            f"input Mask must hold positions below {cells}, as X has shape {X.shape}; found {Mask.min()} to {Mask.max()}"
        )
    planes = xp.arange(X.shape[0] * X.shape[1]).reshape(*X.shape[:2], *[1] * (X.ndim - 2)) * cells
    found = Mask >= 0
    positions = xp.where(found, planes + Mask, 0)
    return scatter_sum(ctx, positions, xp.where(found, out_grad, 0), X.size).reshape(X.shape)


def _infer(ctx: InferContext, X: TensorMeta, rank: int) -> dict[str, TensorMeta]:
    if X.rank != rank + 2:
        raise ctx.error(f"input X must have {rank + 2} dimensions, found shape {X.shape}")
    counts = _lay(ctx, X.shape[2:])[1]
    out = X.with_shape([*X.shape[:2], *(count if count > 0 else UNKNOWN for count in counts)]).with_lod_level(0)
    return {"Out": out, "Mask": out.with_dtype(VarType.INT32)}


@op("max_pool2d_with_index", inputs="X", outputs="Out Mask", attrs=POOL2D)
def max_pool2d_with_index(ctx: OpContext, X: Any) -> dict[str, Any]:
    """2-D maximum pooling, NCHW; Mask (int32) is h * W + w of each maximum (Paddle 1.8.5 pool_with_index_op.h)."""
    return _pool(ctx, X, 2)


@max_pool2d_with_index.infer
def _(ctx: InferContext, X: TensorMeta) -> dict[str, TensorMeta]:
    return _infer(ctx, X, 2)


@max_pool2d_with_index.grad(inputs="X Mask Out@GRAD", outputs="X@GRAD")
def max_pool2d_with_index_grad(ctx: OpContext, X: Any, Mask: Any, Out_grad: Any) -> Any:
    """Gradient by X."""
    return _pool_grad(ctx, X, Mask, Out_grad)


@op("max_pool3d_with_index", inputs="X", outputs="Out Mask", attrs=POOL3D)
def max_pool3d_with_index(ctx: OpContext, X: Any) -> dict[str, Any]:
    """3-D maximum pooling, NCDHW; Mask (int32) is (d * H + h) * W + w of each maximum (pool_with_index_op.h)."""
    return _pool(ctx, X, 3)


@max_pool3d_with_index.infer
def _(ctx: InferContext, X: TensorMeta) -> dict[str, TensorMeta]:
    return _infer(ctx, X, 3)


@max_pool3d_with_index.grad(inputs="X Mask Out@GRAD", outputs="X@GRAD")
def max_pool3d_with_index_grad(ctx: OpContext, X: Any, Mask: Any, Out_grad: Any) -> Any:
    """Gradient by X."""
    return _pool_grad(ctx, X, Mask, Out_grad)
