"""A model of servers with two copies: what the primary passes on, who takes over, who joins, and trainers that look for who serves.

The decisions are those of the real copies (`succession`). Everything happens in any order, and nothing is known to be dead: a
backup takes over, and a primary gives its backup up, whenever it likes, as often as `doubts` allows; so a copy that is halted, and
comes back when another one serves, is among the orders. A process dies only while the newest configuration names two
that live. Trainers make one call after the other; what they have sent since the last barrier that was answered they send again
to the copy that they find next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from fluidtool.distribute.pserver.replicas.succession import (
    Configuration,
    Copy,
    Part,
    alone,
    paired,
    part_of,
    succeeded,
)
from tests.distribute.order.exploring import Violated
from tests.distribute.order.model import T

Done = frozenset[tuple[int, int]]  # (trainer, step)
Passed = tuple[str, int, int]  # what, trainer, step; ("closed", 0, round), ("everything", 0, 0)
GRADIENT, BARRIER, PARAMETER = "gradient", "barrier", "parameter"


@dataclass(frozen=True, slots=True)
class Process:
    """A copy at one moment. applied: of an asynchronous job in this order; of a synchronous one by round."""

    me: Copy
    state: str = "gone"  # or leads, backs, joins
    found: Configuration | None = None
    applied: tuple[tuple[int, int], ...] = ()
    received: Done = frozenset()
    sent: Done = frozenset()
    updated: int = 0
    deciding: bool = False
    decisions: int = 0  # of the primary, which this backup has not carried out
    link: tuple[Passed, ...] | None = None  # what is on its way to the backup
    to: Copy | None = None
    needs: bool = False
    before: int = -1  # of these, how many the backup must have before it may take over; -1: that has not begun

    @property
    def kept(self) -> tuple[object, ...]:
        """What a backup begins with."""
        return self.applied, self.received, self.sent, self.updated


@dataclass(frozen=True, slots=True)
class Server:
    """Both copies, and the newest configuration."""

    newest: Configuration
    copies: tuple[Process, Process]


@dataclass(frozen=True, slots=True)
class Trainer:
    """next: its call at each server; resumes: the first one that it makes again; serving: the copy and the term."""

    next: tuple[int, ...]
    resumes: tuple[int, ...]
    serving: tuple[tuple[Copy, int], ...]


@dataclass(frozen=True, slots=True)
class State:
    """A job at one moment. deaths, doubts: how many may still come; processes: how many there were."""

    servers: tuple[Server, ...]
    trainers: tuple[Trainer, ...]
    deaths: int
    doubts: int
    processes: int


def first_server() -> Server:
    """Two copies that have nothing yet."""
    one, other = Copy(0, "0"), Copy(1, "0")
    found = Configuration(2, one, other)
    return Server(
        found, (Process(one, "leads", found, link=(), to=other, needs=True, before=0), Process(other, "backs", found))
    )


@dataclass(frozen=True, slots=True)
class Job:
    """sync: whether there are rounds. restarts: how many processes may be started again."""

    sync: bool = True
    trainers: int = 2
    servers: int = 1
    rounds: int = 2
    deaths: int = 1
    doubts: int = 1
    restarts: int = 1

    def start(self) -> State:
        """Nothing has been sent."""
        servers = tuple(first_server() for _ in range(self.servers))
        serving = tuple((server.newest.primary, server.newest.term) for server in servers)
        trainer = Trainer((0,) * self.servers, (0,) * self.servers, serving)
        return State(servers, (trainer,) * self.trainers, self.deaths, self.doubts, 0)

    @property
    def script(self) -> list[tuple[str, int]]:
        """What a trainer calls for at each server."""
        step = (GRADIENT, BARRIER, PARAMETER) if self.sync else (GRADIENT, BARRIER)
        return [(what, number) for number in range(1, self.rounds + 1) for what in step]

    def until(self, step: int) -> Done:
        """All gradients of these rounds."""
        return frozenset(product(range(self.trainers), range(1, step + 1)))

    def ended(self, state: State) -> bool:
        """Whether every trainer has every answer."""
        return all(trainer.next == (len(self.script),) * self.servers for trainer in state.trainers)

    def check_end(self, state: State) -> None:
        """Whoever serves has every update once."""
        for server in state.servers:
            for copy in server.copies:
                serves = copy.me == server.newest.primary and copy.state == "leads" and not copy.decisions
                if serves and sorted(copy.applied) != sorted(self.until(self.rounds)):
                    raise Violated(f"the primary has applied {copy.applied}")

    # -- what may come next
    def after(self, state: State) -> Iterator[State]:
        """Every state that may come next."""
        for number, server in enumerate(state.servers):
            for place in (0, 1):
                for changed in self._alone(server, place):
                    yield with_server(state, number, changed)
                if state.doubts:
                    for changed in self._doubts(server, place):
                        yield replace(with_server(state, number, changed), doubts=state.doubts - 1)
                yield from self._fates(state, number, server, place)
        for number in range(self.trainers):
            yield from self._trainer(state, number)

    def _alone(self, server: Server, place: int) -> Iterator[Server]:
        """What a copy does by itself, and together with the other one."""
        copy, other = server.copies[place], server.copies[1 - place]
        if copy.state == "leads":
            yield from self._leads(server, copy, other)
        if copy.decisions:
            yield with_copy(server, self._update(replace(copy, decisions=copy.decisions - 1)))
        if copy.state == "backs" and (other.state != "leads" or other.to != copy.me):
            yield from take_over(server, copy)  # the primary's process is gone, or has forgotten this one
        if (
            copy.state == "leads"
            and copy.link is not None
            and not (other.me == copy.to and other.state in ("backs", "joins"))
        ):
            yield from go_on_alone(server, copy)

    def _leads(self, server: Server, copy: Process, other: Process) -> Iterator[Server]:
        idle = not copy.deciding and not copy.decisions
        if self.sync and idle and {(t, copy.updated + 1) for t in range(self.trainers)} <= copy.sent:
            yield with_copy(server, passed(replace(copy, deciding=True), ("closed", 0, copy.updated + 1)))
        if copy.deciding and has(copy, ("closed", 0, copy.updated + 1)):
            yield with_copy(server, self._update(replace(copy, deciding=False)))
        link = copy.link
        if link and other.me == copy.to and other.state in ("backs", "joins"):
            ahead = replace(copy, link=link[1:], before=max(copy.before - 1, 0) if copy.before >= 0 else -1)
            yield with_copy(with_copy(server, ahead), self._taken(copy, other, link[0]))
        if link is None and other.state == "joins" and idle:
            everything = replace(copy, link=(("everything", 0, 0),), to=other.me, needs=False, before=-1)
            begun = replace(
                other, applied=copy.applied, received=copy.received, sent=copy.sent, updated=copy.updated, decisions=0
            )
            yield with_copy(with_copy(server, everything), begun)
        if link is not None and copy.found is not None and copy.found.backup is None:
            if copy.before < 0 and ("everything", 0, 0) not in link:
                yield with_copy(server, replace(copy, needs=True, before=len(link)))
            elif copy.before == 0 and copy.to is not None:
                yield claimed(server, copy, paired(copy.found, copy.to))

    def _taken(self, primary: Process, copy: Process, message: Passed) -> Process:
        """The backup takes what was passed on."""
        what, trainer, step = message
        if what == "closed":
            return replace(copy, decisions=copy.decisions + 1)
        if what == "everything":
            return copy
        return self._applied(copy, what, trainer, step)

    def _applied(self, copy: Process, what: str, trainer: int, step: int) -> Process:
        """A call that changes something; one that came before changes nothing."""
        if what == BARRIER:
            return replace(copy, sent=copy.sent | {(trainer, step)})
        if (trainer, step) in copy.applied:
            return copy
        if self.sync:
            return replace(copy, received=copy.received | {(trainer, step)})
        return replace(copy, applied=(*copy.applied, (trainer, step)))

    def _update(self, copy: Process) -> Process:
        """A round is over."""
        number = copy.updated + 1
        counted = [(trainer, number) for trainer in range(self.trainers)]
        if not copy.received >= set(counted):
            raise Violated(f"round {number} is updated without {set(counted) - copy.received}")
        return replace(copy, applied=(*copy.applied, *counted), received=copy.received - set(counted), updated=number)

    def _doubts(self, server: Server, place: int) -> Iterator[Server]:
        """A copy takes the other one for dead, which it is not."""
        copy = server.copies[place]
        if copy.state == "backs":
            yield from take_over(server, copy)
        if copy.state == "leads" and copy.link is not None:
            yield from go_on_alone(server, copy)

    def _fates(self, state: State, number: int, server: Server, place: int) -> Iterator[State]:
        """A process dies, or is started."""
        copy, names = server.copies[place], (server.newest.primary, server.newest.backup)
        both = all(
            any(each.me == name and each.state in ("leads", "backs", "joins") for each in server.copies)
            for name in names
        )
        if state.deaths and both and copy.me in names:
            dead = Process(copy.me)
            yield replace(with_server(state, number, with_copy(server, dead)), deaths=state.deaths - 1)
        if copy.state == "gone" and state.processes < self.restarts:
            me = Copy(place, f"{number}.{state.processes + 1}")
            part = part_of(server.newest, me)
            if part is not Part.JOIN:
                raise Violated(f"a process that is started again is to {part.value}: {server.newest}")
            begun = with_copy(server, Process(me, "joins"))
            yield replace(with_server(state, number, begun), processes=state.processes + 1)
        if copy.state == "joins" and server.newest.backup == copy.me:
            yield with_server(state, number, with_copy(server, replace(copy, state="backs", found=server.newest)))

    # -- trainers
    def _trainer(self, state: State, number: int) -> Iterator[State]:
        trainer = state.trainers[number]
        front = min(trainer.next)
        for place, server in enumerate(state.servers):
            me, term = trainer.serving[place]
            for copy in server.copies:
                if copy.state != "leads" or copy.found is None or copy.found.term < term:
                    continue
                if copy.me != me:
                    yield with_trainer(state, number, turned(trainer, place, copy.me, copy.found.term))
                elif trainer.next[place] == front and front < len(self.script):
                    yield from self._call(state, number, place, copy)

    def _call(self, state: State, number: int, place: int, copy: Process) -> Iterator[State]:
        trainer, server = state.trainers[number], state.servers[place]
        what, step = self.script[trainer.next[place]]
        if what == PARAMETER:
            if copy.updated == step:
                if set(copy.applied) != self.until(step):
                    raise Violated(f"trainer {number} reads {copy.applied} in step {step}")
                yield with_trainer(state, number, answered(trainer, place, ends=True))
            return
        message = what, number, step
        if what == GRADIENT:
            changed = self._applied(copy, what, number, step)
            is_new = self.sync or changed != copy
            found = with_server(state, place, with_copy(server, passed(changed, message) if is_new else changed))
            yield with_trainer(found, number, answered(trainer, place))
        elif (number, step) not in copy.sent:
            yield with_server(state, place, with_copy(server, passed(self._applied(copy, what, number, step), message)))
        elif has(copy, message):
            yield with_trainer(state, number, answered(trainer, place, ends=True))


def passed(copy: Process, message: Passed) -> Process:
    """A message is on its way to the backup, if there is one."""
    return copy if copy.link is None else replace(copy, link=(*copy.link, message))


def has(copy: Process, message: Passed) -> bool:
    """Whether the backup has a message, as far as it must."""
    return copy.link is None or not copy.needs or message not in copy.link


def claimed(server: Server, copy: Process, wanted: Configuration) -> Server:
    """A copy claims a term; where another one has it, its process ends."""
    if server.newest.term >= wanted.term:
        return with_copy(server, Process(copy.me))
    found = with_copy(server, replace(copy, found=wanted))
    return replace(found, newest=wanted)


def take_over(server: Server, copy: Process) -> Iterator[Server]:
    """The backup claims the next term."""
    wanted = succeeded(server.newest, copy.me)
    if wanted is None:
        yield with_copy(server, Process(copy.me))
    else:
        yield claimed(server, replace(copy, state="leads", link=None, needs=False), wanted)


def go_on_alone(server: Server, copy: Process) -> Iterator[Server]:
    """The primary gives its backup up."""
    bare = replace(copy, link=None, to=None, needs=False, before=-1)
    assert copy.found is not None
    yield with_copy(server, bare) if copy.found.backup is None else claimed(server, bare, alone(copy.found))


def turned(trainer: Trainer, place: int, copy: Copy, term: int) -> Trainer:
    """A trainer goes on with another copy, and sends again what it has kept."""
    following = changed_at(trainer.next, place, trainer.resumes[place])
    return replace(trainer, next=following, serving=changed_at(trainer.serving, place, (copy, term)))


def answered(trainer: Trainer, place: int, ends: bool = False) -> Trainer:
    """A call is answered; ends: what came before is not sent again."""
    following = changed_at(trainer.next, place, trainer.next[place] + 1)
    resumes = changed_at(trainer.resumes, place, following[place]) if ends else trainer.resumes
    return replace(trainer, next=following, resumes=resumes)


def changed_at(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    """A tuple with another item."""
    return (*items[:index], item, *items[index + 1 :])


def with_copy(server: Server, copy: Process) -> Server:
    """The server with one copy in its new state."""
    one, other = server.copies
    return replace(server, copies=(copy, other) if copy.me.place == 0 else (one, copy))


def with_server(state: State, number: int, server: Server) -> State:
    """The job with one server in its new state."""
    return replace(state, servers=changed_at(state.servers, number, server))


def with_trainer(state: State, number: int, trainer: Trainer) -> State:
    """The job with one trainer in its new state."""
    return replace(state, trainers=changed_at(state.trainers, number, trainer))
