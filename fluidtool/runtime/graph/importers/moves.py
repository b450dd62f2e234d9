"""Reshapes, transposes, slices, concatenation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, axis_within, imports, need
from fluidtool.runtime.graph.ir import Shape, Value


def shaped(r: GraphBuilder, op: Operator) -> Value:
    """What gets another shape: floats; on a GPU whole numbers, too."""
    return r.get(op, "X", integer=None if r.for_gpus else False)


def put_view(r: GraphBuilder, x: Value, op: Operator, shape: Sequence[int]) -> None:
    """The same elements in another shape."""
    found = r.add("view", [x], op, "Out", shape, integer=x.integer)
    if x.integer:
        r.viewed[found] = r.viewed.get(x, x)


@imports("reshape", "reshape2")
def _reshape(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = shaped(r, op)
    need(not op.inputs.get("Shape") and not op.inputs.get("ShapeTensor"), "a computed shape")
    shape = [x.shape[i] if size == 0 else int(size) for i, size in enumerate(attrs["shape"])]
    if -1 in shape:
        shape[shape.index(-1)] = prod(x.shape) // max(prod(size for size in shape if size != -1), 1)
    need(prod(shape) == prod(x.shape), "a reshape to another number of elements")
    put_view(r, x, op, shape)


@imports("flatten", "flatten2")
def _flatten(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, axis = shaped(r, op), int(attrs["axis"])
    need(0 <= axis <= len(x.shape), f"axis {axis} of {len(x.shape)} dimensions")
    put_view(r, x, op, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@imports("flatten_contiguous_range")
def _flatten_range(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = shaped(r, op)
    start, stop = (axis_within(attrs[name], len(x.shape)) for name in ("start_axis", "stop_axis"))
    put_view(r, x, op, (*x.shape[:start], prod(x.shape[start : stop + 1]), *x.shape[stop + 1 :]))


@imports("squeeze", "squeeze2")
def _squeeze(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = shaped(r, op)
    axes = [axis_within(axis, len(x.shape)) for axis in attrs["axes"]] or range(len(x.shape))
    put_view(r, x, op, [n for i, n in enumerate(x.shape) if i not in axes or n != 1])


@imports("unsqueeze", "unsqueeze2")
def _unsqueeze(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = shaped(r, op)
    need(not op.inputs.get("AxesTensor") and not op.inputs.get("AxesTensorList"), "computed axes")
    shape = list(x.shape)
    for axis in attrs["axes"]:
        shape.insert(axis_within(axis, len(shape) + 1), 1)
    put_view(r, x, op, shape)


@imports("transpose", "transpose2")
def _transpose(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    axes = [axis_within(axis, len(x.shape)) for axis in attrs["axis"]]
    need(sorted(axes) == list(range(len(x.shape))), "a transpose that leaves axes out")
    r.add("transpose", [x], op, "Out", [x.shape[axis] for axis in axes], axes=axes)


@imports("slice")
def _slice(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "Input")
    need(not any(op.inputs.get(slot) for slot in op.inputs if slot != "Input") and not x.integer, "computed bounds")
    starts, sizes, kept = cut_of(attrs, x.shape)
    r.add("slice", [x], op, "Out", kept or [1], starts=starts, sizes=sizes)


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
    x, names = r.get(op, "X"), op.outputs["Out"]
    need(not op.inputs.get("AxisTensor") and not op.inputs.get("SectionsTensorList"), "computed sizes")
    axis = axis_within(attrs["axis"], len(x.shape))
    sizes = sections(x.shape[axis], int(attrs["num"]), [int(size) for size in attrs["sections"]])
    need(sum(sizes) == x.shape[axis] and min(sizes) > 0 and len(sizes) == len(names), "sizes that do not add up")
    lod, start = r.lods.get(op.inputs["X"][0], ()), 0
    for number, size in enumerate(sizes):
        shape = [*x.shape[:axis], size, *x.shape[axis + 1 :]]
        starts = [start if place == axis else 0 for place in range(len(shape))]
        r.add("slice", [x], op, "Out", shape, number=number, starts=starts, sizes=shape)
        r.lods[names[number]] = lod if axis else ()
        start += size


def sections(size: int, number: int, asked: list[int]) -> list[int]:
    """The sizes of the parts: equal ones, or the requested ones, where -1 is the remainder."""
    if number > 0:
        return [size // number] * number
    known = sum(piece for piece in asked if piece != -1)
    return [size - known if piece == -1 else piece for piece in asked]


@imports("concat")
def _concat(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    need(not op.inputs.get("AxisTensor"), "a computed axis")
    parts = [r.values[name] for name in op.inputs["X"] if name in r.values]
    need(len(parts) == len(op.inputs["X"]) and not any(part.integer for part in parts), "missing parts")
    shape = list(parts[0].shape)
    axis = axis_within(attrs["axis"], len(shape))
    fit = all([*part.shape[:axis], *part.shape[axis + 1 :]] == shape[:axis] + shape[axis + 1 :] for part in parts)
    need(fit, "concat of shapes that do not match")
    shape[axis] = sum(part.shape[axis] for part in parts)
    lods = [r.lods.get(name, ()) for name in op.inputs["X"]]
    need(axis or not any(lods), "concat of sequences along axis 0")
    r.lods[op.outputs["Out"][0]] = lods[0] if axis else ()
    r.add("concat", parts, op, "Out", shape, axis=axis)


@imports("stack")
def _stack(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    parts = [r.values[name] for name in op.inputs["X"] if name in r.values]
    need(len(parts) == len(op.inputs["X"]) and not any(part.integer for part in parts), "missing parts")
    shape = parts[0].shape
    need(all(part.shape == shape for part in parts), "stack of different shapes")
    axis = axis_within(attrs["axis"], len(shape) + 1)
    r.add("stack", parts, op, "Y", (*shape[:axis], len(parts), *shape[axis:]), axis=axis)
