"""Inference of saved models beside real Paddle: `python -m benchmarks.full_models --paddle PYTHON --models FOLDER`.

PYTHON is an interpreter that has Paddle 1.8.5, which runs with MKL-DNN; FOLDER has a folder for each model, as
full_models_worker.py says. Both implementations run in processes of their own, in alternating bursts of the same round;
the table gives milliseconds of a run (the best burst) and the ratio of ours to Paddle's (the median of the rounds, and that
of the best bursts; below 1 we are ahead).
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("full_models_worker.py")
BURST_SECONDS = 0.25


class Worker:
    """A process that runs one model and is stopped while the other one measures."""

    def __init__(self, python: str, engine: str, folder: Path, threads: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(WORKER.parent.parent)} if engine == "fluidtool" else None
        self.process = subprocess.Popen(
            [python, str(WORKER), engine, str(folder), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        line = self.process.stdout.readline()
        while line and not line.startswith("ready "):  # Paddle greets on standard output
            line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{engine} cannot run {folder.name}: {self.process.stderr.read()[-600:]}")
        self.error = float(line.split()[1])
        self.runs = 1
        self.runs = max(1, min(500, round(BURST_SECONDS / self.burst())))
        self.process.send_signal(signal.SIGSTOP)

    def burst(self) -> float:
        """Seconds of a run."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{self.runs}\n")
        self.process.stdin.flush()
        seconds = float(self.process.stdout.readline()) / self.runs
        self.process.send_signal(signal.SIGSTOP)
        return seconds

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def compare(folder: Path, paddle: str, rounds: int, threads: int) -> str:
    """The line of the table for one model."""
    workers: list[Worker] = []
    try:
        for python, engine in ((sys.executable, "fluidtool"), (paddle, "paddle")):
            workers.append(Worker(python, engine, folder, threads))
        pairs = [(workers[0].burst(), workers[1].burst()) for _ in range(rounds)]
    except RuntimeError as error:
        return f"{folder.name:16}{error}"
    finally:
        for worker in workers:
            worker.close()
    ours, theirs = (min(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    return f"{folder.name:16}{1e3 * ours:10.2f}{1e3 * theirs:10.2f}{ratio:9.2f}{ours / theirs:9.2f}{workers[0].error:11.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paddle", required=True, help="a Python that has Paddle 1.8.5")
    parser.add_argument("--models", required=True, type=Path)
    parser.add_argument("--only", default="", help="names of models, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    folders = sorted(path.parent for path in args.models.glob("*/__params__"))
    chosen = [folder for folder in folders if not args.only or folder.name in args.only.split(",")]
    print(
        f"{'model':16}{'fluidtool':>10}{'Paddle':>10}{'median':>9}{'best':>9}{'error':>11}   ms, {args.threads} threads"
    )
    for folder in chosen:
        print(compare(folder, args.paddle, args.rounds, args.threads), flush=True)


if __name__ == "__main__":
    main()
