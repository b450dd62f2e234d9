"""Ranks as MPI processes: mpi4py works on numpy arrays where they lie (mpi4py 3.1 and later)."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from fluidtool.distribute.collective.communicator import DEADLINE_SECONDS, REDUCTIONS, Communicator
from fluidtool.distribute.collective.watchdog import Watchdog
from fluidtool.errors import CollectiveError, DeviceError, UsageError
from fluidtool.shapes import shape_text

SECONDS_TO_PASS_ON = 0.5
STARTED_BY_MPI = ("PMI_SIZE", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")


def is_started_by_mpi(environment: Mapping[str, str]) -> bool:
    """Whether mpiexec or srun started this process, by the variables that they set."""
    return any(name in environment for name in STARTED_BY_MPI)


def load_mpi() -> Any:
    """mpi4py.MPI; raises DeviceError where it cannot be used."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DeviceError(
            f"collectives over MPI need mpi4py and an MPI library ({error}); pip install 'fluidtool[mpi]' and an MPI "
            "such as the package mpich, or choose FLUIDTOOL_COLLECTIVE=grpc"
        ) from error
    return MPI


class MpiCommunicator(Communicator):
    """A ring of all processes that mpiexec started. rank: of this process in the program; None: that of MPI.

    MPI calls cannot be interrupted: where a rank is later than `seconds`, or has failed, MPI_Abort ends all processes, after
    a message on stderr. float16 and bfloat16 are summed as float32. Raises UsageError when the sizes differ.
    """

    def __init__(
        self, rank: int | None = None, size: int | None = None, ring: int = 0, seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._mpi = load_mpi()
        world = self._mpi.COMM_WORLD
        if size is not None and size != world.Get_size():
            raise UsageError(
                f"the program is for {size} ranks, but mpiexec started {world.Get_size()} processes; start as many as "
                "the program was transpiled for"
            )
        super().__init__(world.Get_rank() if rank is None else rank, world.Get_size(), ring)
        self.allows_threads = self._mpi.Query_thread() >= self._mpi.THREAD_SERIALIZED
        self._watchdog = Watchdog(seconds, self._too_late)
        self._operations = {name: getattr(self._mpi, name.upper()) for name in REDUCTIONS}
        _end_together(self._mpi)
        with self._calling("joining"):
            self._comm = world.Split(0, self.rank)
        if len(set(self.exchange(str(self.rank).encode()))) < self.size:
            raise UsageError("several MPI processes claim the same rank; each needs its own program")

    def barrier(self) -> None:
        """Return when every rank has come here."""
        with self._calling("barrier"):
            self._comm.Barrier()

    def exchange(self, data: bytes) -> list[bytes]:
        """The bytes that every rank gave, by rank."""
        lengths = np.empty(self.size, np.int64)
        with self._calling("exchange"):
            self._comm.Allgather(np.array([len(data)], np.int64), lengths)
            starts = np.concatenate([[0], np.cumsum(lengths)])
            found = np.empty(int(starts[-1]), np.uint8)
            self._comm.Allgatherv(np.frombuffer(data, np.uint8), [found, lengths, starts[:-1], self._mpi.BYTE])
        return [found[start:end].tobytes() for start, end in itertools.pairwise(starts)]

    def abort(self, reason: str) -> None:
        """Say why, and end all processes when this one ends."""
        if not _Ending.is_asked:
            _Ending.is_asked = True
            sys.stderr.write(f"rank {self.rank}: {reason}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Leave the ring; every rank must."""
        self._watchdog.stop()

    def _all_reduce(self, array: Any, reduction: str, out: Any) -> Any:
        if _is_half(array):
            return self._reducing("all_reduce", self._comm.Allreduce, array, reduction, array.shape, out)
        if out is None:
            out = np.array(array, order="C")
        elif out is not array:
            np.copyto(out, array)
        self._watchdog.start(("all_reduce", out))
        try:
            self._comm.Allreduce(self._mpi.IN_PLACE, out, self._operations[reduction])
        except self._mpi.Exception as error:
            raise self._failed("all_reduce", out, error) from error
        finally:
            self._watchdog.finish()
        return out

    def _prepare_all_reduce(self, array: Any, reduction: str) -> Callable[[], None]:
        if _is_half(array) or not hasattr(self._comm, "Allreduce_init"):  # mpi4py 4 has it
            return super()._prepare_all_reduce(array, reduction)
        try:
            request = self._comm.Allreduce_init(self._mpi.IN_PLACE, array, self._operations[reduction])
        except NotImplementedError:  # the library is older than MPI 4
            return super()._prepare_all_reduce(array, reduction)
        return _PersistentReduction(self, request, array)

    def _reduce(self, array: Any, root: int, reduction: str) -> Any:
        call = partial(self._comm.Reduce, root=root)
        result = self._reducing("reduce", call, array, reduction, array.shape)
        return result if self.rank == root else array

    def _broadcast(self, array: Any, root: int) -> Any:
        result = np.array(array, order="C") if self.rank == root else np.empty_like(array, order="C")
        with self._calling("broadcast", array):
            self._comm.Bcast(_as_bytes(result), root)
        return result

    def _all_gather(self, array: Any) -> Any:
        result = np.empty((self.size * array.shape[0], *array.shape[1:]), array.dtype)
        with self._calling("all_gather", array):
            self._comm.Allgather(_as_bytes(np.ascontiguousarray(array)), _as_bytes(result))
        return result

    def _all_to_all(self, array: Any) -> Any:
        result = np.empty(array.shape, array.dtype)
        with self._calling("all_to_all", array):
            self._comm.Alltoall(_as_bytes(np.ascontiguousarray(array)), _as_bytes(result))
        return result

    def _reduce_scatter(self, array: Any, reduction: str) -> Any:
        shape = (array.shape[0] // self.size, *array.shape[1:])
        return self._reducing("reduce_scatter", self._comm.Reduce_scatter_block, array, reduction, shape)

    def _reducing(
        self, name: str, call: Callable[..., None], array: Any, reduction: str, shape: tuple[int, ...], out: Any = None
    ) -> Any:
        """Call an MPI reduction; half precision, which MPI does not have, goes as float32."""
        given = np.ascontiguousarray(array, np.float32 if _is_half(array) else array.dtype)
        same = out is not None and out.dtype == given.dtype
        result = out if same else np.empty(shape, given.dtype)
        with self._calling(name, array):
            call(given, result, op=self._operations[reduction])
        if result.dtype == array.dtype:
            return result
        if out is None:
            return result.astype(array.dtype)
        out[...] = result
        return out

    @contextmanager
    def _calling(self, name: str, array: Any = None) -> Iterator[None]:
        """A call of MPI, watched; its errors become CollectiveErrors. Where microseconds count it is written out."""
        self._watchdog.start((name, array))
        try:
            yield
        except self._mpi.Exception as error:
            raise self._failed(name, array, error) from error
        finally:
            self._watchdog.finish()

    def _failed(self, name: str, array: Any, error: Exception) -> CollectiveError:
        return CollectiveError(
            f"{self._described(name, array)} failed in MPI: {error}; all ranks must pass arrays of the same shape and data type"
        )

    def _described(self, name: str, array: Any) -> str:
        of = "" if array is None else f" of {shape_text(array.shape)} {array.dtype}"
        return f"{name}{of} on ring {self.ring}"

    def _too_late(self, what: Any) -> None:
        self.abort(
            f"waited {self._watchdog.seconds:g} s at {self._described(*what)}: another rank hangs, or does something else "
            f"(FLUIDTOOL_COLLECTIVE_DEADLINE sets how many seconds to wait); ending all processes"
        )
        _end_all(self._mpi)


class _PersistentReduction:
    """An all-reduce of one array in place that MPI has prepared (MPI 4.0, 6.13)."""

    __slots__ = ("__weakref__", "_array", "_ring", "_start", "_wait", "_what")

    def __init__(self, ring: MpiCommunicator, request: Any, array: Any) -> None:
        self._ring, self._array, self._start, self._wait = ring, array, request.Start, request.Wait
        self._what = ("all_reduce", array)
        weakref.finalize(self, request.Free).atexit = False  # MPI may have ended by then

    def __call__(self) -> None:
        ring = self._ring
        ring.bytes_moved += self._array.nbytes
        ring._watchdog.start(self._what)
        try:
            self._start()
            self._wait()
        except ring._mpi.Exception as error:
            raise ring._failed(*self._what, error) from error
        finally:
            ring._watchdog.finish()


class _Ending:
    """Whether this process is to take the others with it when it ends; there is one MPI in a process."""

    is_asked = False
    is_prepared = False


def _end_together(mpi: Any) -> None:
    """A process that ends by an error ends the others, which would wait for it in MPI_Finalize."""
    if _Ending.is_prepared:
        return
    _Ending.is_prepared = True
    before = sys.excepthook

    def show(kind: Any, error: Any, trace: Any) -> None:
        _Ending.is_asked = True
        before(kind, error, trace)

    def end() -> None:
        if _Ending.is_asked and not mpi.Is_finalized():
            _end_all(mpi)
            os._exit(CollectiveError.exit_code)

    sys.excepthook = show
    atexit.register(end)


def _end_all(mpi: Any) -> None:
    """End the processes of every rank. mpiexec passes on first what they said: it drops what it has not read by then."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(SECONDS_TO_PASS_ON)
    mpi.COMM_WORLD.Abort(CollectiveError.exit_code)


def _is_half(array: Any) -> bool:
    return bool(array.dtype.itemsize == 2 and (array.dtype.kind == "f" or array.dtype.name == "bfloat16"))


def _as_bytes(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)
