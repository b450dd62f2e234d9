"""Servers of elastic jobs, driven by calls as a transport makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.pserver import registrar
from fluidtool.distribute.pserver.follower import OVER
from fluidtool.distribute.pserver.stragglers import StragglerPolicy
from fluidtool.distribute.rpc.handler import TERM, Barrier, Call, LeftOut, Message, Refused
from fluidtool.distribute.rpc.methods import AHEAD, CLOSED, JOIN, LEAVE, ROLL
from fluidtool.errors import UsageError
from fluidtool.tensor import LoDTensor
from tests.distribute.pserver.support import Running, Several, line, rows, running, server_role, start, table, until

Patch = pytest.MonkeyPatch
SERVER = "127.0.0.1:6174"


@dataclass
class Trainer:
    """One trainer, as its connection shows it to the server."""

    handler: Any
    number: int
    process: str = "first"
    term: int = 0
    step: int = 0

    @property
    def call(self) -> Call:
        return Call(self.number, TERM * self.term + self.step, f"ipv4:127.0.0.1:{40000 + self.number}")

    def ask(self, name: str, out_name: str = "") -> list[int]:
        found = self.handler.get_without_barrier(Message(name, None, out_name, "", self.number), self.call)
        return [int(number) for number in found.array]

    def join(self) -> None:
        term, number = self.ask(JOIN, f"{self.number} {self.process}")
        self.term, self.step = term, number

    def begin(self) -> None:
        """After joining: fetch, and go on to the first step."""
        self.get("w")
        self.step += 1

    def send(self, value: float) -> None:
        for name, shape in (("w", (4, 1)), ("b", (1,))):
            array = np.full(shape, value, np.float32)
            self.handler.send(Message(f"{name}@GRAD.trainer_{self.number}", LoDTensor(array)), self.call)

    def sent(self) -> None:
        self.handler.barrier(Barrier.SEND, self.call)

    def get(self, name: str) -> float:
        value = self.handler.get(Message(name, None, name, "", self.number), self.call)
        return float(value.array.ravel()[0])

    def trains(self, value: float) -> float:
        """A step; the weight afterwards."""
        self.ask(ROLL)
        self.send(value)
        self.sent()
        found = self.get("w")
        self.step += 1
        return found


@contextmanager
def elastic(
    monkeypatch: Patch,
    trainers: int = 2,
    starting: int | None = None,
    programs: Any = None,
    servers: str = SERVER,
    **env: str,
) -> Iterator[Running]:
    """The only server of a job, which keeps its roll; the first round waits for `starting` trainers."""
    monkeypatch.setenv("FLUIDTOOL_ELASTIC", "1")
    monkeypatch.setenv("FLUIDTOOL_ELASTIC_TRAINERS", str(trainers if starting is None else starting))
    monkeypatch.setenv("FLUIDTOOL_ELASTIC_SERVERS", servers)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    role = server_role(programs or line(), trainers)
    with running(role.main, start(role), monkeypatch) as server:
        yield server


def begun(server: Running, *numbers: int) -> list[Trainer]:
    """These trainers, in their first step."""
    found = [Trainer(server.handler, number) for number in numbers]
    Several(*(each.join for each in found)).join()
    for each in found:
        each.begin()
    return found


# ---------------------------------------------------------------- the mean
def test_the_mean_is_that_of_the_trainers_of_the_round(monkeypatch: Patch) -> None:
    with elastic(monkeypatch, 4, starting=3) as server:
        a, b, c = begun(server, 0, 1, 2)
        found: dict[int, float] = {}
        jobs = zip((a, b, c), (1.0, 2.0, 6.0), strict=True)
        Several(*(lambda t=t, v=v: found.update({t.number: t.trains(v)}) for t, v in jobs)).join()
        assert found == pytest.approx(dict.fromkeys(range(3), 0.5 - 0.1 * 3.0), abs=1e-7)


def test_rows_of_a_table_are_the_mean_of_the_trainers_of_the_round(monkeypatch: Patch) -> None:
    with elastic(monkeypatch, 4, starting=1, programs=table()) as server:
        a = Trainer(server.handler, 0)
        a.join()
        a.step += 1
        a.handler.send(Message("emb@GRAD.trainer_0", rows([7], [[2.0] * 4])), a.call)
        a.sent()
        a.get("emb")
        a.step += 1
        ids = LoDTensor(np.array([[7], [1]], np.int64))
        found = server.handler.prefetch(Message("rows", ids, "out", "emb", 0), a.call).array
        np.testing.assert_allclose(found[:, 0], [1.0 - 0.1 * 2.0, 1.0], rtol=0, atol=1e-7)


def test_all_trainers_together_learn_the_bits_of_a_job_that_is_not_elastic(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        a, b = begun(server, 0, 1)
        Several(lambda: a.trains(0.3), lambda: b.trains(0.7)).join()
        assert server.value("w").ravel()[0] == np.float32(0.5) - np.float32(0.1) * (
            (np.float32(0.3) + np.float32(0.7)) * np.float32(0.5)
        )


# ---------------------------------------------------------------- coming and going
def test_the_first_round_waits_for_the_trainers_that_were_started(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        a, b = Trainer(server.handler, 0), Trainer(server.handler, 1)
        waiting = Several(a.join)
        until(lambda: server.handler.waiting == 1)
        b.join()
        waiting.join()
        assert (a.step, b.step) == (0, 0) and a.term != b.term


def test_one_who_joins_enters_the_next_round_with_its_parameters(monkeypatch: Patch) -> None:
    with elastic(monkeypatch, starting=1) as server:
        (a,) = begun(server, 0)
        b = Trainer(server.handler, 1)
        joining = Several(b.join)
        until(lambda: server.handler.waiting == 1)
        first = a.trains(1.0)
        joining.join()
        assert b.step == 1 and b.get("w") == first
        b.step += 1
        assert b.ask(ROLL) == [0, 1]


def test_one_who_is_asked_to_leave_makes_the_step_that_others_count_on(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        a, b = begun(server, 0, 1)
        assert b.ask(LEAVE) == [1]
        both = Several(lambda: a.trains(1.0), lambda: b.trains(3.0))
        both.join()
        assert server.value("w").ravel()[0] == pytest.approx(0.5 - 0.1 * 2.0)
        assert a.ask(ROLL) == [0]


def test_the_trainers_of_the_next_round_can_be_asked_for_before_it(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        a, b = begun(server, 0, 1)
        Several(lambda: a.trains(1.0), lambda: b.trains(3.0)).join()
        assert a.ask(ROLL, AHEAD) == [0, 1]


def test_one_who_asks_ahead_is_not_kept_where_no_round_can_open(monkeypatch: Patch) -> None:
    """Behind its question waits that it leaves, or has finished."""
    with elastic(monkeypatch, FLUIDTOOL_ELASTIC="2") as server:
        a, b = begun(server, 0, 1)
        assert b.ask(LEAVE) == [1]
        Several(lambda: a.trains(1.0), lambda: b.trains(3.0)).join()
        assert a.ask(ROLL, AHEAD) == []
        assert a.ask(LEAVE) == [0]


def test_what_one_who_died_has_sent_in_part_counts_nowhere(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        monkeypatch.setattr(registrar, "AWAY", 0.05)
        a, b = begun(server, 0, 1)
        b.send(100.0)
        server.handler.lost(1)
        assert a.trains(1.0) == pytest.approx(0.5 - 0.1 * 1.0)


def test_what_one_who_died_has_sent_whole_counts_once(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        monkeypatch.setattr(registrar, "AWAY", 0.05)
        a, b = begun(server, 0, 1)
        b.send(3.0)
        b.sent()
        server.handler.lost(1)
        assert a.trains(1.0) == pytest.approx(0.5 - 0.1 * 2.0)
        assert a.trains(0.0) == pytest.approx(0.5 - 0.1 * 2.0)


def test_one_who_starts_again_is_not_waited_for_and_its_older_process_is_told(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        a, old = begun(server, 0, 1)
        new = Trainer(server.handler, 1, "second")
        joining = Several(new.join)
        until(lambda: server.handler.waiting == 1)
        a.trains(1.0)
        joining.join()
        assert new.step == 1
        with pytest.raises(Refused, match="trainer 1 was started again"):
            old.sent()
        with pytest.raises(Refused, match="trainer 1 was started again"):
            Trainer(server.handler, 1, "third", old.term).join()


def test_one_who_dies_while_it_waits_to_take_part_never_does(monkeypatch: Patch) -> None:
    with elastic(monkeypatch, 3, starting=1) as server:
        (a,) = begun(server, 0)
        dying = Trainer(server.handler, 1)
        joining = Several(dying.join)
        until(lambda: server.handler.waiting == 1)
        server.handler.lost(1)
        a.trains(1.0)
        assert a.ask(ROLL) == [0]
        with pytest.raises(LeftOut, match="left out before its first step"):
            joining.join()


def test_one_who_is_left_out_hears_it_whatever_it_asks(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        monkeypatch.setattr(registrar, "AWAY", 0.05)
        a, b = begun(server, 0, 1)
        server.handler.lost(1)
        a.trains(1.0)
        for ask in (b.sent, lambda: b.get("w"), lambda: b.ask(ROLL), lambda: b.send(1.0)):
            with pytest.raises(LeftOut, match="goes on without trainer 1"):
                ask()
        b.process = "second"
        joining = Several(b.join)
        until(lambda: server.handler.waiting == 1)
        a.trains(1.0)
        joining.join()
        assert b.step == 2


def test_repeated_calls_of_a_round_change_nothing(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        a, b = begun(server, 0, 1)
        for _ in range(2):
            a.send(1.0)
            a.sent()
        b.send(3.0)
        b.sent()
        assert a.get("w") == pytest.approx(0.5 - 0.1 * 2.0)
        a.sent()  # of the round that is over
        a.send(50.0)
        a.step += 1
        b.step += 1
        Several(lambda: a.trains(0.0), lambda: b.trains(0.0)).join()
        assert server.value("w").ravel()[0] == pytest.approx(0.5 - 0.1 * 2.0)


def test_the_job_is_over_when_all_that_take_part_have_finished(monkeypatch: Patch) -> None:
    with elastic(monkeypatch, 4, starting=2) as server:
        a, b = begun(server, 0, 1)
        a.handler.complete(0, a.call)
        assert server.thread.is_alive()
        b.handler.complete(1, b.call)
        server.wait()


def test_another_server_hears_whose_gradients_count_and_that_the_job_is_over(monkeypatch: Patch) -> None:
    with elastic(monkeypatch, servers=f"{SERVER},127.0.0.1:6175") as server:
        other = Trainer(server.handler, 2, term=1, step=1)
        heard: list[list[int]] = []
        asking = Several(lambda: heard.append(other.ask(CLOSED)))
        a, b = begun(server, 0, 1)
        Several(lambda: a.trains(1.0), lambda: b.trains(3.0)).join()
        asking.join()
        assert heard == [[0, a.term, 1, b.term]]
        other.step = 2
        asking = Several(lambda: heard.append(other.ask(CLOSED)))
        a.handler.complete(0, a.call)
        b.handler.complete(1, b.call)
        asking.join()
        assert heard[1] == OVER


# ---------------------------------------------------------------- stragglers
def test_a_straggler_is_left_out_and_the_round_ends(monkeypatch: Patch) -> None:
    with elastic(monkeypatch, FLUIDTOOL_STRAGGLERS="drop:2") as server:
        a, b = begun(server, 0, 1)
        Several(lambda: a.trains(0.0), lambda: b.trains(0.0)).join()
        assert a.trains(1.0) == pytest.approx(0.5 - 0.1 * 1.0)  # b does not come
        with pytest.raises(LeftOut):
            b.sent()
        assert server.handler.stragglers.late == {1: 1} and server.handler.changes["left_out"] == 1


def test_a_straggler_that_is_only_reported_is_waited_for(
    monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    with elastic(monkeypatch, FLUIDTOOL_STRAGGLERS="report") as server:
        a, b = begun(server, 0, 1)
        Several(lambda: a.trains(0.0), lambda: b.trains(0.0)).join()
        waiting = Several(lambda: a.trains(1.0))
        until(lambda: bool(server.handler.stragglers.late))
        b.trains(3.0)
        waiting.join()
        assert server.value("w").ravel()[0] == pytest.approx(0.5 - 0.1 * 2.0)
        assert server.handler.stragglers.late == {1: 1}
    assert "round 2: trainer 1 has not come after" in capsys.readouterr().err


# ---------------------------------------------------------------- what cannot work
def test_a_trainer_of_paddle_is_told_that_it_cannot_take_part(monkeypatch: Patch) -> None:
    with elastic(monkeypatch) as server:
        paddle = Call(None, None, "ipv4:127.0.0.1:40001")
        gradient = Message("w@GRAD.trainer_0", LoDTensor(np.ones((4, 1), np.float32)))
        asks: list[Callable[[], Any]] = [
            lambda: server.handler.get(Message("w", None, "w"), paddle),
            lambda: server.handler.send(gradient, paddle),
            lambda: server.handler.barrier(Barrier.SEND, paddle),
        ]
        for ask in asks:
            with pytest.raises(Refused, match=r"protocol of Paddle 1\.8\.5 has no way to join"):
                ask()


def test_a_job_for_one_trainer_cannot_be_elastic(monkeypatch: Patch) -> None:
    with (
        pytest.raises(UsageError, match="programs of this job are for one trainer"),
        elastic(monkeypatch, 1) as server,
    ):
        server.wait()


def test_more_trainers_than_there_are_programs_for_cannot_be_needed(monkeypatch: Patch) -> None:
    with (
        pytest.raises(UsageError, match="FLUIDTOOL_ELASTIC_TRAINERS is 3, but the programs of this job are for 2"),
        elastic(monkeypatch, 2, starting=3) as server,
    ):
        server.wait()


def test_stragglers_of_a_job_that_is_not_elastic_cannot_be_left_out(monkeypatch: Patch) -> None:
    monkeypatch.setenv("FLUIDTOOL_STRAGGLERS", "drop")
    role = server_role(line(), 2)
    with (
        pytest.raises(UsageError, match="stragglers can be left out only where trainers may leave"),
        running(role.main, start(role), monkeypatch) as server,
    ):
        server.wait()


@pytest.mark.parametrize("text", ["", "often", "drop:1", "report:x", "drop:-3", "drop:inf", "report:nan"])
def test_a_policy_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be report or drop"):
        StragglerPolicy.of(text, "--stragglers")
