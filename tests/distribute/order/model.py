"""A model of synchronous jobs: trainers as lists of calls, servers with the `Rounds` of the real ones, links between them.

A trainer posts its calls without waiting, but stands still at one that reads until it has the answer. A link keeps its
calls in order. Everything else happens in any order: which link a server looks at next, when an update ends and the next
round opens, which link breaks. After a break, whatever the trainer has no answer to is sent again: the server knows by
their numbers the calls that it took, and answers reads anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import product
from typing import TypeVar

from fluidtool.distribute.pserver.rounds import Arrivals, Asked, Phase, Rounds
from fluidtool.distribute.rpc.handler import Call
from tests.distribute.order.exploring import Violated

T = TypeVar("T")
READS = (Asked.ROWS, Asked.PARAMETER)
BARRIERS = (Asked.SENT, Asked.FETCHED)
Gradients = frozenset[tuple[int, int]]  # (trainer, step)


class Keeps(Enum):
    """What a server keeps, which decides what trainers call for."""

    NOTHING = ()
    DENSE = (Asked.GRADIENT, Asked.PARAMETER)
    TABLE = (Asked.ROWS, Asked.GRADIENT)
    BOTH = (Asked.ROWS, Asked.GRADIENT, Asked.PARAMETER)


@dataclass(frozen=True, slots=True)
class Posted:
    """A call of a trainer. position: in its script."""

    position: int
    server: int
    asked: Asked
    step: int


def script(keeps: Sequence[Keeps], rounds: int) -> list[Posted]:
    """What a trainer calls for, in order: one thing of all servers before the next thing."""
    calls = [
        (number, asked, step)
        for step in range(rounds + 1)
        for asked in (Asked if step else (Asked.PARAMETER, Asked.FETCHED))
        for number, each in enumerate(keeps)
        if asked in BARRIERS or asked in each.value
    ]
    return [Posted(position, *call) for position, call in enumerate(calls)]


@dataclass(frozen=True, slots=True)
class Link:
    """A trainer's link to a server. next: of its calls, the one that the server looks at next; taken: how many calls the
    server took, which is more than that after a break.
    """

    next: int = 0
    taken: int = 0


Links = tuple[tuple[Link, ...], ...]  # by trainer, then server


@dataclass(frozen=True, slots=True)
class Server:
    """A server at one moment. waiting: the gradients of its round; summed: all that updates have summed."""

    number: int = 0
    phase: Phase = Phase.GET
    sent: frozenset[int] = frozenset()
    fetched: frozenset[int] = frozenset()
    waiting: Gradients = frozenset()
    summed: Gradients = frozenset()

    def rounds(self) -> Rounds:
        """Its state machine."""
        return Rounds(self.number, self.phase, Arrivals(set(self.sent)), Arrivals(set(self.fetched)))

    def with_rounds(self, rounds: Rounds) -> Server:
        """The server with its state machine moved on."""
        sent, fetched = frozenset(rounds.sent.named), frozenset(rounds.fetched.named)
        return replace(self, number=rounds.number, phase=rounds.phase, sent=sent, fetched=fetched)

    def turned(self, trainers: int) -> Server | None:
        """After what the main loop does next; None while it waits."""
        rounds = self.rounds()
        if rounds.phase is Phase.UPDATE:
            rounds.give()
            done = replace(self, waiting=frozenset(), summed=self.summed | self.waiting)
            return done.with_rounds(rounds)
        if len(rounds.fetched if rounds.phase is Phase.GET else rounds.sent) < trainers:
            return None
        if rounds.phase is Phase.GET:
            rounds.end()
            rounds.begin()
        else:
            rounds.close()
        return self.with_rounds(rounds)

    def answered(self, trainer: int, posted: Posted) -> Server | None:
        """After a call; None while it must wait. Raises Violated where the trainer is refused."""
        rounds, call = self.rounds(), Call(trainer, posted.step)
        due = rounds.due(posted.asked, call)
        if due.step != posted.step:
            raise Violated(f"trainer {trainer} is refused at {posted}: the server expects step {due.step}")
        if not rounds.ready(due):
            return None
        if posted.asked is Asked.GRADIENT:
            return replace(self, waiting=self.waiting | {(trainer, posted.step)})
        if posted.asked in BARRIERS:
            (rounds.sent if posted.asked is Asked.SENT else rounds.fetched).add(call, trainer)
        return self.with_rounds(rounds)


@dataclass(frozen=True, slots=True)
class State:
    """A job at one moment. breaks: how many links may still break."""

    servers: tuple[Server, ...]
    links: Links
    breaks: int


class Job:
    """A job of some trainers and servers, for so many rounds."""

    def __init__(self, keeps: Sequence[Keeps], trainers: int = 2, rounds: int = 3, breaks: int = 0) -> None:
        self.trainers, self.rounds, self.keeps = trainers, rounds, tuple(keeps)
        calls = script(keeps, rounds)
        self.calls = [[call for call in calls if call.server == number] for number in range(len(keeps))]
        links = tuple(tuple(Link() for _ in keeps) for _ in range(trainers))
        self._begin = State(tuple(Server() for _ in keeps), links, breaks)
        self._turned, self._answers = cache(Server.turned), cache(Server.answered)  # servers have few states, jobs many

    def start(self) -> State:
        """What it begins with."""
        return self._begin

    def ended(self, state: State) -> bool:
        """Whether every trainer has every answer."""
        return all(link.next == len(calls) for row in state.links for link, calls in zip(row, self.calls, strict=True))

    def check_end(self, state: State) -> None:
        """Raise Violated unless every update has summed every gradient of its round."""
        everything = self.gradients_until(self.rounds)
        for keeps, server in zip(self.keeps, state.servers, strict=True):
            if Asked.GRADIENT in keeps.value and server.summed | server.waiting != everything:
                raise Violated(f"a server that keeps {keeps.name} has summed {sorted(server.summed)}")

    def gradients_until(self, step: int) -> Gradients:
        """All gradients of these rounds."""
        return frozenset(product(range(self.trainers), range(1, step + 1)))

    def after(self, state: State) -> Iterator[State]:
        """Every state that may come next."""
        for number, server in enumerate(state.servers):
            turned = self._turned(server, self.trainers)
            if turned is not None:
                yield State(_with(state.servers, number, turned), state.links, state.breaks)
        for trainer, number in product(range(self.trainers), range(len(self.keeps))):
            yield from self._after_link(state, trainer, number)

    def _after_link(self, state: State, trainer: int, number: int) -> Iterator[State]:
        link, calls = state.links[trainer][number], self.calls[number]
        if state.breaks:
            for lost in range(self._surely_heard(state, trainer, number), link.next):
                links = _with_link(state.links, trainer, number, Link(lost, link.taken))
                yield State(state.servers, links, state.breaks - 1)
        if link.next < len(calls) and calls[link.next].position <= self._reach(state, trainer):
            server = self._answered(state.servers[number], trainer, calls[link.next], link)
            if server is not None:
                ahead = Link(link.next + 1, max(link.taken, link.next + 1))
                links = _with_link(state.links, trainer, number, ahead)
                yield State(_with(state.servers, number, server), links, state.breaks)

    def _surely_heard(self, state: State, trainer: int, number: int) -> int:
        """How many answers of a link must have come: those to reads behind which the trainer has called again."""
        links = zip(state.links[trainer], self.calls, strict=True)
        last = max((calls[link.taken - 1].position for link, calls in links if link.taken), default=-1)
        calls = self.calls[number][: state.links[trainer][number].next]
        return max((i + 1 for i, call in enumerate(calls) if call.asked in READS and call.position < last), default=0)

    def _answered(self, server: Server, trainer: int, posted: Posted, link: Link) -> Server | None:
        if link.next < link.taken and posted.asked not in READS:
            return server
        found = self._answers(server, trainer, posted)
        if found is not None and posted.asked in READS:
            wanted = self.gradients_until(posted.step - (posted.asked is Asked.ROWS))
            if server.summed != wanted:
                raise Violated(f"trainer {trainer} reads {sorted(server.summed)} at {posted}")
        return found

    def _reach(self, state: State, trainer: int) -> int:
        """The last call of a trainer's script that is posted: the first read that it has no answer to."""
        unanswered = (
            call.position
            for link, calls in zip(state.links[trainer], self.calls, strict=True)
            for call in calls[link.next :]
            if call.asked in READS
        )
        return min(unanswered, default=1 << 30)


def _with_link(links: Links, trainer: int, number: int, link: Link) -> Links:
    return _with(links, trainer, _with(links[trainer], number, link))


def _with(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
