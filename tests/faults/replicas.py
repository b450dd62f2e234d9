"""Does harm to copies of servers at random moments and counts what became of every single update.

    python -m tests.faults.replicas --faults 100

The jobs are those of `tests.faults.exactly`, with two copies of each server: synchronous, elastic and asynchronous. Primaries and
backups are killed, halted for a while (a primary that was passed over comes back), halted until they are replaced, or lose sight
of each other, as a proxy between the two breaks their connection. Never both copies of a server at a time: a copy is harmed only when
the launcher has told that both have everything. No role may be restarted but copies, and no trainer may notice.
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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.exactly import check, learnt, left, prepare, words
from tests.faults.storm import LIMIT, SERVERS, Events, Outcome, left_behind, start

ROWS = 6000
LEAST_WAIT, MOST_WAIT = 0.2, 2.0  # seconds between two faults
LONG = 9.0  # seconds in which a halted primary is passed over
PATIENCE = 300.0
MODES = ("sync", "elastic", "async")
KINDS = {"killed": 6, "halted for a while": 3, "halted until it is passed over": 2, "cut off": 3}


def is_paired(lines: list[dict[str, Any]], server: str) -> bool:
    """Whether both copies of a server have everything, as far as was told."""
    told = [line["event"] for line in lines if line.get("role") == server and line["event"] in NEWS]
    return bool(told) and told[-1] == "paired"


NEWS = ("paired", "alone", "succeeded")


def cut_off(process: int) -> bool:
    """Break the connections between a process and the other copy: end its sockets from outside. Whether that can be done."""
    sockets = subprocess.run(["ss", "-K", "pid", str(process)], capture_output=True, check=False)
    return sockets.returncode == 0


def harm(process: int, kind: str, dice: random.Random) -> None:
    """Do harm of one kind to a process."""
    os.kill(process, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
    if kind != "killed":
        time.sleep(dice.uniform(0.2, 2.5) if kind == "halted for a while" else LONG)
        os.kill(process, signal.SIGCONT)


def serving(lines: list[dict[str, Any]], server: str) -> str:
    """The role that is the primary, as far as was told."""
    told = [line for line in lines if line.get("role") == server and line["event"] == "succeeded"]
    return f"{server}_replica" if len(told) % 2 else server


def storm(folder: Path, job: Path, faults: int, seed: int, mode: str) -> Outcome:
    """One job whose copies are harmed so often, or until it is done."""
    dice, outcome, begin = random.Random(seed), Outcome(), time.monotonic()
    kept, save, sync = folder / f"kept_{seed}", folder / f"saved_{seed}", mode != "async"
    options = ["--replicas", "2", "--restarts", str(10 * faults + 10), *(["--elastic", "1"] if mode == "elastic" else [])]
    saving = ["--checkpoint", str(kept), "--checkpoint-every", str(10**6)]
    limits = ["--hang-after", "60", "--grace", "3", "--any-ports", "--json"]
    command = ["launch", *options, *saving, *limits, str(job), *words(folder, save)]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launched:
        talk: list[str] = []
        drain = threading.Thread(target=lambda: talk.extend(launched.stderr or ()), daemon=True)
        drain.start()
        events = Events(launched)
        while launched.poll() is None and outcome.faults.total() < faults:
            time.sleep(dice.uniform(LEAST_WAIT, MOST_WAIT))
            paired = [name for name in SERVER_NAMES if is_paired(events.lines, name)]
            if not paired:
                continue
            server = dice.choice(paired)
            role = dice.choice((server, f"{server}_replica"))
            kind = dice.choices(list(KINDS), list(KINDS.values()))[0]
            if role not in events.now:
                continue
            part = "primary" if serving(events.lines, server) == role else "backup"
            try:
                harm(events.now[role], kind, dice)
            except ProcessLookupError:
                continue
            outcome.faults[f"{part} {kind}"] += 1
        try:
            launched.wait(LIMIT + PATIENCE)
        except subprocess.TimeoutExpired:
            outcome.wrong.append("the job hangs")
            launched.terminate()
        events.close()
        drain.join(10)
    if launched.returncode:
        outcome.wrong.append(f"exit code {launched.returncode}: {''.join(talk[-20:])}")
    else:
        outcome.wrong += check(learnt(folder, save) if sync else left(kept), sync)
    outcome.seconds = time.monotonic() - begin
    return outcome
