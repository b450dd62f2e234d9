"""Speed of distributed training beside real Paddle: `python -m benchmarks.distributed --paddle PYTHON`.

PYTHON is an interpreter that has Paddle 1.8.5. Two parameter servers and two trainers, one thread each, on this machine,
with and without barriers; both implementations run the same script in turn. The table gives steps per second of the job
(median of the bursts after the first one), the processor time for a step of a trainer, of both servers and of all roles, and
the ratios of ours to Paddle's.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.rounds import import_path

WORKER = Path(__file__).with_name("distributed_worker.py")
SERVERS, TRAINERS, BURSTS = 2, 2, 4
STEPS = {"mlp": 25, "sparse_ctr": 8}
SCHEDULED = 2  # which clock of a process: that of all time on processors
PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")


def free_endpoints(count: int) -> str:
    """Endpoints of this machine that nobody uses."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return ",".join(f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes)


def environment(module: str) -> dict[str, str]:
    """One thread for each role; Paddle's gRPC would ask a proxy for local addresses."""
    found = {name: value for name, value in os.environ.items() if name not in PROXIES}
    found |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CPU_NUM", "FLAGS_paddle_num_threads"), "1")
    if module.startswith("fluidtool"):
        found["PYTHONPATH"] = import_path()
    return found


@contextmanager
def job(
    python: str,
    module: str,
    network: str,
    mode: str,
    steps: int,
    servers: int = SERVERS,
    trainers: int = TRAINERS,
    bursts: int = BURSTS,
) -> Iterator[list[subprocess.Popen[str]]]:
    """The servers and trainers of a running job; its servers are ended with it (Paddle's never end by themselves)."""
    endpoints = free_endpoints(servers)
    tail = [endpoints, str(trainers), str(steps), str(bursts), mode]
    roles = [("pserver", n) for n in range(servers)] + [("trainer", n) for n in range(trainers)]
    started = []
    try:
        for role, number in roles:
            words = [python, str(WORKER), module, network, role, str(number), *tail]
            pipe = subprocess.PIPE if role == "trainer" else subprocess.DEVNULL
            started.append(
                subprocess.Popen(
                    words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment(module)
                )
            )
        yield started
    finally:
        for process in started:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(frozen=True)
class Speed:
    """Steps per second of a job; for a step of a trainer, milliseconds of processors of the servers, and of all roles; the last
    loss of trainer 0.
    """

    steps: float
    server: float
    all: float
    loss: float


def measure(
    python: str, module: str, network: str, mode: str, servers: int = SERVERS, number: int = TRAINERS, steps: int = 0
) -> Speed:
    """One job of so many servers and trainers. The first burst does not count.

    All trainers begin a burst together: without barriers those that were started first would be done before the others begin.
    """
    steps = steps or STEPS[network]
    with job(python, module, network, mode, steps, servers, number) as roles:
        trainers = roles[servers:]
        lines: list[list[list[str]]] = []
        used = []
        for place in range(BURSTS):
            lines.append(burst(trainers, f"{module}, {network} ({mode}), {servers} servers"))
            if place in (0, BURSTS - 1):
                used.append([processor_seconds(role.pid) for role in roles])
        for trainer in trainers:
            trainer.communicate(timeout=300)
    slowest = [max(float(words[0]) for words in found) for found in lines[1:]]
    each = [1e3 * (after - before) / (steps * (BURSTS - 1) * number) for before, after in zip(*used, strict=True)]
    return Speed(steps / statistics.median(slowest), sum(each[:servers]), sum(each), float(lines[-1][0][1]))


def burst(trainers: Sequence[subprocess.Popen[str]], what: str) -> list[list[str]]:
    """Let all trainers make their steps, which they begin together, and return what each says of them."""
    for trainer in trainers:
        assert trainer.stdin is not None
        with suppress(BrokenPipeError):  # a trainer that has ended is noticed when it says nothing
            trainer.stdin.write("\n")
            trainer.stdin.flush()
    said = [trainer.stdout.readline().split() if trainer.stdout is not None else [] for trainer in trainers]
    if not all(said):
        sys.exit(f"cannot train: {what}, {len(trainers)} trainers")
    return said


def processor_seconds(process: int) -> float:
    """What a process has used until now: on Linux to the nanosecond, by the clock that the kernel keeps for each process."""
    return time.clock_gettime(~process << 3 | SCHEDULED)


def row(name: str, found: dict[str, list[Speed]]) -> str:
    """A line of the table."""
    ours, theirs = (found.get(kind, []) for kind in ("fluidtool", "paddle"))
    cells = [name]
    for field, form in (("steps", ".1f"), ("server", ".2f"), ("all", ".1f")):
        values = [statistics.median(getattr(each, field) for each in kind) if kind else None for kind in (ours, theirs)]
        cells += ["–" if value is None else format(value, form) for value in values]
        cells.append(f"{values[0] / values[1]:.2f}" if values[0] and values[1] else "–")
    cells.append(", ".join(f"{values[-1].loss:.6f}" for values in found.values()))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paddle", help="the interpreter that has Paddle 1.8.5")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--networks", default=",".join(STEPS))
    parser.add_argument("--modes", default="sync,async")
    chosen = parser.parse_args()
    kinds = {"fluidtool": (sys.executable, "fluidtool.fluid")}
    if chosen.paddle:
        kinds["paddle"] = (chosen.paddle, "paddle.fluid")
    print(
        "| job | ours, steps/s | Paddle 1.8.5 | ratio | ours, ms of servers | Paddle 1.8.5 | ratio "
        "| ours, ms of all roles | Paddle 1.8.5 | ratio | last loss, ours and Paddle's |"
    )
    print("|---" * 11 + "|")
    for network, mode in product(chosen.networks.split(","), chosen.modes.split(",")):
        found: dict[str, list[Speed]] = {kind: [] for kind in kinds}
        for _ in range(chosen.rounds):
            for kind, (python, module) in kinds.items():
                found[kind].append(measure(python, module, network, mode))
        print(row(f"{network}, {mode}", found), flush=True)


if __name__ == "__main__":
    main()
