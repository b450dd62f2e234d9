"""A step of distributed training as a simulation of events: processes that share the cores of machines, and networks.

Every process does one thing after another; processes of one machine share its cores evenly. A trainer computes, sends to
every server, and waits for all answers. A server takes what comes in its order: a synchronous one updates when all trainers
have sent, and answers then; an asynchronous one updates and answers for each. What anything costs is given (`Costs`, measured
by benchmarks.scaling_points); nothing is fitted to the results that are predicted.

Where more processes work than there are cores, some take turns on one: each finds the caches of its core filled by another, and
needs more processor time for the same work.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from statistics import NormalDist

Then = Callable[[], None]
Spent = Callable[[float], None]  # is told processor seconds
WARM = 2  # steps that do not count


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds of one step. compute: of a trainer. send, take: of a trainer, for each server. serve, give: of a
    server, for what one trainer sends and is answered. update: of a server, for each round (without barriers: for each
    trainer). pushed, pulled: bytes that a trainer sends to, and gets from, one server. pieces: in which it sends and gets them: a
    server serves one while the trainer sends the next.
    """

    compute: float = 0.0
    send: float = 0.0
    take: float = 0.0
    serve: float = 0.0
    give: float = 0.0
    update: float = 0.0
    pushed: float = 0.0
    pulled: float = 0.0
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class Network:
    """One machine's connection: bytes per second in each direction, seconds for the first byte."""

    rate: float = math.inf
    latency: float = 0.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Who runs where. cores: of the one machine that everything shares; None: every process has a machine of its own. used: the
    part of the cores' time that processes get. loss: by how much of itself work takes longer where processes take turns on a core.

    alike: servers that do what the simulated ones do, beside them; a trainer's connection is shared by what goes to all.
    together: all trainers are one process, as in benchmarks.server_load.
    """

    servers: int
    trainers: int
    cores: int | None = None
    used: float = 1.0
    loss: float = 0.0
    alike: int = 1
    together: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """seconds: of a step, by the clock (mean over all trainers). server, trainer: processor seconds for one step of one trainer, of
    all servers and of itself.
    """

    seconds: float
    server: float
    trainer: float


class Clock:
    """What happens, in its order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Then]] = []
        self._number = itertools.count()

    def at(self, when: float, then: Then) -> None:
        heapq.heappush(self._events, (when, next(self._number), then))

    def run(self) -> None:
        while self._events:
            self.now, _, then = heapq.heappop(self._events)
            then()


class Machine:
    """Shares its cores evenly among the processes that work (`Layout` says what used and loss are)."""

    def __init__(self, clock: Clock, cores: int, used: float = 1.0, loss: float = 0.0) -> None:
        self._clock, self._cores, self._used, self._loss = clock, cores, used, loss
        # What each of the working processes has done, and the processor time it was given, since the beginning.
        self._done = self._given = self._since = 0.0
        self._ends: list[tuple[float, int, float, Spent]] = []
        self._number, self._version = itertools.count(), 0

    def work(self, seconds: float, then: Spent) -> None:
        """A process begins work that takes so many seconds of a core that it has for itself."""
        self._advance()
        heapq.heappush(self._ends, (self._done + seconds, next(self._number), self._given, then))
        self._plan()

    def _share(self) -> float:
        """The processor time that each process is given in a second."""
        return min(1.0, self._cores * self._used / len(self._ends)) if self._ends else 0.0

    def _effort(self) -> float:
        """Processor time that the work of a second takes: with one process more than cores, there are turns on one core only."""
        turns = max(0, len(self._ends) - self._cores) / self._cores
        return 1 + self._loss * min(1.0, turns)

    def _advance(self) -> None:
        given = (self._clock.now - self._since) * self._share()
        self._given += given
        self._done += given / self._effort()
        self._since = self._clock.now

    def _plan(self) -> None:
        self._version += 1
        if self._ends:
            left = max(self._ends[0][0] - self._done, 0.0)
            version = self._version
            self._clock.at(self._clock.now + left * self._effort() / self._share(), lambda: self._end(version))

    def _end(self, version: int) -> None:
        if version != self._version:
            return  # others began meanwhile
        self._advance()
        until, _, before, then = heapq.heappop(self._ends)
        self._done = max(self._done, until)
        self._plan()
        then(self._given - before)


class Process:
    """Does one thing after another."""

    def __init__(self, clock: Clock, machine: Machine) -> None:
        self._clock, self._machine = clock, machine
        self._todo: deque[tuple[float, float, Then]] = deque()
        self._is_busy = False
        self.used = 0.0

    def do(self, seconds: float, then: Then, not_before: float = 0.0) -> None:
        """After what it does already: work so long, and be done no sooner than that: bytes are dealt with as they come."""
        self._todo.append((seconds, not_before, then))
        if not self._is_busy:
            self._next()

    def _next(self) -> None:
        if not self._todo:
            self._is_busy = False
            return
        self._is_busy = True
        seconds, not_before, then = self._todo.popleft()

        def end() -> None:
            then()
            self._next()

        def worked(spent: float) -> None:
            self.used += spent
            if self._clock.now < not_before:
                self._clock.at(not_before, end)
            else:
                end()

        self._machine.work(seconds, worked)


@dataclass(slots=True)
class _Link:
    """One direction of a server's connection."""

    network: Network
    free: float = 0.0

    def carry(self, now: float, size: float, own: float) -> tuple[float, float]:
        """When the first and the last byte arrive; own: bytes that the other side has to move in all meanwhile."""
        begin = max(now, self.free)
        self.free = begin + size / self.network.rate
        return begin + self.network.latency, max(self.free, now + own / self.network.rate) + self.network.latency


@dataclass(slots=True)
class _Server:
    process: Process
    incoming: _Link
    outgoing: _Link
    sent: list[int] = field(default_factory=list)  # the trainers that have sent in this round


class _Job:
    """One simulation."""

    def __init__(
        self, costs: Costs, layout: Layout, network: Network, sync: bool, steps: int, variation: float
    ) -> None:
        self.costs, self.layout, self.network, self.sync, self.steps = costs, layout, network, sync, steps
        self.clock = Clock()
        shared = None if layout.cores is None else Machine(self.clock, layout.cores, layout.used, layout.loss)

        def process() -> Process:
            return Process(self.clock, shared or Machine(self.clock, 1))

        self.servers = [_Server(process(), _Link(network), _Link(network)) for _ in range(layout.servers)]
        one = process() if layout.together else None
        self.trainers = [one or process() for _ in range(layout.trainers)]
        self._left = [0] * layout.trainers
        self._made = [0] * layout.trainers
        self._ended: list[list[float]] = [[] for _ in range(layout.trainers)]
        normal = NormalDist()
        quantiles = [normal.inv_cdf((place + 0.5) / layout.trainers) for place in range(layout.trainers)]
        self._paces = [max(1 + variation * quantile, 0.0) for quantile in quantiles]

    def run(self) -> Result:
        for trainer in range(self.layout.trainers):
            self._begin(trainer)
        self.clock.run()
        times = [(ends[-1] - ends[WARM - 1]) / (self.steps - WARM) for ends in self._ended]
        used = sum(server.process.used for server in self.servers) * self.layout.alike
        own = sum(trainer.used for trainer in dict.fromkeys(self.trainers))
        made = self.steps * self.layout.trainers
        return Result(sum(times) / len(times), used / made, own / made)

    def _begin(self, trainer: int) -> None:
        process = self.trainers[trainer]
        self._left[trainer] = len(self.servers) * self.costs.pieces
        # Whoever is the slowest differs from step to step; what counts is that there is one in each.
        pace = self._paces[(trainer * 7 + self._made[trainer]) % len(self._paces)]

        def send() -> None:
            for piece in range(self.costs.pieces):
                for server in self.servers:
                    process.do(
                        self.costs.send / self.costs.pieces, partial(self._push, trainer, server, self._is_last(piece))
                    )

        process.do(self.costs.compute * pace, send)

    def _is_last(self, piece: int) -> bool:
        return piece == self.costs.pieces - 1

    def _whole(self, size: float) -> float:
        """Of a piece: what a trainer's connection carries while it goes to, or comes from, one server."""
        return size * self.layout.alike * len(self.servers) / self.costs.pieces

    def _push(self, trainer: int, server: _Server, last: bool) -> None:
        pushed = self.costs.pushed
        begin, end = server.incoming.carry(self.clock.now, pushed / self.costs.pieces, self._whole(pushed))
        self.clock.at(begin, lambda: self._arrive(trainer, server, last, end))

    def _arrive(self, trainer: int, server: _Server, last: bool, end: float) -> None:
        work = self.costs.serve / self.costs.pieces
        if not last:
            server.process.do(work, lambda: None, end)
        elif self.sync:
            server.process.do(work, lambda: self._received(trainer, server), end)
        else:  # all that a trainer asks for is done before what the next one brings
            work += self.costs.update + self.costs.give
            server.process.do(work, lambda: self._given(trainer, server, self.costs.give, self.costs.pieces), end)

    def _received(self, trainer: int, server: _Server) -> None:
        server.sent.append(trainer)
        if len(server.sent) == self.layout.trainers:
            server.process.do(self.costs.update, lambda: self._give_all(server))

    def _give_all(self, server: _Server) -> None:
        sent, server.sent = server.sent, []
        each = self.costs.give / self.costs.pieces
        for trainer in sent:
            for _ in range(self.costs.pieces):
                server.process.do(each, partial(self._given, trainer, server, each, 1))

    def _given(self, trainer: int, server: _Server, seconds: float, pieces: int) -> None:
        """What a server gives travels while it is made: the last byte leaves when both are done."""
        begun, part = self.clock.now - seconds, pieces / self.costs.pieces
        _, last = server.outgoing.carry(begun, self.costs.pulled * part, self._whole(self.costs.pulled) * pieces)
        self.clock.at(max(last, self.clock.now + self.network.latency), lambda: self._take(trainer, pieces))

    def _take(self, trainer: int, pieces: int) -> None:
        work = self.costs.take * pieces / self.costs.pieces
        self.trainers[trainer].do(work, lambda: self._taken(trainer, pieces))

    def _taken(self, trainer: int, pieces: int) -> None:
        self._left[trainer] -= pieces
        if self._left[trainer]:
            return
        self._ended[trainer].append(self.clock.now)
        self._made[trainer] += 1
        if self._made[trainer] < self.steps:
            self._begin(trainer)


@cache  # pages and tests ask for the same jobs again and again
def simulate(
    costs: Costs,
    layout: Layout,
    network: Network | None = None,
    *,
    sync: bool = True,
    steps: int = 12,
    variation: float = 0.0,
) -> Result:
    """So many steps of a job. variation: by how much of itself the computing of trainers differs (a normal distribution)."""
    return _Job(costs, layout, network or Network(), sync, steps, variation).run()
