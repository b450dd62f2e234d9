"""Kills checkpointed trainings with SIGKILL at random moments, lets them go on, and compares what they save bit for bit.

    python -m tests.faults.kills --kills 50

The network has a dropout without a seed of its own, so the random state must survive too, beside parameters, momentum
and the order of the data. A checkpoint follows every step, so that kills fall into the writing of checkpoints as well; the
last life, which nobody ends, writes none.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.support.checkout import child_environment

EXAMPLES, BATCH, STEPS = 40, 5, 8  # STEPS in an epoch
EPOCHS_PER_KILL = 12
ALWAYS, NEVER = 1, 1_000_000  # steps from one checkpoint to the next
EARLY = 0.2  # the share of kills that fall into the start of a process, before its first step


@dataclass(frozen=True)
class Subject:
    """A way to train. `command(work, output, checkpoints, epochs, steps from one checkpoint to the next)`; a process writes a
    line for each step.
    """

    name: str
    command: Callable[[Path, Path, Path | None, int, int], list[str]]


@dataclass(frozen=True)
class Outcome:
    """What became of one training."""

    kills: int
    early: int
    files: int
    different: tuple[str, ...]
    seconds: float


def network() -> list[Any]:
    """Two layers with dropout: [mean squared error, prediction]."""
    import fluidtool.fluid as fluid

    fluid.default_startup_program().random_seed = 7
    x = fluid.layers.data(name="x", shape=[6], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    hidden = fluid.layers.dropout(fluid.layers.fc(x, size=8, act="tanh"), dropout_prob=0.3)
    predicted = fluid.layers.fc(hidden, size=1)
    fluid.default_main_program().random_seed = 7  # at the end, or dropout would take it for a seed of its own
    return [fluid.layers.mean(fluid.layers.square_error_cost(predicted, y)), predicted]


def momentum() -> Any:
    """The optimizer."""
    import fluidtool.fluid as fluid

    return fluid.optimizer.Momentum(learning_rate=0.01, momentum=0.9)


def examples() -> tuple[Any, Any]:
    """x [40, 6] and y [40, 1]."""
    x = np.random.default_rng(3).standard_normal((EXAMPLES, 6)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------- the two ways to train
def write_programs(folder: Path) -> None:
    """What `fluidtool train` is given: main.pb, startup.pb and data.npz."""
    import fluidtool.fluid as fluid

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        momentum().minimize(network()[0])
    (folder / "main.pb").write_bytes(main.serialize_to_string())
    (folder / "startup.pb").write_bytes(startup.serialize_to_string())
    x, y = examples()
    np.savez(folder / "data.npz", x=x, y=y)


def command_line(work: Path, output: Path, checkpoints: Path | None, epochs: int, every: int) -> list[str]:
    """`fluidtool train`."""
    command = [sys.executable, "-m", "fluidtool", "train", str(work), "--data", str(work / "data.npz"), "--json"]
    command += ["--batch-size", str(BATCH), "--epochs", str(epochs), "--save", str(output), "--force"]
    if checkpoints is not None:
        command += ["--checkpoint", str(checkpoints), "--checkpoint-every", str(every), "--keep", "2", "--resume"]
    return command


def trainer(work: Path, output: Path, checkpoints: Path | None, epochs: int, every: int) -> list[str]:
    """`fluid.Trainer`, in a process of its own."""
    given = [str(output), str(checkpoints or ""), str(epochs), str(every)]
    return [sys.executable, "-m", "tests.faults.kills", "--train", *given]


def train(output: str, checkpoints: str, epochs: int, every: int) -> None:
    """What that process does."""
    import fluidtool.fluid as fluid

    def reader() -> Iterator[list[tuple[Any, Any]]]:
        x, y = examples()
        for start in range(0, EXAMPLES, BATCH):
            yield list(zip(x[start : start + BATCH], y[start : start + BATCH], strict=True))

    def handler(event: Any) -> None:
        if isinstance(event, fluid.EndStepEvent):
            print(event.epoch, event.step, flush=True)

    config = fluid.CheckpointConfig(checkpoints, max_num_checkpoints=2, step_interval=every) if checkpoints else None
    made = fluid.Trainer(network, momentum, place=fluid.CPUPlace(), checkpoint_config=config)
    made.train(epochs, handler, reader, ["x", "y"])
    made.save_params(output)


SUBJECTS = {"train": Subject("fluidtool train", command_line), "trainer": Subject("fluid.Trainer", trainer)}


# ---------------------------------------------------------------- killing
def kill_and_compare(subject: Subject, kills: int, seed: int = 0) -> Outcome:
    """Train unbroken, train with this many kills, compare the files that both save.

    Raises RuntimeError when a process fails, or ends before it is killed.
    """
    begin, moments = time.perf_counter(), random.Random(seed)
    epochs, early = EPOCHS_PER_KILL * kills, 0
    with TemporaryDirectory(prefix="kills-") as name:
        work = Path(name)
        write_programs(work)
        _finish(subject.command(work, work / "unbroken", None, epochs, NEVER))
        killed = work / "killed", work / "checkpoints", epochs
        for number in range(kills):
            early += _kill(subject.command(work, *killed, ALWAYS), moments, number)
        _finish(subject.command(work, *killed, NEVER))
        files = sorted(file.name for file in (work / "unbroken").iterdir())
        other = sorted(file.name for file in (work / "killed").iterdir())
        different = {name for name in files if not _same(work / "unbroken" / name, work / "killed" / name)}
        different |= set(files) ^ set(other)
    return Outcome(kills, early, len(files), tuple(sorted(different)), time.perf_counter() - begin)


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def _kill(command: list[str], moments: random.Random, number: int) -> bool:
    """Start a process and kill it: before its first step (then the result is True) or up to 80 ms after."""
    early = moments.random() < EARLY
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment()) as child:
        assert child.stdout is not None and child.stderr is not None
        if not early and not child.stdout.readline():
            raise RuntimeError(f"life {number} ended before its first step: {child.stderr.read().decode()}")
        time.sleep(moments.uniform(0.0, 0.6 if early else 0.08))
        child.send_signal(signal.SIGKILL)
        if child.wait() != -signal.SIGKILL:
            raise RuntimeError(f"life {number} ended with {child.returncode} before it was killed; give it more epochs")
    return early


def _finish(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=child_environment())
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")


def main() -> int:
    """Run the harness; exit code 1 when a single bit differs."""
    parser = argparse.ArgumentParser(description="Kill trainings, resume them, compare the parameters bit for bit.")
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the moments of the kills")
    parser.add_argument("--only", choices=list(SUBJECTS))
    parser.add_argument("--train", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        output, checkpoints, epochs, every = options.train
        train(output, checkpoints, int(epochs), int(every))
        return 0
    failed = 0
    for key, subject in SUBJECTS.items():
        if options.only in (None, key):
            found = kill_and_compare(subject, options.kills, options.seed)
            failed += bool(found.different)
            verdict = f"DIFFERENT: {', '.join(found.different)}" if found.different else "all bit-equal"
            print(
                f"{subject.name}: {found.kills} kills ({found.early} before the first step), "
                f"{EPOCHS_PER_KILL * found.kills * STEPS} steps, {found.files} files {verdict}, {found.seconds:.0f} s",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
