"""Training speed beside Paddle 1.8.5 and PyTorch: the same network on the same batch, in interleaved rounds."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.rounds import Absent, Engine, Worker, median_ratio, take_turns

WORKER, TORCH_WORKER = (str(Path(__file__).with_name(name)) for name in ("training_worker.py", "torch_worker.py"))
OURS = Engine("fluidtool", (sys.executable, WORKER, "fluidtool.fluid"))
PADDLE, TORCH = "paddle1", "torch"
VARIANTS = ("eager", "channels_last", "compiled")
IMAGES = ("convolution", "resnet18")
OF_PADDLE_ALONE = ("million_rows", "lstmp", "greedy")
"""Networks of operators that PyTorch does not have: Adam of all rows by sparse gradients, projections as Paddle's, `while`."""
COMMON = (
    "PyTorch has one operator for softmax and cross entropy, draws other initial weights, and fetches the loss as we do"
)
DIFFERENCES = {
    "mlp": COMMON,
    "convolution": COMMON,
    "resnet18": COMMON,
    "lstm": f"{COMMON}; its sequences are packed for nn.LSTM, which has a second bias, and padded for the maximum",
    "sparse_ctr": f"{COMMON}; its Adagrad sums rows that occur twice before the update, as Paddle's does",
    "deepfm": f"{COMMON}; tables are updated by SparseAdam, which is lazy, as Paddle's lazy Adam",
    "seq2seq": f"{COMMON}; its encoder reads packed sequences, its decoder padded ones; its reset gates "
    "come after the product",
    "bert_base": f"{COMMON}; attention is scaled_dot_product_attention",
}
"""In what the networks of both sides differ, by network."""


def peers() -> tuple[list[Engine], dict[str, str]]:
    """(Paddle and PyTorch where they are, why others are not). TORCH names an interpreter, if this one has no PyTorch."""
    found: list[Engine] = []
    missing: dict[str, str] = {}
    if paddle := os.environ.get("PADDLE_1"):
        found.append(Engine(PADDLE, (paddle, WORKER, "paddle.fluid")))
    else:
        missing["training beside Paddle"] = "PADDLE_1 names no interpreter that has Paddle 1.8.5"
    python = os.environ.get("TORCH") or (sys.executable if find_spec("torch") else "")
    if python:
        found += [Engine(f"{TORCH} {variant}", (python, TORCH_WORKER, variant)) for variant in VARIANTS]
    else:
        missing["training beside PyTorch"] = "TORCH names no interpreter that has PyTorch, and this one has none"
    return found, missing


def trains(engine: Engine, network: str) -> bool:
    """Whether an engine trains this network; channels are last only where there are some."""
    if network in OF_PADDLE_ALONE and engine.name.startswith(TORCH):
        return False
    return network in IMAGES or not engine.name.endswith("channels_last")


def trained(network: str, others: Sequence[Engine], rounds: int, burst: float, threads: int) -> dict[str, Any]:
    """Examples per second of one network by engine, and the ratios of our speed to Paddle's and to the best of PyTorch,
    above 1 where we are ahead; the most memory by engine, and the ratio of ours to the least of PyTorch's. `absent` says
    why an engine could not.
    """
    workers: list[Worker] = []
    absent: dict[str, str] = {}
    try:
        for engine in (OURS, *(other for other in others if trains(other, network))):
            try:
                workers.append(Worker.begin(engine, network, str(threads)))
            except Absent as error:
                absent[engine.name] = str(error)
        found = take_turns(workers, rounds, burst)
        absent |= {worker.engine.name: worker.lost for worker in workers if worker.lost}
    finally:
        for worker in workers:
            worker.end()
    here = [worker for worker in workers if worker.bursts and not worker.lost]
    names = [worker.engine.name for worker in here if worker.engine is not OURS]
    torches = [name for name in names if name.startswith(TORCH)]
    return {
        "network": network,
        "examples_per_second": {worker.engine.name: speed(worker) for worker in here},
        "ratio": speed_ratio(found, [name for name in names if name == PADDLE]),
        "torch_ratio": speed_ratio(found, torches),
        "resident_most_mb": {worker.engine.name: worker.fields.get("rss_peak_mb") for worker in here},
        "memory_ratio": memory_ratio(here, torches),
        "differences": DIFFERENCES[network] if torches else "",
        "absent": absent,
    }


def speed_ratio(rounds: Sequence[dict[str, float]], others: Sequence[str]) -> float | None:
    """Our speed to that of the quickest of others in the same round, the median over the rounds; None without others."""
    ratio = median_ratio(rounds, OURS.name, others)
    return None if ratio is None else 1 / ratio


def memory_ratio(workers: Sequence[Worker], others: Sequence[str]) -> float | None:
    """The most memory that our process had to that of the most frugal of others; None where one does not say."""
    most = {worker.engine.name: worker.fields.get("rss_peak_mb") for worker in workers}
    ours, theirs = most.get(OURS.name), [found for name in others if (found := most[name])]
    return ours / min(theirs) if ours and theirs else None


def speed(worker: Worker) -> float:
    """Examples per second."""
    return float(worker.fields["batch"]) * 1e3 / statistics.median(worker.bursts)
