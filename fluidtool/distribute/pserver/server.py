"""What servers of all modes share: the state of the job, the main loop, and answers that need no round."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from fluidtool.distribute.metrics.exposition import Family
from fluidtool.distribute.pserver.limits import DEADLINE, SILENCE, Limits
from fluidtool.distribute.pserver.roster import Roster
from fluidtool.distribute.pserver.store import Store
from fluidtool.distribute.rpc.handler import Barrier, Call, Gone, Late, Message, Value, Waits
from fluidtool.errors import FluidError

POLL = 0.2
LOOKS = 5  # times POLL until a call that waits looks whether its peer is still there


class Waiter:
    """A call that waits for its moment."""

    __slots__ = ("_lock", "ready")

    def __init__(self, ready: Callable[[], bool]) -> None:
        self.ready, self._lock = ready, threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> bool:
        """Whether it was woken within so many seconds."""
        return self._lock.acquire(timeout=seconds)

    def wake(self) -> None:
        """Let it go on."""
        if self._lock.locked():
            self._lock.release()


class Parked:
    """A call that its transport makes again."""

    __slots__ = ("again", "ready")

    def __init__(self, ready: Callable[[], bool], again: Callable[[], object]) -> None:
        self.ready, self.again = ready, again

    def wake(self) -> None:
        """Let it go on."""
        self.again()


class ParameterServer(ABC):
    """A Handler. `serve` is the main loop: it returns when no trainer is left, or when the server is told to stop.

    It raises Late or Gone, which name the trainer, when the job cannot go on; all waiting callers get the same error.
    """

    def __init__(self, store: Store, roster: Roster, limits: Limits, endpoint: str) -> None:
        self.store, self.roster, self.limits, self.endpoint = store, roster, limits, endpoint
        self._lock = threading.RLock()
        self._arrived = threading.Condition(self._lock)
        self._waiting: dict[Waiter | Parked, tuple[float, int | None]] = {}
        self._stopped = False
        self._failure: FluidError | None = None

    @property
    @abstractmethod
    def step(self) -> int:
        """The round that it is in, or how often each gradient was applied."""

    def trainer_metrics(self) -> list[Family]:
        """What metrics say of single trainers."""
        return []

    @property
    def waiting(self) -> int:
        """How many calls wait for other trainers."""
        return len(self._waiting)

    # -- the main loop
    def serve(self) -> None:
        """Serve until the last trainer completes."""
        try:
            self._serve()
        except FluidError as error:
            self._failure = error
            raise
        finally:
            self._stopped = True
            self._wake()

    @abstractmethod
    def _serve(self) -> None:
        """The main loop of a mode."""

    def stop(self) -> None:
        """Let `serve` return soon. Takes no lock: a signal may call it at any time."""
        self._stopped = True

    def _until(self, ready: Callable[[], bool]) -> bool:
        """In the main loop, with the lock held: wait; False when there is nobody left to wait for."""
        while not ready():
            if self._stopped or not self.roster.live:
                return False
            if not self._arrived.wait(POLL):
                self._check_limits()
        return not self._stopped and self.roster.live > 0

    def _check_limits(self) -> None:
        """Raise Late or Gone where a trainer must be taken for dead."""
        now = self.roster.clock()
        longest = now - min((since for since, _ in self._waiting.values()), default=now)
        if longest > self.limits.deadline:
            raise Late(
                f"the server at {self.endpoint} gives up: {self._state()}, and the others have waited for "
                f"{longest:.0f} s ({DEADLINE} is {self.limits.deadline:g} s); restart the job from its last checkpoint"
            )
        waiting = {trainer for _, trainer in self._waiting.values() if trainer is not None}
        gone = self.roster.gone(self.limits.silence, self.limits.vanished, waiting)
        if gone is not None:
            trainer, seconds = gone
            limit = (
                f"({SILENCE} is {self.limits.silence:g} s)"
                if seconds > self.limits.silence
                else "since its connection broke"
            )
            raise Gone(
                f"the server at {self.endpoint} gives up: {self.roster.named([trainer])} has been silent for "
                f"{seconds:.0f} s {limit}; {self._state()}; restart the job from its last checkpoint"
            )

    @abstractmethod
    def _state(self) -> str:
        """Where the job stands, for messages."""

    # -- calls
    def _check_running(self) -> None:
        if self._failure is not None:
            raise Gone(str(self._failure))
        if self._stopped:
            raise Gone(f"the server at {self.endpoint} has stopped")

    def _wait(self, ready: Callable[[], bool], call: Call, trainer: int | None) -> None:
        """In a call, with the lock held: wait without it; raises Gone when the peer is gone or the server stops, and Waits
        where the call is to be made again.
        """
        self._check_running()
        while not ready():
            if call.again is not None:
                parked = Parked(ready, call.again)
                self._waiting[parked] = self.roster.clock(), trainer
                raise Waits(partial(self._give_up, parked))
            self._wait_once(ready, call, trainer)
            self._check_running()

    def _give_up(self, parked: Parked) -> None:
        with self._lock:
            self._waiting.pop(parked, None)

    def _wait_once(self, ready: Callable[[], bool], call: Call, trainer: int | None) -> None:
        waiter = Waiter(ready)
        self._waiting[waiter] = self.roster.clock(), trainer
        self._lock.release()
        try:
            while not waiter.wait(LOOKS * POLL):
                self._check_running()
                if not call.is_active():
                    self.roster.vanished(trainer)
                    raise Gone(f"{call.peer or 'a trainer'} no longer waits for the answer")
        finally:
            self._lock.acquire()
            self._waiting.pop(waiter, None)

    def _wake(self) -> None:
        """Without the lock held: let those go on that need not wait any more.

        Each is woken alone, and when the lock is free: all at once they would stand in line for it, and a call would cost the
        more the more trainers there are.
        """
        with self._lock:
            woken = [waiter for waiter in self._waiting if self._stopped or waiter.ready()]
            for waiter in woken:
                if isinstance(waiter, Parked):
                    del self._waiting[waiter]
        for waiter in woken:
            waiter.wake()

    @abstractmethod
    def send(self, message: Message, call: Call) -> None:
        """Take a gradient."""

    @abstractmethod
    def barrier(self, kind: Barrier, call: Call) -> None:
        """Note that a trainer has sent, or fetched, everything."""

    @abstractmethod
    def get(self, request: Message, call: Call) -> Value:
        """The value of a variable."""

    def complete(self, trainer_id: int, call: Call) -> None:
        """A trainer is finished: it is not waited for any more, and counts nothing from here on."""
        self.roster.heard(call)
        with self._lock:
            self._check_running()
            trainer = self.roster.complete(trainer_id, call)
            if trainer is not None:
                self._forget(trainer, call)
            self._arrived.notify_all()

    @abstractmethod
    def _forget(self, trainer: int, call: Call) -> None:
        """Leave a finished trainer out of the round."""

    def lost(self, trainer_id: int) -> None:
        """The connection of a trainer of ours broke; it may come back, or have completed."""
        self.roster.vanished(trainer_id)

    def get_without_barrier(self, request: Message, call: Call) -> Value:
        """The value of a variable as it stands."""
        self._check_running()
        return self.store.value(request.name)

    def prefetch(self, request: Message, call: Call) -> Value:
        """The rows of a table."""
        self._check_running()
        self.roster.heard(call, request)
        return self.store.look_up(request)

    def checkpoint(self, request: Message, call: Call) -> None:
        """Save the lookup table."""
        self._check_running()
        self.store.save_table(request.out_name)

    def notify(self, message: Message, call: Call) -> None:
        """Count a trainer's steps."""
        self._check_running()
        self.roster.heard(call, message)
        self.store.count_steps(message)
