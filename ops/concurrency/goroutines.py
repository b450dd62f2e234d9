"""Channels and the threads that communicate over them: shared by go, select and the channel operators.

One lock guards all channels of a scope. A thread that cannot proceed queues its cases (sends and receives) at
their channels; the thread that matches one of them completes it and wakes the sleeper. Rules as in Fluid 0.14
(channel_impl.h), except that a deadlock of all threads is an error instead of a hang.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from fluidtool.errors import OperatorError
from fluidtool.ops.concurrency import HOLDER
from fluidtool.ops.context import OpContext, ScopeLike
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor


class DeadlockError(OperatorError):
    """Every thread of a program waits for another one at a channel."""

    code = "FT603"


@dataclass(eq=False, slots=True)
class Channel:
    """A queue of values between threads; without capacity, a send waits for its receive."""

    name: str
    data_type: int
    capacity: int
    closed: bool = False
    buffer: deque[Any] = field(default_factory=deque)
    senders: deque[tuple[Sleeper, Case]] = field(default_factory=deque)
    receivers: deque[tuple[Sleeper, Case]] = field(default_factory=deque)


@dataclass(eq=False, slots=True)
class Case:
    """A pending send or receive. holder: the variable sent; value: the value sent or received."""

    index: int
    channel: Channel
    holder: Any
    sends: bool
    value: Any = None

    def offer(self) -> Any:
        """Move the value out of the sender's variable."""
        if self.holder.value is self.value:
            self.holder.value = None
        # A new LoDTensor: the receiver may later change its object.
        return LoDTensor(self.value.array, self.value.offsets) if isinstance(self.value, LoDTensor) else self.value

    def queue(self) -> deque[tuple[Sleeper, Case]]:
        """Where the case waits."""
        return self.channel.senders if self.sends else self.channel.receivers


@dataclass(eq=False, slots=True)
class Sleeper:
    """A thread that waits for one of its cases. chosen: the one that happened; None if a channel was closed."""

    what: str
    is_goroutine: bool
    wake: threading.Condition
    chosen: Case | None = None
    error: Exception | None = None


class Goroutines:
    """The threads of the go blocks below one scope, and the lock of their channels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[threading.Thread] = set()
        self._asleep: dict[Sleeper, None] = {}
        self._error: Exception | None = None
        self._random = random.Random()

    # ------------------------------------------------------------ what operators do
    def start(self, run: Callable[[], None], name: str) -> None:
        """Run a go block in a new thread; its end is not awaited."""
        thread = threading.Thread(target=self._run, args=(run,), name=name, daemon=True)
        with self._lock:
            self._live.add(thread)
        thread.start()

    def perform(self, case: Case, what: str) -> bool:
        """Send or receive, waiting until possible; False for a receive from a closed, empty channel."""
        with self._lock:
            self._raise_pending()
            if self._happens(case):
                return True
            if case.channel.closed:
                return False
            if self._sleep([case], what) is not None:
                return True
            if case.sends:
                raise _closed(case.channel)
            return False

    def select(self, cases: Sequence[Case], has_default: bool, what: str) -> Case | None:
        """One of the possible cases, drawn at random, after it happened; None for the default.

        A receive from a closed, empty channel cannot happen (unlike in Go).
        """
        with self._lock:
            self._raise_pending()
            while True:
                for case in self._random.sample(cases, len(cases)):
                    if self._happens(case):
                        return case
                if has_default:
                    return None
                chosen = self._sleep(cases, what)
                if chosen is not None:
                    return chosen

    def close(self, channel: Channel) -> None:
        """Close a channel (no effect if closed) and wake its waiting threads."""
        with self._lock:
            channel.closed = True
            for sleeper, _ in [*channel.senders, *channel.receivers]:
                self._wake(sleeper, None)

    def raise_failed(self) -> None:
        """Raise the first error of a goroutine that has not been raised yet."""
        with self._lock:
            self._raise_pending()

    # ------------------------------------------------------------ within the lock
    def _happens(self, case: Case) -> bool:
        """Complete the case if it is possible immediately."""
        channel = case.channel
        if not case.sends:
            return self._receives(case)
        if channel.closed:
            raise _closed(channel)
        if met := self._first(channel.receivers):
            met[1].value = case.offer()
            self._wake(*met)
            return True
        if len(channel.buffer) < channel.capacity:
            channel.buffer.append(case.offer())
            return True
        return False

    def _receives(self, case: Case) -> bool:
        channel = case.channel
        met = self._first(channel.senders)
        if channel.buffer:
            case.value = channel.buffer.popleft()
            if met:
                channel.buffer.append(met[1].offer())
        elif met:
            case.value = met[1].offer()
        else:
            return False
        if met:
            self._wake(*met)
        return True

    def _first(self, queue: deque[tuple[Sleeper, Case]]) -> tuple[Sleeper, Case] | None:
        """The longest waiting one; woken threads stay in the queue until they run."""
        return next((entry for entry in queue if entry[0] in self._asleep), None)

    def _sleep(self, cases: Sequence[Case], what: str) -> Case | None:
        """Wait for one of the cases; None when one of the channels was closed."""
        is_goroutine = threading.current_thread() in self._live
        sleeper = Sleeper(what, is_goroutine, threading.Condition(self._lock))
        for case in cases:
            case.queue().append((sleeper, case))
        self._asleep[sleeper] = None
        try:
            self._look_for_deadlock()
            while sleeper in self._asleep:
                sleeper.wake.wait()
        finally:
            self._asleep.pop(sleeper, None)
            for case in cases:
                case.queue().remove((sleeper, case))
        if sleeper.error is not None:
            raise sleeper.error
        return sleeper.chosen

    def _wake(self, sleeper: Sleeper, chosen: Case | None, error: Exception | None = None) -> None:
        if sleeper in self._asleep:
            del self._asleep[sleeper]
            sleeper.chosen, sleeper.error = chosen, error
            sleeper.wake.notify()

    def _look_for_deadlock(self) -> None:
        """Wake all with an error if no thread is left to wake them: goroutines alone may keep sleeping, as in Go."""
        asleep = list(self._asleep)
        goroutines = [sleeper for sleeper in asleep if sleeper.is_goroutine]
        if len(goroutines) < len(self._live) or len(goroutines) == len(asleep):
            return
        places = "; ".join(f"{'a goroutine' if s.is_goroutine else 'the program'} waits in {s.what}" for s in asleep)
        message = (
            f"all goroutines are asleep, which is a deadlock: {places}. Give every send a receive, or the channels "
            "capacity, or close them"
        )
        for sleeper in asleep:
            self._wake(sleeper, None, DeadlockError(message))

    # ------------------------------------------------------------ threads
    def _run(self, run: Callable[[], None]) -> None:
        error: Exception | None = None
        try:
            run()
        except DeadlockError:
            error = None  # the program's own thread raises it
        except Exception as failure:
            error = failure
        with self._lock:
            self._live.discard(threading.current_thread())
            if error is not None:
                self._error = self._error or error
                self._pass_on()
            self._look_for_deadlock()

    def _pass_on(self) -> None:
        """Give a goroutine's error to a sleeping thread of the program; else the next operator raises it."""
        sleeper = next((sleeper for sleeper in self._asleep if not sleeper.is_goroutine), None)
        if sleeper is not None:
            error, self._error = self._error, None
            self._wake(sleeper, None, error)

    def _raise_pending(self) -> None:
        if self._error is not None and threading.current_thread() not in self._live:
            error, self._error = self._error, None
            raise error


def raise_failed(scope: ScopeLike) -> None:
    """At the end of a run in this scope, raise the error of a go block that has not been raised yet."""
    holder = scope.find_var(HOLDER)
    if holder is not None and holder.value is not None:
        holder.value.raise_failed()


def goroutines(ctx: OpContext) -> Goroutines:
    """Those of the scope that a program runs in."""
    holder = ctx.scope.root().var(HOLDER)
    if holder.value is None:
        holder.value = Goroutines()
    found: Goroutines = holder.value
    return found


def place(ctx: OpContext, names: Sequence[str]) -> str:
    """'channel_recv in block 1 on channel_0', for messages."""
    return f"{ctx.op.type} in block {ctx.op.block.idx} on {', '.join(names) or 'no channel'}"


def _closed(channel: Channel) -> OperatorError:
    return OperatorError(f"Cannot send on closed channel {channel.name}; close a channel after its last send")
