"""Images and volumes in training steps, beyond convolution and pooling of images: forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.images import over_channels_around
from fluidtool.runtime.engines.cuda.lowering import AXES, Lowering, like_input, lowers
from fluidtool.runtime.engines.cuda.sources import THREADS, Source, number
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, as_in_inference, imports_step
from fluidtool.runtime.engines.cuda.training.forward import along
from fluidtool.runtime.graph.importers.interpolation import RESAMPLING, resampled
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.importers.volumes import pooled_windows
from fluidtool.runtime.graph.ir import Node, Shape

Attrs = Mapping[str, Any]


as_in_inference(*RESAMPLING, "pixel_shuffle")


# ---------------------------------------------------------------- volumes
@imports_step("pool3d")
def _pool3d(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """All axes at once; in inference frames, which convolutions of volumes share."""
    x = b.get(op, "X")
    found = pooled_windows(attrs, x.shape)
    pads = [before for before, _ in found.pads] + [after for _, after in found.pads]
    windows = {"window": found.sizes, "strides": found.strides, "pads": pads}
    y = b.node("pool", [x], (*x.shape[:2], *found.counts), mode=found.mode, adaptive=False, **windows)
    b.put(op, "Out", y)


# ---------------------------------------------------------------- resampling
@dataclass(frozen=True, eq=False, slots=True)
class Readers:
    """Which cells of a resampled axis read each cell of the axis, and their shares of it, or None where those are 1.

    Those of cell i are `places[begins[i]]` up to that of `begins[i + 1]`.
    """

    begins: Any
    places: Any
    shares: Any


def readers_of(size: int, cells: Any, weights: Any) -> Readers:
    """What reads each of `size` cells, where reader i reads `cells` [:, i] with `weights` [:, i], or None for a share of 1.

    A reader that reads a cell twice counts once, with both shares.
    """
    count = cells.shape[1]
    pairs, which = np.unique((cells * count + np.arange(count)).reshape(-1), return_inverse=True)
    shares = None if weights is None else np.bincount(which.reshape(-1), np.reshape(weights, -1))
    return Readers(np.searchsorted(pairs // count, np.arange(size + 1)), pairs % count, shares)


@imports_step(*(f"{type}_grad" for type in RESAMPLING))
def _resampled_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    shape, grad = b.shape_of(op, "X"), b.get(op, "Out@GRAD")
    sizes, taps = resampled(op, attrs, shape)
    need(grad.shape == (*shape[:2], *sizes), "a gradient that does not fit")
    if sizes != shape[2:]:
        grad = b.node(
            "interpolate_gradient",
            [grad],
            shape,
            readers=[readers_of(axis.size, axis.cells, axis.weights) for axis in taps],
        )
    b.put(op, "X@GRAD", grad)


@lowers("interpolate_gradient")
def _lower_resampled_gradient(low: Lowering, node: Node) -> None:
    """Each cell adds what those that read it have of it, line by line. attrs: `readers` by axis, of images or of volumes."""
    (grad,), shape = node.inputs, node.output.shape
    src, out = Source(low), low.new(node.output, like_input(low, node))
    order = sorted(range(len(shape)), key=lambda axis: -out.strides[axis])
    index = src.split(src.thread(prod(shape)), shape, order)
    axes = AXES[5 - len(shape) :]
    step = f"sum = {src.load(grad, [*index[:2], *(f'at_{axis}' for axis in axes)])};"
    for axis, part, readers in reversed(list(zip(axes, index[2:], node.attrs["readers"], strict=True))):
        begins, places = src.table(readers.begins), src.table(readers.places)
        share = "" if readers.shares is None else f"{src.table(readers.shares)}[{axis}] * "
        loop = f"for (int {axis} = (int){begins}[{part}]; {axis} < (int){begins}[{part} + 1]; {axis}++)"
        place = f"const int at_{axis} = (int){places}[{axis}];"
        step = f"float total_{axis} = 0.0f; {loop} {{ {place} float sum; {step} total_{axis} += {share}sum; }} sum = total_{axis};"
    src.lines += ["float sum;", step, src.store(out, index, "sum")]
    low.calls.append(src.launch(out, -(-prod(shape) // THREADS), THREADS, "resampled"))


# ---------------------------------------------------------------- channels
@imports_step("pixel_shuffle_grad")
def _pixel_shuffle_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    grad, factor = b.get(op, "Out@GRAD"), int(attrs["upscale_factor"])
    need(len(grad.shape) == 4 and attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "not an NCHW image")
    need(factor > 0 and not any(size % factor for size in grad.shape[2:]), "a gradient that does not fit")
    n, c, h, w = grad.shape
    shape = (n, c * factor**2, h // factor, w // factor)
    b.put(op, "X@GRAD", b.node("pixel_shuffle_gradient", [grad], shape, factor=factor))


@lowers("pixel_shuffle_gradient")
def _lower_pixel_shuffle_gradient(low: Lowering, node: Node) -> None:
    (grad,), factor = node.inputs, node.attrs["factor"]

    def element(src: Source, index: list[str]) -> str:
        n, c, y, z = index
        row = src.whole(f"{y} * {factor} + {c} / {factor} % {factor}")
        column = src.whole(f"{z} * {factor} + {c} % {factor}")
        return src.load(grad, [n, src.whole(f"{c} / {factor**2}"), row, column])

    low.elementwise(low.new(node.output, like_input(low, node)), node.output.shape, element)


@imports_step("affine_channel")
def _affine_channel(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x = b.get(op, "X")
    _check_affine(attrs, x.shape)
    factors = [along(b, b.get(op, slot), len(x.shape)) for slot in ("Scale", "Bias")]
    b.put(op, "Out", b.formula("a * b + c", x, *factors))


def _check_affine(attrs: Attrs, shape: Shape) -> None:
    need(attrs.get("data_layout", "NCHW") in ("NCHW", "AnyLayout") and len(shape) in (2, 4), "affine_channel in NHWC")


@imports_step("affine_channel_grad")
def _affine_channel_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, grad = b.get(op, "X"), b.get(op, "Out@GRAD")
    _check_affine(attrs, x.shape)
    need(grad.shape == x.shape, "a gradient that does not fit")
    if b.wants(op, "X@GRAD"):
        b.put(op, "X@GRAD", b.formula("a * b", grad, along(b, b.get(op, "Scale"), len(x.shape))))
    if b.wants(op, "Scale@GRAD"):
        b.put(op, "Scale@GRAD", b.sums(b.formula("a * b", grad, x), (1,)))
    if b.wants(op, "Bias@GRAD"):
        b.put(op, "Bias@GRAD", b.sums(grad, (1,)))


@imports_step("lrn")
def _lrn(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, count = b.get(op, "X"), int(attrs["n"])
    _check_lrn(attrs, len(x.shape))
    numbers, fourths = (float(attrs["k"]), float(attrs["alpha"])), 4 * float(attrs["beta"])
    keeps = b.wants(op, "MidOut")
    y = b.node("local_response", [x], x.shape, around=count // 2, fourths=fourths, numbers=numbers, keeps=keeps)
    b.put(op, "Out", y)
    if keeps:
        b.put(op, "MidOut", b.node("beside", [y], x.shape, name="middle"))


def _check_lrn(attrs: Attrs, rank: int) -> None:
    need(rank == 4 and attrs["data_format"] in ("NCHW", "AnyLayout"), "not an NCHW image")
    need(int(attrs["n"]) > 0 and int(attrs["n"]) % 2 == 1, "an unexpected number of channels")


@imports_step("lrn_grad")
def _lrn_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    values = [b.get(op, slot) for slot in ("X", "Out", "MidOut", "Out@GRAD")]
    shape, alpha, beta = values[0].shape, float(attrs["alpha"]), float(attrs["beta"])
    _check_lrn(attrs, len(shape))
    need(all(value.shape == shape for value in values), "a gradient that does not fit")
    around = int(attrs["n"]) // 2
    b.put(op, "X@GRAD", b.node("local_response_gradient", values, shape, around=around, alpha=alpha, beta=beta))


@lowers("local_response_gradient")
def _lower_lrn_gradient(low: Lowering, node: Node) -> None:
    """dy / middle ** beta - 2 * alpha * beta * x * the sum of dy * y / middle over the channels around."""
    x, y, middle, grad = node.inputs
    beta, share = number(node.attrs["beta"]), number(2 * node.attrs["alpha"] * node.attrs["beta"])
    src, out = Source(low), low.new(node.output, like_input(low, node))

    def part(index: list[str]) -> str:
        return f"total += {src.load(grad, index)} * {src.load(y, index)} / {src.load(middle, index)};"

    index = over_channels_around(src, out, x.shape, node.attrs["around"], part)
    own = f"{src.load(grad, index)} / powf({src.load(middle, index)}, {beta})"
    src.lines.append(src.store(out, index, f"{own} - {share} * {src.load(x, index)} * total"))
    low.calls.append(src.launch(out, -(-prod(x.shape) // THREADS), THREADS, "response_back"))
