"""Networks on a GPU: fluidtool by cupy and as CUDA graphs, beside PyTorch, eager, in a CUDA graph, and compiled.

float32 without TF32, and bf16; feeds that are on the GPU; milliseconds of a run as the median over rounds in which all take turns,
`host_us`, the microseconds until a run of fluidtool's returns, and how much is computed and read at least, for shares of the
GPU's limits. Networks of PyTorch come from torchvision, timm and transformers; what is not there is said, with the reason.
gpu_rows.py runs each row in a process of its own.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool
from benchmarks.inference_networks import NETWORKS, Network, save
from fluidtool.tensor import CUDAPlace, LoDTensor

SWITCH = "FLUIDTOOL_CUDA"
BATCHES = (1, 64)
PRECISION = "FLUIDTOOL_CUDA_PRECISION"
RUNS = 20  # in a round, at most
SECONDS = 0.06  # of a round, of which at least one run is made
WARM = 3  # runs: compiled, captured, launched
IMAGES = ("resnet50", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large")
QUICK = (
    "fluidtool, graphs", "torch, graph", "fluidtool, graphs, bf16", "torch, graph, bf16", "torch, eager", "torch, eager, bf16",
    "jax",
)  # fmt: skip
"""The ways that are ready in seconds."""
DEVICE = "cuda"  # as PyTorch calls it; on another one nothing is captured
Go = Callable[[], Any]
Ways = Mapping[str, Callable[[], Go]]
Report = Callable[[dict[str, Any]], None]


def measured(
    names: Sequence[str],
    folder: Path,
    rounds: int,
    networks: Mapping[str, Network] = NETWORKS,
    wanted: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """A row for each network and batch."""
    for name in names:
        for batch in BATCHES if name != "lstm" else BATCHES[:1]:
            yield one(name, batch, folder, rounds, networks, wanted)


def one(
    name: str,
    batch: int,
    folder: Path,
    rounds: int,
    networks: Mapping[str, Network] = NETWORKS,
    wanted: Sequence[str] = (),
    report: Report | None = None,
) -> dict[str, Any]:
    """A row: milliseconds by way, and why others were not run. report: is told the row after each way, as far as it is."""
    about = {"part": "inference", "network": name, "batch": batch}
    save(networks[name], folder / name)
    ways = ways_of(name, networks[name], folder / name, batch)
    return compared(about, ways, rounds, wanted, report, lambda: demand(*torch_network(name, batch)))


def ways_of(name: str, network: Network, folder: Path, batch: int) -> Ways:
    """What makes ready to run a network, by name; what says most comes first."""
    return {
        "fluidtool, graphs": lambda: fluidtool_way(network, folder, batch, "1"),
        "torch, graph": lambda: torch_way(name, batch, "graph"),
        "fluidtool, graphs, bf16": lambda: fluidtool_way(network, folder, batch, "1", "bf16"),
        "torch, graph, bf16": lambda: torch_way(name, batch, "graph", half=True),
        "torch, eager": lambda: torch_way(name, batch, "eager"),
        "torch, eager, bf16": lambda: torch_way(name, batch, "eager", half=True),
        "jax": lambda: jax_way(name, batch),
        "torch, compiled": lambda: torch_way(name, batch, "compiled"),
        "torch, compiled, bf16": lambda: torch_way(name, batch, "compiled", half=True),
        "fluidtool, cupy": lambda: fluidtool_way(network, folder, batch, "0"),
    }


def compared(
    about: Mapping[str, Any],
    ways: Ways,
    rounds: int,
    wanted: Sequence[str],
    report: Report | None = None,
    demanded: Callable[[], dict[str, float]] = dict,
) -> dict[str, Any]:
    """Milliseconds by way, microseconds of the host, and why others were not run. wanted: only these, if there are any."""
    ready: dict[str, Go] = {}
    row: dict[str, Any] = {**about, "host_us": {}, "not_run": {}, "needs": {}}
    try:
        row["needs"] = demanded()
    except Exception as error:  # without PyTorch nothing counts operations
        row["not_run"]["needs"] = f"{type(error).__name__}: {error}"
    for way, make in ways.items():
        if wanted and way not in wanted:
            continue
        try:
            go = make()
            row |= timed({way: go}, 1)
            if way.startswith("fluidtool"):
                row["host_us"][way] = host_microseconds(go)
            ready[way] = go
        except Exception as error:  # one that fails is told, the others are measured
            row["not_run"][way] = f"{type(error).__name__}: {error}"[:400]
        if report is not None:
            report(row)
    return {**row, **timed(ready, rounds)}


@contextmanager
def switched(**values: str) -> Iterator[None]:
    """Environment variables set for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def fluidtool_way(network: Network, folder: Path, batch: int, switch: str, precision: str = "float32") -> Go:
    """Runs of a saved network."""
    import cupy

    model = fluidtool.load(folder, place=CUDAPlace(0))
    feeds = network.feeds(np.random.RandomState(0))
    on_gpu = {name: LoDTensor(cupy.asarray(np.repeat(array, batch, axis=0))) for name, array in feeds.items()}
    if batch == 1 and "words" in on_gpu:
        on_gpu["words"].set_recursive_sequence_lengths([[len(feeds["words"])]])
    with switched(**{SWITCH: switch, PRECISION: precision}):
        for _ in range(WARM):
            model.run(on_gpu)
    return lambda: model.run(on_gpu)


def host_microseconds(go: Go) -> float:
    """The median time until a run returns, on a GPU that has nothing else to do."""
    import cupy

    times = []
    began = time.perf_counter()
    while len(times) < RUNS and (not times or time.perf_counter() - began < 10 * SECONDS):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        go()
        times.append(time.perf_counter() - start)
    return round(statistics.median(times) * 1e6, 1)


# ---------------------------------------------------------------- PyTorch
def torch_module() -> Any:
    """PyTorch, with float32 as it is; raises RuntimeError without a GPU."""
    import torch

    if DEVICE == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return torch


def torch_way(name: str, batch: int, how: str, half: bool = False) -> Go:
    """Runs of a network of PyTorch: 'eager', captured once ('graph'), or 'compiled', which captures by itself."""
    torch = torch_module()
    module, inputs = torch_network(name, batch)
    if half:
        module = module.bfloat16()
        inputs = tuple(each.bfloat16() if each.is_floating_point() else each for each in inputs)
    model = torch.compile(module, mode="reduce-overhead") if how == "compiled" else module

    def run() -> Any:
        with torch.inference_mode():
            return model(*inputs)

    return ready_run(torch, run, captured=how == "graph")


def ready_run(torch: Any, run: Go, captured: bool) -> Go:
    """A run that has been made some times; as a CUDA graph, if it is captured."""
    if DEVICE != "cuda" or not captured:
        for _ in range(WARM):
            run()
        return run
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(WARM):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay() -> None:
        """One run. The graph has the addresses of parameters and inputs, and the next capture would free what nobody keeps."""
        assert run is not None
        graph.replay()

    return replay


def torch_network(name: str, batch: int) -> tuple[Any, tuple[Any, ...]]:
    """A network and its inputs on the GPU; raises ImportError or LookupError if there is none here."""
    torch = torch_module()
    if name in IMAGES:
        images = torch.randn(batch, 3, 224, 224, device=DEVICE).contiguous(memory_format=torch.channels_last)
        return image_network(name).eval().to(DEVICE).to(memory_format=torch.channels_last), (images,)
    if name == "bert_base":
        from transformers import BertConfig, BertModel

        return BertModel(BertConfig()).eval().to(DEVICE), (torch.randint(0, 30000, (batch, 128), device=DEVICE),)
    if name == "lstm":
        recurrent = torch.nn.LSTM(128, 256, 2, batch_first=True).eval().to(DEVICE)
        return recurrent, (torch.randn(batch, 128, 128, device=DEVICE),)
    raise LookupError(f"no {name} of PyTorch is known here")


def image_network(name: str) -> Any:
    """A network for images, with random weights."""
    if name == "mobilenet_v1":
        import timm

        return timm.create_model("mobilenetv1_100")
    import torchvision

    return torchvision.models.get_model(name, weights=None)


def demand(module: Any, inputs: Sequence[Any], training: bool = False) -> dict[str, float]:
    """What a run needs at least: floating-point operations of products (thrice as many to train), bytes of parameters."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*inputs)
    parameters = sum(each.numel() * each.element_size() for each in module.parameters())
    return {
        "operations": float(counter.get_total_flops() * (3 if training else 1)),
        "parameter_bytes": float(parameters),
    }


def jax_way(name: str, batch: int) -> Go:
    """Runs of a network of JAX; raises ImportError without it, LookupError where there is no such network here."""
    import jax

    from benchmarks import jax_networks

    if name not in jax_networks.NETWORKS:
        raise LookupError(f"no {name} of JAX is written here")
    run, inputs = jax_networks.NETWORKS[name](jax, batch)
    for _ in range(WARM):
        jax.block_until_ready(run(*inputs))
    return lambda: jax.block_until_ready(run(*inputs))


def timed(ways: Mapping[str, Go], rounds: int) -> dict[str, float]:
    """The median of the milliseconds of a run, by way; they take turns, and wait at the end of each round."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    runs = {way: max(1, min(RUNS, int(SECONDS / max(seconds_of(go, 1), 1e-9)))) for way, go in ways.items()}
    for _ in range(rounds):
        for way, go in ways.items():
            found[way].append(seconds_of(go, runs[way]) * 1e3)
    return {way: round(statistics.median(times), 4) for way, times in found.items()}


def seconds_of(go: Go, runs: int) -> float:
    """The mean time of some runs, after which the GPU has nothing to do."""
    import cupy

    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    for _ in range(runs):
        go()
    cupy.cuda.Device().synchronize()
    return (time.perf_counter() - start) / runs
