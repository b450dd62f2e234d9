"""Programs, blocks, operators and variables as protobuf messages.

What was read stands in the order of its file, and what was added to it behind. What was built is sorted by name:
variables, slots and attributes. Paddle 1.8.5 sorts slots, and writes the others in the order of its hash tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidtool.ir.block import Block
from fluidtool.ir.operator import Operator
from fluidtool.ir.original import ORDINARY, Original
from fluidtool.ir.program import Program
from fluidtool.ir.variable import Variable
from fluidtool.proto import framework_pb2 as pb
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.proto.protobuf import Message

# AttrType -> the field of OpDesc.Attr that holds the value
SCALAR_FIELD = {
    AttrType.INT: "i",
    AttrType.FLOAT: "f",
    AttrType.BOOLEAN: "b",
    AttrType.BLOCK: "block_idx",
    AttrType.LONG: "l",
    AttrType.VAR: "var_name",
    AttrType.FLOAT64: "float64",
}
LIST_FIELD = {
    AttrType.INTS: "ints",
    AttrType.FLOATS: "floats",
    AttrType.BOOLEANS: "bools",
    AttrType.BLOCKS: "blocks_idx",
    AttrType.LONGS: "longs",
    AttrType.FLOAT64S: "float64s",
    AttrType.VARS: "vars_name",
}
DENSE_FIELD: dict[int, str] = {
    VarType.LOD_TENSOR: "lod_tensor",
    VarType.LOD_TENSOR_ARRAY: "tensor_array",
}


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def program_message(program: Program) -> Any:
    """The program as a protobuf message."""
    desc = header_message(program)
    for block in program.blocks:
        block_message(block, desc.blocks.add())
    return desc


def header_message(program: Program) -> Any:
    """What a program says beside its blocks as a protobuf message."""
    desc = pb.ProgramDesc()
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
    for var in _variables(block):
        variable_message(var, desc.vars.add())
    for op in block.ops:
        operator_message(op, desc.ops.add())
    _merge(desc, block.extra)
    return desc


def _variables(block: Block) -> list[Variable]:
    """The variables in the order in which they are written."""
    read = [var for var in block.vars.values() if var.original is not None]
    if len(read) == len(block.vars):
        return read
    return read + [block.vars[name] for name in sorted(block.vars) if block.vars[name].original is None]


def variable_message(var: Variable, desc: Any = None) -> Any:
    """The variable as a protobuf message."""
    desc = pb.VarDesc() if desc is None else desc
    desc.name = var.name
    desc.type.SetInParent()
    if var.type in DENSE_FIELD or var.type == VarType.SELECTED_ROWS or var.type_bytes is None:
        desc.type.type = int(var.type)
        if var.has_shape or var.dtype is not None or var.has_lod_level:
            if var.type in DENSE_FIELD:
                dense = getattr(desc.type, DENSE_FIELD[var.type])
                _encode_tensor(var, dense.tensor)
                if var.has_lod_level:
                    dense.lod_level = var.lod_level
            elif var.type == VarType.SELECTED_ROWS:
                _encode_tensor(var, desc.type.selected_rows)
    _merge(desc.type, var.type_bytes or b"")
    if var.says_persistable:
        desc.persistable = var.persistable
    if var.need_check_feed:
        desc.need_check_feed = True
    _merge(desc, var.extra)
    _restore(desc, var.original)
    return desc


def _encode_tensor(var: Variable, desc: Any) -> None:
    desc.data_type = int(VarType.FP32 if var.dtype is None else var.dtype)
    desc.dims.extend(var.shape)


def operator_message(op: Operator, desc: Any = None) -> Any:
    """The operator as a protobuf message."""
    desc = pb.OpDesc() if desc is None else desc
    desc.type = op.type
    for field, names in ((desc.inputs, op.inputs), (desc.outputs, op.outputs)):
        for slot in _in_order(op, names):
            var = field.add()
            var.parameter = slot
            var.arguments.extend(names[slot])
    for name in _in_order(op, op._attrs):
        _encode_attr(op, name, desc.attrs.add())
    if op.is_target:
        desc.is_target = True
    _merge(desc, op.extra)
    _restore(desc, op.original)
    return desc


def _in_order(op: Operator, names: Iterable[str]) -> Iterable[str]:
    """Names of slots or attributes in the order in which they are written."""
    return names if op.original is not None else sorted(names)


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
    elif kind in SCALAR_FIELD:
        setattr(attr, SCALAR_FIELD[AttrType(kind)], value)
    elif kind in LIST_FIELD:
        getattr(attr, LIST_FIELD[AttrType(kind)]).extend(value)
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


def _restore(desc: Message, original: Original | None) -> None:
    """Write as the file did what is as it was read."""
    if original is None or original is ORDINARY:
        return
    if desc.SerializePartialToString(deterministic=True) == original.canonical:
        desc.Clear()
        desc.MergeFromString(original.given)
