"""pad, pad2d, pad3d and pad_constant_like: a tensor with a border."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, AttrSpec, TensorMeta, or_variable, required
from fluidtool.ops.tensor.arguments import Context, lod_of_same_rows, meta_of_same_rows, numbers, same_dtype
from fluidtool.shapes import shape_text

Border = tuple[int, int]


def constant_border(ctx: OpContext, X: Any, borders: Sequence[Border], value: float) -> Any:
    """X with this many `value`s before and after it along every axis; a negative border cuts off."""
    inner = X[tuple(slice(max(-before, 0), X.shape[i] - max(-after, 0)) for i, (before, after) in enumerate(borders))]
    shape = [size + before + after for size, (before, after) in zip(X.shape, borders, strict=True)]
    out = ctx.xp.full(shape, value, X.dtype)
    starts = [max(before, 0) for before, _ in borders]
    out[tuple(slice(start, start + size) for start, size in zip(starts, inner.shape, strict=True))] = inner
    return out


def constant_border_grad(ctx: OpContext, grad: Any, borders: Sequence[Border]) -> Any:
    """The gradient of `constant_border`: what the border does not cover."""
    return constant_border(ctx, grad, [(-before, -after) for before, after in borders], 0.0)


def _sources(ctx: OpContext, size: int, border: Border, mode: str) -> Any:
    """Where each place of a bordered axis takes its number from: int64 on the host."""
    np, (before, after) = ctx.np, border
    places = np.arange(-before, size + after)
    if mode in ("edge", "replicate"):
        return places.clip(0, size - 1)
    if mode == "circular":
        return places % size
    mirrored = np.minimum(abs(places), 2 * size - 2 - abs(places))
    if mirrored.min(initial=0) < 0:
        raise ctx.error(f"a border of {border} is too wide for mode reflect of an axis of size {size}")
    return mirrored


def copied_border(ctx: OpContext, X: Any, borders: Sequence[Border], mode: str) -> Any:
    """X with a border that repeats its own numbers."""
    for axis, border in enumerate(borders):
        if border != (0, 0):
            if X.shape[axis] <= 0:
                raise ctx.error(f"mode {mode} needs elements to repeat, X has the shape {X.shape}")
            X = ctx.xp.take(X, ctx.array(_sources(ctx, X.shape[axis], border, mode), "int64"), axis=axis)
    return X


def copied_border_grad(ctx: OpContext, grad: Any, borders: Sequence[Border], mode: str, shape: Sequence[int]) -> Any:
    """The gradient of `copied_border`: every number gets its own and those of its copies."""
    for axis, (before, after) in enumerate(borders):
        if (before, after) == (0, 0):
            continue
        lead = (slice(None),) * axis
        sources = _sources(ctx, shape[axis], (before, after), mode)
        inner = range(max(before, 0), max(before, 0) + shape[axis] + min(before, 0) + min(after, 0))
        out = ctx.xp.zeros((*grad.shape[:axis], shape[axis], *grad.shape[axis + 1 :]), grad.dtype)
        first = max(-before, 0)
        out[(*lead, slice(first, first + len(inner)))] = grad[(*lead, slice(inner.start, inner.stop))]
        for place, source in enumerate(sources.tolist()):
            if place not in inner:
                out[(*lead, source)] += grad[(*lead, place)]
        grad = out
    return grad


def _pairs(ctx: Context, paddings: Sequence[int], rank: int) -> list[Border]:
    if len(paddings) != 2 * rank:
        raise ctx.error(f"paddings must hold {2 * rank} numbers for X, found {list(paddings)}")
    if not all(p >= 0 for p in paddings):
        raise ctx.error(f"paddings must not be negative, found {list(paddings)}")
    return [(paddings[2 * i], paddings[2 * i + 1]) for i in range(rank)]


def _padded(shape: Sequence[int], borders: Sequence[Border]) -> tuple[int, ...]:
    return tuple(s if s < 0 else s + before + after for s, (before, after) in zip(shape, borders, strict=True))


@op("pad", inputs="X", outputs="Out", attrs={"paddings": required(INTS), "pad_value": or_variable(0.0)})
def pad(ctx: OpContext, X: Any, *, paddings: list[int], pad_value: float) -> Any:
    """X with pad_value around it: before and behind axis 0, before and behind axis 1, ... (Paddle 1.8.5 pad_op.h)."""
    out = constant_border(ctx, X, _pairs(ctx, paddings, X.ndim), pad_value)
    lod_of_same_rows(ctx, X, out)
    return out


@pad.infer
def _(ctx: InferContext, X: TensorMeta, *, paddings: list[int]) -> TensorMeta:
    return meta_of_same_rows(X, _padded(X.shape, _pairs(ctx, paddings, X.rank)))


@pad.grad(inputs="Out@GRAD", outputs="X@GRAD")
def pad_grad(ctx: OpContext, Out_grad: Any, *, paddings: list[int]) -> Any:
    """dOut without the border."""
    return constant_border_grad(ctx, Out_grad, _pairs(ctx, paddings, Out_grad.ndim))


MODES_2D = ("constant", "reflect", "edge")


def _borders_2d(ctx: Context, paddings: Sequence[int], rank: int, mode: str, data_format: str) -> list[Border]:
    if rank != 4:
        raise ctx.error(f"X must have four dimensions, found {rank}")
    if len(paddings) != 4:
        raise ctx.error(f"paddings must hold [top, bottom, left, right], found {list(paddings)}")
    if mode not in MODES_2D:
        raise ctx.error(f"mode must be one of {', '.join(MODES_2D)}, found {mode!r}")
    if data_format not in ("NCHW", "NHWC"):
        raise ctx.error(f"data_format must be NCHW or NHWC, found {data_format!r}")
    top, bottom, left, right = paddings
    if data_format == "NCHW":
        return [(0, 0), (0, 0), (top, bottom), (left, right)]
    return [(0, 0), (top, bottom), (left, right), (0, 0)]


def _given_2d(ctx: OpContext, Paddings: Any, paddings: list[int]) -> list[int]:
    return paddings if Paddings is None else numbers(ctx, Paddings)


@op(
    "pad2d",
    inputs="X Paddings?",
    outputs="Out",
    attrs={"paddings": required(INTS), "pad_value": 0.0, "mode": "constant", "data_format": "NCHW"},
    lod="X",
)
def pad2d(
    ctx: OpContext, X: Any, Paddings: Any, *, paddings: list[int], pad_value: float, mode: str, data_format: str
) -> Any:
    """Images with a border: pad_value, mirrored (reflect) or repeated (edge) pixels (Paddle 1.8.5 pad2d_op.cc)."""
    borders = _borders_2d(ctx, _given_2d(ctx, Paddings, paddings), X.ndim, mode, data_format)
    if not all(size + sum(border) > 0 for size, border in zip(X.shape, borders, strict=True)):
        raise ctx.error(f"paddings {borders} remove all of X of shape {X.shape}")
    return constant_border(ctx, X, borders, pad_value) if mode == "constant" else copied_border(ctx, X, borders, mode)


@pad2d.infer
def _(
    ctx: InferContext, X: TensorMeta, Paddings: TensorMeta | None, *, paddings: list[int], mode: str, data_format: str
) -> TensorMeta:
    if Paddings is None:
        return X.with_shape(_padded(X.shape, _borders_2d(ctx, paddings, X.rank, mode, data_format)))
    n, c = X.shape[0], X.shape[1 if data_format == "NCHW" else 3]
    return X.with_shape((n, c, -1, -1) if data_format == "NCHW" else (n, -1, -1, c))


@pad2d.grad(inputs="X Paddings? Out@GRAD", outputs="X@GRAD", lod="X")
def pad2d_grad(
    ctx: OpContext, X: Any, Paddings: Any, Out_grad: Any, *, paddings: list[int], mode: str, data_format: str
) -> Any:
    """dOut without the border; mirrored and repeated pixels give theirs to where they came from."""
    borders = _borders_2d(ctx, _given_2d(ctx, Paddings, paddings), X.ndim, mode, data_format)
    if mode == "constant":
        return constant_border_grad(ctx, Out_grad, borders)
    return copied_border_grad(ctx, Out_grad, borders, mode, X.shape)


MODES_3D = ("constant", "reflect", "replicate", "circular")
PAD3D: dict[str, AttrSpec | float | str] = {
    "paddings": required(INTS),
    "value": 0.0,
    "mode": "constant",
    "data_format": "NCDHW",
}


def _borders_3d(ctx: Context, paddings: Sequence[int], rank: int, mode: str, data_format: str) -> list[Border]:
    if rank != 5:
        raise ctx.error(f"X must have five dimensions, found {rank}")
    if len(paddings) != 6:
        raise ctx.error(f"paddings must hold six numbers (left, right, top, ...), found {list(paddings)}")
    if mode not in MODES_3D:
        raise ctx.error(f"mode must be one of {', '.join(MODES_3D)}, found {mode!r}")
    if data_format not in ("NCDHW", "NDHWC"):
        raise ctx.error(f"data_format must be NCDHW or NDHWC, found {data_format!r}")
    space = [(paddings[4], paddings[5]), (paddings[2], paddings[3]), (paddings[0], paddings[1])]
    return [(0, 0), (0, 0), *space] if data_format == "NCDHW" else [(0, 0), *space, (0, 0)]


@op("pad3d", inputs="X Paddings?", outputs="Out", attrs=PAD3D, lod="X")
def pad3d(
    ctx: OpContext, X: Any, Paddings: Any, *, paddings: list[int], value: float, mode: str, data_format: str
) -> Any:
    """Volumes with a border; paddings are left, right, top, bottom, front, back (Paddle 2.6.2 pad3d_kernel.cc)."""
    borders = _borders_3d(ctx, _given_2d(ctx, Paddings, paddings), X.ndim, mode, data_format)
    if mode == "constant":
        return constant_border(ctx, X, borders, value)
    if mode == "reflect":
        fits = all(max(border) < size for size, border in zip(X.shape, borders, strict=True) if border != (0, 0))
        if not fits:
            raise ctx.error(f"mode reflect needs paddings below the sizes of X {shape_text(X.shape)}, found {borders}")
    return copied_border(ctx, X, borders, mode)


@pad3d.infer
def _(
    ctx: InferContext, X: TensorMeta, Paddings: TensorMeta | None, *, paddings: list[int], mode: str, data_format: str
) -> TensorMeta:
    borders = _borders_3d(ctx, paddings if Paddings is None else [0] * 6, X.rank, mode, data_format)
    if Paddings is None:
        return X.with_shape(_padded(X.shape, borders))
    channel = 1 if data_format == "NCDHW" else 4
    return X.with_shape([size if axis in (0, channel) else -1 for axis, size in enumerate(X.shape)])


@pad3d.grad(inputs="X Paddings? Out@GRAD", outputs="X@GRAD", lod="X")
def pad3d_grad(
    ctx: OpContext, X: Any, Paddings: Any, Out_grad: Any, *, paddings: list[int], mode: str, data_format: str
) -> Any:
    """dOut without the border; copies give theirs to where they came from."""
    borders = _borders_3d(ctx, _given_2d(ctx, Paddings, paddings), X.ndim, mode, data_format)
    if mode == "constant":
        return constant_border_grad(ctx, Out_grad, borders)
    return copied_border_grad(ctx, Out_grad, borders, mode, X.shape)


def _borders_like(ctx: Context, x: Sequence[int], y: Sequence[int]) -> list[Border]:
    fits = len(x) == len(y) and all(wide >= narrow or wide < 0 for wide, narrow in zip(x, y, strict=True))
    if not fits:
        raise ctx.error(f"Y of shape {shape_text(y)} must fit into X of shape {shape_text(x)}")
    return [(0, wide - narrow) for wide, narrow in zip(x, y, strict=True)]


@op("pad_constant_like", inputs="X Y", outputs="Out", attrs={"pad_value": 0.0}, lod="X")
def pad_constant_like(ctx: OpContext, X: Any, Y: Any, *, pad_value: float) -> Any:
    """Y with pad_value behind it, up to the shape of X (Paddle 1.8.5 pad_constant_like_op.h)."""
    same_dtype(ctx, X, [Y], "X and Y")
    return constant_border(ctx, Y, _borders_like(ctx, X.shape, Y.shape), pad_value)


@pad_constant_like.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    _borders_like(ctx, X.shape, Y.shape)
    return Y.with_shape(X.shape).with_lod_level(X.lod_level)


@pad_constant_like.grad(inputs="Y Out@GRAD", outputs="Y@GRAD", lod="Y")
def pad_constant_like_grad(ctx: OpContext, Y: Any, Out_grad: Any) -> Any:
    """dOut without the border."""
    return Out_grad[tuple(slice(size) for size in Y.shape)]
