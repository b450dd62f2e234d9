"""What libraries have chosen, kept for the next process: in the user's cache folder, by everything that the choice depends on.

Only choices are kept, not plans, which belong to a device and a process: of cuBLASLt the algorithm, of cuDNN that it has no plan,
and the seconds that were measured to choose layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.cache import WeightCache, cache_of_user
from fluidtool.runtime.graph.ir import Shape

MOST = 1 << 18  # bytes of choices, each of some 100 in a file of its own
FLOAT_BYTES = 4
ROUNDS, RUNS = 3, 3  # of a measurement
LAUNCH = 2e-6  # seconds that a kernel of a graph takes at least
COPIED = (64, 256, 1024)  # floats of the copy that is measured: more than caches hold


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


def shortest(xp: Any, work: Callable[[], object]) -> float:
    """The seconds of some work on the current device: the mean of some runs, the best of some rounds, after one that prepares."""
    stream = xp.cuda.get_current_stream()
    work()
    stream.synchronize()
    found = []
    for _ in range(ROUNDS):
        start = perf_counter()
        for _ in range(RUNS):
            work()
        stream.synchronize()
        found.append((perf_counter() - start) / RUNS)
    return min(found)


class Copies:
    """How long copies of images to the other layout take on the current device: one is measured, once."""

    def __init__(self, xp: Any) -> None:
        self._xp, self._choices = xp, Choices(xp, "copies", 1, "float32")

    def seconds(self, shape: Shape) -> float:
        """Those of a copy of floats of this shape."""
        return LAUNCH + prod(shape) * self._of_a_float

    @cached_property
    def _of_a_float(self) -> float:
        found = self._choices.get("a float", FLOAT_BYTES, lambda: np.float32(self._measured()).tobytes())
        return float(np.frombuffer(found, np.float32)[0])

    def _measured(self) -> float:
        given = self._xp.zeros(COPIED, np.float32)
        into = self._xp.empty_like(given).reshape(COPIED[0], COPIED[2], COPIED[1])

        def copy() -> None:
            into[...] = given.transpose(0, 2, 1)

        return shortest(self._xp, copy) / prod(COPIED)
