"""Applying an edit to an operator, and taking it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.ir import Block, Operator
from fluidtool.ops.schema import TensorMeta
from fluidtool.passes.reshape.axes import Axis, Shape
from fluidtool.passes.reshape.repairs import Edit
from fluidtool.proto.enums import AttrType


def apply(op: Operator, edit: Edit, out: TensorMeta | None) -> Callable[[], None]:
    """Change an operator; what this returns restores it. `out` is the metadata of its output."""
    kind, inputs = op.type, {slot: op.input(slot) for slot in op.inputs}
    attrs = {name: (op.attr(name), op.attr_type(name)) for name in op.attr_names}
    helper = _insert_target(op, *edit.target, out) if edit.target is not None and out is not None else None
    op.type = edit.type or kind
    for slot, names in edit.inputs.items():
        op.set_input(slot, names)
    if helper is not None:
        op.set_input("target_tensor", helper.output("Out"))
    for name, (value, attr_type) in edit.attrs.items():
        op.remove_attr(name)
        op.set_attr(name, value, attr_type)
    for name in edit.dropped:
        op.remove_attr(name)

    def undo() -> None:
        op.type = kind
        for slot in set(op.inputs) - set(inputs):
            del op.inputs[slot]
        for name in op.attr_names:
            op.remove_attr(name)
        for name, (value, attr_type) in attrs.items():
            op.set_attr(name, value, attr_type)
        if helper is not None:
            _remove(helper)

    return undo


def _insert_target(op: Operator, shape: Shape, at: int, axis: Axis, out: TensorMeta) -> Operator:
    """A tensor of `shape` with the size of an input at one place, computed before `op`."""
    block = op.block
    name = _free_name(block, f"{op.output('Out')[0]}.target")
    block.create_var(name=name, shape=list(shape), dtype=out.dtype)
    attrs: dict[str, Any] = {"value": 0.0, "input_dim_idx": axis.index, "output_dim_idx": at}
    helper = block.insert_op(
        block.ops.index(op),
        type="fill_constant_batch_size_like",
        inputs={"Input": [axis.name]},
        outputs={"Out": [name]},
        attrs=attrs,
    )
    helper.set_attr("shape", list(shape), AttrType.INTS)
    helper.set_attr("dtype", int(out.dtype), AttrType.INT)
    return helper


def _remove(helper: Operator) -> None:
    block = helper.block
    block.remove_op(block.ops.index(helper))
    del block.vars[helper.output("Out")[0]]


def _free_name(block: Block, name: str) -> str:
    while block.find_var_recursive(name) is not None:
        name += "_"
    return name
