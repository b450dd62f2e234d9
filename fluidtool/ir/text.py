"""Programs as text: protobuf's own text format, and with_details the fields that the format does not keep."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from itertools import chain
from textwrap import indent
from typing import Any

from fluidtool.errors import ArgumentTypeError, ProgramError, UnreadableError
from fluidtool.ir import messages
from fluidtool.ir.block import Block
from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program
from fluidtool.ir.variable import Parameter, Variable
from fluidtool.proto import framework_pb2
from fluidtool.proto.protobuf import Message, text_format

PARAMETER_FIELDS = ("trainable", "optimize_attr", "regularizer", "do_model_average")


def to_string(
    item: Program | Block | Operator | Variable, throw_on_error: bool = False, with_details: bool = False
) -> str:
    """Whatever of a program is given; raises ProgramError on an incomplete one when throw_on_error."""
    if isinstance(item, Program):
        return _program_text(item, throw_on_error, with_details)
    if isinstance(item, Block):
        return _block_text(item, throw_on_error, with_details)
    if isinstance(item, Variable):
        return _variable_text(item, throw_on_error, with_details)
    return _operator_text(item, throw_on_error)


def to_bytes(item: Block | Operator | Variable) -> bytes:
    """A part of a program as the message that a file has of it."""
    if isinstance(item, Block):
        message = messages.block_message(item)
    elif isinstance(item, Variable):
        message = messages.variable_message(item)
    else:
        message = messages.operator_message(item)
    return bytes(message.SerializePartialToString())


def bytes_of_text(text: str, name: str) -> bytes:
    """A program's text, as its file would be; raises UnreadableError, which calls the text `name`."""
    message = framework_pb2.ProgramDesc()
    try:
        text_format.Merge(text, message)
    except text_format.ParseError as error:
        raise UnreadableError(f"{name} is not the text of a Fluid program: {error}") from error
    return message.SerializePartialToString()


def _program_text(program: Program, throw_on_error: bool, with_details: bool = False) -> str:
    """The program; raises ProgramError on an incomplete one when throw_on_error."""
    _must_be_bool(throw_on_error, with_details)
    return "".join(program_pieces(program, throw_on_error, with_details))


def program_pieces(program: Program, throw_on_error: bool = False, with_details: bool = False) -> Iterator[str]:
    """The same, a variable or an operator at a time: the text is many times larger than the program."""
    if with_details:
        return chain.from_iterable(_detailed_pieces(block, throw_on_error) for block in program.blocks)
    return _message_pieces(_complete(messages.program_message(program), throw_on_error))


def _block_text(block: Block, throw_on_error: bool, with_details: bool = False) -> str:
    """One block, `blocks { … }`."""
    _must_be_bool(throw_on_error, with_details)
    if with_details:
        return "".join(_detailed_pieces(block, throw_on_error))
    return _message_text(messages.block_message(block), throw_on_error)


def _detailed_pieces(block: Block, throw_on_error: bool) -> Iterator[str]:
    yield f"blocks {{\n  idx: {block.idx}\n  parent_idx: {block.parent_idx}\n"
    for var in block.vars.values():
        yield "  vars {\n" + indent(_variable_text(var, throw_on_error, True), "    ") + "  }\n"
    for op in block.ops:
        yield "  ops {\n" + indent(_operator_text(op, throw_on_error), "    ") + "  }\n"
    yield "}\n"


def _variable_text(var: Variable, throw_on_error: bool, with_details: bool = False) -> str:
    """One variable."""
    _must_be_bool(throw_on_error, with_details)
    text = _message_text(messages.variable_message(var), throw_on_error)
    if with_details:
        fields = ("error_clip", "stop_gradient", *(PARAMETER_FIELDS if isinstance(var, Parameter) else ()))
        text += "".join(f"{field}: {getattr(var, field)}\n" for field in fields)
    return text


def _operator_text(op: Operator, throw_on_error: bool) -> str:
    """One operator."""
    return _message_text(messages.operator_message(op), throw_on_error)


def _message_text(message: Any, throw_on_error: bool) -> str:
    return text_format.MessageToString(_complete(message, throw_on_error))


def _message_pieces(message: Any, margin: int = 0) -> Iterator[str]:
    """The same text of a program or a block, field by field."""
    for field, value in message.ListFields():
        for item in [value] if isinstance(value, (int, Message)) else value:
            if field.name == "blocks":
                yield "blocks {\n"
                yield from _message_pieces(item, 2)
                yield "}\n"
            else:
                out = StringIO()
                text_format.PrintField(field, item, out, indent=margin)
                yield out.getvalue()


def _complete(message: Any, throw_on_error: bool) -> Any:
    """The message; raises ProgramError where required fields are missing when throw_on_error."""
    if throw_on_error and not message.IsInitialized():
        fields = ", ".join(message.FindInitializationErrors())
        raise ProgramError(f"{fields} are not initialized.\nThe message is {message}:\n")
    return message


def _must_be_bool(throw_on_error: bool, with_details: bool) -> None:
    for name, value in (("throw_on_error", throw_on_error), ("with_details", with_details)):
        if not isinstance(value, bool):
            raise ArgumentTypeError(f"{name} must be True or False, found {value!r}")
