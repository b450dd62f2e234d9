"""Training speed beside real Paddle: `python -m benchmarks.training --paddle PYTHON`.

PYTHON is an interpreter that has Paddle 1.8.5. For every network both implementations train the same program on the same
batch, each in its own process, in alternating bursts; the table gives examples per second (median of the bursts) and the
ratio of ours to Paddle's (median of the ratios of neighbouring bursts; above 1 we are ahead).
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.training_networks import NETWORKS

WORKER = Path(__file__).with_name("training_worker.py")
BURST_SECONDS = 0.7


class Worker:
    """A process that trains one network and is stopped while the other one measures."""

    def __init__(self, python: str, module: str, network: str, threads: int) -> None:
        self.process = subprocess.Popen(
            [python, str(WORKER), module, network, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(WORKER.parent.parent)} if module.startswith("fluidtool") else None,
        )
        ready = self.process.stdout.readline().split()
        if not ready:
            sys.exit(f"{module} cannot train {network}:\n{self.process.stderr.read()[-2000:]}")
        self.batch, self.steps = int(ready[1]), 1
        seconds = self.burst()[0]
        self.steps = max(1, round(BURST_SECONDS / seconds))
        self.pause()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def burst(self) -> tuple[float, float]:
        """(seconds per step, loss after the burst)."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{self.steps}\n")
        self.process.stdin.flush()
        seconds, loss = self.process.stdout.readline().split()
        return float(seconds) / self.steps, float(loss)

    def measure(self) -> float:
        seconds, _ = self.burst()
        self.pause()
        return self.batch / seconds

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def compare(network: str, paddle: str, rounds: int, threads: int) -> tuple[float, float, float]:
    """(our examples/s, Paddle's, ratio)."""
    workers = [
        Worker(sys.executable, "fluidtool.fluid", network, threads),
        Worker(paddle, "paddle.fluid", network, threads),
    ]
    try:
        pairs = [(workers[0].measure(), workers[1].measure()) for _ in range(rounds)]
    finally:
        for worker in workers:
            worker.close()
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return ours, theirs, statistics.median(a / b for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paddle", required=True, help="a Python that has Paddle 1.8.5")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    print(f"{'network':14}{'fluidtool':>12}{'Paddle':>12}{'ratio':>8}   examples/s, {args.threads} threads")
    for network in args.networks.split(","):
        ours, theirs, ratio = compare(network, args.paddle, args.rounds, args.threads)
        print(f"{network:14}{ours:12.0f}{theirs:12.0f}{ratio:8.2f}", flush=True)


if __name__ == "__main__":
    main()
