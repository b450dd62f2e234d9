"""Does harm to elastic jobs at random moments and counts what became of every single update.

    python -m tests.faults.elastic --faults 100

The job is that of `tests.faults.exactly`: every example is another row, whose velocity is how often its update was applied,
and which moves by as many steps as rounds came since, its own included. Two trainers share each mini-batch of two examples, or
one of them takes both: a row moves by 1 either way. So each row ends where its round says, whoever took part; but in a round
in which a trainer was killed, or left out, before it had sent everything, its row never moves, and the other one, which is the
mean of those that count, moves by 2.
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
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tests.faults.exactly import TABLES, Rows, learnt, prepare, words
from tests.faults.storm import LIMIT, TRAINERS, Events, Outcome, await_end, left_behind, start

ROWS = 4000
LEAST_WAIT, MOST_WAIT = 0.3, 3.0  # seconds between two faults
PATIENCE = 300.0


def lost_of(tables: dict[str, Rows], faults: list[str]) -> int:
    """How many rows of a table never moved; what is wrong with the others goes to `faults`."""
    lost = []
    for name in TABLES:
        moved = -tables[name].reshape(-1, TRAINERS)
        expected = np.arange(len(moved), 0, -1)
        whole, alone = (
            (moved == expected[:, None]).all(1),
            np.sort(moved, 1) == np.stack([0 * expected, 2 * expected], 1),
        )
        wrong = int((~(whole | alone.all(1) | (moved == 0).all(1))).sum())
        if wrong:
            faults.append(f"{name}: the rows of {wrong} rounds are not where their round says")
        lost.append(moved == 0)
    if not np.array_equal(*lost):
        faults.append("an update counts on one server, and not on the other")
    return int(lost[0].sum())


def check(folder: Path, save: Path, disturbed: int) -> list[str]:
    """What is wrong with what was saved. disturbed: how many rounds a trainer may not have ended."""
    faults: list[str] = []
    lost = lost_of(learnt(folder, save), faults)
    if lost > TRAINERS * disturbed:
        faults.append(f"{lost} updates are lost, after {disturbed} trainers were killed or halted")
    return faults


def harm(process: int, dice: random.Random) -> str:
    """Kill, halt or end a trainer; returns what was done."""
    kind = dice.choices(("killed", "halted for a while", "asked to leave"), (5, 5, 1))[0]
    if kind == "asked to leave":
        os.kill(process, signal.SIGTERM)
        return kind
    os.kill(process, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
    if kind == "halted for a while":
        time.sleep(dice.uniform(0.2, 2.5))
        os.kill(process, signal.SIGCONT)
    return kind


def storm(folder: Path, job: Path, faults: int, seed: int) -> Outcome:
    """One job whose trainers are harmed so often, or until it is done."""
    dice, outcome, begin = random.Random(seed), Outcome(), time.monotonic()
    save = folder / f"saved_{seed}"
    options = ["--elastic", "1", "--stragglers", "drop:3", "--restarts", str(10 * faults + 10)]
    limits = ["--hang-after", "60", "--grace", "3", "--any-ports", "--json"]
    command = ["launch", *options, *limits, str(job), *words(folder, save)]
    gone = False
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launched:
        talk: list[str] = []
        drain = threading.Thread(target=lambda: talk.extend(launched.stderr or ()), daemon=True)
        drain.start()
        events = Events(launched)
        while launched.poll() is None and outcome.faults.total() < faults:
            time.sleep(dice.uniform(LEAST_WAIT, MOST_WAIT))
            victims = [(role, number) for role, number in events.now.items() if role.startswith("trainer")]
            if gone or not victims:
                continue  # one has left, so the last one must live; or the job has not begun
            _, process = dice.choice(victims)
            try:
                done = harm(process, dice)
            except ProcessLookupError:
                continue
            gone = done == "asked to leave"
            outcome.faults[done] += 1
        await_end(launched, events, outcome, LIMIT + PATIENCE)
        drain.join(10)
    if launched.returncode:
        outcome.wrong.append(f"exit code {launched.returncode}: {''.join(talk[-20:])}")
    else:
        disturbed = sum(line["event"] == "left_out" for line in events.lines)
        outcome.wrong += check(folder, save, disturbed + outcome.faults["killed"])
    outcome.wrong += left_behind(events.ever, events.ports)
    outcome.seconds = time.monotonic() - begin
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30, help="start no further job after so long")
    chosen = parser.parse_args()
    done, wrong, jobs, begin = 0, 0, 0, time.monotonic()
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        job = prepare(folder, True, ROWS)
        while done < chosen.faults and time.monotonic() - begin < 60 * chosen.minutes:
            outcome = storm(folder, job, min(10, chosen.faults - done), chosen.seed + jobs)
            jobs, done, wrong = jobs + 1, done + outcome.faults.total(), wrong + bool(outcome.wrong)
            faults = ", ".join(f"{count} {name}" for name, count in sorted(outcome.faults.items()))
            found = "; ".join(outcome.wrong) or "every update counted once, or was its killed trainer's"
            print(f"{jobs:3d} {faults or 'none'}; {outcome.seconds:.1f} s; {found}", flush=True)
    print(f"{done} faults in {jobs} jobs, {wrong} jobs went wrong")
    return 1 if wrong or done < chosen.faults else 0


if __name__ == "__main__":
    sys.exit(main())
