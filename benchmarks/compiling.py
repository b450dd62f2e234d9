"""How long a region takes to compile for another length of its inputs: `python -m benchmarks.compiling`.

Processor time of a first run at a new length, less that of the next run at the same length; the least over the lengths.
Weights are packed before: at the first length.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool
from benchmarks.feeds import with_lod
from benchmarks.inference_networks import NETWORKS, Network, bert, bert_feeds, write

LENGTHS = (128, 120, 112, 104, 96, 88, 80)
WORDS = 1000


def processor_ms(run: Callable[[], Any]) -> float:
    """Milliseconds of processor time of all threads."""
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def compiling_ms(network: Network, feeds: Callable[[int], dict[str, Any]], folder: Path) -> float:
    """The least of all lengths but the first."""
    write(network, folder)
    model = fluidtool.load(folder / "model.pdmodel", engine="native")
    taken = []
    for length in LENGTHS:
        inputs = with_lod(model, feeds(length))
        first, second = (processor_ms(partial(model.run, inputs)) for _ in range(2))
        taken.append(first - second)
    return min(taken[1:])


def bert_of(length: int) -> dict[str, Any]:
    """Inputs of BERT-base."""
    return bert_feeds(length, WORDS)(np.random.RandomState(0))


def lstm_of(length: int) -> dict[str, Any]:
    """Inputs of the LSTM."""
    return {"words": np.random.RandomState(0).randint(0, WORDS, (length, 1)).astype("int64")}


def main() -> None:
    """Print a line per network."""
    large = Network(bert(words=WORDS, length=-1), bert_feeds(128, WORDS), "BERT-base")
    with tempfile.TemporaryDirectory() as folder:
        for network, feeds in ((NETWORKS["lstm"], lstm_of), (large, bert_of)):
            taken = compiling_ms(network, feeds, Path(folder) / network.title)
            print(f"{network.title:25} {taken:6.1f} ms to compile for another length")


if __name__ == "__main__":
    main()
