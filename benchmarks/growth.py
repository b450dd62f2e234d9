"""How the cost grows: time against the batch, against the length of sequences, against two executors at once."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool
from benchmarks.inference_networks import Network, bert, bert_feeds, with_lod, write
from fluidtool.tensor import LoDTensor

BATCHES = (1, 2, 4, 8, 16, 32)
LENGTHS = (16, 32, 64, 128, 256, 512)
SMALL_BERT = {"depth": 2, "width": 256, "heads": 4, "words": 1000}


@dataclass(frozen=True)
class Curve:
    """Milliseconds of a run for each size; `each`: of what one size is a multiple."""

    title: str
    each: str
    sizes: tuple[int, ...]
    milliseconds: tuple[float, ...]

    @property
    def per_unit(self) -> tuple[float, ...]:
        """Milliseconds for one image, one word, one run."""
        return tuple(ms / size for ms, size in zip(self.milliseconds, self.sizes, strict=True))


def best(run: Callable[[], Any], seconds: float) -> float:
    """Milliseconds: the median of what runs take in so many seconds, at least three."""
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def curves(folder: Path, seconds: float) -> list[Curve]:
    """Every curve; models are built in `folder`."""
    return [
        by_batch(folder, seconds),
        *(by_length(folder, name, seconds) for name in ("bert", "lstm")),
        by_executors(folder, seconds),
    ]


def by_batch(folder: Path, seconds: float) -> Curve:
    model, inputs = opened(folder / "mobilenet_v1")
    feeds = [with_lod(model, inputs, count) for count in BATCHES]
    times = [best(lambda feed=feed: model.run(feed), seconds) for feed in feeds]  # type: ignore[misc]
    return Curve("MobileNet-V1 by batch", "images", BATCHES, tuple(times))


def by_length(folder: Path, name: str, seconds: float) -> Curve:
    times = []
    for length in LENGTHS:
        if name == "bert":
            network = Network(bert(length=length, **SMALL_BERT), bert_feeds(length, SMALL_BERT["words"]), "")
            write(network, folder / f"bert_small_{length}")
            model, inputs = opened(folder / f"bert_small_{length}")
            feeds: dict[str, Any] = dict(inputs)
        else:
            model, inputs = opened(folder / "lstm")
            words = np.resize(inputs["words"], (length, 1))
            feeds = {"words": LoDTensor(words, [[0, length]])}
        times.append(best(lambda m=model, f=feeds: m.run(f), seconds))  # type: ignore[misc]
    title = "BERT of 2 layers, 256 wide, by words" if name == "bert" else "LSTM 2 x 256 by words"
    return Curve(title, "words", LENGTHS, tuple(times))


def by_executors(folder: Path, seconds: float) -> Curve:
    """MobileNet-V1: one executor alone, then two at once in two threads (the time of a run of each)."""
    models = [opened(folder / "mobilenet_v1") for _ in range(2)]
    feeds = [with_lod(model, inputs) for model, inputs in models]
    alone = best(lambda: models[0][0].run(feeds[0]), seconds)
    found = [0.0, 0.0]

    def work(number: int) -> None:
        found[number] = best(lambda: models[number][0].run(feeds[number]), seconds)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Curve("MobileNet-V1 by executors at once", "executors", (1, 2), (alone, max(found)))


def opened(folder: Path) -> tuple[Any, dict[str, Any]]:
    """A model and one set of its inputs."""
    if folder.name in ("mobilenet_v1", "lstm"):
        from benchmarks.inference_networks import NETWORKS

        write(NETWORKS[folder.name], folder)
    model = fluidtool.load(folder / "model.pdmodel")
    with np.load(folder / "io.npz") as stored:
        return model, {name: stored[f"in_{name}"] for name in model.feeds}


def plot(found: Sequence[Curve], target: Path) -> None:
    """All curves as one SVG; raises ImportError without matplotlib (extra `plot`)."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(found), figsize=(4 * len(found), 3.2), layout="constrained")
    for axis, curve in zip(axes, found, strict=True):
        axis.plot(curve.sizes, curve.milliseconds, marker="o")
        axis.set(title=curve.title, xlabel=curve.each, ylabel="ms", ylim=(0, None))
        axis.set_xticks(curve.sizes)
        axis.grid(alpha=0.3)
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


__all__ = ["Curve", "curves", "plot"]
