"""What a region was compiled to for the native engine: kernel calls with addresses, run by one call into the library.

Threads that run a region at the same moment have a frame each, made when it is needed; more than there are processors wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fluidtool import locks
from fluidtool.errors import OperatorError
from fluidtool.processors import processors
from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.library import Library, first_byte
from fluidtool.runtime.engines.native.memory import ALIGNMENT, LARGE_PAGE, aligned_floats
from fluidtool.tensor.files import check_unchanged

if TYPE_CHECKING:
    from fluidtool.runtime.engines.base import Watch
    from fluidtool.runtime.engines.native.calls import KernelCall
    from fluidtool.runtime.graph.importers.registry import Lod

Mention = tuple[int, int, int]  # step, word of the pointer, offset in bytes


class Described(Protocol):
    """What a run needs to know of an input or output."""

    @property
    def name(self) -> str:
        """Of its variable."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""

    @property
    def dtype(self) -> type[np.float32 | np.int64]:
        """Of its elements."""

    @property
    def floats(self) -> int:
        """Its size in memory, in floats."""


@dataclass(slots=True)
class Frame:
    """The memory of one run at a time: kernel calls with addresses, one per row, and the arena that they compute in."""

    steps: NDArray[np.int64]
    arena: NDArray[np.float32]
    lock: Lock = field(default_factory=locks.lock)  # held while it runs

    def another(self, of_arena: NDArray[np.int64]) -> Frame:
        """The same calls with an arena of their own; of_arena: the words of the steps that hold an address in it."""
        arena, steps = arena_of(self.arena.size), self.steps.copy()
        steps.reshape(-1)[of_arena] += first_byte(arena) - first_byte(self.arena)
        return Frame(steps, arena)


def arena_of(size: int) -> NDArray[np.float32]:
    """Memory for so many floats."""
    return aligned_floats(size, LARGE_PAGE if size > LARGE_PAGE else ALIGNMENT)


@dataclass(slots=True)
class NativeRegion:
    """Kernel calls with addresses, their memory, and what to patch before each run."""

    library: Library
    frames: list[Frame]  # the first, and those of threads that ran while others were at it
    of_arena: NDArray[np.int64]  # the words of a frame's steps that hold an address in its arena
    kernel_calls: list[KernelCall]  # none where it came from the cache (kept.py)
    keep: list[Any]
    mapped: list[Any]  # those of its arrays that are mapped from files
    inputs: Sequence[tuple[Described, list[Mention]]]
    offsets: list[tuple[str, list[Mention]]]  # of sequences pooled during lookup
    outputs: Sequence[tuple[str, Described, list[Mention]]]
    bounds: list[tuple[str, int]]
    tables: list[tuple[int, int]]  # step and word of each mark
    lods: dict[str, list[list[int]]]
    ids_word: int  # of the number of ids, in a call that pools sequences during lookup
    runs_to_pay: int = 0

    @property
    def memory(self) -> int:
        """The bytes of arenas and steps; packed constants are shared."""
        return sum(frame.arena.nbytes + frame.steps.nbytes for frame in self.frames)

    def frame(self) -> Frame:
        """One that no other thread runs, locked. Raises MemoryError if there is no memory for a new one."""
        frames = self.frames
        for frame in frames:
            if frame.lock.acquire(blocking=False):
                return frame
        if len(frames) < processors():
            frame = frames[0].another(self.of_arena)
            frame.lock.acquire()
            frames.append(frame)
            return frame
        frames[0].lock.acquire()
        return frames[0]

    @property
    def marks_ids(self) -> bool:
        """Its marks are looked at before the call returns."""
        return False

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs, by name; `watch` gets the time of each step.

        Raises UnreadableError if a file with a table that is read in place has been written to.
        """
        if self.mapped:
            check_unchanged(self.mapped)
        results: dict[str, Any] = {}
        frame = self.frame()
        try:
            steps = frame.steps
            held = []
            for value, places in self.inputs:
                array = np.ascontiguousarray(given[value.name], value.dtype)
                held.append(array)
                start = first_byte(array)
                for step, at, offset in places:
                    steps[step, at] = start + offset
            for name, places in self.offsets:
                offsets = np.array((lods or {})[name][-1], np.int64)
                held.append(offsets)
                for step, at, _ in places:
                    steps[step, at] = first_byte(offsets)
                    steps[step, self.ids_word] = given[name].size
            for name, value, places in self.outputs:
                array = results[name] = np.empty(value.shape, value.dtype)
                start = first_byte(array)
                for step, at, offset in places:
                    steps[step, at] = start + offset
            if watch is None:
                self.library.run(steps)
            else:
                watch.kernel_calls(self, self.library.run_timed(steps))
            if self.bounds and self._went_beyond(steps):
                from fluidtool.runtime.graph.bounds import Bound, check_bounds  # a start from the cache needs no more

                check_bounds((Bound(*each, of_table=True) for each in self.bounds), given)
                self.library.run(steps)  # an interrupted run may have left marks
                if self._went_beyond(steps):
                    raise OperatorError(
                        f"the LoD of {' or '.join(name for name, _ in self.offsets)} does not match its rows"
                    )
        finally:
            frame.lock.release()
        return results

    def _went_beyond(self, steps: NDArray[np.int64]) -> bool:
        """Whether a step has marked an id out of range for its table; clears the marks."""
        marked = [place for place in self.tables if steps[place]]
        for place in marked:
            steps[place] = 0
        return bool(marked)
