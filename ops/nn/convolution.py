"""Convolution of any rank as array code: forward, gradient by the input, gradient by the filter.

Arrays are channels first; a filter is [O, C / groups, kernel...]. Three ways, chosen by shape: a 1x1 kernel is a matrix
product on views; one input channel per group (depthwise) is a sum of shifted products; everything else lays the windows
out as columns for one matrix product per block of images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

from fluidtool.ops.math.repeated import repeated
from fluidtool.ops.nn.columns import add_columns, blocks, columns_of
from fluidtool.ops.nn.windows import Windows, pad, unpad

DEPTHWISE_MULTIPLIER = 4
WIDE_UNIT, WIDE_STRIDED = 8, 2  # channels to a column from which depthwise is faster channels last; measured


def convolve(xp: Any, x: Any, weight: Any, windows: Windows, groups: int, counts: tuple[int, ...] | None = None) -> Any:
    """[N, C, D...] by [O, C/groups, K...] -> [N, O, windows...]. counts: how many windows, where the caller knows."""
    counts = windows.output_sizes(x.shape[2:]) if counts is None else counts
    if x.size == 0 or weight.size == 0:
        return xp.zeros((x.shape[0], weight.shape[0], *counts), dtype=x.dtype)
    if _is_pointwise(windows):
        cells = _strided(x, windows)
        out = xp.matmul(_grouped_filter(weight, groups), cells.reshape(len(x), groups, -1, prod(counts)))
        return out.reshape(len(x), -1, *counts)
    if _is_depthwise(weight, groups):
        return _shifted_products(xp, x, weight, windows, counts)
    matrix, row = _grouped_filter(weight, groups), prod(counts[1:])
    out = xp.empty((len(x), groups, matrix.shape[1], counts[0] * row), dtype=x.dtype)
    for images, strips in blocks(x, windows, counts):
        lay_columns = columns_of(xp, x[images], windows, counts)
        for rows in strips:
            columns = lay_columns(rows).reshape(groups, matrix.shape[-1], -1)
            part = out[images, ..., rows.start * row : rows.stop * row]
            if len(part) == 1:
                xp.matmul(matrix, columns, out=part[0])
            else:
                products = xp.matmul(matrix, columns).reshape(*part.shape[1:3], len(part), -1)
                part[...] = xp.moveaxis(products, 2, 0)
    return out.reshape(len(x), len(weight), *counts)


def convolve_input_grad(
    xp: Any, out_grad: Any, weight: Any, windows: Windows, groups: int, sizes: tuple[int, ...]
) -> Any:
    """Gradient of `convolve` by an input of these spatial sizes; also the forward of a transposed convolution.

    Output positions beyond what `sizes` has room for are dropped.
    """
    counts = out_grad.shape[2:]
    channels = weight.shape[1] * groups
    if out_grad.size == 0 or weight.size == 0:
        return xp.zeros((out_grad.shape[0], channels, *sizes), dtype=out_grad.dtype)
    transposed = _grouped_filter(weight, groups).swapaxes(1, 2)
    if _is_pointwise(windows):
        cells = xp.matmul(transposed, out_grad.reshape(len(out_grad), groups, -1, prod(counts)))
        return _spread(xp, cells.reshape(len(out_grad), channels, *counts), windows, sizes)
    if _is_depthwise(weight, groups):
        return _shifted_input_grad(xp, out_grad, weight, windows, groups, sizes)
    grad = xp.empty((len(out_grad), channels, *sizes), dtype=out_grad.dtype)
    for images, strips in blocks(grad, windows, counts):
        count = len(out_grad[images])
        padded = xp.zeros((channels, count, *_spans(windows, sizes, counts)), dtype=grad.dtype)
        for rows in strips:
            part = out_grad[images, :, rows].swapaxes(0, 1)
            columns = xp.matmul(transposed, part.reshape(groups, transposed.shape[-1], -1))
            add_columns(padded, columns.reshape(channels, *windows.kernel, *part.shape[1:]), windows, rows)
        grad[images] = _crop(xp, padded, windows, sizes).swapaxes(0, 1)
    return grad


def convolve_filter_grad(
    xp: Any, x: Any, out_grad: Any, windows: Windows, groups: int, filter_shape: tuple[int, ...]
) -> Any:
    """Gradient of `convolve` by its filter."""
    counts = out_grad.shape[2:]
    if x.size == 0 or out_grad.size == 0:
        return xp.zeros(filter_shape, dtype=x.dtype)
    if _is_pointwise(windows):
        rows = out_grad.reshape(len(x), groups, -1, prod(counts))
        cells = _strided(x, windows).reshape(len(x), groups, -1, prod(counts))
        return xp.matmul(rows, cells.swapaxes(2, 3)).sum(axis=0).reshape(filter_shape)
    if filter_shape[1] == 1 and groups == x.shape[1]:
        return _shifted_filter_grad(xp, x, out_grad, windows, filter_shape)
    grad = xp.zeros((groups, filter_shape[0] // groups, prod(filter_shape[1:])), dtype=x.dtype)
    for images, strips in blocks(x, windows, counts):
        lay_columns = columns_of(xp, x[images], windows, counts)
        for rows in strips:
            columns = lay_columns(rows).reshape(groups, grad.shape[-1], -1)
            part = out_grad[images, :, rows].swapaxes(0, 1).reshape(groups, grad.shape[1], -1)
            grad += xp.matmul(part, columns.swapaxes(1, 2))
    return grad.reshape(filter_shape)


# -- windows as columns
def _grouped_filter(weight: Any, groups: int) -> Any:
    return weight.reshape(groups, weight.shape[0] // groups, -1)


def _spans(windows: Windows, sizes: tuple[int, ...], counts: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of an array that holds both the padded input and everything that the windows reach."""
    return tuple(
        max(size + before + after, (count - 1) * stride + extent)
        for size, (before, after), count, stride, extent in zip(
            sizes, windows.paddings, counts, windows.strides, windows.extents, strict=True
        )
    )


def _crop(xp: Any, padded: Any, windows: Windows, sizes: tuple[int, ...]) -> Any:
    """The `sizes` cells after the leading paddings."""
    spans = padded.shape[-len(sizes) :]
    edges = [
        (before, span - before - size) for (before, _), span, size in zip(windows.paddings, spans, sizes, strict=True)
    ]
    return unpad(xp, padded, edges)


# -- 1x1 kernels
def _is_pointwise(windows: Windows) -> bool:
    return prod(windows.kernel) == 1 and not windows.padded


def _strided(x: Any, windows: Windows) -> Any:
    return x if windows.unit_strides else x[(Ellipsis, *(slice(None, None, stride) for stride in windows.strides))]


def _spread(xp: Any, cells: Any, windows: Windows, sizes: tuple[int, ...]) -> Any:
    """The transpose of `_strided`."""
    if cells.shape[2:] == tuple(sizes) and windows.unit_strides:
        return cells
    out = xp.zeros((*cells.shape[:2], *_spans(windows, sizes, cells.shape[2:])), dtype=cells.dtype)
    _strided(out, windows)[(Ellipsis, *map(slice, cells.shape[2:]))] = cells
    return _crop(xp, out, windows, sizes)


# -- one input channel per group
def _is_depthwise(weight: Any, groups: int) -> bool:
    multiplier: int = weight.shape[0] // groups
    return bool(weight.shape[1] == 1 and groups > 1 and multiplier <= DEPTHWISE_MULTIPLIER)


def _per_channel(weight: Any, channels: int, tap: tuple[int, ...], rank: int) -> Any:
    """The filter's numbers at one kernel position as [C, multiplier, 1...]."""
    return weight[(slice(None), 0, *tap)].reshape(channels, -1, *[1] * rank)


def _shifted_products(xp: Any, x: Any, weight: Any, windows: Windows, counts: tuple[int, ...]) -> Any:
    edges, channels = windows.reach(x.shape[2:], counts), x.shape[1]
    if len(weight) == channels and channels >= counts[-1] * (WIDE_UNIT if windows.unit_strides else WIDE_STRIDED):
        cells = pad(xp, xp.moveaxis(x, 1, -1), (*edges, (0, 0)))
        return _channels_last_products(xp, cells, weight, windows, counts)
    padded = pad(xp, x, edges)
    if windows.unit_strides:
        return _flat_shifted_products(xp, padded, weight, windows, counts)
    padded = padded[:, :, None]
    out = xp.empty((len(x), channels, weight.shape[0] // channels, *counts), dtype=x.dtype)
    taps = windows.taps(counts)
    _add_products(xp, ((padded[cells], _per_channel(weight, channels, tap, len(counts))) for tap, cells in taps), out)
    return out.reshape(len(x), -1, *counts)


def _add_products(xp: Any, pairs: Iterable[tuple[Any, Any]], out: Any) -> None:
    """The sum of the products into `out`, which need not be set before."""
    product = None
    for cells, factors in pairs:
        if product is None:
            repeated(xp, xp.multiply, cells, factors, out=out)
            product = xp.empty_like(out)
        else:
            repeated(xp, xp.multiply, cells, factors, out=product)
            out += product


def _channels_last_products(xp: Any, cells: Any, weight: Any, windows: Windows, counts: tuple[int, ...]) -> Any:
    """Where an image has more channels than columns, a row of all channels is what lies side by side."""
    cells = xp.ascontiguousarray(cells)
    factors = xp.ascontiguousarray(weight.reshape(len(weight), -1).T)
    out = xp.empty((len(cells), *counts, len(weight)), dtype=cells.dtype)
    at = (inner[1:] for _, inner in windows.taps(counts))
    _add_products(xp, ((cells[(slice(None), *part)], row) for part, row in zip(at, factors, strict=True)), out)
    return xp.ascontiguousarray(xp.moveaxis(out, -1, 1))


def _flat_shifted_products(xp: Any, padded: Any, weight: Any, windows: Windows, counts: tuple[int, ...]) -> Any:
    """With strides of one a kernel position is one offset into the flattened image: long rows, few array operations."""
    spans, channels = padded.shape[2:], padded.shape[1]
    steps = [prod(spans[axis + 1 :]) for axis in range(len(spans))]
    length = sum((count - 1) * step for count, step in zip(counts, steps, strict=True)) + 1
    flat = xp.ascontiguousarray(padded).reshape(len(padded), channels, 1, -1)
    multiplier = weight.shape[0] // channels
    whole = xp.empty((len(padded), channels, multiplier, counts[0] * steps[0]), dtype=padded.dtype)

    def pairs() -> Iterator[tuple[Any, Any]]:
        for tap, _ in windows.taps(counts):
            offset = sum(t * d * step for t, d, step in zip(tap, windows.dilations, steps, strict=True))
            yield flat[..., offset : offset + length], _per_channel(weight, channels, tap, 1)

    _add_products(xp, pairs(), whole[..., :length])
    shaped = whole.reshape(len(padded), channels * multiplier, counts[0], *spans[1:])
    return xp.ascontiguousarray(shaped[(Ellipsis, *map(slice, counts))])


def _shifted_input_grad(
    xp: Any, out_grad: Any, weight: Any, windows: Windows, groups: int, sizes: tuple[int, ...]
) -> Any:
    counts = out_grad.shape[2:]
    multiplier = weight.shape[0] // groups
    if windows.unit_strides and multiplier == 1:
        flipped = weight[(Ellipsis, *[slice(None, None, -1)] * len(sizes))]
        edges = tuple(
            (extent - 1 - before, size + before - count)
            for extent, (before, _), size, count in zip(windows.extents, windows.paddings, sizes, counts, strict=True)
        )
        return _shifted_products(xp, out_grad, flipped, replace(windows, paddings=edges), tuple(sizes))
    rows = out_grad.reshape(len(out_grad), groups, multiplier, *counts)
    padded = xp.zeros((len(out_grad), groups, *_spans(windows, sizes, counts)), dtype=out_grad.dtype)
    for tap, cells in windows.taps(counts):
        padded[cells] += (rows * _per_channel(weight, groups, tap, len(counts))).sum(axis=2)
    return _crop(xp, padded, windows, sizes)


def _shifted_filter_grad(xp: Any, x: Any, out_grad: Any, windows: Windows, filter_shape: tuple[int, ...]) -> Any:
    counts = out_grad.shape[2:]
    padded = pad(xp, x, windows.reach(x.shape[2:], counts))
    rows = out_grad.reshape(len(x), x.shape[1], -1, *counts)
    axes = "xyzuvw"[: len(counts)]
    grad = xp.empty(filter_shape, dtype=x.dtype)
    for tap, cells in windows.taps(counts):
        sums = xp.einsum(f"nc{axes},ncm{axes}->cm", padded[cells], rows)
        grad[(slice(None), 0, *tap)] = sums.reshape(-1)
    return grad
