"""The first server of an elastic job: it keeps the roll, sees who is late or gone, and closes the rounds."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any

from fluidtool.distribute.launch.progress import Note, NoteKind
from fluidtool.distribute.metrics.exposition import Family
from fluidtool.distribute.metrics.roles import of_trainers
from fluidtool.distribute.pserver.attendance import AWAY, STARTING, Tell
from fluidtool.distribute.pserver.elastic import ElasticServer
from fluidtool.distribute.pserver.follower import OVER
from fluidtool.distribute.pserver.limits import DEADLINE, SILENCE
from fluidtool.distribute.pserver.roll import Roll, Terms, numbers_of
from fluidtool.distribute.pserver.stragglers import StragglerPolicy, Stragglers
from fluidtool.distribute.rpc.handler import Barrier, Call, Gone, LeftOut, Message, Refused
from fluidtool.distribute.rpc.methods import AHEAD, CLOSED, JOIN, LEAVE

TERMS = 1 << 20  # the first term is below: no trainer of an earlier run of the servers has it
TOLD = 2.0  # seconds that other servers have to learn that the job is over


class Registrar(ElasticServer):
    """least: trainers without which no round opens. starting: how many were started with the job, which the first round waits
    for. followers: how many other servers there are. tell: is told what happens to trainers.
    """

    def __init__(
        self,
        *args: Any,
        least: int = 1,
        starting: int = 0,
        followers: int = 0,
        policy: StragglerPolicy | None = None,
        tell: Tell = lambda note: None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.roll = Roll(self.updated + 1, least, secrets.randbelow(TERMS), set(range(starting)))
        self.stragglers = Stragglers(policy or StragglerPolicy())
        self.changes: Counter[str] = Counter()
        self._tell, self._followers = tell, followers
        self._processes: dict[str, int] = {}  # the term of each process that joined, by its name
        self._told_over = 0
        self._began = self._opened = self.roster.clock()

    def trainer_metrics(self) -> list[Family]:
        """Who came, who went, and who was late."""
        return of_trainers(self.stragglers.seconds(), self.stragglers.late, self.changes)

    # -- the main loop
    def _closed(self) -> Terms | None:
        """Open the next round, again and again where it loses all of its trainers, and close it."""
        while self._open():
            with self._arrived:
                if not self._until(lambda: self.roll.is_complete or self.roll.is_deserted):
                    return None
                if self.roll.is_complete:
                    self.stragglers.settle()
                    counted = self.roll.close()
                    break
                self.roll.desert()
        else:
            return None
        self._wake()
        return counted

    def _open(self) -> bool:
        with self._arrived:
            self._opened = self.roster.clock()
            if not self._until(self._may_go_on):
                return False
            if self.roll.is_over:
                self._end()
                return False
            before = set(self.roll.members)
            self.roll.open()
            entering = sorted(self.roll.members.keys() - before)
            self.attendance.present = len(self.roll.members)
            self.stragglers.open(self.roster.clock(), entering)
            for trainer in entering:
                self._change("join", trainer, "takes part from here on")
        self._wake()
        return True

    def _may_go_on(self) -> bool:
        """Whether the next round may open, or the job is over. Who died while it waited to take part waits no more."""
        for trainer in [each for each in self.roll.joining if self.attendance.away(each)]:
            self.roll.remove(trainer)
        return self.roll.can_open or self.roll.is_over

    def _end(self) -> None:
        """With the lock held: the job is over; the other servers ask when the next round is closed, and are told so."""
        self.attendance.present = 0
        self._wake()
        end = self.roster.clock() + TOLD
        while self._told_over < self._followers and self.roster.clock() < end:
            self._arrived.wait(0.02)

    def _ended(self) -> None:
        self.roll.end()

    # -- who is missing
    def _check_limits(self) -> None:
        now, roll = self.roster.clock(), self.roll
        if roll.expected and now - self._began > STARTING:
            roll.expected.clear()
        self._check_stragglers(now)
        for trainer in roll.missing:
            away, silent = self.attendance.away(trainer), self.attendance.silent(trainer)
            if away > AWAY:
                self._leave_out(trainer, f"its connection broke {away:.0f} s ago")
            elif silent > self.limits.silence:
                self._leave_out(trainer, f"it has been silent for {silent:.0f} s ({SILENCE})")
        waited = now - min((since for since, who in self._waiting.values() if who in roll.sent), default=now)
        if waited > self.limits.deadline:
            for trainer in roll.missing:
                self._leave_out(trainer, f"the others have waited for {waited:.0f} s ({DEADLINE})")
        if roll.is_stuck:
            self._wake()
        if not (roll.is_open or roll.is_updating) and now - self._opened > self.limits.silence:
            raise Gone(
                f"the server at {self.endpoint} gives up: for {now - self._opened:.0f} s there were fewer trainers than the "
                f"{roll.least} that a round needs ({SILENCE}); restart the job from its last checkpoint"
            )

    def _check_stragglers(self, now: float) -> None:
        roll, seen = self.roll, self.stragglers
        if not roll.is_open:
            return
        for trainer, usual in seen.newly_late(roll.members, now).items():
            how = seen.described(trainer, usual, now)
            if seen.policy.drops and trainer not in seen.took:
                self._leave_out(trainer, f"it {how}; it may take part again {seen.leave_out(trainer)} rounds later")
            else:
                self._change("late", trainer, how, seen.late[trainer])

    def _leave_out(self, trainer: int, why: str) -> None:
        """The round goes on without a trainer."""
        self.roll.remove(trainer)
        self.attendance.present = max(len(self.roll.members), 1)
        self._change("left_out", trainer, f"is left out: {why}")
        self._wake()

    def _change(self, event: NoteKind, trainer: int, what: str, times: int = 0) -> None:
        self.changes[event] += 1
        who = self.roster.named([trainer]) if event == "left_out" else f"trainer {trainer}"
        self._tell(Note(event, f"round {self.roll.number}: {who} {what}", trainer, self.roll.number, times))

    # -- calls
    def _takes_part(self, call: Call) -> bool:
        """Or took part in the round of this call, which one that leaves may still finish."""
        trainer = -1 if call.trainer_id is None else call.trainer_id
        return self.roll.is_member(trainer, call.term) or self.roll.counts(trainer, call.term, call.round)

    def barrier(self, kind: Barrier, call: Call) -> None:
        """A trainer has sent everything, to this server and to the others."""
        trainer = self.roster.heard(call)
        if kind is Barrier.FETCH or trainer is None:
            return
        with self._lock:
            roll = self.roll
            if roll.counts(trainer, call.term, call.round):
                return  # it said so before
            self._due(call, lambda: roll.is_open and roll.number >= call.round, trainer)
            roll.arrive(trainer)
            self.stragglers.arrive(trainer, self.roster.clock())
            if roll.is_complete:
                self._check_stragglers(self.roster.clock())
                self._arrived.notify_all()

    def complete(self, trainer_id: int, call: Call) -> None:
        """A trainer has made all of its steps."""
        trainer = self.roster.heard(call)
        with self._lock:
            self._check_running()
            if trainer is not None:
                self.roll.finish(trainer, call.term)
                self._arrived.notify_all()

    def _control(self, request: Message, call: Call) -> list[int]:
        if request.name == CLOSED:
            return self._closed_terms(call)
        trainer = self.roster.heard(call)
        assert trainer is not None
        if request.name == JOIN:
            return self._join(request.out_name, trainer, call)
        if request.name == LEAVE:
            return self._leave(trainer, call)
        with self._lock:
            roll, is_ahead = self.roll, request.out_name == AHEAD

            def is_open() -> bool:
                return roll.is_open and roll.number >= call.round

            # A trainer that asks ahead may leave, or finish, with its next call, which waits behind this one.
            self._due(call, lambda: is_open() or (is_ahead and roll.number >= call.round and roll.is_stuck), trainer)
            if not is_open():
                return []
            self.stragglers.begin(trainer, self.roster.clock())
            return sorted(roll.members)

    def _join(self, process: str, trainer: int, call: Call) -> list[int]:
        """Let a trainer in when a round opens: its term, and the round whose parameters it begins with."""
        with self._lock:
            self._check_running()
            roll = self.roll
            if process not in self._processes:
                self._check_newest(trainer, call.term, call)
                self._processes[process] = roll.join(trainer, roll.number + self.stragglers.rounds_away(trainer))
                self._arrived.notify_all()
            term = self._processes[process]
            if roll.is_joining(trainer, term):
                self._wait(lambda: not roll.is_joining(trainer, term), call, None)
            if not roll.is_member(trainer, term):
                self._check_newest(trainer, term, call)
                raise LeftOut(f"trainer {trainer} ({call.peer}) was left out before its first step")
            return [term, roll.number - 1]

    def _check_member(self, call: Call) -> None:
        if call.trainer_id is not None:
            self._check_newest(call.trainer_id, call.term, call)
        super()._check_member(call)

    def _check_newest(self, trainer: int, term: int, call: Call) -> None:
        """Raise Refused for an older process of a trainer: where it joined again, both would go on leaving each other out."""
        roll = self.roll
        newest = roll.members.get(trainer, roll.joining[trainer].term if trainer in roll.joining else 0)
        if 0 < term < newest:
            raise Refused(
                f"trainer {trainer} was started again, and takes part from {self.roster.address(trainer) or 'elsewhere'}; this "
                f"process ({call.peer}) is an older one: end it"
            )

    def _leave(self, trainer: int, call: Call) -> list[int]:
        """Let a trainer go: [1] after the round that is open, whose mini-batch it shares, [0] now."""
        with self._lock:
            stays = False
            if self._takes_part(call):
                stays = self.roll.leave(trainer)
                self.attendance.present = max(len(self.roll.members), 1)
                self._change("leave", trainer, "leaves")
                self._arrived.notify_all()
        self._wake()
        return [int(stays)]

    def _closed_terms(self, call: Call) -> list[int]:
        """Another server asks whose gradients count in a round."""
        with self._lock:
            self._check_running()
            roll, number = self.roll, call.round

            def ready() -> bool:
                return number in roll.counted or roll.is_over

            if not ready():
                self._wait(ready, call, None)
            if number in roll.counted:
                return numbers_of(roll.counted[number])
            self._told_over += 1
            self._arrived.notify_all()
            return OVER

    def _state(self) -> str:
        return f"{self.roster.named(self.roll.missing)} has not sent the gradients of round {self.roll.number}"
