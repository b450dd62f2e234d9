"""A model of elastic jobs: a server that keeps the roll, one that asks it, and trainers that come, go, die and are left out.

The servers' decisions are those of the real ones: `Roll`, and `verdict`. Trainers make the calls of their steps one after the
other, but say that they have sent everything only when both servers have it. They ask who takes part in the next round behind the
parameters of this one. Everything else happens in any order: when a
round opens or closes, when an update ends, when the other server hears whose gradients count, when a trainer dies, and when
the first server notices. A trainer that is left out, or halted, still makes its next call, and learns it from the answer.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from fluidtool.distribute.pserver.roll import Roll, Terms, Verdict, verdict
from fluidtool.distribute.pserver.rounds import Asked
from tests.distribute.order.exploring import Violated

FIRST, OTHER = 0, 1
# (what, of which server); NONE of these waits for the next: the gradients of both must be there before SENT.
STEP = (
    ("roll", FIRST),
    (Asked.ROWS, FIRST),
    (Asked.ROWS, OTHER),
    (Asked.GRADIENT, OTHER),
    (Asked.GRADIENT, FIRST),
    (Asked.SENT, FIRST),
    (Asked.PARAMETER, FIRST),
    (Asked.PARAMETER, OTHER),
    ("ahead", FIRST),
)


class Stage(Enum):
    """What a trainer is at."""

    OUT = "not there"
    JOINING = "has asked to take part"
    STARTING = "fetches what it starts from"
    TRAINING = "trains"
    DONE = "has made all its steps, or has left"
    DEAD = "is dead"


@dataclass(frozen=True, slots=True)
class Trainer:
    """A trainer at one moment. at: the next call of its step."""

    stage: Stage = Stage.OUT
    term: int = 0
    step: int = 0
    at: int = 0
    ending: bool = False  # this step is its last one
    knows: bool = False  # who takes part in the round of this step


@dataclass(frozen=True, slots=True)
class Server:
    """received: (round, trainer, term); summed: of every round that is updated, its trainers and terms."""

    received: frozenset[tuple[int, int, int]] = frozenset()
    summed: tuple[tuple[tuple[int, int], ...], ...] = ()

    @property
    def updated(self) -> int:
        """The last round whose update is done."""
        return len(self.summed)

    def kept(self, number: int, trainer: int, term: int) -> Server:
        """With a gradient."""
        return replace(self, received=self.received | {(number, trainer, term)})

    def after(self, counted: Terms) -> Server:
        """With the update of the next round."""
        number = self.updated + 1
        for trainer, term in counted.items():
            if (number, trainer, term) not in self.received:
                raise Violated(f"round {number} counts trainer {trainer}, whose gradient is not there")
        left = frozenset(each for each in self.received if each[0] > number)
        return Server(left, (*self.summed, tuple(sorted(counted.items()))))


@dataclass(frozen=True, slots=True)
class State:
    """A job at one moment. deaths, slow, leaves: how many may still come; unseen: trainers that died unnoticed."""

    roll: tuple[object, ...]
    servers: tuple[Server, Server]
    trainers: tuple[Trainer, ...]
    deaths: int
    slow: int
    leaves: int
    unseen: frozenset[int] = frozenset()


def frozen(roll: Roll) -> tuple[object, ...]:
    """A roll as a value that can be told from others."""
    counted = tuple(sorted((number, tuple(sorted(terms.items()))) for number, terms in roll.counted.items()))
    joining = tuple(sorted((trainer, each.term) for trainer, each in roll.joining.items()))
    sets = (*(tuple(sorted(each.items())) for each in (roll.members, roll.sent)), tuple(sorted(roll.leaving)))
    numbers = roll.number, roll.last_term, roll.is_open, roll.is_updating
    return (*numbers, tuple(sorted(roll.expected)), *sets, joining, tuple(sorted(roll.finished)), counted)


@dataclass(slots=True)
class ElasticJob:
    """late: trainers that are not started with the job, and join at any time. restarts: whether who died is started again."""

    trainers: int = 2
    rounds: int = 2
    late: frozenset[int] = frozenset()
    deaths: int = 0
    slow: int = 0
    leaves: int = 0
    least: int = 1
    restarts: bool = True
    _rolls: dict[tuple[object, ...], Roll] = field(default_factory=dict)
    _pickled: dict[tuple[object, ...], bytes] = field(
        default_factory=dict
    )  # copied in a tenth of the time of a deep copy

    def start(self) -> State:
        """Nobody is there yet."""
        roll = Roll(1, self.least, 0, set(range(self.trainers)) - self.late)
        people = tuple(Trainer() for _ in range(self.trainers))
        return State(self._keep(roll), (Server(), Server()), people, self.deaths, self.slow, self.leaves)

    def _keep(self, roll: Roll) -> tuple[object, ...]:
        key = frozen(roll)
        if key not in self._rolls:
            self._rolls[key] = roll
            self._pickled[key] = pickle.dumps(roll, pickle.HIGHEST_PROTOCOL)
        return key

    def roll(self, state: State) -> Roll:
        """A roll that may be changed."""
        copied: Roll = pickle.loads(self._pickled[state.roll])
        return copied

    def ended(self, state: State) -> bool:
        """Whether nobody trains any more and the first server knows."""
        idle = all(each.stage in (Stage.DONE, Stage.DEAD, Stage.OUT) for each in state.trainers)
        return idle and (
            self._rolls[state.roll].is_over or not any(each.stage is Stage.DONE for each in state.trainers)
        )

    def check_end(self, state: State) -> None:
        """Both servers have summed the same."""
        first, other = state.servers
        if self._rolls[state.roll].is_over and first.summed != other.summed:
            raise Violated(f"the servers have summed {first.summed} and {other.summed}")

    # -- what may come next
    def after(self, state: State) -> Iterator[State]:
        """Every state that may come next."""
        yield from self._first(state)
        yield from self._other(state)
        for number, trainer in enumerate(state.trainers):
            yield from self._trainer(state, number, trainer)
            yield from self._accident(state, number, trainer)

    def _first(self, state: State) -> Iterator[State]:
        roll = self.roll(state)
        if roll.can_open:
            roll.open()
        elif roll.is_complete:
            roll.close()
        elif roll.is_deserted:
            roll.desert()
        elif roll.is_updating:
            first = state.servers[FIRST].after(roll.counted[roll.number])
            roll.end()
            state = replace(state, servers=(first, state.servers[OTHER]))
        else:
            return
        yield replace(state, roll=self._keep(roll))

    def _other(self, state: State) -> Iterator[State]:
        """It hears of a round that is closed, and updates."""
        other = state.servers[OTHER]
        counted = self._rolls[state.roll].counted.get(other.updated + 1)
        if counted is not None:
            yield replace(state, servers=(state.servers[FIRST], other.after(counted)))

    def _trainer(self, state: State, number: int, trainer: Trainer) -> Iterator[State]:
        roll = self.roll(state)
        if trainer.stage is Stage.OUT:
            term = roll.join(number)
            yield self._with(state, number, Trainer(Stage.JOINING, term), roll)
        elif trainer.stage is Stage.JOINING:
            if roll.is_member(number, trainer.term):
                yield self._with(state, number, replace(trainer, stage=Stage.STARTING, step=roll.number - 1))
            elif not roll.is_joining(number, trainer.term):
                yield self._with(state, number, Trainer())
        elif trainer.stage is Stage.STARTING:
            yield from self._starts(state, number, trainer, roll)
        elif trainer.stage is Stage.TRAINING:
            if trainer.step > self.rounds:
                roll.finish(number, trainer.term)
                yield self._with(state, number, replace(trainer, stage=Stage.DONE), roll)
                return
            if trainer.at == 0 and state.leaves and roll.is_member(number, trainer.term):
                left = self.roll(state)
                after = replace(trainer, ending=True) if left.leave(number) else replace(trainer, stage=Stage.DONE)
                yield replace(self._with(state, number, after, left), leaves=state.leaves - 1)
            yield from self._step(state, number, trainer, roll)

    def _starts(self, state: State, number: int, trainer: Trainer, roll: Roll) -> Iterator[State]:
        """A trainer that has joined fetches the parameters of the round before its first one."""
        server = FIRST if trainer.at == 0 else OTHER
        found = self._read(state, number, trainer, server, Asked.PARAMETER, roll)
        if found is Verdict.PAST:
            yield self._with(state, number, Trainer())
        elif found is Verdict.ANSWER:
            begins = Trainer(Stage.TRAINING, trainer.term, trainer.step + 1)
            yield self._with(state, number, replace(trainer, at=1) if server == FIRST else begins)

    def _step(self, state: State, number: int, trainer: Trainer, roll: Roll) -> Iterator[State]:
        asked, server = STEP[trainer.at]
        ahead = replace(trainer, at=trainer.at + 1)
        if trainer.at + 1 == len(STEP):
            ahead = replace(trainer, step=trainer.step + 1, at=0)
            if trainer.ending:
                ahead = replace(ahead, stage=Stage.DONE)
        if asked == "ahead":
            yield from self._ahead(state, number, trainer, ahead, roll)
        elif server == FIRST and not self._takes_part(number, trainer, roll):
            yield self._with(state, number, Trainer())
        elif asked == "roll":
            if trainer.knows:
                yield self._with(state, number, replace(ahead, knows=False))
            elif roll.is_open and roll.number == trainer.step:
                yield self._with(state, number, ahead)
        elif asked is Asked.SENT:
            if roll.is_open and roll.number == trainer.step:
                roll.arrive(number)
                yield self._with(state, number, ahead, roll)
        elif asked is Asked.GRADIENT:
            found = verdict(Asked.GRADIENT, trainer.step, state.servers[server].updated)
            if found is Verdict.WAIT:
                return
            servers = list(state.servers)
            if found is Verdict.ANSWER:
                servers[server] = servers[server].kept(trainer.step, number, trainer.term)
            yield replace(self._with(state, number, ahead), servers=(servers[0], servers[1]))
        else:
            found = self._read(state, number, trainer, server, asked, roll)
            if found is not Verdict.WAIT:
                yield self._with(state, number, ahead if found is Verdict.ANSWER else Trainer())

    def _ahead(self, state: State, number: int, trainer: Trainer, ahead: Trainer, roll: Roll) -> Iterator[State]:
        """Who takes part in the next round. One that leaves, or has made all its steps, does not look at the answer."""
        following = trainer.step + 1
        if not self._takes_part(number, replace(trainer, step=following), roll):
            looks = not (trainer.ending or trainer.step == self.rounds)
            yield self._with(state, number, Trainer() if looks else ahead)
        elif roll.number >= following and (roll.is_open or roll.is_stuck):
            yield self._with(state, number, replace(ahead, knows=roll.is_open))

    def _read(self, state: State, number: int, trainer: Trainer, server: int, asked: object, roll: Roll) -> Verdict:
        """A read, and whether it reads the right thing; of the first server, by a trainer that takes part."""
        assert isinstance(asked, Asked)
        if server == FIRST and not self._takes_part(number, trainer, roll):
            return Verdict.PAST
        updated = state.servers[server].updated
        found = verdict(asked, trainer.step, updated)
        wanted = trainer.step - (asked is Asked.ROWS)
        if found is Verdict.ANSWER and updated != wanted and roll.is_member(number, trainer.term):
            raise Violated(f"trainer {number} reads what round {updated} left in step {trainer.step}")
        return found

    def _takes_part(self, number: int, trainer: Trainer, roll: Roll) -> bool:
        return roll.is_member(number, trainer.term) or roll.counts(number, trainer.term, trainer.step)

    def _accident(self, state: State, number: int, trainer: Trainer) -> Iterator[State]:
        alive = trainer.stage in (Stage.JOINING, Stage.STARTING, Stage.TRAINING)
        if alive and state.deaths:
            dead = self._with(state, number, replace(trainer, stage=Stage.DEAD))
            yield replace(dead, deaths=state.deaths - 1, unseen=state.unseen | {number})
        roll = self.roll(state)
        if number in state.unseen:
            roll.remove(number)
            noticed = replace(state, roll=self._keep(roll), unseen=state.unseen - {number})
            yield noticed
            if self.restarts:  # the one that is started again joins before anybody noticed
                yield self._with(replace(state, unseen=state.unseen - {number}), number, Trainer())
        elif trainer.stage is Stage.DEAD and self.restarts and not roll.is_over:
            yield self._with(state, number, Trainer())
        if alive and state.slow and number in roll.missing:
            roll.remove(number)
            yield replace(state, roll=self._keep(roll), slow=state.slow - 1)

    def _with(self, state: State, number: int, trainer: Trainer, roll: Roll | None = None) -> State:
        people = (*state.trainers[:number], trainer, *state.trainers[number + 1 :])
        return replace(state, trainers=people, roll=state.roll if roll is None else self._keep(roll))
