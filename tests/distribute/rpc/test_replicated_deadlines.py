"""A call to a server of which there are two copies ends at one instant, no matter how many times it is made again.

Time passes only where a test says so: a connection that breaks, an answer that does not come, a pause.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

from fluidtool.distribute.rpc import calls, replicated
from fluidtool.distribute.rpc.calls import Pending
from fluidtool.distribute.rpc.client import connect
from fluidtool.distribute.rpc.handler import Gone, Late, Message, RemoteError
from fluidtool.distribute.rpc.lasting import Failure
from fluidtool.distribute.rpc.methods import Method
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.replicated import ReplicatedTransport
from fluidtool.distribute.rpc.statuses import UNAVAILABLE
from fluidtool.tensor import LoDTensor

DEADLINE = 20.0
A_LITTLE = 1.0  # seconds that a process may be late where others have the processors
FIRST, SECOND = "127.0.0.1:1", "127.0.0.1:2"


class Clock:
    """What stands for the module `time`; threads beside the test's wait for real, and for long."""

    def __init__(self) -> None:
        self.now = 100.0
        self._thread = threading.current_thread()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is self._thread:
            self.now += seconds
        else:
            threading.Event().wait(600.0)


class Line:
    """A connection that does with a call that waits what the test says: break, answer, or let time pass."""

    def __init__(self, does: Callable[[Line, Pending], None]) -> None:
        self.pending: dict[int, Pending] = {}
        self.ended, self.failure = False, None
        self._does = does

    def send(self, pending: Pending) -> None:
        self.pending[pending.number] = pending

    def flush(self) -> None:
        pass

    peek = flush

    def await_answer(self, pending: Pending) -> None:
        self._does(self, pending)

    def fail(self, error: RemoteError) -> None:
        for pending in self.pending.values():
            pending.error, pending.done = error, True

    def cancel(self) -> None:
        self.ended = True


@dataclass
class Copies:
    """Two copies, and what clients of them do. terms: of each copy that serves; the others say nothing for as long as they may.

    asked: of each question, the place and the instant up to which the answer may take.
    """

    clock: Clock
    does: Callable[[Line, Pending], None]
    terms: dict[str, int] = field(default_factory=lambda: {FIRST: 1})
    lines: list[Line] = field(default_factory=list)
    asked: list[tuple[str, float]] = field(default_factory=list)

    def client_of(self, place: str, patience: float) -> Any:
        return Asker(self, place, patience, self.clock.now + patience)

    def transport(self, deadline: float = DEADLINE) -> ReplicatedTransport:
        return ReplicatedTransport(self.client_of, (FIRST, SECOND), TransportOptions(deadline=deadline))

    def breaks_after(self, seconds: float) -> Callable[[Line, Pending], None]:
        def breaks(line: Line, pending: Pending) -> None:
            self.clock.now += min(seconds, max(pending.left, 0.0))
            if pending.left > 0:
                line.ended, line.failure = True, Failure(UNAVAILABLE, "it broke")  # type: ignore[assignment]

        return breaks


@dataclass
class Asker:
    """A client of one copy. Several may wait at once, each until its own instant: end."""

    copies: Copies
    place: str
    patience: float
    end: float

    def get(self, name: str, *, with_barrier: bool) -> LoDTensor:
        self._note()
        term = self.copies.terms.get(self.place, 0)
        if not term:
            self.copies.clock.now = max(self.copies.clock.now, self.end)
            raise Late("nobody answers")
        return LoDTensor(np.array([1, term, 1, 1], np.int64))

    def open_line(self, patience: float) -> Line:
        self._note()
        line = Line(self.copies.does)
        self.copies.lines.append(line)
        return line

    def _note(self) -> None:
        self.copies.asked.append((self.place, self.end))

    def abandon(self) -> None:
        pass

    close = abandon


def answers(line: Line, pending: Pending) -> None:
    pending.reply, pending.done = Message("w"), True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (calls, replicated):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def copies(clock: Clock) -> Copies:
    def say_nothing(line: Line, pending: Pending) -> None:
        clock.now += max(pending.left, 0.0)

    return Copies(clock, say_nothing)


def read(clock: Clock, number: int = 1, deadline: float = DEADLINE) -> Pending:
    """A call that is made now."""
    return Pending(number, 0, Method.GetVariable, Message("w"), clock.now + deadline, 3)


def made(transport: ReplicatedTransport, pending: Pending) -> Message:
    transport.post(pending)
    return transport.wait(pending)


def test_a_call_to_a_server_that_says_nothing_is_late_at_its_deadline(clock: Clock, copies: Copies) -> None:
    with pytest.raises(Late, match=r"no answer to GetVariable of 'w' within 20 s"):
        made(copies.transport(), read(clock))
    assert clock.now == pytest.approx(120.0)


@pytest.mark.parametrize("seconds", [0.5, 3.0, 7.0, 19.0])
def test_a_call_whose_connections_break_one_after_the_other_ends_at_the_instant_of_its_first_try(
    clock: Clock, copies: Copies, seconds: float
) -> None:
    copies.terms[SECOND] = 1
    copies.does = copies.breaks_after(seconds)
    pending = read(clock)
    with pytest.raises(Late):
        made(copies.transport(), pending)
    assert clock.now == pytest.approx(120.0) and pending.deadline == 120.0
    assert len(copies.lines) >= int(DEADLINE / (seconds + replicated.ANSWER))


def test_neither_asking_who_serves_nor_connecting_may_take_longer_than_the_call(clock: Clock, copies: Copies) -> None:
    copies.does = copies.breaks_after(3.0)
    with pytest.raises(RemoteError):
        made(copies.transport(), read(clock))
    assert {place for place, _ in copies.asked} == {FIRST, SECOND}
    assert all(end <= 120.0 + 1e-6 for _, end in copies.asked)


def test_a_call_that_finds_neither_copy_for_long_ends_at_its_deadline(clock: Clock, copies: Copies) -> None:
    copies.terms.clear()
    with pytest.raises(Gone, match=r"neither copy of the server at 127.0.0.1:1 serves \(the other is at 127.0.0.1:2\)"):
        made(copies.transport(), read(clock))
    assert clock.now == pytest.approx(120.0)


def test_a_call_that_had_no_time_to_find_a_copy_is_late_and_says_nothing_of_losses(
    clock: Clock, copies: Copies
) -> None:
    def breaks(line: Line, pending: Pending) -> None:
        copies.breaks_after(18.0)(line, pending)
        copies.terms.clear()

    copies.does = breaks
    copies.terms[SECOND] = 1
    pending = read(clock)
    transport = copies.transport()
    with pytest.raises(Late, match=r"had 2\.0 s left .* its deadline is 20 s \(FLAGS_rpc_deadline\)") as caught:
        made(transport, pending)
    assert clock.now == pytest.approx(120.0)
    assert "both are lost" not in str(caught.value)


def test_a_call_whose_deadline_has_passed_asks_nobody(clock: Clock, copies: Copies) -> None:
    pending = read(clock)
    clock.now += DEADLINE
    with pytest.raises(Late, match=r"had 0\.0 s left"):
        made(copies.transport(), pending)
    assert not copies.asked


def test_a_deadline_that_was_brought_forward_stays_so(clock: Clock, copies: Copies) -> None:
    copies.terms[SECOND] = 1
    copies.does = copies.breaks_after(1.0)
    transport, pending = copies.transport(), read(clock)
    transport.post(pending)
    pending.deadline = clock.now + 5.0
    with pytest.raises(Late):
        transport.wait(pending)
    assert clock.now == pytest.approx(105.0)


def test_a_call_is_answered_by_the_copy_that_takes_over_in_time(clock: Clock, copies: Copies) -> None:
    def breaks(line: Line, pending: Pending) -> None:
        copies.breaks_after(15.0)(line, pending)
        copies.terms, copies.does = {SECOND: 2}, answers

    copies.does = breaks
    assert made(copies.transport(), read(clock)).name == "w"
    assert 115.0 < clock.now < 120.0 and copies.asked[-1][0] == SECOND


def test_the_copy_that_serves_is_found_with_little_time_where_the_first_one_says_nothing(
    clock: Clock, copies: Copies
) -> None:
    copies.terms, copies.does = {SECOND: 2}, answers
    assert made(copies.transport(), read(clock, deadline=0.3)).name == "w"
    assert clock.now < 100.3


def test_both_copies_are_asked_at_once(clock: Clock, copies: Copies) -> None:
    copies.terms = {}
    with pytest.raises(Gone):
        made(copies.transport(), read(clock))
    questions = sorted(copies.asked[:2])
    assert questions == [(FIRST, 100.0 + replicated.ANSWER), (SECOND, 100.0 + replicated.ANSWER)]


def test_the_next_call_has_all_of_its_own_time(clock: Clock, copies: Copies) -> None:
    transport = copies.transport()
    for number in (1, 2):
        with pytest.raises(Late):
            made(transport, read(clock, number))
        assert clock.now == pytest.approx(100.0 + number * DEADLINE)


def test_what_was_asked_on_a_connection_that_broke_before_the_next_call_is_asked_again(
    clock: Clock, copies: Copies
) -> None:
    transport, first, second = copies.transport(), read(clock, 1), read(clock, 2)
    transport.post(first)
    copies.lines[0].ended = True
    copies.does = answers
    transport.post(second)
    assert list(copies.lines[1].pending) == [1, 2]
    assert transport.wait(first).name == transport.wait(second).name == "w"
    assert clock.now < 120.0


def test_two_servers_that_take_connections_and_say_nothing_are_left_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        places = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]
        client = connect(places[0], 0, TransportOptions(deadline=1.5, replicas={places[0]: places[1]}))
        began = time.monotonic()
        with pytest.raises(Late, match="neither copy of the server"):
            client.get("w")
        assert 1.4 < time.monotonic() - began < 1.5 + A_LITTLE
        client.close()
