"""Networks on a GPU: fluidtool by cupy and as CUDA graphs, beside PyTorch, eager and compiled, each in a CUDA graph.

float32 without TF32, feeds that are on the GPU, milliseconds of a run as the median over rounds in which all take turns. Networks
of PyTorch come from torchvision and transformers; what is not there is said, with the reason. `python -m benchmarks --device gpu`.
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
BATCHES = (1, 8)
RUNS = 20  # in a round
Go = Callable[[], Any]


def measured(
    names: Sequence[str], folder: Path, rounds: int, networks: Mapping[str, Network] = NETWORKS
) -> Iterator[dict[str, Any]]:
    """A row for each network and batch: milliseconds by way, and why others were not run."""
    for name in names:
        write(networks[name], folder / name)
        for batch in BATCHES if name != "lstm" else BATCHES[:1]:
            ways, missing = ways_of(name, networks[name], folder / name, batch)
            yield {"network": name, "batch": batch, **timed(ways, rounds), "not_run": missing}


def ways_of(name: str, network: Network, folder: Path, batch: int) -> tuple[dict[str, Go], dict[str, str]]:
    """What runs a network, by name, and the reasons why others do not."""
    ways: dict[str, Go] = {}
    missing: dict[str, str] = {}
    for way, make in {
        "fluidtool, cupy": lambda: fluidtool_way(network, folder, batch, "0"),
        "fluidtool, graphs": lambda: fluidtool_way(network, folder, batch, "1"),
        "torch, eager": lambda: torch_way(name, batch, compiled=False),
        "torch, compiled": lambda: torch_way(name, batch, compiled=True),
    }.items():
        try:
            ways[way] = make()
        except Exception as error:  # one that fails is told, the others are measured
            missing[way] = f"{type(error).__name__}: {error}"
    return ways, missing


@contextmanager
def switched(value: str) -> Iterator[None]:
    """The engine for regions switched on or off."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def fluidtool_way(network: Network, folder: Path, batch: int, switch: str) -> Go:
    """Runs of a saved network."""
    import cupy

    model = fluidtool.load(folder, place=CUDAPlace(0))
    feeds = network.feeds(np.random.RandomState(0))
    on_gpu = {name: LoDTensor(cupy.asarray(np.repeat(array, batch, axis=0))) for name, array in feeds.items()}
    if batch == 1 and "words" in on_gpu:
        on_gpu["words"].set_recursive_sequence_lengths([[len(feeds["words"])]])
    with switched(switch):
        for _ in range(3):  # compiled, captured, launched
            model.run(on_gpu)
    return lambda: model.run(on_gpu)


def torch_way(name: str, batch: int, compiled: bool) -> Go:
    """Runs of a network of PyTorch, captured once."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, inputs = torch_network(name, batch)
    if compiled:
        model = torch.compile(model)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.inference_mode():
        for _ in range(3):
            model(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        model(*inputs)
    return graph.replay  # type: ignore[no-any-return]


def torch_network(name: str, batch: int) -> tuple[Any, tuple[Any, ...]]:
    """A network and its inputs on the GPU; raises ImportError or LookupError if there is none here."""
    import torch

    if name == "resnet50":
        from torchvision.models import resnet50

        model = resnet50().eval().cuda().to(memory_format=torch.channels_last)
        images = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
        return model, (images,)
    if name == "bert_base":
        from transformers import BertConfig, BertModel

        model = BertModel(BertConfig()).eval().cuda()
        return (lambda ids: model(ids).last_hidden_state), (torch.randint(0, 30000, (batch, 128), device="cuda"),)
    if name == "lstm":
        model = torch.nn.LSTM(128, 256, 2, batch_first=True).eval().cuda()
        return (lambda x: model(x)[0]), (torch.randn(batch, 128, 128, device="cuda"),)
    raise LookupError(f"no {name} of PyTorch is known here")


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
