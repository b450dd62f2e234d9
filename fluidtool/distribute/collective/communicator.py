"""Communicator: what the ranks of one ring do together, whatever carries their values.

Every rank calls the same methods in the same order. Sums are deterministic: the same ranks with the same values always
get the same bits, and all ranks get the same ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fluidtool.errors import UsageError
from fluidtool.shapes import shape_text

REDUCTIONS = ("sum", "prod", "max", "min")
DEADLINE_SECONDS = 600.0


class Pending(Protocol):
    """Sums that have begun."""

    def result(self) -> list[Any]:
        """The sums; raises CollectiveError if they do not arrive in time."""


class Communicator(ABC):
    """One rank's end of a ring of `size` ranks.

    Arrays are numpy arrays, of cupy on a GPU; they are read, never written, unless one is given as `out`. Raises UsageError
    for arguments that cannot work on any rank, CollectiveError where ranks disagree, or one is gone or too late.
    """

    checks_arrays = False  # whether ranks that give different arrays get an error by themselves

    on_streams = False  # whether sums of gradients run on a stream of their own, beside the computation (NCCL)

    allows_threads = True  # whether another thread than the one that joined may call it, one at a time

    def __init__(self, rank: int, size: int, ring: int = 0) -> None:
        if not 0 <= rank < size:
            raise UsageError(f"rank {rank} is not in a ring of {size}; ranks go from 0 to {size - 1}")
        self.rank, self.size, self.ring = rank, size, ring
        self.bytes_moved = 0

    def all_reduce(self, array: Any, reduction: str = "sum", out: Any = None) -> Any:
        """The reduction over all ranks, element by element, on every rank; like `array` in shape and data type.

        out: a contiguous array like `array`, or `array` itself, which takes the result.
        """
        self._check_reduction(array, reduction)
        self._check_out(array, out)
        self._count(array)
        return self._all_reduce(array, reduction, out)

    def prepare_all_reduce(self, array: Any, reduction: str = "sum") -> Callable[[], None]:
        """A function that writes the reduction of `array` over all ranks into `array`, which is contiguous.

        For an array that is reduced many times: it is checked only now. All ranks prepare in the same order.
        """
        self._check_reduction(array, reduction)
        self._check_out(array, array)
        return self._prepare_all_reduce(array, reduction)

    def begin_sums(self, arrays: Sequence[Any]) -> Pending | None:
        """Begin to sum arrays of one data type over all ranks, as one; None if that is not done beside other work."""
        return None

    def reduce(self, array: Any, root: int, reduction: str = "sum") -> Any:
        """The reduction over all ranks on rank `root`; the others get their own array back."""
        self._check_reduction(array, reduction)
        self._check_root(root)
        self._count(array)
        return self._reduce(array, root, reduction)

    def broadcast(self, array: Any, root: int) -> Any:
        """The array of rank `root`, on every rank. All give an array of one shape and data type."""
        self._check_root(root)
        self._count(array)
        return self._broadcast(array, root)

    def all_gather(self, array: Any) -> Any:
        """The arrays of all ranks, which have one shape, one below the other: [size * rows, …]."""
        if not array.shape:
            raise UsageError("all_gather concatenates rows, but the array has no dimensions")
        self._count(array)
        return self._all_gather(array)

    def all_to_all(self, array: Any) -> Any:
        """Row i of every rank's array, on rank i, in the order of the ranks: [size, …] -> [size, …]."""
        if not array.shape or array.shape[0] != self.size:
            raise UsageError(
                f"an array of shape {shape_text(array.shape)} has no row for each of the {self.size} ranks; its first "
                "dimension must be their number"
            )
        self._count(array)
        return self._all_to_all(array)

    def reduce_scatter(self, array: Any, reduction: str = "sum") -> Any:
        """Of the reduction over all ranks, rank r gets part r of `size` equal parts of its rows."""
        self._check_reduction(array, reduction)
        if not array.shape or array.shape[0] % self.size:
            raise UsageError(
                f"an array of shape {shape_text(array.shape)} cannot be split by rows over {self.size} ranks; "
                "its first dimension must be a multiple of their number"
            )
        self._count(array)
        return self._reduce_scatter(array, reduction)

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has come here."""

    @abstractmethod
    def exchange(self, data: bytes) -> list[bytes]:
        """The bytes that every rank gave, by rank; their lengths may differ."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Give up: whatever the other ranks do or will do on this ring fails, and tells them the reason."""

    @abstractmethod
    def close(self) -> None:
        """Leave the ring after the last call; a rank that goes on waiting for this one gets an error."""

    @abstractmethod
    def _all_reduce(self, array: Any, reduction: str, out: Any) -> Any: ...

    @abstractmethod
    def _reduce(self, array: Any, root: int, reduction: str) -> Any: ...

    @abstractmethod
    def _broadcast(self, array: Any, root: int) -> Any: ...

    @abstractmethod
    def _all_gather(self, array: Any) -> Any: ...

    @abstractmethod
    def _reduce_scatter(self, array: Any, reduction: str) -> Any: ...

    def _all_to_all(self, array: Any) -> Any:
        return self._all_gather(array).reshape(self.size, *array.shape)[:, self.rank]

    def _prepare_all_reduce(self, array: Any, reduction: str) -> Callable[[], None]:
        def reduce() -> None:
            self._count(array)
            self._all_reduce(array, reduction, array)

        return reduce

    def _count(self, array: Any) -> None:
        self.bytes_moved += int(array.nbytes)

    def _check_reduction(self, array: Any, reduction: str) -> None:
        if reduction not in REDUCTIONS:
            raise UsageError(f"there is no reduction {reduction!r}; expected one of {', '.join(REDUCTIONS)}")
        if array.dtype.kind not in "fiuc" and array.dtype.name != "bfloat16":
            raise UsageError(f"only numbers can be reduced, but the array is of {array.dtype}; cast it first")

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.size:
            raise UsageError(f"root {root} is not one of the {self.size} ranks; they go from 0 to {self.size - 1}")

    def _check_out(self, array: Any, out: Any) -> None:
        if out is None or (out is array and array.flags.c_contiguous):
            return
        if out.shape != array.shape or out.dtype != array.dtype or not out.flags.c_contiguous:
            raise UsageError(
                f"the result is of shape {shape_text(array.shape)} and {array.dtype}; `out` must be a contiguous array of "
                f"the same, found {shape_text(out.shape)} and {out.dtype}"
            )
