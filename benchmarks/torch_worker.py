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
    """What training_networks.py makes its feeds with: layers of `fluid` that do nothing, and sequences as they are."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        return self

    def __getitem__(self, index: int) -> int:
        return index

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *failure: object) -> None:
        return None

    @staticmethod
    def create_lod_tensor(rows: Any, lengths: Any, place: Any) -> tuple[Any, list[int]]:
        """(rows, lengths of the sequences)."""
        return rows, lengths[0]

    shape = (0, 0)


def main() -> None:
    variant, network, threads = sys.argv[1:4]
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = threads
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch
    import torch_networks
    import training_networks
    from training_worker import most_resident_mb

    torch.set_num_threads(int(threads))
    torch.manual_seed(SEED)
    build, batch = training_networks.NETWORKS[network]
    inputs, label = torch_networks.tensors(build(Batch(), batch)[2])
    chosen = torch_networks.NETWORKS[network]
    model, found = chosen.make()
    optimizers = found if isinstance(found, tuple) else (found,)
    if variant == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        inputs = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
    run = torch.compile(model) if variant == "compiled" else model

    def step() -> float:
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = chosen.loss(run(*inputs), label)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return float(loss.item())

    value = [step() for _ in range(3)][-1]
    fields = {"batch": batch, "loss": value, "rss_peak_mb": most_resident_mb(), "version": torch.__version__}
    print(json.dumps(fields), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
