"""Does harm to copies of servers at random moments and counts what became of every single update.

    python -m tests.faults.replicas --faults 100

The jobs are those of `tests.faults.exactly`, with two copies of each server: synchronous, elastic and asynchronous. Primaries and
backups are killed, halted for a while (a primary that was passed over comes back), halted until they are replaced, or all of
their connections break at once, that between the two among them. Never both copies of a server at a time: a copy is harmed only
when the launcher has told that both have everything. No role may be restarted but copies, and no trainer may notice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.elastic import check as check_elastic
from tests.faults.exactly import check, learnt, left, prepare, told, words
from tests.faults.storm import LIMIT, SERVERS, Events, Outcome, await_end, left_behind, start

ROWS = 6000
LEAST_WAIT, MOST_WAIT = 0.2, 2.0  # seconds between two faults
UNNOTICED = 9.0  # seconds after which no news are to be expected of a fault
LONG = 9.0  # seconds in which a halted primary is passed over
PATIENCE = 300.0
MODES = ("sync", "elastic", "async")
NEWS = ("paired", "alone", "succeeded")
SERVER_NAMES = [f"pserver_{number}" for number in range(SERVERS)]
CUTTING = """
import os, signal, socket, stat

def cut(number, frame):
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            found = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with found:
            try:
                named = found.getsockname() or found.getpeername()
                if named and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

signal.signal(signal.SIGUSR2, cut)
"""  # what each process begins with
KINDS = {"killed": 6, "halted for a while": 3, "halted until it is passed over": 2, "cut off": 3}


@dataclass
class Harmed:
    """What was done to a server last: when, how, and how many lines of events there were."""

    kind: str = ""
    moment: float = 0.0
    lines: int = 0

    def is_over(self, lines: list[dict[str, Any]], server: str) -> bool:
        """Whether both copies have everything again. Who was not killed may never have been missed."""
        news = [line["event"] for line in lines[self.lines :] if line.get("role") == server and line["event"] in NEWS]
        if not news:
            return bool(self.kind) and self.kind != "killed" and time.monotonic() - self.moment > UNNOTICED
        return bool(news[-1] == "paired")


def started(lines: list[dict[str, Any]]) -> Counter[str]:
    """How often each trainer was started."""
    roles = [role for line in lines if line["event"] == "start" for role in line["processes"]]
    return Counter(role for role in roles if role.startswith("trainer"))


def cutting(folder: Path) -> Path:
    """A folder from which processes of Python learn to break all of their connections when they are asked to."""
    place = folder / "cutting"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(CUTTING)
    return place


def harm(process: int, kind: str, dice: random.Random) -> None:
    """Do harm of one kind to a process."""
    signals = {"killed": signal.SIGKILL, "cut off": signal.SIGUSR2}
    os.kill(process, signals.get(kind, signal.SIGSTOP))
    if kind.startswith("halted"):
        time.sleep(dice.uniform(0.2, 2.5) if kind == "halted for a while" else LONG)
        os.kill(process, signal.SIGCONT)


def serving(lines: list[dict[str, Any]], server: str) -> str:
    """The role that is the primary, as far as was told."""
    changes = sum(line.get("role") == server and line["event"] == "succeeded" for line in lines)
    return f"{server}_replica" if changes % 2 else server


def storm(folder: Path, job: Path, faults: int, seed: int, mode: str, kinds: Sequence[str] = tuple(KINDS)) -> Outcome:
    """One job whose copies are harmed so often, in these ways, or until it is done."""
    dice, outcome, begin = random.Random(seed), Outcome(), time.monotonic()
    kept, save, sync = folder / f"kept_{seed}", folder / f"saved_{seed}", mode != "async"
    options = [
        "--replicas",
        "2",
        "--restarts",
        str(10 * faults + 10),
        *(["--elastic", "1"] if mode == "elastic" else []),
    ]
    saving = ["--checkpoint", str(kept), "--checkpoint-every", str(10**6)]
    limits = ["--hang-after", "60", "--grace", "3", "--any-ports", "--json"]
    command = ["launch", *options, *saving, *limits, str(job), *words(folder, save)]
    env = {"PYTHONPATH": str(cutting(folder))}
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as launched:
        talk: list[str] = []
        drain = threading.Thread(target=lambda: talk.extend(launched.stderr or ()), daemon=True)
        drain.start()
        events = Events(launched)
        harmed = {name: Harmed() for name in SERVER_NAMES}
        while launched.poll() is None and outcome.faults.total() < faults:
            time.sleep(dice.uniform(LEAST_WAIT, MOST_WAIT))
            paired = [name for name in SERVER_NAMES if harmed[name].is_over(events.lines, name)]
            if not paired:
                continue
            server = dice.choice(paired)
            role = dice.choice((server, f"{server}_replica"))
            kind = dice.choices(kinds, [KINDS[kind] for kind in kinds])[0]
            if role not in events.now:
                continue
            part = "primary" if serving(events.lines, server) == role else "backup"
            lines = len(events.lines)
            try:
                harm(events.now[role], kind, dice)
            except ProcessLookupError:
                continue
            harmed[server] = Harmed(kind, time.monotonic(), lines)
            outcome.faults[f"{part} {kind}"] += 1
        await_end(launched, events, outcome, LIMIT + PATIENCE)
        drain.join(10)
    if launched.returncode:
        outcome.wrong.append(f"exit code {launched.returncode}: {''.join(talk[-20:])}")
    else:
        left_out = sum(line["event"] == "left_out" for line in events.lines)
        outcome.wrong += check_elastic(folder, save, left_out) if left_out else []
        outcome.wrong += [] if left_out else check(learnt(folder, save) if sync else left(kept), sync)
        outcome.wrong += [f"{role} was started again" for role, times in started(events.lines).items() if times > 1]
    outcome.wrong += left_behind(events.ever, events.ports)
    outcome.seconds = time.monotonic() - begin
    return outcome


def main() -> int:
    """Run the campaign; exit code 1 when an update was lost or repeated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--mode", choices=MODES, help="only these jobs")
    parser.add_argument("--most", type=int, default=8, metavar="N", help="faults of one job")
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help="examples, and rows of each table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60, help="start no further job after so long")
    chosen = parser.parse_args()
    modes = MODES if chosen.mode is None else (chosen.mode,)
    total, wrong, jobs, begin = Counter[str](), 0, 0, time.monotonic()
    with TemporaryDirectory(prefix="replicas-") as scratch:
        made = {sync: Path(scratch) / ("sync" if sync else "async") for sync in {mode != "async" for mode in modes}}
        prepared = {sync: prepare(folder, sync, chosen.rows) for sync, folder in made.items()}
        while total.total() < chosen.faults and time.monotonic() - begin < 60 * chosen.minutes:
            mode, share = modes[jobs % len(modes)], min(chosen.most, chosen.faults - total.total())
            sync = mode != "async"
            outcome = storm(made[sync], prepared[sync], share, chosen.seed + jobs, mode)
            jobs, total, wrong = jobs + 1, total + outcome.faults, wrong + bool(outcome.wrong)
            what = "; ".join(outcome.wrong) or "every update once"
            print(f"{jobs:3d} {mode}: {told(outcome.faults)}; {outcome.seconds:.1f} s; {what}", flush=True)
    print(f"{total.total()} faults in {jobs} jobs of {chosen.rows} examples, {wrong} jobs went wrong: {told(total)}")
    return 1 if wrong or total.total() < chosen.faults else 0


if __name__ == "__main__":
    sys.exit(main())
