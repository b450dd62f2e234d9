"""Images and volumes beyond convolution: resampling, transposed convolutions, frames, boxes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.cuda.calls import Buffer, Convolution, Place, Pointer, channels_last
from fluidtool.runtime.engines.cuda.channels import by_eights, filled, keep_padded, padded, takes_halves
from fluidtool.runtime.engines.cuda.convolutions import finish_convolution, scaled_filters
from fluidtool.runtime.engines.cuda.lowering import Lowering, like_input, lowers, need_cudnn
from fluidtool.runtime.engines.cuda.sources import THREADS, Source, number
from fluidtool.runtime.graph.ir import NONE, Node, Shape, Value


@lowers("interpolate")
def _interpolate(low: Lowering, node: Node) -> None:
    """attrs: by axis `cells` [outputs, taps] and `shares` of the same shape, or None where pixels are copied."""
    x, cells, shares = node.inputs[0], node.attrs["cells"], node.attrs["shares"]
    out = low.new(node.output, like_input(low, node))
    tables = [np.ascontiguousarray(axis, np.int64) for axis in cells]
    taps = [axis.shape[1] for axis in tables]

    def element(src: Source, index: list[str]) -> str:
        total = ""
        for i in range(taps[0]):
            row = src.whole(f"(int){src.table(tables[0])}[{index[2]} * {taps[0]} + {i}]")
            line = ""
            for j in range(taps[1]):
                column = src.whole(f"(int){src.table(tables[1])}[{index[3]} * {taps[1]} + {j}]")
                value = src.load(x, [index[0], index[1], row, column])
                if shares is not None:
                    value = f"{src.table(np.asarray(shares[1], np.float32))}[{index[3]} * {taps[1]} + {j}] * {value}"
                line = f"{line} + {value}" if line else value
            if shares is not None:
                line = f"{src.table(np.asarray(shares[0], np.float32))}[{index[2]} * {taps[0]} + {i}] * ({line})"
            total = f"{total} + {line}" if total else line
        return f"({total})"

    low.elementwise(out, node.output.shape, element)


@lowers("conv_transpose")
def _conv_transpose(low: Lowering, node: Node) -> None:
    """The gradient by its images, or by the frames of its volumes, of the convolution with the same filters; then what follows."""
    need_cudnn(low)
    x, attrs, windows = node.inputs[0], node.attrs, node.attrs["windows"]
    weights = _scaled_by_group(node)
    filters = low.constant(np.ascontiguousarray(np.moveaxis(weights, 1, -1)))
    plain = Place(Buffer(node.output.floats), channels_last(node.output.shape))
    low.calls.append(
        Convolution(
            plain.pointer, Pointer(filters), _as_image(low, x), attrs["images"], weights.shape, windows.results,
            windows.pads, windows.strides, windows.dilations, "x",
        )
    )  # fmt: skip
    _finish(low, node, plain)


def _scaled_by_group(node: Node) -> NDArray[np.float32]:
    """The filters [c, count of a group, …], times the scale of a channel of the result."""
    weights, scale, groups = np.asarray(node.attrs["weights"], np.float32), node.attrs["scale"], node.attrs["groups"]
    if scale is None:
        return weights
    each = np.repeat(np.reshape(scale, (groups, -1)), weights.shape[0] // groups, axis=0)
    scaled: NDArray[np.float32] = (weights * each.reshape(*each.shape, *(1 for _ in weights.shape[2:]))).astype(
        np.float32
    )
    return scaled


def _as_image(low: Lowering, value: Value) -> Pointer:
    return low.laid(value, channels_last(value.shape)).pointer


def _finish(low: Lowering, node: Node, plain: Place) -> None:
    """The bias by channel, the addend and the activation of a node, in place unless its result has memory of its own."""
    low.places[node.output] = plain
    shift, apart = node.attrs["shift"], low.is_apart(node.output)
    if shift is None and node.residual is None and node.activation == NONE and not apart:
        return
    out = low.new(node.output) if apart else plain

    def element(src: Source, index: list[str]) -> str:
        value = src.at(plain, index)
        if shift is not None:
            value = f"({value} + {src.numbered(shift, index[1])})"
        return src.finished(node, value, index)

    low.elementwise(out, node.output.shape, element)


# ---------------------------------------------------------------- volumes, as frames
@lowers("conv3d")
def _conv3d(low: Lowering, node: Node) -> None:
    """A convolution of volumes whose frames lie one after the other, channels last; in halves with channels by eights."""
    need_cudnn(low)
    x, attrs, shape = node.inputs[0], node.attrs, node.output.shape
    weights, volumes = scaled_filters(node, 0), attrs["volumes"]
    step, apart = attrs["along"]
    top, left, bottom, right = attrs["pads"]
    of_images, of_results = ((volumes, c, frames // volumes, h, w) for frames, c, h, w in (x.shape, shape))
    sizes = of_images, weights.shape, of_results
    half = low.half if takes_halves(sizes) else ""
    images, filters, results = by_eights(sizes) if half else sizes
    numbers = np.ascontiguousarray(filled(weights, filters).transpose(0, 2, 3, 4, 1))
    source = padded(low, x, _frames(images)) if half else low.laid(x, channels_last(x.shape))
    plain = Place(low.room(results, half), channels_last(_frames(results)))
    keep_padded(low, plain, shape, _frames(results))
    low.places[node.output] = plain
    call = Convolution(
        source.pointer, Pointer((low.weights if half else low.constant)(numbers)), plain.pointer, images, filters, results,
        (0, top, left, 0, bottom, right), (step, *attrs["strides"]), (apart, *attrs["dilations"]),
    )  # fmt: skip
    finish_convolution(low, node, call, plain)


def _frames(volumes: Shape) -> Shape:
    """The shape of the frames of volumes [n, c, d, h, w], one after the other."""
    n, c, depth, *sizes = volumes
    return n * depth, c, *sizes


@lowers("pool_frames")
def _pool_frames(low: Lowering, node: Node) -> None:
    """Pooling over the frames of each volume."""
    x, attrs = node.inputs[0], node.attrs
    depth, count = x.shape[0] // attrs["volumes"], node.output.shape[0] // attrs["volumes"]
    out = low.new(node.output, like_input(low, node))
    src = Source(low)
    order = sorted(range(4), key=lambda axis: -out.strides[axis])
    index = src.split(src.thread(prod(node.output.shape)), node.output.shape, order)
    volume, place = src.whole(f"{index[0]} / {count}"), src.whole(f"{index[0]} % {count}")
    src.lines += [
        f"int begin = {place} * {attrs['stride']} - {attrs['before']}, end = begin + {attrs['window']};",
        "if (begin < 0) begin = 0;",
        f"if (end > {depth}) end = {depth};",
    ]
    maximum = attrs["mode"] == 0
    loaded = src.load(x, [f"({volume} * {depth} + i)", *index[1:]])
    step = f"total = ft_larger(total, {loaded});" if maximum else f"total += {loaded};"
    src.lines += [
        f"float total = {'-1.0f / 0.0f' if maximum else '0.0f'};",
        f"for (int i = begin; i < end; i++) {step}",
    ]
    divided = {0: "total", 1: "total / (float)(end - begin)", 2: f"total / {number(attrs['window'])}"}
    src.lines.append(src.store(out, index, divided[attrs["mode"]]))
    low.calls.append(src.launch(out, -(-prod(node.output.shape) // THREADS), THREADS, "pool"))


# ---------------------------------------------------------------- channels
@lowers("pixel_shuffle")
def _pixel_shuffle(low: Lowering, node: Node) -> None:
    x, factor = node.inputs[0], node.attrs["factor"]

    def element(src: Source, index: list[str]) -> str:
        n, c, y, z = index
        channel = src.whole(f"{c} * {factor**2} + {y} % {factor} * {factor} + {z} % {factor}")
        return src.load(x, [n, channel, src.whole(f"{y} / {factor}"), src.whole(f"{z} / {factor}")])

    low.elementwise(low.new(node.output, like_input(low, node)), node.output.shape, element)


@lowers("local_response")
def _local_response(low: Lowering, node: Node) -> None:
    """x / middle ** (fourths / 4), where middle = k + alpha * the sum of squares of the channels around.

    attrs: with `keeps`, the middle is kept beside the result.
    """
    x, fourths = node.inputs[0], node.attrs["fourths"]
    k, alpha = map(number, node.attrs["numbers"])
    src, out = Source(low), low.new(node.output, like_input(low, node))

    def square(index: list[str]) -> str:
        return f"const float v = {src.load(x, index)}; total += v * v;"

    index = over_channels_around(src, out, x.shape, node.attrs["around"], square)
    src.lines.append(f"const float middle = {k} + {alpha} * total;")
    if node.attrs.get("keeps"):
        kept = low.beside[node.output, "middle"] = Place(low.room(x.shape), out.strides)
        src.lines.append(src.store(kept, index, "middle", src.writable(kept.buffer)))
    src.lines.append(src.store(out, index, f"{src.load(x, index)} / powf(middle, {number(fourths / 4)})"))
    low.calls.append(src.launch(out, -(-prod(x.shape) // THREADS), THREADS, "response"))


def over_channels_around(
    src: Source, out: Place, shape: Shape, around: int, add: Callable[[list[str]], str]
) -> list[str]:
    """Statements that make `total` a sum over the channels around, by what `add` says of each; the index of the thread."""
    order = sorted(range(4), key=lambda axis: -out.strides[axis])
    index = src.split(src.thread(prod(shape)), shape, order)
    src.lines += [
        f"int begin = {index[1]} - {around}, end = {index[1]} + {around + 1};",
        "if (begin < 0) begin = 0;",
        f"if (end > {shape[1]}) end = {shape[1]};",
        "float total = 0.0f;",
        f"for (int i = begin; i < end; i++) {{ {add([index[0], 'i', *index[2:]])} }}",
    ]
    return index


# ---------------------------------------------------------------- boxes
def _yolo(src: Source, low: Lowering, node: Node, columns: int) -> tuple[list[str], dict[str, str], Any]:
    """The index of an element of the result, names of the parts of its row, and how a channel of the row is read."""
    x, attrs = node.inputs[0], node.attrs
    images, _, height, width = x.shape
    anchors = attrs["anchors"].size // 2
    index = src.split(src.thread(prod(node.output.shape)), (images, anchors, height, width, columns))
    n, a, y, z, _ = index

    def channel(number_: str) -> str:
        return src.load(x, [n, f"({a} * {5 + attrs['classes']} + {number_})", y, z])

    return index, {"anchor": a, "y": y, "x": z, "image": n}, channel


@lowers("yolo_boxes")
def _yolo_boxes(low: Lowering, node: Node) -> None:
    attrs, src = node.attrs, Source(low)
    out, sizes = low.new(node.output), low.place(node.inputs[1])
    index, part, channel = _yolo(src, low, node, 4)
    grid_h, grid_w = attrs["cells"]
    scale, shift = number(attrs["scale"]), number(-0.5 * (attrs["scale"] - 1.0))
    table = src.table(np.asarray(attrs["anchors"], np.float32))
    image, ratio = src.pointer(sizes.buffer, sizes.offset), attrs["ratio"]
    src.lines += [
        f"const float confidence = ft_sigmoid({channel('4')});",
        f"if (!(confidence >= {number(attrs['threshold'])})) {{ out[at] = 0.0f; return; }}",
        f"const int down = {index[4]} % 2;",
        f"const float size = (float){image}[{part['image']} * 2 + 1 - down];",
        f"const float cells = down ? {number(grid_h)} : {number(grid_w)}, cell = (float)(down ? {part['y']} : {part['x']});",
        f"const float middle = (cell + ft_sigmoid(down ? {channel('1')} : {channel('0')}) * {scale} + {shift}) * size / cells;",
        f"const float length = expf(down ? {channel('3')} : {channel('2')}) * {table}[{part['anchor']} * 2 + down] * size / "
        f"({number(ratio)} * cells);",
        f"float side = {index[4]} < 2 ? middle - length / 2.0f : middle + length / 2.0f;",
    ]
    if attrs["clip"]:
        src.lines.append(f"side = {index[4]} < 2 ? ft_larger(side, 0.0f) : ft_smaller(side, size - 1.0f);")
    src.lines.append("out[at] = side;")
    low.calls.append(src.launch(out, -(-prod(node.output.shape) // THREADS), THREADS, "boxes"))


@lowers("yolo_scores")
def _yolo_scores(low: Lowering, node: Node) -> None:
    src, out = Source(low), low.new(node.output)
    index, _, channel = _yolo(src, low, node, node.attrs["classes"])
    src.lines += [
        f"const float confidence = ft_sigmoid({channel('4')});",
        f"out[at] = confidence >= {number(node.attrs['threshold'])} ? "
        f"confidence * ft_sigmoid({channel(f'5 + {index[4]}')}) : 0.0f;",
    ]
    low.calls.append(src.launch(out, -(-prod(node.output.shape) // THREADS), THREADS, "scores"))


@lowers("decode_boxes")
def _decode_boxes(low: Lowering, node: Node) -> None:
    codes, priors, *given = node.inputs
    attrs, out = node.attrs, low.new(node.output)
    pixel = number(attrs["pixel"])
    src = Source(low)
    index = src.split(src.thread(prod(node.output.shape)), node.output.shape)
    box = index[0] if attrs["along"] else index[1]
    src.lines.append(f"const int axis = {index[2]} % 2;")

    def code(shift: str) -> str:
        return src.load(codes, [index[0], index[1], f"(axis + {shift})"])

    def scale(shift: str) -> str:
        if given:
            return src.load(given[0], [box, f"(axis + {shift})"])
        return f"{src.table(np.array(attrs['variance'] or [1.0] * 4, np.float32))}[axis + {shift}]"

    low_side, high_side = (src.load(priors, [box, f"(axis + {shift})"]) for shift in (0, 2))
    src.lines += [
        f"const float length = {high_side} - {low_side} + {pixel};",
        f"const float middle = {scale('0')} * {code('0')} * length + ({low_side} + length * 0.5f);",
        f"const float half = expf({scale('2')} * {code('2')}) * length * 0.5f;",
        src.store(out, index, f"{index[2]} < 2 ? middle - half : middle + half - {pixel}"),
    ]
    low.calls.append(src.launch(out, -(-prod(node.output.shape) // THREADS), THREADS, "decode"))
