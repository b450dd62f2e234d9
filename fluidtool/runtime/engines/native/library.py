"""The compiled library: finding and loading it, and its properties. Plain C ABI through ctypes."""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.fingerprint import FINGERPRINT
from fluidtool.runtime.engines.native.memory import ThreadMemory
from fluidtool.runtime.engines.threads import MOST_THREADS, thread_count

FOLDER = Path(__file__).parent
SWITCH, INSTRUCTIONS, INT8 = "FLUIDTOOL_NATIVE", "FLUIDTOOL_INSTRUCTIONS", "FLUIDTOOL_INT8"
PAIRS, TILES = "avx512_bf16", "amx"  # the instructions of src/pairs.c; the latter multiply tiles of them (src/tiles.h)
BUILD = "python -m fluidtool.runtime.engines.native.build"


@dataclass(eq=False, slots=True)
class Library:
    """The engine of this process: `instructions` ('amx', 'avx512_bf16', 'avx512', 'avx2', 'portable', …), `width` floats in
    a vector, `threads`; and `precision`, that of products and convolutions (bfloat16.py).
    """

    path: Path
    instructions: str
    width: int
    threads: int
    handle: ctypes.CDLL
    precision: str = "float32"
    memory: ThreadMemory = field(default_factory=ThreadMemory)

    @property
    def pairs(self) -> bool:
        """Whether products and convolutions are dot products of pairs of bfloat16 numbers (src/pairs.c)."""
        return self.precision == "bf16" and self.instructions in (PAIRS, TILES)

    @property
    def halves_in_vectors(self) -> bool:
        """Whether blocks of halves are as wide as a vector: dot products of pairs without tiles."""
        return self.pairs and self.half_lanes == self.width

    @property
    def half_lanes(self) -> int:
        """The channels of a block of bfloat16 numbers: as many as a row of a tile has, where there are tiles, else a vector."""
        return 2 * self.width if self.instructions == TILES else self.width

    def run(self, calls: NDArray[np.int64]) -> None:
        """Run calls (binding.py), in order. They contain addresses: the caller keeps the arrays alive."""
        self.handle.ft_run(first_byte(calls), len(calls))

    def run_timed(self, calls: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same; returns the seconds of each call."""
        seconds = np.zeros(len(calls))
        self.handle.ft_run_timed(calls.ctypes.data, len(calls), seconds.ctypes.data)
        return seconds

    def use_threads(self, count: int) -> int:
        """Set the number of threads, and return how many there are: started threads never end."""
        self.threads = self.handle.ft_use_threads(min(count, MOST_THREADS))
        return self.threads

    def trim(self) -> None:
        """Return free memory to the system."""
        self.handle.ft_trim()


def first_byte(array: NDArray[Any]) -> int:
    """The address of a row-major array. For writable arrays, as most are, this takes a third of `array.ctypes`."""
    if array.size and array.flags.writeable:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    return int(array.ctypes.data)


def library_path() -> Path | None:
    """The path of the compiled library: the file in FLUIDTOOL_NATIVE, or the one built here; None if there is none."""
    named = os.environ.get(SWITCH, "")
    if os.path.isfile(named):
        return Path(named)
    path = FOLDER / ("_engine.dll" if sys.platform == "win32" else "_engine.so")
    return path if path.is_file() else None


def switched_off() -> bool:
    """Whether FLUIDTOOL_NATIVE disables it."""
    return is_off(SWITCH)


def is_off(variable: str) -> bool:
    """Whether an environment variable says no."""
    return os.environ.get(variable, "").lower() in {"0", "off", "no", "false"}


def library() -> Library | None:
    """The engine of this process, or None if it is not built or fails to load."""
    found = attempt()
    return found if isinstance(found, Library) else None


def absence() -> str:
    """Why this process has no engine; '' if it has one."""
    found = attempt()
    return "" if isinstance(found, Library) else found


@cache
def attempt() -> Library | str:
    """The engine of this process, or why there is none and how to fix it."""
    path = library_path()
    if path is None:
        return f"not built: no C compiler was available when fluidtool was installed; with one, '{BUILD}' builds it"
    try:
        handle = opened(path)
    except (OSError, AttributeError) as error:
        return f"{path} cannot be loaded ({error}); rebuild it: '{BUILD}'"
    if handle.ft_abi() != FINGERPRINT:
        return f"{path} was built from other sources; rebuild it: '{BUILD}'"
    wanted = os.environ.get(INSTRUCTIONS, "")
    if not handle.ft_use_instructions(wanted.encode() or None):
        has = ", ".join(usable_instructions(handle))
        if has:
            return f"{INSTRUCTIONS}={wanted} is not available; for this processor {path} has {has}"
        return f"{path} was built for other processors; rebuild it for this one: '{BUILD}'"
    found = Library(path, handle.ft_instructions_name().decode(), handle.ft_vector_width(), 1, handle)
    found.use_threads(thread_count())
    return found


def opened(path: Path) -> ctypes.CDLL:
    """The library with the types of its functions; raises OSError or AttributeError for any other file."""
    handle = ctypes.CDLL(str(path))
    for name in ("ft_instructions_name", "ft_usable"):
        getattr(handle, name).restype = ctypes.c_char_p
    handle.ft_vector_width.restype = ctypes.c_int64
    handle.ft_abi.restype = ctypes.c_uint32
    handle.ft_run.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    handle.ft_run.restype = None
    handle.ft_run_timed.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    handle.ft_run_timed.restype = None
    handle.ft_use_instructions.argtypes = [ctypes.c_char_p]
    handle.ft_usable.argtypes = [ctypes.c_int]
    return handle


def usable_instructions(handle: ctypes.CDLL) -> list[str]:
    """The instruction sets that a library was built for and this processor supports, the best first."""
    names = (handle.ft_usable(index) for index in itertools.count())
    return [name.decode() for name in itertools.takewhile(bool, names)]
