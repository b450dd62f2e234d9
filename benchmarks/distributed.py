"""Speed of distributed training beside real Paddle: `python -m benchmarks.distributed --paddle PYTHON`.

PYTHON is an interpreter that has Paddle 1.8.5. Two parameter servers and two trainers, synchronous, one thread each, on
this machine; both implementations run the same script in turn. The table gives steps per second of the job (median of
the bursts after the first one) and the ratio of ours to Paddle's; above 1 we are ahead.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.rounds import import_path

WORKER = Path(__file__).with_name("distributed_worker.py")
SERVERS, TRAINERS, BURSTS = 2, 2, 4
STEPS = {"mlp": 25, "sparse_ctr": 8}
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
def job(python: str, module: str, network: str, steps: int) -> Iterator[list[subprocess.Popen[str]]]:
    """The trainers of a running job; its servers are ended with it (Paddle's never end by themselves)."""
    endpoints = free_endpoints(SERVERS)
    tail = [endpoints, str(TRAINERS), str(steps), str(BURSTS)]
    roles = [("pserver", n) for n in range(SERVERS)] + [("trainer", n) for n in range(TRAINERS)]
    started = []
    try:
        for role, number in roles:
            words = [python, str(WORKER), module, network, role, str(number), *tail]
            output = subprocess.PIPE if role == "trainer" else subprocess.DEVNULL
            started.append(
                subprocess.Popen(words, stdout=output, stderr=subprocess.DEVNULL, text=True, env=environment(module))
            )
        yield started[SERVERS:]
    finally:
        for process in started:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measure(python: str, module: str, network: str) -> tuple[float, float]:
    """(steps per second, last loss of trainer 0) of one job."""
    steps = STEPS[network]
    with job(python, module, network, steps) as trainers:
        written = [trainer.communicate(timeout=300)[0].split("\n") for trainer in trainers]
    bursts = [[line.split() for line in lines if line] for lines in written]
    if any(len(lines) != BURSTS for lines in bursts):
        sys.exit(f"{module} cannot train {network} in a job of {SERVERS} servers and {TRAINERS} trainers")
    slowest = [max(float(lines[n][0]) for lines in bursts) for n in range(1, BURSTS)]
    return steps / statistics.median(slowest), float(bursts[0][-1][1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paddle", help="the interpreter that has Paddle 1.8.5")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--networks", default=",".join(STEPS))
    chosen = parser.parse_args()
    kinds = {"fluidtool": (sys.executable, "fluidtool.fluid")}
    if chosen.paddle:
        kinds["paddle"] = (chosen.paddle, "paddle.fluid")
    print("| network | ours, steps/s | Paddle 1.8.5, steps/s | ratio | last loss, ours and Paddle's |")
    print("|---|---|---|---|---|")
    for network in chosen.networks.split(","):
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for _ in range(chosen.rounds):
            for kind, (python, module) in kinds.items():
                found[kind].append(measure(python, module, network))
        speeds = {kind: statistics.median(speed for speed, _ in values) for kind, values in found.items()}
        losses = ", ".join(f"{values[-1][1]:.6f}" for values in found.values())
        theirs = f"{speeds['paddle']:.1f}" if "paddle" in speeds else "–"
        ratio = f"{speeds['fluidtool'] / speeds['paddle']:.2f}" if "paddle" in speeds else "–"
        print(f"| {network} | {speeds['fluidtool']:.1f} | {theirs} | {ratio} | {losses} |", flush=True)


if __name__ == "__main__":
    main()
