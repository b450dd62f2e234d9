"""Inference beside the peers: runs in interleaved rounds, whole processes, memory."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import int8_models, onnx_models
from benchmarks.engines import OURS
from benchmarks.inference_networks import NETWORKS
from benchmarks.rounds import Absent, Engine, Worker, cold, median_ratio, take_turns

COLD = ("resnet50", "mobilenet_v1", "bert_base", "lstm")
"""The networks that whole processes run, and several executors at once."""
CASES = (("resnet50", 8), *((name, 1) for name in NETWORKS), ("se_resnext50", 2))
PRECISIONS = {"bf16": ("resnet50", "mobilenet_v1", "bert_base"), "int8": ("resnet50", "mobilenet_v1", "slim_db")}
"""The networks that are measured with numbers of fewer bits: where weights and products are what counts."""


def options_of(model: Path, batch: int, threads: int, executors: int = 1) -> tuple[str, ...]:
    """What inference_worker.py and peer_worker.py are told."""
    return str(model), "--bs", str(batch), "--threads", str(threads), "--executors", str(executors)


def latency(
    case: tuple[str, int],
    folder: Path,
    present: Sequence[Engine],
    rounds: int,
    burst: float,
    threads: int,
    executors: int = 1,
) -> dict[str, Any]:
    """One network and batch: by engine the milliseconds, the ratio to the best peer of its precision, error, memory.

    Of several executors at once, with so many threads each, the milliseconds are those of all runs by their number.
    """
    network, batch = case
    workers, absent = [], {}
    try:
        for engine in present:
            if network not in PRECISIONS.get(engine.precision, (network,)):
                continue
            try:
                prepare(engine, folder / network, batch)
                workers.append(Worker.begin(engine, *options_of(folder / network, batch, threads, executors)))
            except Absent as error:
                absent[engine.name] = str(error)
        found = take_turns(workers, rounds, burst) if workers else []
    finally:
        for worker in workers:
            worker.end()
    absent |= {worker.engine.name: worker.lost for worker in workers if worker.lost}
    rows = {worker.engine.name: row(worker, workers, found) for worker in workers if not worker.lost}
    return {"network": network, "batch": batch, "executors": executors, "engines": rows, "absent": absent}


def throughput(
    network: str, folder: Path, present: Sequence[Engine], rounds: int, burst: float, processors: int
) -> dict[str, Any]:
    """As `latency`, with an executor of one thread for each processor."""
    return latency((network, 1), folder, present, rounds, burst, threads=1, executors=processors)


def prepare(engine: Engine, model: Path, batch: int) -> None:
    """Write the model in the form that the engine reads."""
    if not engine.name.startswith(("onnx", "open")):
        if engine.precision == "int8":
            int8_models.ours(model)
        return
    try:
        (int8_models.onnx_file if engine.precision == "int8" else onnx_models.write)(model, batch)
    except ImportError as error:
        raise Absent(str(error)) from error


def row(worker: Worker, workers: Sequence[Worker], rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """What one engine's rounds came to."""
    engine, fields = worker.engine, worker.fields
    peers = [
        other.engine.name
        for other in workers
        if other.engine.precision == engine.precision
        and not other.engine.rare
        and not other.engine.name.startswith(OURS)
    ]
    return {
        "precision": engine.precision,
        "ratio": median_ratio(rounds, engine.name, peers),
        "ratios": {
            other.engine.name: median_ratio(rounds, engine.name, [other.engine.name])
            for other in workers
            if engine.name.startswith(OURS) and other is not worker
        },
        "milliseconds": statistics.median(worker.bursts),
        "least": min(worker.bursts),
        "foreign": statistics.median(worker.foreign),
        "error": max(fields["rel_err"], default=None),
        "resident_mb": fields["rss_mb"],
        "resident_most_mb": fields["rss_peak_mb"],
        "arena_bytes": fields.get("arena_bytes"),
    }


def cold_processes(folder: Path, network: str, present: Sequence[Engine], times: int, threads: int) -> dict[str, Any]:
    """By engine the medians of whole processes, in turns; one round before that does not count."""
    measured: dict[str, list[tuple[float, float]]] = {}
    for turn in range(times + 1):
        for engine in present:
            if engine.precision != "float32" or engine.rare:
                continue
            if turn == 0:
                prepare(engine, folder / network, 1)
            one = cold(engine, *options_of(folder / network, 1, threads), "--cold")
            if turn and one:
                measured.setdefault(engine.name, []).append(one)
    rows = {
        name: dict(zip(("seconds", "resident_most_mb"), map(statistics.median, zip(*found, strict=True)), strict=True))
        for name, found in measured.items()
    }
    return {"network": network, "engines": rows}
