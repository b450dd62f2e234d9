"""The gradient operators of a block's operators, and of the blocks within."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.operator import EMPTY
from fluidtool.ir.roles import DEVICE_ATTR, ROLE_ATTR, OpRole
from fluidtool.ops.gradient import GRAD, OpDescription, grad_name, make_grad_ops
from fluidtool.passes.backward.descriptions import (
    drop_no_grad,
    input_arguments,
    output_arguments,
    sum_repeated,
    unconnected,
)
from fluidtool.passes.backward.paths import sub_block_path
from fluidtool.passes.backward.rename import rename_again
from fluidtool.proto.enums import AttrType
from fluidtool.records import dataclass

Callback = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Backward:
    """What a backward pass knows at one moment.

    no_grad: the gradients that are not wanted, by block. origins: gradient name -> forward name, of those made so far.
    callbacks: called after each gradient operator.
    """

    no_grad: Mapping[int, frozenset[str]]
    origins: Mapping[str, str] = field(default_factory=dict)
    callbacks: tuple[Callback, ...] = ()

    def unwanted(self, block: Block) -> frozenset[str]:
        """The gradients that are not wanted in a block."""
        return self.no_grad[block.idx]

    def without(self, block: Block, gradients: Iterable[str]) -> Backward:
        """The same, with further gradients that are not wanted in a block."""
        return replace(self, no_grad={**self.no_grad, block.idx: self.no_grad[block.idx].union(gradients)})

    def with_origins(self, origins: Mapping[str, str]) -> Backward:
        """The same, with further gradients."""
        return replace(self, origins={**self.origins, **origins})


def new_backward(program: Program, no_grad: Iterable[str], callbacks: Sequence[Callback] = ()) -> Backward:
    """The start of a backward pass: variables of block 0 without gradient, beside those of any block with stop_gradient."""
    stopped = {
        block.idx: frozenset(grad_name(name) for name, var in block.vars.items() if var.stop_gradient)
        for block in program.blocks
    }
    return Backward(stopped, callbacks=tuple(callbacks)).without(program.global_block(), map(grad_name, no_grad))


def append_gradient_ops(
    block: Block, ops: Sequence[Operator], target: Block, backward: Backward, known: Collection[str] | None
) -> Backward:
    """Append the gradients of `ops` of `block`, last first, to `target`.

    known: gradient names given so far; with it, operators that none of them reaches are left out.
    """
    made, reached, backward = _describe(block, ops, backward, known)
    descriptions, unwanted = drop_no_grad(sum_repeated(made, block.idx), backward.unwanted(block))
    _insert(descriptions, unconnected(descriptions, ops, reached), target, backward)
    return backward.without(block, unwanted)


def _describe(
    block: Block, ops: Sequence[Operator], backward: Backward, known: Collection[str] | None
) -> tuple[list[OpDescription], set[str] | None, Backward]:
    """The gradients of `ops`, and the gradient names that are known then."""
    descriptions: list[OpDescription] = []
    origins: dict[str, str] = {}
    renamed: dict[str, str] = {}
    reached = None if known is None else set(known)
    for op in reversed(ops):
        grad_block = None
        if op.has_attr("sub_block"):
            grad_block, backward = _gradient_block(op, backward.with_origins(origins))
        made = _gradients_of(op, backward.unwanted(block), grad_block)
        found = _origins(made, op)
        if block.program._appending_grad_times > 1:
            rename_again(block, op, made, renamed)
            found = {renamed.get(name, name): var for name, var in found.items()}
        kept = made if reached is None else _reached(made, reached)
        descriptions += kept
        if reached is None or kept or any(not _grad_inputs(description) for description in made):
            origins |= found
    return descriptions, reached, backward.with_origins(origins)


def _insert(descriptions: Iterable[OpDescription], dropped: Collection[int], target: Block, backward: Backward) -> None:
    context: dict[str, Any] = dict(backward.origins)
    for description in descriptions:
        if id(description) not in dropped:
            op = context["__current_op_desc__"] = description.insert(target)
            op.set_attr(ROLE_ATTR, int(OpRole.Backward), AttrType.INT)
            for callback in backward.callbacks:
                callback(block=target, context=context)


def _gradients_of(op: Operator, unwanted: Collection[str], grad_block: Block | None) -> list[OpDescription]:
    made = make_grad_ops(op, unwanted, grad_block)
    if op.has_attr(DEVICE_ATTR):
        for description in made:
            description.attrs[DEVICE_ATTR] = op.get_attr(DEVICE_ATTR)
    return made


def _gradient_block(op: Operator, backward: Backward) -> tuple[Block, Backward]:
    """A new block with the gradients of the operator's sub-block."""
    program = op.block.program
    inner = program.block(op.block_attr_id("sub_block"))
    grad_block = program.create_block()
    grad_block.set_forward_block_idx(inner.idx)
    path = sub_block_path(inner, op, backward.unwanted(inner))
    backward = append_gradient_ops(inner, path, grad_block, backward, None)
    program.rollback()
    return grad_block, backward


def _origins(made: Iterable[OpDescription], op: Operator) -> dict[str, str]:
    """gradient name -> forward name, for what the gradient operators write."""
    forward = {*op.input_arg_names, *op.output_arg_names}
    names = {name for description in made for name in output_arguments(description) if GRAD in name and name != EMPTY}
    return {name: name.removesuffix(GRAD) for name in names if name.removesuffix(GRAD) in forward}


def _grad_inputs(description: OpDescription) -> list[str]:
    return [name for name in input_arguments(description) if GRAD in name]


def _reached(made: Iterable[OpDescription], known: set[str]) -> list[OpDescription]:
    """The operators that known gradients reach; what they write is known from then on."""
    reached = []
    for description in made:
        gradients = _grad_inputs(description)
        if not gradients:
            break
        if known.intersection(gradients):
            reached.append(description)
            known.update(output_arguments(description))
    return reached
