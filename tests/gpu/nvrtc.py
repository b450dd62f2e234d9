"""NVRTC by ctypes: whether sources compile for a GPU, on a machine that has none (pip install nvidia-cuda-nvrtc-cu12, or -cu13)."""

from __future__ import annotations

import ctypes
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
    library = nvrtc()
    assert library is not None
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++14")
    refused = library.nvrtcCompileProgram(program, len(options), options)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() or f"error {refused}" if refused else ""
