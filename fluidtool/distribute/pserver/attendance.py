"""Rosters of jobs in which trainers come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fluidtool.distribute.launch.progress import Note, NoteKind
from fluidtool.distribute.pserver.roster import Roster
from fluidtool.distribute.rpc.handler import Call, Message, Refused

STARTING = 120.0  # seconds that a job waits for the trainers that were started with it
AWAY = 5.0  # seconds without a connection after which a round goes on without a trainer; it may join again
GONE = 30.0  # seconds without a connection after which an asynchronous server does not wait for a trainer to finish


Tell = Callable[[Note], None]


class Attendance(Roster):
    """The roster of a job whose trainers come and go. present: how many take part; 0 when the job is over."""

    def __init__(self, trainers: int) -> None:
        super().__init__(trainers)
        self.present = 1

    @property
    def live(self) -> int:
        """How many trainers take part; 1 also while the job waits for some."""
        return self.present

    def heard(self, call: Call, message: Message | None = None) -> int | None:
        """As of a roster; raises Refused for a trainer of Paddle's, whose protocol knows nothing of who comes and goes."""
        if call.trainer_id is None:
            raise Refused(
                f"{call.peer or 'a peer'} is not a trainer of fluidtool's: the protocol of Paddle 1.8.5 has no way to join "
                "or leave, so real Paddle's trainers cannot take part in an elastic job; launch it without --elastic"
            )
        return super().heard(call, message)

    @property
    def has_ended(self) -> bool:
        """Whether every trainer that was ever heard of has said that it is finished."""
        return bool(self._completed) and self._completed >= self._heard.keys()

    def away(self, trainer: int) -> float:
        """For how many seconds a trainer has had no connection."""
        with self._lock:
            since = self._vanished.get(trainer)
        return 0.0 if since is None else self.clock() - since

    def expect(self, trainer: int, seconds: float) -> None:
        """A trainer has no connection here, and so many seconds to make one before it counts as away."""
        with self._lock:
            self._vanished[trainer] = self.clock() + seconds

    def silent(self, trainer: int) -> float:
        """For how many seconds a trainer has said nothing."""
        return self.clock() - self._heard.get(trainer, self.clock())


class OpenRoster(Attendance):
    """Of an asynchronous server: each trainer that calls takes part, until it is finished, leaves, or is away for too long.

    starting: how many trainers were started with the job, which are waited for. tell: is told who comes and goes.
    """

    def __init__(self, trainers: int, starting: int, tell: Tell = lambda note: None) -> None:
        super().__init__(trainers)
        self.tell = tell
        self._known = set(range(starting))
        self._began = self.clock()

    @property
    def live(self) -> int:
        """How many trainers take part; at least 1 until the first one is finished."""
        return max(len(self._known), 0 if self._completed else 1)

    def heard(self, call: Call, message: Message | None = None) -> int | None:
        """As of an attendance."""
        before = set(self._heard)
        trainer = super().heard(call, message)
        if (
            trainer is not None
            and trainer not in self._completed
            and (trainer not in self._known or trainer not in before)
        ):
            with self._lock:
                self._known.add(trainer)
            self._say("join", trainer, "takes part")
        return trainer

    def complete(self, trainer_id: int, call: Call) -> int | None:
        """As of a roster."""
        trainer = super().complete(trainer_id, call)
        if trainer is not None:
            with self._lock:
                self._known.discard(trainer)
        return trainer

    def leave(self, trainer: int) -> None:
        """A trainer takes part no more."""
        with self._lock:
            self._known.discard(trainer)
        self._say("leave", trainer, "leaves")

    def gone(self, silence: float, vanished: float, waiting: Iterable[int] = ()) -> tuple[int, float] | None:
        """Nobody is missed, unless nobody is left; who is away for too long is waited for no more."""
        now = self.clock()
        for trainer in sorted(self._known):
            began = self._heard.get(trainer)
            away, silent = self.away(trainer), now - (self._began if began is None else began)
            if away > GONE or silent > (STARTING if began is None else silence):
                with self._lock:
                    self._known.discard(trainer)
                self._say("left_out", trainer, f"is waited for no more: it has said nothing for {silent:.0f} s")
        if self._known or self._completed or now - max(self._last, self._began) <= silence:
            return None
        return max(self._heard, key=self._heard.__getitem__, default=0), now - max(self._last, self._began)

    def _say(self, event: NoteKind, trainer: int, what: str) -> None:
        self.tell(Note(event, f"trainer {trainer} {what}", trainer, 0))
