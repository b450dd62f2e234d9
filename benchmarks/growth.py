"""How the cost grows: time against the batch, against the length of sequences, against executors at once.

A curve is measured in rounds over all of its sizes; of each size the least of the medians counts, for what else the machine
does only adds to it. A cliff is a size that costs more than LIMIT times what its neighbors make one expect.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool
from benchmarks.feeds import with_lod
from benchmarks.inference_networks import NETWORKS, Network, bert, bert_feeds, write
from benchmarks.rounds import Usage
from fluidtool.tensor import LoDTensor

BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
LENGTHS = (1, 2, 4, 8, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128, 129, 192, 256, 257, 384, 512)
EXECUTORS = (1, 2)
LIMIT = 1.3
LEAST = 3  # runs that a median is of
SMALL_BERT = Network(bert(depth=2, words=1000, length=-1), bert_feeds(128, 1000), "BERT-base, 2 of its 12 layers")


@dataclass(frozen=True)
class Curve:
    """Milliseconds of a run for each size; `each`: of what one size is a multiple."""

    title: str
    each: str
    sizes: tuple[int, ...]
    milliseconds: tuple[float, ...]
    foreign: float = 0.0  # part of the processors that other programs used meanwhile

    @property
    def per_unit(self) -> tuple[float, ...]:
        """Milliseconds for one image, one word, one run."""
        return tuple(ms / size for ms, size in zip(self.milliseconds, self.sizes, strict=True))

    def excess(self, index: int) -> float:
        """How many times as long as expected a size takes: in proportion to the next smaller one, or on the line from that
        to the next larger one, whichever is less. 1 for the smallest size.
        """
        if index == 0:
            return 1.0
        size, before, took = self.sizes[index], self.sizes[index - 1], self.milliseconds[index - 1]
        expected = took * size / before
        if index + 1 < len(self.sizes):
            part = (size - before) / (self.sizes[index + 1] - before)
            expected = min(expected, took + part * (self.milliseconds[index + 1] - took))
        return self.milliseconds[index] / expected

    def cliffs(self) -> dict[int, float]:
        """The sizes that cost more than LIMIT times what is expected, and how many times."""
        found = {size: self.excess(index) for index, size in enumerate(self.sizes)}
        return {size: excess for size, excess in found.items() if excess > LIMIT}

    def as_json(self) -> dict[str, Any]:
        """Everything, with the cliffs."""
        return asdict(self) | {"cliffs": self.cliffs()}


# ---------------------------------------------------------------- measuring
def burst(run: Callable[[], Any], seconds: float) -> float:
    """Milliseconds: the median of what runs take in so many seconds; one before them does not count."""
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def sweep(title: str, each: str, runs: Mapping[int, Callable[[float], float]], rounds: int, seconds: float) -> Curve:
    """Rounds over all sizes; a run says what it takes when it may have so many seconds."""
    used = Usage.now()
    found = [[run(seconds) for run in runs.values()] for _ in range(rounds)]
    return Curve(title, each, tuple(runs), tuple(min(times) for times in zip(*found, strict=True)), used.foreign())


def repeated(model: Any, feeds: Mapping[str, Any]) -> Callable[[float], float]:
    """Runs of a model with some inputs."""
    return lambda seconds: burst(lambda: model.run(feeds), seconds)


# ---------------------------------------------------------------- the curves
def curves(folder: Path, rounds: int, seconds: float, only: Sequence[str] = tuple(NETWORKS)) -> Iterator[Curve]:
    """The curves of these networks, as they are measured; models are built in `folder`."""
    for name in ("mobilenet_v1", "resnet50"):
        if name in only:
            yield by_batch(folder, name, rounds, seconds)
    if "bert_base" in only:
        yield bert_by_length(folder, rounds, seconds)
    if "lstm" in only:
        yield lstm_by_length(folder, rounds, seconds)
    if "mobilenet_v1" in only:
        yield by_executors(folder, rounds, seconds)


def by_batch(folder: Path, name: str, rounds: int, seconds: float) -> Curve:
    model, inputs = opened(folder / name, NETWORKS[name])
    runs = {count: repeated(model, with_lod(model, inputs, count)) for count in BATCHES}
    return sweep(f"{NETWORKS[name].title}, by batch", "images", runs, rounds, seconds)


def bert_by_length(folder: Path, rounds: int, seconds: float) -> Curve:
    model, inputs = opened(folder / "bert_small", SMALL_BERT)
    runs = {}
    for length in LENGTHS:
        feeds = {name: np.resize(array, (1, length, *array.shape[2:])) for name, array in inputs.items()}
        runs[length] = repeated(model, feeds | {"pos_ids": np.arange(length, dtype="int64")[None]})
    return sweep(f"{SMALL_BERT.title}, by length", "words", runs, rounds, seconds)


def lstm_by_length(folder: Path, rounds: int, seconds: float) -> Curve:
    model, inputs = opened(folder / "lstm", NETWORKS["lstm"])
    runs = {}
    for length in LENGTHS:
        words = LoDTensor(np.resize(inputs["words"], (length, 1)), [[0, length]])
        runs[length] = repeated(model, {"words": words})
    return sweep("LSTM 2 x 256, by length", "words", runs, rounds, seconds)


def by_executors(folder: Path, rounds: int, seconds: float) -> Curve:
    """MobileNet-V1 by so many executors at once, in threads of their own: what as many runs take, by what all get done."""
    opens = [opened(folder / "mobilenet_v1", NETWORKS["mobilenet_v1"]) for _ in range(max(EXECUTORS))]
    each = [repeated(model, with_lod(model, inputs)) for model, inputs in opens]
    runs = {count: at_once(each[:count]) for count in EXECUTORS}
    return sweep("MobileNet-V1, executors at once", "executors", runs, rounds, max(seconds, 0.3))


def at_once(runs: Sequence[Callable[[float], float]]) -> Callable[[float], float]:
    """Several, each in a thread; the milliseconds in which they get as many runs done as they are."""

    def together(seconds: float) -> float:
        with ThreadPoolExecutor(len(runs)) as threads:
            found = list(threads.map(lambda run: run(seconds), runs))
        return statistics.harmonic_mean(found)

    return together


def opened(folder: Path, network: Network) -> tuple[Any, dict[str, Any]]:
    """A model, built where it is missing, and one set of its inputs."""
    write(network, folder)
    model = fluidtool.load(folder / "model.pdmodel")
    with np.load(folder / "io.npz") as stored:
        return model, {name: stored[f"in_{name}"] for name in model.feeds}


def plot(found: Sequence[Mapping[str, Any]], target: Path) -> None:
    """All curves as one SVG, what one costs above the size, cliffs marked; raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fluidtool"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(found), figsize=(4 * len(found), 6), layout="constrained", squeeze=False)
    for (above, below), each in zip(axes.T, found, strict=True):
        sizes, times = each["sizes"], each["milliseconds"]
        ones = [ms / size for ms, size in zip(times, sizes, strict=True)]
        cliffs = {int(size) for size in each["cliffs"]}
        for axis, values, label in ((above, times, "ms"), (below, ones, f"ms for one of the {each['each']}")):
            axis.plot(sizes, values, marker=".")
            marked = [(size, value) for size, value in zip(sizes, values, strict=True) if size in cliffs]
            axis.plot(*zip(*marked, strict=True) if marked else ([], []), "rv", label="cliff")
            axis.set(xlabel=each["each"], ylabel=label, ylim=(0, None))
            axis.grid(alpha=0.3)
        above.set_title(each["title"], fontsize=9)
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)
