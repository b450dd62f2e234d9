"""Training steps on a GPU: fluidtool as CUDA graphs, beside PyTorch, eager, in a CUDA graph, and compiled.

float32 without TF32, and bf16 (of PyTorch by autocast), the networks of training_networks.py with MANY times their batch, feeds
that are on the GPU, nothing fetched; milliseconds of a step as the median over rounds in which all take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import fluidtool.fluid as fluid
from benchmarks import gpu, training_networks
from benchmarks.gpu import (
    PRECISION,
    SWITCH,
    WARM,
    Go,
    Report,
    Ways,
    compared,
    demand,
    ready_run,
    switched,
    torch_module,
)
from benchmarks.torch_worker import SEED, Batch
from benchmarks.training_worker import draw_apart
from fluidtool.tensor import LoDTensor

MANY = 8
UNCAPTURABLE = {"deepfm": "its sparse Adam cannot be captured"}
COUNTED = ("bert_base", "resnet50", "resnet18", "convolution", "mlp")  # whose operations PyTorch counts
Build = Callable[..., Any]


def one(name: str, rounds: int, wanted: Sequence[str] = (), report: Report | None = None) -> dict[str, Any]:
    """A row: milliseconds by way, and why others were not run. report: is told the row after each way, as far as it is."""
    build, batch = training_networks.ON_GPUS[name]
    about = {"part": "training", "network": name, "batch": MANY * batch}
    return compared(
        about, ways_of(name, build, MANY * batch), rounds, wanted, report, lambda: needs(name, build, MANY * batch)
    )


def ways_of(name: str, build: Build, batch: int) -> Ways:
    """What makes ready to train a network, by name; what says most comes first."""
    parameters: dict[str, Any] = {}
    return {
        "fluidtool, graphs": lambda: fluidtool_way(build, batch, "1", "float32", parameters),
        "torch, graph": lambda: torch_way(name, build, batch, "graph"),
        "torch, eager": lambda: torch_way(name, build, batch, "eager"),
        "fluidtool, graphs, bf16": lambda: fluidtool_way(build, batch, "1", "bf16", parameters),
        "torch, graph, bf16": lambda: torch_way(name, build, batch, "graph", half=True),
        "torch, eager, bf16": lambda: torch_way(name, build, batch, "eager", half=True),
        "torch, compiled": lambda: torch_way(name, build, batch, "compiled"),
        "torch, compiled, bf16": lambda: torch_way(name, build, batch, "compiled", half=True),
        "fluidtool, cupy": lambda: fluidtool_way(build, batch, "0", "float32", parameters),
    }


def fluidtool_way(build: Build, batch: int, switch: str, precision: str, parameters: dict[str, Any]) -> Go:
    """Steps of a program. parameters: what its startup has drawn, kept for the next one: 110 million take seconds."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with switched(**{SWITCH: switch, PRECISION: precision}), fluid.unique_name.guard():
        with fluid.program_guard(main, startup):
            loss, optimizer, feed = build(fluid, batch)
            optimizer.minimize(loss)
        draw_apart(startup)
        executor = fluid.Executor(fluid.CUDAPlace(0))
        names = [each.name for each in startup.global_block().vars.values() if each.persistable]
        if parameters:
            for name in names:
                scope.var(name).get_tensor().set(parameters[name], fluid.CPUPlace())
        else:
            fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
            parameters |= {name: scope.find_var(name).get_tensor().numpy().copy() for name in names}
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


# ---------------------------------------------------------------- PyTorch
def torch_inputs(build: Build, batch: int) -> tuple[list[Any], Any]:
    """The inputs and the labels of a batch on the GPU. Lengths stay on the host, where PyTorch wants them, the longest first."""
    from benchmarks import torch_networks

    made, label = torch_networks.tensors(build(Batch(), batch)[2])
    lengths = [each for each in made if each.dim() == 1]
    if lengths:
        order = lengths[0].argsort(descending=True, stable=True)
        made, label = [each[order] for each in made], label[order]
    return [each if each.dim() == 1 else each.to(gpu.DEVICE) for each in made], label.to(gpu.DEVICE)


def torch_way(name: str, build: Build, batch: int, how: str, half: bool = False) -> Go:
    """Steps of a network of PyTorch: 'eager', captured once ('graph'), or with a 'compiled' network."""
    torch = torch_module()
    if how == "graph" and name in UNCAPTURABLE:
        raise RuntimeError(UNCAPTURABLE[name])
    from benchmarks import torch_networks

    torch.manual_seed(SEED)
    inputs, label = torch_inputs(build, batch)
    chosen = torch_networks.NETWORKS[name]
    with torch.device(gpu.DEVICE):
        module, found = chosen.make()
    module.to(gpu.DEVICE)
    for each in module.modules():
        if isinstance(each, torch.nn.RNNBase):
            each.flatten_parameters()
    optimizers: tuple[Any, ...] = found if isinstance(found, tuple) else (found,)
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        if "capturable" in group:
            group["capturable"] = how == "graph" and gpu.DEVICE == "cuda"
    model = torch.compile(module, mode="reduce-overhead") if how == "compiled" else module

    def step() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        rounded = torch.autocast(gpu.DEVICE, torch.bfloat16, cache_enabled=False) if half else nullcontext()
        with rounded:
            loss = chosen.loss(model(*inputs), label)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    return ready_run(torch, step, captured=how == "graph")


def needs(name: str, build: Build, batch: int) -> dict[str, float]:
    """What a step needs at least, where PyTorch counts it."""
    if name not in COUNTED:
        return {}
    torch = torch_module()
    from benchmarks import torch_networks

    with torch.device(gpu.DEVICE):
        module, _ = torch_networks.NETWORKS[name].make()
    return demand(module.to(gpu.DEVICE), torch_inputs(build, batch)[0], training=True)
