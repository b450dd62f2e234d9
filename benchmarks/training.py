"""Training speed beside Paddle 1.8.5: the same program on the same batch, in interleaved rounds."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.rounds import Absent, Engine, Worker, median_ratio, take_turns

WORKER = str(Path(__file__).with_name("training_worker.py"))


def trained(network: str, paddle: str, rounds: int, burst: float, threads: int) -> dict[str, Any]:
    """Examples per second of one network, ours and theirs; the ratio of the speeds, above 1 where we are ahead.

    `paddle` is an interpreter that has Paddle 1.8.5. Where one of them cannot, `absent` says why.
    """
    ours = Engine("fluidtool", (sys.executable, WORKER, "fluidtool.fluid"))
    theirs = Engine("paddle1", (paddle, WORKER, "paddle.fluid"))
    workers = []
    try:
        for engine in (ours, theirs):
            workers.append(Worker.begin(engine, network, str(threads)))
        found = take_turns(workers, rounds, burst)
        if lost := [worker.lost for worker in workers if worker.lost]:
            raise Absent(lost[0])
    except Absent as error:
        return {"network": network, "absent": str(error)}
    finally:
        for worker in workers:
            worker.end()
    speeds = {worker.engine.name: speed(worker) for worker in workers}
    ratio = median_ratio(found, theirs.name, [ours.name])
    return {"network": network, "examples_per_second": speeds, "ratio": ratio}


def speed(worker: Worker) -> float:
    """Examples per second."""
    return float(worker.fields["batch"]) * 1e3 / statistics.median(worker.bursts)
