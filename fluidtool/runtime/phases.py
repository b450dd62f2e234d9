"""A training program split into what every device runs and what runs once (data parallelism by operator roles)."""

from __future__ import annotations

from collections import defaultdict

from fluidtool.ir import Operator, Program
from fluidtool.ir.reuse import with_original_names
from fluidtool.ir.roles import ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.records import dataclass
from fluidtool.runtime.dependencies import FEED_FETCH, names_used

ONCE = OpRole.Optimize | OpRole.LRSched | OpRole.RPC | OpRole.Dist


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """Operators that run in sequence, on every device or once.

    `gives`: temporaries written here that later phases or the user read. `gradients`: those of them that are summed
    over the devices. `keeps`: persistable variables written here; `reads`: those that are only read.
    """

    program: Program
    once: bool
    gives: tuple[str, ...]
    takes: tuple[str, ...]
    gradients: tuple[str, ...]
    keeps: tuple[str, ...]
    reads: tuple[str, ...]


def role(op: Operator) -> OpRole:
    """The role of an operator; Forward by default."""
    return OpRole(int(op.get_attr(ROLE_ATTR, 0)))


def is_loss_gradient(op: Operator) -> bool:
    """Whether this operator creates the gradient that the backward pass starts from."""
    return role(op) == OpRole.Backward | OpRole.Loss


def gradient_names(op: Operator) -> list[str]:
    """The parameter gradients that a backward operator completes."""
    return list(op.get_attr(ROLE_VAR_ATTR, []))[1::2] if role(op) & OpRole.Backward else []


def all_gradients(program: Program) -> set[str]:
    """The parameter gradients that a program computes."""
    return {name for op in program.global_block().ops for name in gradient_names(op)}


def split_phases(program: Program, fetches: set[str], loss_gradient: float | None) -> list[Phase]:
    """The phases of a program, in order.

    loss_gradient: the value that the gradient of the loss is filled with; None drops that operator, and it is fed.
    """
    program = with_original_names(program)  # a name may stand for several values that phases exchange
    ops = [op for op in program.global_block().ops if op.type not in FEED_FETCH]
    if loss_gradient is None:
        ops = [op for op in ops if not is_loss_gradient(op)]
    numbers = phase_numbers(program, ops)
    block = program.global_block()
    persistable = {name for name, var in block.vars.items() if var.persistable}
    phases = []
    for number in sorted(set(numbers)):
        mine = [op for op, n in zip(ops, numbers, strict=True) if n == number]
        later = {name for op, n in zip(ops, numbers, strict=True) if n > number for name in names_used(program, op)}
        written = {name for op in mine for name in op.output_arg_names if name}
        read = {name for op in mine for name in names_used(program, op)}
        gradients = {name for op in mine for name in gradient_names(op)}
        phases.append(
            Phase(
                program=_only(program, mine, loss_gradient),
                once=number % 2 == 1,
                gives=tuple(sorted((written - persistable) & (later | fetches))),
                takes=tuple(sorted(read - persistable)),
                gradients=tuple(sorted(gradients & written)),
                keeps=tuple(sorted(written & persistable)),
                reads=tuple(sorted((read - written) & persistable)),
            )
        )
    return phases


def phase_numbers(program: Program, ops: list[Operator]) -> list[int]:
    """For each operator the earliest phase that its dependencies allow: even phases on every device, odd ones once."""
    touched: defaultdict[str, int] = defaultdict(int)
    written: defaultdict[str, int] = defaultdict(int)
    numbers = []
    for op in ops:
        used, outputs = names_used(program, op), _outputs(program, op)
        number = max([0, *(written[name] for name in used), *(touched[name] for name in outputs)])
        number += (number % 2 == 1) != bool(role(op) & ONCE)
        for name in used:
            touched[name] = max(touched[name], number)
        for name in outputs:
            written[name] = number
        numbers.append(number)
    return numbers


def _outputs(program: Program, op: Operator) -> set[str]:
    names = set(op.output_arg_names)
    for index in op.sub_blocks():
        for inner in program.block(index).ops:
            names |= _outputs(program, inner)
    return names


def _only(program: Program, kept: list[Operator], loss_gradient: float | None) -> Program:
    """A copy of the program with these operators of block 0."""
    wanted = {id(op) for op in kept}
    copy = program.clone()
    block = copy.global_block()
    for index in reversed(range(len(block.ops))):
        if id(program.global_block().ops[index]) not in wanted:
            block.remove_op(index)
        elif is_loss_gradient(block.ops[index]) and block.ops[index].has_attr("value"):
            block.ops[index].set_attr("value", float(loss_gradient or 0.0))
    return copy
