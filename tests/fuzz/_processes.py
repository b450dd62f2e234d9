"""Cases in processes of their own, many in each: one that crashes or hangs takes only its process with it."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.fuzz.campaign import Finding

MANY = 400  # cases of a process
LONGEST = 60  # seconds of a case
MEMORY = 6 << 30  # bytes of address space that a process may have, where nothing else (a sanitizer) needs it


def in_processes(seeds: Iterable[int], try_case: Callable[[int], str], many: int = MANY) -> Iterator[Finding]:
    """Try a case for each seed; a finding for whatever `try_case` tells, and for signals and hangs."""
    for chunk in chunks(seeds, many):
        left = chunk
        while left:
            begun, findings, status = run_chunk(left, try_case)
            yield from findings
            if not status:
                break
            seed = left[max(begun - 1, 0)]
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
            yield Finding(f"seed {seed}", f"the process ended by {how}")
            left = left[max(begun, 1) :]


def chunks(seeds: Iterable[int], many: int) -> Iterator[list[int]]:
    """The seeds, so many at a time."""
    found: list[int] = []
    for seed in seeds:
        found.append(seed)
        if len(found) == many:
            yield found
            found = []
    if found:
        yield found


def run_chunk(seeds: list[int], try_case: Callable[[int], str]) -> tuple[int, list[Finding], int]:
    """(how many were begun, what was found, how the process ended)."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        status = 1
        try:
            work(seeds, try_case, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        begun, findings = 0, []
        for told in messages(pipe):
            if told is None:
                begun += 1
            else:
                findings.append(Finding(*told))
    return begun, findings, os.waitpid(child, 0)[1]


def messages(pipe: Any) -> Iterator[Any]:
    """What a process has told until it ended."""
    while True:
        try:
            yield pickle.load(pipe)
        except (EOFError, pickle.UnpicklingError):
            return


def work(seeds: list[int], try_case: Callable[[int], str], writing: int) -> None:
    """What a process does: each case under an alarm."""
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with os.fdopen(writing, "wb") as pipe:
        for seed in seeds:
            pickle.dump(None, pipe)
            pipe.flush()
            signal.alarm(LONGEST)
            begun = time.monotonic()
            try:
                fault = try_case(seed)
            except Exception as error:
                fault = f"the campaign itself fails: {type(error).__name__}: {error}"
            signal.alarm(0)
            if not fault and time.monotonic() - begun > LONGEST / 2:
                fault = f"took {time.monotonic() - begun:.0f} s"
            if fault:
                pickle.dump((f"seed {seed}", fault), pipe)
                pipe.flush()
