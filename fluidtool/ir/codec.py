"""ProgramDesc bytes <-> Program.

A program that was read and not changed is written as it was, byte for byte: everything keeps its place, fields that this
version does not know are carried along as bytes, and whatever a file writes otherwise than we would (a default spelled
out, a name declared twice, a number in more bytes than it needs) is kept beside what it says (`Original`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import intern
from typing import Any, TypeVar

from fluidtool.collecting import paused
from fluidtool.errors import ArgumentTypeError, Location, UnreadableError
from fluidtool.ir.block import Block
from fluidtool.ir.messages import (
    DENSE_FIELD,
    LIST_FIELD,
    SCALAR_FIELD,
    header_message,
    operator_message,
    program_message,
    variable_message,
)
from fluidtool.ir.operator import Operator
from fluidtool.ir.original import ORDINARY, Original
from fluidtool.ir.program import Program
from fluidtool.ir.structure import structure_fault
from fluidtool.ir.truncated import cut_off
from fluidtool.ir.variable import Variable
from fluidtool.proto import framework_pb2 as pb
from fluidtool.proto.enums import VARIABLES, AttrType, VarType
from fluidtool.proto.protobuf import DecodeError, Message, UnknownFieldSet

P = TypeVar("P", bound=Program)

_ATTR_FIELDS = pb.OpDesc.Attr.DESCRIPTOR.fields_by_name
_TYPE_FIELD = _ATTR_FIELDS["type"]
_VALUE_FIELD = {**SCALAR_FIELD, **LIST_FIELD, AttrType.STRING: "s", AttrType.STRINGS: "strings"}
_SINGLE_PRECISION = frozenset({AttrType.FLOAT, AttrType.FLOATS})
# (number of a type, the field that holds its values) -> the type
_PLAIN_TYPE = {(int(kind), _ATTR_FIELDS[field]): kind for kind, field in _VALUE_FIELD.items()}
_LIST_TYPE = {int(kind): kind for kind in (*LIST_FIELD, AttrType.STRINGS)}


# ---------------------------------------------------------------- decoding
@paused()
def decode_program(data: bytes, program: P, source: str = "the bytes given") -> P:
    """Fill an empty Program from ProgramDesc bytes; raises UnreadableError naming `source` when they are not one."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ArgumentTypeError(f"a program is parsed from bytes, found {type(data).__name__}")
    data = bytes(data)
    desc = _parsed(data, source)
    _check_tree(desc, source)
    written = desc.SerializePartialToString(deterministic=True)
    ordinary, size = written == data, len(written)
    del written  # as large as the file
    desc.DiscardUnknownFields()
    keep_unknown = len(desc.SerializePartialToString()) != size
    if keep_unknown:
        desc = _parsed(data, source)  # hardly any program has some, and a copy of each to look for them would be large
    program.blocks = [_new_block(program, block) for block in desc.blocks]
    for block, block_desc in zip(program.blocks, desc.blocks, strict=True):
        _decode_block(block, block_desc, keep_unknown, source)
    _decode_versions(program, desc)
    program.extra = _unknown(desc) if keep_unknown else b""
    program.current_block_idx = 0
    fault = structure_fault(program)
    if fault:
        raise UnreadableError(f"{source} is not a valid program: it {fault}", location=Location(source))
    program.original = ORDINARY
    if not ordinary or not _is_plain(program, desc):
        program.original = Original(encode_program(program), data)
    return program


def _parsed(data: bytes, source: str) -> Any:
    desc = pb.ProgramDesc()
    try:
        desc.MergeFromString(data)
    except DecodeError as error:
        end = cut_off(data)
        if end:
            raise UnreadableError(
                f"{source} is a Fluid program that is cut off: {end}",
                hint="copy or save the model again",
                location=Location(source),
            ) from error
        raise UnreadableError(
            f"{source} cannot be read as a Fluid program ({len(data)} bytes): truncated, corrupted, or another kind of "
            "file; expected a ProgramDesc such as __model__ or *.pdmodel",
            location=Location(source),
        ) from error
    return desc


def _is_plain(program: Program, desc: Any) -> bool:
    """Whether program and blocks themselves are as we would write them, whatever is in the blocks."""
    header = pb.ProgramDesc()
    for field, value in desc.ListFields():
        if field.name != "blocks":
            getattr(header, field.name).CopyFrom(value)
    return header.SerializePartialToString(deterministic=True) == header_message(program).SerializePartialToString(
        deterministic=True
    ) and all(
        block_desc.HasField("idx")
        and block_desc.HasField("parent_idx")
        and block_desc.HasField("forward_block_idx") == (block.forward_block_idx != -1)
        and len(block_desc.vars) == len(block.vars)
        for block, block_desc in zip(program.blocks, desc.blocks, strict=True)
    )


def _check_tree(desc: Any, source: str) -> None:
    count = len(desc.blocks)
    if count == 0:
        raise UnreadableError(f"{source} cannot be read as a Fluid program: no block in it", location=Location(source))
    for position, block in enumerate(desc.blocks):
        if block.idx != position:
            raise UnreadableError(
                f"{source} is corrupted: block {position} says it is block {block.idx}", location=Location(source)
            )


def _check_names(block: Block, source: str) -> None:
    """Refuse names that are not text (protobuf gives such ones as bytes)."""
    names = list(block.vars)
    for op in block.ops:
        names.append(op.type)
        names += op._attrs
        for name, kind in op._attr_types.items():
            if kind in VARIABLES:
                value = op._attrs[name]
                names += value if isinstance(value, list) else [value]
        for slots in (op._inputs, op._outputs):
            for slot, arguments in slots.items():
                names.append(slot)
                names += arguments
    try:
        "".join(names)
    except TypeError:
        raise UnreadableError(
            f"{source} is corrupted: block {block.idx} has a name that is not text", location=Location(source)
        ) from None


def _new_block(program: Program, desc: Any) -> Block:
    block = Block(program, desc.idx, desc.parent_idx)
    block.forward_block_idx = desc.forward_block_idx
    return block


def _decode_block(block: Block, desc: Any, keep_unknown: bool, source: str) -> None:
    unusual: list[tuple[Variable | Operator, Any]] = []
    for var_desc in desc.vars:
        var, plain = _decode_var(block, var_desc, keep_unknown)
        block.vars[var.name] = var
        if not plain:
            unusual.append((var, var_desc))
    for op_desc in desc.ops:
        if not op_desc.type:
            raise UnreadableError(
                f"{source} is corrupted: block {block.idx} has an operator without a type", location=Location(source)
            )
        op, plain = _decode_op(block, op_desc, keep_unknown)
        block.ops.append(op)
        if not plain:
            unusual.append((op, op_desc))
    _check_names(block, source)
    for item, item_desc in unusual:
        item.original = _original(item, item_desc)
    if keep_unknown:
        block.extra = _unknown(desc)


def _decode_var(block: Block, desc: Any, keep_unknown: bool) -> tuple[Variable, bool]:
    """A variable, and whether we would certainly write it as it is here."""
    type_desc = desc.type
    kind = VarType(type_desc.type) if type_desc.HasField("type") else -1
    own_field = "selected_rows" if kind == VarType.SELECTED_ROWS else DENSE_FIELD.get(kind)
    shape = dtype = lod_level = None
    plain = desc.HasField("type") and desc.HasField("name") and desc.HasField("need_check_feed") == desc.need_check_feed
    if own_field is not None and type_desc.HasField(own_field):
        tensor = value = getattr(type_desc, own_field)
        if kind in DENSE_FIELD:
            tensor = value.tensor
            lod_level = value.lod_level if value.HasField("lod_level") else None
        shape = tuple(tensor.dims)
        if tensor.HasField("data_type"):
            dtype = VarType(tensor.data_type)
        else:
            plain = False
    var = Variable(
        block,
        type=kind,
        name=_shared(desc.name),
        shape=shape,
        dtype=dtype,
        lod_level=lod_level,
        persistable=desc.persistable if desc.HasField("persistable") else None,
        need_check_feed=desc.need_check_feed,
        stop_gradient=desc.stop_gradient,
    )
    if own_field is None:
        var.type_bytes = type_desc.SerializePartialToString()
    else:
        var.type_bytes = _remainder(type_desc, ("type", own_field), keep_unknown) or None
    var.extra = _remainder(desc, ("name", "type", "persistable", "need_check_feed"), keep_unknown)
    var.original = ORDINARY
    return var, plain and not (keep_unknown and _has_unknown(desc))


def _decode_op(block: Block, desc: Any, keep_unknown: bool) -> tuple[Operator, bool]:
    """An operator, and whether we would certainly write it as it is here."""
    op = Operator(block, type=_shared(desc.type))
    op._inputs = {_shared(var.parameter): [*map(_shared, var.arguments)] for var in desc.inputs}
    op._outputs = {_shared(var.parameter): [*map(_shared, var.arguments)] for var in desc.outputs}
    op.is_target = desc.is_target
    plain = op.is_target or not desc.HasField("is_target")
    for attr in desc.attrs:
        fields = attr.ListFields()
        kind, value = _plain_attr(fields)
        name = _shared(attr.name if kind is None else fields[0][1])
        if kind is None:
            kind, value = _decode_attr(attr)
            plain = False
        elif kind in _SINGLE_PRECISION and _has_nan(value):
            plain = False
        op._attrs[name] = value
        op._attr_types[name] = kind
        if keep_unknown and kind != -1:
            unknown = _unknown(attr)
            if unknown:
                op.attr_extra[name] = unknown
    if keep_unknown:
        op.extra = _unknown(desc)
        plain = plain and not _has_unknown(desc)
    op.original = ORDINARY
    return op, plain and all(
        len(named) == len(given) and "" not in named
        for named, given in ((op._inputs, desc.inputs), (op._outputs, desc.outputs), (op._attrs, desc.attrs))
    )


def _has_nan(value: float | list[float]) -> bool:
    """Whether there is NaN, of which Python keeps not every bit of 32."""
    return any(item != item for item in value) if isinstance(value, list) else value != value


def _plain_attr(fields: Sequence[tuple[Any, Any]]) -> tuple[AttrType | int | None, Any]:
    """Type and value of an attribute whose fields are its name, its type and its value; (None, None) for any other."""
    if len(fields) == 3:
        _, (type_field, number), (value_field, value) = fields
        kind = _PLAIN_TYPE.get((number, value_field)) if type_field is _TYPE_FIELD else None
        if kind is None:
            return None, None
        if kind == AttrType.STRING:
            return kind, _text(value)
        if kind == AttrType.STRINGS:
            return kind, [_text(item) for item in value]
        return kind, list(value) if kind in _LIST_TYPE else value
    if len(fields) == 2 and fields[1][0] is _TYPE_FIELD and fields[1][1] in _LIST_TYPE:
        return _LIST_TYPE[fields[1][1]], []  # an empty list is not written
    return None, None


def _decode_attr(attr: Any) -> tuple[AttrType | int, Any]:
    """Type and value of any attribute; one of a type that this version does not know keeps its bytes."""
    if not attr.HasField("type"):
        return -1, attr.SerializePartialToString()
    kind = AttrType(attr.type)
    if kind == AttrType.SCALAR:
        return kind, _decode_scalar(attr.scalar)
    if kind == AttrType.SCALARS:
        return kind, [_decode_scalar(scalar) for scalar in attr.scalars]
    value = getattr(attr, _VALUE_FIELD[kind])
    if kind == AttrType.STRING:
        return kind, _text(value)
    if kind == AttrType.STRINGS:
        return kind, [_text(item) for item in value]
    return kind, list(value) if kind in _LIST_TYPE else value


def _shared(name: str) -> str:
    """The one object that equal names are; a name that is no text (protobuf gives bytes then) is refused later."""
    return intern(name) if type(name) is str else name


def _text(data: bytes) -> str:
    """A string attribute as text; bytes that are not UTF-8 become lone surrogates, and these bytes again when saved.

    Equal ones are one object: operators have many lines of their call stacks in common.
    """
    return intern(data.decode("utf-8", "surrogateescape"))


def _decode_scalar(scalar: Any) -> bool | int | float | complex:
    kinds = pb.Scalar
    if scalar.type == kinds.BOOLEAN:
        return bool(scalar.b)
    if scalar.type == kinds.LONG:
        return int(scalar.i)
    if scalar.type == kinds.FLOAT64:
        return float(scalar.r)
    return complex(scalar.c.r, scalar.c.i)


def _decode_versions(program: Program, desc: Any) -> None:
    fields = {f.number: f.name for f, _ in desc.ListFields()}
    for number in (4, 2):
        if number in fields:
            program.version = int(getattr(desc, fields[number]).version)
            program.version_field = number
            break
    if 3 in fields:
        program.op_compatible_map = getattr(desc, fields[3]).SerializePartialToString()
    if 5 in fields:
        program.op_version_map = getattr(desc, fields[5]).SerializePartialToString()


def _original(item: Variable | Operator, desc: Any) -> Original:
    """How the file has a variable or an operator that was read from `desc`."""
    message = variable_message(item) if isinstance(item, Variable) else operator_message(item)
    canonical, given = (bytes(m.SerializePartialToString(deterministic=True)) for m in (message, desc))
    return ORDINARY if canonical == given else Original(canonical, given)


# ---------------------------------------------------------------- encoding
def encode_program(program: Program) -> bytes:
    """ProgramDesc bytes of a program: those that it was read from, as long as nothing has changed."""
    data = bytes(program_message(program).SerializePartialToString(deterministic=True)) + program.extra
    original = program.original
    if original is None or original is ORDINARY or data != original.canonical:
        return data
    return original.given


# ---------------------------------------------------------------- what this version does not know
def _has_unknown(message: Message) -> bool:
    """Whether the message, or one within, carries fields that are not in our schema."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return len(copy.SerializePartialToString()) != len(message.SerializePartialToString())


def _remainder(message: Any, known: Iterable[str], keep_unknown: bool) -> bytes:
    """The encoded fields of a message other than the known ones: those of newer versions."""
    names = {field.name for field, _ in message.ListFields()}.difference(known)
    if not names and not (keep_unknown and len(UnknownFieldSet(message))):
        return b""
    copy = type(message)()
    copy.CopyFrom(message)
    for name in known:
        copy.ClearField(name)
    return bytes(copy.SerializePartialToString())


def _unknown(message: Any) -> bytes:
    """The encoded unknown fields of this very message."""
    if not len(UnknownFieldSet(message)):
        return b""
    copy = type(message)()
    copy.CopyFrom(message)
    for field, _ in message.ListFields():
        copy.ClearField(field.name)
    return bytes(copy.SerializePartialToString())
