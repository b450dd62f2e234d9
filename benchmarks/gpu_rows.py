"""The rows of a GPU, each in a process of its own: what says most first, with limits of time; then shares, and which goals are met.

`python -m benchmarks --device gpu --minutes 9.5`. Within the minutes all rows are run without what compiles for long, those first
that were never measured; then again with PyTorch compiled. What there was no time for is said. A row that hangs, or that breaks
its GPU, costs no other. `python -m benchmarks.gpu_rows` is one row's process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rounds import ROOT

Row = dict[str, Any]
Say = Callable[[str], None]
WORKER = (sys.executable, "-m", "benchmarks.gpu_rows")
COMPILED = ("torch, compiled", "torch, compiled, bf16")
PAUSE = 5.0  # seconds below which no row is begun


@dataclass(frozen=True)
class Task:
    """A row to be measured: of which part, of what, in how many seconds at most. ways: only these, or all but COMPILED."""

    part: str
    network: str
    batch: int = 0
    limit: float = 40.0
    ways: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called where it is left out."""
        return f"{self.part} {self.network}" + (f", batch {self.batch}" if self.batch else "")


CEILINGS = Task("ceilings", "gpu", limit=40)
IMPORTANT = (
    Task("training", "bert_base", limit=80),
    Task("training", "resnet50", limit=75),
    Task("training", "lstm", limit=45),
    Task("inference", "bert_base", 64, limit=60),
    Task("training", "resnet18", limit=50),
    Task("inference", "resnet50", 1, limit=50),
    Task("inference", "lstm", 1, limit=40),
    Task("inference", "bert_base", 1, limit=45),
    Task("inference", "resnet50", 64, limit=50),
    Task("inference", "mobilenet_v1", 1, limit=40),
    Task("training", "deepfm"),
    Task("training", "convolution", limit=35),
    Task("training", "mlp", limit=35),
)
"""By importance: the first three were never measured beside PyTorch, the next were slower than it."""


def tasks(parts: Sequence[str], networks: Sequence[str], trained: Sequence[str], wanted: Sequence[str]) -> list[Task]:
    """What to measure, in this order. wanted: only these ways, if there are any."""
    part_of = {"latency": "inference", "training": "training"}
    kinds = {part_of[part] for part in parts if part in part_of}
    chosen = [
        each
        for each in IMPORTANT
        if each.part in kinds and each.network in (trained if each.part == "training" else networks)
    ]
    if wanted:
        return [CEILINGS, *(Task(each.part, each.network, each.batch, each.limit, tuple(wanted)) for each in chosen)]
    slow = [Task(each.part, each.network, each.batch, 60 + each.limit / 2, COMPILED) for each in chosen]
    return [CEILINGS, *chosen, *slow]


def measured(
    listed: Iterable[Task], minutes: float, options: Sequence[str], say: Say, worker: Sequence[str] = WORKER
) -> tuple[list[Row], dict[str, str]]:
    """(a row for each network and batch, why others are left out); each row is said as JSON as soon as it is there."""
    end, found = time.monotonic() + 60 * minutes, dict[tuple[str, str, int], Row]()
    left_out: dict[str, str] = {}
    for task in listed:
        remaining = end - time.monotonic()
        if remaining < PAUSE:
            left_out[_called(task)] = f"the {minutes:g} minutes are over"
            continue
        limit = min(task.limit, remaining)
        row, why = run(task, limit, options, worker)
        if why:
            left_out[_called(task)] = why
        if row is not None:
            key = task.part, task.network, row.get("batch", task.batch)
            before = found.get(key, {})
            found[key] = joined(before, row)
            say(json.dumps(found[key]))
    return list(found.values()), left_out


def _called(task: Task) -> str:
    return f"{task.name} ({', '.join(task.ways)})" if task.ways else task.name


def joined(before: Mapping[str, Any], row: Mapping[str, Any]) -> Row:
    """One row of two of the same network, whose ways were measured apart."""
    parts = {name: {**before.get(name, {}), **row.get(name, {})} for name in ("host_us", "not_run", "needs")}
    return {**before, **row, **parts}


def run(task: Task, limit: float, options: Sequence[str], worker: Sequence[str]) -> tuple[Row | None, str]:
    """(the row of a task as far as its process came, why it came no further): the process is ended after its time."""
    given = [task.part, task.network, str(task.batch), *options]
    ways = ["--ways", *task.ways] if task.ways else []
    process = subprocess.Popen(
        [*worker, *given, *ways], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    late = threading.Timer(limit, process.kill)
    late.start()
    errors: list[str] = []
    listening = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
    listening.start()
    row: Row | None = None
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            row = json.loads(line)
    code = process.wait()
    is_late = not late.is_alive()
    late.cancel()
    listening.join(timeout=5)
    if code == 0:
        return row, ""
    if is_late:
        return row, f"{limit:.0f} s were over"
    last = next((line.strip() for line in reversed(errors) if line.strip()), "nothing was said")
    return row, f"its process ended with {code}: {last[:300]}"


# ---------------------------------------------------------------- shares of the GPU's limits
def with_shares(rows: Sequence[Row]) -> list[Row]:
    """Rows with shares of what the GPU was measured to reach, by way: of its products where there are many, else of its memory."""
    limits = next((row["limits"] for row in rows if row["part"] == "ceilings"), None)
    return [row if limits is None or "needs" not in row else {**row, "share": shares(row, limits)} for row in rows]


HALF = ", bf16"
AT_LEAST = 32  # inputs of a batch whose products are what takes the time
TOUCHED = {
    "inference": 1,
    "training": 6,
}  # how often a parameter is read or written: itself, its gradient, one state of it


def shares(row: Mapping[str, Any], limits: Mapping[str, float]) -> dict[str, float]:
    """By way of fluidtool and PyTorch: the part of the time that the limit needs."""
    needs, found = row["needs"], {}
    by_products = row["batch"] >= AT_LEAST and needs.get("operations", 0) > 1e10
    for way, milliseconds in row.items():
        if not way.startswith(("fluidtool,", "torch,")):
            continue
        half = way.endswith(HALF)
        if by_products:
            least = needs["operations"] / limits["bf16_flops" if half else "float32_flops"]
        else:
            smaller = 0.5 if half and row["part"] == "inference" else 1.0
            least = needs.get("parameter_bytes", 0) * smaller * TOUCHED[row["part"]] / limits["bytes_per_second"]
        if least:
            found[way] = round(least / (milliseconds / 1e3), 3)
    return found


def ceilings(rounds: int) -> Row:
    """What PyTorch reaches on this GPU: products of large matrices in float32 and bf16, and copies."""
    from benchmarks.gpu import DEVICE, seconds_of, torch_module

    torch = torch_module()
    size, floats = (8192, 1 << 28) if DEVICE == "cuda" else (256, 1 << 16)

    def best(go: Callable[[], Any]) -> float:
        go()
        return min(seconds_of(go, 5) for _ in range(rounds))

    found = {}
    for name, kind in (("float32_flops", torch.float32), ("bf16_flops", torch.bfloat16)):
        x, y = (torch.randn(size, size, device=DEVICE, dtype=kind) for _ in range(2))
        found[name] = 2.0 * size**3 / best(lambda x=x, y=y: torch.mm(x, y))  # type: ignore[misc]
    source = torch.zeros(floats, device=DEVICE)
    target = torch.empty_like(source)
    found["bytes_per_second"] = 8.0 * floats / best(lambda: target.copy_(source))
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "a processor"
    return {"part": "ceilings", "network": "gpu", "batch": 0, "device": name, "limits": found}


# ---------------------------------------------------------------- one row's process
def main(given: Sequence[str] | None = None) -> int:
    """Measure one row; the last line of what is printed is the whole of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_rows", description=__doc__)
    parser.add_argument("part", choices=("ceilings", "inference", "training"))
    parser.add_argument("network")
    parser.add_argument("batch", type=int)
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "benchmarks" / "models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", default=())
    options = parser.parse_args(given)

    def report(row: Row) -> None:
        print(json.dumps(row), flush=True)

    report(_one(options, report))
    return 0


def _one(options: argparse.Namespace, report: Callable[[Row], None]) -> Row:
    if options.part == "ceilings":
        return ceilings(options.rounds)
    from benchmarks import gpu, gpu_training

    wanted = options.ways or gpu.QUICK
    if options.part == "training":
        return gpu_training.one(options.network, options.rounds, wanted, report)
    return gpu.one(options.network, options.batch, options.models, options.rounds, wanted=wanted, report=report)


if __name__ == "__main__":
    sys.exit(main())
