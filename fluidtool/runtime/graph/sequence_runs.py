"""Where the rows of each sequence of a value are: by a LoD, or padded, with lengths in memory."""

from __future__ import annotations

from fluidtool.records import dataclass
from fluidtool.runtime.graph.ir import Shape


@dataclass(frozen=True, slots=True)
class Runs:
    """Sequences of rows: those between the `offsets` of a LoD, or of `longest` rows each as many as a length says.

    count: of sequences. step: from one row of a sequence to the next, `count` where the first axis is the time. is_marked: whether
    the kernel notes lengths, tags and classes out of range, and takes 0; else they are looked at before.
    """

    count: int
    offsets: tuple[int, ...] = ()
    longest: int = 0
    step: int = 1
    is_marked: bool = False

    @property
    def is_padded(self) -> bool:
        """Whether lengths are in memory: the last input of a node."""
        return not self.offsets


def of_lod(offsets: tuple[int, ...], is_marked: bool = False) -> Runs:
    """The sequences of a LoD."""
    return Runs(len(offsets) - 1, offsets, is_marked=is_marked)


def padded(shape: Shape, is_marked: bool = False) -> Runs:
    """The sequences of an array [sequences, longest, ...]."""
    return Runs(shape[0], longest=shape[1], is_marked=is_marked)


def by_time(shape: Shape, is_marked: bool = False) -> Runs:
    """The sequences of an array [longest, sequences, ...]."""
    return Runs(shape[1], longest=shape[0], step=shape[1], is_marked=is_marked)
