"""Training steps on a GPU: fluidtool by cupy and as CUDA graphs, beside PyTorch, eager and in a CUDA graph.

float32 without TF32, the networks of training_networks.py with MANY times their batch, feeds that are on the GPU, nothing fetched;
milliseconds of a step as the median over rounds in which all take turns. `python -m benchmarks --device gpu --parts training`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import fluidtool.fluid as fluid
from benchmarks import training_networks
from benchmarks.gpu import PRECISION, SWITCH, Go, compared, switched
from benchmarks.torch_worker import SEED, Batch
from benchmarks.training_worker import draw_apart
from fluidtool.tensor import LoDTensor

TRAINED = ("mlp", "convolution", "resnet18", "lstm", "deepfm", "bert_base")
MANY = 8
WARM = 3  # steps: compiled, captured, launched


def measured(names: Sequence[str], rounds: int, wanted: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """A row for each network: milliseconds by way, and why others were not run. wanted: only these, if there are any."""
    for name in names:
        build, batch = training_networks.NETWORKS[name]
        yield {"network": name, "batch": MANY * batch, **compared(ways_of(name, build, MANY * batch), rounds, wanted)}


def ways_of(name: str, build: Callable[..., Any], batch: int) -> dict[str, Callable[[], Go]]:
    """What makes ready to train a network, by name."""
    return {
        "fluidtool, cupy": lambda: fluidtool_way(build, batch, "0", "float32"),
        "fluidtool, graphs": lambda: fluidtool_way(build, batch, "1", "float32"),
        "fluidtool, graphs, bf16": lambda: fluidtool_way(build, batch, "1", "bf16"),
        "torch, eager": lambda: torch_way(name, build, batch, captured=False),
        "torch, graph": lambda: torch_way(name, build, batch, captured=True),
    }


def fluidtool_way(build: Callable[..., Any], batch: int, switch: str, precision: str) -> Go:
    """Steps of a program."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with switched(**{SWITCH: switch, PRECISION: precision}), fluid.unique_name.guard():
        with fluid.program_guard(main, startup):
            loss, optimizer, feed = build(fluid, batch)
            optimizer.minimize(loss)
        draw_apart(startup)
        executor = fluid.Executor(fluid.CUDAPlace(0))
        executor.run(startup, scope=scope)
        given = on_gpu(feed)

        def step() -> None:
            executor.run(main, feed=given, fetch_list=[], scope=scope)

        for _ in range(WARM):
            step()
    return step


def on_gpu(feed: Mapping[str, Any]) -> dict[str, LoDTensor]:
    """Feeds as tensors on the GPU."""
    import cupy

    found = {}
    for name, value in feed.items():
        tensor = value if isinstance(value, LoDTensor) else LoDTensor(value)
        found[name] = LoDTensor(cupy.asarray(tensor.numpy()), tensor.offsets)
    return found


def torch_way(name: str, build: Callable[..., Any], batch: int, captured: bool) -> Go:
    """Steps of a network of PyTorch."""
    import torch

    from benchmarks import torch_networks

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(SEED)
    made, label = torch_networks.tensors(build(Batch(), batch)[2])
    inputs, label = [each.cuda() for each in made], label.cuda()
    chosen = torch_networks.NETWORKS[name]
    with torch.device("cuda"):
        model, found = chosen.make()
    model.cuda()
    optimizers: tuple[Any, ...] = found if isinstance(found, tuple) else (found,)
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        if "capturable" in group:
            group["capturable"] = captured

    def step() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        chosen.loss(model(*inputs), label).backward()
        for optimizer in optimizers:
            optimizer.step()

    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(WARM):
            step()
    torch.cuda.synchronize()
    if not captured:
        return step
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay() -> None:
        """One step. The graph has addresses only, and the next capture would free what nobody keeps."""
        assert step is not None
        graph.replay()

    return replay
