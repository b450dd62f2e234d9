"""cupy.cuda.nccl between the devices of this machine, a thread for each: sums that run when somebody waits for them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.threads import thread_communicators
from tests.gpu.standin.devices import MACHINE, CUDARuntimeError
from tests.gpu.standin.libraries import stored

SECONDS = 20.0  # that a rank waits for another one, which its thread must reach


class NcclError(RuntimeError):
    """What the library refuses."""


class NcclCommunicator:
    """One rank's end of a ring."""

    def __init__(self, size: int, identifier: Any, rank: int) -> None:
        with NCCL.lock:
            ends = NCCL.rings.setdefault(bytes(identifier), thread_communicators(size, 0, SECONDS))
        self.ring = ends[rank]

    @staticmethod
    def initAll(devices: Sequence[int]) -> list[NcclCommunicator]:
        """The ends of a ring of devices of this process."""
        made = [object.__new__(NcclCommunicator) for _ in devices]
        for one, ring in zip(made, thread_communicators(len(devices), 0, SECONDS), strict=True):
            one.ring = ring
        return made

    ring: Communicator

    def allReduce(self, send: int, receive: int, count: int, kind: int, operation: int, stream: int) -> None:
        """On a stream beside the current one it runs when that waits for it; the stream must follow the current one."""
        if (kind, operation) != (NCCL.NCCL_FLOAT32, NCCL.NCCL_SUM):
            raise NcclError("the stand-in sums floats only")

        def work() -> None:
            if NCCL.gone:
                MACHINE.hung.add(MACHINE.current)
                return
            total = self.ring.all_reduce(np.array(stored(send, (count,), (1,))))
            stored(receive, (count,), (1,))[...] = total

        if self.ring.rank in NCCL.gone:
            return
        side = next((each for each in NCCL.sides() if each.ptr == stream), None)
        NCCL.calls.append((self.ring.rank, count, side is not None))
        if side is None:
            MACHINE.submit(work)
        elif not side.follows:
            raise CUDARuntimeError(900, "cudaErrorStreamCaptureUnsupported: the stream does not follow the current one")
        else:
            MACHINE.submit(lambda: side.waiting.append(work))

    def broadcast(self, send: int, receive: int, count: int, kind: int, root: int, stream: int) -> None:
        """Bytes of one rank for all."""
        assert kind == NCCL.NCCL_UINT8

        def work() -> None:
            words = stored(send, (-(-count // 4),), (1,))
            words[...] = self.ring.broadcast(np.array(words), root)

        MACHINE.submit(work)

    def allGather(self, send: int, receive: int, count: int, kind: int, stream: int) -> None:
        """The bytes of all ranks, one below the other."""
        assert kind == NCCL.NCCL_UINT8

        def work() -> None:
            parts = self.ring.exchange(ctypes.string_at(send, count))
            ctypes.memmove(receive, b"".join(parts), count * self.ring.size)

        MACHINE.submit(work)

    def check_async_error(self) -> None:
        """No fault is known."""

    def abort(self) -> None:
        """End what runs, and what the other ranks wait for."""
        NCCL.aborted += 1
        self.ring.abort("NCCL was aborted")

    def destroy(self) -> None:
        """Leave."""
        self.ring.close()


class Nccl:
    """The module.

    gone: ranks that never reach their sums, for which the others wait. calls: (rank, elements, whether beside) of each sum.
    """

    available = True
    NcclError = NcclError
    NcclCommunicator = NcclCommunicator
    NCCL_UINT8, NCCL_FLOAT32, NCCL_SUM = 1, 7, 0

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self.rings: dict[bytes, list[Communicator]] = {}
        self.gone: set[int] = set()
        self.calls: list[tuple[int, int, bool]] = []
        self.aborted = 0

    def get_unique_id(self) -> bytes:
        """128 bytes."""
        return np.random.default_rng().bytes(128)

    def sides(self) -> list[Any]:
        """The streams of this process, but the current one."""
        return [each for each in MACHINE.streams if each is not MACHINE.stack[-1]]


NCCL = Nccl()
