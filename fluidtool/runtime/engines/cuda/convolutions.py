"""Convolutions of images, and what follows them: by cuDNN at once where it takes that; each channel by itself in a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.cuda.calls import Choice, Convolution, Launch, Place, Pointer
from fluidtool.runtime.engines.cuda.channels import by_eights, filled, keep_padded, padded, takes_halves
from fluidtool.runtime.engines.cuda.depthwise import convolve_depthwise, is_depthwise
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers, need_cudnn
from fluidtool.runtime.engines.cuda.sources import RELU6, Source
from fluidtool.runtime.graph.importers.registry import GELU, LEAKY, SIGMOID, SWISH, TANH
from fluidtool.runtime.graph.ir import NONE, RELU, Node, Shape


@lowers("conv")
def _convolution(low: Lowering, node: Node) -> None:
    x, attrs, shape = node.inputs[0], node.attrs, node.output.shape
    if is_depthwise(x.shape, attrs["weights"].shape):
        convolve_depthwise(low, node, scaled_filters(node, 0))
        return
    need_cudnn(low)
    weights = scaled_filters(node, 0)
    sizes = x.shape, weights.shape, shape
    half = low.half if takes_halves(sizes) else ""
    images, filters, results = by_eights(sizes) if half else sizes
    first, strides = node.output in low.first, low.image(node.output)
    numbers = np.ascontiguousarray(filled(weights, filters).transpose(*((0, 1, 2, 3) if first else (0, 2, 3, 1))))
    source = padded(low, x, images) if half else low.laid(x, strides(images))
    plain = Place(low.room(results, half), strides(results))
    keep_padded(low, plain, shape, results)
    low.places[node.output] = plain
    call = Convolution(
        source.pointer, Pointer((low.weights if half else low.constant)(numbers)), plain.pointer, images, filters, results,
        tuple(attrs["pads"]), tuple(attrs["strides"]), tuple(attrs["dilations"]), channels_first=first,
    )  # fmt: skip
    finish_convolution(low, node, call, plain)


def scaled_filters(node: Node, axis: int) -> NDArray[np.float32]:
    """The filters of a node, times its scale by channel along an axis."""
    weights, scale = np.asarray(node.attrs["weights"], np.float32), node.attrs["scale"]
    if scale is None:
        return weights
    by_channel = [-1 if each == axis else 1 for each in range(weights.ndim)]
    scaled: NDArray[np.float32] = (weights * np.reshape(scale, by_channel)).astype(np.float32)
    return scaled


def finish_convolution(low: Lowering, node: Node, call: Convolution, plain: Place) -> None:
    """A convolution and what follows it: by cuDNN if it takes that, else in a kernel, in place if nothing reads it elsewhere."""
    shift, shape = node.attrs["shift"], node.output.shape
    apart = low.is_apart(node.output)
    if shift is None and node.residual is None and node.activation == NONE and not apart:
        low.calls.append(call)
        return
    out = low.new(node.output) if apart else plain

    def element(src: Source, index: list[str]) -> str:
        value = src.at(plain, index)
        if shift is not None:
            value = f"({value} + {src.numbered(shift, index[1])})"
        return src.finished(node, value, index)

    low.elementwise(out, shape, element)
    finish = low.calls.pop()
    fused = None if apart else fused_convolution(low, node, call, plain)
    assert isinstance(finish, Launch)
    low.calls += [call, finish] if fused is None else [Choice(fused, (call, finish))]


def fused_convolution(low: Lowering, node: Node, call: Convolution, plain: Place) -> Convolution | None:
    """A convolution with its bias, addend and activation, for cuDNN; None where it has no such activation, or layout."""
    added = None
    if node.residual is not None:
        place = None if node.residual in low.inlined else low.place(node.residual)
        if place is None or not _is_like(low, node, place, call.results, plain):
            return None
        added = place.pointer
    activation = None
    if node.activation != NONE:
        if node.activation.kind not in FUSED:
            return None
        name, numbers = FUSED[node.activation.kind]
        activation = name, numbers(node.activation.constants)
    shift = node.attrs["shift"]
    bias = None
    if shift is not None:
        bias = Pointer(low.constant(filled(np.asarray(shift, np.float32).reshape(-1), call.results[1:2])))
    return replace(call, bias=bias, added=added, activation=activation)


def _is_like(low: Lowering, node: Node, added: Place, results: Shape, plain: Place) -> bool:
    """Whether cuDNN may add what lies there to a result: it has the same shape, layout and type, and as many channels."""
    shape = node.output.shape
    alike = node.residual is not None and node.residual.shape == shape and added.strides == plain.strides
    is_whole = shape == results or low.padded.get((added, shape, results)) == added
    return alike and is_whole and added.buffer.half == plain.buffer.half


Numbers = tuple[tuple[str, float], ...]
FUSED: dict[int, tuple[str, Callable[[Sequence[float]], Numbers]]] = {
    RELU.kind: ("relu", lambda given: ()),
    RELU6: ("relu", lambda given: (("lower_clip", 0.0), ("upper_clip", float(given[0])))),
    SIGMOID: ("sigmoid", lambda given: ()),
    TANH: ("tanh", lambda given: ()),
    GELU: ("gelu", lambda given: ()),
    LEAKY: ("relu", lambda given: (("negative_slope", float(given[0])),)),
    SWISH: ("swish", lambda given: (("swish_beta", float(given[0])),)),
}
"""Activations that cuDNN has: the name of its function, and the numbers that it takes."""
