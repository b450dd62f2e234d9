"""What is to be reached, and what a measurement has found: one line for each goal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.engines import OURS
from benchmarks.inference_networks import NETWORKS

Found = Mapping[str, Any]
SMALL_NETWORKS = (
    *("mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet"),
    *("yolo", "db", "crnn", "se_resnext50"),
)


@dataclass(frozen=True)
class Goal:
    """A ratio of a measurement, and where it must lie. `of` gives None for what was not measured."""

    what: str
    of: Callable[[Found], float | None]
    at_most: float | None = None
    at_least: float | None = None

    def is_met(self, ratio: float) -> bool:
        """Whether a ratio is good enough."""
        return (self.at_most is None or ratio <= self.at_most) and (self.at_least is None or ratio >= self.at_least)


# ---------------------------------------------------------------- where a measurement has the ratios
def training(network: str, key: str) -> Callable[[Found], float | None]:
    def ratio(found: Found) -> float | None:
        return next((each.get(key) for each in found.get("training", ()) if each["network"] == network), None)

    return ratio


def time_to_paddle(network: str) -> Callable[[Found], float | None]:
    speed = training(network, "ratio")
    return lambda found: None if (ratio := speed(found)) is None else 1 / ratio


def latency(network: str, batch: int, engine: str = OURS, other: str = "") -> Callable[[Found], float | None]:
    """To the quickest peer of its precision, or to `other`."""

    def ratio(found: Found) -> float | None:
        for case in found.get("latency", ()):
            if (case["network"], case["batch"]) == (network, batch) and engine in case["engines"]:
                row = case["engines"][engine]
                return row.get("ratios", {}).get(other) if other else row["ratio"]
        return None

    return ratio


def cold(network: str) -> Callable[[Found], float | None]:
    def ratio(found: Found) -> float | None:
        for case in found.get("cold", ()):
            engines = case["engines"]
            if case["network"] == network and {OURS, "onnxruntime"} <= set(engines):
                return float(engines[OURS]["seconds"] / engines["onnxruntime"]["seconds"])
        return None

    return ratio


def starts(found: Found) -> float | None:
    return next((each["ratio"] for each in found.get("starts", ())), None)


def gpu_time(part: str, network: str, batch: int | None, half: str = "") -> Callable[[Found], float | None]:
    """The time of a network as a CUDA graph to that of PyTorch in one, or at once where that cannot be captured."""

    def ratio(found: Found) -> float | None:
        row = gpu_row(found, part, network, batch)
        ours = row.get(f"fluidtool, graphs{half}")
        others = row.get(f"torch, graph{half}", row.get(f"torch, eager{half}"))
        return None if ours is None or others is None else float(ours / others)

    return ratio


def gpu_host(part: str, network: str, batch: int | None) -> Callable[[Found], float | None]:
    """The time of the host for a run, to 100 microseconds."""

    def ratio(found: Found) -> float | None:
        host = gpu_row(found, part, network, batch).get("host_us", {}).get("fluidtool, graphs")
        return None if host is None else float(host) / 100

    return ratio


def gpu_row(found: Found, part: str, network: str, batch: int | None) -> Found:
    """The row of a network; an empty one if it was not measured."""
    for row in found.get("gpu", ()):
        if (row["part"], row["network"]) == (part, network) and batch in (None, row["batch"]):
            return row  # type: ignore[no-any-return]
    return {}


# ---------------------------------------------------------------- the goals
def _named(network: str, batch: int = 1) -> str:
    return f"{NETWORKS[network].title}, batch {batch}"


def _goals() -> Iterator[Goal]:
    for network in ("mlp", "convolution", "resnet18", "sparse_ctr", "deepfm", "seq2seq", "bert_base"):
        yield Goal(f"training speed to PyTorch: {network}", training(network, "torch_ratio"), at_least=1.0)
    yield Goal("training speed to PyTorch: lstm", training("lstm", "torch_ratio"), at_least=3.8)
    yield Goal("training speed to Paddle 1.8.5: million_rows", training("million_rows", "ratio"), at_least=1.0)
    for network in ("seq2seq", "lstmp", "greedy"):
        yield Goal(f"time of a step to Paddle 1.8.5: {network}", time_to_paddle(network), at_most=0.9)
    for network in ("mlp", "convolution", "resnet18", "lstm", "sparse_ctr", "deepfm", "seq2seq", "bert_base"):
        yield Goal(f"memory in training to PyTorch: {network}", training(network, "memory_ratio"), at_most=0.8)
    for network in ("resnet50", "mobilenet_v1", "bert_base", "lstm"):
        yield Goal(f"cold process to ONNX Runtime: {_named(network)}", cold(network), at_most=0.9)
    yield Goal("command line to `import numpy`: run samples/digits", starts, at_most=2.0)
    for network in SMALL_NETWORKS:
        yield Goal(f"float32: {_named(network)}", latency(network, 1), at_most=0.95)
    for network, batch in (("resnet50", 1), ("resnet50", 8), ("mobilenet_v1", 1), ("bert_base", 1)):
        yield Goal(f"bf16: {_named(network, batch)}", latency(network, batch, f"{OURS} bf16"), at_most=0.95)
    eight = f"{OURS} int8"
    for network, batch in (("resnet50", 1), ("resnet50", 8), ("mobilenet_v1", 1)):
        yield Goal(f"int8: {_named(network, batch)}", latency(network, batch, eight), at_most=1.0)
        yield Goal(f"int8 to float32: {_named(network, batch)}", latency(network, batch, eight, OURS), at_most=0.45)
    yield Goal(f"int8: {_named('slim_db')}", latency("slim_db", 1, eight), at_most=1.0)
    paddles = latency("se_resnext50", 2, other="paddle1 mkldnn")
    yield Goal(f"to Paddle 1.8.5 with MKL-DNN: {_named('se_resnext50', 2)}", paddles, at_most=0.8)
    yield from _goals_on_gpu()


RUN_ON_GPU = (("resnet50", 1), ("resnet50", 64), ("bert_base", 1), ("bert_base", 64), ("mobilenet_v1", 1), ("lstm", 1))
TRAINED_ON_GPU = ("resnet50", "bert_base", "lstm", "deepfm", "resnet18", "convolution", "mlp")


def _goals_on_gpu() -> Iterator[Goal]:
    for half, precision in (("", "float32"), (", bf16", "bf16")):
        for network, batch in RUN_ON_GPU:
            of = gpu_time("inference", network, batch, half)
            yield Goal(f"GPU, to PyTorch in a graph, {precision}: {_named(network, batch)}", of, at_most=1.0)
        for network in TRAINED_ON_GPU:
            of = gpu_time("training", network, None, half)
            yield Goal(f"GPU, training, to PyTorch in a graph, {precision}: {network}", of, at_most=1.0)
    for network, batch in RUN_ON_GPU:
        of = gpu_host("inference", network, batch)
        yield Goal(f"GPU, host time to 100 microseconds: {_named(network, batch)}", of, at_most=1.0)


GOALS = tuple(_goals())
