"""cupy.RawModule: CUDA C++ compiled as C++ and run on the processor, thread by thread, over arrays of the stand-in."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.standin.arrays import kernel, ndarray
from tests.gpu.standin.devices import MACHINE

HEADER = Path(__file__).with_name("emulation.h")
KERNEL = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(((?:[^()]|\n)*)\)', re.MULTILINE
)
TYPES = {
    "int": np.int32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "unsigned short": np.uint16,
    "unsigned char": np.uint8,
    "bool": np.bool_,
}
POINTER = re.compile(
    r"\b(const )?(bool|byte|float|half16|int|whole|word)\* (?:__restrict__ )?(const )?(?=\w+\s*[=;,)])"
)
SHARED = re.compile(r"__shared__ (\w+) ([^;]*);")
BYTES = {"float": 4, "int": 4, "half16": 2, "whole": 8, "word": 8}
LIMITS = {"x": 2**31 - 1, "y": 65535, "z": 65535}  # blocks of a grid
MOST_THREADS, MOST_SHARED, MOST_ARGUMENTS = 1024, 48 << 10, 4096  # of a block, bytes of a block, bytes
NAMED = {"whole": "long long", "word": "unsigned long long", "half16": "unsigned short", "byte": "unsigned char"}
WAITS = ("__syncthreads", "__shfl_xor_sync")  # calls in which a thread waits for others
ONE_AT_A_TIME = threading.Lock()
STACKS = mmap.mmap(-1, MOST_THREADS << 15)  # of the threads of a block
COMPILER = shutil.which("c++")
OPTIONS = [
    "-std=c++17", "-O1", "-ffp-contract=off", "-fsanitize=bounds", "-fPIC", "-shared", "-w", "-xc++", "-",
    "-nostdinc++",  # C's headers alone: C++'s are most of what there is to compile
]  # fmt: skip
NO_COMPILER = "a C++ compiler (c++) runs kernels of CUDA on the stand-in, and there is none"


class Range(ctypes.Structure):
    """The memory of an array."""

    _fields_ = (("begin", ctypes.c_void_p), ("end", ctypes.c_void_p))


class RawModule:
    """Kernels from source; compiled when one is asked for."""

    def __init__(self, code: str | None = None, *, options: Sequence[str] = (), backend: str = "nvrtc") -> None:
        if code is None or backend != "nvrtc":
            raise TypeError("the stand-in takes source for NVRTC")
        self._code = code

    def compile(self, log_stream: object = None) -> None:
        """Compile all kernels."""
        for name in parameters(self._code):
            self.get_function(name)

    def get_function(self, name: str) -> RawKernel:
        """A kernel by its name; raises AttributeError for one that the source lacks."""
        kernels = parameters(self._code)
        if name not in kernels:
            raise AttributeError(f"the source has no kernel {name}, only {', '.join(kernels)}")
        shared = shared_bytes(self._code)[name]
        if shared > MOST_SHARED:
            raise ValueError(f"{name}: {shared} bytes of static shared memory, of which a block has {MOST_SHARED}")
        return RawKernel(name, kernels[name], library(self._code))


class RawKernel:
    """A kernel: a call checks its arguments against the declaration, which nothing does on a GPU."""

    def __init__(self, name: str, types: list[str], loaded: ctypes.CDLL) -> None:
        self.name, self.types = name, types
        self._start = loaded[f"start_{name}"]
        ctypes.c_void_p.in_dll(loaded, "ft_stacks").value = ctypes.addressof(ctypes.c_char.from_buffer(STACKS))
        self._faults = {
            "reads or writes a piece where memory is not aligned for it": ctypes.c_int.in_dll(loaded, "ft_misaligned"),
            "reads or writes outside of its arrays": ctypes.c_int.in_dll(loaded, "ft_outside"),
            "has threads that wait for others at different places": ctypes.c_int.in_dll(loaded, "ft_apart"),
        }

    def __call__(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]) -> None:
        if len(args) != len(self.types):
            raise TypeError(f"{self.name} takes {len(self.types)} arguments, found {len(args)}")
        threads = int(np.prod(block))
        fits = all(0 < size <= most for size, most in zip(grid, LIMITS.values(), strict=False))
        if not 0 < threads <= MOST_THREADS or not fits:
            raise ValueError(f"{self.name}: a grid of {grid} blocks of {block} threads")
        if sum(8 if kind.endswith("*") else np.dtype(TYPES[kind]).itemsize for kind in self.types) > MOST_ARGUMENTS:
            raise ValueError(f"{self.name}: {len(self.types)} arguments take more than {MOST_ARGUMENTS} bytes")
        if MACHINE.capturing is None:
            kernel(*args)
        values = [_argument(self.name, kind, value) for kind, value in zip(self.types, args, strict=True)]
        grid_and_block = [*[*grid, 1, 1][:3], threads]
        written = [value for kind, value in zip(self.types, values, strict=True) if _is_written(kind)]

        def work(kept: Any = args) -> None:
            with ONE_AT_A_TIME:  # the place of a thread within the grid is a global variable
                before = [_bytes(each).copy() for each in written]
                self._run(grid_and_block, values, backwards=True)
                found = [_bytes(each).copy() for each in written]
                for each, held in zip(written, before, strict=True):
                    _bytes(each)[:] = held
                self._run(grid_and_block, values, backwards=False)
                if any(not np.array_equal(_bytes(each), other) for each, other in zip(written, found, strict=True)):
                    raise RuntimeError(f"{self.name} has other results where its threads run in another order")

        MACHINE.submit(work)

    def _run(self, grid_and_block: list[int], values: list[Any], *, backwards: bool) -> None:
        """Run the kernel once. Raises RuntimeError for what a GPU would give up for."""
        places = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
        self._start((ctypes.c_uint * 5)(*grid_and_block, backwards), places)
        found = [what for what, flag in self._faults.items() if flag.value]
        for flag in self._faults.values():
            flag.value = 0
        if found:
            raise RuntimeError(f"{self.name} {found[0]}")


def _is_written(kind: str) -> bool:
    return kind.endswith("*") and not kind.startswith("const ")


def _bytes(memory: Range) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of an array, to read and to write."""
    count = (memory.end or 0) - (memory.begin or 0)
    return np.ctypeslib.as_array((ctypes.c_ubyte * count).from_address(memory.begin or 0))


def _argument(name: str, kind: str, value: Any) -> Any:
    """An argument as C takes it; raises TypeError for one of another type than the kernel declares."""
    if kind.endswith("*"):
        if not isinstance(value, ndarray):
            raise TypeError(f"{name} takes an array as {kind}, found {type(value).__name__}")
        wanted = TYPES.get(kind.removesuffix("*").removeprefix("const ").strip(), np.float64)
        if value.dtype != wanted:
            raise TypeError(f"{name} takes an array of {np.dtype(wanted)} as {kind}, found {value.dtype}")
        return Range(*np.lib.array_utils.byte_bounds(value.host))
    if type(value) is not TYPES[kind]:
        raise TypeError(f"{name} takes {kind}, found {type(value).__name__}")
    return np.ctypeslib.as_ctypes_type(TYPES[kind])(value.item())


@cache
def parameters(code: str) -> dict[str, list[str]]:
    """The types of the parameters of each kernel."""
    return {
        name: [_type(part) for part in declared.split(",") if part.strip()] for name, declared in KERNEL.findall(code)
    }


@cache
def shared_bytes(code: str) -> dict[str, int]:
    """The static shared memory of each kernel."""
    found = dict.fromkeys(parameters(code), 0)
    for name, body in zip(found, KERNEL.split(code)[3::3], strict=True):
        for kind, declared in SHARED.findall(body):
            found[name] += BYTES[kind] * sum(int(size) for size in re.findall(r"\[(\d+)\]", declared))
    return found


def _type(declared: str) -> str:
    words = declared.replace("__restrict__", "").replace("*", " * ").split()
    kind = " ".join(NAMED.get(word, word) for word in words[:-1]).replace(" *", "*")
    return kind


def require_compiler() -> str:
    """The compiler; raises RuntimeError without one."""
    if COMPILER is None:
        raise RuntimeError(NO_COMPILER)
    return COMPILER


@cache
def library(code: str) -> ctypes.CDLL:
    """The compiled source, with a function `start_NAME(sizes, arguments)` for each kernel."""
    found = code
    bodies = dict(zip(parameters(code), KERNEL.split(code)[3::3], strict=True))
    starts = []
    for name, declared in KERNEL.findall(found):
        waits = str(any(call in bodies[name] for call in WAITS)).lower()
        types = [_declared(part) for part in declared.split(",") if part.strip()]
        args = ", ".join(_given(kind, at) for at, kind in enumerate(types))
        ranges = [f"*(ft_range*)given[{at}]" for at, kind in enumerate(types) if kind.endswith("*")]
        noted = " ".join(f"ft_ranges[{number}] = {found};" for number, found in enumerate(ranges))
        starts.append(
            f"static void body_{name}(void** given) {{ {name}({args}); }}\n"
            f'extern "C" void start_{name}(const unsigned* sizes, void** given)\n'
            f"{{ {noted} ft_range_count = {len(ranges)}; ft_run(sizes, body_{name}, given, {waits}); }}\n"
        )
    source = f'#include "{HEADER}"\n{_within(found)}\n{"".join(starts)}'
    digest = hashlib.sha256("\n".join([*OPTIONS, HEADER.read_text(), source]).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"fluidtool-standin-{digest}"
    target = folder / "kernels.so"
    if not target.exists():
        folder.mkdir(exist_ok=True)
        made = folder / f"{np.random.default_rng().integers(1 << 60)}.so"
        command = [require_compiler(), *OPTIONS, "-o", str(made)]
        done = subprocess.run(command, input=source, text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the source of kernels does not compile: {done.stderr[:2000]}")
        made.replace(target)
    return ctypes.CDLL(str(target))


def _within(code: str) -> str:
    """The source, whose kernels have pointers that know their arrays."""
    first = KERNEL.search(code)
    assert first is not None, "a source without kernels"
    kernels = POINTER.sub(lambda found: f"ft_array<{found[1] or ''}{found[2]}> ", code[first.start() :])
    return code[: first.start()] + kernels


def _given(kind: str, at: int) -> str:
    """An argument of this type, from what the host has."""
    if not kind.endswith("*"):
        return f"*({kind}*)given[{at}]"
    pointed = kind.removesuffix("*")
    return f"ft_array<{pointed}>(({kind})((ft_range*)given[{at}])->begin, *(ft_range*)given[{at}])"


def _declared(part: str) -> str:
    return (
        part.replace("__restrict__", "").rstrip().rpartition("*")[0] + "*" if "*" in part else part.rpartition(" ")[0]
    )
