"""What a program takes and gives: its inputs and outputs by name, and whether a value fits what is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fluidtool.errors import ArgumentTypeError, FeedError, Location
from fluidtool.io.inference import feed_names, fetch_names
from fluidtool.ir import Program, Variable
from fluidtool.ir.dataflow import block_flow
from fluidtool.ir.variable import data_type_name
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows, var_type_of


def describe_variable(var: Variable) -> str:
    """'image float32 (-1, 1, 28, 28)'."""
    level = f" LoD {var.lod_level}" if var.lod_level else ""
    return f"{var.name} {data_type_name(var.dtype)} {shape_text(var.shape if var.has_shape else None)}{level}"


def check_value(var: Variable, value: Any) -> None:
    """Raise FeedError when a value is not of the data type and rank that the variable declares, or not of its sizes.

    A declared size of -1 takes anything; a variable with LoD takes any number of rows.
    """
    if isinstance(value, (LoDTensorArray, SelectedRows, list, tuple)) or var.type != VarType.LOD_TENSOR:
        return
    array = value.array if isinstance(value, LoDTensor) else value
    found = (value.numpy() if array is None else array).dtype  # an array on a GPU stays there
    try:
        dtype = var_type_of(found)
    except ArgumentTypeError as error:
        text = f"input {var.name} takes {data_type_name(var.dtype)}, found {found}; {error}"
        raise FeedError(text, location=Location(variable=var.name)) from error
    shape = tuple(value.shape()) if isinstance(value, LoDTensor) else tuple(value.shape)
    if var.dtype is not None and dtype != var.dtype:
        raise FeedError(
            f"input {var.name} takes {data_type_name(var.dtype)}, found {data_type_name(dtype)} of shape {shape_text(shape)}",
            hint=f"convert it: array.astype('{data_type_name(var.dtype)}')",
            location=Location(variable=var.name),
        )
    if not var.has_shape:
        return
    declared = var.shape
    rows_free = var.lod_level > 0 or (isinstance(value, LoDTensor) and bool(value.offsets))
    fits = len(declared) == len(shape) and all(
        want < 0 or want == got or (axis == 0 and rows_free)
        for axis, (want, got) in enumerate(zip(declared, shape, strict=True))
    )
    if not fits:
        raise FeedError(
            f"input {var.name} takes shape {shape_text(declared)} (-1: any size), found {shape_text(shape)}",
            hint="reshape it",
            location=Location(variable=var.name),
        )


def free_inputs(program: Program) -> list[str]:
    """The non-persistable variables of block 0 that are read before they are written, in order of use."""
    block = program.global_block()
    flow = block_flow(block)
    names: dict[str, None] = {}
    for position, op in enumerate(block.ops):
        for name in _in_order(op.input_arg_names, flow.effects[position].reads):
            var = block.vars.get(name)
            if var is None or var.persistable or flow.reads[position][name].number != 0 or name in names:
                continue
            if name not in op.output_arg_names or var.need_check_feed:
                names[name] = None
    return list(names)


def final_outputs(program: Program) -> list[str]:
    """The variables of block 0 that are written last and never read after, in order."""
    block = program.global_block()
    flow = block_flow(block)
    names = []
    for position in range(len(block.ops)):
        for name in flow.writes[position]:
            var = block.vars.get(name)
            if (
                var is not None
                and not var.persistable
                and var.type == VarType.LOD_TENSOR
                and flow.is_last_write(position, name)
                and not flow.consumers(position, name)
                and not name.endswith(("XShape", ".tmp_xshape"))
            ):
                names.append(name)
    return names


def _in_order(names: Iterable[str], also: Iterable[str]) -> list[str]:
    first = [name for name in names if name in also]
    return first + sorted(set(also) - set(first))


FINDERS: dict[str, Callable[[Program], list[str]]] = {
    "fed": feed_names,
    "free": free_inputs,
    "fetched": fetch_names,
    "final": final_outputs,
}
"""What finds names in a program: those of feed operators, variables that are not computed, and so for the outputs."""
