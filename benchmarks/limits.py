"""How close the kernels come to what the processor can do at most: a roofline of each network.

A run at the limit takes, for each kernel call, as long as its multiply-adds take at the measured peak, or its bytes at the
measured bandwidth of copies, whichever is longer. Of a network whose convolutions run in fewer multiplications
(Winograd), or in tiles of AMX, products may go below that.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool
from benchmarks.feeds import with_lod
from fluidtool.profiling import Item, profile

CASES = tuple(
    (network, batch, precision)
    for precision in ("float32", "bf16")
    for network, batch in (("resnet50", 1), ("resnet50", 8), ("mobilenet_v1", 1), ("bert_base", 1), ("se_resnext50", 2))
    if (network, precision) != ("se_resnext50", "bf16")
)
LIMITS = {"multiply-adds": "products", "memory": "moves"}


def limits(network: str, batch: int, precision: str, folder: Path, runs: int) -> dict[str, Any]:
    """What a network takes, what it would take at the limit, and what its kinds of calls reach; times in milliseconds."""
    path = folder / network
    model = fluidtool.load(path / "model.pdmodel", precision=precision)
    with np.load(path / "io.npz") as stored:
        feeds = with_lod(model, {name: stored[f"in_{name}"] for name in model.feeds}, batch)
    found = profile(model, feeds, repeat=runs, warmup=3)
    return {
        "network": network,
        "batch": batch,
        "precision": precision,
        "milliseconds": statistics.median(found.plain) * 1e3,
        "watched": found.seconds * 1e3,
        "peak_flops": found.peak.flops,
        "peak_by": found.peak.by,
        "kinds": {kind: reached(found.items, limit) for limit, kind in LIMITS.items()},
    }


def reached(items: tuple[Item, ...], limit: str) -> Mapping[str, float]:
    """What the calls take that something limits, and what they would take at that limit."""
    of_these = [item for item in items if item.limit == limit]
    return {
        "milliseconds": sum(item.seconds for item in of_these) * 1e3,
        "at_limit": sum(item.seconds * (item.reached or 0.0) for item in of_these) * 1e3,
    }
