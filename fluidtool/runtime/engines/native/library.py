"""The compiled library: found, loaded, asked what it uses. Plain C ABI through ctypes."""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.errors import FluidError, UsageError
from fluidtool.processors import processors
from fluidtool.runtime.graph.ir import EngineFaultError

if TYPE_CHECKING:
    from fluidtool.ir import Operator
    from fluidtool.runtime.engines.native.compiler import Compiled
    from fluidtool.runtime.engines.native.packed import Packed
    from fluidtool.runtime.graph.importers.refusals import Attributes
    from fluidtool.runtime.graph.importers.registry import Lod

FOLDER = Path(__file__).parent
SWITCH, THREADS, INSTRUCTIONS = "FLUIDTOOL_NATIVE", "FLUIDTOOL_THREADS", "FLUIDTOOL_INSTRUCTIONS"
PAIRS = "avx512_bf16"  # the instructions of src/pairs.c
BUGS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)  # of an importer or of the lowering
MOST_THREADS = 256  # as in src/pool.c
BUILD = "python -m fluidtool.runtime.engines.native.build"

STEP = np.dtype(
    [("kind", "i4"), ("activation", "i4"), ("p", "u8", 7), ("n", "i8", 32), ("f", "f4", 4)],
    align=True,
)


@dataclass(eq=False, slots=True)
class Library:
    """The engine of this process: `instructions` ('avx512_bf16', 'avx512', 'avx2' or 'portable'), `width` floats in a vector,
    `threads`; and what products and convolutions are rounded to, `precision` (bfloat16.py).
    """

    path: Path
    instructions: str
    width: int
    threads: int
    handle: ctypes.CDLL
    precision: str = "float32"
    any_rows: bool = True

    @property
    def pairs(self) -> bool:
        """Whether products and convolutions are dot products of pairs of bfloat16 numbers (src/pairs.c)."""
        return self.precision == "bf16" and self.instructions == PAIRS

    def run(self, steps: NDArray[np.void]) -> None:
        """Run an array of STEP, one after the other. The steps hold addresses: whoever made them keeps the arrays alive."""
        self.handle.ft_run(first_byte(steps), len(steps))

    def compile(
        self,
        ops: Sequence[tuple[Operator, Attributes]],
        given: Mapping[str, NDArray[Any]],
        constants: Mapping[str, NDArray[Any]],
        wanted: Sequence[str],
        lods: Mapping[str, Lod] | None = None,
        packed: Packed | None = None,
        pooled: Collection[str] = (),
    ) -> Compiled:
        """Compile a region (specialization.py); raises UnsupportedError where a kernel is missing."""
        from fluidtool.runtime.engines.native.compiler import compile_region

        try:
            return compile_region(ops, given, constants, wanted, self, lods, packed, pooled)
        except BUGS as error:
            if isinstance(error, FluidError):
                raise
            types = ", ".join(dict.fromkeys(op.type for op, _ in ops))
            raise EngineFaultError(f"{types} cannot be compiled: {type(error).__name__}: {error}") from error

    def run_timed(self, steps: NDArray[np.void]) -> NDArray[np.float64]:
        """The same; returns how many seconds each step took."""
        seconds = np.zeros(len(steps))
        self.handle.ft_run_timed(steps.ctypes.data, len(steps), seconds.ctypes.data)
        return seconds

    def use_threads(self, count: int) -> int:
        """Use so many threads from here on, and return how many there are: those that have started are never ended."""
        self.threads = self.handle.ft_use_threads(min(count, MOST_THREADS))
        return self.threads

    def trim(self) -> None:
        """Give memory that is free back to the system."""
        self.handle.ft_trim()


def first_byte(array: NDArray[Any]) -> int:
    """The address of a row-major array. Where it may be written, as most, this takes a third of `array.ctypes`."""
    if array.size and array.flags.writeable:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    return int(array.ctypes.data)


def library_path() -> Path | None:
    """Where the compiled library is: the file that FLUIDTOOL_NATIVE names, or the one built here; None without."""
    named = os.environ.get(SWITCH, "")
    if os.path.isfile(named):
        return Path(named)
    path = FOLDER / ("_engine.dll" if sys.platform == "win32" else "_engine.so")
    return path if path.is_file() else None


def thread_count() -> int:
    """Threads to use: FLUIDTOOL_THREADS, else CPU_NUM, else one for each processor that this process may run on.

    Never more than there are processors: threads that take turns on one only wait for each other. Raises UsageError when
    FLUIDTOOL_THREADS is not a whole number from 1 on; CPU_NUM, which Paddle means otherwise too, is then left aside.
    """
    text = os.environ.get(THREADS, "").strip()
    if text and not _is_count(text):
        raise UsageError(
            f"{THREADS} is {text!r}; expected a number of threads from 1 on, or nothing for one per processor"
        )
    hint = os.environ.get("CPU_NUM", "").strip()
    wanted = text or (hint if _is_count(hint) else "")
    return min(int(wanted.lstrip("0")[:9]) if wanted else processors(), processors(), MOST_THREADS)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and bool(text.strip("0"))


def switched_off() -> bool:
    """Whether FLUIDTOOL_NATIVE says no."""
    return os.environ.get(SWITCH, "").lower() in {"0", "off", "no", "false"}


def library() -> Library | None:
    """The engine of this process, or None where it is not built or does not load."""
    found = attempt()
    return found if isinstance(found, Library) else None


def absence() -> str:
    """Why there is no engine in this process; '' where there is one."""
    found = attempt()
    return "" if isinstance(found, Library) else found


@cache
def attempt() -> Library | str:
    """The engine of this process, or why there is none and what to do."""
    path = library_path()
    if path is None:
        return (
            f"not built: when fluidtool was installed there was no C compiler that could; with one, '{BUILD}' builds it"
        )
    try:
        handle = opened(path)
    except (OSError, AttributeError) as error:
        return f"{path} cannot be loaded ({error}); build it again: '{BUILD}'"
    if handle.ft_step_size() != STEP.itemsize:
        return f"{path} was built from other sources; build it again: '{BUILD}'"
    wanted = os.environ.get(INSTRUCTIONS, "")
    if not handle.ft_use_instructions(wanted.encode() or None):
        has = ", ".join(usable_instructions(handle))
        if has:
            return f"{INSTRUCTIONS}={wanted} is not to be had; for this processor {path} has {has}"
        return f"{path} was built for other processors; build it for this one: '{BUILD}'"
    found = Library(path, handle.ft_instructions_name().decode(), handle.ft_vector_width(), 1, handle)
    found.use_threads(thread_count())
    return found


def opened(path: Path) -> ctypes.CDLL:
    """The library with the types of its functions; raises OSError or AttributeError where it is none."""
    handle = ctypes.CDLL(str(path))
    for name in ("ft_instructions_name", "ft_usable"):
        getattr(handle, name).restype = ctypes.c_char_p
    for name in ("ft_vector_width", "ft_step_size"):
        getattr(handle, name).restype = ctypes.c_int64
    handle.ft_run.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    handle.ft_run.restype = None
    handle.ft_run_timed.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    handle.ft_run_timed.restype = None
    handle.ft_use_instructions.argtypes = [ctypes.c_char_p]
    handle.ft_usable.argtypes = [ctypes.c_int]
    return handle


def usable_instructions(handle: ctypes.CDLL) -> list[str]:
    """The instruction sets that a library was built for and this processor has, the best first."""
    names = (handle.ft_usable(index) for index in itertools.count())
    return [name.decode() for name in itertools.takewhile(bool, names)]
