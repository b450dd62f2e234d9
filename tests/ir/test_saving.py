"""What was read is written again byte for byte; what was changed since leaves everything else in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from fluidtool.errors import UnreadableError
from fluidtool.ir import Program
from fluidtool.ir.structure import MOST_LOD_LEVELS
from fluidtool.ir.surgery import forget_originals
from fluidtool.proto import framework_pb2 as pb

SAMPLE = Path(__file__).parent.parent.parent / "samples/digits/__model__"


@cache
def program_of_paddle() -> bytes:
    """A program that Paddle 1.8.5 wrote."""
    return SAMPLE.read_bytes()


# ---------------------------------------------------------------- any program that a file may hold
VALUES = {
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_STRING: st.sampled_from(["", "a", "b", "c", "\u00fc"]),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=3),
}
NEWER_FIELDS = st.sampled_from(
    [b"\xa0\x1f\x07", b"\xa2\x1f\x05newer", b"\xad\x1f\x00\x00\x80\x3f", b"\xa0\x1f\x01\xa2\x1f\x00"]
)


@st.composite
def messages(draw: st.DrawFn, message: Message) -> Message:
    """`message` with any of its fields said, and with fields of a newer version."""
    for field in message.DESCRIPTOR.fields:
        times = draw(st.integers(0, 3 if field.is_repeated else 1))
        for _ in range(times):
            if field.message_type is None:
                value = draw(VALUES[field.type] if field.enum_type is None else numbers_of(field))
                if field.is_repeated:
                    getattr(message, field.name).append(value)
                else:
                    setattr(message, field.name, value)
            elif field.is_repeated:
                draw(messages(getattr(message, field.name).add()))
            else:
                getattr(message, field.name).SetInParent()
                draw(messages(getattr(message, field.name)))
    if draw(st.booleans()) and draw(st.booleans()):
        message.MergeFromString(draw(NEWER_FIELDS))
    return message


def numbers_of(field: FieldDescriptor) -> st.SearchStrategy[int]:
    assert field.enum_type is not None
    return st.sampled_from([value.number for value in field.enum_type.values])


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """The bytes of any readable program: a tree of blocks, operators with types, sub-blocks that are there."""
    desc = draw(messages(pb.ProgramDesc()))
    if not desc.blocks:
        desc.blocks.add()
    last = len(desc.blocks) - 1
    for position, block in enumerate(desc.blocks):
        block.idx, block.parent_idx = position, draw(st.integers(0, position - 1)) if position else -1
        if block.HasField("forward_block_idx"):
            block.forward_block_idx = draw(st.integers(-1, last))
        for message in tree(block):
            if isinstance(message, (pb.VarType.LoDTensorDesc, pb.VarType.LoDTensorArrayDesc)):
                message.lod_level = abs(message.lod_level) % (MOST_LOD_LEVELS + 1)
        for op in block.ops:
            op.type = op.type or "scale"
            for attr in op.attrs:
                if attr.type in (pb.BLOCK, pb.BLOCKS) and position == last:
                    attr.type = pb.INT  # there is no block behind it that it could name
                if attr.HasField("block_idx"):
                    attr.block_idx = draw(st.integers(min(position + 1, last), last))
                attr.blocks_idx[:] = [draw(st.integers(min(position + 1, last), last)) for _ in attr.blocks_idx[:1]]
                if attr.type == pb.BLOCK and not attr.HasField("block_idx"):
                    attr.block_idx = last
    return desc.SerializePartialToString(deterministic=True)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_any_program_is_written_as_it_was_read(data: bytes) -> None:
    program = Program.parse_from_string(data)
    assert program.serialize_to_string() == data
    assert program.clone().serialize_to_string() == data


def tree(message: Message) -> Iterator[Message]:
    """A message and all within it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                yield from tree(item)


@st.composite
def nearly_ordinary(draw: st.DrawFn) -> bytes:
    """A program as Paddle writes it, apart from one field of one variable, operator, slot or attribute."""
    desc = pb.ProgramDesc.FromString(program_of_paddle())
    places = [item for item in tree(desc) if not isinstance(item, (pb.ProgramDesc, pb.BlockDesc))]
    message = places[draw(st.integers(0, len(places) - 1))]
    field = draw(st.sampled_from([field for field in message.DESCRIPTOR.fields if "block" not in field.name]))
    other = draw(messages(type(message)()))
    for name in {field.name for field, _ in other.ListFields()} - {field.name}:
        other.ClearField(name)
    if draw(st.booleans()):
        message.ClearField(field.name)
    message.MergeFrom(other)
    for op in desc.blocks[0].ops:
        op.type = op.type or "scale"
        for attr in op.attrs:
            if attr.type in (pb.BLOCK, pb.BLOCKS):
                attr.type = pb.INT
    return desc.SerializePartialToString(deterministic=True)


@settings(max_examples=100, deadline=None)
@given(nearly_ordinary())
def test_a_program_with_one_unusual_field_is_written_as_it_was_read(data: bytes) -> None:
    try:
        program = Program.parse_from_string(data)
    except UnreadableError:  # the field makes it one that nothing can be done with
        reject()
    assert program.serialize_to_string() == data


@settings(max_examples=50, deadline=None)
@given(programs())
def test_the_same_fields_give_the_same_bytes_once_their_file_is_forgotten(data: bytes) -> None:
    program = Program.parse_from_string(data)
    forget_originals(program)
    canonical = program.serialize_to_string()
    again = Program.parse_from_string(canonical)
    assert again.serialize_to_string() == canonical
    forget_originals(again)
    assert again.serialize_to_string() == canonical


# ---------------------------------------------------------------- files that no writer of protobuf makes
def field(number: int, content: bytes) -> bytes:
    """An encoded field of bytes or a message, up to 127 of them."""
    return bytes([number << 3 | 2, len(content)]) + content


def program_with(block: bytes = b"", program: bytes = b"") -> bytes:
    """An encoded program of one block (idx 0, parent -1) that ends with `block`, and itself with `program`."""
    return field(1, b"\x08\x00\x10" + b"\xff" * 9 + b"\x01" + block) + program


def attribute(*fields: bytes) -> bytes:
    """Block fields: an operator `scale` with the attribute of these fields, named `a`."""
    return field(4, field(3, b"scale") + field(4, field(1, b"a") + b"".join(fields)))


VARIABLE = field(3, field(1, b"x") + field(2, b"\x08\x07"))
UNUSUAL = {
    "the version before the blocks": field(4, b"\x08\x05") + program_with(),
    "two versions": program_with(program=field(2, b"\x08\x05") + field(4, b"\x08\x06")),
    "the version in two parts": program_with(program=field(4, b"\x08\x05") + field(4, b"\x08\x06")),
    "a version without a number": program_with(program=field(4, b"")),
    "a number in more bytes than it needs": program_with(program=field(4, b"\x08\x85\x00")),
    "operators before variables": program_with(attribute(b"\x10\x00\x18\x07") + VARIABLE),
    "a variable declared twice": program_with(VARIABLE + VARIABLE),
    "an attribute set twice": program_with(field(4, field(3, b"scale") + 2 * field(4, b"\x0a\x01a\x10\x00\x18\x07"))),
    "a slot named twice": program_with(field(4, 2 * field(1, field(1, b"X") + field(2, b"x")) + field(3, b"scale"))),
    "a packed shape": program_with(field(3, field(1, b"x") + field(2, b"\x08\x07\x1a\x06\x0a\x04\x08\x05\x12\x00"))),
    "a default spelled out": program_with(b"\x28" + b"\xff" * 9 + b"\x01"),
    "a target that is none": program_with(field(4, field(3, b"scale") + b"\x28\x00")),
    "an attribute without its value": program_with(attribute(b"\x10\x00")),
    "an attribute with two values": program_with(attribute(b"\x10\x00\x18\x07\x25\x00\x00\x80\x3f")),
    "an attribute of a later type": program_with(attribute(b"\x10\x63\x18\x07")),
    "an attribute without a type": program_with(attribute(b"\x18\x07")),
    "a later field among ours": program_with(attribute(b"\x10\x00", b"\x48\x01", b"\x50\x01")),
    "a later field within a slot": program_with(field(4, field(1, field(1, b"X") + b"\x50\x01") + field(3, b"scale"))),
    "a signaling NaN": program_with(attribute(b"\x10\x01\x25\x01\x00\xa0\x7f")),
    "a signaling NaN in a list": program_with(attribute(b"\x10\x04\x3d\x00\x00\x80\x3f\x3d\x01\x00\xa0\x7f")),
    "a scalar without a type": program_with(attribute(b"\x10\x10", b"\xa2\x01\x02\x18\x07")),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_what_a_file_writes_otherwise_than_we_would(what: str) -> None:
    program = Program.parse_from_string(UNUSUAL[what])
    assert program.serialize_to_string() == UNUSUAL[what]
    assert program.clone().serialize_to_string() == UNUSUAL[what]


@pytest.mark.parametrize(
    "data",
    [
        program_with(field(3, field(1, b"\xff") + field(2, b"\x08\x07"))),
        program_with(field(4, field(1, field(1, b"\xff")) + field(3, b"scale") + b"\x28\x00")),
        program_with(attribute(b"\x10\x0d", b"\x8a\x01\x01\xff")),
        program_with(attribute(b"\x10\x0e", b"\x92\x01\x01\xff")),
    ],
)
def test_names_that_are_not_text_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError, match="block 0 has a name that is not text"):
        Program.parse_from_string(data)


# ---------------------------------------------------------------- load, change, save
def described(program: Program) -> Any:
    """Block 0 as its file says it."""
    return pb.ProgramDesc.FromString(program.serialize_to_string()).blocks[0]


def loaded() -> tuple[Program, Any]:
    """A program of Paddle 1.8.5, and block 0 as its file says it."""
    program = Program.parse_from_string(program_of_paddle())
    return program, described(program)


def names(items: Iterable[Any]) -> list[str]:
    return [item.name for item in items]


def test_the_order_of_paddle_is_not_ours() -> None:
    """Without this, the tests below could not fail."""
    _, before = loaded()
    assert names(before.vars) != sorted(names(before.vars))
    assert names(before.ops[1].attrs) != sorted(names(before.ops[1].attrs))


def test_a_changed_attribute_changes_nothing_else() -> None:
    program, before = loaded()
    program.global_block().ops[1].set_attr("groups", 7)
    after = described(program)
    [attr] = [attr for attr in before.ops[1].attrs if attr.name == "groups"]
    attr.i = 7
    assert after == before


def test_a_change_that_is_taken_back_leaves_the_bytes_of_the_file() -> None:
    program = Program.parse_from_string(UNUSUAL["operators before variables"])
    op = program.global_block().ops[0]
    op.set_attr("a", 8)
    assert program.serialize_to_string() != UNUSUAL["operators before variables"]
    op.set_attr("a", 7)
    assert program.serialize_to_string() == UNUSUAL["operators before variables"]


def test_an_unusual_operator_survives_changes_of_others() -> None:
    program = Program.parse_from_string(UNUSUAL["a later field within a slot"])
    program.global_block().create_var(name="y", shape=[1], dtype="float32")
    program.global_block().append_op(type="relu", inputs={"X": ["y"]}, outputs={"Out": ["y"]})
    [unusual] = pb.ProgramDesc.FromString(UNUSUAL["a later field within a slot"]).blocks[0].ops
    assert described(program).ops[0] == unusual
    assert b"\x50\x01" in described(program).ops[0].SerializeToString()


def test_an_unusual_operator_that_is_changed_says_what_it_says_now() -> None:
    program = Program.parse_from_string(UNUSUAL["an attribute with two values"])
    program.global_block().ops[0].set_attr("a", 8)
    [attr] = described(program).ops[0].attrs
    assert (attr.i, attr.HasField("f")) == (8, False)


def test_what_is_added_stands_behind_what_was_read() -> None:
    program, before = loaded()
    block = program.global_block()
    block.create_var(name="b", shape=[1], dtype="float32")
    block.create_var(name="a", shape=[1], dtype="float32")
    block.ops[1].set_attr("a_new_one", 1)
    after = described(program)
    assert names(after.vars) == [*names(before.vars), "a", "b"]
    assert names(after.ops[1].attrs) == [*names(before.ops[1].attrs), "a_new_one"]


def test_a_renamed_variable_keeps_its_place() -> None:
    program, before = loaded()
    program.global_block().rename_var(before.vars[3].name, "renamed")
    expected = names(before.vars)
    expected[3] = "renamed"
    assert names(described(program).vars) == expected


def test_a_variable_that_becomes_a_parameter_stays_as_it_is() -> None:
    program, before = loaded()
    other = Program()
    for var in before.vars:
        if var.persistable and var.type.type == pb.VarType.LOD_TENSOR:
            tensor = var.type.lod_tensor.tensor
            other.global_block().create_parameter(name=var.name, shape=list(tensor.dims), dtype=tensor.data_type)
    assert other.all_parameters()
    program.copy_param_info_from(other)
    assert program.all_parameters()
    assert program.serialize_to_string() == program_of_paddle()


def test_what_prune_keeps_stands_as_before() -> None:
    program, before = loaded()
    target = program.global_block().ops[4].output_arg_names[0]
    after = described(program.prune(target))
    assert 0 < len(after.ops) < len(before.ops)
    kept = set(names(after.vars))
    assert list(after.vars) == [var for var in before.vars if var.name in kept]
    assert all(op in list(before.ops) for op in after.ops)


# ---------------------------------------------------------------- what was built
def test_what_was_built_is_sorted_by_name() -> None:
    program = Program()
    block = program.global_block()
    for name in ("y", "x", "z"):
        block.create_var(name=name, shape=[1], dtype="float32")
    block.append_op(
        type="elementwise_add",
        inputs={"Y": ["y"], "X": ["x"]},
        outputs={"Out": ["z"]},
        attrs={"y_data_format": "", "axis": -1},
    )
    desc = described(program)
    assert names(desc.vars) == ["x", "y", "z"]
    assert [slot.parameter for slot in desc.ops[0].inputs] == ["X", "Y"]
    assert names(desc.ops[0].attrs) == ["axis", "y_data_format"]


@pytest.mark.parametrize("said", [None, False, True])
def test_persistable_is_written_where_it_is_said(said: bool | None) -> None:
    program = Program()
    var = program.global_block().create_var(name="x", shape=[1], dtype="float32", persistable=said)
    [desc] = described(program).vars
    assert desc.HasField("persistable") is (said is not None)
    assert desc.persistable is var.persistable is bool(said)
