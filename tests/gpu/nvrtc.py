"""NVRTC by ctypes: whether sources compile for a GPU, on a machine that has none (pip install nvidia-cuda-nvrtc-cu12, or -cu13)."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ABSENT = "NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12 (or nvidia-cuda-nvrtc)"


@cache
def nvrtc() -> ctypes.CDLL | None:
    """The library of the wheel for CUDA 12 or 13; None without one."""
    for package, pattern in (("nvidia.cuda_nvrtc", "lib/libnvrtc.so.*"), ("nvidia.cu13", "lib/libnvrtc.so.*")):
        try:
            found = find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in [] if found is None else found.submodule_search_locations or []:
            for path in sorted(Path(folder).glob(pattern)):
                return ctypes.CDLL(str(path))
    return None


def faults(source: str, architecture: str) -> str:
    """What the compiler says of a source that it refuses; '' if it compiles."""
    refused, log = _compiled(source, architecture)
    return log or f"error {refused}" if refused else ""


def spilled(source: str, architecture: str) -> dict[str, int]:
    """The kernels of a source that registers do not suffice for, and the bytes of memory that a thread of each has instead."""
    refused, log = _compiled(source, architecture, b"--ptxas-options=-v")
    assert not refused, log
    found = re.findall(r"Function properties for (\w+)\s+ptxas\s+\.\s+(\d+) bytes stack frame", log)
    assert found, f"the compiler says nothing of memory: {log:.200}"
    return {name: int(size) for name, size in found if int(size)}


def _compiled(source: str, architecture: str, *more: bytes) -> tuple[int, str]:
    """(0, or the number of a fault; what the compiler says)."""
    library = nvrtc()
    assert library is not None
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    given = (f"--gpu-architecture={architecture}".encode(), b"--std=c++14", *more)
    options = (ctypes.c_char_p * len(given))(*given)
    refused = library.nvrtcCompileProgram(program, len(options), options)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return refused, log.value.decode()
