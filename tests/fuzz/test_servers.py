"""The campaign on servers: one attacked job, and that what goes wrong with one is found."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.security import Security
from tests.distribute.rpc.support import Keeper, served, tensor
from tests.faults.storm import prepare
from tests.fuzz import servers
from tests.fuzz._attacks import ATTACKS
from tests.fuzz._socket_attacks import WITH_A_TICKET, WITHOUT_A_TICKET, doors, reach
from tests.fuzz.campaign import Budget

pytestmark = pytest.mark.slow


def test_a_job_that_is_attacked_learns_what_it_learns_in_peace() -> None:
    assert list(servers.search(Budget(1.0, seed=1))) == []


def test_a_server_that_is_attacked_hears_nothing_and_goes_on() -> None:
    keeper, secret = Keeper(w=tensor(1)), TransportOptions(security=Security(token=servers.TOKEN))
    with served(keeper, secret) as server:
        found = [servers.attack(seed, [server.port], [os.getpid()]) for seed in range(100)]
        assert {what for what, *_ in keeper.heard} <= {"get now"}
        from fluidtool.distribute.rpc.client import connect

        client = connect(server.endpoint, 0, secret)
        client.send("g", tensor(1))
        client.close()
    for link in (link for _, links in found for link in links):
        link.close()
    assert [what for what, *_ in keeper.heard if what != "get now"] == ["send"]
    assert len({kind for kind, _ in found}) > 10


def test_sockets_of_a_server_are_found() -> None:
    with served(Keeper()) as server:
        assert server.loop is not None
        found = doors(os.getpid())
        assert {server.loop.door.port, f"@{server.loop.door.name}"} <= {*found}
        for door in found:
            reach(door).close()


@pytest.mark.parametrize("attack", [*ATTACKS, *WITH_A_TICKET, *WITHOUT_A_TICKET])
def test_attacks_are_the_same_for_the_same_seed(attack: Any) -> None:
    assert attack(random.Random(7)) == attack(random.Random(7))


def test_a_server_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = itertools.count(0, servers.GROWTH + 1)
    monkeypatch.setattr(servers, "_memory", lambda process: next(sizes))
    monkeypatch.setattr(servers, "attack", lambda seed, ports, processes: ("none", []))
    launched: Any = SimpleNamespace(poll=lambda: None, wait=lambda seconds: 0)
    events: Any = SimpleNamespace(now={"pserver_0": 1})
    [finding, *_] = servers._attack_until_the_end(launched, events, [1], iter([1, 2]), Counter())
    assert "pserver_0 has grown by" in finding.fault


def test_a_job_that_learns_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "EPOCHS", 2)
    monkeypatch.setattr(servers, "attack", lambda seed, ports, processes: ("none", []))
    monkeypatch.setattr(servers, "learn_in_peace", lambda folder, job, epochs: tmp_path)
    monkeypatch.setattr(servers, "compare", lambda folder, expected, found: ["w differs"] if expected != found else [])
    job = prepare(tmp_path)
    [finding] = servers._attacked(tmp_path, job, tmp_path / "moved", iter([]))
    assert finding.fault == "w differs"
