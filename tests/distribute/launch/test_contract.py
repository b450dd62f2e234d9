"""The environment of a role: what scripts of both generations find, and that fluidtool reads it back."""

from __future__ import annotations

import os
from typing import Any

import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.environment import role_from_environment
from fluidtool.distribute.launch.contract import ROLE_VARIABLES, Cluster, Member, role_environment, without_role
from fluidtool.fluid.transpiler import distribute_transpiler

ONE_PORT = ("127.0.0.1:6174", "127.0.0.2:6174")
TWO_PORTS = ("127.0.0.1:6174", "127.0.0.1:6175")


def test_members_are_the_servers_then_the_trainers() -> None:
    names = [member.name for member in Cluster(TWO_PORTS, 2).members()]
    assert names == ["pserver_0", "pserver_1", "trainer_0", "trainer_1"]


def test_a_server_finds_both_generations() -> None:
    assert role_environment(Cluster(ONE_PORT, 4), Member("pserver", 1, ONE_PORT[1])) == {
        "PADDLE_TRAINING_ROLE": "PSERVER",
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINERS": "4",
        "PADDLE_TRAINERS_NUM": "4",
        "PADDLE_TRAINER_ID": "0",
        "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:6174,127.0.0.2:6174",
        "PADDLE_PSERVER_ENDPOINTS": "127.0.0.1:6174,127.0.0.2:6174",
        "PADDLE_PSERVER_IPS": "127.0.0.1,127.0.0.2",
        "PADDLE_PSERVER_PORT": "6174",
        "PADDLE_CURRENT_ENDPOINT": "127.0.0.2:6174",
        "PADDLE_CURRENT_IP": "127.0.0.2",
        "POD_IP": "127.0.0.2",
        "PADDLE_PORT": "6174",
    }


def test_a_trainer_of_servers_finds_its_number_and_the_servers() -> None:
    found = role_environment(Cluster(ONE_PORT, 4), Member("trainer", 3))
    assert found["PADDLE_TRAINING_ROLE"] == found["TRAINING_ROLE"] == "TRAINER"
    assert (found["PADDLE_TRAINER_ID"], found["PADDLE_TRAINERS_NUM"]) == ("3", "4")
    assert found["PADDLE_PSERVER_IPS"] == "127.0.0.1,127.0.0.2" and "POD_IP" not in found


def test_addresses_without_ports_are_left_out_where_ports_differ() -> None:
    found = role_environment(Cluster(TWO_PORTS, 1), Member("trainer", 0))
    assert found["PADDLE_PSERVERS_IP_PORT_LIST"] == ",".join(TWO_PORTS)
    assert not {"PADDLE_PSERVER_IPS", "PADDLE_PSERVER_PORT"} & found.keys()


def test_a_trainer_without_servers_finds_all_endpoints_and_its_own() -> None:
    found = role_environment(Cluster((), 2, TWO_PORTS), Member("trainer", 1, TWO_PORTS[1]))
    assert found["PADDLE_TRAINER_ENDPOINTS"] == ",".join(TWO_PORTS)
    assert (found["PADDLE_CURRENT_ENDPOINT"], found["PADDLE_TRAINER_ID"]) == (TWO_PORTS[1], "1")
    assert not {"PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_IPS"} & found.keys()


CLUSTERS = {
    "servers, one port": Cluster(ONE_PORT, 3),
    "servers, two ports": Cluster(TWO_PORTS, 3),
    "trainers, one port": Cluster((), 2, ONE_PORT),
    "trainers, two ports": Cluster((), 2, TWO_PORTS),
}


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
def test_what_is_written_is_read_back(cluster: Cluster) -> None:
    for member in cluster.members():
        role = role_from_environment(role_environment(cluster, member))
        assert (role.kind, role.servers, role.trainers) == (member.kind, cluster.servers, cluster.trainers)
        assert role.trainer_id == (member.index if member.kind == "trainer" else 0)
        assert role.trainer_endpoints == cluster.trainer_endpoints
        if member.endpoint:
            assert role.current_endpoint == member.endpoint


def test_every_variable_is_taken_out_of_an_environment_that_is_passed_on() -> None:
    written = {
        name for cluster in CLUSTERS.values() for m in cluster.members() for name in role_environment(cluster, m)
    }
    assert written <= set(ROLE_VARIABLES)
    assert without_role(dict.fromkeys(ROLE_VARIABLES, "x") | {"HOME": "/home"}) == {"HOME": "/home"}


def test_servers_are_found_by_the_endpoints_of_1_x_examples() -> None:
    listed = {"PADDLE_PSERVER_ENDPOINTS": ",".join(TWO_PORTS), "PADDLE_TRAINERS_NUM": "2"}
    own = {"PADDLE_TRAINING_ROLE": "PSERVER", "PADDLE_CURRENT_ENDPOINT": TWO_PORTS[1]}
    role = role_from_environment(listed | own)
    assert (role.servers, role.current_endpoint) == (TWO_PORTS, TWO_PORTS[1])


# ---------------------------------------------------------------- the example of Paddle 0.14, as written
def example(t: Any) -> tuple[str, Any]:
    """The role, and the program that the example ends with."""
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
    t.transpile(trainer_id, pservers=pserver_endpoints, trainers=trainers)
    if role == "PSERVER":
        return role, t.get_pserver_program(current_endpoint)
    return role, t.get_trainer_program(wait_port=False)


def test_the_example_with_environment_variables_takes_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(ONE_PORT, 2)
    for member in cluster.members():
        for name, value in role_environment(cluster, member).items():
            monkeypatch.setenv(name, value)
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1))
            fluid.optimizer.SGD(0.1).minimize(loss)
            role, program = example(distribute_transpiler.DistributeTranspiler())
        first = program.global_block().ops[0]
        assert role == member.kind.upper()
        assert (first.type == "listen_and_serv") is (member.kind == "pserver")
        if member.kind == "pserver":
            assert first.attr("endpoint") == member.endpoint
