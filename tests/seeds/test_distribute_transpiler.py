"""`DistributeTranspiler`, its config and its dispatchers as documented, in both generations of their arguments."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid.transpiler import HashName, RoundRobin, distribute_transpiler

SERVERS = "192.168.0.1:6174,192.168.0.2:6174"


def network(width: int = 4) -> Any:
    x = fluid.layers.data("x", [width])
    hidden = fluid.layers.fc(x, width, param_attr="w", bias_attr=False)
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 1, param_attr="v", bias_attr="b"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of something that accepts connections on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def types(program: fluid.Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


# ---------------------------------------------------------------- the example with environment variables
@pytest.mark.parametrize("role", ["PSERVER", "TRAINER"])
def test_the_example_of_0_14(role: str, listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network()
    settings = {
        "PADDLE_PSERVER_PORT": str(listener),
        "PADDLE_PSERVER_IPS": "127.0.0.1",
        "PADDLE_TRAINERS": "2",
        "PADDLE_CURRENT_IP": "127.0.0.1",
        "PADDLE_TRAINER_ID": "0",
        "PADDLE_TRAINING_ROLE": role,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    # Define your model before these codes.
    port = os.getenv("PADDLE_PSERVER_PORT", "6174")
    pserver_ips = os.getenv("PADDLE_PSERVER_IPS", "")
    eplist = []
    for ip in pserver_ips.split(","):
        eplist.append(":".join([ip, port]))
    pserver_endpoints = ",".join(eplist)
    trainers = int(os.environ["PADDLE_TRAINERS"])
    current_endpoint = os.getenv("PADDLE_CURRENT_IP", "") + ":" + port
    trainer_id = int(os.getenv("PADDLE_TRAINER_ID", "0"))
    role = os.environ["PADDLE_TRAINING_ROLE"]

    t = distribute_transpiler.DistributeTranspiler()
    t.transpile(trainer_id, pservers=pserver_endpoints, trainers=trainers)
    if role == "PSERVER":
        pserver_program = t.get_pserver_program(current_endpoint)
        pserver_startup_program = t.get_startup_program(current_endpoint, pserver_program)
        assert types(pserver_program) == ["listen_and_serv"]
        assert {"w", "v", "b"} <= set(pserver_startup_program.global_block().vars)
    elif role == "TRAINER":
        trainer_program = t.get_trainer_program()
        assert {"send", "recv", "send_barrier"} <= set(types(trainer_program)) and "sgd" not in types(trainer_program)


# ---------------------------------------------------------------- the example of 1.x
@pytest.mark.parametrize("role", ["PSERVER", "TRAINER"])
def test_the_example_of_1_x_for_parameter_servers(role: str) -> None:
    network()
    pserver_endpoints = "192.168.0.1:6174,192.168.0.2:6174"
    current_endpoint = "192.168.0.1:6174"
    trainer_id = 0
    trainers = 4

    t = fluid.DistributeTranspiler()
    t.transpile(trainer_id, pservers=pserver_endpoints, trainers=trainers)
    if role == "PSERVER":
        pserver_program = t.get_pserver_program(current_endpoint)
        pserver_startup_program = t.get_startup_program(current_endpoint, pserver_program)
        assert pserver_program.global_block().ops[0].attr("Fanin") == 4
        assert len(pserver_startup_program.global_block().ops) > 0
    elif role == "TRAINER":
        # The servers of the example are not there to wait for.
        assert "send" in types(t.get_trainer_program(wait_port=False))


def test_the_example_of_1_x_for_nccl2() -> None:
    loss_var = network()
    workers = trainers = "192.168.0.1:6174,192.168.0.2:6174"
    trainer_id, curr_ep = 1, "192.168.0.2:6174"
    before = types(fluid.default_main_program())

    config = fluid.DistributeTranspilerConfig()
    config.mode = "nccl2"
    t = fluid.DistributeTranspiler(config=config)
    t.transpile(trainer_id, workers=workers, current_endpoint=curr_ep)
    exe = fluid.ParallelExecutor(
        use_cuda=False, loss_name=loss_var.name, num_trainers=len(trainers.split(",")), trainer_id=trainer_id
    )
    assert "gen_nccl_id" in types(fluid.default_startup_program()) and types(fluid.default_main_program()) == before
    assert fluid.default_startup_program().global_block().has_var("NCCLID")
    assert exe.device_count >= 1


# ---------------------------------------------------------------- arguments
def transpiled(config: Any = None, **arguments: Any) -> fluid.DistributeTranspiler:
    t = fluid.DistributeTranspiler(config)
    t.transpile(**{"trainer_id": 0, "pservers": SERVERS, "trainers": 2, **arguments})
    return t


def test_the_programs_default_to_the_default_ones_and_may_be_given() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        network()
    t = transpiled(program=main, startup_program=startup)
    assert t.get_trainer_program(wait_port=False) is main and types(fluid.default_main_program()) == []
    assert "recv" in types(startup)


def test_transpile_takes_its_arguments_by_position_in_the_order_of_1_x() -> None:
    network()
    t = fluid.DistributeTranspiler()
    t.transpile(0, None, SERVERS, 2, False, None, "127.0.0.1:6174")
    assert "send_barrier" not in types(t.get_trainer_program(False))


def test_transpile_takes_its_arguments_by_position_in_the_order_of_0_14() -> None:
    """trainer_id, program, pservers, trainers, slice_var_up, split_method, sync_mode."""
    network(128)
    t = fluid.DistributeTranspiler()
    t.transpile(0, None, SERVERS, 2, False, HashName, False)
    program = t.get_trainer_program(wait_port=False)
    assert "split_byref" not in types(program) and "send_barrier" not in types(program)


@pytest.mark.parametrize("source", ["argument", "config"])
@pytest.mark.parametrize("slice_var_up", [True, False])
def test_slice_var_up_cuts_large_parameters(source: str, slice_var_up: bool) -> None:
    network(128)
    config = fluid.DistributeTranspilerConfig()
    if source == "config":
        config.slice_var_up = slice_var_up
    t = transpiled(config, **({"slice_var_up": slice_var_up} if source == "argument" else {}))
    assert ("split_byref" in types(t.get_trainer_program(wait_port=False))) is slice_var_up


@pytest.mark.parametrize("source", ["argument", "config"])
@pytest.mark.parametrize("method", [RoundRobin, HashName])
def test_split_method_places_parameters(source: str, method: type) -> None:
    network()
    config = fluid.DistributeTranspilerConfig()
    if source == "config":
        config.split_method = method
    t = transpiled(config, **({"split_method": method} if source == "argument" else {}))
    program = t.get_trainer_program(wait_port=False)
    found = {op.output("Out")[0]: op.attr("epmap")[0] for op in program.global_block().ops if op.type == "recv"}
    names = ["b", "v", "w"]
    assert [found[name] for name in names] == method(SERVERS.split(",")).dispatch(
        [program.global_block().var(name) for name in names]
    )


def test_min_block_size_is_the_smallest_piece() -> None:
    network(128)
    config = fluid.DistributeTranspilerConfig()
    config.min_block_size = 128 * 128
    assert "split_byref" not in types(transpiled(config).get_trainer_program(wait_port=False))


@pytest.mark.parametrize("sync_mode", [True, False])
def test_sync_mode_adds_barriers(sync_mode: bool) -> None:
    network()
    t = transpiled(sync_mode=sync_mode)
    assert ("send_barrier" in types(t.get_trainer_program(wait_port=False))) is sync_mode
    server = t.get_pserver_program("192.168.0.1:6174").global_block().ops[0]
    assert server.attr("distributed_mode") == (0 if sync_mode else 2)


def test_trainer_id_is_in_the_trainers_program() -> None:
    network()
    program = transpiled(trainer_id=1).get_trainer_program(wait_port=False)
    assert {op.attr("trainer_id") for op in program.global_block().ops if op.type == "recv"} == {1}


def test_get_trainer_program_waits_for_the_servers(listener: int) -> None:
    network()
    t = transpiled(pservers=f"127.0.0.1:{listener}")
    assert t.get_trainer_program(wait_port=True) is fluid.default_main_program()


def test_get_pserver_programs_gives_both() -> None:
    network()
    main, startup = transpiled().get_pserver_programs("192.168.0.2:6174")
    assert types(main) == ["listen_and_serv"] and "fill_constant" in types(startup)


def test_get_startup_program_takes_the_old_arguments() -> None:
    network()
    t = transpiled()
    endpoint = "192.168.0.1:6174"
    expected = types(t.get_startup_program(endpoint))
    given = t.get_startup_program(
        endpoint, pserver_program=t.get_pserver_program(endpoint), startup_program=fluid.default_startup_program()
    )
    assert types(given) == expected


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"program": "main"}, TypeError, "program takes a Program"),
        ({"pservers": ""}, ValueError, "pservers"),
        ({"trainers": 0}, ValueError, "trainers"),
        ({"trainer_id": 2}, ValueError, "trainer_id"),
        ({"split_method": dict}, (ValueError, TypeError), "split_method"),
    ],
)
def test_what_transpile_refuses(arguments: dict[str, Any], error: Any, message: str) -> None:
    network()
    with pytest.raises(error, match=message):
        transpiled(**arguments)


def test_an_endpoint_that_is_no_server_is_named() -> None:
    network()
    with pytest.raises(ValueError, match=r"192\.168\.0\.9:1"):
        transpiled().get_pserver_program("192.168.0.9:1")


def test_programs_come_after_transpile() -> None:
    with pytest.raises(ValueError, match=r"call transpile\(\) first"):
        fluid.DistributeTranspiler().get_trainer_program()


# ---------------------------------------------------------------- dispatchers
def variables(*names: str) -> list[fluid.Variable]:
    return [fluid.Program().global_block().create_var(name=name) for name in names]


def test_round_robin_deals_out_in_turn() -> None:
    dispatcher = RoundRobin(pserver_endpoints=["a:1", "b:2"])
    assert dispatcher.dispatch(variables(*"xyz")) == ["a:1", "b:2", "a:1"]


def test_hash_name_places_a_name_where_it_always_is() -> None:
    endpoints = ["a:1", "b:2", "c:3"]
    first = HashName(pserver_endpoints=endpoints).dispatch(variables(*"xyz"))
    again = HashName(endpoints).dispatch(variables(*"zyx"))
    assert first == again[::-1] and set(first) <= set(endpoints)


def test_dispatchers_are_named_in_fluid_too() -> None:
    assert fluid.HashName is HashName and fluid.RoundRobin is RoundRobin
