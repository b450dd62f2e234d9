"""Pooling: windows of images, or of volumes, by threads that compute several channels; whole images as sums are."""

from __future__ import annotations

from math import prod

from fluidtool.runtime.engines.cuda import sources
from fluidtool.runtime.engines.cuda.calls import Place, are_channels_last, row_major, same_strides
from fluidtool.runtime.engines.cuda.columns import Columns
from fluidtool.runtime.engines.cuda.lowering import AXES, Lowering, like_input, lowers
from fluidtool.runtime.engines.cuda.rows import HOW, reduce_rows
from fluidtool.runtime.engines.cuda.sources import THREADS, Source, number
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import NONE, Node, Shape

MAXIMUM, MEAN_INSIDE, MEAN = range(3)  # modes: means over what lies inside of an image, and over whole windows
JOINS = {MAXIMUM: HOW[2], MEAN_INSIDE: HOW[0], MEAN: HOW[0]}


@lowers("pool")
def _pool(low: Lowering, node: Node) -> None:
    """attrs: `window`, `strides` and `pads` by axis, `mode`, whether it is `adaptive`."""
    need(node.residual is None and node.activation == NONE, "pooling with an activation")
    shape = node.output.shape
    out = low.new(node.output, like_input(low, node))
    if _takes_all(node):
        _pool_all(low, node, out)
        return
    for lanes in lanes_of_channels(low, out, shape):
        src = _windows(low, node, out, lanes)
        if lanes == 1 or not src.is_scattered:
            break
    low.calls.append(src.launch(out, -(-prod(shape) // (lanes * THREADS)), THREADS, "pool"))


def lanes_of_channels(low: Lowering, out: Place, shape: Shape) -> list[int]:
    """How many channels of an image a thread may compute, the most first; one where they do not lie side by side."""
    are_last = are_channels_last(out.strides, shape)
    enough = prod(shape) // sources.ENOUGH
    return [lanes for lanes in low.lanes() if lanes == 1 or (are_last and shape[1] % lanes == 0 and lanes <= enough)]


def split_pixels(src: Source, out: Place, shape: Shape, lanes: int) -> list[str]:
    """The index of a thread's first element, in the order of memory."""
    order = sorted(range(len(shape)), key=lambda axis: -out.strides[axis])
    src.total = prod(shape)
    at = src.thread(prod(shape) // lanes)
    return src.split(src.whole(f"{at} * {lanes}") if lanes > 1 else at, shape, order)


def _windows(low: Lowering, node: Node, out: Place, lanes: int) -> Source:
    x, attrs, shape, src = node.inputs[0], node.attrs, node.output.shape, Source(low)
    image, first_channel, *pixel = split_pixels(src, out, shape, lanes)
    names, lane = AXES[5 - len(shape) :], "lane" if lanes > 1 else "0"
    for axis, (name, part, size, cells) in enumerate(zip(names, pixel, x.shape[2:], shape[2:], strict=True)):
        if attrs["adaptive"]:
            first, last = f"{part} * {size} / {cells}", f"(({part} + 1) * {size} + {cells - 1}) / {cells}"
        else:
            first = f"{part} * {attrs['strides'][axis]} - {attrs['pads'][axis]}"
            last = f"first_{name} + {attrs['window'][axis]}"
        src.lines.append(f"int first_{name} = {first}, last_{name} = {last};")
        src.lines.append(f"if (first_{name} < 0) first_{name} = 0;")
        src.lines.append(f"if (last_{name} > {size}) last_{name} = {size};")
    start, join = JOINS[attrs["mode"]]
    found = f"found[{lane}]"
    divided = {
        MAXIMUM: found,
        MEAN_INSIDE: f"{found} / (float)({' * '.join(f'(last_{name} - first_{name})' for name in names)})",
        MEAN: f"{found} / {number(prod(attrs['window']))}",
    }

    def joined(channel: str) -> str:
        return f"{found} = {join.format(a=found, b=src.load(x, [image, channel, *names]))};"

    def stored(channel: str) -> str:
        return src.store(out, [image, channel, *pixel], divided[attrs["mode"]])

    each = src.side_by_side(lanes, first_channel, joined)
    loops = " ".join(f"for (int {name} = first_{name}; {name} < last_{name}; {name}++)" for name in names)
    src.lines += [
        f"float found[{lanes}];",
        f"for (int lane = 0; lane < {lanes}; lane++) found[lane] = {start};",
        f"{loops} {{ {each} }}",
    ]
    src.lines.append(src.side_by_side(lanes, first_channel, stored))
    return src


# ---------------------------------------------------------------- whole images
def _takes_all(node: Node) -> bool:
    """Whether there is one window, of the whole image."""
    attrs, sizes = node.attrs, node.inputs[0].shape[2:]
    if prod(node.output.shape[2:]) != 1 or prod(sizes) == 1:
        return False
    limits = zip(attrs["window"], attrs["pads"], sizes, strict=False)
    return bool(attrs["adaptive"]) or all(pad >= 0 and window - pad >= size for window, pad, size in limits)


def _pool_all(low: Lowering, node: Node, out: Place) -> None:
    """Each channel of each image, joined."""
    (x,), shape, mode = node.inputs, node.output.shape, node.attrs["mode"]
    columns, count = prod(x.shape[:2]), prod(x.shape[2:])
    divisor = {MAXIMUM: "", MEAN_INSIDE: f" / {number(count)}", MEAN: f" / {number(prod(node.attrs['window']))}"}[mode]
    if same_strides(low.place(x).strides, row_major(x.shape), x.shape):
        reduce_rows(low, x, (columns, count), JOINS[mode], (out, shape, f"total{divisor}"), "pool")
        return

    def element(src: Source, column: str, line: str) -> str:
        return src.load(x, [*src.split(column, x.shape[:2]), *src.split(line, x.shape[2:])])

    def stored(src: Source, column: str, total: str) -> str:
        return src.store(out, [*src.split(column, x.shape[:2]), *["0"] * len(shape[2:])], f"{total}{divisor}")

    Columns(low, columns, count, JOINS[mode], element, out, stored, "pool").in_one_call()
