"""The parameter-server messages: Paddle's method paths, field numbers and wire types."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import FieldDescriptor

from fluidtool.proto import framework_pb2, send_recv_pb2

SERVICE = send_recv_pb2.DESCRIPTOR.services_by_name["SendRecvService"]


def test_service_name_makes_the_method_paths_of_paddle() -> None:
    assert SERVICE.full_name == "sendrecv.SendRecvService"


@pytest.mark.parametrize(
    ("method", "reply"),
    [
        ("SendVariable", "VoidMessage"),
        ("GetVariable", "VariableMessage"),
        ("GetVariableNoBarrier", "VariableMessage"),
        ("PrefetchVariable", "VariableMessage"),
        ("CheckpointNotify", "VoidMessage"),
        ("DistributeNotify", "VoidMessage"),
        ("GetMonomerVariable", "VariableMessage"),
        ("GetMonomerBarrier", "VoidMessage"),
        ("SendAndRecvVariable", "VariableMessage"),
    ],
)
def test_methods(method: str, reply: str) -> None:
    descriptor = SERVICE.methods_by_name[method]
    assert (descriptor.input_type.name, descriptor.output_type.name) == ("VariableMessage", reply)


def test_dense_variable_on_the_wire() -> None:
    message = send_recv_pb2.VariableMessage(
        varname="w",
        data_type=send_recv_pb2.VariableMessage.FP32,
        dims=[2, 1],
        lod_level=1,
        lod=[send_recv_pb2.VariableMessage.LodData(lod_data=[0, 2])],
        serialized=b"\x00" * 8,
        out_varname="o",
        trainer_id=1,
        table_name="t",
    )
    assert message.SerializeToString() == bytes.fromhex(
        "0a0177180522020201280132040a0200024208" + "00" * 8 + "52016f60016a0174"
    )


def test_sparse_variable_on_the_wire() -> None:
    message = send_recv_pb2.VariableMessage(
        varname="g", type=send_recv_pb2.SELECTED_ROWS, slr_height=10, rows=(3).to_bytes(8, "little"), profile=2
    )
    assert message.SerializeToString() == bytes.fromhex("0a01671001380a4a0803000000000000005802")


def test_order_of_paddles_sender_is_read() -> None:
    encoded = bytes.fromhex("0a017718052202020160014208" + "00" * 8)
    message = send_recv_pb2.VariableMessage.FromString(encoded)
    assert (message.trainer_id, list(message.dims), len(message.serialized)) == (1, [2, 1], 8)


def test_unpacked_dims_are_read() -> None:
    assert list(send_recv_pb2.VariableMessage.FromString(bytes.fromhex("20022003")).dims) == [2, 3]


def test_element_type_without_a_name_passes() -> None:
    message = send_recv_pb2.VariableMessage.FromString(bytes.fromhex("181e"))
    assert message.data_type == 30
    assert message.SerializeToString() == bytes.fromhex("181e")


def test_barrier_is_a_name_and_nothing_else() -> None:
    message = send_recv_pb2.VariableMessage(varname="BATCH_BARRIER@RECV")
    assert message.SerializeToString() == b"\x0a\x12BATCH_BARRIER@RECV"


def test_element_types_are_numbered_as_in_program_files() -> None:
    for name, number in send_recv_pb2.VariableMessage.Type.items():
        assert framework_pb2.VarType.Type.Value(name) == number


def test_payload_fields_are_bytes() -> None:
    fields = send_recv_pb2.VariableMessage.DESCRIPTOR.fields_by_name
    assert {fields["serialized"].type, fields["rows"].type} == {FieldDescriptor.TYPE_BYTES}
