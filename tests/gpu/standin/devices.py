"""cupy.cuda: the devices of this machine, and the one that each thread uses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.gpu.standin.events import launch, synchronize


class CUDARuntimeError(RuntimeError):
    """What the driver refuses. status: the number of the fault."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.status = status


class CompileException(Exception):
    """Source that NVRTC does not compile."""

    def __init__(self, msg: str, source: str = "", name: str = "", options: Any = (), backend: str = "nvrtc") -> None:
        super().__init__(msg)


class OutOfMemoryError(MemoryError):
    """An allocation that the device has no memory for."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")


class Machine:
    """Its GPUs: how many, the fault of its driver, and how many bytes each has."""

    def __init__(self) -> None:
        self.count = 1
        self.fault: CUDARuntimeError | None = None
        self.free_bytes, self.total_bytes = 1 << 34, 1 << 34
        self.threads = threading.local()
        self.left: int | None = None  # pieces of work until the GPU is lost
        self.refused: frozenset[str] = frozenset()  # operations that cuDNN has no plans for
        self.submitted = 0  # pieces of work so far, of which a graph is one
        self.streams: list[Stream] = []  # that were made
        self.hung: set[int] = set()  # devices on which a stream waits for good
        self.held: list[
            int
        ] = []  # devices on which some thread captures a stream that waits for the usual one, and the other way

    def submit(self, work: Callable[[], None]) -> None:
        """Do what is asked of the device, or note it for the graph that is captured; raises CUDARuntimeError if it is lost."""
        self.submitted += 1
        self.require_usual_stream()
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise CUDARuntimeError(719, "cudaErrorLaunchFailure: unspecified launch failure")
        if self.capturing is None:
            work()
        else:
            self.capturing.append(work)

    def require_no_capture(self) -> None:
        """Raise CUDARuntimeError for what no graph can hold."""
        if self.capturing is not None:
            raise CUDARuntimeError(
                900, "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"
            )

    def require_usual_stream(self) -> None:
        """Raise CUDARuntimeError where a thread uses it while another captures a stream that it would have to wait for."""
        if self.current in self.held and self.stack[-1] is Stream.null:
            raise CUDARuntimeError(
                906,
                "cudaErrorStreamCaptureImplicit: operation would make the legacy stream depend on a capturing blocking stream",
            )

    @property
    def capturing(self) -> list[Callable[[], None]] | None:
        """What the calling thread notes for a graph; None unless it captures one."""
        return getattr(self.threads, "capturing", None)

    @capturing.setter
    def capturing(self, work: list[Callable[[], None]] | None) -> None:
        self.threads.capturing = work

    @property
    def stack(self) -> list[Stream]:
        """The streams that the calling thread has entered; the last one is current."""
        if not hasattr(self.threads, "stack"):
            self.threads.stack = [Stream.null]
        return self.threads.stack  # type: ignore[no-any-return]

    @property
    def current(self) -> int:
        """The device that the calling thread uses; a new thread uses the first."""
        return getattr(self.threads, "device", 0)

    def use(self, number: int) -> None:
        """Change the device of the calling thread; raises CUDARuntimeError for one that is not there."""
        if not 0 <= number < self.count:
            raise CUDARuntimeError(101, "cudaErrorInvalidDevice: invalid device ordinal")
        self.threads.device = number

    def device_count(self) -> int:
        """The number of GPUs; raises CUDARuntimeError where the driver cannot say."""
        if self.fault is not None:
            raise self.fault
        return self.count

    def properties(self, number: int) -> dict[str, object]:
        """What is known of a device."""
        return {"name": b"a stand-in for a GPU", "major": 9, "minor": 0, "totalGlobalMem": self.total_bytes}

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the current device."""
        return self.free_bytes, self.total_bytes

    def require(self, size: int) -> None:
        """Raise OutOfMemoryError for an array that the device has no memory for."""
        self.require_no_capture()
        if size > self.free_bytes:
            raise OutOfMemoryError(size, self.total_bytes - self.free_bytes)


MACHINE = Machine()


class Device:
    """A device; within a `with` block, the one that the thread uses."""

    def __init__(self, device: Any = None) -> None:
        self.id = MACHINE.current if device is None else int(device)
        self._before: list[int] = []

    def use(self) -> Device:
        """Make it the device of the calling thread."""
        MACHINE.use(self.id)
        return self

    def synchronize(self) -> None:
        """Wait for it."""
        synchronize()

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        return MACHINE.memory()

    def __enter__(self) -> Device:
        self._before.append(MACHINE.current)
        return self.use()

    def __exit__(self, *_: object) -> None:
        MACHINE.use(self._before.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


class Stream:
    """A queue of work, which is done at once; a captured graph keeps it for later."""

    null: Stream
    ptr = 0

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.ptr = 0 if null else id(self)
        self.is_blocking = not non_blocking
        self.waiting: list[Callable[[], None]] = []  # sums over devices, which run when somebody waits for them
        self.follows = False  # the stream that was current: work on it may be part of what that one captures
        if not null:
            MACHINE.streams.append(self)

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.waiting and MACHINE.current not in MACHINE.hung

    def wait_event(self, event: Event) -> None:
        """What is asked of this stream from here on follows a moment of another one."""
        other = event.stream
        assert other is not None, "an event that was not recorded"
        if other.waiting_is_noted:
            MACHINE.submit(other.catch_up)
        self.follows = other is MACHINE.stack[-1] or self.follows

    @property
    def waiting_is_noted(self) -> bool:
        """Whether it is beside another one."""
        return bool(self.ptr) and self is not MACHINE.stack[-1]

    def catch_up(self) -> None:
        """Do what waits."""
        work, self.waiting = self.waiting, []
        for each in work:
            each()

    def synchronize(self) -> None:
        """Wait for it."""
        synchronize()

    def __enter__(self) -> Stream:
        MACHINE.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        MACHINE.stack.pop()

    def begin_capture(self, mode: Any = None) -> None:
        """Note what is asked from here on; raises CUDARuntimeError on the stream that is always there."""
        if not self.ptr:
            raise CUDARuntimeError(900, "cudaErrorStreamCaptureUnsupported: the legacy stream cannot be captured")
        MACHINE.require_no_capture()
        MACHINE.capturing = []
        if self.is_blocking:
            MACHINE.held.append(MACHINE.current)

    def end_capture(self) -> Graph:
        """What was asked since."""
        assert MACHINE.capturing is not None
        if self.is_blocking:
            MACHINE.held.remove(MACHINE.current)
        found, MACHINE.capturing = Graph(MACHINE.capturing), None
        return found


class Graph:
    """Work that is launched as a whole."""

    def __init__(self, work: list[Callable[[], None]]) -> None:
        self.work = work

    def launch(self, stream: Stream | None = None) -> None:
        """Do it."""
        launch()
        MACHINE.submit(lambda: [work() for work in self.work] and None)


Stream.null = Stream(null=True)


class Event:
    """A moment of a stream; no time passes on this device."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    stream: Stream | None = None

    def record(self, stream: Any = None) -> None:
        """Note the moment."""
        self.stream = MACHINE.stack[-1] if stream is None else stream

    def synchronize(self) -> None:
        """Wait for the moment."""
        synchronize()


def cuda() -> Any:
    """The module cupy.cuda."""
    return SimpleNamespace(
        Device=Device,
        Event=Event,
        Stream=Stream,
        Graph=Graph,
        get_current_stream=lambda: MACHINE.stack[-1],
        get_elapsed_time=lambda start, end: 0.0,
        nccl=SimpleNamespace(available=False),  # tests that need it put tests.gpu.standin.nccl in its place
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        compiler=SimpleNamespace(CompileException=CompileException),
        profiler=SimpleNamespace(start=lambda: None, stop=lambda: None),
        runtime=SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=MACHINE.device_count,
            getDeviceProperties=MACHINE.properties,
            getDevice=lambda: MACHINE.current,
            memGetInfo=MACHINE.memory,
            runtimeGetVersion=lambda: 13000,
            driverGetVersion=lambda: 13000,
        ),
    )
