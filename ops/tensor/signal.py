"""Signals in 2.x programs: frames, overlap-add, Fourier transforms."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, long, longs
from fluidtool.ops.tensor.arguments import Context, axis_in
from fluidtool.ops.tensor.complex_numbers import COMPLEX, REAL

NORMALIZATIONS = ("backward", "ortho", "forward")


def _frame_axis(ctx: Context, axis: int, rank: int) -> bool:
    """Whether frames lie along the last axis (-1) rather than the first (0)."""
    if axis not in (0, -1):
        raise ctx.error(f"axis must be 0 or -1, found {axis}")
    if rank < 1:
        raise ctx.error("X must have at least one dimension")
    return axis == -1


def _frame_count(ctx: Context, length: int, frame_length: int, hop_length: int) -> int:
    if hop_length <= 0:
        raise ctx.error(f"hop_length must be positive, found {hop_length}")
    if not (frame_length > 0 and (length < 0 or frame_length <= length)):
        raise ctx.error(f"frame_length must be positive and not above the length {length} of X, found {frame_length}")
    return -1 if length < 0 else 1 + (length - frame_length) // hop_length


@op("frame", inputs="X", outputs="Out", attrs={"frame_length": 0, "hop_length": 0, "axis": -1})
def frame(ctx: OpContext, X: Any, *, frame_length: int, hop_length: int, axis: int) -> Any:
    """Overlapping pieces of X: [..., frame_length, frames] along axis -1, [frames, frame_length, ...] along axis 0.

    Paddle 2.6.2 frame_kernel.cc.
    """
    last = _frame_axis(ctx, axis, X.ndim)
    count = _frame_count(ctx, X.shape[axis], frame_length, hop_length)
    places = ctx.xp.arange(count)[:, None] * hop_length + ctx.xp.arange(frame_length)
    return X[..., places.T] if last else X[places]


@frame.infer
def _(ctx: InferContext, X: TensorMeta, *, frame_length: int, hop_length: int, axis: int) -> TensorMeta:
    last = _frame_axis(ctx, axis, X.rank)
    count = _frame_count(ctx, X.shape[axis], frame_length, hop_length)
    return X.with_shape((*X.shape[:-1], frame_length, count) if last else (count, frame_length, *X.shape[1:]))


@op("overlap_add", inputs="X", outputs="Out", attrs={"hop_length": 0, "axis": -1})
def overlap_add(ctx: OpContext, X: Any, *, hop_length: int, axis: int) -> Any:
    """The inverse of `frame`: frames added up where they overlap (Paddle 2.6.2 overlap_add_kernel.cc)."""
    last = _frame_axis(ctx, axis, X.ndim)
    if X.ndim < 2:
        raise ctx.error(f"X must have at least two dimensions, found shape {X.shape}")
    if hop_length <= 0:
        raise ctx.error(f"hop_length must be positive, found {hop_length}")
    frames = X if last else ctx.xp.moveaxis(X, (0, 1), (-1, -2))
    length, count = frames.shape[-2:]
    out = ctx.xp.zeros((*frames.shape[:-2], (count - 1) * hop_length + length), X.dtype)
    for i in range(count):
        out[..., i * hop_length : i * hop_length + length] += frames[..., i]
    return out if last else ctx.xp.moveaxis(out, -1, 0)


@overlap_add.infer
def _(ctx: InferContext, X: TensorMeta, *, hop_length: int, axis: int) -> TensorMeta:
    last = _frame_axis(ctx, axis, X.rank)
    length, count = X.shape[-2:] if last else (X.shape[1], X.shape[0])
    size = -1 if min(length, count) < 0 else (count - 1) * hop_length + length
    return X.with_shape((*X.shape[:-2], size) if last else (size, *X.shape[2:]))


def _axes(ctx: Context, axes: list[int], rank: int) -> tuple[int, ...]:
    places = tuple(axis_in(ctx, axis, rank, "every axis of axes") for axis in axes)
    if not len(set(places)) == len(places) > 0:
        raise ctx.error(f"axes must name some axes, each once, found {list(axes)}")
    return places


def _norm(ctx: OpContext, normalization: str) -> str:
    if normalization not in NORMALIZATIONS:
        raise ctx.error(f"normalization must be one of {', '.join(NORMALIZATIONS)}, found {normalization!r}")
    return normalization


FFT: dict[str, Any] = {"axes": longs(), "normalization": "backward", "forward": True}


@op("fft_c2c", inputs="X", outputs="Out", attrs=FFT)
def fft_c2c(ctx: OpContext, X: Any, *, axes: list[int], normalization: str, forward: bool) -> Any:
    """The Fourier transform of complex numbers along `axes`, or the inverse one (Paddle 2.6.2 fft_kernel.cc)."""
    transform = ctx.xp.fft.fftn if forward else ctx.xp.fft.ifftn
    norm = _norm(ctx, normalization)
    return transform(X, axes=_axes(ctx, axes, X.ndim), norm=norm).astype(X.dtype, copy=False)


@fft_c2c.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@op("fft_r2c", inputs="X", outputs="Out", attrs={**FFT, "onesided": True})
def fft_r2c(ctx: OpContext, X: Any, *, axes: list[int], normalization: str, forward: bool, onesided: bool) -> Any:
    """The Fourier transform of real numbers; `onesided` keeps the first half along the last of `axes` (Paddle 2.6.2)."""
    places = _axes(ctx, axes, X.ndim)
    norm = _norm(ctx, normalization)
    dtype = "complex128" if X.dtype == "float64" else "complex64"
    out = (ctx.xp.fft.fftn if forward else ctx.xp.fft.ifftn)(X, axes=places, norm=norm)
    if onesided:
        out = out[(*(slice(None),) * places[-1], slice(X.shape[places[-1]] // 2 + 1))]
    return out.astype(dtype, copy=False)


@fft_r2c.infer
def _(ctx: InferContext, X: TensorMeta, *, axes: list[int], onesided: bool) -> TensorMeta:
    last, shape = _axes(ctx, axes, X.rank)[-1], list(X.shape)
    if onesided and shape[last] >= 0:
        shape[last] = shape[last] // 2 + 1
    return X.with_shape(shape).with_dtype(COMPLEX.get(X.dtype, X.dtype))


@op("fft_c2r", inputs="X", outputs="Out", attrs={**FFT, "last_dim_size": long(0)})
def fft_c2r(ctx: OpContext, X: Any, *, axes: list[int], normalization: str, forward: bool, last_dim_size: int) -> Any:
    """The inverse of fft_r2c: real numbers, last_dim_size of them along the last of `axes` (Paddle 2.6.2)."""
    places = _axes(ctx, axes, X.ndim)
    size = last_dim_size or 2 * (X.shape[places[-1]] - 1)
    if size <= 0:
        raise ctx.error(f"last_dim_size must be positive, found {size}")
    norm = _norm(ctx, normalization)
    sizes = [X.shape[place] for place in places[:-1]] + [size]
    half = X.conj() if forward else X
    if forward:
        norm = {"backward": "forward", "forward": "backward"}.get(norm, norm)
    out = ctx.xp.fft.irfftn(half, s=sizes, axes=places, norm=norm)
    return out.astype("float64" if X.dtype == "complex128" else "float32", copy=False)


@fft_c2r.infer
def _(ctx: InferContext, X: TensorMeta, *, axes: list[int], last_dim_size: int) -> TensorMeta:
    last, shape = _axes(ctx, axes, X.rank)[-1], list(X.shape)
    shape[last] = last_dim_size or (-1 if shape[last] < 0 else 2 * (shape[last] - 1))
    return X.with_shape(shape).with_dtype(REAL.get(X.dtype, X.dtype))


@op(
    "stft",
    inputs="X Window",
    outputs="Out",
    attrs={"n_fft": 0, "hop_length": 0, "normalized": False, "onesided": True},
)
def stft(ctx: OpContext, X: Any, Window: Any, *, n_fft: int, hop_length: int, normalized: bool, onesided: bool) -> Any:
    """The spectra of windowed frames of X [batch, length]: [batch, frequencies, frames] (Paddle 2.6.2 stft_kernel)."""
    if X.ndim != 2:
        raise ctx.error(f"X must have the shape (batch, length), found {X.shape}")
    if tuple(Window.shape) != (n_fft,):
        raise ctx.error(f"Window must have the shape ({n_fft},), found {Window.shape}")
    count = _frame_count(ctx, X.shape[1], n_fft, hop_length)
    places = ctx.xp.arange(count)[:, None] * hop_length + ctx.xp.arange(n_fft)
    out = ctx.xp.fft.fft(X[:, places] * Window, axis=-1, norm="ortho" if normalized else "backward")
    out = out[..., : n_fft // 2 + 1] if onesided else out
    return out.transpose(0, 2, 1).astype("complex128" if X.dtype == "float64" else "complex64", copy=False)


@stft.infer
def _(
    ctx: InferContext, X: TensorMeta, Window: TensorMeta, *, n_fft: int, hop_length: int, onesided: bool
) -> TensorMeta:
    count = _frame_count(ctx, X.shape[1], n_fft, hop_length)
    frequencies = n_fft // 2 + 1 if onesided else n_fft
    return X.with_shape((X.shape[0], frequencies, count)).with_dtype(COMPLEX.get(X.dtype, X.dtype))
