"""Every kind of fault, on one small job after the other, whose updates are counted: none is lost, none counts twice.

    python -m tests.faults.campaign --faults 1000
    python -m tests.faults.campaign --kinds clocks,torn --faults 20

The jobs and what is checked are those of tests.faults.exactly. A job hangs when its trainers do not get on for `--patience`
seconds, however slow the machine; there is no other limit of time. Kinds:

kills       roles are killed, from the moment in which they start
halts       roles are halted (SIGSTOP), for a while or forever
network     a proxy delays, drops and repeats what travels on sockets
half-open   connections on which nothing comes any more, though nobody closed them
full disks  no file of a role can grow for a while
torn        a file of the newest checkpoint of a role is cut, emptied, or filled with zeros; then the role is killed
clocks      the clock of the day jumps by up to ten years, back and forth
second      another launcher, or another process of a role, takes part in the same job
versions    peers of another version, and of other programs
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fluidtool.distribute.checkpoints import MANIFEST
from fluidtool.distribute.checkpoints import steps as saved_steps
from fluidtool.distribute.launch.jobs import JobFolder, move_job, read_job
from fluidtool.distribute.launch.ports import free_endpoints
from tests.faults import versions
from tests.faults.clocks import MovedClock
from tests.faults.exactly import check, learnt, left, prepare, told, words
from tests.faults.proxy import Proxy, Rates
from tests.faults.storm import SERVERS, Events, Outcome, left_behind, start

ROWS = 2000
YEARS = 10 * 365 * 86400
LEAST_WAIT, MOST_WAIT, LONGEST_WAIT = 0.05, 1.5, 60.0  # seconds between two faults
NETWORK = Rates(delayed=0.006, delay=0.05, drop_request=0.006, drop_reply=0.006, duplicate=0.006)
HALF_OPEN = Rates(half_open=0.002)
NO_GROWTH = 0


@dataclass
class Scene:
    """A job that runs, and what does harm to it."""

    folder: Path
    job: Path
    kept: Path
    launched: subprocess.Popen[str]
    events: Events
    clock: MovedClock | None
    dice: random.Random

    def wait(self) -> None:
        """Until the next fault: for a moment, or until a role has saved another step, however slow the machine is."""
        time.sleep(self.dice.uniform(LEAST_WAIT, MOST_WAIT))
        if self.dice.random() < 0.5:
            return
        before, end = self.saved(), time.monotonic() + LONGEST_WAIT
        while self.saved() <= before and self.launched.poll() is None and time.monotonic() < end:
            time.sleep(0.02)

    def saved(self) -> int:
        """The newest step that any role has saved."""
        roles = list(self.kept.iterdir()) if self.kept.is_dir() else []
        return max((max(saved_steps(self.kept, role.name), default=0) for role in roles), default=0)

    def victim(self) -> tuple[str, int] | None:
        """A role that runs, and its process."""
        found = list(self.events.now.items())
        return self.dice.choice(found) if found else None


# ---------------------------------------------------------------- harm to processes
def kill(scene: Scene) -> str:
    """Kill a role."""
    found = scene.victim()
    if found is None:
        return ""
    role, process = found
    os.kill(process, signal.SIGKILL)
    return f"{_kind(role)} killed" + ("" if saved_steps(scene.kept, role) else " before its first checkpoint")


def halt(scene: Scene) -> str:
    """Halt a role: mostly for a while."""
    found = scene.victim()
    if found is None:
        return ""
    role, process = found
    os.kill(process, signal.SIGSTOP)
    if scene.dice.random() < 0.1:
        return f"{_kind(role)} halted"
    time.sleep(scene.dice.uniform(0.05, 0.8))
    os.kill(process, signal.SIGCONT)
    return f"{_kind(role)} halted for a while"


def fill_disk(scene: Scene) -> str:
    """Let no file of a role grow for a while."""
    found = scene.victim()
    if found is None:
        return ""
    role, process = found
    _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (NO_GROWTH, most))
    time.sleep(scene.dice.uniform(0.1, 1.5))
    resource.prlimit(process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, most))
    return f"full disk of a {_kind(role)}"


def tear(scene: Scene) -> str:
    """Damage the newest checkpoint of a role, as a machine may that lost its power, and kill the role."""
    found = scene.victim()
    if found is None:
        return ""
    role, process = found
    saved = saved_steps(scene.kept, role)
    if not saved:
        return ""
    os.kill(process, signal.SIGSTOP)  # so that the checkpoint stays the newest one
    files = [file for file in (scene.kept / role / f"step_{saved[-1]}").rglob("*") if file.is_file()]
    if not files:
        os.kill(process, signal.SIGCONT)
        return ""
    file = scene.dice.choice(files)
    how = scene.dice.choice(["cut", "emptied", "filled with zeros"])
    content = file.read_bytes()
    file.write_bytes({"cut": content[: len(content) // 2], "emptied": b""}.get(how, bytes(len(content))))
    os.kill(process, signal.SIGKILL)
    what = "manifest" if file.name == MANIFEST else "file"
    return f"{what} of a {_kind(role)}'s checkpoint {how}"


def move_clock(scene: Scene) -> str:
    """Let the clock of the day jump."""
    if scene.clock is None or not scene.events.now:
        return ""
    seconds = scene.dice.choice([-YEARS, -86400, -60, 0, 60, 86400, YEARS, scene.dice.randint(-YEARS, YEARS)])
    scene.clock.move(seconds)
    return "clock moved"


def join_twice(scene: Scene) -> str:
    """Start what runs already: the launcher, or one role. It must end, and say why."""
    found = scene.victim()
    if found is None or len(saved_steps(scene.kept, "pserver_0")) < 2:
        return ""
    save = scene.folder / f"second_{scene.dice.getrandbits(32)}"
    options = ["--checkpoint", str(scene.kept), "--checkpoint-every", "50", "--resume", "--any-ports", "--json"]
    other = ["launch", *options, str(scene.job), *words(scene.folder, save)]
    with start(other, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as second:
        try:
            said = "".join(second.communicate(timeout=300))
        except subprocess.TimeoutExpired:
            second.kill()
            raise Wrong("a second launcher hangs") from None
    if scene.launched.poll() is not None:
        return ""  # the first one was done before the second looked
    if not second.returncode:
        raise Wrong("a second launcher was not refused")
    if "--checkpoint" not in said and "another folder" not in said:
        raise Wrong(f"a second launcher ends without a way out: {said[-300:]}")
    return "second launcher"


def _kind(role: str) -> str:
    return role.rpartition("_")[0]


class Wrong(Exception):
    """What must not be."""


# ---------------------------------------------------------------- a job that is harmed
@contextmanager
def launched_job(
    command: Sequence[str], env: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], Events, list[str]]]:
    """A launcher, the lines that it writes, and what it says besides."""
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(env)) as launched:
        talk: list[str] = []
        drain = threading.Thread(target=lambda: talk.extend(launched.stderr or ()), daemon=True)
        drain.start()
        events = Events(launched)
        try:
            yield launched, events, talk
        finally:
            if launched.poll() is None:
                launched.terminate()
            launched.wait()
            events.close()
            drain.join(10)


class Pace:
    """Whether a job gets on: its checkpoints, its events, or the processor time of its roles change."""

    def __init__(self, kept: Path, events: Events, patience: float) -> None:
        self._kept, self._events, self._patience = kept, events, patience
        self._last: object = None
        self._since = time.monotonic()

    def stands(self) -> bool:
        """Whether nothing has changed for too long."""
        roles = sorted(self._kept.iterdir()) if self._kept.is_dir() else []
        now = len(self._events.lines), [saved_steps(self._kept, role.name)[-1:] for role in roles], self._used()
        if now != self._last:
            self._last, self._since = now, time.monotonic()
        return time.monotonic() - self._since > self._patience

    def _used(self) -> int:
        """Tenths of seconds of processors: what waits uses a few hundredths in a second, less than this notices."""
        total = 0
        for process in list(self._events.now.values()):
            try:
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += int(fields[11]) + int(fields[12])
        return total // 100


Harm = Callable[[Scene], str]


def storm(
    folder: Path, job: Path, faults: int, seed: int, *, sync: bool, harm: Harm, patience: float, clock: bool = False
) -> Outcome:
    """One job that is harmed so often, or until it is done."""
    dice, outcome, begin = random.Random(seed), Outcome(), time.monotonic()
    kept, save = folder / f"kept_{seed}", folder / f"saved_{seed}"
    every = dice.choice((5, 20, 100))
    options = ["--checkpoint", str(kept), "--checkpoint-every", str(every), "--restarts", str(50 * faults + 50)]
    limits = ["--hang-after", "20", "--grace", "3", "--any-ports", "--json"]
    command = ["launch", *options, *limits, str(job), *words(folder, save)]
    moved = MovedClock(folder) if clock else None
    env = {"FLAGS_rpc_deadline": "20000"} | ({} if moved is None else moved.environment)
    with launched_job(command, env) as (launched, events, talk):
        scene = Scene(folder, job, kept, launched, events, moved, dice)
        pace = Pace(kept, events, patience)
        while launched.poll() is None and not outcome.wrong:
            scene.wait()
            if outcome.faults.total() < faults and launched.poll() is None:
                try:
                    done = harm(scene)
                except (ProcessLookupError, PermissionError, FileNotFoundError):
                    continue
                except Wrong as error:
                    outcome.wrong.append(str(error))
                    break
                outcome.faults[done] += bool(done)
            if pace.stands():
                outcome.wrong.append(f"the job hangs: {''.join(talk[-20:])}")
    outcome.faults += Counter()  # drops what did not happen
    if not outcome.wrong:
        outcome.wrong += _faults_of(folder, save, kept, sync, launched.returncode, talk)
    outcome.wrong += left_behind(events.ever, events.ports)
    outcome.seconds = time.monotonic() - begin
    _tidy(kept, save)
    return outcome


def _faults_of(folder: Path, save: Path, kept: Path, sync: bool, code: int, talk: Sequence[str]) -> list[str]:
    if code:
        return [f"exit code {code}: {''.join(talk[-20:])}"]
    return check(learnt(folder, save) if sync else left(kept), sync)


def _tidy(*folders: Path) -> None:
    for each in folders:
        shutil.rmtree(each, ignore_errors=True)


def storm_of_network(
    folder: Path, job: Path, faults: int, seed: int, *, sync: bool, rates: Rates, patience: float
) -> Outcome:
    """One job whose trainers reach the servers through proxies; the launcher restarts what a fault has ended."""
    outcome, begin = Outcome(), time.monotonic()
    kept, save, mixed = (folder / f"{name}_{seed}" for name in ("kept", "saved", "mixed"))
    options = ["--checkpoint", str(kept), "--checkpoint-every", "50", "--restarts", str(20 * faults + 20)]
    limits = ["--hang-after", "60", "--grace", "3", "--json"]
    env = {"FLAGS_rpc_deadline": "15000", "FLAGS_rpc_retry_times": "20"}
    ends, most = free_endpoints(SERVERS), -(-faults // SERVERS)
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(end, rates, seed + number, most)) for number, end in enumerate(ends)]
        _through_proxies(read_job(job), ends, [proxy.endpoint for proxy in proxies], mixed)
        command = ["launch", *options, *limits, str(mixed), *words(folder, save)]
        launched, events, talk = stack.enter_context(launched_job(command, env))
        pace = Pace(kept, events, patience)
        while launched.poll() is None and not outcome.wrong:
            time.sleep(0.2)
            if pace.stands():
                outcome.wrong.append(f"the job hangs: {''.join(talk[-20:])}")
        for proxy in proxies:
            outcome.faults += proxy.faults
    if not outcome.wrong:
        outcome.wrong += _faults_of(folder, save, kept, sync, launched.returncode, talk)
    outcome.wrong += left_behind(events.ever, [int(end.rpartition(":")[2]) for end in ends])
    outcome.seconds = time.monotonic() - begin
    _tidy(kept, save, mixed)
    return outcome


def _through_proxies(job: JobFolder, ends: Sequence[str], proxies: Sequence[str], target: Path) -> None:
    """The job with servers at `ends`, whose trainers call `proxies`."""
    real = move_job(job, tuple(ends), target)
    proxied = move_job(job, tuple(proxies), target.with_name(target.name + "_trainers"))
    manifest = {**real.manifest, "roles": []}
    for mine, other in zip(real.manifest["roles"], proxied.manifest["roles"], strict=True):
        is_trainer = mine["role"] == "trainer"
        manifest["roles"].append(other if is_trainer else mine)
        if is_trainer:
            name = Path(mine["main"]["file"]).parts[0]
            shutil.rmtree(target / name)
            shutil.move(proxied.path / name, target / name)
    (target / MANIFEST).write_text(json.dumps(manifest))
    shutil.rmtree(proxied.path)


def storm_of_versions(folder: Path, job: Path, faults: int, seed: int, *, sync: bool, patience: float) -> Outcome:
    """A server, and peers of other versions; nothing of theirs counts, and each is told what is wrong."""
    outcome, begin = Outcome(), time.monotonic()
    for name, wrong in versions.meet(random.Random(seed), faults):
        outcome.faults[name] += 1
        outcome.wrong += [f"{name}: {each}" for each in wrong]
    outcome.seconds = time.monotonic() - begin
    return outcome


Storm = Callable[..., Outcome]


def kinds(patience: float) -> dict[str, tuple[Storm, int]]:
    """How each kind of fault is done, and how many of them one job has."""

    def of(harm: Harm, clock: bool = False) -> Storm:
        return lambda *args, sync: storm(*args, sync=sync, harm=harm, patience=patience, clock=clock)

    def net(rates: Rates) -> Storm:
        return lambda *args, sync: storm_of_network(*args, sync=sync, rates=rates, patience=patience)

    return {
        "kills": (of(kill), 15),
        "halts": (of(halt), 15),
        "network": (net(NETWORK), 60),
        "half-open": (net(HALF_OPEN), 6),
        "full disks": (of(fill_disk), 10),
        "torn": (of(tear), 5),
        "clocks": (of(move_clock, clock=True), 15),
        "second": (of(join_twice), 3),
        "versions": (lambda *args, sync: storm_of_versions(*args, sync=sync, patience=patience), 20),
    }


def campaign(
    faults: int, minutes: float, seed: int, modes: Sequence[bool], chosen: Mapping[str, tuple[Storm, int]], rows: int
) -> int:
    """Jobs of each kind and mode in turn, until there were so many faults; how many jobs went wrong."""
    by_kind = {name: Counter[str]() for name in chosen}
    wrong, jobs, begin = 0, 0, time.monotonic()
    with TemporaryDirectory(prefix="campaign-") as scratch:
        made = {sync: Path(scratch) / ("sync" if sync else "async") for sync in modes}
        prepared = {sync: prepare(folder, sync, rows) for sync, folder in made.items()}
        while sum(map(Counter.total, by_kind.values())) < faults and time.monotonic() - begin < 60 * minutes:
            kind, sync = list(chosen)[jobs % len(chosen)], modes[jobs // len(chosen) % len(modes)]
            one, most = chosen[kind]
            outcome = one(made[sync], prepared[sync], most, seed + 10 * jobs, sync=sync)
            jobs += 1
            by_kind[kind] += outcome.faults
            wrong += bool(outcome.wrong)
            what, mode = "; ".join(outcome.wrong) or "every update once", "sync" if sync else "async"
            print(f"{jobs:3d} {mode}, {kind}: {told(outcome.faults)}; {outcome.seconds:.1f} s; {what}", flush=True)
    for kind, found in by_kind.items():
        print(f"{kind}: {found.total()} ({told(found)})")
    total = sum(map(Counter.total, by_kind.values()))
    print(f"{total} faults in {jobs} jobs of {rows} examples, {wrong} jobs went wrong")
    return wrong + (total < faults)


def main() -> int:
    """Run the campaign; exit code 1 when anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--kinds", default="", help="only these, with commas between them")
    parser.add_argument("--mode", choices=["async", "sync"], help="only these jobs")
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help="examples, and rows of each table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=240, help="start no further job after so long")
    parser.add_argument("--patience", type=float, default=300, help="seconds in which a job must get on")
    given = parser.parse_args()
    known = kinds(given.patience)
    names = [name.strip() for name in given.kinds.split(",")] if given.kinds else list(known)
    modes = (False, True) if given.mode is None else (given.mode == "sync",)
    chosen = {name: known[name] for name in names}
    return 1 if campaign(given.faults, given.minutes, given.seed, modes, chosen, given.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
