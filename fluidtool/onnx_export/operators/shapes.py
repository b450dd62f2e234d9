"""The same numbers in other shapes: reshape, transpose, concat, split, expand, pad, shuffles of channels."""

from __future__ import annotations

import numpy as np

from fluidtool.onnx_export.graph import BOOL, Graph, Value
from fluidtool.onnx_export.items import Items
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.convolution import back, first
from fluidtool.onnx_export.operators.elementwise import added
from fluidtool.onnx_export.registry import need, renders


@renders("reshape", "reshape2")
def reshape(g: Graph, op: Operation) -> Value:
    x = op["X"]
    sizes = op.ints("shape", "Shape", "ShapeTensor")
    if isinstance(sizes, Value):
        return x.reshape(sizes, zero_keeps=True).shaped(op.shape())
    given: list[int | Value] = []
    for axis, size in enumerate(sizes):
        given.append(x.dim(axis) if isinstance(size, int) and size == 0 and x.shape and axis < x.rank else size)
    if not given:
        return x.reshape([])
    computed = any(isinstance(size, Value) for size in sizes)
    if computed:
        return x.reshape(g.vector(given), zero_keeps=True).shaped([n if isinstance(n, int) else -1 for n in given])
    return x.reshape(given)


@renders("flatten", "flatten2")
def flatten(g: Graph, op: Operation) -> Value:
    x, axis = op["X"], op.attr("axis")
    return x.reshape([x.merged(0, axis), x.merged(axis, x.rank)] if x.rank else [1])


@renders("flatten_contiguous_range")
def flatten_range(g: Graph, op: Operation) -> Value:
    x = op["X"]
    if x.rank == 0:
        return x.reshape([1])
    start, stop = op.attr("start_axis") % x.rank, op.attr("stop_axis") % x.rank
    sizes = x.sizes()
    return x.reshape([*sizes[:start], x.merged(start, stop + 1), *sizes[stop + 1 :]])


@renders("squeeze", "squeeze2")
def squeeze(g: Graph, op: Operation) -> Value:
    x = op["X"]
    axes = [axis % max(x.rank, 1) for axis in op.known_ints("axes")]
    shape = x.shape or ()
    given = {axis for axis in axes if axis < len(shape)} if axes else set(range(x.rank))
    if any(shape[axis] < 0 for axis in given):
        out, known = _squeezed_at_run_time(g, x, given), op.meta()
        return out if known is None else out.shaped(known.shape)
    return x.squeeze(*sorted(axis for axis in given if shape[axis] == 1))


def _squeezed_at_run_time(g: Graph, x: Value, axes: set[int]) -> Value:
    """Axes that turn out not to be of size 1 stay."""
    asked = g.constant([axis in axes for axis in range(x.rank)])
    sizes = x.dims()
    kept = ~(asked & sizes.equals(1))
    return x.reshape(g.op("Compress", sizes, kept, axis=0, shape=(-1,)))


@renders("unsqueeze", "unsqueeze2")
def unsqueeze(g: Graph, op: Operation) -> Value:
    x = op["X"]
    for axis in op.known_ints(
        "axes", "AxesTensor", "AxesTensorList"
    ):  # one after the other, each in what is there by then
        x = x.unsqueeze(axis if axis >= 0 else axis + x.rank + 1)
    return x


@renders("transpose", "transpose2")
def transpose(g: Graph, op: Operation) -> Value:
    x = op["X"]
    return x.transpose(*(axis % x.rank for axis in op.attr("axis")))


@renders("concat")
def concat(g: Graph, op: Operation) -> Value:
    parts = op.all("X")
    (axis,) = op.known_ints("axis", "AxisTensor")
    kept = [part for part in parts if part.shape != (0,)] or parts
    return g.concat(kept, axis)


@renders("split")
def split(g: Graph, op: Operation) -> dict[str, list[Value]]:
    x = op["X"]
    (axis,) = op.known_ints("axis", "AxisTensor")
    sections = op.int_list("sections", tensors="SectionsTensorList") if op.attr("num") <= 0 else []
    count = len(op.op.outputs["Out"])
    if all(isinstance(n, int) for n in sections) and (
        (x.shape is not None and x.shape[axis] >= 0) or (-1 not in sections and sections)
    ):
        sizes = [int(n) for n in sections if isinstance(n, int)] or [x.size(axis) // count] * count
        rest = x.shape[axis] - sum(n for n in sizes if n >= 0) if x.shape is not None else 0
        return {"Out": g.split(x, [rest if n < 0 else n for n in sizes], axis)}
    if not sections:
        return {"Out": _even(g, x, axis, count)}
    lengths = [n if isinstance(n, Value) or n >= 0 else None for n in sections]
    open_ = [place for place, n in enumerate(lengths) if n is None]
    if open_:
        known = g.vector([n for n in lengths if n is not None]).sum(0, keepdims=True)
        lengths[open_[0]] = x.dim_value(axis) - known
    parts = g.node("Split", [x, g.vector([n for n in lengths if n is not None])], [x.dtype] * count, axis=axis)
    at = axis % x.rank
    shape = x.shape or ()
    return {
        "Out": [
            part.shaped((*shape[:at], n if isinstance(n, int) else -1, *shape[at + 1 :]))
            for part, n in zip(parts, lengths, strict=True)
        ]
    }


def _even(g: Graph, x: Value, axis: int, count: int) -> list[Value]:
    each = g.binary("Div", x.dim_value(axis), count)
    parts = g.node("Split", [x, g.vector([each] * count)], [x.dtype] * count, axis=axis)
    return [part.shaped(None if x.shape is None else (*x.shape[:axis], -1, *x.shape[axis + 1 :])) for part in parts]


@renders("stack")
def stack(g: Graph, op: Operation) -> Value:
    parts = op.all("X")
    axis = op.attr("axis")
    return g.stack(parts, axis if axis >= 0 else axis + parts[0].rank + 1)


@renders("unstack", "unbind")
def unstack(g: Graph, op: Operation) -> dict[str, list[Value]]:
    x, axis = op["X"], op.attr("axis") % op["X"].rank
    slot = "Y" if op.type == "unstack" else "Out"
    return {slot: [part.squeeze(axis) for part in g.split(x, [1] * len(op.op.outputs[slot]), axis)]}


@renders("tensor_array_to_tensor")
def array_to_tensor(g: Graph, op: Operation) -> dict[str, Value]:
    items = op.exporter.find(g, op.names("X")[0])
    need(isinstance(items, Items), "it is not an array of tensors")
    assert isinstance(items, Items)
    axis, stacks = op.attr("axis"), op.attr("use_stack")
    if items.sequence is not None:
        return _joined(g, op, items.sequence.within(g), axis, bool(stacks))
    parts = list(items.known or ())
    need(parts, "an array without items")
    out = g.stack(parts, axis) if stacks else g.concat(parts, axis)
    return {"Out": out, "OutIndex": g.vector([1 if stacks else part.dim(axis) for part in parts]).cast(np.int32)}


def _joined(g: Graph, op: Operation, items: Value, axis: int, stacks: bool) -> dict[str, Value]:
    """As many items as there are at run time."""
    out = g.op("ConcatFromSequence", items, axis=axis, new_axis=int(stacks), dtype=items.dtype)
    count = g.op("SequenceLength", items, dtype=np.int64, shape=())
    body = g.inner()
    number = body.input(body.name(f"{g.prefix}.number"), np.int64, ())
    goes_on = body.input(body.name(f"{g.prefix}.goes_on"), BOOL, ())
    item = body.op("SequenceAt", items.within(body), number, dtype=items.dtype)
    size = body.constant([1], np.int64) if stacks else item.dims().gather(body.constant([axis], np.int64), 0)
    body.outputs = [body.same("Identity", goes_on), body.same("Identity", size)]
    (sizes,) = g.node("Loop", [count, g.constant(True)], [np.int64], body=body)
    return {"Out": out, "OutIndex": sizes.shaped((-1, 1)).flat().cast(np.int32)}


# ---------------------------------------------------------------- repeats
@renders("expand")
def expand(g: Graph, op: Operation) -> Value:
    return op["X"].tile(op.ints("expand_times", "ExpandTimes", "expand_times_tensor"))


@renders("tile")
def tile(g: Graph, op: Operation) -> Value:
    x = op["X"]
    times = op.ints("repeat_times", "RepeatTimes", "repeat_times_tensor")
    if isinstance(times, Value):
        return x.tile(times)
    rank = max(x.rank, len(times))
    if not rank:
        return x
    return x.unsqueeze(*range(rank - x.rank)).tile([1] * (rank - len(times)) + times)


@renders("expand_as")
def expand_as(g: Graph, op: Operation) -> Value:
    x, target = op["X"], op["target_tensor"]
    if x.shape is not None and target.shape is not None and min(x.shape + target.shape) > 0:
        return x.tile([b // a for a, b in zip(x.shape, target.shape, strict=True)])
    return x.tile(g.binary("Div", target.dims(), x.dims()))


@renders("expand_as_v2")
def expand_as_v2(g: Graph, op: Operation) -> Value:
    x, target = op["X"], op.get("Y")
    if target is not None:
        return x.expand(target.dims()).shaped(target.shape)
    return x.expand([int(n) for n in op.attr("target_shape")])


@renders("expand_v2")
def expand_v2(g: Graph, op: Operation) -> Value:
    x = op["X"]
    sizes = op.ints("shape", "Shape", "expand_shapes_tensor")
    if isinstance(sizes, Value):
        return x.expand(g.where(sizes < 0, 1, sizes))
    return x.expand([1 if isinstance(n, int) and n < 0 else _at_least_one(g, n) for n in sizes])


def _at_least_one(g: Graph, size: int | Value) -> int | Value:
    return g.maximum(size, 1) if isinstance(size, Value) else size


@renders("broadcast_tensors")
def broadcast_tensors(g: Graph, op: Operation) -> dict[str, list[Value]]:
    parts = op.all("X")
    shapes = [part.dims() for part in parts]
    rank = max(part.rank for part in parts)
    padded = [
        g.concat([g.constant([1] * (rank - part.rank), np.int64), shape], 0) if part.rank < rank else shape
        for part, shape in zip(parts, shapes, strict=True)
    ]
    common = padded[0]
    for shape in padded[1:]:
        common = g.maximum(common, shape)
    return {"Out": [part.expand(common) for part in parts]}


@renders("meshgrid")
def meshgrid(g: Graph, op: Operation) -> dict[str, list[Value]]:
    parts = [part.flat() for part in op.all("X")]
    sizes = g.vector([part.dim(0) for part in parts])
    count = len(parts)
    return {"Out": [part.reshape([1] * i + [-1] + [1] * (count - i - 1)).expand(sizes) for i, part in enumerate(parts)]}


@renders("repeat_interleave")
def repeat_interleave(g: Graph, op: Operation) -> Value:
    x, axis, repeats = op["X"], op.attr("dim") % op["X"].rank, op.get("RepeatsTensor")
    if repeats is not None:
        ends = g.op("CumSum", repeats.cast(np.int64).flat(), g.constant(0, np.int64))
        places = g.range(0, repeats.cast(np.int64).sum().scalar())
        return x.gather((places.unsqueeze(1) >= ends.unsqueeze(0)).cast(np.int64).sum(1), axis)
    count = op.attr("Repeats")
    times = [1] * (x.rank + 1)
    times[axis + 1] = count
    wide = x.unsqueeze(axis + 1).tile(times)
    sizes = x.sizes()
    size = sizes[axis]
    sizes[axis] = size * count
    return wide.reshape(sizes)


# ---------------------------------------------------------------- borders
@renders("pad")
def pad(g: Graph, op: Operation) -> Value:
    paddings = list(op.attr("paddings"))
    return _padded(op["X"], paddings[::2], paddings[1::2], "constant", op.attr("pad_value"))


def _padded(x: Value, before: list[int | Value], after: list[int | Value], mode: str, number: float) -> Value:
    known = [n for n in (*before, *after) if isinstance(n, int)]
    if mode in ("reflect", "edge", "wrap") or min(known, default=0) >= 0:
        need(mode != "wrap" or x.graph.opset >= 19, "circular padding needs opset 19 or later")
        kernel = x.dtype in (np.dtype(n) for n in ("float32", "float64", "int32", "int64", "bool", "uint8", "int8"))
        narrowed = x if kernel else x.cast(np.float32)
        return narrowed.pad(before, after, mode, number).cast(x.dtype)
    return x.pad(before, after, "constant", number)


def _border(op: Operation, x: Value, given: list[int | Value], pairs: list[tuple[int, int]], last: bool) -> Value:
    """Borders by axis of the image: (number of the entry before, of the one behind)."""
    before: list[int | Value] = [0] * x.rank
    after: list[int | Value] = [0] * x.rank
    for axis, (a, b) in enumerate(pairs):
        place = axis + (1 if last else 2)
        before[place], after[place] = given[a], given[b]
    mode = {"constant": "constant", "reflect": "reflect", "edge": "edge", "replicate": "edge", "circular": "wrap"}
    value = op.attr("pad_value" if op.type == "pad2d" else "value")
    return _padded(x, before, after, mode[op.attr("mode")], value)


@renders("pad2d")
def pad2d(g: Graph, op: Operation) -> Value:
    given = op.int_list("paddings", "Paddings")
    return _border(op, op["X"], given, [(0, 1), (2, 3)], op.attr("data_format") == "NHWC")


@renders("pad3d")
def pad3d(g: Graph, op: Operation) -> Value:
    x, last = op["X"], op.attr("data_format") == "NDHWC"
    given = op.int_list("paddings", "Paddings")
    if op.attr("mode") == "circular" and g.opset < 19:
        return _circular(g, x, given, last)
    return _border(op, x, given, [(4, 5), (2, 3), (0, 1)], last)


def _circular(g: Graph, x: Value, given: list[int | Value], last: bool) -> Value:
    for axis, (a, b) in enumerate([(4, 5), (2, 3), (0, 1)]):
        place = axis + (1 if last else 2)
        before, after = given[a], given[b]
        need(isinstance(before, int) and isinstance(after, int), "circular borders that are computed")
        if isinstance(before, int) and isinstance(after, int):
            parts = [x.part(place, -before)] if before else []
            parts += [x, *([x.part(place, 0, after)] if after else [])]
            x = g.concat(parts, place)
    return x


@renders("pad_constant_like")
def pad_constant_like(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Y"]
    after = [
        a - b if isinstance(a, int) and isinstance(b, int) else g.vector([a]) - g.vector([b])
        for a, b in zip(x.sizes(), y.sizes(), strict=True)
    ]
    return y.pad([0] * y.rank, after, "constant", op.attr("pad_value"))


# ---------------------------------------------------------------- channels
@renders("pixel_shuffle")
def pixel_shuffle(g: Graph, op: Operation) -> Value:
    layout = op.attr("data_format", "NCHW")
    x = first(op["X"], layout)
    n, h, w = (x.dim(axis) for axis in (0, 2, 3))
    f = op.attr("upscale_factor")
    channels = x.size(1) // (f * f)
    out = x.reshape([n, channels, f, f, h, w]).transpose(0, 1, 4, 2, 5, 3).reshape([n, channels, h * f, w * f])
    return back(out, layout)


@renders("pixel_unshuffle")
def pixel_unshuffle(g: Graph, op: Operation) -> Value:
    layout = op.attr("data_format")
    x = first(op["X"], layout)
    n, f = x.dim(0), op.attr("downscale_factor")
    c, h, w = x.size(1), x.size(2) // f, x.size(3) // f
    return back(x.reshape([n, c, h, f, w, f]).transpose(0, 1, 3, 5, 2, 4).reshape([n, c * f * f, h, w]), layout)


@renders("shuffle_channel", "channel_shuffle")
def shuffle_channel(g: Graph, op: Operation) -> Value:
    layout = op.attr("data_format", "NCHW")
    x = first(op["X"], layout)
    groups = op.attr("group") if op.type == "shuffle_channel" else op.attr("groups")
    n, c = x.dim(0), x.size(1)
    if x.rank == 2:
        return x.reshape([n, groups, c // groups]).swap().reshape([n, c])
    out = x.reshape([n, groups, c // groups, x.merged(2, x.rank)]).transpose(0, 2, 1, 3).reshape(x.sizes())
    return back(out.shaped(x.shape), layout)


@renders("space_to_depth")
def space_to_depth(g: Graph, op: Operation) -> Value:
    x, b = op["X"], op.attr("blocksize")
    n, (c, h, w) = x.dim(0), (x.size(axis) for axis in (1, 2, 3))
    spread = x.reshape([n, b, b, c // (b * b), h, w]).transpose(0, 3, 4, 1, 5, 2)
    return spread.reshape([n, c * b * b, h // b, w // b])


@renders("temporal_shift")
def temporal_shift(g: Graph, op: Operation) -> Value:
    layout = op.attr("data_format", "NCHW")
    x = first(op["X"], layout)
    segments, share = op.attr("seg_num"), op.attr("shift_ratio")
    c, h, w = (x.dim(axis) for axis in (1, 2, 3))
    channels = x.size(1)
    first_end, second_end = int(channels * share), int(channels * 2 * share)
    steps = x.reshape([-1, segments, c, h, w])
    before = steps.part(2, 0, first_end).part(1, 0, -1).pad([0, 1, 0, 0, 0], [0] * 5)
    after = steps.part(2, first_end, second_end).part(1, 1).pad([0] * 5, [0, 1, 0, 0, 0])
    out = g.concat([before, after, steps.part(2, second_end)], 2).reshape([x.dim(0), c, h, w])
    return back(out.shaped(x.shape), layout)


@renders("partial_concat", "partial_sum")
def partial(g: Graph, op: Operation) -> Value:
    start, length = op.attr("start_index"), op.attr("length")
    parts = []
    for x in op.all("X"):
        low = start + x.size(1) if start < 0 else start
        parts.append(x.part(1, low, x.size(1) if length < 0 else low + length))
    return g.concat(parts, 1) if op.type == "partial_concat" else added(g, parts)


@renders("flip", "reverse")
def flip(g: Graph, op: Operation) -> Value:
    x = op["X"]
    axes = [axis % x.rank for axis in (op.attr("dims") if op.type == "flip" else op.known_ints("axis"))]
    if not axes:
        return x
    low = -(2**63)
    return x.slice([-1] * len(axes), [low] * len(axes), axes, [-1] * len(axes)).shaped(x.shape)


@renders("roll")
def roll(g: Graph, op: Operation) -> Value:
    x = op["X"]
    shifts = op.int_list("shifts", "ShiftsTensor")
    axes = [int(n) for n in (op.attr("axis", None) or op.attr("dims") or [])]
    whole = x.flat() if not axes else x
    for shift, axis in zip(shifts, axes or [0], strict=True):
        size = whole.dim(axis)
        if isinstance(size, int) and isinstance(shift, int):
            start: int | Value = size - shift % size if size else 0
        else:
            start = g.vector([size]) - g.binary("Mod", g.vector([shift]), g.maximum(g.vector([size]), 1))
        whole = g.concat([whole.part(axis, start), whole.part(axis, 0, start)], axis)
    return whole.reshape(x.sizes()) if not axes else whole.shaped(x.shape)
