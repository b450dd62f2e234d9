"""Operators that move numbers between channels, space and time: pixel_shuffle, shuffle_channel and related ones."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, limited, long, required
from fluidtool.ops.tensor.arguments import Context
from fluidtool.shapes import shape_text


def _channels_first(ctx: Context, X: Any, slot: str = "X") -> bool:
    if len(X.shape) != 4:
        raise ctx.error(f"{slot} must have four dimensions, found shape {shape_text(X.shape)}")
    layout = later_attr(ctx, "data_format", "NCHW")
    if layout not in ("NCHW", "NHWC", "AnyLayout"):
        raise ctx.error(f"data_format must be NCHW or NHWC, found {layout!r}")
    return bool(layout != "NHWC")


def _to_nchw(X: Any, first: bool) -> Any:
    return X if first else X.transpose(0, 3, 1, 2)


def _from_nchw(X: Any, first: bool) -> Any:
    return X if first else X.transpose(0, 2, 3, 1)


def _spread(X: Any, factor: int) -> Any:
    """[n, c f f, h, w] -> [n, c, h f, w f]."""
    n, c, h, w = X.shape
    blocks = X.reshape(n, c // factor**2, factor, factor, h, w)
    return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(n, c // factor**2, h * factor, w * factor)


def _gathered(X: Any, factor: int) -> Any:
    """[n, c, h f, w f] -> [n, c f f, h, w]."""
    n, c, h, w = X.shape
    blocks = X.reshape(n, c, h // factor, factor, w // factor, factor)
    return blocks.transpose(0, 1, 3, 5, 2, 4).reshape(n, c * factor**2, h // factor, w // factor)


def _positive(ctx: Context, value: int, name: str) -> int:
    if not value > 0:
        raise ctx.error(f"{name} must be positive, found {value}")
    return value


def _divisible(ctx: Context, size: int, by: int, what: str) -> None:
    if not (size < 0 or size % by == 0):
        raise ctx.error(f"{what} must be a multiple of {by}, found {size}")


def _times(size: int, factor: int) -> int:
    return size if size < 0 else size * factor


def _over(size: int, factor: int) -> int:
    return size if size < 0 else size // factor


@op("pixel_shuffle", inputs="X", outputs="Out", attrs={"upscale_factor": 1})
def pixel_shuffle(ctx: OpContext, X: Any, *, upscale_factor: int) -> Any:
    """[n, c f f, h, w] -> [n, c, h f, w f] (Paddle 1.8.5 pixel_shuffle_op.h; data_format NHWC from 2.0 on)."""
    first = _channels_first(ctx, X)
    images = _to_nchw(X, first)
    _divisible(ctx, images.shape[1], _positive(ctx, upscale_factor, "upscale_factor") ** 2, "the channels of X")
    return _from_nchw(_spread(images, upscale_factor), first)


@pixel_shuffle.infer
def _(ctx: InferContext, X: TensorMeta, *, upscale_factor: int) -> TensorMeta:
    first, f = _channels_first(ctx, X), _positive(ctx, upscale_factor, "upscale_factor")
    n, c, h, w = X.shape if first else (X.shape[0], X.shape[3], X.shape[1], X.shape[2])
    _divisible(ctx, c, f * f, "the channels of X")
    out = (n, _over(c, f * f), _times(h, f), _times(w, f))
    return X.with_shape(out if first else (n, out[2], out[3], out[1])).with_lod_level(0)


@pixel_shuffle.grad(inputs="Out@GRAD", outputs="X@GRAD")
def pixel_shuffle_grad(ctx: OpContext, Out_grad: Any, *, upscale_factor: int) -> Any:
    """dOut moved back."""
    first = _channels_first(ctx, Out_grad, "Out@GRAD")
    return _from_nchw(_gathered(_to_nchw(Out_grad, first), upscale_factor), first)


@op("pixel_unshuffle", inputs="X", outputs="Out", attrs={"downscale_factor": 1, "data_format": "NCHW"})
def pixel_unshuffle(ctx: OpContext, X: Any, *, downscale_factor: int) -> Any:
    """[n, c, h f, w f] -> [n, c f f, h, w] (Paddle 2.6.2 pixel_unshuffle_kernel_impl.h)."""
    first, f = _channels_first(ctx, X), _positive(ctx, downscale_factor, "downscale_factor")
    images = _to_nchw(X, first)
    _divisible(ctx, images.shape[2], f, "the height of X")
    _divisible(ctx, images.shape[3], f, "the width of X")
    return _from_nchw(_gathered(images, f), first)


@pixel_unshuffle.infer
def _(ctx: InferContext, X: TensorMeta, *, downscale_factor: int) -> TensorMeta:
    first, f = _channels_first(ctx, X), _positive(ctx, downscale_factor, "downscale_factor")
    n, c, h, w = X.shape if first else (X.shape[0], X.shape[3], X.shape[1], X.shape[2])
    out = (n, _times(c, f * f), _over(h, f), _over(w, f))
    return X.with_shape(out if first else (n, out[2], out[3], out[1])).with_lod_level(0)


def _exchanged(X: Any, outer: int) -> Any:
    """Channels [outer, inner] -> [inner, outer]."""
    n, c, h, w = X.shape
    return X.reshape(n, outer, c // outer, h, w).transpose(0, 2, 1, 3, 4).reshape(n, c, h, w)


@op("shuffle_channel", inputs="X", outputs="Out", attrs={"group": limited(1, 1)})
def shuffle_channel(ctx: OpContext, X: Any, *, group: int) -> Any:
    """The channels of `group` groups taken in turn (Paddle 1.8.5 shuffle_channel_op.h)."""
    if X.ndim != 4:
        raise ctx.error(f"X must have four dimensions, found shape {X.shape}")
    _divisible(ctx, X.shape[1], _positive(ctx, group, "group"), "the channels of X")
    return _exchanged(X, group)


@shuffle_channel.infer
def _(ctx: InferContext, X: TensorMeta, *, group: int) -> TensorMeta:
    if X.rank != 4:
        raise ctx.error(f"X must have four dimensions, found shape {shape_text(X.shape)}")
    _divisible(ctx, X.shape[1], _positive(ctx, group, "group"), "the channels of X")
    return X.with_lod_level(0)


@shuffle_channel.grad(inputs="Out@GRAD", outputs="X@GRAD")
def shuffle_channel_grad(ctx: OpContext, Out_grad: Any, *, group: int) -> Any:
    """dOut with its channels back in place."""
    return _exchanged(Out_grad, Out_grad.shape[1] // group)


@op("channel_shuffle", inputs="X", outputs="Out", attrs={"groups": 1, "data_format": "NCHW"})
def channel_shuffle(ctx: OpContext, X: Any, *, groups: int) -> Any:
    """shuffle_channel of 2.x programs (Paddle 2.6.2 channel_shuffle_kernel_impl.h)."""
    first = _channels_first(ctx, X)
    images = _to_nchw(X, first)
    _divisible(ctx, images.shape[1], _positive(ctx, groups, "groups"), "the channels of X")
    return _from_nchw(_exchanged(images, groups), first)


@channel_shuffle.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_lod_level(0)


def _depth_shape(ctx: Context, X: Any, blocksize: int) -> tuple[int, int, int, int]:
    if len(X.shape) != 4:
        raise ctx.error(f"X must have four dimensions, found shape {shape_text(X.shape)}")
    if blocksize <= 1:
        raise ctx.error(f"blocksize must be above 1, found {blocksize}")
    n, c, h, w = X.shape
    _divisible(ctx, c, blocksize * blocksize, "the channels of X")
    _divisible(ctx, h, blocksize, "the height of X")
    _divisible(ctx, w, blocksize, "the width of X")
    return n, _times(c, blocksize * blocksize), _over(h, blocksize), _over(w, blocksize)


@op("space_to_depth", inputs="X", outputs="Out", attrs={"blocksize": long(2)}, lod="X")
def space_to_depth(ctx: OpContext, X: Any, *, blocksize: int) -> Any:
    """[n, c, h, w] -> [n, c b b, h / b, w / b] in the order of darknet's reorg (Paddle 1.8.5 space_to_depth_op.h).

    Groups of b b channels spread out over blocks of b x b places, [n, c / (b b), h b, w b]; those numbers, in that order,
    are the output.
    """
    shape = _depth_shape(ctx, X, blocksize)
    n, c, h, w = X.shape
    b, narrow = blocksize, c // (blocksize * blocksize)
    return X.reshape(n, b, b, narrow, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(shape)


@space_to_depth.infer
def _(ctx: InferContext, X: TensorMeta, *, blocksize: int) -> TensorMeta:
    return X.with_shape(_depth_shape(ctx, X, blocksize))


@space_to_depth.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def space_to_depth_grad(ctx: OpContext, X: Any, Out_grad: Any, *, blocksize: int) -> Any:
    """dOut moved back."""
    n, c, h, w = X.shape
    b, narrow = blocksize, c // (blocksize * blocksize)
    return Out_grad.reshape(n, narrow, h, b, w, b).transpose(0, 3, 5, 1, 2, 4).reshape(X.shape)


def _segments(ctx: Context, X: Any, seg_num: int, shift_ratio: float) -> bool:
    first = _channels_first(ctx, X)
    _positive(ctx, seg_num, "seg_num")
    _divisible(ctx, X.shape[0], seg_num, "the batch size of X")
    if not 0 < shift_ratio < 0.5:
        raise ctx.error(f"shift_ratio must be in (0, 0.5), found {shift_ratio}")
    return first


def _shifted(ctx: OpContext, X: Any, seg_num: int, shift_ratio: float, step: int) -> Any:
    """A share of the channels moved `step` segments on in time, as many moved back; zeros come in."""
    frames = X.reshape(-1, seg_num, *X.shape[1:])
    channels = X.shape[1]
    one, two = int(channels * shift_ratio), int(channels * 2 * shift_ratio)
    out = ctx.xp.zeros_like(frames)
    out[:, :, two:] = frames[:, :, two:]
    for low, high, move in ((0, one, step), (one, two, -step)):
        if move > 0:
            out[:, 1:, low:high] = frames[:, :-1, low:high]
        else:
            out[:, :-1, low:high] = frames[:, 1:, low:high]
    return out.reshape(X.shape)


@op("temporal_shift", inputs="X", outputs="Out", attrs={"seg_num": required(INT), "shift_ratio": 0.25}, lod="X")
def temporal_shift(ctx: OpContext, X: Any, *, seg_num: int, shift_ratio: float) -> Any:
    """Of X [n seg_num, c, h, w] the first channels come from the segment before, the next from the one behind.

    Paddle 1.8.5 temporal_shift_op.h; data_format NHWC from 2.0 on.
    """
    first = _segments(ctx, X, seg_num, shift_ratio)
    return _from_nchw(_shifted(ctx, _to_nchw(X, first), seg_num, shift_ratio, 1), first)


@temporal_shift.infer
def _(ctx: InferContext, X: TensorMeta, *, seg_num: int, shift_ratio: float) -> TensorMeta:
    _segments(ctx, X, seg_num, shift_ratio)
    return X


@temporal_shift.grad(inputs="Out@GRAD", outputs="X@GRAD")
def temporal_shift_grad(ctx: OpContext, Out_grad: Any, *, seg_num: int, shift_ratio: float) -> Any:
    """dOut shifted back."""
    first = _segments(ctx, Out_grad, seg_num, shift_ratio)
    return _from_nchw(_shifted(ctx, _to_nchw(Out_grad, first), seg_num, shift_ratio, -1), first)
