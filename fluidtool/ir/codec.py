"""ProgramDesc bytes <-> Program. The one place of `ir` that touches protobuf.

Writing is deterministic: variables sorted by name, slots and attributes sorted by name, repeated numbers unpacked as
every Paddle writes them. Fields and enumeration values that this version does not know are carried along as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from fluidtool.errors import ArgumentTypeError, UnreadableError
from fluidtool.ir.block import Block
from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program
from fluidtool.ir.structure import structure_fault
from fluidtool.ir.variable import Variable
from fluidtool.proto import framework_pb2 as pb
from fluidtool.proto.enums import AttrType, VarType

P = TypeVar("P", bound=Program)

# AttrType -> the field of OpDesc.Attr that holds the value
_SCALAR_FIELD = {
    AttrType.INT: "i",
    AttrType.FLOAT: "f",
    AttrType.BOOLEAN: "b",
    AttrType.BLOCK: "block_idx",
    AttrType.LONG: "l",
    AttrType.VAR: "var_name",
    AttrType.FLOAT64: "float64",
}
_LIST_FIELD = {
    AttrType.INTS: "ints",
    AttrType.FLOATS: "floats",
    AttrType.BOOLEANS: "bools",
    AttrType.BLOCKS: "blocks_idx",
    AttrType.LONGS: "longs",
    AttrType.FLOAT64S: "float64s",
    AttrType.VARS: "vars_name",
}
_DENSE_FIELD: dict[int, str] = {
    VarType.LOD_TENSOR: "lod_tensor",
    VarType.LOD_TENSOR_ARRAY: "tensor_array",
}


# ---------------------------------------------------------------- decoding
def decode_program(data: bytes, program: P, source: str = "the bytes given") -> P:
    """Fill an empty Program from ProgramDesc bytes; raises UnreadableError naming `source` when they are not one."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ArgumentTypeError(f"a program is parsed from bytes, found {type(data).__name__}")
    desc = pb.ProgramDesc()
    try:
        desc.MergeFromString(bytes(data))
    except DecodeError as error:
        raise UnreadableError(
            f"{source} cannot be read as a Fluid program ({len(data)} bytes): truncated, corrupted, or another kind of "
            "file; expected a ProgramDesc such as __model__ or *.pdmodel"
        ) from error
    _check_blocks(desc, source)
    keep_unknown = _has_unknown(desc)
    program.blocks = [_new_block(program, block) for block in desc.blocks]
    for block, block_desc in zip(program.blocks, desc.blocks, strict=True):
        _check_names(block_desc, source)
        _decode_block(block, block_desc, keep_unknown)
    _decode_versions(program, desc)
    program.extra = _unknown(desc) if keep_unknown else b""
    program.current_block_idx = 0
    fault = structure_fault(program)
    if fault:
        raise UnreadableError(f"{source} is not a program that can be used: it {fault}")
    return program


def _check_blocks(desc: Any, source: str) -> None:
    count = len(desc.blocks)
    if count == 0:
        raise UnreadableError(f"{source} is not a Fluid program: it has no blocks")
    for position, block in enumerate(desc.blocks):
        if block.idx != position:
            raise UnreadableError(f"{source} is corrupted: block {position} says it is block {block.idx}")


def _check_names(block: Any, source: str) -> None:
    """Refuse operators without a type, and names that are not text (protobuf gives such ones as bytes)."""
    names = [var.name for var in block.vars]
    for op in block.ops:
        if not op.type:
            raise UnreadableError(f"{source} is corrupted: block {block.idx} has an operator without a type")
        names.append(op.type)
        for attr in op.attrs:
            names += [attr.name, attr.var_name, *attr.vars_name]
        for slot in (*op.inputs, *op.outputs):
            names.append(slot.parameter)
            names += slot.arguments
    try:
        "".join(names)
    except TypeError:
        raise UnreadableError(f"{source} is corrupted: block {block.idx} has a name that is not text") from None


def _new_block(program: Program, desc: Any) -> Block:
    block = Block(program, desc.idx, desc.parent_idx)
    block.forward_block_idx = desc.forward_block_idx
    return block


def _decode_block(block: Block, desc: Any, keep_unknown: bool) -> None:
    block.vars = {var.name: _decode_var(block, var, keep_unknown) for var in desc.vars}
    block.ops = [_decode_op(block, op, keep_unknown) for op in desc.ops]
    if keep_unknown:
        block.extra = _unknown(desc)


def _decode_var(block: Block, desc: Any, keep_unknown: bool) -> Variable:
    type_desc = desc.type
    kind = VarType(type_desc.type) if type_desc.HasField("type") else -1
    shape = dtype = lod_level = None
    if kind in _DENSE_FIELD and type_desc.HasField(_DENSE_FIELD[kind]):
        dense = getattr(type_desc, _DENSE_FIELD[kind])
        shape, dtype = _decode_tensor(dense.tensor)
        lod_level = dense.lod_level if dense.HasField("lod_level") else None
    elif kind == VarType.SELECTED_ROWS and type_desc.HasField("selected_rows"):
        shape, dtype = _decode_tensor(type_desc.selected_rows)
    var = Variable(
        block,
        type=kind,
        name=desc.name,
        shape=shape,
        dtype=dtype,
        lod_level=lod_level,
        persistable=desc.persistable,
        need_check_feed=desc.need_check_feed,
        stop_gradient=desc.stop_gradient,
    )
    own_field = "selected_rows" if kind == VarType.SELECTED_ROWS else _DENSE_FIELD.get(kind)
    if own_field is None:
        var.type_bytes = type_desc.SerializePartialToString()
    else:
        var.type_bytes = _remainder(type_desc, ("type", own_field), keep_unknown) or None
    var.extra = _remainder(desc, ("name", "type", "persistable", "need_check_feed"), keep_unknown)
    return var


def _decode_tensor(desc: Any) -> tuple[tuple[int, ...] | None, VarType | None]:
    dtype = VarType(desc.data_type) if desc.HasField("data_type") else None
    return tuple(desc.dims), dtype


def _decode_op(block: Block, desc: Any, keep_unknown: bool) -> Operator:
    op = Operator(block, type=desc.type)
    op._inputs = {var.parameter: list(var.arguments) for var in desc.inputs}
    op._outputs = {var.parameter: list(var.arguments) for var in desc.outputs}
    for attr in desc.attrs:
        kind, value = _decode_attr(attr)
        op._attrs[attr.name] = value
        op._attr_types[attr.name] = kind
        if keep_unknown and _has_unknown(attr):
            op.attr_extra[attr.name] = _unknown(attr)
    op.is_target = desc.is_target
    if keep_unknown:
        op.extra = _unknown(desc)
    return op


def _decode_attr(attr: Any) -> tuple[AttrType | int, Any]:
    if not attr.HasField("type"):
        return -1, attr.SerializePartialToString()
    kind = AttrType(attr.type)
    if kind == AttrType.STRING:
        return kind, _text(attr.s)
    if kind == AttrType.STRINGS:
        return kind, [_text(item) for item in attr.strings]
    if kind in _SCALAR_FIELD:
        return kind, getattr(attr, _SCALAR_FIELD[kind])
    if kind in _LIST_FIELD:
        return kind, list(getattr(attr, _LIST_FIELD[kind]))
    if kind == AttrType.SCALAR:
        return kind, _decode_scalar(attr.scalar)
    return kind, [_decode_scalar(scalar) for scalar in attr.scalars]


def _text(data: bytes) -> str:
    """A string attribute as text; bytes that are not UTF-8 become lone surrogates, and these bytes again when saved."""
    return data.decode("utf-8", "surrogateescape")


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


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


# ---------------------------------------------------------------- encoding
def encode_program(program: Program) -> bytes:
    """ProgramDesc bytes of a program."""
    return bytes(program_message(program).SerializePartialToString(deterministic=True)) + program.extra


def program_message(program: Program) -> Any:
    """The program as a protobuf message."""
    desc = pb.ProgramDesc()
    for block in program.blocks:
        block_message(block, desc.blocks.add())
    names = {f.number: f.name for f in pb.ProgramDesc.DESCRIPTOR.fields}
    if program.version is not None:
        getattr(desc, names[program.version_field]).version = program.version
    if program.op_compatible_map is not None:
        field = getattr(desc, names[3])
        field.SetInParent()
        field.MergeFromString(program.op_compatible_map)
    if program.op_version_map is not None:
        field = getattr(desc, names[5])
        field.SetInParent()
        field.MergeFromString(program.op_version_map)
    return desc


def block_message(block: Block, desc: Any = None) -> Any:
    """The block as a protobuf message."""
    desc = pb.BlockDesc() if desc is None else desc
    desc.idx, desc.parent_idx = block.idx, block.parent_idx
    if block.forward_block_idx != -1:
        desc.forward_block_idx = block.forward_block_idx
    for name in sorted(block.vars):
        variable_message(block.vars[name], desc.vars.add())
    for op in block.ops:
        operator_message(op, desc.ops.add())
    _merge(desc, block.extra)
    return desc


def variable_message(var: Variable, desc: Any = None) -> Any:
    """The variable as a protobuf message."""
    desc = pb.VarDesc() if desc is None else desc
    desc.name = var.name
    desc.type.SetInParent()
    if var.type in _DENSE_FIELD or var.type == VarType.SELECTED_ROWS or var.type_bytes is None:
        desc.type.type = int(var.type)
        if var.has_shape or var.dtype is not None or var.has_lod_level:
            if var.type in _DENSE_FIELD:
                dense = getattr(desc.type, _DENSE_FIELD[var.type])
                _encode_tensor(var, dense.tensor)
                if var.has_lod_level:
                    dense.lod_level = var.lod_level
            elif var.type == VarType.SELECTED_ROWS:
                _encode_tensor(var, desc.type.selected_rows)
    _merge(desc.type, var.type_bytes or b"")
    desc.persistable = var.persistable
    if var.need_check_feed:
        desc.need_check_feed = True
    _merge(desc, var.extra)
    return desc


def _encode_tensor(var: Variable, desc: Any) -> None:
    desc.data_type = int(VarType.FP32 if var.dtype is None else var.dtype)
    desc.dims.extend(var.shape)


def operator_message(op: Operator, desc: Any = None) -> Any:
    """The operator as a protobuf message."""
    desc = pb.OpDesc() if desc is None else desc
    desc.type = op.type
    for field, names in ((desc.inputs, op.inputs), (desc.outputs, op.outputs)):
        for slot in sorted(names):
            var = field.add()
            var.parameter = slot
            var.arguments.extend(names[slot])
    for name in sorted(op.attr_names):
        _encode_attr(op, name, desc.attrs.add())
    if op.is_target:
        desc.is_target = True
    _merge(desc, op.extra)
    return desc


def _encode_attr(op: Operator, name: str, attr: Any) -> None:
    kind, value = op._attr_types[name], op._attrs[name]
    if kind == -1:
        attr.MergeFromString(value)
        return
    attr.name, attr.type = name, int(kind)
    if kind == AttrType.STRING:
        attr.s = _bytes(value)
    elif kind == AttrType.STRINGS:
        attr.strings.extend(_bytes(item) for item in value)
    elif kind in _SCALAR_FIELD:
        setattr(attr, _SCALAR_FIELD[AttrType(kind)], value)
    elif kind in _LIST_FIELD:
        getattr(attr, _LIST_FIELD[AttrType(kind)]).extend(value)
    elif kind == AttrType.SCALAR:
        _encode_scalar(value, attr.scalar)
    else:
        for item in value:
            _encode_scalar(item, attr.scalars.add())
    _merge(attr, op.attr_extra.get(name, b""))


def _encode_scalar(value: bool | int | float | complex, scalar: Any) -> None:
    kinds = pb.Scalar
    if isinstance(value, bool):
        scalar.type, scalar.b = kinds.BOOLEAN, value
    elif isinstance(value, int):
        scalar.type, scalar.i = kinds.LONG, value
    elif isinstance(value, float):
        scalar.type, scalar.r = kinds.FLOAT64, value
    else:
        scalar.type = kinds.COMPLEX128
        scalar.c.r, scalar.c.i = value.real, value.imag


def _merge(desc: Message, extra: bytes) -> None:
    if extra:
        desc.MergeFromString(extra)


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
