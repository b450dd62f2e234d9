"""What a trainer says reaches the handler, by Paddle's calls and on fluidtool's stream alike."""

from __future__ import annotations

import socket
from typing import Any

import grpc
import numpy as np
import pytest

from fluidtool.distribute.rpc.client import connect
from fluidtool.distribute.rpc.handler import NUMBERED, Gone, Late, NotFound, Refused, RemoteError
from fluidtool.distribute.rpc.methods import POSITION
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.service import serve
from fluidtool.distribute.rpc.wire import Limits, decode
from fluidtool.errors import UsageError
from fluidtool.proto import send_recv_pb2
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.distribute.rpc.support import ANY_PORT, WAYS, Keeper, by, connected, eventually, served, tensor


def patient(way: str, seconds: float = 30.0) -> TransportOptions:
    return by(way, deadline=seconds)


@WAYS
class TestWhatTheHandlerHears:
    def test_a_step(self, way: str) -> None:
        keeper = Keeper(w=tensor(2, 3))
        with connected(keeper, 3, patient(way)) as client:
            client.get("w")
            client.fetch_barrier()
            client.send("w@GRAD", tensor(2, 3))
            client.send_barrier()
            client.get("w")
            client.fetch_barrier()
        assert keeper.heard == [
            ("get", "w", 3, 0),
            ("barrier", "FETCH", 3, 0),
            ("send", "w@GRAD", 3, 1),
            ("barrier", "SEND", 3, 1),
            ("get", "w", 3, 1),
            ("barrier", "FETCH", 3, 1),
        ]

    def test_a_trainer_that_resumes_goes_on_counting(self, way: str) -> None:
        keeper = Keeper(w=tensor(1))
        with connected(keeper, 0, by(way, first_step=7)) as client:
            client.get("w")
            client.fetch_barrier()
            client.send_barrier()
        assert [heard[3] for heard in keeper.heard] == [7, 7, 8]

    def test_a_trainer_that_numbers_its_updates(self, way: str) -> None:
        keeper = Keeper(**{POSITION: LoDTensor(np.array([7], np.int64))})
        with connected(keeper, 1, patient(way)) as client:
            assert client.own and client.position() == 7
            client.number_updates(8)
            client.send("g", tensor(1))
            client.fetch_barrier()
            client.send("g", tensor(1))
        sent = [(what, step - NUMBERED) for what, _, _, step in keeper.heard[1:]]
        assert sent == [("send", 8), ("barrier", 8), ("send", 9)]

    def test_the_rest(self, way: str) -> None:
        keeper = Keeper(w=tensor(4, 2))
        with connected(keeper, 1, patient(way)) as client:
            client.get("w", with_barrier=False)
            client.prefetch("prefetch_send@e", LoDTensor(np.array([[2], [0]])), "prefetch_recv@e", "w")
            client.post_notify("@LR_DECAY_COUNTER@", tensor(1, dtype="int64"))
            client.settle()  # a call that is posted may be overtaken
            client.checkpoint("folder/emb_0")
            client.complete()
        assert [heard[:2] for heard in keeper.heard] == [
            ("get now", "w"),
            ("prefetch", "w"),
            ("notify", "@LR_DECAY_COUNTER@"),
            ("checkpoint", "folder/emb_0"),
            ("complete", 1),
        ]

    def test_what_is_sent_comes_before_the_barrier(self, way: str) -> None:
        keeper = Keeper()
        with connected(keeper, 0, patient(way)) as client:
            for index in range(20):
                client.post_send(f"g{index}", tensor(4))
            client.send_barrier()
        assert keeper.heard[-1][:2] == ("barrier", "SEND") and len(keeper.heard) == 21


@WAYS
class TestValues:
    def test_a_parameter_comes_with_its_lod(self, way: str) -> None:
        with connected(Keeper(w=LoDTensor(np.ones((3, 2), np.float32), [[0, 1, 3]])), 0, patient(way)) as client:
            value = client.get("w")
        assert isinstance(value, LoDTensor)
        assert value.lod() == [[0, 1, 3]] and value.numpy().tolist() == [[1, 1]] * 3

    def test_rows_of_a_table(self, way: str) -> None:
        keeper = Keeper(rows=SelectedRows([5, 2], 9, np.arange(4, dtype=np.float32).reshape(2, 2)))
        with connected(keeper, 0, patient(way)) as client:
            value = client.get("rows")
            client.send("g", value)
        assert isinstance(value, SelectedRows) and value.rows() == [5, 2] and value.height() == 9
        assert keeper.received["g"].value.tolist() == [[0, 1], [2, 3]]

    def test_an_identifier_is_bytes(self, way: str) -> None:
        keeper = Keeper()
        with connected(keeper, 0, patient(way)) as client:
            client.send("NCCLID", bytes(range(128)))
        assert keeper.received["NCCLID"] == bytes(range(128))

    @pytest.mark.parametrize("size", [0, 1, (1 << 18) - 40, 1 << 18, 900_001])
    def test_any_size_arrives_whole(self, way: str, size: int) -> None:
        keeper, value = Keeper(w=tensor(size)), tensor(size)
        with connected(keeper, 0, patient(way)) as client:
            client.post_send("small", tensor(3))
            client.post_send("g", value)
            client.post_send("after", tensor(5))
            client.settle()
            got = client.get("w")
        assert isinstance(got, LoDTensor)
        for name, expected in (("small", tensor(3)), ("g", value), ("after", tensor(5))):
            np.testing.assert_array_equal(keeper.received[name].numpy(), expected.numpy())
        np.testing.assert_array_equal(got.numpy(), value.numpy())

    def test_what_arrives_is_aligned(self, way: str) -> None:
        keeper = Keeper(w=tensor(5, dtype="float64"))
        with connected(keeper, 0, patient(way)) as client:
            for name in ("g", "g1", "g12"):
                client.post_send(name, tensor(7, dtype="float64"))
            client.settle()
            got = client.get("w")
        assert isinstance(got, LoDTensor) and got.array.flags.aligned
        assert all(value.array.flags.aligned for value in keeper.received.values())


@WAYS
class TestRefusals:
    def test_unknown_variables(self, way: str) -> None:
        with connected(Keeper(w=tensor(1)), 0, patient(way)) as client:
            with pytest.raises(
                NotFound, match=r"127.0.0.1:\d+: GetVariable of 'v' failed: this server keeps no variable v"
            ):
                client.get("v")
            assert isinstance(client.get("w"), LoDTensor)

    def test_a_refusal_names_server_and_variable(self, way: str) -> None:
        with connected(Keeper(), 0, patient(way)) as client, pytest.raises(Refused, match="takes no variable"):
            client.send("refused", tensor(1))

    def test_a_barrier_does_not_count_behind_a_refusal(self, way: str) -> None:
        keeper = Keeper()
        with connected(keeper, 0, patient(way)) as client:
            client.post_send("refused", tensor(1))
            with pytest.raises(Refused, match="takes no variable called refused"):
                client.send_barrier()
            assert [heard[0] for heard in keeper.heard] == ["send"]

    def test_the_trainer_may_go_on_after_a_refusal(self, way: str) -> None:
        keeper = Keeper()
        with connected(keeper, 0, patient(way)) as client:
            with pytest.raises(Refused):
                client.send("refused", tensor(1))
            client.send("taken", tensor(1))
        assert "taken" in keeper.received

    def test_a_read_tells_of_a_refusal_before_it(self, way: str) -> None:
        with connected(Keeper(w=tensor(1)), 0, patient(way)) as client:
            client.post_send("refused", tensor(1))
            client.flush()
            eventually(lambda: client.unanswered_failed, 5)
            with pytest.raises(Refused, match="called refused"):
                client.get("w")

    def test_errors_of_the_handler_are_told(self, way: str) -> None:
        keeper = Keeper(w=tensor(1))

        def fail(what: str, call: Any) -> None:
            raise RuntimeError("a bug of the handler")

        keeper.before = fail
        with (
            connected(keeper, 0, patient(way)) as client,
            pytest.raises(RemoteError, match="a bug of the handler"),
        ):
            client.get("w")

    def test_a_variable_without_value_is_not_sent(self, way: str) -> None:
        keeper = Keeper(w=LoDTensor())
        with connected(keeper, 0, patient(way)) as client, pytest.raises(NotFound, match="w holds no value"):
            client.get("w")

    def test_long_messages(self, way: str) -> None:
        small = TransportOptions(limits=Limits(message=1 << 16))
        with (
            connected(Keeper(), 0, patient(way), small) as client,
            pytest.raises(Refused, match=r"are allowed|larger than max"),
        ):
            client.send("g", tensor(1 << 19))


@WAYS
class TestPatience:
    def test_a_deadline_passes(self, way: str) -> None:
        keeper = Keeper(w=tensor(1))
        keeper.opened.clear()
        with (
            connected(keeper, 0, patient(way, 0.5)) as client,
            pytest.raises(Late, match=r"GetVariable of 'w'"),
        ):
            client.get("w")

    def test_a_handler_sees_that_its_peer_is_gone(self, way: str) -> None:
        keeper, calls = Keeper(w=tensor(1)), []
        keeper.before = lambda what, call: calls.append(call)
        keeper.opened.clear()
        with served(keeper) as server:
            client = connect(server.endpoint, 0, patient(way))
            waiting = client.post_get("w")
            client.flush()
            assert eventually(lambda: bool(calls)) and calls[0].is_active()
            client.abandon()
            assert eventually(lambda: not calls[0].is_active())
            assert not waiting.done

    def test_nobody_listens(self, way: str) -> None:
        with socket.socket() as taken:  # by nobody who listens, and by no other test
            taken.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
            client = connect(endpoint, 0, patient(way, 0.5))
            with pytest.raises((Late, Gone), match=f"server {endpoint} does not answer"):
                client.get("w")
            client.close()

    def test_a_server_that_stops_is_gone(self, way: str) -> None:
        keeper = Keeper(w=tensor(1))
        with served(keeper) as server:
            client = connect(server.endpoint, 0, patient(way, 2.0))
            client.get("w")
        with pytest.raises((Late, Gone)):
            client.get("w")
        client.close()

    def test_a_trainer_waits_for_a_server_that_comes_later(self, way: str) -> None:
        with serve(ANY_PORT, Keeper()) as server:
            endpoint = server.endpoint
        client = connect(endpoint, 0, patient(way, 20.0))
        keeper = Keeper(w=tensor(1))
        import threading

        def later() -> None:
            threading.Event().wait(0.3)
            servers.append(serve(endpoint, keeper))

        servers: list[Any] = []
        thread = threading.Thread(target=later)
        thread.start()
        assert isinstance(client.get("w"), LoDTensor)
        thread.join()
        client.close()
        servers[0].stop(0)


class TestPaddlePeers:
    """Peers that know Paddle's service only."""

    def call(self, server: Any, method: str, **fields: Any) -> Any:
        with grpc.insecure_channel(server.endpoint) as channel:
            request = send_recv_pb2.VariableMessage(**fields).SerializeToString()
            return channel.unary_unary(f"/sendrecv.SendRecvService/{method}")(request, timeout=10)

    def test_a_trainer_of_paddle(self) -> None:
        keeper = Keeper(w=tensor(2))
        with served(keeper) as server:
            reply = self.call(server, "GetVariable", varname="w", out_varname="w_out", trainer_id=1)
            sent = self.call(
                server, "SendVariable", varname="g", data_type=5, dims=[1], serialized=bytes(4), trainer_id=1
            )
            barrier = self.call(server, "GetVariable", varname="FETCH_BARRIER@RECV")
            self.call(server, "SendVariable", varname="COMPLETE@RECV", trainer_id=1)
        message = decode(reply)
        assert message.name == "w_out" and isinstance(message.value, LoDTensor)
        assert not sent and not barrier
        assert keeper.heard == [
            ("get", "w", None, None),
            ("send", "g", None, None),
            ("barrier", "FETCH", None, None),
            ("complete", 1, None, None),
        ]

    def test_each_of_its_barriers_counts(self) -> None:
        keeper = Keeper()
        with served(keeper) as server:
            for _ in range(2):
                self.call(server, "SendVariable", varname="BATCH_BARRIER@RECV")
        assert len(keeper.heard) == 2

    @pytest.mark.parametrize(
        ("method", "fields", "status", "reason"),
        [
            ("GetVariable", {"varname": "v"}, "NOT_FOUND", "keeps no variable v"),
            ("GetVariable", {}, "NOT_FOUND", "names no variable"),
            ("SendVariable", {"varname": "g"}, "INVALID_ARGUMENT", "without a value"),
            ("GetVariableNoBarrier", {"varname": "w"}, "INVALID_ARGUMENT", "ends with @WITHOUT_BARRIER@RECV"),
            ("PrefetchVariable", {"varname": "w"}, "INVALID_ARGUMENT", "has no ids"),
            ("CheckpointNotify", {"varname": "LOAD@CHECKPOINTNOTIFY"}, "INVALID_ARGUMENT", "SAVE@CHECKPOINTNOTIFY"),
            ("GetMonomerVariable", {"varname": "w"}, "UNIMPLEMENTED", ""),
        ],
    )
    def test_what_cannot_be_is_refused(self, method: str, fields: Any, status: str, reason: str) -> None:
        with served(Keeper(w=tensor(1))) as server, pytest.raises(grpc.RpcError) as caught:
            self.call(server, method, **fields)
        assert caught.value.code().name == status and reason in caught.value.details()

    def test_garbage_is_refused(self) -> None:
        with served(Keeper()) as server, grpc.insecure_channel(server.endpoint) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary("/sendrecv.SendRecvService/SendVariable")(b"\xff\xff", timeout=10)
            with pytest.raises(grpc.RpcError) as refused:
                metadata = (("fluidtool-trainer", "one"),)
                channel.unary_unary("/sendrecv.SendRecvService/SendVariable")(b"", timeout=10, metadata=metadata)
        assert caught.value.code().name == "INVALID_ARGUMENT"
        assert "does not belong to fluidtool" in refused.value.details()

    def test_a_server_of_paddle_is_spoken_to_as_paddle_does(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        heard: list[tuple[str, Any]] = []

        def send(request: bytes, context: Any) -> bytes:
            heard.append((decode(request).name, context.invocation_metadata()))
            return b""

        handler = grpc.method_handlers_generic_handler(
            "sendrecv.SendRecvService", {"SendVariable": grpc.unary_unary_rpc_method_handler(send)}
        )
        server = grpc.server(ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port(ANY_PORT)
        server.start()
        client = connect(f"127.0.0.1:{port}", 0, TransportOptions(deadline=10))
        client.send("g", tensor(1))
        client.send_barrier()
        assert not client.streaming
        assert [name for name, _ in heard] == ["g", "BATCH_BARRIER@RECV"]
        assert not any(key.startswith("fluidtool") for _, metadata in heard for key, _ in metadata)
        client.close()
        server.stop(0)


class TestOptions:
    def test_paddles_flags_are_read(self) -> None:
        options = TransportOptions.from_environment(
            {"FLAGS_rpc_deadline": "5000", "FLAGS_rpc_retry_times": "1", "FLUIDTOOL_RESUME_STEP": "8"}
        )
        assert (options.deadline, options.retry_times, options.first_step, options.streaming) == (5.0, 1, 8, True)

    def test_defaults_are_paddles(self) -> None:
        options = TransportOptions.from_environment({})
        assert (options.deadline, options.retry_times) == (180.0, 3)

    def test_numbers_must_be_numbers(self) -> None:
        with pytest.raises(UsageError, match="FLAGS_rpc_deadline must be a number of at least 0, found 'soon'"):
            TransportOptions.from_environment({"FLAGS_rpc_deadline": "soon"})

    def test_a_taken_port_is_said(self) -> None:
        with served(Keeper()) as server, pytest.raises(RemoteError, match=f"cannot listen at {server.endpoint}"):
            serve(server.endpoint, Keeper())
