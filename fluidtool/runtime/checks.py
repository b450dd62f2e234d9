"""Checks of indices on a GPU: kernels set flags, which are read before parameters are updated and at the end of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from types import SimpleNamespace
from typing import Any

from fluidtool.errors import OperatorError
from fluidtool.ops.context import Device, OpContext
from fluidtool.records import dataclass
from fluidtool.runtime.step import located, where

AT_ONCE = 256  # checks that wait to be read
RUNS_AT_ONCE = 16  # runs of regions whose marks wait: each keeps its inputs for so long
Bounds = tuple[int, int, int | None]  # low, high, and a number that is never outside


@dataclass(frozen=True, slots=True)
class Check:
    """A check whose flag has not been read: the operator, where it is, and what it says of an index."""

    context: OpContext
    place: str
    message: Callable[[int], str]


@dataclass(slots=True)
class Checks:
    """The checks of one run at a time. On the host there are none: operators check there themselves."""

    device: Device
    pending: list[Check] = field(default_factory=list)
    marked: list[tuple[Any, Callable[[], object]]] = field(default_factory=list)
    _flags: Any = None

    def mark(self, ctx: OpContext, ids: Any, bounds: Bounds, message: Callable[[int], str]) -> bool:
        """Check the ids later; False on the host. Raises OperatorError for an earlier check."""
        if self._flags is None:
            self._flags = self.device.flags(AT_ONCE)
            if self._flags is None:
                return False
        if len(self.pending) == AT_ONCE:
            self.settle()
        number = len(self.pending)
        self.pending.append(Check(ctx, where(SimpleNamespace(context=ctx)), message))
        self.device.mark_outside(ids, *bounds, self._flags[number : number + 1])
        return True

    def postpone(self, mark: Any, again: Callable[[], object]) -> None:
        """Look at the mark of a region later: the last number of an array, 0 if all that it looked up was in range. `again`
        runs the operators of the region on the same inputs. Raises OperatorError for an earlier check.
        """
        self.marked.append((mark[-1:], again))
        if len(self.marked) == RUNS_AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Wait for the checks; raises OperatorError for the first index that was outside."""
        if self.marked:
            runs, self.marked = self.marked, []
            marks = [mark for mark, _ in runs]
            found = self.device.host(marks[0] if len(marks) == 1 else self.device.xp.concatenate(marks))
            for (_, again), mark in zip(runs, found, strict=True):
                if mark != 0:
                    again()
        if not self.pending:
            return
        checks, outside = self.pending, self.device.read_flags(self._flags[: len(self.pending)])
        self.pending = []
        if outside is None:
            return
        self._flags = None
        check = checks[outside[0]]
        error = OperatorError(f"{check.context.error(check.message(outside[1]))} [{check.place}]")
        raise located(error, check.context.op)

    def forget(self) -> None:
        """Drop what a failed run has left."""
        self.marked = []
        if self.pending:
            self.pending, self._flags = [], None
