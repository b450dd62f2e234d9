"""Ranks as GPUs: NCCL through cupy.cuda.nccl. Every rank is a process, or a thread, with a GPU of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fluidtool.distribute.collective.communicator import DEADLINE_SECONDS, Communicator, Pending
from fluidtool.errors import CollectiveError, DeviceError
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

IDENTIFIER_BYTES = 128
TYPES = {
    "int8": "NCCL_INT8",
    "uint8": "NCCL_UINT8",
    "int32": "NCCL_INT32",
    "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64",
    "uint64": "NCCL_UINT64",
    "float16": "NCCL_FLOAT16",
    "bfloat16": "NCCL_BFLOAT16",
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
}
POLL_SECONDS = 0.0001
FLOAT_BYTES = 4
BROADCAST_BYTES = 2**30  # cupy counts a broadcast in 32 bits


def load_cupy() -> Any:
    """cupy with NCCL; raises DeviceError where it cannot be used."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(
            "collectives between GPUs need cupy, which is not installed; pip install 'fluidtool[gpu-cuda12]' (or "
            "gpu-cuda13)"
        ) from error
    if not cupy.cuda.nccl.available:
        raise DeviceError(
            "collectives between GPUs need NCCL, which cupy did not find; pip install nvidia-nccl-cu12 (or "
            "nvidia-nccl-cu13)"
        )
    return cupy


def new_identifier() -> bytes:
    """The 128 bytes that name a new ring; one rank makes them, all ranks join with them."""
    made = load_cupy().cuda.nccl.get_unique_id()
    return made if isinstance(made, bytes) else bytes(number & 0xFF for number in made)  # a tuple before cupy 14


class NcclCommunicator(Communicator):
    """A ring of GPUs; joins on the GPU that is current. Raises DeviceError without NCCL.

    Every call waits until the GPU has finished it, and gives up after `seconds`: NCCL itself would wait forever.
    """

    on_streams = True
    allows_threads = False  # each thread has a current GPU of its own

    def __init__(
        self, identifier: bytes, rank: int, size: int, ring: int = 0, seconds: float = DEADLINE_SECONDS
    ) -> None:
        super().__init__(rank, size, ring)
        self._cupy, self._seconds = load_cupy(), seconds
        self._nccl = self._cupy.cuda.nccl
        self._comm: Any = None
        self._side: Any = None
        if identifier:
            self._comm = self._join(identifier)

    @classmethod
    def of_devices(
        cls, devices: Sequence[int], ring: int = 0, seconds: float = DEADLINE_SECONDS
    ) -> list[NcclCommunicator]:
        """A ring of GPUs of this process, a thread for each; cupy cannot join them one by one within a process."""
        made = load_cupy().cuda.nccl.NcclCommunicator.initAll(list(devices))
        ends = [cls(b"", rank, len(devices), ring, seconds) for rank in range(len(devices))]
        for end, joined in zip(ends, made, strict=True):
            end._comm = joined
        return ends

    # ---------------------------------------------------------------- beside the computation
    def sum_aside(self, given: int, out: int, count: int) -> None:
        """Begin, on a stream beside the current one, to sum floats at an address into those at another one.

        It follows what the current stream has been asked for so far; a graph that is captured there takes it in. The memory
        is in use until `arrive`.
        """
        cuda = self._cupy.cuda
        if self._side is None:
            self._side = cuda.Stream(non_blocking=True)
        ready = cuda.Event(disable_timing=True)
        ready.record(cuda.get_current_stream())
        self._side.wait_event(ready)
        kind, operation = self._nccl.NCCL_FLOAT32, self._operation("sum")
        self._guarded(lambda: self._comm.allReduce(given, out, count, kind, operation, self._side.ptr))
        self.bytes_moved += count * FLOAT_BYTES

    def arrive(self) -> None:
        """What the current stream is asked for from here on waits for the sums that have begun."""
        cuda = self._cupy.cuda
        done = cuda.Event(disable_timing=True)
        done.record(self._side)
        cuda.get_current_stream().wait_event(done)

    def finish(self, label: str) -> None:
        """Wait until the current stream has done everything; raises CollectiveError at the deadline."""
        self._waited(f"{label} on ring {self.ring}")

    def begin_sums(self, arrays: Sequence[Any]) -> Pending | None:
        """Begin to sum arrays of floats as one; None for others."""
        if arrays[0].dtype != self._cupy.dtype("float32"):
            return None
        flat = self._cupy.concatenate([array.reshape(-1) for array in arrays])
        out = self._cupy.empty_like(flat)
        self.sum_aside(flat.data.ptr, out.data.ptr, flat.size)
        return Begun(self, flat, out, arrays)

    def barrier(self) -> None:
        """Return when every rank has come here."""
        self._all_reduce(self._cupy.ones(1, "float32"), "sum", None)

    def exchange(self, data: bytes) -> list[bytes]:
        """The bytes that every rank gave, by rank; they travel through the GPUs."""
        xp = self._cupy
        lengths = [int(n) for n in xp.asnumpy(self._all_gather(xp.asarray([len(data)], dtype="int64")))]
        padded = bytearray(data.ljust(max(*lengths, 1), b"\0"))
        found = xp.asnumpy(self._all_gather(xp.asarray(list(padded), dtype="uint8"))).tobytes()
        return [found[rank * len(padded) :][:length] for rank, length in enumerate(lengths)]

    def abort(self, reason: str) -> None:
        """Make what runs on this ring return; the other ranks find out by their own deadlines."""
        self._comm.abort()

    def close(self) -> None:
        """Leave the ring."""
        self._comm.destroy()

    def _all_reduce(self, array: Any, reduction: str, out: Any) -> Any:
        given = self._cupy.ascontiguousarray(array)
        result = self._cupy.empty_like(given) if out is None else out
        call = partial(self._comm.allReduce, given.data.ptr, result.data.ptr, given.size)
        self._run(f"all_reduce {reduction}", array, partial(call, self._type(array), self._operation(reduction)))
        return result

    def _reduce(self, array: Any, root: int, reduction: str) -> Any:
        given = self._cupy.ascontiguousarray(array)
        result = self._cupy.empty_like(given)
        call = partial(self._comm.reduce, given.data.ptr, result.data.ptr, given.size)
        self._run(f"reduce {reduction}", array, partial(call, self._type(array), self._operation(reduction), root))
        return result if self.rank == root else array

    def _broadcast(self, array: Any, root: int) -> Any:
        result = self._cupy.array(array, order="C")
        for start in range(0, result.nbytes, BROADCAST_BYTES):
            pointer, count = result.data.ptr + start, min(BROADCAST_BYTES, result.nbytes - start)
            byte = self._nccl.NCCL_UINT8
            self._run("broadcast", array, partial(self._comm.broadcast, pointer, pointer, count, byte, root))
        return result

    def _all_gather(self, array: Any) -> Any:
        given = self._cupy.ascontiguousarray(array)
        result = self._cupy.empty((self.size * array.shape[0], *array.shape[1:]), array.dtype)
        byte = self._nccl.NCCL_UINT8
        call = partial(self._comm.allGather, given.data.ptr, result.data.ptr, given.nbytes, byte)
        self._run("all_gather", array, call)
        return result

    def _reduce_scatter(self, array: Any, reduction: str) -> Any:
        given = self._cupy.ascontiguousarray(array)
        result = self._cupy.empty((array.shape[0] // self.size, *array.shape[1:]), array.dtype)
        call = partial(self._comm.reduceScatter, given.data.ptr, result.data.ptr, result.size)
        self._run(f"reduce_scatter {reduction}", array, partial(call, self._type(array), self._operation(reduction)))
        return result

    # ---------------------------------------------------------------- NCCL
    def _join(self, identifier: bytes) -> Any:
        """Join in a thread of its own: the call returns only when all ranks have come.

        The deadline holds where cupy lets other threads run meanwhile; all ranks were there when the identifier went round.
        """
        made: list[Any] = []
        device = self._cupy.cuda.Device()

        def join() -> None:
            try:
                with device:
                    made.append(self._nccl.NcclCommunicator(self.size, self._known(identifier), self.rank))
            except Exception as error:  # handed to the thread that waits
                made.append(error)

        thread = threading.Thread(target=join, daemon=True, name="joining NCCL")
        thread.start()
        thread.join(self._seconds)
        if not made:
            raise CollectiveError(
                f"rank {self.rank} waited {self._seconds:g} s for the {self.size} ranks of ring {self.ring} to join "
                f"NCCL; not all did"
            )
        if isinstance(made[0], Exception):
            raise CollectiveError(f"rank {self.rank} cannot join ring {self.ring}: {made[0]}") from made[0]
        return made[0]

    def _known(self, identifier: bytes) -> Any:
        """The identifier as this cupy takes it."""
        if isinstance(self._nccl.get_unique_id(), bytes):
            return identifier
        return tuple(byte - 256 if byte > 127 else byte for byte in identifier)

    def _run(self, name: str, array: Any, call: Callable[[int], None]) -> None:
        """Put the call on the current stream and wait for it."""
        label = f"{name} of {shape_text(array.shape)} {array.dtype} on ring {self.ring}"
        self._guarded(lambda: call(self._cupy.cuda.get_current_stream().ptr), label)
        self._waited(label)

    def _guarded(self, call: Callable[[], None], label: str = "a sum") -> None:
        try:
            call()
        except self._nccl.NcclError as error:
            self._comm.abort()
            raise CollectiveError(f"{label} failed in NCCL: {error}") from error

    def _waited(self, label: str) -> None:
        """Wait for the current stream, and give up at the deadline."""
        stream, end = self._cupy.cuda.get_current_stream(), time.monotonic() + self._seconds
        while not stream.done:
            self._guarded(self._comm.check_async_error, label)
            if time.monotonic() > end:
                break
            time.sleep(POLL_SECONDS)
        else:
            return
        self._comm.abort()
        raise CollectiveError(
            f"rank {self.rank} of {self.size} (GPU {self._cupy.cuda.Device().id}) waited {self._seconds:g} s at {label}: "
            "another rank hangs, has ended, or does something else; start all ranks again, a training from its last "
            "checkpoint (FLUIDTOOL_COLLECTIVE_DEADLINE sets how many seconds to wait)"
        )

    def _type(self, array: Any) -> int:
        name = TYPES.get(array.dtype.name, "")
        if not hasattr(self._nccl, name):
            raise CollectiveError(f"NCCL does not reduce {array.dtype}; cast it first, for example to float32")
        return int(getattr(self._nccl, name))

    def _operation(self, reduction: str) -> int:
        return int(getattr(self._nccl, f"NCCL_{reduction.upper()}"))


@dataclass(frozen=True, eq=False, slots=True)
class Begun:
    """Arrays that are summed as one beside the computation, with the memory that this uses."""

    ring: NcclCommunicator
    flat: Any
    out: Any
    arrays: Sequence[Any]

    def result(self) -> list[Any]:
        """The sums, each in the shape of its array."""
        self.ring.arrive()
        self.ring.finish(f"the sum of {len(self.arrays)} gradients, {self.out.nbytes} bytes")
        found, start = [], 0
        for array in self.arrays:
            found.append(self.out[start : start + array.size].reshape(array.shape))
            start += array.size
        return found
