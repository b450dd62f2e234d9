"""Reshapes, transposes, slices, concatenation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, axis_within, imports, need
from fluidtool.runtime.graph.ir import Shape, Value


def put_view(r: GraphBuilder, x: Value, op: Operator, shape: Sequence[int], short: bool | None = None) -> None:
    """The same elements in another shape. short: whether they have 32 bits from here on, if that changes."""
    found = r.add("view", [x], op, "Out", shape, integer=x.integer, short=x.short if short is None else short)
    if x.integer:
        r.viewed[found] = r.viewed.get(x, x)


@imports("reshape", "reshape2")
def _reshape(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.either(op, "X")
    sizes = r.settled(op, attrs["shape"], "ShapeTensor", "Shape")
    need(all(size or i < len(x.shape) for i, size in enumerate(sizes)), "a size of an axis that there is not")
    shape = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    if -1 in shape:
        shape[shape.index(-1)] = prod(x.shape) // max(prod(size for size in shape if size != -1), 1)
    need(prod(shape) == prod(x.shape), "a reshape to another number of elements")
    put_view(r, x, op, shape)


@imports("flatten", "flatten2")
def _flatten(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, axis = r.either(op, "X"), int(attrs["axis"])
    need(0 <= axis <= len(x.shape), f"axis {axis} of {len(x.shape)} dimensions")
    put_view(r, x, op, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@imports("flatten_contiguous_range")
def _flatten_range(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.either(op, "X")
    start, stop = (axis_within(attrs[name], len(x.shape)) for name in ("start_axis", "stop_axis"))
    put_view(r, x, op, (*x.shape[:start], prod(x.shape[start : stop + 1]), *x.shape[stop + 1 :]))


@imports("squeeze", "squeeze2")
def _squeeze(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.either(op, "X")
    axes = [axis_within(axis, len(x.shape)) for axis in attrs["axes"]] or range(len(x.shape))
    put_view(r, x, op, [n for i, n in enumerate(x.shape) if i not in axes or n != 1])


@imports("unsqueeze", "unsqueeze2")
def _unsqueeze(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.either(op, "X")
    shape = list(x.shape)
    for axis in r.settled(op, attrs["axes"], "AxesTensor", "AxesTensorList"):
        shape.insert(axis_within(axis, len(shape) + 1), 1)
    put_view(r, x, op, shape)


@imports("transpose", "transpose2")
def _transpose(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.either(op, "X")
    axes = [axis_within(axis, len(x.shape)) for axis in attrs["axis"]]
    need(sorted(axes) == list(range(len(x.shape))), "a transpose that leaves axes out")
    shape = [x.shape[axis] for axis in axes]
    r.add("transpose", [x], op, "Out", shape, integer=x.integer, short=x.short, axes=axes)


@imports("slice")
def _slice(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.either(op, "Input")
    starts, sizes, kept = cut_of(with_bounds(r, op, attrs), x.shape)
    r.add("slice", [x], op, "Out", kept or [1], integer=x.integer, short=x.short, starts=starts, sizes=sizes)


def with_bounds(r: GraphBuilder, op: Operator, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes of a slice, whose bounds may be tensors that are constants."""
    starts = r.settled(op, attrs["starts"], "StartsTensor", "StartsTensorList")
    ends = r.settled(op, attrs["ends"], "EndsTensor", "EndsTensorList")
    need(len(starts) == len(ends) == len(attrs["axes"]), "bounds that do not fit")
    return {**attrs, "starts": starts, "ends": ends}


def cut_of(attrs: Mapping[str, Any], whole: Shape) -> tuple[list[int], list[int], list[int]]:
    """Where a slice begins along each axis, its sizes, and those that are not dropped."""
    starts, shape, dropped = [0] * len(whole), list(whole), attrs.get("decrease_axis") or []
    for axis, start, end in zip(attrs["axes"], attrs["starts"], attrs["ends"], strict=True):
        place = axis_within(axis, len(whole))
        size = whole[place]
        if axis in dropped and (start, end) == (-1, 0):  # the last one
            end = size
        start, end = (min(max(bound + size if bound < 0 else bound, 0), size) for bound in (start, end))
        need(start < end, "an empty range")  # infer_flags can keep inference from seeing it
        starts[place], shape[place] = start, end - start
    places = {axis_within(axis, len(whole)) for axis in dropped}
    need(all(shape[place] == 1 for place in places), "an axis that is dropped though longer than 1")
    return starts, shape, [size for place, size in enumerate(shape) if place not in places]


@imports("split", results=("Out",))
def _split(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, names = r.either(op, "X"), op.outputs["Out"]
    axis = axis_within(axis_of(r, op, attrs), len(x.shape))
    asked = r.settled(op, attrs["sections"], "SectionsTensorList")
    sizes = sections(x.shape[axis], int(attrs["num"]), asked)
    need(sum(sizes) == x.shape[axis] and min(sizes) > 0 and len(sizes) == len(names), "sizes that do not add up")
    lod, start = r.lods.get(op.inputs["X"][0], ()), 0
    for number, size in enumerate(sizes):
        shape = [*x.shape[:axis], size, *x.shape[axis + 1 :]]
        starts = [start if place == axis else 0 for place in range(len(shape))]
        node_attrs: dict[str, Any] = {"integer": x.integer, "short": x.short, "starts": starts, "sizes": shape}
        r.add("slice", [x], op, "Out", shape, number=number, **node_attrs)
        r.lods[names[number]] = lod if axis else ()
        start += size


def axis_of(r: GraphBuilder, op: Operator, attrs: Mapping[str, Any]) -> int:
    """The axis of an operator, which may be a tensor that is a constant."""
    found = r.settled(op, [attrs["axis"]], "AxisTensor")
    need(len(found) == 1, "an axis of several numbers")
    return found[0]


def sections(size: int, number: int, asked: list[int]) -> list[int]:
    """The sizes of the parts: equal ones, or the requested ones, where -1 is the remainder."""
    if number > 0:
        return [size // number] * number
    known = sum(piece for piece in asked if piece != -1)
    return [size - known if piece == -1 else piece for piece in asked]


@imports("concat")
def _concat(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    parts = r.all_of(op, "X")
    shape = list(parts[0].shape)
    axis = axis_within(axis_of(r, op, attrs), len(shape))
    fit = all([*part.shape[:axis], *part.shape[axis + 1 :]] == shape[:axis] + shape[axis + 1 :] for part in parts)
    need(fit, "concat of shapes that do not match")
    shape[axis] = sum(part.shape[axis] for part in parts)
    lods = [r.lods.get(name, ()) for name in op.inputs["X"]]
    need(axis or not any(lods), "concat of sequences along axis 0")
    r.lods[op.outputs["Out"][0]] = lods[0] if axis else ()
    r.add("concat", parts, op, "Out", shape, integer=parts[0].integer, short=parts[0].short, axis=axis)


@imports("stack")
def _stack(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    parts = r.all_of(op, "X")
    shape = parts[0].shape
    need(all(part.shape == shape for part in parts), "stack of different shapes")
    axis = axis_within(attrs["axis"], len(shape) + 1)
    whole = (*shape[:axis], len(parts), *shape[axis:])
    r.add("stack", parts, op, "Y", whole, integer=parts[0].integer, short=parts[0].short, axis=axis)


@imports("expand", "expand_as")
def _expand(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.either(op, "X")
    shape = repeated_shape(op, attrs, x.shape, r)
    if shape == x.shape:
        r.alias(x, op, "Out")
        return
    r.add("tile", [x], op, "Out", shape, integer=x.integer, short=x.short)


def repeated_shape(op: Operator, attrs: Mapping[str, Any], shape: Shape, r: GraphBuilder) -> Shape:
    """What `expand` and `expand_as` make of a shape. Raises UnsupportedError for what does not fit, and what is computed."""
    if op.type.startswith("expand_as"):
        whole = r.get(op, "target_tensor", integer=None).shape
    else:
        times = r.settled(op, attrs["expand_times"], "ExpandTimes", "expand_times_tensor")
        need(len(times) == len(shape) and min(times, default=0) > 0, "repeats that do not fit")
        whole = tuple(size * count for size, count in zip(shape, times, strict=True))
    fits = len(whole) == len(shape) and not any(wide % size for wide, size in zip(whole, shape, strict=True))
    need(fits and shape, "repeats that do not fit")
    return whole
