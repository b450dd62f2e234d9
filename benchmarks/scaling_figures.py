"""Measures what docs/scaling.md starts from: `python -m benchmarks.scaling_figures [--save]`.

Runs benchmarks.rpc and benchmarks.collectives, and trains the network of the model; each figure is the best of several
rounds, so that other work on the machine counts as little as possible. `--save` puts them into scaling.json, whose other
parts stay as they are.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool.fluid as fluid
from fluidtool.runtime import Executor, Scope

FILE = Path(__file__).with_name("scaling.json")
FIELDS, NUMBERS, WIDTH, BATCH, TABLE_ROWS = 26, 13, 16, 512, 100_000
EXCHANGED = 10 << 20


def best(work: Callable[[], object], rounds: int = 9) -> float:
    """Seconds of the fastest round."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def add_rate() -> float:
    """Bytes per second of one operand when numpy adds two arrays."""
    array, out = np.ones(EXCHANGED // 4, "float32"), np.empty(EXCHANGED // 4, "float32")
    return float(array.nbytes / best(lambda: np.add(array, array, out=out)))


def update_rate() -> float:
    """Bytes of parameters per second that Adam updates."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        weight = fluid.layers.create_parameter([EXCHANGED // 4], "float32", name="w")
        gradient = fluid.layers.data("g", [EXCHANGED // 4], append_batch_size=False)
        fluid.optimizer.Adam(0.01).apply_gradients([(weight, gradient)])
    executor, scope = Executor(), Scope()
    executor.run(startup, {}, [], scope)
    feed = {"g": np.ones(EXCHANGED // 4, "float32")}
    return EXCHANGED / best(lambda: executor.run(main, feed, [], scope))


def click_network() -> dict[str, Any]:
    """A step of a click predictor: 26 ids in one table of rows of 16 numbers, and three layers of 400."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = [fluid.layers.data(f"ids_{field}", [1], dtype="int64") for field in range(FIELDS)]
        table = fluid.ParamAttr(name="table")
        rows = [fluid.layers.embedding(one, [TABLE_ROWS, WIDTH], is_sparse=True, param_attr=table) for one in ids]
        hidden = fluid.layers.concat([*rows, fluid.layers.data("numbers", [NUMBERS])], axis=1)
        for _ in range(3):
            hidden = fluid.layers.fc(hidden, 400, act="relu")
        label = fluid.layers.data("label", [1])
        guess = fluid.layers.fc(hidden, 1)
        loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(guess, label))
        fluid.optimizer.SGD(0.01).minimize(loss)
    executor, scope, random = Executor(), Scope(), np.random.default_rng(0)
    executor.run(startup, {}, [], scope)
    feed = {f"ids_{field}": random.integers(0, TABLE_ROWS, (BATCH, 1)) for field in range(FIELDS)}
    touched = len(np.unique(np.concatenate(list(feed.values()))))
    feed["numbers"] = random.normal(size=(BATCH, NUMBERS)).astype("float32")
    feed["label"] = random.integers(0, 2, (BATCH, 1)).astype("float32")
    dense = [var for var in main.all_parameters() if var.name != "table"]
    return {
        "click_step_seconds": best(lambda: executor.run(main, feed, [loss.name], scope)),
        "click_examples": BATCH,
        "click_dense_bytes": sum(4 * int(np.prod(var.shape)) for var in dense),
        "click_variables": len(dense),
        "click_row_bytes": touched * WIDTH * 4,
    }


def table_row(command: list[str], first: str) -> list[str]:
    """The words of the line that begins with `first` of what a benchmark prints."""
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout
    return next(line for line in said.splitlines() if line.startswith(first)).removeprefix(first).split()


def transport() -> dict[str, float]:
    """What benchmarks.rpc says of sockets: GiB/s pushed and pulled, ms of a step of 14 messages, ms of a round trip."""
    push, pull, _, step, trip = map(float, table_row([sys.executable, "-m", "benchmarks.rpc"], "socket "))
    return {
        "push_bytes_per_second": push * 2**30,
        "pull_bytes_per_second": pull * 2**30,
        "message_seconds": step / 14 / 1000,
        "round_trip_seconds": trip / 1000,
    }


def exchanges() -> dict[str, float]:
    """All-reduce of 10 MiB and of 40 bytes between 2 processes: by gRPC, and by MPI where it is installed."""
    own = [sys.executable, "-m", "benchmarks.collectives", "--rounds", "9", "--sizes"]
    found = {}
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    for name, before, first, after in (
        ("grpc", [], "gRPC", ["--grpc", "--ranks", "2"]),
        ("mpi", [mpiexec, "-n", "2"], "MPI", []),
    ):
        if None in before:
            continue
        for kind, size in (("large", "10 MiB"), ("small", "40 B")):
            words = table_row([*before, *own, size, *after], first)
            found[f"{name}_{kind}_seconds"] = float(words[3]) / 1000
    return found


def processor() -> str:
    """The name of the processor, as Linux tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    measured: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} virtual CPUs ({processor()}), {platform.system()}, all processes on this machine",
        "load": round(os.getloadavg()[0], 1),
        "software": f"Python {platform.python_version()}, numpy {np.__version__}",
        "add_bytes_per_second": add_rate(),
        "update_bytes_per_second": update_rate(),
    }
    measured |= click_network() | transport() | exchanges()
    rounded = {name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in measured.items()}
    figures = json.dumps(json.loads(FILE.read_text()) | {"measured": rounded}, indent=2)
    if "--save" in sys.argv[1:]:
        FILE.write_text(f"{figures}\n")
    else:
        print(figures)


if __name__ == "__main__":
    main()
