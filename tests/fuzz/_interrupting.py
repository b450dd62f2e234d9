"""Running a function in a child process of which one system call fails, or is its last: strace does that."""

from __future__ import annotations

import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CALLS = "%file,%desc"  # whatever takes a name or a handle
KILL = "KILL"
FAULTS = ("ENOSPC", "EIO", "EINTR", KILL)
LOOKS = {"newfstatat", "fstat", "stat", "lstat", "access", "lseek", "ioctl", "getcwd", "getdents64", "read", "mmap"}
PATIENCE = 120.0
SET_TRACER, ANYBODY = 0x59616D61, ctypes.c_ulong(-1)
CALL = re.compile(r"^(\d+) +([a-z_0-9]+)\(", re.MULTILINE)  # process and name


@dataclass(frozen=True)
class Fault:
    """The `number`th of one kind of system calls, in each thread, fails with an error, or ends the process."""

    kind: str
    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} at {self.call} {self.number}"

    def option(self) -> str:
        """As strace takes it."""
        how = f"signal={KILL}" if self.kind == KILL else f"error={self.kind}"
        return f"inject={self.call}:{how}:when={self.number}"


NOTHING = Fault("EIO", "fsync", 65535)  # the largest number that strace takes


@dataclass(frozen=True)
class Ending:
    """How a child ended. exit_code: negative for a signal. output: what it printed."""

    exit_code: int
    output: str


def is_available() -> bool:
    """Whether strace is installed and may look into children here."""
    if shutil.which("strace") is None:
        return False
    try:
        return run(lambda: 0, NOTHING, Path(os.devnull)).exit_code == 0
    except OSError:
        return False


def run(action: Callable[[], int], fault: Fault | None, trace: Path) -> Ending:
    """Run `action` in a child, which exits with what it returns; `trace` is overwritten with the calls of the child."""
    go_out, go_in = os.pipe()
    told_out, told_in = os.pipe()
    child = os.fork()
    if not child:
        _be_child(action, go_out, told_in)
    os.close(go_out)
    os.close(told_in)
    tracer = None if fault is None else _attach(child, fault, trace)
    os.write(go_in, b"x")
    os.close(go_in)
    output = _read_all(told_out)
    _, status = os.waitpid(child, 0)
    if tracer is not None:
        tracer.communicate(timeout=PATIENCE)
    return Ending(os.waitstatus_to_exitcode(status), output)


def count(action: Callable[[], int], trace: Path) -> dict[str, int]:
    """How often `action`, which must return 0, makes each system call, in the thread that makes it most often."""
    ended = run(action, NOTHING, trace)
    assert ended.exit_code == 0, ended.output
    found = Counter(CALL.findall(trace.read_text(errors="replace")))
    return {call: max(times for (_, name), times in found.items() if name == call) for _, call in found}


def _be_child(action: Callable[[], int], go: int, told: int) -> None:
    code = 99
    try:
        ctypes.CDLL(None).prctl(SET_TRACER, ANYBODY, 0, 0, 0)
        os.dup2(told, 1)
        os.dup2(told, 2)
        with suppress(OSError):  # it may be the one that fails; the child goes on then, as it should
            os.read(go, 1)
        code = action()
    finally:
        os._exit(code)


def _attach(child: int, fault: Fault, trace: Path) -> subprocess.Popen[bytes]:
    command = ["strace", "-f", "-qq", "-s", "64", "-o", str(trace), "-e", f"trace={CALLS}", "-e", fault.option()]
    tracer = subprocess.Popen([*command, "-p", str(child)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + PATIENCE
    status = Path(f"/proc/{child}/status")
    while "TracerPid:\t0\n" in status.read_text():
        if tracer.poll() is not None or time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise OSError(f"strace cannot attach to a child process here: {_said(tracer)}")
        time.sleep(0.001)
    return tracer


def _said(tracer: subprocess.Popen[bytes]) -> str:
    tracer.kill()
    return tracer.communicate()[1].decode(errors="replace")


def _read_all(handle: int) -> str:
    """What a child prints until it ends; one that hangs is killed by whoever reads the OSError."""
    parts = []
    while select.select([handle], [], [], PATIENCE)[0]:
        part = os.read(handle, 1 << 16)
        if not part:
            os.close(handle)
            return b"".join(parts).decode(errors="replace")
        parts.append(part)
    raise OSError("a child hangs")
