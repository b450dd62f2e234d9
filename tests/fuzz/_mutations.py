"""Programs spoiled at random: in the terms of ProgramDesc, so that most of them are still programs, or in their bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from fluidtool.ir.roles import FRAMEWORK_ATTR_TYPES
from fluidtool.ops.index import EXCLUDED, MODULES
from fluidtool.ops.registry import OpInfo, all_ops
from fluidtool.proto import framework_pb2 as pb
from fluidtool.proto.enums import AttrType, VarType

NUMBERS = (0, 1, -1, 2, 3, 7, 64, 100, -100, 2**15, 2**31 - 1, -(2**31))
LONG_NUMBERS = (*NUMBERS, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
FRACTIONS = (0.0, -1.0, 0.5, 1e-30, 1e38, -1e38, float("inf"), float("nan"))
TEXTS = (b"", b"x", b"\xff\xfe", b"a,b,c,d", b"../up", b"NCHW", b"SAME", b"\x00", b"\xc3", b"9" * 5000, b"127.0.0.1:1")
NAMES = (
    "",
    "x",
    "@EMPTY@",
    "feed",
    "fetch",
    "a\x00b",
    "../../up",
    "/etc/passwd",
    "n" * 3000,
    "new\nline",
    "\x1b[2J",
    "x@GRAD",
)
SCALARS = {"i": NUMBERS, "l": LONG_NUMBERS, "f": FRACTIONS, "float64": FRACTIONS, "b": (True, False), "s": TEXTS}
LISTS = {"ints": NUMBERS, "longs": LONG_NUMBERS, "floats": FRACTIONS, "float64s": FRACTIONS, "bools": (True, False)}
FIELDS = {
    AttrType.INT: "i",
    AttrType.LONG: "l",
    AttrType.FLOAT: "f",
    AttrType.FLOAT64: "float64",
    AttrType.BOOLEAN: "b",
    AttrType.STRING: "s",
    AttrType.INTS: "ints",
    AttrType.LONGS: "longs",
    AttrType.FLOATS: "floats",
    AttrType.FLOAT64S: "float64s",
    AttrType.BOOLEANS: "bools",
}


def mutated(data: bytes, random: Random) -> bytes:
    """The program with one to four things changed."""
    if random.random() < 0.04:
        return spoiled_bytes(data, random)
    desc = pb.ProgramDesc.FromString(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(MUTATIONS)(desc, random)
    result = bytes(desc.SerializePartialToString())
    return spoiled_text(result, desc, random) if random.random() < 0.01 else result


# ---------------------------------------------------------------- bytes
def spoiled_bytes(data: bytes, random: Random) -> bytes:
    """Bytes flipped, cut out, doubled; or everything after a place gone."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(out) or 1)
        kind = random.randrange(4)
        if kind == 0 and out:
            out[at % len(out)] = random.getrandbits(8)
        elif kind == 1:
            del out[at : at + random.randrange(1, 20)]
        elif kind == 2:
            out[at:at] = out[at : at + random.randrange(1, 20)]
        else:
            del out[max(at, 1) :]
    return bytes(out)


def spoiled_text(data: bytes, desc: Any, random: Random) -> bytes:
    """A name that is not UTF-8, wherever it stands: the protobuf library itself would not write it."""
    names = [
        name.encode() for block in desc.blocks for op in block.ops for slot in op.inputs for name in slot.arguments
    ]
    name = random.choice(names or [b"x"])
    return data.replace(name, b"\xff" * len(name)) if name else data


# ---------------------------------------------------------------- choosing
def _block(desc: Any, random: Random) -> Any:
    return random.choice(desc.blocks) if desc.blocks else desc.blocks.add()


def _op(desc: Any, random: Random) -> Any:
    block = _block(desc, random)
    return random.choice(block.ops) if block.ops else block.ops.add(type="relu")


def _var(desc: Any, random: Random) -> Any:
    block = _block(desc, random)
    return random.choice(block.vars) if block.vars else block.vars.add(name="x")


def _attr(desc: Any, random: Random) -> Any:
    op = _op(desc, random)
    own = [attr for attr in op.attrs if attr.name not in FRAMEWORK_ATTR_TYPES]
    attrs = own if own and random.random() < 0.95 else op.attrs
    return random.choice(attrs) if attrs else op.attrs.add(name="axis", type=int(AttrType.INT))


def _slot(desc: Any, random: Random) -> Any:
    op = _op(desc, random)
    slots = [*op.inputs, *op.outputs]
    return random.choice(slots) if slots else op.inputs.add(parameter="X")


def _name(desc: Any, random: Random) -> str:
    return random.choice(NAMES) if random.random() < 0.3 else str(_var(desc, random).name)


# ---------------------------------------------------------------- attributes
def _attr_value(desc: Any, random: Random) -> None:
    attr = _attr(desc, random)
    field = FIELDS.get(AttrType(attr.type)) if attr.HasField("type") else None
    if field in SCALARS:
        setattr(attr, field, random.choice(SCALARS[field]))
    elif field in LISTS:
        _spoil_list(getattr(attr, field), LISTS[field], random)
    elif attr.type == pb.STRINGS:
        _spoil_list(attr.strings, TEXTS, random)
    elif attr.type == pb.BLOCK:
        attr.block_idx = random.choice((0, 1, 2, -1, len(desc.blocks), 2**31 - 1))


def _spoil_list(items: Any, choices: Any, random: Random) -> None:
    kind = random.randrange(4)
    if kind == 0:
        del items[:]
    elif kind == 1:
        items.extend(random.choice(choices) for _ in range(random.choice((1, 1, 2, 70))))
    elif kind == 2 and items:
        del items[random.randrange(len(items))]
    elif items:
        items[random.randrange(len(items))] = random.choice(choices)


def _attr_type(desc: Any, random: Random) -> None:
    attr = _attr(desc, random)
    attr.type = int(random.choice(list(AttrType)))
    field = FIELDS.get(AttrType(attr.type))
    if field in SCALARS:
        setattr(attr, field, random.choice(SCALARS[field]))
    elif field in LISTS:
        getattr(attr, field).append(random.choice(LISTS[field]))


def _attr_gone(desc: Any, random: Random) -> None:
    op = _op(desc, random)
    if op.attrs:
        del op.attrs[random.randrange(len(op.attrs))]


def _attr_field_gone(desc: Any, random: Random) -> None:
    attr = _attr(desc, random)
    fields = [field.name for field, _ in attr.ListFields()]
    if fields:
        attr.ClearField(random.choice(fields))


def _attr_of_another(desc: Any, random: Random) -> None:
    _op(desc, random).attrs.add().CopyFrom(_attr(desc, random))


def _attr_renamed(desc: Any, random: Random) -> None:
    _attr(desc, random).name = str(_attr(desc, random).name)


# ---------------------------------------------------------------- operators
def _op_type(desc: Any, random: Random) -> None:
    known = sorted(MODULES) if random.random() < 0.8 else [*sorted(EXCLUDED), "", "brand_new", "feed", "fetch", "while"]
    _op(desc, random).type = random.choice(known)


def _op_of_like_slots(desc: Any, random: Random) -> None:
    """Another operator that takes the slots which are there, so that more than its schema is asked."""
    op = _op(desc, random)
    inputs, outputs = {slot.parameter for slot in op.inputs}, {slot.parameter for slot in op.outputs}
    like = [
        name
        for name, info in _schemas().items()
        if inputs == {slot.name for slot in info.inputs if not slot.dispensable}
        and outputs >= {slot.name for slot in info.outputs[:1]}
    ]
    op.type = random.choice(like or [op.type])


@cache
def _schemas() -> dict[str, OpInfo]:
    return all_ops()


def _op_gone(desc: Any, random: Random) -> None:
    block = _block(desc, random)
    if block.ops:
        del block.ops[random.randrange(len(block.ops))]


def _op_doubled(desc: Any, random: Random) -> None:
    _block(desc, random).ops.add().CopyFrom(_op(desc, random))


def _ops_swapped(desc: Any, random: Random) -> None:
    block = _block(desc, random)
    if block.ops:
        i, j = random.randrange(len(block.ops)), random.randrange(len(block.ops))
        first, second = pb.OpDesc(), pb.OpDesc()
        first.CopyFrom(block.ops[i])
        second.CopyFrom(block.ops[j])
        block.ops[i].CopyFrom(second)
        block.ops[j].CopyFrom(first)


def _op_target(desc: Any, random: Random) -> None:
    _op(desc, random).is_target = random.random() < 0.5


# ---------------------------------------------------------------- slots
def _argument(desc: Any, random: Random) -> None:
    slot, name = _slot(desc, random), _name(desc, random)
    kind = random.randrange(4)
    if kind == 0 or not slot.arguments:
        slot.arguments.extend([name] * random.choice((1, 1, 2, 100)))
    elif kind == 1:
        del slot.arguments[random.randrange(len(slot.arguments))]
    else:
        slot.arguments[random.randrange(len(slot.arguments))] = name


def _slot_name(desc: Any, random: Random) -> None:
    _slot(desc, random).parameter = random.choice(
        ("", "X", "Y", "Out", "Input", "Bias", str(_slot(desc, random).parameter))
    )


def _slot_gone(desc: Any, random: Random) -> None:
    op = _op(desc, random)
    slots = random.choice((op.inputs, op.outputs))
    if slots:
        del slots[random.randrange(len(slots))]


# ---------------------------------------------------------------- variables
def _tensor(desc: Any, random: Random) -> Any:
    kind = _var(desc, random).type
    if kind.type == pb.VarType.LOD_TENSOR_ARRAY:
        return kind.tensor_array.tensor
    return kind.selected_rows if kind.type == pb.VarType.SELECTED_ROWS else kind.lod_tensor.tensor


def _dims(desc: Any, random: Random) -> None:
    _spoil_list(_tensor(desc, random).dims, LONG_NUMBERS, random)


def _data_type(desc: Any, random: Random) -> None:
    _tensor(desc, random).data_type = int(random.choice(list(VarType)))


def _var_kind(desc: Any, random: Random) -> None:
    _var(desc, random).type.type = int(random.choice(list(VarType)))


def _lod_level(desc: Any, random: Random) -> None:
    _var(desc, random).type.lod_tensor.lod_level = random.choice(NUMBERS)


def _persistable(desc: Any, random: Random) -> None:
    var = _var(desc, random)
    var.persistable = not var.persistable


def _var_renamed(desc: Any, random: Random) -> None:
    _var(desc, random).name = _name(desc, random)


def _var_gone(desc: Any, random: Random) -> None:
    block = _block(desc, random)
    if block.vars:
        del block.vars[random.randrange(len(block.vars))]


def _var_field_gone(desc: Any, random: Random) -> None:
    var = _var(desc, random)
    message = random.choice((var, var.type, var.type.lod_tensor.tensor))
    fields = [field.name for field, _ in message.ListFields()]
    if fields:
        message.ClearField(random.choice(fields))


# ---------------------------------------------------------------- blocks and versions
def _block_index(desc: Any, random: Random) -> None:
    field = random.choice(("idx", "parent_idx", "forward_block_idx"))
    setattr(_block(desc, random), field, random.choice((0, 1, 2, -1, -2, len(desc.blocks), 2**31 - 1)))


def _block_gone(desc: Any, random: Random) -> None:
    if desc.blocks:
        del desc.blocks[random.randrange(len(desc.blocks))]


def _block_added(desc: Any, random: Random) -> None:
    block = desc.blocks.add()
    block.CopyFrom(_block(desc, random))
    block.idx, block.parent_idx = len(desc.blocks) - 1, random.choice((0, 1, len(desc.blocks) - 2))
    owner = random.choice(("while", "conditional_block", "recurrent", "relu", "go", "listen_and_serv"))
    op = _op(desc, random)
    op.type = owner if random.random() < 0.5 else op.type
    op.attrs.add(name="sub_block", type=int(AttrType.BLOCK), block_idx=random.choice((block.idx, block.idx, 0, 1)))


def _version(desc: Any, random: Random) -> None:
    desc.version.version = random.choice(LONG_NUMBERS)


MUTATIONS: tuple[Callable[[Any, Random], None], ...] = (
    *(_attr_value,) * 14,
    _attr_type,
    _attr_gone,
    _attr_field_gone,
    _attr_of_another,
    _attr_renamed,
    _op_type,
    *(_op_of_like_slots,) * 4,
    _op_gone,
    _op_doubled,
    _ops_swapped,
    _op_target,
    *(_argument,) * 5,
    _slot_name,
    _slot_gone,
    *(_dims,) * 6,
    _data_type,
    _var_kind,
    _lod_level,
    _persistable,
    _var_renamed,
    _var_gone,
    _var_field_gone,
    _block_index,
    _block_gone,
    _block_added,
    _version,
)
