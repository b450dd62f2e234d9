"""Gradient operators as data: how the gradient of an operator is represented in a program.

`make_grad_ops(op)` gives the descriptions of the gradient operators of one forward operator, as Paddle 1.8.5's gradient
makers do: same types, slots, variable names and attributes. Most gradients are wired in the plain way that
`OpInfo.grad` declares; the others have a separate maker.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from typing import Any

from fluidtool.ir.block import Block
from fluidtool.ir.operator import EMPTY, Operator
from fluidtool.ir.roles import NAMESCOPE_ATTR, ROLE_VAR_ATTR
from fluidtool.ops.registry import OpInfo, find_op, get_op
from fluidtool.proto.enums import AttrType
from fluidtool.records import dataclass

GRAD = "@GRAD"


def grad_name(name: str) -> str:
    """`w` -> `w@GRAD`."""
    return name + GRAD


@dataclass(slots=True)
class OpDescription:
    """An operator before it is put into a block. `attr_types` has declared types that values do not determine."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any] = field(default_factory=dict)
    attr_types: dict[str, AttrType | int] = field(default_factory=dict)

    def insert(self, block: Block, index: int | None = None) -> Operator:
        """Put the operator into a block (by default at its end), without defaults or checks."""
        op = Operator(block, type=self.type, inputs=self.inputs, outputs=self.outputs)
        info = find_op(self.type)
        specs = {} if info is None else info.attrs
        for name, value in self.attrs.items():
            spec = specs.get(name)
            op.set_attr(name, value, self.attr_types.get(name, spec.type if spec else None))
        block.ops.insert(len(block.ops) if index is None else index, op)
        block.program.touch()
        return op


@dataclass(frozen=True, slots=True)
class GradMakerContext:
    """What a gradient maker works from: the forward operator, the gradients that are not wanted (`x@GRAD`), and for an
    operator with a sub-block the block that holds the gradient operators of that sub-block.
    """

    op: Operator
    info: OpInfo
    no_grad: Collection[str] = ()
    grad_block: Block | None = None

    def input(self, slot: str) -> list[str]:
        """The forward operator's variables of an input slot."""
        return self.op.input(slot)

    def output(self, slot: str) -> list[str]:
        """The forward operator's variables of an output slot."""
        return self.op.output(slot)

    def output_grad(self, slot: str) -> list[str]:
        """The gradients of an output slot."""
        return [grad_name(name) for name in self.op.output(slot)]

    def input_grad(self, slot: str, drop_empty: bool = True) -> list[str]:
        """The gradients of an input slot; one that is not wanted is @EMPTY@ (dropped if all are, as in Paddle)."""
        names = [grad_name(name) for name in self.op.input(slot)]
        names = [EMPTY if name in self.no_grad else name for name in names]
        if drop_empty and len(names) <= 1:
            return [name for name in names if name != EMPTY]
        return names

    def attrs(self) -> dict[str, Any]:
        """The forward operator's attributes, the framework's own included."""
        return {name: self.op.attr(name) for name in self.op.attr_names}

    def attr_types(self) -> dict[str, AttrType | int]:
        """Their declared types."""
        return {name: self.op.attr_type(name) for name in self.op.attr_names}

    def describe(
        self, type: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], **attrs: Any
    ) -> OpDescription:
        """A gradient operator with the forward attributes, changed by `attrs`."""
        return OpDescription(type, inputs, outputs, self.attrs() | attrs, self.attr_types())


def make_grad_ops(op: Operator, no_grad: Collection[str] = (), grad_block: Block | None = None) -> list[OpDescription]:
    """Descriptions of the gradient operators of `op`, in order; [] when it has no gradient.

    no_grad: names of gradient variables (`x@GRAD`) that are not wanted. grad_block: the gradient of `op`'s sub-block.
    """
    info = get_op(op.type)
    context = GradMakerContext(op, info, no_grad, grad_block)
    if info.maker is not None:
        made = info.maker(context)
    else:
        made = [] if info.gradient is None else [plain_grad_op(context)]
    if not info.traits.gradient_scope:
        for description in made:
            description.attrs.pop(NAMESCOPE_ATTR, None)
            description.attrs.pop(ROLE_VAR_ATTR, None)
    return made


def plain_grad_op(context: GradMakerContext) -> OpDescription:
    """The gradient operator wired as `OpInfo.grad` declares."""
    plan = context.info.gradient
    assert plan is not None
    forward_inputs = {slot.name for slot in context.info.inputs}
    inputs = {slot: _source(context, slot, forward_inputs) for slot in plan.inputs}
    outputs = {slot: context.input_grad(slot.removesuffix(GRAD)) for slot in plan.outputs}
    return OpDescription(plan.type, inputs, outputs, context.attrs(), context.attr_types())


def _source(context: GradMakerContext, slot: str, forward_inputs: set[str]) -> list[str]:
    if slot in forward_inputs:
        return context.input(slot)
    if any(output.name == slot for output in context.info.outputs):
        return context.output(slot)
    if GRAD not in slot:  # an input that programs of Paddle 2.x add
        return context.input(slot)
    base = slot.removesuffix(GRAD)
    names = context.op.input(base) if base in forward_inputs else context.op.output(base)
    return [grad_name(name) for name in names]
