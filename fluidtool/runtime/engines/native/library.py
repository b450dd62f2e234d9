"""The compiled library: found, loaded, asked what it uses. Plain C ABI through ctypes."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent
SWITCH, THREADS, INSTRUCTIONS = "FLUIDTOOL_NATIVE", "FLUIDTOOL_THREADS", "FLUIDTOOL_INSTRUCTIONS"

STEP = np.dtype(
    [("kind", "i4"), ("activation", "i4"), ("p", "u8", 6), ("n", "i8", 32), ("f", "f4", 4)],
    align=True,
)


@dataclass(frozen=True, slots=True)
class Library:
    """The engine of this process: `instructions` ('avx2', …), `width` floats in a vector, `threads`."""

    path: Path
    instructions: str
    width: int
    threads: int
    handle: ctypes.CDLL

    def run(self, steps: NDArray[np.void]) -> None:
        """Run an array of STEP, one after the other. The steps hold addresses: whoever made them keeps the arrays alive."""
        self.handle.ft_run(steps.ctypes.data, len(steps))

    def trim(self) -> None:
        """Give memory that is free back to the system."""
        self.handle.ft_trim()


def library_path() -> Path | None:
    """Where the compiled library is: the file that FLUIDTOOL_NATIVE names, or the one built here; None without."""
    named = os.environ.get(SWITCH, "")
    if os.path.isfile(named):
        return Path(named)
    found = sorted(FOLDER.glob("_engine*.so")) + sorted(FOLDER.glob("_engine*.dylib"))
    return found[0] if found else None


def thread_count() -> int:
    """Threads to use: FLUIDTOOL_THREADS, else CPU_NUM, else the processors that this process may run on."""
    for name in (THREADS, "CPU_NUM"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def switched_off() -> bool:
    """Whether FLUIDTOOL_NATIVE says no."""
    return os.environ.get(SWITCH, "").lower() in {"0", "off", "no", "false"}


@cache
def library() -> Library | None:
    """The engine of this process, or None where it is not built or does not load."""
    path = library_path()
    if path is None:
        return None
    try:
        handle = ctypes.CDLL(str(path))
    except OSError:
        return None
    handle.ft_instructions_name.restype = ctypes.c_char_p
    for name in ("ft_vector_width", "ft_step_size"):
        getattr(handle, name).restype = ctypes.c_int64
    handle.ft_run.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    handle.ft_run.restype = None
    handle.ft_use_instructions.argtypes = [ctypes.c_char_p]
    if handle.ft_step_size() != STEP.itemsize:
        return None  # a library of another version
    wanted = os.environ.get(INSTRUCTIONS, "")
    if wanted and not handle.ft_use_instructions(wanted.encode()):
        return None
    threads = handle.ft_use_threads(thread_count())
    return Library(path, handle.ft_instructions_name().decode(), handle.ft_vector_width(), threads, handle)
