"""A stand-in for cupy with NCCL: its arrays are numpy's, its communicator sums between threads.

No GPU takes part. It shows that the adapter gives NCCL the pointers, counts, types and operations that belong together.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.threads import thread_communicators

TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
OPERATIONS = ["sum", "prod", "max", "min"]


class Array(np.ndarray):
    """An array with a pointer where cupy has it."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class NcclError(RuntimeError):
    """What the binding raises."""


class Nccl:
    """cupy.cuda.nccl. `hang`: streams never finish; `fault`: what check_async_error raises; old: identifiers are tuples."""

    available = True
    NcclError = NcclError

    def __init__(self, old: bool = False) -> None:
        self.hang, self.fault, self.aborted, self.old = False, "", 0, old
        self.rings: dict[bytes, list[Communicator]] = {}
        self.lock = threading.Lock()
        for number, name in enumerate(TYPES):
            setattr(self, f"NCCL_{name.upper()}", number)
        for number, name in enumerate(OPERATIONS):
            setattr(self, f"NCCL_{name.upper()}", number)
        nccl = self

        class NcclCommunicator:
            def __init__(self, size: int, identifier: Any, rank: int) -> None:
                if nccl.old:
                    assert isinstance(identifier, tuple) and all(-128 <= n < 128 for n in identifier)
                    identifier = bytes(n & 255 for n in identifier)
                assert isinstance(identifier, bytes) and len(identifier) == 128
                with nccl.lock:
                    ends = nccl.rings.setdefault(identifier, thread_communicators(size, 0, 10))
                self.ring = ends[rank]

            @staticmethod
            def initAll(devices: Sequence[int]) -> list[Any]:
                made = [object.__new__(NcclCommunicator) for _ in devices]
                for one, ring in zip(made, thread_communicators(len(devices), 0, 10), strict=True):
                    one.ring = ring
                return made

            def allReduce(self, send: int, receive: int, count: int, kind: int, operation: int, stream: int) -> None:
                memory(receive, count, kind)[:] = self.ring.all_reduce(memory(send, count, kind), OPERATIONS[operation])

            def reduce(
                self, send: int, receive: int, count: int, kind: int, operation: int, root: int, stream: int
            ) -> None:
                found = self.ring.reduce(memory(send, count, kind), root, OPERATIONS[operation])
                if self.ring.rank == root:
                    memory(receive, count, kind)[:] = found

            def broadcast(self, send: int, receive: int, count: int, kind: int, root: int, stream: int) -> None:
                assert count < 2**31
                memory(receive, count, kind)[:] = self.ring.broadcast(memory(send, count, kind), root)

            def allGather(self, send: int, receive: int, count: int, kind: int, stream: int) -> None:
                memory(receive, count * self.ring.size, kind)[:] = self.ring.all_gather(memory(send, count, kind))

            def reduceScatter(
                self, send: int, receive: int, count: int, kind: int, operation: int, stream: int
            ) -> None:
                given = memory(send, count * self.ring.size, kind)
                memory(receive, count, kind)[:] = self.ring.reduce_scatter(given, OPERATIONS[operation])

            def check_async_error(self) -> None:
                if nccl.fault:
                    raise NcclError(nccl.fault)

            def abort(self) -> None:
                nccl.aborted += 1

            def destroy(self) -> None:
                self.ring.close()

        self.NcclCommunicator = NcclCommunicator

    def get_unique_id(self) -> Any:
        made = np.random.default_rng().bytes(128)
        return tuple(b - 256 if b > 127 else b for b in made) if self.old else made


def memory(pointer: int, count: int, kind: int) -> np.ndarray:
    """The array at an address."""
    dtype = np.dtype(TYPES[kind])
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(pointer), dtype)


def fake_cupy(old: bool = False) -> Any:
    """A module in place of cupy."""
    nccl = Nccl(old)

    class Device:
        id = 0

        def __enter__(self) -> Device:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    def made(function: Any) -> Any:
        return lambda *args, **named: np.asarray(function(*args, **named)).view(Array)

    def stream(non_blocking: bool = False) -> Any:
        return SimpleNamespace(ptr=7, done=not (nccl.hang or nccl.fault), wait_event=lambda event: None)

    def event(disable_timing: bool = False) -> Any:
        return SimpleNamespace(record=lambda stream: None)

    def module_array(values: Any, dtype: Any = None, order: Any = None) -> Any:
        return np.array(values, dtype, order=order).view(Array)

    return SimpleNamespace(
        cuda=SimpleNamespace(nccl=nccl, Device=Device, get_current_stream=stream, Stream=stream, Event=event),
        dtype=np.dtype,
        concatenate=made(np.concatenate),
        array=module_array,
        asarray=made(np.asarray),
        asnumpy=np.asarray,
        ascontiguousarray=made(np.ascontiguousarray),
        empty=made(np.empty),
        empty_like=made(np.empty_like),
        ones=made(np.ones),
    )
