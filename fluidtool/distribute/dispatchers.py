"""Which server keeps which shard of a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from fluidtool.distribute.sharding import Shard
from fluidtool.errors import UnsupportedOperatorError


class PSDispatcher:
    """Base of the rules: `dispatch` gives one of the endpoints for each variable. Derive from it for a rule of your own."""

    def __init__(self, pserver_endpoints: Sequence[str]) -> None:
        self._eps = list(pserver_endpoints)
        self._step = 0

    @property
    def eps(self) -> list[str]:
        """The endpoints."""
        return self._eps

    def reset(self) -> None:
        """Start counting anew."""
        self._step = 0

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The endpoint of each variable, in order."""
        raise UnsupportedOperatorError(
            f"{type(self).__name__} has no dispatch(varlist); define one that returns endpoints"
        )


class RoundRobin(PSDispatcher):
    """One endpoint after the other, on and on over all calls since `reset`."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The endpoint of each variable, in order."""
        first = self._step
        self._step = (first + len(varlist)) % len(self._eps)
        return [self._eps[(first + position) % len(self._eps)] for position in range(len(varlist))]


class HashName(PSDispatcher):
    """By name: CRC-32 of the UTF-8 name modulo the number of endpoints, the same in every process.

    The shards of one parameter follow one another from the parameter's own place, and a gradient goes where its
    parameter is. (Paddle's own raises TypeError; where it was mended, processes disagreed, as `hash` is salted.)
    """

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The endpoint of each variable, or name, in order."""
        return [self._eps[self._place(var) % len(self._eps)] for var in varlist]

    @staticmethod
    def _place(var: Any) -> int:
        if isinstance(var, Shard):
            return crc32(var.parameter.encode()) + var.index
        return crc32(str(getattr(var, "name", var)).encode())
