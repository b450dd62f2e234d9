"""Gradient operators as data: what the gradient of an operator in a program looks like.

`make_grad_ops(op)` gives the descriptions of the gradient operators of one forward operator, as Paddle 1.8.5's gradient
makers do: same types, slots, variable names and attributes. Most gradients are wired in the plain way that
`OpInfo.grad` declares; the others have a maker of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from fluidtool.ir.operator import Operator
from fluidtool.ops.registry import OpInfo, get_op
from fluidtool.ops.schema import FRAMEWORK_ATTRS

GRAD = "@GRAD"
EMPTY = "@EMPTY@"


def grad_name(name: str) -> str:
    """`w` -> `w@GRAD`."""
    return name + GRAD


@dataclass(slots=True)
class OpDescription:
    """An operator that is yet to be put into a block."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GradMakerContext:
    """What a gradient maker works from: the forward operator and the variables that want no gradient."""

    op: Operator
    info: OpInfo
    no_grad: Collection[str] = ()

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
        """The forward operator's attributes, without those that the framework sets anew."""
        return {name: self.op.attr(name) for name in self.op.attr_names if name not in FRAMEWORK_ATTRS}

    def describe(
        self, type: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], **attrs: Any
    ) -> OpDescription:
        """A gradient operator with the forward attributes, changed by `attrs`."""
        return OpDescription(type, inputs, outputs, self.attrs() | attrs)


def make_grad_ops(op: Operator, no_grad: Collection[str] = ()) -> list[OpDescription]:
    """Descriptions of the gradient operators of `op`, in order; [] when it has no gradient.

    no_grad: names of gradient variables (`x@GRAD`) that are not wanted.
    """
    info = get_op(op.type)
    context = GradMakerContext(op, info, no_grad)
    if info.maker is not None:
        return info.maker(context)
    if info.gradient is None:
        return []
    return [plain_grad_op(context)]


def plain_grad_op(context: GradMakerContext) -> OpDescription:
    """The gradient operator wired as `OpInfo.grad` declares."""
    plan = context.info.gradient
    assert plan is not None
    forward_inputs = {slot.name for slot in context.info.inputs}
    inputs = {slot: _source(context, slot, forward_inputs) for slot in plan.inputs}
    outputs = {slot: context.input_grad(slot.removesuffix(GRAD)) for slot in plan.outputs}
    return OpDescription(plan.type, inputs, outputs, context.attrs())


def _source(context: GradMakerContext, slot: str, forward_inputs: set[str]) -> list[str]:
    if slot.endswith(GRAD):
        base = slot.removesuffix(GRAD)
        return (
            [grad_name(name) for name in context.op.input(base)]
            if base in forward_inputs
            else context.output_grad(base)
        )
    return context.input(slot) if slot in forward_inputs else context.output(slot)
