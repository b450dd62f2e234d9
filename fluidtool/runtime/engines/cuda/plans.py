"""What libraries have chosen, kept for the next process: in the user's cache folder, by everything that the choice depends on.

Only choices are kept, not plans, which belong to a device and a process: of cuBLASLt the algorithm, of cuDNN that it has no plan.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.cache import WeightCache, cache_of_user

MOST = 1 << 18  # bytes of choices, each of some 100 in a file of its own
FLOAT_BYTES = 4


class Choices:
    """The choices of a library on the current device. Nothing is kept where the user has no cache (`FLUIDTOOL_CACHE=0`)."""

    def __init__(self, xp: Any, library: str, version: int, precision: str) -> None:
        self._xp, self._library, self._version, self._precision = xp, library, version, precision

    def get(self, call: Any, size: int, make: Callable[[], bytes]) -> bytes:
        """The choice for a call, of `size` bytes, which are whole floats: kept by an earlier process, or made now."""
        cache = self._cache
        if cache is None:
            return make()
        floats = size // FLOAT_BYTES
        found = cache.get(f"{self._origin} {call!r}", floats, lambda: np.frombuffer(make(), np.float32, floats))
        return found.tobytes()

    @cached_property
    def _cache(self) -> WeightCache | None:
        return cache_of_user("plans", MOST)

    @cached_property
    def _origin(self) -> str:
        """The library, the driver and the device."""
        runtime = self._xp.cuda.runtime
        properties = runtime.getDeviceProperties(runtime.getDevice())
        device = [properties[name] for name in ("name", "major", "minor", "totalGlobalMem")]
        return repr((self._library, self._version, self._precision, runtime.driverGetVersion(), device))
