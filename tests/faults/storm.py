"""Does harm to distributed jobs in synchronous mode at random moments, and compares what they learn bit for bit.

    python -m tests.faults.storm --faults 200
    python -m tests.faults.storm --clean 50

Kills: SIGKILL, SIGSTOP followed by SIGCONT, and SIGSTOP forever, to any role. Network: a proxy before every server that
delays, drops and repeats calls, with fluidtool's socket and stream and with Paddle's single calls. A job that hangs, learns other
bits, or leaves a process or a port behind, is a failure. With --clean nothing is disturbed: all runs must learn the same.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fluidtool.distribute.checkpoints import steps
from fluidtool.distribute.launch.contract import without_role
from fluidtool.distribute.launch.jobs import move_job, read_job
from fluidtool.distribute.launch.ports import free_endpoints
from tests.distribute.launch.jobs import BATCH, EXAMPLES, parameters_of, transpile, write_data, write_programs
from tests.faults.proxy import WAYS, Proxy, Rates
from tests.support.checkout import child_environment

SERVERS, TRAINERS = 2, 2
STEPS_OF_AN_EPOCH = EXAMPLES // (BATCH * TRAINERS)
ENDPOINTS = ",".join(f"127.0.0.1:{6174 + number}" for number in range(SERVERS))
LEAST_EPOCHS, LIMIT = 4, 90.0
LEAST_WAIT, MOST_WAIT = 0.1, 3.0  # seconds between two faults of one job
RATES = Rates(delayed=0.003, delay=0.05, drop_request=0.006, drop_reply=0.006, duplicate=0.006)


@dataclass
class Outcome:
    """What became of one job: faults by kind, what went wrong."""

    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


# ---------------------------------------------------------------- jobs
def prepare(folder: Path) -> Path:
    """A job of two servers and two trainers, and its data."""
    write_data(folder)
    return transpile(write_programs(folder), "--pservers", ENDPOINTS, "--trainers", str(TRAINERS))


def training(folder: Path, save: Path, epochs: int) -> list[str]:
    """What trainers are told."""
    return ["--data", str(folder / "data.npz"), "--batch-size", "4", "--epochs", str(epochs), "--save", str(save)]


def start(words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """fluidtool, with these words."""
    environment = without_role(child_environment(**options.pop("env", {})))
    return subprocess.Popen([sys.executable, "-m", "fluidtool", *words], text=True, env=environment, **options)


def learn_in_peace(folder: Path, job: Path, epochs: int) -> Path:
    """The parameters of a job that nobody disturbs."""
    save = folder / f"peace_{epochs}"
    if not save.exists():
        words = ["launch", "--any-ports", "--hang-after", "60", str(job), *training(folder, save, epochs)]
        with start(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            _, errors = process.communicate(timeout=LIMIT + epochs)
        if process.returncode:
            raise RuntimeError(f"the job that nobody disturbs failed:\n{errors}")
    return save


@cache
def pace(folder: Path, job: Path) -> float:
    """Epochs that the job makes in a second on this machine."""
    few, many, seconds = LEAST_EPOCHS, 15 * LEAST_EPOCHS, []
    for epochs in (few, many):
        begin = time.monotonic()
        learn_in_peace(folder, job, epochs)
        seconds.append(time.monotonic() - begin)
    return (many - few) / max(seconds[1] - seconds[0], 0.1)


def epochs_for(folder: Path, job: Path, faults: int) -> int:
    """So many that the job still learns when the last fault comes."""
    return LEAST_EPOCHS + math.ceil(pace(folder, job) * MOST_WAIT * faults) if faults else LEAST_EPOCHS


def compare(folder: Path, expected: Path, found: Path) -> list[str]:
    """Parameters that differ in a bit."""
    wanted, got = parameters_of(folder, expected), parameters_of(folder, found)
    if wanted.keys() != got.keys():
        return [f"saved {sorted(got)}, not {sorted(wanted)}"]
    return [f"{name} differs" for name, array in wanted.items() if not np.array_equal(array, got[name])]


def left_behind(processes: Sequence[int], ports: Sequence[int]) -> list[str]:
    """Processes that still run, ports that somebody still has."""
    alive = [f"process {number} is left" for number in processes if Path(f"/proc/{number}").exists()]
    taken = []
    for port in ports:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                taken.append(f"port {port} is taken")
    return alive + taken


# ---------------------------------------------------------------- kills
class Events:
    """The lines of JSON that launch writes; which processes the roles have now, and had."""

    def __init__(self, launched: subprocess.Popen[str]) -> None:
        self.lines: list[dict[str, Any]] = []
        self.now: dict[str, int] = {}
        self.ever: list[int] = []
        self._output = launched.stdout
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._output is not None
        for text in self._output:
            line = json.loads(text)
            self.lines.append(line)
            if line["event"] == "start":
                self.now.update(line["processes"])
                self.ever += line["processes"].values()
            if line["event"] == "done":
                self.now.pop(line["role"], None)

    def close(self) -> None:
        """Wait for the last line."""
        self._thread.join(10)

    @property
    def ports(self) -> list[int]:
        """Where servers listened."""
        return [int(end.rpartition(":")[2]) for line in self.lines for end in line.get("endpoints", ())]


def await_end(launched: subprocess.Popen[str], events: Events, outcome: Outcome, seconds: float) -> None:
    """Let a job end by itself; one that takes longer hangs."""
    try:
        launched.wait(seconds)
    except subprocess.TimeoutExpired:
        outcome.wrong.append("the job hangs")
        launched.terminate()
    events.close()


def harm(process: int, dice: random.Random) -> str:
    """Kill or halt a process; returns what was done."""
    kind = dice.choices(("killed", "halted for a while", "halted"), (6, 5, 1))[0]
    os.kill(process, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
    if kind == "halted for a while":
        time.sleep(dice.uniform(0.05, 0.8))
        os.kill(process, signal.SIGCONT)
    return kind


def wait_for_step(launched: subprocess.Popen[str], kept: Path, running: Mapping[str, int], step: int) -> None:
    """Until a role that runs has a checkpoint of this step or a later one, or the job ends."""
    time.sleep(0.005)
    while launched.poll() is None and all(max(steps(kept, role), default=0) < step for role in list(running)):
        time.sleep(0.005)


def storm_of_kills(
    folder: Path, job: Path, faults: int, seed: int, expected: Path | None = None, epochs: int = 0
) -> Outcome:
    """One job whose processes are harmed so often: after so many seconds or, where `epochs` says how long the job is, when it
    has made so many steps of its first quarter, at whatever pace.
    """
    dice, outcome, begin = random.Random(seed), Outcome(), time.monotonic()
    by_steps = epochs > 0
    epochs = epochs or epochs_for(folder, job, faults)
    expected = expected or learn_in_peace(folder, job, epochs)
    kept, save = folder / f"kept_{seed}", folder / f"storm_{seed}"
    moments = sorted(dice.sample(range(1, epochs * STEPS_OF_AN_EPOCH // 4), faults)) if by_steps else []
    options = ["--checkpoint", str(kept), "--checkpoint-every", str(dice.randint(1, 8)), "--restarts", str(faults + 1)]
    limits = ["--hang-after", "4" if faults and not by_steps else "60", "--grace", "3", "--any-ports", "--json"]
    words = ["launch", *options, *limits, str(job), *training(folder, save, epochs)]
    with start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launched:
        talk: list[str] = []
        drain = threading.Thread(target=lambda: talk.extend(launched.stderr or ()), daemon=True)
        drain.start()
        events = Events(launched)
        while launched.poll() is None and outcome.faults.total() < faults:
            if by_steps:
                wait_for_step(launched, kept, events.now, moments[outcome.faults.total()])
            else:
                time.sleep(dice.uniform(LEAST_WAIT, MOST_WAIT))
            victims = list(events.now.items())
            if victims and launched.poll() is None:
                try:
                    outcome.faults[harm(dice.choice(victims)[1], dice)] += 1
                except ProcessLookupError:
                    continue
        try:
            launched.wait(LIMIT + epochs)
        except subprocess.TimeoutExpired:
            outcome.wrong.append("the job hangs")
            launched.terminate()
        events.close()
        drain.join(10)
    if launched.returncode:
        outcome.wrong.append(f"exit code {launched.returncode}: {''.join(talk[-20:])}")
    else:
        outcome.wrong += compare(folder, expected, save)
    outcome.wrong += left_behind(events.ever, events.ports)
    outcome.seconds = time.monotonic() - begin
    return outcome


# ---------------------------------------------------------------- network
@contextmanager
def roles(job: Path, proxied: Path, words: Sequence[str], env: dict[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Servers of one job, trainers of the other; whoever is left at the end is killed."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": env}
    started = [start(["run", str(job / f"pserver_{number}")], **quiet) for number in range(SERVERS)]
    started += [start(["run", str(proxied / f"trainer_{number}"), *words], **quiet) for number in range(TRAINERS)]
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()


def storm_of_network(folder: Path, job: Path, faults: int, seed: int, *, way: str) -> Outcome:
    """One job whose trainers reach the servers through proxies that do harm, so often at most."""
    outcome, begin = Outcome(), time.monotonic()
    epochs = LEAST_EPOCHS + 2 * faults
    expected, save = learn_in_peace(folder, job, epochs), folder / f"network_{seed}"
    env = {"FLAGS_rpc_deadline": "30000", "FLAGS_rpc_retry_times": "20", "FLUIDTOOL_RPC": WAYS[way]}
    ends = free_endpoints(SERVERS)
    most = -(-faults // SERVERS)
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(end, RATES, seed + number, most)) for number, end in enumerate(ends)]
        whole = read_job(job)
        real = move_job(whole, tuple(ends), folder / f"real_{seed}").path
        proxied = move_job(whole, tuple(proxy.endpoint for proxy in proxies), folder / f"proxied_{seed}").path
        running = stack.enter_context(roles(real, proxied, training(folder, save, epochs), env))
        due = time.monotonic() + LIMIT + epochs
        for process in running:
            try:
                process.wait(max(0.1, due - time.monotonic()))
            except subprocess.TimeoutExpired:
                outcome.wrong.append("the job hangs")
                break
            if process.returncode and process.stderr is not None:
                outcome.wrong.append(f"exit code {process.returncode}: {process.stderr.read()[-600:]}")
        for proxy in proxies:
            outcome.faults += proxy.faults
    if not outcome.wrong:
        outcome.wrong = compare(folder, expected, save)
    outcome.wrong += left_behind([process.pid for process in running], [int(end.rpartition(":")[2]) for end in ends])
    outcome.seconds = time.monotonic() - begin
    return outcome


# ---------------------------------------------------------------- command
def clean_runs(count: int) -> int:
    """So many jobs that nobody disturbs, one after the other; how many of them went wrong."""
    wrong = 0
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        job = prepare(folder)
        expected = learn_in_peace(folder, job, LEAST_EPOCHS)
        for number in range(1, count + 1):
            outcome = storm_of_kills(folder, job, 0, number, expected)
            wrong += bool(outcome.wrong)
            print(f"{number:3d} {outcome.seconds:.1f} s; {'; '.join(outcome.wrong) or 'same bits'}", flush=True)
    print(f"{count} runs in a row, {wrong} went wrong")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument(
        "--clean", type=int, default=0, metavar="RUNS", help="run so many jobs without any fault instead"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30, help="start no further job after so long")
    chosen = parser.parse_args()
    if chosen.clean:
        return 1 if clean_runs(chosen.clean) else 0
    total, wrong, jobs, begin = Counter[str](), 0, 0, time.monotonic()
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        job = prepare(folder)
        while total.total() < chosen.faults and time.monotonic() - begin < 60 * chosen.minutes:
            seed, share = chosen.seed + 10 * jobs, min(10, chosen.faults - total.total())
            kind = ("kills", *WAYS)[jobs % (1 + len(WAYS))]
            if kind == "kills":
                outcome = storm_of_kills(folder, job, share, seed)
            else:
                outcome = storm_of_network(folder, job, share, seed, way=kind)
            jobs += 1
            total += outcome.faults
            wrong += bool(outcome.wrong)
            faults = ", ".join(f"{count} {name}" for name, count in sorted(outcome.faults.items()))
            print(
                f"{jobs:3d} {kind}: {faults or 'none'}; {outcome.seconds:.1f} s; {'; '.join(outcome.wrong) or 'same bits'}",
                flush=True,
            )
    print(f"{total.total()} faults in {jobs} jobs, {wrong} jobs went wrong")
    return 1 if wrong or total.total() < chosen.faults else 0


if __name__ == "__main__":
    sys.exit(main())
