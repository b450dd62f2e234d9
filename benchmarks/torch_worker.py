"""PyTorch, training one network, in rounds (rounds.py): python torch_worker.py VARIANT NETWORK THREADS.

VARIANT: eager, channels_last or compiled. The batch is that of training_networks.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

SEED = 7


class Batch:
    """What training_networks.py makes its feeds with: layers of `fluid` that do nothing."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        return self

    def __getitem__(self, index: int) -> int:
        return index

    shape = (0, 0)


def main() -> None:
    variant, network, threads = sys.argv[1:4]
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = threads
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch
    import torch_networks
    import training_networks

    torch.set_num_threads(int(threads))
    torch.manual_seed(SEED)
    build, batch = training_networks.NETWORKS[network]
    inputs, label = torch_networks.tensors(build(Batch(), batch)[2])
    model, optimizer = torch_networks.NETWORKS[network]()
    if variant == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        inputs = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
    run = torch.compile(model) if variant == "compiled" else model
    entropy = torch.nn.CrossEntropyLoss()

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = entropy(run(*inputs), label)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    value = [step() for _ in range(3)][-1]
    print(json.dumps({"batch": batch, "loss": value, "version": torch.__version__}), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
