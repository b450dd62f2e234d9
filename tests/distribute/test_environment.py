"""The role of a process by its environment variables."""

from __future__ import annotations

import pytest

from fluidtool.distribute.environment import Role, role_from_environment
from fluidtool.errors import UsageError

IPS = {"PADDLE_PSERVER_IPS": "10.0.0.1,10.0.0.2", "PADDLE_TRAINERS": "2"}
CLOUD = {"PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:1,10.0.0.2:2", "PADDLE_TRAINERS_NUM": "3"}
PEERS = {"PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:1,10.0.0.2:2"}


@pytest.mark.parametrize(
    ("environment", "role"),
    [
        ({}, Role()),
        (
            {"PADDLE_TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "1", **IPS},
            Role("trainer", 1, 2, ("10.0.0.1:6174", "10.0.0.2:6174")),
        ),
        (
            {"PADDLE_TRAINING_ROLE": "PSERVER", "PADDLE_CURRENT_IP": "10.0.0.2", "PADDLE_PSERVER_PORT": "7000", **IPS},
            Role("pserver", 0, 2, ("10.0.0.1:7000", "10.0.0.2:7000"), (), "10.0.0.2:7000"),
        ),
        (
            {"PADDLE_TRAINER_IPS": "10.0.0.1,10.0.0.2", "PADDLE_CURRENT_IP": "10.0.0.2", "PADDLE_TRAINER_ID": "1"},
            Role("trainer", 1, 2, (), ("10.0.0.1:6174", "10.0.0.2:6174"), "10.0.0.2:6174"),
        ),
        (
            {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "2", **CLOUD},
            Role("trainer", 2, 3, ("10.0.0.1:1", "10.0.0.2:2")),
        ),
        (
            {"TRAINING_ROLE": "PSERVER", "POD_IP": "10.0.0.1", "PADDLE_PORT": "1", **CLOUD},
            Role("pserver", 0, 3, ("10.0.0.1:1", "10.0.0.2:2"), (), "10.0.0.1:1"),
        ),
        (
            {"PADDLE_TRAINER_ID": "1", "PADDLE_CURRENT_ENDPOINT": "10.0.0.2:2", "PADDLE_TRAINERS_NUM": "2", **PEERS},
            Role("trainer", 1, 2, (), ("10.0.0.1:1", "10.0.0.2:2"), "10.0.0.2:2"),
        ),
        ({"TRAINING_ROLE": "TRAINER", **PEERS}, Role("trainer", 0, 2, (), ("10.0.0.1:1", "10.0.0.2:2"), "10.0.0.1:1")),
    ],
    ids=["none", "trainer", "server", "nccl2", "cloud trainer", "cloud server", "peers", "peers with a role"],
)
def test_roles(environment: dict[str, str], role: Role) -> None:
    assert role_from_environment(environment) == role


def test_peers_are_those_without_servers() -> None:
    assert role_from_environment(PEERS).is_collective
    assert not role_from_environment({"TRAINING_ROLE": "TRAINER", **CLOUD}).is_collective


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PADDLE_TRAINING_ROLE": "WORKER"}, "PADDLE_TRAINING_ROLE must be TRAINER or PSERVER, found 'WORKER'"),
        ({"TRAINING_ROLE": "trainer"}, "TRAINING_ROLE must be TRAINER or PSERVER, found 'trainer'"),
        ({"TRAINING_ROLE": "PSERVER"}, "the servers are not known; set PADDLE_PSERVERS_IP_PORT_LIST"),
        ({"TRAINING_ROLE": "TRAINER"}, "its job is not known; set PADDLE_PSERVERS_IP_PORT_LIST"),
        ({"TRAINING_ROLE": "PSERVER", **CLOUD}, "this server is not named, which is not one of"),
        (
            {"TRAINING_ROLE": "PSERVER", "POD_IP": "10.0.0.9", "PADDLE_PORT": "1", **CLOUD},
            "this server is 10.0.0.9:1, which is not one of 10.0.0.1:1, 10.0.0.2:2; set POD_IP and PADDLE_PORT",
        ),
        ({"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "3", **CLOUD}, "PADDLE_TRAINER_ID must be between 0 and 2"),
        (
            {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "x", **CLOUD},
            "PADDLE_TRAINER_ID must be a number",
        ),
        (
            {"TRAINING_ROLE": "TRAINER", **CLOUD, "PADDLE_TRAINERS_NUM": "0"},
            "PADDLE_TRAINERS_NUM must be a number of at least 1, found '0'",
        ),
        (
            {"PADDLE_TRAINING_ROLE": "TRAINER", "PADDLE_PSERVER_IPS": "10.0.0.1"},
            "PADDLE_TRAINERS_NUM or PADDLE_TRAINERS is not; set the number of trainers",
        ),
        (
            {"PADDLE_CURRENT_ENDPOINT": "10.0.0.9:9", **PEERS},
            "PADDLE_CURRENT_ENDPOINT says that this trainer is 10.0.0.9:9",
        ),
        ({"PADDLE_TRAINER_IPS": "10.0.0.1,10.0.0.2"}, "PADDLE_CURRENT_IP says that this trainer is :6174"),
        (
            {"PADDLE_TRAINER_ENDPOINTS": "10.0.0.1"},
            "PADDLE_TRAINER_ENDPOINTS must list host:port, .*, found '10.0.0.1'",
        ),
    ],
)
def test_values_that_cannot_work_are_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        role_from_environment(environment)
