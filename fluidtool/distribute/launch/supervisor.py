"""The supervisor of a job: starts roles through an engine, and looks after them until the job is over.

One thread looks after everything: output, reports, ends, signals, deadlines.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from fluidtool.distribute.environment import PSERVER, TRAINER
from fluidtool.distribute.launch.contract import GENERATION, RESUME_STEP, STARTS
from fluidtool.distribute.launch.plans import Role, other_copy, saved_as
from fluidtool.distribute.launch.progress import Note, Report
from fluidtool.distribute.launch.recovery import Recovery, Restart, Steps
from fluidtool.distribute.launch.status import DONE, RUNNING, STOPPED, Outcome, RoleStatus, View
from fluidtool.errors import EXIT_INTERRUPTED, EXIT_OK
from fluidtool.records import dataclass

TICK = 0.1
EXIT_HUNG = 124
EXIT_TERMINATED = 128 + signal.SIGTERM
SAME_SIGNAL = 1.0  # seconds in which signals are one and the same wish
Line = tuple[str, bool]  # what a role wrote, and whether to stderr


class Process(Protocol):
    """A role that was started, wherever it runs. Nothing here waits."""

    @property
    def process(self) -> int | None:
        """Its number at its machine."""

    def lines(self) -> list[Line]:
        """What it has written since the last call."""

    def reports(self) -> list[Report | Note]:
        """What it has reported since the last call."""

    def exit_code(self) -> int | None:
        """What it left with, 128 + N after signal N; None while it runs."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and whatever it has started."""

    def close(self) -> list[Line]:
        """Kill what is left of it; its last words."""


class Engine(Protocol):
    """What starts roles."""

    def prepare(self, roles: Sequence[Role], *, all_roles: bool) -> None:
        """These roles are to be started; all_roles: none of the job runs."""

    def start(self, role: Role, environment: dict[str, str]) -> Process:
        """Start a role that finds these variables besides its own; raises FluidError or OSError."""

    def wait(self, seconds: float) -> None:
        """Until a role has something to say, at most so long."""


@dataclass(frozen=True, slots=True)
class Patience:
    """grace: seconds that a role has to end by itself, before it is killed, and that servers have after the trainers.

    hang_after: seconds without a sign of life of any trainer after which a job hangs (0: it may be silent forever).
    starting: seconds that a role may take longer for its first sign of life.
    """

    grace: float = 10.0
    hang_after: float = 300.0
    starting: float = 60.0


@dataclass(slots=True)
class _Running:
    """A role with its process."""

    role: Role
    child: Process
    status: RoleStatus


class Supervisor:
    """Runs roles until every trainer is done, one of them fails for good, or the user stops it.

    resume: continue from the checkpoints that an earlier launch has left; else from the beginning. started: how often the
    roles were started before, by somebody else.
    """

    def __init__(
        self,
        roles: Sequence[Role],
        engine: Engine,
        view: View,
        *,
        patience: Patience | None = None,
        recovery: Recovery | None = None,
        resume: bool = False,
        started: int = 0,
    ) -> None:
        self.roles, self.engine, self.view = tuple(roles), engine, view
        self.patience, self.recovery = patience or Patience(), recovery or Recovery()
        self._resume = resume
        self._status = {role.name: RoleStatus(role.name, role.kind, starts=started) for role in self.roles}
        self._running: dict[str, _Running] = {}
        self._caught: signal.Signals | None = None
        self._caught_at = 0.0
        self._hurried = False
        self._restarts = 0
        self._servers_due: float | None = None
        self._generation = 0  # how often all roles were started
        self._saved: set[str] = set()  # the servers that have written their last checkpoint

    def run(self) -> Outcome:
        """Start everything, look after it, and leave nothing behind."""
        begin = time.monotonic()
        with self._signals():
            try:
                self._start(self.roles, self.recovery.newest(self.roles) if self._resume else {})
                code, reason = self._watch()
            finally:
                self._stop(list(self._running))
        self.view.status(list(self._status.values()))
        return Outcome(code, reason, tuple(self._status.values()), time.monotonic() - begin, self._restarts)

    # ------------------------------------------------------------ starting
    def _start(self, roles: Sequence[Role], steps: Steps) -> None:
        self._generation += not self._running
        self.engine.prepare(roles, all_roles=not self._running)
        for role in roles:
            status = self._status[role.name]
            status.starts += 1
            step = steps.get(role.name)
            found = {STARTS: str(status.starts)} | ({} if step is None else {RESUME_STEP: str(step)})
            if self.recovery.replicas:
                found[GENERATION] = str(self._generation)
            child = self.engine.start(role, found)
            status.state, status.process, status.exit_code = RUNNING, child.process, None
            status.heard = time.monotonic() + self.patience.starting
            status.restart()
            self._saved.discard(saved_as(role.name))
            self._running[role.name] = _Running(role, child, status)
        names = [role.name for role in roles]
        processes = {name: self._status[name].process for name in names}
        common = steps.get(names[0]) if len({steps.get(name) for name in names}) == 1 else None
        text = f"started {_described(names, steps)}"
        self.view.event(text, event="start", processes=processes, step=common)

    # ------------------------------------------------------------ watching
    def _watch(self) -> tuple[int, str]:
        """Until the job is over: the exit code and why it failed."""
        while True:
            self._listen(TICK)
            if self._caught is not None:
                name = "Ctrl-C" if self._caught == signal.SIGINT else self._caught.name
                code = EXIT_INTERRUPTED if self._caught == signal.SIGINT else EXIT_TERMINATED
                self.view.event(f"stopping after {name}", event="interrupt", signal=self._caught.name)
                return code, f"stopped by {name}"
            found = self._ended() or self._hung()
            if found is not None:
                over = self._recover(*found)
                if over is not None:
                    return over
            elif self._finished():
                return EXIT_OK, ""
            self.view.status(list(self._status.values()))

    def _listen(self, seconds: float) -> None:
        """Pass on what roles write and report, for at most so long."""
        self.engine.wait(seconds)
        for running in self._running.values():
            self._hear(running, running.child.lines())

    def _hear(self, running: _Running, lines: Sequence[Line]) -> None:
        for text, is_error in lines:
            running.status.heard = time.monotonic()
            if is_error:
                running.status.complain(text)
            self.view.line(running.role.name, text, is_error)
        for report in running.child.reports():
            if isinstance(report, Note):
                self._note(report)
            else:
                running.status.take(report, time.monotonic())

    def _note(self, note: Note) -> None:
        """A server says what happened to a trainer, which may be one of another launcher, or to itself."""
        if note.event == "saved":
            self._saved.add(note.role)
            return
        name = note.role or f"{TRAINER}_{note.trainer}"
        if note.event == "late" and name in self._status:
            self._status[name].late = note.times
        if note.is_news:
            number = "term" if note.role else "round"
            self.view.event(note.text, **{"event": note.event, "role": name, number: note.round})

    def _ended(self) -> tuple[_Running, int, str] | None:
        """Take leave of processes that have ended; the first that failed, its exit code, and what to say of it."""
        for name, running in list(self._running.items()):
            code = running.child.exit_code()
            if code is None:
                continue
            self._take_leave(running)
            running.status.exit_code = code
            running.status.state = DONE
            if code:
                running.status.fail(_signal_name(code - 128) if code > 128 else f"exit code {code}")
                how = f"was killed by {_signal_name(code - 128)}" if code > 128 else f"failed with exit code {code}"
                return running, code, f"{name} {how}"
            self.view.event(f"{name} is done", event="done", role=name)
        return None

    def _hung(self) -> tuple[_Running, int, str] | None:
        """A trainer when no trainer gave a sign of life for too long."""
        waiting = [running for running in self._running.values() if running.role.is_trainer]
        if not (self.patience.hang_after and waiting):
            return None
        quiet = time.monotonic() - max(running.status.heard for running in waiting)
        if quiet < self.patience.hang_after:
            return None
        first = min(waiting, key=lambda running: running.status.heard)
        first.status.last_error = f"silent for {quiet:.0f} seconds"
        text = f"the job hangs: no trainer has reported or written anything for {quiet:.0f} seconds (--hang-after)"
        return first, EXIT_HUNG, text

    def _recover(self, failed: _Running, code: int, what: str) -> tuple[int, str] | None:
        """Start again what must be; the end of the job where nothing may be."""
        if self.recovery.survives(failed.role, code, self._well()):
            self._replace(failed, code, what)
            return None
        trainers = [
            each.state == DONE and each.exit_code == 0 for each in self._status.values() if each.kind == TRAINER
        ]
        if self.recovery.ends_without(failed.role, trainers, saved_as(failed.role.name) in self._saved):
            self._do_without(failed, code, what, "all trainers are done, and the job ends without it")
            return None
        if self.recovery.replicas and failed.role.kind == PSERVER:
            what += f"; no copy of {saved_as(failed.role.name)} has its values any more, only checkpoints do"
        others = [each for each in self._status.values() if each.kind == TRAINER and each is not failed.status]
        running, done = (sum(each.state == state for each in others) for state in (RUNNING, DONE))
        dispensable = code != EXIT_HUNG and self.recovery.goes_on_without(failed.role, running, done)
        if dispensable and not running:
            self._do_without(failed, code, what)
            return None
        alone = code != EXIT_HUNG and self._may_join(failed.status)
        restart = self.recovery.after(failed.role, self.roles, self._restarts, alone=alone)
        if restart is None and dispensable:
            self._do_without(failed, code, what)
            return None
        if restart is None:
            reason = f"{what}; {self.recovery.refusal()}"
            self.view.event(reason, event="failure", role=failed.role.name, exit_code=code)
            return code, reason
        self._restart(restart, failed, code, what)
        return None

    def _well(self) -> set[str]:
        """The roles that run, or have ended well."""
        return {each.name for each in self._status.values() if each.state == RUNNING or each.exit_code == 0}

    def _restart(self, restart: Restart, failed: _Running, code: int, what: str) -> None:
        self._restarts += 1
        self._servers_due = None
        count = f"restart {self._restarts} of {self.recovery.restarts}"
        fields = {"role": failed.role.name, "exit_code": code, "restart": self._restarts}
        self.view.event(f"{what}; {count}", event="restart", **fields)
        self._stop([role.name for role in restart.roles if role.name in self._running])
        if self._caught is None:
            self._start(restart.roles, restart.steps)

    def _replace(self, failed: _Running, code: int, what: str) -> None:
        """One of two copies of a server is lost: start it again, which copies what the other one has, unless the job is over."""
        training = other_copy(failed.role.name) in self._running and any(
            running.role.is_trainer for running in self._running.values()
        )
        restart = self.recovery.replacement(failed.role, self._restarts) if training else None
        if restart is None:
            self._do_without(failed, code, what)
        else:
            self._restart(restart, failed, code, what)

    def _do_without(self, failed: _Running, code: int, what: str, why: str = "the job continues without it") -> None:
        self.view.event(f"{what}; {why}", event="without", role=failed.role.name, exit_code=code)

    def _may_join(self, failed: RoleStatus) -> bool:
        """Whether the others seem well: all servers run, and `failed` did not fail again without a single step."""
        is_stuck = self.recovery.least is None and failed.starts > 1 and not failed.has_moved
        ended = {each.name for each in self._status.values() if each.kind == PSERVER and each.state == DONE}
        if self.recovery.replicas:
            ended = {name for name in ended if other_copy(name) in ended}
        return not is_stuck and not ended

    def _finished(self) -> bool:
        """Whether all trainers are done; servers then have some time to notice, and are stopped."""
        left = list(self._running.values())
        if any(running.role.is_trainer for running in left):
            return False
        if not left:
            return True
        if not any(role.is_trainer for role in self.roles):
            return False  # servers alone: their trainers are elsewhere
        if self._servers_due is None:
            self._servers_due = time.monotonic() + self.patience.grace
        return time.monotonic() >= self._servers_due

    # ------------------------------------------------------------ stopping
    def _stop(self, names: Sequence[str]) -> None:
        """End roles: politely, then, when their time is up, by force."""
        stopping = [self._running[name] for name in names]
        for running in stopping:
            running.child.signal(signal.SIGTERM)
            running.child.signal(signal.SIGCONT)  # one that was halted could not end
        due = time.monotonic() + self.patience.grace
        while any(running.child.exit_code() is None for running in stopping):
            if self._hurried or time.monotonic() >= due:
                break
            self._listen(TICK / 2)
        for running in stopping:
            if running.child.exit_code() is None:
                self.view.event(
                    f"{running.role.name} did not end in time and is killed", event="kill", role=running.role.name
                )
            self._take_leave(running)
            running.status.state, running.status.exit_code = STOPPED, running.child.exit_code()

    def _take_leave(self, running: _Running) -> None:
        """Kill whatever the process left behind, and pass on its last words."""
        self._hear(running, running.child.close())
        running.status.process = None
        del self._running[running.role.name]

    # ------------------------------------------------------------ signals
    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Within the block Ctrl-C and SIGTERM end the job in order, instead of this process at once."""
        handlers = {number: signal.signal(number, self._catch) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _catch(self, number: int, _: FrameType | None) -> None:
        """A second signal ends the time that roles have to end by themselves. What follows at once is the first one again:
        `timeout` signals its child, and then its group.
        """
        now = time.monotonic()
        if self._caught is None:
            self._caught, self._caught_at = signal.Signals(number), now
        elif now - self._caught_at >= SAME_SIGNAL:
            self._hurried = True


def _described(names: Sequence[str], steps: Steps) -> str:
    """ "pserver_0, trainer_0 from step 4"; each with its own step where they differ."""
    found = [steps.get(name) for name in names]
    if len({*found}) > 1:
        return ", ".join(
            name if step is None else f"{name} from step {step}" for name, step in zip(names, found, strict=True)
        )
    return ", ".join(names) + ("" if found[0] is None else f" from step {found[0]}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
