"""What the kernels of our own compute, where they cannot be compiled: by cupy's functions, or on the host."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fluidtool.runtime.engines.cupy.kernels import CLEAR, LIMIT, Kernels


def can_compile(xp: Any) -> bool:
    """Whether a cupy compiles sources at all."""
    return hasattr(xp, "RawModule")


def opened(xp: Any) -> Kernels | Uncompiled:
    """The kernels of our own; where NVRTC refuses them, with a warning, what computes the same without it."""
    if not can_compile(xp):
        return Uncompiled(xp)
    found = Kernels(xp)
    try:
        found.compile()
    except xp.cuda.compiler.CompileException as error:
        why = " ".join(str(error).split())
        instead = "repeated rows and random numbers are computed on the host"
        text = f"NVRTC refused the kernels for what cupy lacks ({why:.200}); {instead}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return Uncompiled(xp)
    return found


class Uncompiled:
    """As `Kernels`, with the same numbers. Sums and random numbers are copied to the host and back."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def clear_flags(self, count: int) -> Any:
        """Flags that nothing has set."""
        return self._xp.full(count, CLEAR, np.uint64)

    def mark_outside(self, ids: Any, low: int, high: int, ignored: int | None, flag: Any) -> None:
        """Set a flag if one of the ids, other than the ignored one, is not in [low, high)."""
        xp, found = self._xp, ids.reshape(-1).astype(np.int64, copy=False)
        if not found.size:
            return
        outside = (found < low) | (found >= high)
        if ignored is not None:
            outside &= found != ignored
        shown = xp.clip(found, -LIMIT, LIMIT) + 2**31
        places = xp.arange(found.size, dtype=np.int64) << 32 | shown
        first = xp.where(outside, places, np.iinfo(np.int64).max).min().astype(np.uint64)
        flag[...] = xp.minimum(flag, xp.where(outside.any(), first, xp.full((), CLEAR, np.uint64)))

    def add_rows(self, total: Any, rows: Any, values: Any) -> None:
        """total[rows[i]] += values[i], in this order."""
        found = self._xp.asnumpy(total)
        np.add.at(found, self._xp.asnumpy(rows), self._xp.asnumpy(values).reshape(-1, *found.shape[1:]))
        total[...] = self._xp.asarray(found)

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
        """What `generator.random(shape, dtype)` draws."""
        return self._xp.asarray(generator.random(shape, dtype))
