"""top_k: the heap of C++'s partial_sort, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.library import Library

GRAIN = 1 << 14  # floats worth a thread


def top_k(library: Library, ctx: OpContext, X: Any, K: Any, *, k: int) -> Any:
    """fluidtool.ops.tensor.sort.top_k for float32 and a k that is an attribute."""
    if not are_floats(X) or K is not None or X.size == 0 or not 0 < k <= X.shape[-1]:
        return NotImplemented
    rows, size = X.size // X.shape[-1], X.shape[-1]
    places = np.empty((*X.shape[:-1], k), np.int64)
    tasks = max(1, min(rows, 4 * library.threads, X.size // GRAIN))
    run_call(library, abi.TopK(source=in_rows(X), out=places, rows=rows, columns=size, k=k), tasks)
    return {"Out": np.take_along_axis(X, places, -1), "Indices": places}
