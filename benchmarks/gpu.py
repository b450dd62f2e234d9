"""Networks on a GPU: fluidtool by cupy and as CUDA graphs, beside PyTorch, eager and compiled, each in a CUDA graph.

float32 without TF32, and bf16; feeds that are on the GPU; milliseconds of a run as the median over rounds in which all take turns,
and `host_us`, the microseconds until a run of fluidtool's returns. Networks of PyTorch come from torchvision, timm and
transformers; what is not there is said, with the reason. `python -m benchmarks --device gpu`; --peers names ways.
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
from benchmarks.inference_networks import NETWORKS, Network, write
from fluidtool.tensor import CUDAPlace, LoDTensor

SWITCH = "FLUIDTOOL_CUDA"
BATCHES = (1, 64)
PRECISION = "FLUIDTOOL_CUDA_PRECISION"
RUNS = 20  # in a round
IMAGES = ("resnet50", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large")
Go = Callable[[], Any]


def measured(
    names: Sequence[str],
    folder: Path,
    rounds: int,
    networks: Mapping[str, Network] = NETWORKS,
    wanted: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """A row for each network and batch: milliseconds by way, and why others were not run."""
    for name in names:
        write(networks[name], folder / name)
        for batch in BATCHES if name != "lstm" else BATCHES[:1]:
            yield {
                "network": name,
                "batch": batch,
                **compared(ways_of(name, networks[name], folder / name, batch), rounds, wanted),
            }


def ways_of(name: str, network: Network, folder: Path, batch: int) -> dict[str, Callable[[], Go]]:
    """What makes ready to run a network, by name."""
    return {
        "fluidtool, cupy": lambda: fluidtool_way(network, folder, batch, "0"),
        "fluidtool, graphs": lambda: fluidtool_way(network, folder, batch, "1"),
        "fluidtool, graphs, bf16": lambda: fluidtool_way(network, folder, batch, "1", "bf16"),
        "torch, eager": lambda: torch_way(name, batch, compiled=False),
        "torch, eager, bf16": lambda: torch_way(name, batch, compiled=False, half=True),
        "torch, compiled": lambda: torch_way(name, batch, compiled=True),
        "torch, compiled, bf16": lambda: torch_way(name, batch, compiled=True, half=True),
    }


def compared(ways: Mapping[str, Callable[[], Go]], rounds: int, wanted: Sequence[str]) -> dict[str, Any]:
    """Milliseconds by way, microseconds of the host, and why others were not run. wanted: only these, if there are any."""
    ready: dict[str, Go] = {}
    missing: dict[str, str] = {}
    for way, make in ways.items():
        if wanted and way not in wanted:
            continue
        try:
            ready[way] = make()
        except Exception as error:  # one that fails is told, the others are measured
            missing[way] = f"{type(error).__name__}: {error}"
    host = {way: host_microseconds(go) for way, go in ready.items() if way.startswith("fluidtool")}
    return {**timed(ready, rounds), "host_us": host, "not_run": missing}


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
        for _ in range(3):  # compiled, captured, launched
            model.run(on_gpu)
    return lambda: model.run(on_gpu)


def host_microseconds(go: Go) -> float:
    """The median time until a run returns, on a GPU that has nothing else to do."""
    import cupy

    times = []
    for _ in range(RUNS):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        go()
        times.append(time.perf_counter() - start)
    return round(statistics.median(times) * 1e6, 1)


def torch_way(name: str, batch: int, compiled: bool, half: bool = False) -> Go:
    """Runs of a network of PyTorch, captured once."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module, inputs = torch_network(name, batch)
    if half:
        module = module.bfloat16()
        inputs = tuple(each.bfloat16() if each.is_floating_point() else each for each in inputs)
    model = torch.compile(module) if compiled else module
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.inference_mode():
        for _ in range(3):
            model(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        model(*inputs)

    def replay() -> None:
        """One run. The graph has the addresses of parameters and inputs, and the next capture would free what nobody keeps."""
        assert module is not None and inputs
        graph.replay()

    return replay


def torch_network(name: str, batch: int) -> tuple[Any, tuple[Any, ...]]:
    """A network and its inputs on the GPU; raises ImportError or LookupError if there is none here."""
    import torch

    if name in IMAGES:
        images = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
        return image_network(name).eval().cuda().to(memory_format=torch.channels_last), (images,)
    if name == "bert_base":
        from transformers import BertConfig, BertModel

        return BertModel(BertConfig()).eval().cuda(), (torch.randint(0, 30000, (batch, 128), device="cuda"),)
    if name == "lstm":
        recurrent = torch.nn.LSTM(128, 256, 2, batch_first=True).eval().cuda()
        return recurrent, (torch.randn(batch, 128, 128, device="cuda"),)
    raise LookupError(f"no {name} of PyTorch is known here")


def image_network(name: str) -> Any:
    """A network for images, with random weights."""
    if name == "mobilenet_v1":
        import timm

        return timm.create_model("mobilenetv1_100")
    import torchvision

    return torchvision.models.get_model(name, weights=None)


def timed(ways: Mapping[str, Go], rounds: int) -> dict[str, float]:
    """The median of the milliseconds of a run, by way; they take turns, and wait at the end of each round."""
    import cupy

    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, go in ways.items():
            cupy.cuda.Device().synchronize()
            start = time.perf_counter()
            for _ in range(RUNS):
                go()
            cupy.cuda.Device().synchronize()
            found[way].append((time.perf_counter() - start) / RUNS * 1e3)
    return {way: round(statistics.median(times), 4) for way, times in found.items()}
