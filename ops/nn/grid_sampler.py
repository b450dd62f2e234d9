"""grid_sampler: read an image (or a volume) at the positions of a grid."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr, saved_since
from fluidtool.ops.nn.precision import require_floating, require_rank, require_shape, widened
from fluidtool.ops.nn.sampling import read_cells, sample, sample_grad, scatter_cells
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text


@dataclass(frozen=True, slots=True)
class AxisPositions:
    """Positions on one axis [N, outputs], in cells, and how they move with the grid's numbers."""

    size: int
    cells: Any
    slope: Any


def _require(ctx: OpContext, X: Any, Grid: Any) -> tuple[str, str, bool]:
    """(mode, padding_mode, align_corners): attributes of Paddle 2.x, with the values that 1.8.5 knows only."""
    require_floating(ctx, "X", X)
    require_rank(ctx, "X", X, 4, 5)
    if Grid.ndim != X.ndim or Grid.shape[0] != X.shape[0] or Grid.shape[-1] != X.ndim - 2:
        raise ctx.error(
            f"input Grid must have shape ({X.shape[0]}, {'height, width' if X.ndim == 4 else 'depth, height, width'}, "
            f"{X.ndim - 2}) for X of shape {X.shape}, found {Grid.shape}"
        )
    if not (saved_since(ctx, 2, 0) or ctx.op.has_attr("mode") or Grid.shape[1:-1] == X.shape[2:]):
        raise ctx.error(f"input Grid {Grid.shape} must be as high and wide as X {X.shape}")
    mode, padding = later_attr(ctx, "mode", "bilinear"), later_attr(ctx, "padding_mode", "zeros")
    if mode not in ("bilinear", "nearest"):
        raise ctx.error(f"attribute mode must be 'bilinear' or 'nearest', found {mode!r}")
    if padding not in ("zeros", "border", "reflection"):
        raise ctx.error(f"attribute padding_mode must be 'zeros', 'border' or 'reflection', found {padding!r}")
    return mode, padding, later_attr(ctx, "align_corners", True)


def _positions(xp: Any, numbers: Any, size: int, padding: str, align_corners: bool) -> AxisPositions:
    """From the grid's -1 ... 1 to cells: the corners' centers with align_corners, else their outer edges."""
    last = size - 1
    factor = last / 2 if align_corners else size / 2
    cells = (numbers + 1) * factor - (0 if align_corners else 0.5)
    slope = xp.full_like(cells, factor)
    if padding == "reflection":
        cells, turned = _reflect(xp, cells, last, align_corners)
        slope = slope * xp.where(turned, -1, 1)
    if padding == "border" or (padding == "reflection" and not align_corners):
        inside = xp.clip(cells, 0, last)
        slope = slope * (inside == cells)
        cells = inside
    return AxisPositions(size, cells, slope)


def _reflect(xp: Any, cells: Any, last: int, align_corners: bool) -> tuple[Any, Any]:
    """(cells mirrored at the borders until they are inside, whether that turned the direction round)."""
    edge = 0.0 if align_corners else 0.5
    there_and_back = 2 * (last + 2 * edge)
    if there_and_back == 0:
        return xp.zeros_like(cells), xp.zeros(cells.shape, dtype=bool)
    distance = xp.abs(cells + edge)
    extra = distance - xp.floor(distance / there_and_back) * there_and_back
    back = extra > there_and_back - extra
    return xp.minimum(extra, there_and_back - extra) - edge, back != (cells + edge < 0)


def _axes(xp: Any, X: Any, Grid: Any, padding: str, align_corners: bool) -> list[AxisPositions]:
    """One per spatial axis of X; the grid's last axis holds them in reverse (x, y, z)."""
    rank = X.ndim - 2
    numbers = widened(Grid).reshape(len(Grid), -1, rank)
    return [
        _positions(xp, numbers[..., rank - 1 - axis], X.shape[2 + axis], padding, align_corners) for axis in range(rank)
    ]


def _nearest_cells(xp: Any, axes: list[AxisPositions]) -> tuple[list[Any], Any]:
    """Rounded positions, halves away from zero; in a volume Paddle judges what is inside before it rounds."""
    rounded = [xp.sign(axis.cells) * xp.floor(xp.abs(axis.cells) + 0.5) for axis in axes]
    if len(axes) == 2:
        return rounded, None
    within = True
    for axis in axes:
        within = within & (axis.cells >= 0) & (axis.cells <= axis.size - 1)
    return rounded, within


@op("grid_sampler", inputs="X Grid", outputs="Output", attrs={"use_cudnn": True}, lod="X")
def grid_sampler(ctx: OpContext, X: Any, Grid: Any) -> Any:
    """X [N, C, H, W] (or with depth) read at Grid [N, H', W', 2], whose numbers run from -1 to 1; zeros outside.

    Paddle 1.8.5 grid_sampler_op.h, and the attributes mode, padding_mode and align_corners of 2.x. In 1.8.5 the output is
    as large as X.
    """
    mode, padding, align_corners = _require(ctx, X, Grid)
    xp, x = ctx.xp, widened(X)
    axes = _axes(xp, X, Grid, padding, align_corners)
    if mode == "nearest":
        out = read_cells(xp, x, *_nearest_cells(xp, axes))[0]
    else:
        out = sample(xp, x, [axis.cells for axis in axes])
    return out.reshape(*X.shape[:2], *Grid.shape[1:-1]).astype(X.dtype, copy=False)


@grid_sampler.infer
def _(ctx: InferContext, X: TensorMeta, Grid: TensorMeta) -> TensorMeta:
    if X.rank not in (4, 5) or Grid.rank != X.rank:
        raise ctx.error(f"inputs X and Grid must both have 4 or 5 dimensions, found {X.shape} and {Grid.shape}")
    if Grid.shape[-1] not in (X.rank - 2, -1):
        raise ctx.error(f"input Grid must end in a size of {X.rank - 2}, found shape {shape_text(Grid.shape)}")
    return X.with_shape([*X.shape[:2], *Grid.shape[1:-1]])


@grid_sampler.grad(inputs="X Grid Output@GRAD", outputs="X@GRAD Grid@GRAD")
def grid_sampler_grad(ctx: OpContext, X: Any, Grid: Any, Output_grad: Any) -> dict[str, Any]:
    """Gradients by X and by the grid's numbers (none in mode nearest)."""
    mode, padding, align_corners = _require(ctx, X, Grid)
    require_shape(ctx, "Output@GRAD", Output_grad, (*X.shape[:2], *Grid.shape[1:-1]), "the shape of Output")
    xp, x = ctx.xp, widened(X)
    grad = widened(Output_grad).reshape(*X.shape[:2], -1)
    axes = _axes(xp, X, Grid, padding, align_corners)
    if mode == "nearest":
        _, flat, inside = read_cells(xp, x, *_nearest_cells(xp, axes))
        x_grad = scatter_cells(ctx, X.shape, flat, grad * inside[:, None])
        slopes = [xp.zeros_like(axis.cells) for axis in axes]
    else:
        x_grad, slopes = sample_grad(ctx, x, [axis.cells for axis in axes], grad)
    grid_grad = xp.stack([slope * axis.slope for slope, axis in zip(slopes, axes, strict=True)][::-1], axis=-1)
    return {
        "X@GRAD": x_grad.astype(X.dtype, copy=False),
        "Grid@GRAD": grid_grad.reshape(Grid.shape).astype(Grid.dtype, copy=False),
    }
