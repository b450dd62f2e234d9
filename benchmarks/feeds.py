"""A model's inputs, as often as wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidtool.tensor import LoDTensor


def with_lod(model: Any, inputs: Mapping[str, np.ndarray[Any, Any]], count: int = 1) -> dict[str, Any]:
    """`count` times the inputs; what is declared to hold sequences becomes so many sequences."""
    feeds: dict[str, Any] = {}
    for name, array in inputs.items():
        rows = np.concatenate([array] * count)
        lod_level = model.declared(name).lod_level
        feeds[name] = LoDTensor(rows, [list(range(0, len(rows) + 1, len(array)))]) if lod_level else rows
    return feeds
