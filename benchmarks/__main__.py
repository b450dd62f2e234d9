"""Every measurement in one command: `python -m benchmarks`.

fluidtool beside every peer that is here - ONNX Runtime and OpenVINO of this interpreter, Paddle by the interpreters that
PADDLE_1 and PADDLE_2 name (1.8.5 and 2.6), PyTorch by the one that TORCH names, or this one - on models built here, with
random weights: latency in interleaved rounds, several executors at once, cold processes, starts of the command line,
memory, what kernels reach of the processor's limits, networks of full size, training, growth of the cost; and which goals
are met. A ratio is the median, over the rounds, of the time to that of the quickest peer of the same precision; `others` is
the part of the processors that other programs used meanwhile. What is not run is said, with the reason. --keep writes the
results into a folder, by date, each as soon as it is there, tables and plots at the end.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import full_models, gpu_rows, growth, keeping, limits
from benchmarks.engines import absence_of_native, engines, machine, processors
from benchmarks.inference_networks import NETWORKS, write
from benchmarks.latency import CASES, COLD, cold_processes, latency, throughput
from benchmarks.rounds import ROOT, Engine
from benchmarks.starts import command_line
from benchmarks.tables import goals_table, gpu_tables, tables
from benchmarks.training import peers, trained
from benchmarks.training_networks import NETWORKS as TRAINED
from benchmarks.training_networks import ON_GPUS
from fluidtool.cli.render import plain

Part = Callable[[argparse.Namespace, Sequence[Engine]], Iterable[Any]]
SHOWN_ALONE = {"latency", "throughput"}  # parts each of whose results is a table


# ---------------------------------------------------------------- the parts: each gives its results as they come
def latency_part(options: argparse.Namespace, present: Sequence[Engine]) -> Iterable[Any]:
    cases = [case for case in CASES if case[0] in options.networks]
    settings = options.rounds, options.burst, options.threads
    return (latency(case, options.models, present, *settings) for case in cases)


def throughput_part(options: argparse.Namespace, present: Sequence[Engine]) -> Iterable[Any]:
    if options.threads < 2:
        return absent("throughput", "one thread is one executor")
    names = [name for name in options.networks if name in COLD]
    settings = options.rounds, options.burst, options.threads
    return (throughput(name, options.models, present, *settings) for name in names)


def cold_part(options: argparse.Namespace, present: Sequence[Engine]) -> Iterable[Any]:
    settings = options.cold, options.threads
    return (cold_processes(options.models, name, present, *settings) for name in options.networks if name in COLD)


def starts_part(options: argparse.Namespace, present: Sequence[Engine]) -> Iterable[Any]:
    return map(command_line, (options.cold,))


def limits_part(options: argparse.Namespace, present: Sequence[Engine]) -> Iterable[Any]:
    if why := absence_of_native():
        return absent("limits", why)
    cases = [case for case in limits.CASES if case[0] in options.networks]
    return (limits.limits(*case, options.models, runs=10 * options.rounds) for case in cases)


def full_part(options: argparse.Namespace, present: Sequence[Engine]) -> Iterable[Any]:
    if options.full_models is None:
        return absent("full-size networks", "--full-models names no folder of them")
    models = full_models.models(options.full_models)
    if not models:
        return absent("full-size networks", "the folder that --full-models names has none")
    settings = os.environ.get("PADDLE_1"), options.rounds, options.burst / 2, options.threads
    return (full_models.compared(model, *settings) for model in models)


def training_part(options: argparse.Namespace, present: Sequence[Engine]) -> Iterable[Any]:
    others, missing = peers()
    for what, why in missing.items():
        absent(what, why)
    settings = options.rounds, options.burst, options.threads
    return (trained(name, others, *settings) for name in options.trained if others)


def growth_part(options: argparse.Namespace, present: Sequence[Engine]) -> Iterable[Any]:
    found = growth.curves(options.models, max(1, options.rounds // 3), options.burst / 4, options.networks)
    return (curve.as_json() for curve in found)


PARTS: dict[str, Part] = {
    "latency": latency_part,
    "throughput": throughput_part,
    "cold": cold_part,
    "starts": starts_part,
    "limits": limits_part,
    "full": full_part,
    "training": training_part,
    "growth": growth_part,
}


def measure(part: str, results: Iterable[Any]) -> Iterator[list[Any]]:
    """Print the tables of a part, and give all of its results so far, each time that there is one more."""
    found: list[Any] = []
    try:
        for one in results:
            found.append(one)
            if part in SHOWN_ALONE:
                show(part, [one])
            yield found
    finally:  # also of a part that fails
        if part not in SHOWN_ALONE:
            show(part, found)


def show(part: str, found: list[Any]) -> None:
    for each in tables({part: found} if found else {}):
        print(plain(each), flush=True)


def absent(what: str, why: str) -> list[Any]:
    """Say that something is not run."""
    print(f"not run: {what}: {why}", file=sys.stderr, flush=True)
    return []


# ---------------------------------------------------------------- the command
def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=tuple(PARTS), help="only these")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=tuple(NETWORKS), help="only these")
    parser.add_argument("--trained", nargs="+", choices=ON_GPUS, help="only these, of `training`")
    parser.add_argument("--peers", nargs="+", default=(), metavar="NAME", help="only these engines beside ours")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="gpu: on a GPU alone (gpu_rows.py)")
    parser.add_argument("--minutes", type=float, default=9.5, help="with --device gpu: what it may take altogether")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--burst", type=float, default=0.4, help="seconds that an engine measures in a round")
    parser.add_argument("--cold", type=int, default=3, help="cold processes that a median is taken of")
    parser.add_argument("--threads", type=int, default=processors())
    parser.add_argument(
        "--models", type=Path, default=ROOT / "build" / "benchmarks" / "models", help="where models are built and kept"
    )
    parser.add_argument(
        "--full-models", type=Path, help="a folder of saved models (full_models_worker.py says of what)"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        nargs="?",
        const=ROOT / "benchmarks" / "results",
        metavar="FOLDER",
        help="keep results, tables and plots here, by date (without FOLDER: benchmarks/results)",
    )
    found = parser.parse_args(given)
    found.trained = found.trained or tuple(ON_GPUS if found.device == "gpu" else TRAINED)
    return found


def on_gpu(options: argparse.Namespace) -> int:
    """Measure the rows of a GPU; print them, shares of its limits, goals, and what is left out."""
    listed = gpu_rows.tasks(options.parts, options.networks, options.trained, options.peers)
    settings = ["--models", str(options.models), "--rounds", str(min(options.rounds, 5))]
    rows, left_out = gpu_rows.measured(listed, options.minutes, settings, lambda line: print(line, flush=True))
    found = {"gpu": gpu_rows.with_shares(rows), "not_run": left_out}
    for each in (*gpu_tables(found["gpu"]), goals_table(found)):
        print(plain(each), flush=True)
    for what, why in left_out.items():
        absent(what, why)
    if options.keep is not None:
        for path in keeping.keep_gpu(found, options.keep / "gpu"):
            print(f"kept in {path}", file=sys.stderr)
    return 0


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, keep."""
    options = arguments(given)
    if options.device == "gpu":
        return on_gpu(options)
    os.environ["FLUIDTOOL_THREADS"] = str(options.threads)
    start = time.monotonic()
    present, missing = engines(options.peers)
    for name, why in missing.items():
        absent(name, why)
    if {"latency", "throughput", "cold", "limits"} & set(options.parts):
        for name in options.networks:
            write(NETWORKS[name], options.models / name)
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "machine": machine(),
        "settings": {"threads": options.threads, "rounds": options.rounds, "burst_seconds": options.burst},
        "not_run": missing,
    }
    for part, run in PARTS.items():
        if part in options.parts:
            for measured in measure(part, run(options, present)):
                found[part] = measured
                if options.keep is not None:
                    keeping.keep_results(found, options.keep)
    if (goals := goals_table(found)).rows:
        print(plain(goals), flush=True)
    print(f"measured in {(time.monotonic() - start) / 60:.1f} minutes", file=sys.stderr)
    if options.keep is not None:
        for path in keeping.keep(found, options.keep):
            print(f"kept in {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
