"""One process of a job: in a process group of its own, its output read line by line, gone without a trace when stopped."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

LONGEST_LINE = 1 << 16
CHUNK = 1 << 16
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


class Child:
    """A started process and everything that it starts. Raises OSError when it cannot be started.

    Its group is killed with it, and on Linux it dies with the process that started it, however that ends.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_tie_to_parent(),  # noqa: PLW1509  (it calls nothing but prctl)
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self.outputs = (Lines(self._process.stdout.fileno()), Lines(self._process.stderr.fileno()))

    @property
    def process(self) -> int:
        """Its number, which is also that of its group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """What it left with, 128 + N after signal N; None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and whatever it has started."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return  # nobody of the group is left

    def close(self) -> None:
        """Kill what is left of the group, take the exit code, and close the pipes."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


class Lines:
    """The lines of a pipe, without ever waiting for more."""

    def __init__(self, handle: int) -> None:
        self.handle, self.at_end = handle, False
        self._rest = b""
        os.set_blocking(handle, False)

    def read(self) -> list[str]:
        """The lines that are complete by now; at the end of the output also what follows the last of them."""
        try:
            data = os.read(self.handle, CHUNK)
        except BlockingIOError:
            return []
        self.at_end = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (self.at_end or len(self._rest) > LONGEST_LINE):
            lines, self._rest = [*lines, self._rest], b""
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    def drain(self) -> list[str]:
        """Whatever is there to be read, up to a bound; for a process that is gone."""
        found: list[str] = []
        for _ in range(256):
            before = self._rest
            lines = self.read()
            found += lines
            if self.at_end or (not lines and self._rest == before):
                break
        if self._rest:
            found.append(self._rest.decode(errors="replace"))
            self._rest = b""
        return found


def _tie_to_parent() -> Callable[[], None] | None:
    """What a new process calls before its program, so that it is killed when its parent dies; None but on Linux."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    number = int(signal.SIGKILL)

    def tie() -> None:
        prctl(_DIE_WITH_PARENT, number)

    return tie
