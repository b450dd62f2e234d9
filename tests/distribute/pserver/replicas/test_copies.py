"""A copy of a server: what it passes on, when it goes on alone or takes over, and whom it refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fluidtool.distribute.launch.progress import Note
from fluidtool.distribute.pserver.replicas import copies as life
from fluidtool.distribute.pserver.replicas.copies import Candidate, Copies
from fluidtool.distribute.pserver.replicas.messages import FROM_PRIMARY, SENT, STATE, numbers, signal, state_message
from fluidtool.distribute.pserver.replicas.register import Register
from fluidtool.distribute.pserver.replicas.replica import Replica
from fluidtool.distribute.pserver.replicas.succession import Configuration, Copy
from fluidtool.distribute.rpc.handler import Call, Gone, Message, Refused, Superseded
from fluidtool.tensor import LoDTensor

PATIENCE = 10.0
A, B = Copy(0, "0a"), Copy(1, "0b")


class Backup:
    """What stands for the backup: it takes messages, as long as it is not `held` or `broken`."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.free, self.is_broken = threading.Event(), False
        self.free.set()

    def forward(self, message: Message, step: int) -> None:
        self.taken.append(message.name)

    def settle(self, patience: float) -> None:
        self.free.wait(PATIENCE)
        if self.is_broken:
            raise Gone("the backup is gone")

    def abandon(self) -> None:
        pass


class Primary:
    """A copy that leads, with a backup that has asked to be one."""

    def __init__(self, folder: Path) -> None:
        self.backup, self.notes = Backup(), list[Note]()
        self.copies = Copies(Register(folder), A, "pserver_0", lambda endpoint, number: self.backup, self.notes.append)
        assert self.copies.begin()
        self.copies.leads = True
        self.copies.ask(Candidate(B, "127.0.0.1:1", FROM_PRIMARY + 1))

    def pair(self) -> None:
        self.copies.admit(lambda: [(state_message(STATE, {}), 0)])
        until(lambda: self.copies.is_paired)


def until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def primary(tmp_path: Path) -> Primary:
    return Primary(tmp_path)


# ---------------------------------------------------------------- the primary
def test_a_backup_is_named_when_it_has_everything(primary: Primary, tmp_path: Path) -> None:
    primary.backup.free.clear()
    primary.copies.admit(lambda: [(state_message(STATE, {}), 0)])
    assert not primary.copies.is_paired
    primary.backup.free.set()
    until(lambda: primary.copies.is_paired)
    assert Register(tmp_path).newest() == Configuration(2, A, B)
    assert [note.event for note in primary.notes] == ["paired"]


def test_trainers_are_told_of_nothing_that_the_backup_does_not_have(primary: Primary) -> None:
    primary.pair()
    primary.backup.free.clear()
    told = primary.copies.tell(signal(SENT), 1)
    assert not primary.copies.has(told)
    primary.backup.free.set()
    until(lambda: primary.copies.has(told))
    assert SENT in primary.backup.taken


def test_a_primary_without_backup_waits_for_nobody(primary: Primary) -> None:
    assert primary.copies.has(primary.copies.tell(signal(SENT), 1))


def test_a_primary_that_loses_its_backup_claims_the_next_term_and_goes_on(primary: Primary, tmp_path: Path) -> None:
    primary.pair()
    primary.backup.free.clear()
    told = primary.copies.tell(signal(SENT), 1)
    primary.backup.is_broken = True
    primary.backup.free.set()
    until(lambda: primary.copies.has(told))
    assert Register(tmp_path).newest() == Configuration(3, A)
    assert [note.event for note in primary.notes] == ["paired", "alone"]


def test_a_primary_that_was_passed_over_tells_trainers_nothing_and_ends(primary: Primary, tmp_path: Path) -> None:
    primary.pair()
    primary.backup.free.clear()
    told = primary.copies.tell(signal(SENT), 1)
    assert Register(tmp_path).claim(Configuration(3, B))
    primary.backup.is_broken = True
    primary.backup.free.set()
    with pytest.raises(Superseded, match="another copy of this server serves"):
        primary.copies.wait(told)
    assert not primary.copies.has(told)


def test_checkpoints_are_the_primary_s(primary: Primary) -> None:
    saved: list[int] = []
    save = primary.copies.as_primary(saved.append)
    save(1)
    primary.copies.leads = False
    save(2)
    assert saved == [1]


# ---------------------------------------------------------------- the backup
def backup(folder: Path) -> Copies:
    return Copies(Register(folder), B, "pserver_0", lambda endpoint, number: None, lambda note: None)


def test_a_backup_takes_over_in_the_next_term(tmp_path: Path) -> None:
    Register(tmp_path).claim(Configuration(2, A, B))
    copies = backup(tmp_path)
    copies.take_over()
    assert copies.leads
    assert Register(tmp_path).newest() == Configuration(3, B)


def test_a_copy_that_was_too_late_to_begin_serves_when_it_has_taken_over(tmp_path: Path) -> None:
    copies = backup(tmp_path)
    assert Register(tmp_path).claim(Configuration(1, A))
    assert not copies.begin()
    Register(tmp_path).claim(Configuration(2, A, B))
    copies.take_over()
    copies.check()


def test_a_backup_that_was_given_up_does_not_take_over(tmp_path: Path) -> None:
    Register(tmp_path).claim(Configuration(3, A))
    copies = backup(tmp_path)
    with pytest.raises(Superseded):
        copies.take_over()
    assert not copies.leads


def test_a_primary_is_given_up_after_silence_or_a_broken_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, now = backup(tmp_path), [100.0]
    copies.clock = lambda: now[0]
    copies.hear()
    now[0] += life.SILENT - 0.1
    assert not copies.is_forsaken
    now[0] += 0.2
    assert copies.is_forsaken
    copies.hear()
    copies.lose()
    assert not copies.is_forsaken
    now[0] += life.BROKEN + 0.1
    assert copies.is_forsaken


# ---------------------------------------------------------------- whose connection broke
class Client:
    """What stands for a connection to the primary, which agrees to be copied."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    def get(self, name: str, out_name: str, *, with_barrier: bool) -> LoDTensor:
        self.asked.append(out_name)
        return numbers([1, 2, int(A.process, 16), 1])

    def abandon(self) -> None:
        pass


@pytest.fixture
def lost() -> list[int | str]:
    """The trainers that a server was told to have lost, and "primary" for its primary."""
    return []


@pytest.fixture
def asked() -> list[str]:
    """What a backup has asked the primary for."""
    return []


@pytest.fixture
def replica(tmp_path: Path, lost: list[int | str], asked: list[str]) -> Replica:
    server: Any = SimpleNamespace(roster=None, _wake=lambda: None, stop=lambda: None, lost=lost.append)
    places, copies = ("127.0.0.1:1", "127.0.0.1:2"), backup(tmp_path)
    copies.lose = lambda: lost.append("primary")  # type: ignore[method-assign]
    return Replica(server, copies, places, lambda endpoint, number: Client(asked))


@pytest.mark.parametrize("trainer", [0, 1])
def test_a_copy_that_never_followed_anybody_misses_every_trainer_that_is_lost(
    replica: Replica, lost: list[int | str], trainer: int
) -> None:
    replica.lost(trainer)
    assert lost == [trainer]


def test_a_backup_misses_its_primary_and_every_trainer(
    replica: Replica, lost: list[int | str], asked: list[str], tmp_path: Path
) -> None:
    Register(tmp_path).claim(Configuration(2, A, B))
    joining = threading.Thread(target=replica.serve, daemon=True)
    joining.start()
    until(lambda: bool(asked[1:]))
    _, number, _ = asked[1].split(" ")
    for each in (0, int(number), int(number) + 1, 1):
        replica.lost(each)
    assert lost == [0, "primary", 1]
    replica.stop()
    joining.join(PATIENCE)


# ---------------------------------------------------------------- whom it refuses


def test_real_paddle_s_trainers_are_refused(replica: Replica) -> None:
    with pytest.raises(Refused, match="real Paddle's trainers cannot take part in a job with replicas"):
        replica.send(signal("w@GRAD"), Call(None, None, "ipv4:127.0.0.1:40000"))


def test_a_backup_serves_no_trainer(replica: Replica) -> None:
    with pytest.raises(Gone, match="this copy of pserver_0 does not serve"):
        replica.get(signal("w"), Call(0, 1))


def test_a_primary_that_nobody_asked_is_refused(replica: Replica) -> None:
    with pytest.raises(Refused, match="takes nothing from this primary: there is a newer one"):
        replica.send(signal(SENT), Call(FROM_PRIMARY + 7, 1))
