"""The schema of program files against bytes encoded by hand: what Paddle 0.12 to 2.6 wrote is read and kept."""

from __future__ import annotations

import struct

import pytest
from google.protobuf.message import EncodeError

from fluidtool.proto import framework_pb2 as pb

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """A base-128 varint; negative numbers take ten bytes, as protobuf writes them."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | VARINT) + varint(value)


def block(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | BYTES) + varint(len(payload)) + payload


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | FIXED64) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    return varint(field << 3 | FIXED32) + struct.pack("<f", value)


GLOBAL_BLOCK = block(1, number(1, 0) + number(2, -1))


class TestTensorDesc:
    """TensorDesc is also the header of every tensor in a parameter file."""

    def test_dims_are_written_unpacked(self) -> None:
        desc = pb.VarType.TensorDesc(data_type=pb.VarType.FP32, dims=[-1, 3])
        assert desc.SerializeToString() == bytes.fromhex("0805 10ffffffffffffffffff01 1003")

    @pytest.mark.parametrize(
        "encoded",
        [number(1, 5) + number(2, 2) + number(2, 300), number(1, 5) + block(2, varint(2) + varint(300))],
        ids=["unpacked", "packed"],
    )
    def test_both_encodings_of_dims_are_read(self, encoded: bytes) -> None:
        assert list(pb.VarType.TensorDesc.FromString(encoded).dims) == [2, 300]

    def test_header_written_by_paddle_1_8_5(self) -> None:
        desc = pb.VarType.TensorDesc.FromString(bytes.fromhex("08051001"))
        assert (desc.data_type, list(desc.dims)) == (pb.VarType.FP32, [1])


class TestAttributes:
    """Each value field of OpDesc.Attr stands at Paddle's number with Paddle's wire type."""

    @pytest.mark.parametrize(
        ("field", "value", "encoded"),
        [
            ("i", -1, number(3, -1)),
            ("f", 0.5, single(4, 0.5)),
            ("s", b"NCHW", block(5, b"NCHW")),
            ("ints", [1, -1], number(6, 1) + number(6, -1)),
            ("floats", [0.5, 2.0], single(7, 0.5) + single(7, 2.0)),
            ("strings", [b"a", b""], block(8, b"a") + block(8, b"")),
            ("b", True, number(10, 1)),
            ("bools", [True, False], number(11, 1) + number(11, 0)),
            ("block_idx", 2, number(12, 2)),
            ("l", 1 << 40, number(13, 1 << 40)),
            ("blocks_idx", [1, 2], number(14, 1) + number(14, 2)),
            ("longs", [1 << 40], number(15, 1 << 40)),
            ("float64s", [0.1], double(16, 0.1)),
            ("var_name", "x", block(17, b"x")),
            ("vars_name", ["x", "y"], block(18, b"x") + block(18, b"y")),
            ("float64", 0.1, double(19, 0.1)),
            ("scalar", pb.Scalar(type=pb.Scalar.LONG, i=7), block(20, number(1, 2) + number(3, 7))),
            ("scalars", [pb.Scalar(b=True)], block(21, number(2, 1))),
        ],
    )
    def test_value_field(self, field: str, value: object, encoded: bytes) -> None:
        attr = pb.OpDesc.Attr(name="n", **{field: value})
        assert attr.SerializeToString() == block(1, b"n") + encoded
        assert pb.OpDesc.Attr.FromString(block(1, b"n") + encoded) == attr

    @pytest.mark.parametrize(("field", "element"), [("ints", 6), ("bools", 11), ("blocks_idx", 14), ("longs", 15)])
    def test_packed_integers_are_read(self, field: str, element: int) -> None:
        attr = pb.OpDesc.Attr.FromString(block(1, b"n") + block(element, b"\x01\x00\x01"))
        assert [int(value) for value in getattr(attr, field)] == [1, 0, 1]

    def test_packed_floats_are_read(self) -> None:
        attr = pb.OpDesc.Attr.FromString(block(1, b"n") + block(7, struct.pack("<2f", 0.5, -2.0)))
        assert list(attr.floats) == [0.5, -2.0]

    def test_string_that_is_not_utf8_survives(self) -> None:
        encoded = block(1, b"n") + number(2, pb.STRING) + block(5, b"\xff\x00\xfe")
        attr = pb.OpDesc.Attr.FromString(encoded)
        assert attr.s == b"\xff\x00\xfe"
        assert attr.SerializeToString() == encoded

    def test_complex_scalar(self) -> None:
        encoded = number(1, 4) + block(5, double(1, 1.0) + double(2, -1.0))
        scalar = pb.Scalar.FromString(encoded)
        assert (scalar.type, scalar.c.r, scalar.c.i) == (pb.Scalar.COMPLEX128, 1.0, -1.0)
        assert scalar.SerializeToString() == encoded


class TestUnknown:
    """What this schema does not know is neither an error nor lost."""

    def test_unknown_attribute_type_survives(self) -> None:
        encoded = block(1, b"n") + number(2, 99) + number(3, 4)
        attr = pb.OpDesc.Attr.FromString(encoded)
        assert not attr.HasField("type")
        assert attr.i == 4
        assert pb.OpDesc.Attr.FromString(attr.SerializeToString()) == attr
        assert number(2, 99) in attr.SerializeToString()

    def test_unknown_variable_type_survives(self) -> None:
        variable = pb.VarDesc.FromString(block(1, b"v") + block(2, number(1, 77)))
        assert not variable.type.HasField("type")
        assert variable.SerializeToString() == block(1, b"v") + block(2, number(1, 77))

    def test_unknown_data_type_survives(self) -> None:
        desc = pb.VarType.TensorDesc.FromString(number(1, 77) + number(2, 3))
        assert list(desc.dims) == [3]
        assert number(1, 77) in desc.SerializeToString()

    def test_unknown_element_type_of_a_tuple_survives(self) -> None:
        value = pb.VarType.Tuple.FromString(number(1, 5) + number(1, 77))
        assert list(value.element_type) == [pb.VarType.FP32]
        assert number(1, 77) in value.SerializeToString()

    @pytest.mark.parametrize(
        "message", [pb.ProgramDesc, pb.BlockDesc, pb.OpDesc, pb.OpDesc.Attr, pb.VarDesc, pb.VarType]
    )
    def test_unknown_field_survives(self, message: type[pb.ProgramDesc]) -> None:
        parsed = message.FromString(block(200, b"newer"))
        assert parsed.SerializePartialToString() == block(200, b"newer")


class TestVariables:
    """Kinds of variables, with the ones that only old or only new versions had."""

    def test_channel_of_0_15(self) -> None:
        encoded = number(1, 16) + block(6, number(1, 5) + number(2, 8))
        kind = pb.VarType.FromString(encoded)
        assert (kind.type, kind.channel.data_type, kind.channel.capacity) == (pb.VarType.CHANNEL, pb.VarType.FP32, 8)
        assert kind.SerializeToString() == encoded

    @pytest.mark.parametrize(
        ("field", "value"),
        [("selected_rows", 2), ("string", 8), ("strings", 9), ("vocab", 10), ("sparse_coo", 11), ("sparse_csr", 12)],
    )
    def test_tensor_like_descriptions(self, field: str, value: int) -> None:
        kind = pb.VarType.FromString(number(1, 7) + block(value, number(1, 5) + number(2, 4)))
        assert list(getattr(kind, field).dims) == [4]

    @pytest.mark.parametrize(("field", "value"), [("lod_tensor", 3), ("tensor_array", 4)])
    def test_lod_level(self, field: str, value: int) -> None:
        kind = pb.VarType.FromString(number(1, 7) + block(value, block(1, number(1, 5)) + number(2, 2)))
        assert getattr(kind, field).lod_level == 2

    def test_reader_and_tuple(self) -> None:
        encoded = number(1, 15) + block(5, block(1, block(1, number(1, 5)))) + block(7, number(1, 3) + number(1, 5))
        kind = pb.VarType.FromString(encoded)
        assert [item.tensor.data_type for item in kind.reader.lod_tensor] == [pb.VarType.FP32]
        assert list(kind.tuple.element_type) == [pb.VarType.INT64, pb.VarType.FP32]

    def test_flags_and_attributes_of_2_6(self) -> None:
        attribute = block(7, block(1, b"a") + number(2, pb.INTS) + block(4, b"s") + number(5, 1))
        encoded = block(1, b"v") + block(2, number(1, 7)) + b"".join(number(field, 1) for field in (3, 4, 5, 6))
        variable = pb.VarDesc.FromString(encoded + attribute)
        flags = (variable.persistable, variable.need_check_feed, variable.is_parameter, variable.stop_gradient)
        assert flags == (True, True, True, True)
        assert (variable.attrs[0].s, list(variable.attrs[0].ints)) == (b"s", [1])

    def test_defaults(self) -> None:
        variable = pb.VarDesc(name="v")
        assert not (variable.persistable or variable.need_check_feed or variable.is_parameter or variable.stop_gradient)
        assert pb.BlockDesc().forward_block_idx == -1


class TestProgram:
    """The three generations of ProgramDesc."""

    def test_until_0_15_there_is_no_version(self) -> None:
        program = pb.ProgramDesc.FromString(GLOBAL_BLOCK)
        assert not program.HasField("version")
        assert not program.HasField("early_version")
        assert program.blocks[0].parent_idx == -1

    def test_version_of_1_0_to_1_5_in_field_2(self) -> None:
        encoded = GLOBAL_BLOCK + block(2, number(1, 1005000))
        program = pb.ProgramDesc.FromString(encoded)
        assert program.early_version.version == 1005000
        assert program.SerializeToString() == encoded

    def test_compatibility_map_of_1_6_to_1_8(self) -> None:
        pair = block(1, block(1, b"conv2d") + block(2, block(1, b"1.8.0") + number(2, 3)))
        encoded = GLOBAL_BLOCK + block(3, pair + block(2, b"1.8.5")) + block(4, number(1, 1008005))
        program = pb.ProgramDesc.FromString(encoded)
        info = program.op_compatible_map.pair[0].compatible_info
        assert (info.version, info.type) == ("1.8.0", pb.CompatibleInfo.BUG_FIX)
        assert program.op_compatible_map.default_required_version == "1.8.5"
        assert program.version.version == 1008005
        assert program.SerializeToString() == encoded

    def test_operator_versions_since_2_0(self) -> None:
        pair = block(1, block(1, b"roi_align") + block(2, number(1, 3)))
        encoded = GLOBAL_BLOCK + block(4, number(1, 2006002)) + block(5, pair)
        program = pb.ProgramDesc.FromString(encoded)
        assert program.op_version_map.pair[0].op_version.version == 3
        assert program.SerializeToString() == encoded

    def test_operator_fields(self) -> None:
        encoded = (
            block(1, block(1, b"X") + block(2, b"a") + block(2, b"b"))
            + block(2, block(1, b"Out") + block(2, b"c"))
            + block(3, b"sum")
            + number(5, 1)
        )
        operator = pb.OpDesc.FromString(encoded)
        assert (operator.type, operator.is_target) == ("sum", True)
        assert list(operator.inputs[0].arguments) == ["a", "b"]
        assert operator.SerializeToString() == encoded

    def test_optional_input_without_arguments_is_kept(self) -> None:
        encoded = block(1, block(1, b"ScaleTensor")) + block(3, b"scale")
        assert pb.OpDesc.FromString(encoded).SerializeToString() == encoded

    def test_nameless_variable_is_found_out(self) -> None:
        program = pb.ProgramDesc.FromString(block(1, number(1, 0) + number(2, -1) + block(3, block(2, number(1, 7)))))
        assert program.FindInitializationErrors() == ["blocks[0].vars[0].name"]
        with pytest.raises(EncodeError, match=r"blocks\[0\]\.vars\[0\]\.name"):
            program.SerializeToString()


def test_input_re_use_of_0_15_does_not_clash_with_the_flag_of_2_2() -> None:
    encoded = block(1, b"Out") + block(2, b"text") + block(6, b"X")
    declared = pb.OpProto.Var.FromString(encoded)
    assert not declared.extra
    assert declared.SerializeToString() == encoded


def test_symbols_do_not_clash_with_paddle() -> None:
    assert pb.DESCRIPTOR.package == "fluidtool.framework.proto"
    assert pb.DESCRIPTOR.name == "fluidtool/proto/framework.proto"
