"""Saved models of full size, with what Paddle computed of them, beside Paddle 1.8.5 with MKL-DNN.

A folder has a folder for each model, as full_models_worker.py says. Where a model runs on none of the two, that is said.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.rounds import Absent, Engine, Worker, median_ratio, take_turns

WORKER = str(Path(__file__).with_name("full_models_worker.py"))


def models(folder: Path) -> list[Path]:
    """The models in a folder."""
    return sorted(path.parent for path in folder.glob("*/__params__"))


def compared(model: Path, paddle: str | None, rounds: int, burst: float, threads: int) -> dict[str, Any]:
    """Milliseconds of a run by engine, the ratio of ours to Paddle's, our error beside what is stored with the model.

    `paddle` is an interpreter that has Paddle 1.8.5.
    """
    engines = [Engine("fluidtool", (sys.executable, WORKER, "fluidtool"))]
    if paddle:
        engines.append(Engine("paddle1 mkldnn", (paddle, WORKER, "paddle")))
    workers, absent = [], {}
    try:
        for engine in engines:
            try:
                workers.append(Worker.begin(engine, str(model), str(threads)))
            except Absent as error:
                absent[engine.name] = str(error)
        found = take_turns(workers, rounds, burst) if workers else []
    finally:
        for worker in workers:
            worker.end()
    absent |= {worker.engine.name: worker.lost for worker in workers if worker.lost}
    rows = {
        worker.engine.name: {"milliseconds": statistics.median(worker.bursts), "error": worker.fields["error"]}
        for worker in workers
        if not worker.lost
    }
    ratio = median_ratio(found, "fluidtool", ["paddle1 mkldnn"])
    return {"model": model.name, "engines": rows, "ratio": ratio, "absent": absent}
