"""What transpilers use themselves, and scripts that look at their work (Paddle 1.8.5 transpiler/details)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from fluidtool.distribute.remote_variables import VarDistributed, VarsDistributed, VarStruct
from fluidtool.distribute.waiting import wait_until_ready
from fluidtool.errors import ArgumentTypeError
from fluidtool.ir import Block, Operator, Parameter, Program, Variable
from fluidtool.ir.roles import CALLSTACK_ATTR
from fluidtool.proto.enums import AttrType, VarType

__all__ = [
    "VarDistributed",
    "VarStruct",
    "VarsDistributed",
    "block_to_code",
    "delete_ops",
    "find_op_by_input_arg",
    "find_op_by_output_arg",
    "op_to_code",
    "program_to_code",
    "variable_to_code",
    "wait_server_ready",
]

INDENT = " " * 4
BLOCKS = {AttrType.BLOCK: "block[{}]", AttrType.BLOCKS: "blocks{}"}


def wait_server_ready(endpoints: Iterable[str]) -> None:
    """Return when every endpoint ("127.0.0.1:8080") takes a connection; raises Late after ten minutes."""
    if isinstance(endpoints, str):
        raise ArgumentTypeError(f"wait_server_ready takes a list of endpoints, found the text {endpoints!r}")
    wait_until_ready(endpoints)


def delete_ops(block: Block, ops: Sequence[Operator]) -> None:
    """Remove these operators from the block."""
    gone = {id(op) for op in ops}
    for index in reversed([position for position, op in enumerate(block.ops) if id(op) in gone]):
        block.remove_op(index)


def find_op_by_input_arg(block: Block, arg_name: str) -> int:
    """The index of the first operator that reads a variable; -1 if there is none."""
    return next((index for index, op in enumerate(block.ops) if arg_name in op.input_arg_names), -1)


def find_op_by_output_arg(block: Block, arg_name: str, reverse: bool = False) -> int:
    """The index of the first operator that writes a variable, or of the last; -1 if there is none."""
    found = [index for index, op in enumerate(block.ops) if arg_name in op.output_arg_names]
    return (found[-1] if reverse else found[0]) if found else -1


def program_to_code(prog: Program, fout: TextIO | None = None, skip_op_callstack: bool = True) -> None:
    """Print a program, a line for each variable and operator; fout: a file instead of stdout."""
    for index, block in enumerate(prog.blocks):
        block_to_code(block, index, fout, skip_op_callstack)


def block_to_code(block: Block, block_idx: int, fout: TextIO | None = None, skip_op_callstack: bool = False) -> None:
    """Print a block: its variables by name, then its operators."""
    declared = [variable_to_code(var) for _, var in sorted(block.vars.items())]
    ops = [op_to_code(op, skip_op_callstack) for op in block.ops]
    lines = [*declared, *([""] if declared else []), *ops]
    print(f"{{ // block {block_idx}", *(f"{INDENT}{line}" if line else "" for line in lines), "}", sep="\n", file=fout)


def variable_to_code(var: Variable) -> str:
    """The declaration of a variable, as one line."""
    if var.type in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS):
        text = f"{var.name} : fluid.{_kind(var.type)}.shape{var.shape}.astype({_kind(var.dtype)})"
    else:
        text = f"{var.name} : fluid.{_kind(var.type)})"
    what = ("trainable parameter" if var.trainable else "parameter") if isinstance(var, Parameter) else "var"
    return f"{'persist ' if var.persistable else ''}{what} {text}"


def _kind(kind: Any) -> str:
    return f"VarType.{kind.name}" if isinstance(kind, VarType) else str(kind)


def op_to_code(op: Operator, skip_op_callstack: bool = True) -> str:
    """An operator as one line: its outputs, type, inputs and attributes."""
    outputs, inputs = _slots(op.outputs), _slots(op.inputs)
    attrs = [_attr(op, name) for name in sorted(op.attr_names) if not (skip_op_callstack and name == CALLSTACK_ATTR)]
    call = f"{op.type}(inputs={inputs}, {', '.join(attrs)})"
    return call if outputs == "{}" else f"{outputs} = {call}"


def _slots(slots: Any) -> str:
    return "{" + ", ".join(f"{name}={list(names)}" for name, names in sorted(slots.items())) + "}"


def _attr(op: Operator, name: str) -> str:
    value = op.desc.attr(name)
    shown = BLOCKS.get(AttrType(op.attr_type(name)))
    return f"{name} = {shown.format(value) if shown else value}"
